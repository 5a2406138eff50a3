"""The ``GeoTransform`` of what was joined, or selected from, by its labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.combine.rules.georeference import with_moved_transforms
from gridref.model.array import VirtualArray
from gridref.testing.builders import chunked_array

STATED = "100 10 0 50 0 -20"


def arrays_of(x: Any, y: Any, transform: str = STATED, axes: str = "XY") -> dict[str, VirtualArray]:
    ways = dict(zip("xy", axes, strict=True))
    labels = {
        dim: chunked_array(np.array(held), (len(held),), (dim,), attrs={"axis": ways[dim]})
        for dim, held in (("x", x), ("y", y))
    }
    shape = (len(y), len(x))
    band = chunked_array(np.zeros(shape), shape, ("y", "x"), attrs={"grid_mapping": "crs"})
    crs = chunked_array(np.array(0), (), (), attrs={"GeoTransform": transform, "long_name": "crs"})
    return {"v": band, "crs": crs, **labels}


def moved(arrays: dict[str, VirtualArray], x: Any, y: Any) -> Any:
    found = with_moved_transforms(arrays, {"x": np.array(x), "y": np.array(y)}.get)
    assert {name: each for name, each in found.items() if name != "crs"} == {
        name: each for name, each in arrays.items() if name != "crs"
    }
    return found["crs"].attrs


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        pytest.param([105.0, 115], [40.0, 20], STATED, id="as stated"),
        pytest.param([105.0, 115], [20.0, 40], STATED, id="from the south, as GDAL writes it"),
        pytest.param([105.0, 115], [80.0, 60, 40, 20], "100 10 0 90 0 -20", id="rows before"),
        pytest.param([115.0, 125], [40.0, 20], "110 10 0 50 0 -20", id="columns cut off"),
        pytest.param([105.0, 135], [40.0, 20], "90 30 0 50 0 -20", id="in steps"),
        pytest.param([205.0], [-20.0], "200 10 0 -10 0 -20", id="one pixel"),
        pytest.param([105.0, 115, 145], [40.0, 20], None, id="uneven"),
        pytest.param([105.0, 105, 115], [40.0, 20], None, id="repeated"),
        pytest.param([115.0, 105, 125], [40.0, 20], None, id="not in order"),
        pytest.param([100.0, 110], [50.0, 30], STATED, id="corners of pixels"),
        pytest.param([0.105, 0.115], [0.04, 0.02], STATED, id="in other units"),
    ],
)
def test_transforms_go_with_their_pixels(x: Any, y: Any, expected: str | None) -> None:
    attrs = moved(arrays_of(x, y), x, y)
    assert attrs["long_name"] == "crs"
    numbers = [float(each) for each in attrs.get("GeoTransform", "").split()]
    assert numbers == [float(each) for each in (expected or "").split()]


@pytest.mark.parametrize("transform", ["", "100 10 1 50 0 -20", "100 0 0 50 0 -20", "no numbers"])
def test_other_transforms_stay(transform: str) -> None:
    x, y = [205.0, 215], [40.0, 20]
    assert moved(arrays_of(x, y, transform), x, y)["GeoTransform"] == transform


def test_dimensions_that_say_no_direction_move_nothing() -> None:
    x, y = [205.0, 215], [40.0, 20]
    assert moved(arrays_of(x, y, axes="ZT"), x, y)["GeoTransform"] == STATED


def test_a_grid_mapping_may_be_named_with_its_coordinates() -> None:
    x, y = [115.0, 125], [40.0, 20]
    arrays = arrays_of(x, y)
    named = {"grid_mapping": "crs: x y other: lat lon"}  # CF conventions 1.11, 5.6
    arrays["v"] = arrays["v"].with_changes(attrs=named)
    assert moved(arrays, x, y)["GeoTransform"].startswith("110.0 10.0 ")
