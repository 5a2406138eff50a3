"""Attributes of groups whose variables get a new dimension."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.combine import CombineOptions, combine
from gridref.combine.rules.single import stacked_attributes
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.reference_reader import read_slowly


def ome(*axes: str) -> dict[str, Any]:
    kinds = {"t": "time", "c": "channel", "y": "space", "x": "space"}
    steps = [{"type": "scale", "scale": [1.0] * len(axes)}]
    image = {
        "name": "image",
        "axes": [{"name": axis, "type": kinds[axis]} for axis in axes],
        "datasets": [{"path": "0/image", "coordinateTransformations": steps}],
    }
    return {"title": "x", "ome": {"version": "0.5", "multiscales": [image]}}


@pytest.mark.parametrize("axes", ["yx", "cyx"])
def test_time_becomes_the_first_axis(axes: str) -> None:
    before = ome(*axes)
    (image,) = stacked_attributes(before, "time")["ome"]["multiscales"]
    assert image["axes"][0] == {"name": "time", "type": "time"}
    assert [axis["name"] for axis in image["axes"][1:]] == list(axes)
    (level,) = image["datasets"]
    assert level["coordinateTransformations"] == [
        {"type": "scale", "scale": [1.0] * (len(axes) + 1)}
    ]
    assert before == ome(*axes)


def test_another_dimension_is_an_axis_without_type() -> None:
    (image,) = stacked_attributes(ome("y", "x"), "slide")["ome"]["multiscales"]
    assert image["axes"][0] == {"name": "slide"}


@pytest.mark.parametrize(("axes", "dim"), [("tyx", "time"), ("cyx", "slide"), ("tyx", "slide")])
def test_what_ome_zarr_does_not_know_is_left_out(axes: str, dim: str) -> None:
    assert stacked_attributes(ome(*axes), dim) == {"title": "x"}


def test_georeferenced_pyramids() -> None:
    layout = [
        {"asset": "band_data", "transform": {"scale": [1.0, 1.0], "translation": [0.0, 0.0]}},
        {"asset": "1/band_data", "derived_from": "band_data", "transform": {"scale": [2.0, 2.0]}},
        {"asset": "2/band_data"},
    ]
    found = stacked_attributes({"multiscales": {"layout": layout}}, "time")
    assert found["multiscales"]["layout"] == [
        {
            "asset": "band_data",
            "transform": {"scale": [1.0, 1.0, 1.0], "translation": [0.0, 0.0, 0.0]},
        },
        {
            "asset": "1/band_data",
            "derived_from": "band_data",
            "transform": {"scale": [1.0, 2.0, 2.0]},
        },
        {"asset": "2/band_data"},
    ]


@pytest.mark.parametrize("strange", [5, [3], [{}], [{"axes": [], "datasets": [{}]}]])
def test_broken_descriptions_are_left_out(strange: Any) -> None:
    assert stacked_attributes({"ome": {"multiscales": strange}}, "time") == {}


@pytest.mark.parametrize("strange", [5, [], {"layout": 3}, {"layout": [1, {"transform": 2}]}])
def test_attributes_of_that_name_that_mean_something_else(strange: Any) -> None:
    attrs = {"multiscales": strange, "ome": "a text"}
    assert stacked_attributes(attrs, "time") == attrs


def test_gaps_leave_doubles_beside_floats_as_they_are() -> None:
    """Files of float32 and float64, and one that lacks the variable."""
    single, double = (
        VirtualGroup(
            {
                "t": VirtualArray.from_numpy(np.array([0.1], dtype), ("time",)),
                "u": VirtualArray.from_numpy(np.array([1.0]), ("time",)),
            }
        )
        for dtype in ("f4", "f8")
    )
    lacking = VirtualGroup({"u": double.arrays["u"]})
    rules = CombineOptions(join="outer")
    t = combine([single, double, lacking], "time", options=rules).unwrap().arrays["t"]
    assert t.dtype == np.float64
    np.testing.assert_array_equal(read_slowly(t), [np.float32(0.1), 0.1, np.nan])
