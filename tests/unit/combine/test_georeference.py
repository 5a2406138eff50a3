"""Where rasters lie: pixels, tolerances, and what two of them share."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gridref.combine.georeference import (
    Misfit,
    Raster,
    mapping_name,
    misfit,
    overlaps,
    place_rasters,
    plane_dims,
    read_raster,
    side_by_side,
)
from gridref.combine.values import Values
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly

FIRST = Raster("a.tif", 100.0, 10.0, 500.0, -20.0, 4, 6, 'PROJCS["one", x]')


def test_a_raster_that_is_moved_by_pixels() -> None:
    moved = FIRST.moved(2, -3)
    assert (moved.x0, moved.y0) == (70.0, 460.0)
    assert replace(moved, x0=FIRST.x0, y0=FIRST.y0) == FIRST
    assert FIRST.transform == "100.0 10.0 0.0 500.0 0.0 -20.0"


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, None),
        ({"x0": 130.0, "y0": 440.0}, None),
        ({"x0": 100.9}, None),
        ({"x0": 101.1}, "off-grid"),
        ({"x0": 99.1}, None),
        ({"x0": 98.9}, "off-grid"),
        ({"y0": 501.9}, None),
        ({"y0": 502.1}, "off-grid"),
        ({"dx": 10.16}, None),  # a tenth of a pixel over 6 columns
        ({"dx": 10.17}, "resolution-differs"),
        ({"dx": 9.84}, None),
        ({"dx": 9.83}, "resolution-differs"),
        ({"dy": -20.49}, None),
        ({"dy": -20.51}, "resolution-differs"),
        ({"dy": 20.0}, "resolution-differs"),
        ({"crs": 'PROJCS["two", x]'}, "crs-differs"),
        ({"crs": ""}, "crs-differs"),
    ],
)
def test_what_lies_on_the_pixels_of_another_one(changes: dict[str, Any], cause: str | None) -> None:
    found = misfit(FIRST, replace(FIRST, name="b.tif", **changes), 0.1)
    assert (found and found.cause) == cause
    if cause == "crs-differs" and found is not None:
        assert "'one'" in found.message
        assert ("'two'" if changes["crs"] else "unknown") in found.message


def test_rasters_are_placed_from_the_outermost_pixel() -> None:
    second = replace(FIRST, x0=80.0, y0=520.4, n_rows=2, n_columns=3)
    third = replace(FIRST, x0=151.0, y0=440.0)
    spans, corner = place_rasters(FIRST, [FIRST, second, third])
    assert corner == (-1, -2)
    assert spans.tolist() == [[[1, 5], [2, 8]], [[0, 2], [0, 3]], [[4, 8], [7, 13]]]


def pixels(span: list[list[int]]) -> set[tuple[int, int]]:
    return {*itertools.product(*(range(*along) for along in span))}


def test_what_rasters_share() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(1, 5))
        starts, sizes = rng.integers(0, 5, (n, 2)), rng.integers(1, 4, (n, 2))
        spans = np.stack([starts, starts + sizes], axis=2)
        inputs = rng.integers(0, 3, n).tolist()
        owner: dict[tuple[int, int], int] = {}
        expected = {}
        for number, span in enumerate(spans.tolist()):
            held = [owner[at] for at in pixels(span) if at in owner]
            others = [other for other in held if inputs[other] != inputs[number]]
            if others:
                expected[number] = {*others}
            for at in pixels(span) - owner.keys():
                owner[at] = number
        found = overlaps(spans, inputs)
        assert [number for number, *_ in found] == sorted(expected)
        for number, other, n_rows, n_columns in found:
            assert other in expected[number]
            shared = pixels(spans[number].tolist()) & pixels(spans[other].tolist())
            assert n_rows * n_columns == len(shared)
            assert n_rows == len({row for row, _ in shared})


def labels_of(n: int, first: float, step: float, name: str, **attrs: Any) -> VirtualArray:
    return VirtualArray.from_numpy(first + step * np.arange(n), [name], attrs=attrs)


def group(transform: str | None, **labels: VirtualArray) -> VirtualGroup:
    arrays: dict[str, Any] = dict(labels)
    arrays["v"] = chunked_array(
        np.zeros((4, 6), "u1"), (4, 6), ("y", "x"), attrs={"grid_mapping": "crs"}
    )
    if transform is not None:
        arrays["crs"] = VirtualArray.from_numpy(np.array(0), [], attrs={"GeoTransform": transform})
    return VirtualGroup(arrays)


def read(transform: str | None, **labels: VirtualArray) -> Raster | Misfit:
    return read_raster(group(transform, **labels), "a.tif", "x", "y", Values(None))


def centres(off_x: float = 0, off_y: float = 0, last_x: float = 0) -> dict[str, VirtualArray]:
    """Labels of the pixels' centres, off by so many pixels."""
    step = 10 * (1 + last_x / 5)
    x = labels_of(6, 105 + 10 * off_x, step, "x")
    return {"x": x, "y": labels_of(4, 490 - 20 * off_y, -20, "y")}


NORTH_UP = "100 10 0 500 0 -20"


@pytest.mark.parametrize(
    ("labels", "by_labels"),
    [
        ({}, False),
        (centres(), False),
        (centres(0.25), False),
        (centres(0.26), True),
        (centres(-0.25), False),
        (centres(-0.26), True),
        (centres(0, 0.25), False),
        (centres(0, 0.26), True),
        (centres(last_x=0.24), False),
        (centres(last_x=0.26), True),
        ({"x": centres(3)["x"]}, False),  # labels of one axis say nothing
        ({"x": labels_of(6, 0, 10, "x"), "y": labels_of(4, 0, 1, "y")}, True),
    ],
    ids=range(12),
)
def test_labels_count_where_they_say_something_else(
    labels: dict[str, VirtualArray], by_labels: bool
) -> None:
    found = read(NORTH_UP, **labels)
    assert isinstance(found, Raster)
    assert found.by_labels == by_labels
    assert (found.n_rows, found.n_columns) == (4, 6)
    if not by_labels:
        assert (found.x0, found.dx, found.y0, found.dy) == (100, 10, 500, -20)
    else:
        first = float(read_slowly(labels["x"])[0])
        assert found.x0 == pytest.approx(first - found.dx / 2)


@pytest.mark.parametrize(
    ("transform", "cause"),
    [
        ("100 10 1 500 0 -20", "rotated"),
        ("100 10 0 500 1 -20", "rotated"),
        ("100 0 0 500 0 -20", "rotated"),
        ("100 10 0 500 0 0", "rotated"),
        (None, "not-georeferenced"),
    ],
)
def test_what_is_no_plane_of_pixels(transform: str | None, cause: str) -> None:
    found = read(transform)
    assert isinstance(found, Misfit)
    assert found.cause == cause


@pytest.mark.parametrize(
    ("off", "is_even"),
    [(0.0, True), (0.049, True), (0.051, False), (-0.049, True), (-0.051, False)],
)
def test_labels_are_evenly_spaced_but_for_rounding(off: float, is_even: bool) -> None:
    values = 105.0 + 10 * np.arange(6)
    values[2] += 10 * off
    found = read(None, x=VirtualArray.from_numpy(values, ["x"]), y=centres()["y"])
    assert isinstance(found, Raster) == is_even
    if isinstance(found, Raster):
        assert (found.x0, found.dx, found.y0, found.dy) == (100, 10, 500, -20)
    else:
        assert found.cause == "off-grid"
        assert "concat_dim=['y', 'x']" in found.message


def test_labels_that_do_not_move_are_no_pixels() -> None:
    found = read(None, x=labels_of(6, 5, 0, "x"), y=centres()["y"])
    assert isinstance(found, Misfit)
    assert found.cause == "off-grid"


@pytest.mark.parametrize("n", [1, 2])
def test_one_label_tells_no_step(n: int) -> None:
    arrays = {
        "v": chunked_array(np.zeros((4, n), "u1"), (4, n), ("y", "x")),
        "x": labels_of(n, 105, 10, "x"),
        "y": centres()["y"],
    }
    found = read_raster(VirtualGroup(arrays), "a", "x", "y", Values(None))
    assert isinstance(found, Raster) == (n > 1)


def test_which_grid_mapping_is_meant() -> None:
    assert mapping_name(group(NORTH_UP), "x", "y") == "crs"
    assert mapping_name(group(None), "x", "y") == "spatial_ref"
    assert mapping_name(group(NORTH_UP), "x", "z") == "spatial_ref"


def test_what_columns_and_rows_are_called() -> None:
    assert plane_dims(group(None), "x", "y") == ("x", "y")
    assert plane_dims(group(None), "lon", "lat") == ("lon", "lat")
    named = {
        "a": labels_of(3, 0, 1, "a", standard_name="longitude"),
        "b": labels_of(3, 0, 1, "b", axis="Y"),
        "two": chunked_array(np.zeros((3, 3)), (3, 3), ("b", "a"), attrs={"axis": "X"}),
    }
    assert plane_dims(VirtualGroup(named), "x", "y") == ("a", "b")
    assert plane_dims(VirtualGroup({"b": named["b"]}), "x", "y") == ("x", "b")


TRANSFORM = {"GeoTransform": "100 10 0 500 0 -20"}


@pytest.mark.parametrize("before", [(), ("x",), ("y",), ("t",), ("t", "x")])
def test_the_size_of_a_raster_is_that_of_an_array_with_both_axes(before: tuple[str, ...]) -> None:
    arrays = {"crs": VirtualArray.from_numpy(np.array(0), [], attrs=TRANSFORM)}
    sizes = {"t": 2, "y": 3, "x": 4}
    for number, dims in enumerate([before, ("t", "x", "y")]):
        values = np.zeros([sizes[dim] for dim in dims], "u1")
        attrs = {"grid_mapping": "crs"} if len(dims) > 2 else {}
        array = chunked_array(values, values.shape, dims, attrs=attrs)
        arrays[f"v{number}"] = array
    raster: Any = read_raster(VirtualGroup(arrays), "a.tif", "x", "y")
    numbers = (raster.x0, raster.dx, raster.y0, raster.dy, raster.n_rows, raster.n_columns)
    assert numbers == (100, 10, 500, -20, 3, 4)


@pytest.mark.parametrize("step", [(2.0, -3.0), (-0.5, 0.25), (1e-3, 1e3)])
@pytest.mark.parametrize("crs", [{}, {"GeoTransform": "7 1 0 7 0 1"}])
def test_rasters_that_only_labels_place(step: tuple[float, float], crs: dict[str, str]) -> None:
    """Labels are centres of pixels; where a transform says otherwise, they count."""
    labels = [100 + dx * np.arange(n) for dx, n in zip(step, (4, 3), strict=True)]
    arrays = {
        "x": VirtualArray.from_numpy(labels[0], ["x"]),
        "y": VirtualArray.from_numpy(labels[1], ["y"]),
        "v": chunked_array(np.zeros((3, 4), "u1"), (3, 4), ("y", "x")),
        "crs": VirtualArray.from_numpy(np.array(0), [], attrs=crs),
    }
    arrays["v"] = arrays["v"].with_changes(attrs={"grid_mapping": "crs"})
    found: Any = read_raster(VirtualGroup(arrays), "a.nc", "x", "y", Values(None))
    assert found.by_labels
    assert (found.x0, found.dx) == pytest.approx((100 - step[0] / 2, step[0]))
    assert (found.y0, found.dy) == pytest.approx((100 - step[1] / 2, step[1]))
    assert (found.n_rows, found.n_columns) == (3, 4)
    labels[0][1] += step[0] / 2
    arrays["x"] = VirtualArray.from_numpy(labels[0], ["x"])
    uneven: Any = read_raster(VirtualGroup(arrays), "a.nc", "x", "y", Values(None))
    assert uneven.cause == "off-grid"


def test_rasters_side_by_side_share_nothing() -> None:
    spans = np.array([[[7, 10], [9, 13]], [[1, 3], [1, 6]], [[0, 6], [0, 1]]])
    laid = side_by_side(spans).tolist()
    assert laid == [[[0, 3], [0, 4]], [[0, 2], [4, 9]], [[0, 6], [9, 10]]]
