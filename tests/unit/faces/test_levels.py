"""What pages take from the attributes of images: channels, and levels of detail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.faces.web.levels import levels, previewed
from gridref.model.array import VirtualArray, VirtualGroup

SCALE = {"axes": [{"name": name} for name in "cyx"], "datasets": [{"path": "0"}, {"path": "1"}]}
SCALE["axes"][0]["type"] = "channel"
CHANNELS = [
    {"label": "DAPI", "color": "0000FF", "window": {"min": 0, "max": 9, "start": 1, "end": 5}},
    {"label": 7, "color": "#00ff00", "active": False},
]


def image(attrs: dict[str, Any]) -> VirtualGroup:
    arrays = {
        name: VirtualArray.from_numpy(np.zeros((2, 4 // step, 6 // step), "u2"), ("c", "y", "x"))
        for name, step in (("0", 1), ("1", 2))
    }
    return VirtualGroup(arrays, attrs=attrs)


@pytest.mark.parametrize("version", ["0.3", "0.4", "0.5"])
def test_channels_of_each_version_of_ome_zarr(version: str) -> None:
    scale = SCALE | {"axes": list("cyx")} if version == "0.3" else SCALE
    said = {"multiscales": [scale], "omero": {"channels": CHANNELS}}
    found = levels(image({"ome": said} if version == "0.5" else said), "0")
    assert [level.path for level in found] == ["0", "1"]
    assert [level.channels for level in found] == [
        {
            "axis": 0,
            "entries": [
                {"label": "DAPI", "colour": "0000ff", "window": [1, 5], "active": True},
                {"label": "7", "colour": "00ff00", "window": None, "active": False},
            ],
        }
    ] * 2


@pytest.mark.parametrize(
    "channels",
    [None, "DAPI", [], CHANNELS[:1], CHANNELS * 200, {"0": CHANNELS}],
    ids=["none", "text", "empty", "too few", "too many", "mapping"],
)
def test_channels_that_are_not_the_arrays_are_left_out(channels: Any) -> None:
    (first, _) = levels(image({"multiscales": [SCALE], "omero": {"channels": channels}}), "0")
    assert first.channels is None


@pytest.mark.parametrize(
    "window",
    [
        {"min": 0, "max": 255, "start": 0, "end": 255},
        {"start": 5, "end": 5},
        {"start": float("nan"), "end": 5},
        {"start": 0, "end": 10**400},
        {"start": "0", "end": "5"},
        [0, 5],
    ],
)
def test_a_window_that_nobody_chose_is_none(window: Any) -> None:
    channels = [{"window": window, "color": "red", "label": None}, "GFP"]
    (first, _) = levels(image({"multiscales": [SCALE], "omero": {"channels": channels}}), "0")
    assert first.channels is not None
    assert first.channels["entries"] == [
        {"label": f"channel {number}", "colour": None, "window": None, "active": True}
        for number in range(2)
    ]


def test_labels_of_the_finest_level_label_no_coarser_one() -> None:
    """As of overviews whose labels neither rise nor fall, so that they have none of their own."""
    across = VirtualArray.from_numpy(np.array([0.0, 90, -180, -90]), ("x",))
    times = VirtualArray.from_numpy(np.arange(4.0), ("y",), {"units": "days since 2000-01-01"})
    fine, coarse = (
        VirtualArray.from_numpy(np.zeros((n, n)), ("y", "x"), {"coordinates": "time"})
        for n in (4, 2)
    )
    group = VirtualGroup(
        {"x": across, "time": times, "v": fine}, {"overview_1": VirtualGroup({"v": coarse})}
    )
    found = [level.coordinates for level in levels(group, "v")]
    assert found == [("time", "x"), (None, None)]


def test_bounds_that_say_nothing_are_none_for_the_viewer() -> None:
    """JSON has one kind of number; bounds of unpacked numbers are given as floats."""
    attrs = {"scale_factor": 0.5, "valid_min": 10.0, "valid_max": 20.0}
    for bounds, expected in (
        (attrs, {"valid_min": None, "valid_max": None}),
        ({"valid_min": 1}, {}),
    ):
        array = VirtualArray.from_numpy(np.zeros((2, 2), "i2"), ("y", "x"), bounds)
        assert levels(VirtualGroup({"v": array}), "v")[0].attributes == expected


def test_a_preview_shows_no_latitudes() -> None:
    make = VirtualArray.from_numpy
    group = VirtualGroup(
        {
            "lat": make(np.zeros((9, 9)), ("y", "x"), {"units": "degrees_north"}),
            "lon": make(np.zeros((9, 9)), ("y", "x"), {"units": "degrees_east"}),
            "seen": make(np.zeros((9, 9)), ("y", "x"), {"units": "s since 2000-01-01"}),
            "speed": make(np.zeros((8, 8)), ("a", "b"), {"units": "m s-1"}),
        }
    )
    assert [level.path for level in previewed(group)] == ["speed"]
