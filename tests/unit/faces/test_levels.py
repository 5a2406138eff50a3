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
