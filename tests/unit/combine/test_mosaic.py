"""Mosaics of georeferenced groups: places on pixels, several grids, and labels beside them."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gridref import mosaic
from gridref.combine import (
    Combination,
    CombineOptions,
    Drift,
    DriftReport,
    combine,
    combine_mosaic,
    in_groups,
)
from gridref.combine.mosaic import (
    Plane,
    Raster,
    by_grid,
    held_rasters,
    labels_of,
    mapping_name,
    misfit,
    overlaps,
    place_rasters,
    plane_dims,
    read_raster,
    side_by_side,
)
from gridref.combine.values import Values
from gridref.errors import CombineError, InvalidRequestError, Problem
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import EdgePolicy
from gridref.model.joining import lay_out
from gridref.model.pixels import PixelAxis
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly

WKT = 'PROJCS["UTM 32N"]'


def tile(
    values: np.ndarray[Any, Any],
    x0: float,
    y0: float,
    *,
    step: float = 10.0,
    chunks: tuple[int, int] = (3, 4),
    edge: EdgePolicy = EdgePolicy.PADDED,
    crs: str = WKT,
    attrs: dict[str, Any] | None = None,
    transform: str | None = None,
) -> VirtualGroup:
    band = chunked_array(
        values[np.newaxis], (1, *chunks), ("band", "y", "x"), edge=edge, attrs=attrs, fill_value=0
    )
    text = transform or f"{x0} {step} 0.0 {y0} 0.0 {-step}"
    mapping = VirtualArray.from_numpy(np.array(0), (), {"crs_wkt": crs, "GeoTransform": text})
    n_rows, n_columns = values.shape
    return VirtualGroup(
        {
            "band_data": band,
            "band": VirtualArray.from_numpy(np.array([1]), ("band",)),
            "spatial_ref": mapping,
            "x": VirtualArray.from_numpy(x0 + (np.arange(n_columns) + 0.5) * step, ("x",)),
            "y": VirtualArray.from_numpy(y0 - (np.arange(n_rows) + 0.5) * step, ("y",)),
        }
    )


def numbers(n_rows: int, n_columns: int, start: int = 1) -> np.ndarray[Any, Any]:
    return np.arange(start, start + n_rows * n_columns, dtype=np.int32).reshape(n_rows, n_columns)


def causes(error: pytest.ExceptionInfo[CombineError]) -> list[str]:
    return [problem.cause for problem in error.value.problems]


def test_uneven_tiles_with_padded_edges_and_a_gap() -> None:
    a, b, c = numbers(5, 7, 100), numbers(5, 6, 200), numbers(4, 7, 300)
    group = mosaic([tile(a, 0, 0), tile(b, 70, 0, edge=EdgePolicy.TRUNCATED), tile(c, 0, -50)])
    expected = np.zeros((9, 13), np.int32)
    expected[:5, :7], expected[:5, 7:], expected[5:, :7] = a, b, c
    array = group.arrays["band_data"]
    assert array.shape == (1, 9, 13)
    assert array.n_blocks == 4
    np.testing.assert_array_equal(read_slowly(array)[0], expected)
    np.testing.assert_array_equal(read_slowly(group.arrays["x"]), np.arange(13) * 10 + 5.0)
    np.testing.assert_array_equal(read_slowly(group.arrays["y"]), np.arange(9) * -10 - 5.0)
    assert list(group.arrays) == ["band_data", "band", "spatial_ref", "x", "y"]


def test_tiles_are_cut_where_others_end_inside_them() -> None:
    tall, upper, lower = numbers(8, 3, 100), numbers(5, 4, 200), numbers(3, 4, 300)
    group = mosaic([tile(tall, 0, 0), tile(upper, 30, 0), tile(lower, 30, -50)])
    expected = np.concatenate([tall, np.concatenate([upper, lower])], axis=1)
    np.testing.assert_array_equal(read_slowly(group.arrays["band_data"])[0], expected)


def test_origin_is_the_outermost_corner_whatever_the_order() -> None:
    a, b = numbers(2, 2, 10), numbers(2, 2, 20)
    group = mosaic([tile(a, 20, -20), tile(b, 0, 0)])
    expected = np.zeros((4, 4), np.int32)
    expected[2:, 2:], expected[:2, :2] = a, b
    np.testing.assert_array_equal(read_slowly(group.arrays["band_data"])[0], expected)
    assert group.arrays["spatial_ref"].attrs["GeoTransform"] == "0.0 10.0 0.0 0.0 0.0 -10.0"


def test_a_mosaic_can_be_laid_out_again() -> None:
    parts = [tile(numbers(2, 2, 10 * k), 20 * k, 0) for k in range(4)]
    twice = mosaic([mosaic(parts[:2]), mosaic(parts[2:])])
    once = mosaic(parts)
    np.testing.assert_array_equal(
        read_slowly(twice.arrays["band_data"]), read_slowly(once.arrays["band_data"])
    )


@pytest.mark.parametrize("overlap", ["first", "last"])
def test_overlaps_by_choice(overlap: Any) -> None:
    a, b = numbers(4, 4, 100), numbers(4, 4, 200)
    group = mosaic([tile(a, 0, 0), tile(b, 30, -10)], overlap=overlap)
    expected = np.zeros((5, 7), np.int32)
    for rows, columns, values in [(0, 0, a), (1, 3, b)][:: 1 if overlap == "last" else -1]:
        expected[rows : rows + 4, columns : columns + 4] = values
    np.testing.assert_array_equal(read_slowly(group.arrays["band_data"])[0], expected)


def test_overlap_is_a_problem_that_says_by_how_much() -> None:
    with pytest.raises(CombineError, match="3 by 1 pixels") as error:
        mosaic([tile(numbers(4, 4), 0, 0), tile(numbers(4, 4), 30, -10)])
    assert causes(error) == ["overlap"]


def test_all_problems_at_once() -> None:
    first = tile(numbers(4, 4), 0, 0)
    bad = [
        tile(numbers(4, 4), 100, 0, crs='PROJCS["UTM 33N"]'),
        tile(numbers(4, 4), 200, 0, step=11),
        tile(numbers(4, 4), 303, 0),
        tile(numbers(4, 4).astype("S4"), 400, 0),
    ]
    with pytest.raises(CombineError) as error:
        mosaic([first, *bad])
    assert causes(error) == ["crs-differs", "resolution-differs", "off-grid", "dtype-differs"]
    assert "0.3 columns" in str(error.value)


def test_inputs_without_a_place_and_rotated_ones() -> None:
    plain = VirtualGroup({"a": VirtualArray.from_numpy(np.zeros((2, 2)), ("y", "x"))})
    rotated = tile(numbers(2, 2), 0, 0, transform="0 10 1 0 1 -10")
    with pytest.raises(CombineError) as error:
        mosaic([plain, rotated])
    assert causes(error) == ["not-georeferenced", "rotated"]


def test_small_drift_is_forgiven() -> None:
    a, b = numbers(4, 4), numbers(4, 4, 100)
    group = mosaic([tile(a, 0, 0), tile(b, 40.05, 0)])
    np.testing.assert_array_equal(
        read_slowly(group.arrays["band_data"])[0], np.concatenate([a, b], axis=1)
    )


def test_bad_calls() -> None:
    with pytest.raises(InvalidRequestError):
        mosaic([])
    with pytest.raises(InvalidRequestError):
        mosaic([tile(numbers(2, 2), 0, 0)], overlap="mean")


def test_cost_grows_with_tiles_not_chunks() -> None:
    tiles = [tile(numbers(4, 4), 40 * (k % 9), -40 * (k // 9), chunks=(4, 4)) for k in range(81)]
    group = mosaic(tiles)
    assert group.arrays["band_data"].n_blocks == 81
    assert len(group.arrays["band_data"].encodings) == 1


# Drift: the same rules as in a concatenation


def test_tiles_packed_differently_are_unpacked_each_with_its_own_numbers() -> None:
    a, b = numbers(2, 2, 10), numbers(2, 2, 20)
    first = tile(a, 0, 0, attrs={"scale_factor": 0.5, "_FillValue": np.int32(11)})
    other = tile(b, 20, 0, attrs={"scale_factor": 2.0, "_FillValue": np.int32(22)})
    done = combine_mosaic([first, other])
    assert done.group is not None
    expected = np.concatenate([a * 0.5, b * 2.0], axis=1)
    expected[(0, 1), (1, 2)] = np.nan
    array = done.group.arrays["band_data"]
    np.testing.assert_array_equal(read_slowly(array)[0], expected)
    assert "scale_factor" not in array.attrs
    assert [drift.cause for drift in done.report] == ["packing"]


def test_cells_without_a_tile_are_no_data_of_unpacked_tiles() -> None:
    first = tile(numbers(2, 2), 0, 0, attrs={"_FillValue": np.int32(1)})
    other = tile(numbers(2, 2), 20, -20, attrs={"_FillValue": np.int32(2)})
    values = read_slowly(mosaic([first, other]).arrays["band_data"])[0]
    assert np.isnan(values[:2, 2:]).all()
    assert values[0, 1] == 2
    assert np.isnan(values[2, 3])


def test_tiles_of_other_dtypes_are_promoted_and_reported() -> None:
    a, b = numbers(2, 2), numbers(2, 2).astype(np.float64) + 0.5
    done = combine_mosaic([tile(a, 0, 0), tile(b, 20, 0)])
    assert done.group is not None
    np.testing.assert_array_equal(
        read_slowly(done.group.arrays["band_data"])[0], np.concatenate([a, b], axis=1)
    )
    assert done.report.of_cause("dtype")


def test_units_that_differ_are_a_problem_or_converted() -> None:
    a, b = numbers(2, 2), numbers(2, 2)
    tiles = [tile(a, 0, 0, attrs={"units": "km"}), tile(b, 20, 0, attrs={"units": "m"})]
    with pytest.raises(CombineError) as error:
        mosaic(tiles)
    assert causes(error) == ["units-differ"]
    group = mosaic(tiles, convert_units=lambda one, _: (1.0 if one == "km" else 0.001, 0.0))
    np.testing.assert_allclose(
        read_slowly(group.arrays["band_data"])[0], np.concatenate([a, b * 0.001], axis=1)
    )


def test_attributes_follow_their_rule() -> None:
    tiles = [tile(numbers(2, 2), 20 * k, 0, attrs={"date": str(k)}) for k in range(2)]
    done = combine_mosaic(tiles)
    assert done.group is not None
    assert done.group.arrays["band_data"].attrs["date"] == "0"
    assert [drift.variable for drift in done.report.of_cause("attributes")] == ["band_data"]
    dropped = mosaic(tiles, combine_attrs="drop_conflicts")
    assert "date" not in dropped.arrays["band_data"].attrs
    assert "GeoTransform" in dropped.arrays["spatial_ref"].attrs
    with pytest.raises(CombineError, match="'date' differ"):
        mosaic(tiles, combine_attrs="no_conflicts")


def test_a_variable_that_some_tiles_lack_is_a_problem_or_filled_in_or_left_out() -> None:
    with_mask = tile(numbers(2, 2), 0, 0)
    mask = chunked_array(numbers(2, 2) * 1.0, (2, 2), ("y", "x"))
    with_mask = with_mask.with_changes(arrays={**with_mask.arrays, "mask": mask})
    tiles = [with_mask, tile(numbers(2, 2), 20, 0)]
    with pytest.raises(CombineError) as error:
        mosaic(tiles)
    assert causes(error) == ["variable-missing"]
    values = read_slowly(mosaic(tiles, join="outer").arrays["mask"])
    np.testing.assert_array_equal(values[:, :2], numbers(2, 2))
    assert np.isnan(values[:, 2:]).all()
    done = combine_mosaic(tiles, options=CombineOptions(join="inner"))
    assert done.group is not None
    assert "mask" not in done.group.arrays
    assert [drift.variable for drift in done.report.left_out] == ["mask"]


def renamed(group: VirtualGroup, name: str) -> VirtualGroup:
    arrays = {name if key == "band_data" else key: array for key, array in group.arrays.items()}
    return group.with_changes(arrays=arrays)


@pytest.mark.parametrize("overlap", ["first", "last"])
def test_files_of_one_variable_each_hide_nothing_of_each_other(overlap: str) -> None:
    red, blue = numbers(3, 3, 100), numbers(3, 3, 200)
    tiles = [renamed(tile(red * 1.0, 0, 0), "red"), renamed(tile(blue * 1.0, 0, 0), "blue")]
    group = mosaic(tiles, overlap=overlap, join="outer")
    np.testing.assert_array_equal(read_slowly(group.arrays["red"])[0], red)
    np.testing.assert_array_equal(read_slowly(group.arrays["blue"])[0], blue)


def test_labels_of_other_dimensions_are_joined() -> None:
    one, two = tile(numbers(2, 2) * 1.0, 0, 0), tile(numbers(2, 2) * 1.0, 20, 0)
    two = two.with_changes(
        arrays={**two.arrays, "band": VirtualArray.from_numpy(np.array([2]), ("band",))}
    )
    group = mosaic([one, two], join="outer")
    values = read_slowly(group.arrays["band_data"])
    assert values.shape == (2, 2, 4)
    np.testing.assert_array_equal(values[0, :, :2], numbers(2, 2))
    np.testing.assert_array_equal(values[1, :, 2:], numbers(2, 2))
    assert np.isnan(values[0, :, 2:]).all()


def test_what_lies_along_one_axis_only_is_left_out_and_reported() -> None:
    tiles = []
    for k in range(2):
        lon = VirtualArray.from_numpy(np.arange(2.0), ("x",))
        plain = tile(numbers(2, 2), 20 * k, 0)
        tiles.append(plain.with_changes(arrays={**plain.arrays, "lon": lon}))
    done = combine_mosaic(tiles)
    assert done.group is not None
    assert "lon" not in done.group.arrays
    assert [drift.variable for drift in done.report.left_out] == ["lon"]


def test_values_that_differ_without_a_place_are_a_problem() -> None:
    tiles = []
    for k in range(2):
        plain = tile(numbers(2, 2), 20 * k, 0)
        time = VirtualArray.from_numpy(np.array(k), ())
        tiles.append(plain.with_changes(arrays={**plain.arrays, "time": time}))
    with pytest.raises(CombineError, match="compat='override'") as error:
        mosaic(tiles)
    assert "variables='different'" not in str(error.value)
    group = mosaic(tiles, compat="override")
    assert read_slowly(group.arrays["time"]) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"overlap": "keep"},
        {"variables": "all"},
        {"index_variables": {"a": "b"}},
        {"repeated": {"a": "all"}},
        {"overlpa": 1},
    ],
)
def test_options_that_mean_nothing_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(options))):
        mosaic([tile(numbers(2, 2), 0, 0)], **options)


# Batches: inputs need not be in memory together


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", 2)


SCATTERED = [(0, 0), (30, 0), (15, -20), (40, -45), (0, -50), (20, -30), (-20, 10)]


def scattered() -> list[VirtualGroup]:
    return [
        tile(numbers(4, 4, 100 * k), 5 * (x // 5), 5 * (y // 5), step=5, chunks=(3, 2))
        for k, (x, y) in enumerate(SCATTERED)
    ]


@pytest.mark.parametrize("overlap", ["first", "last"])
def test_batches_make_the_same_mosaic(overlap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = mosaic(scattered(), overlap=overlap)
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", 2)
    parts = mosaic(iter(scattered()), overlap=overlap)
    for name in ("band_data", "x", "y"):
        np.testing.assert_array_equal(
            read_slowly(parts.arrays[name]), read_slowly(whole.arrays[name])
        )
    transforms = {group.arrays["spatial_ref"].attrs["GeoTransform"] for group in (parts, whole)}
    assert len(transforms) == 1


@pytest.mark.usefixtures("small_batches")
def test_overlaps_between_batches_name_both_inputs() -> None:
    done = combine_mosaic(scattered())
    assert done.group is None
    assert ("input 6", "input 3") in [problem.sources for problem in done.problems]
    bounding_boxes_meet = [(0, 0), (60, -60), (60, 0), (0, -60)]
    apart = [tile(numbers(2, 2, k), x, y) for k, (x, y) in enumerate(bounding_boxes_meet)]
    assert combine_mosaic(apart).problems == ()


@pytest.mark.usefixtures("small_batches")
def test_all_batches_lie_on_the_pixels_of_the_first_input() -> None:
    tiles = [tile(numbers(2, 2), 20 * k + 0.06 * k, 0) for k in range(4)]
    with pytest.raises(CombineError) as error:
        mosaic(tiles)
    assert causes(error) == ["off-grid", "off-grid"]
    assert [problem.sources for problem in error.value.problems] == [("input 3",), ("input 4",)]


@pytest.mark.usefixtures("small_batches")
def test_reports_of_batches_count_all_inputs() -> None:
    tiles = [tile(numbers(2, 2), 20 * k, 0, attrs={"date": str(k // 3)}) for k in range(6)]
    (drift,) = combine_mosaic(tiles).report
    assert drift.cause == "attributes"
    assert sum(last - first + 1 for case in drift.cases for first, last in case.ranges) == 6


def test_inputs_are_taken_one_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", 3)
    alive: weakref.WeakSet[VirtualGroup] = weakref.WeakSet()
    most = 0

    def stream() -> Iterator[VirtualGroup]:
        nonlocal most
        for k in range(12):
            group = tile(numbers(2, 2), 20 * k, 0)
            alive.add(group)
            most = max(most, len(alive))
            yield group
            del group

    mosaic(stream())
    gc.collect()
    assert most <= 7


# Places on pixels

FIRST = Raster("a.tif", PixelAxis(100.0, 10.0), PixelAxis(500.0, -20.0), 4, 6, 'PROJCS["one", x]')


def test_a_raster_that_is_moved_by_pixels() -> None:
    moved = FIRST.moved(2, -3)
    assert (moved.x, moved.y) == (PixelAxis(70.0, 10.0), PixelAxis(460.0, -20.0))
    assert replace(moved, x=FIRST.x, y=FIRST.y) == FIRST


def changed(raster: Raster, **changes: Any) -> Raster:
    """It with another ``x0``, ``dx``, ``y0`` or ``dy``, or other fields."""
    axes = {
        dim: PixelAxis(changes.pop(f"{dim}0", axis.begin), changes.pop(f"d{dim}", axis.step))
        for dim, axis in (("x", raster.x), ("y", raster.y))
    }
    return replace(raster, **axes, **changes)


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
    found = misfit(FIRST, changed(FIRST, name="b.tif", **changes), 0.1)
    assert (found and found.cause) == cause
    if cause == "crs-differs" and found is not None:
        assert "'one'" in found.message
        assert ("'two'" if changes["crs"] else "unknown") in found.message


def test_rasters_are_placed_from_the_outermost_pixel() -> None:
    second = changed(FIRST, x0=80.0, y0=520.4, n_rows=2, n_columns=3)
    third = changed(FIRST, x0=151.0, y0=440.0)
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


def evenly(n: int, first: float, step: float, name: str, **attrs: Any) -> VirtualArray:
    return VirtualArray.from_numpy(first + step * np.arange(n), [name], attrs=attrs)


def group(transform: str | None, **labels: VirtualArray) -> VirtualGroup:
    arrays: dict[str, Any] = dict(labels)
    arrays["v"] = chunked_array(
        np.zeros((4, 6), "u1"), (4, 6), ("y", "x"), attrs={"grid_mapping": "crs"}
    )
    if transform is not None:
        arrays["crs"] = VirtualArray.from_numpy(np.array(0), [], attrs={"GeoTransform": transform})
    return VirtualGroup(arrays)


def read(transform: str | None, **labels: VirtualArray) -> Raster | Problem:
    return read_raster(group(transform, **labels), "a.tif", "x", "y", Values(None))


def centres(off_x: float = 0, off_y: float = 0, last_x: float = 0) -> dict[str, VirtualArray]:
    """Labels of the pixels' centres, off by so many pixels."""
    step = 10 * (1 + last_x / 5)
    x = evenly(6, 105 + 10 * off_x, step, "x")
    return {"x": x, "y": evenly(4, 490 - 20 * off_y, -20, "y")}


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
        ({"x": evenly(6, 0, 10, "x"), "y": evenly(4, 0, 1, "y")}, True),
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
        assert (found.x.begin, found.x.step, found.y.begin, found.y.step) == (100, 10, 500, -20)
    else:
        first = float(read_slowly(labels["x"])[0])
        assert found.x.begin == pytest.approx(first - found.x.step / 2)


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
    assert isinstance(found, Problem)
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
        assert (found.x.begin, found.x.step, found.y.begin, found.y.step) == (100, 10, 500, -20)
    else:
        assert found.cause == "off-grid"
        assert "concat_dim=['y', 'x']" in found.message


def test_labels_that_do_not_move_are_no_pixels() -> None:
    found = read(None, x=evenly(6, 5, 0, "x"), y=centres()["y"])
    assert isinstance(found, Problem)
    assert found.cause == "off-grid"


@pytest.mark.parametrize("n", [1, 2])
def test_one_label_tells_no_step(n: int) -> None:
    arrays = {
        "v": chunked_array(np.zeros((4, n), "u1"), (4, n), ("y", "x")),
        "x": evenly(n, 105, 10, "x"),
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
        "a": evenly(3, 0, 1, "a", standard_name="longitude"),
        "b": evenly(3, 0, 1, "b", axis="Y"),
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
    assert (raster.x, raster.y) == (PixelAxis(100, 10), PixelAxis(500, -20))
    assert (raster.n_rows, raster.n_columns) == (3, 4)


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
    assert (found.x.begin, found.x.step) == pytest.approx((100 - step[0] / 2, step[0]))
    assert (found.y.begin, found.y.step) == pytest.approx((100 - step[1] / 2, step[1]))
    assert (found.n_rows, found.n_columns) == (3, 4)
    labels[0][1] += step[0] / 2
    arrays["x"] = VirtualArray.from_numpy(labels[0], ["x"])
    uneven: Any = read_raster(VirtualGroup(arrays), "a.nc", "x", "y", Values(None))
    assert uneven.cause == "off-grid"


def test_rasters_side_by_side_share_nothing() -> None:
    spans = np.array([[[7, 10], [9, 13]], [[1, 3], [1, 6]], [[0, 6], [0, 1]]])
    laid = side_by_side(spans).tolist()
    assert laid == [[[0, 3], [0, 4]], [[0, 2], [4, 9]], [[0, 6], [9, 10]]]


# Labels beside rows and columns


def test_labels_have_places_along_each_dimension() -> None:
    held = {"t": [np.array([5, 9]), np.array([7])], "z": [np.array(["b"]), np.array(["a"])]}
    spans = np.array([[[0, 2], [0, 3]], [[1, 3], [0, 3]]])
    plane = Plane.of(("y", "x"), spans, held)
    along = {dim: [plane.runs[dim].file.tolist(), plane.runs[dim].place.tolist()] for dim in held}
    assert along == {"t": [[0, 0, 1], [0, 2, 1]], "z": [[0, 1], [1, 0]]}
    extents = {dim: runs.extent for dim, runs in plane.runs.items()}
    assert extents == {"t": 3, "z": 2, "y": 3, "x": 3}
    assert plane.growing == ("t", "z", "y", "x")


def test_a_value_of_each_input_is_missing_where_no_input_has_its_labels() -> None:
    tiles = []
    for t, z, cloud in ((5, 1, 30), (7, 2, 40)):
        whole = dated(t, 0, 1)
        more = {"z": VirtualArray.from_numpy(np.array(z), ())}
        more["cloud"] = VirtualArray.from_numpy(np.array(cloud, "i2"), ())
        tiles.append(whole.with_changes(arrays={**whole.arrays, **more}))
    done = combine_mosaic(tiles, stack=["t", "z"], read=read_slowly)
    assert done.group is not None, done.problems
    shown = done.group.arrays["cloud"]
    assert shown.dims == ("t", "z")
    np.testing.assert_array_equal(read_slowly(shown), [[30, np.nan], [np.nan, 40]])


def dated(labels: Any, column: int, value: int, **attrs: Any) -> VirtualGroup:
    own = np.asarray(labels)
    dims = ("t",) * own.ndim
    data = np.full((*own.shape, 2, 2), value, "u1")
    mapping = {"GeoTransform": f"{column * 20} 10 0 0 0 -10"}
    return VirtualGroup(
        {
            "t": VirtualArray.from_numpy(own, dims, attrs),
            "v": chunked_array(data, data.shape, (*dims, "y", "x"), attrs={"grid_mapping": "m"}),
            "m": VirtualArray.from_numpy(np.array(0), [], mapping),
        }
    )


def laid(*tiles: VirtualGroup) -> Any:
    done = combine_mosaic(tiles, stack=["t"], read=read_slowly)
    assert done.group is not None, done.problems
    values = read_slowly(done.group.arrays["v"])
    assert done.group.arrays["v"].dims == ("t", "y", "x")
    return read_slowly(done.group.arrays["t"]).tolist(), values[:, 0].astype(float).tolist()


def test_inputs_of_one_label_lie_beside_each_other() -> None:
    labels, rows = laid(
        dated(7, 1, 4),
        dated(5, 0, 1),
        dated(5, 1, 2),
        dated(7, 0, 3),
    )
    assert labels == [5, 7]
    assert rows == [[1, 1, 2, 2], [3, 3, 4, 4]]


def test_inputs_of_several_labels_are_cut_where_others_come_between() -> None:
    labels, rows = laid(dated([5, 9], 0, 1), dated([7], 0, 2))
    assert labels == [5, 7, 9]
    assert rows == [[1, 1], [2, 2], [1, 1]]


def test_inputs_with_falling_labels_are_turned() -> None:
    labels, rows = laid(falling([9, 5], [1, 2]), falling([8, 7, 6], [3, 4, 5]))
    assert labels == [5, 6, 7, 8, 9]
    assert [row[0] for row in rows] == [2, 5, 4, 3, 1]


def falling(labels: list[int], values: list[int]) -> VirtualGroup:
    data = np.broadcast_to(np.array(values, "u1")[:, np.newaxis, np.newaxis], (len(values), 2, 2))
    whole = dated(labels, 0, 0)
    array = chunked_array(data, data.shape, ("t", "y", "x"), attrs={"grid_mapping": "m"})
    return whole.with_changes(arrays={**whole.arrays, "v": array})


@pytest.mark.parametrize("overlap", ["raise", "first", "last"])
def test_labels_that_repeat_within_an_input_are_told(overlap: Any) -> None:
    options = CombineOptions(overlap=overlap)
    done = combine_mosaic([falling([5, 5], [1, 2])], stack=["t"], read=read_slowly, options=options)
    if overlap == "raise":
        (problem,) = done.problems
        assert (problem.cause, problem.variable) == ("overlap", "t")
        assert "labels repeat within a file" in problem.message
        return
    assert done.group is not None
    assert read_slowly(done.group.arrays["t"]).tolist() == [5]
    assert read_slowly(done.group.arrays["v"])[0, 0, 0] == {"first": 1, "last": 2}[overlap]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (VirtualGroup(), "no label along 't'"),
        (dated(np.array([[1]]), 0, 1), "no label along 't'"),
        (
            dated(5, 0, 1, units="days since 2000-01-01"),
            "its units are 'days since 2000-01-01'",
        ),
        (dated(5, 0, 1, calendar="noleap"), "its calendar are 'noleap'"),
    ],
    ids=range(4),
)
def test_labels_that_cannot_be_compared(second: VirtualGroup, message: str) -> None:
    if "t" in second.arrays and second.arrays["t"].ndim == 2:
        second = VirtualGroup({"t": chunked_array(np.array([[1]]), (1, 1), ("t", "s"))})
    with pytest.raises(InvalidRequestError, match=message):
        labels_of([dated(5, 0, 1), second], ("t",), Values(read_slowly))


# Times that come out as they were


def column(values: Any, units: str, dtype: str, **attrs: Any) -> VirtualGroup:
    data = np.array(values, dtype)
    return VirtualGroup(
        {"t": chunked_array(data, data.shape, ("t",), attrs={"units": units, **attrs})}
    )


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [
        ([0.0, np.nan], [0.5, np.nan], "f4"),
        ([0.0, 1.0], [0.5, np.nan], "f4"),
        ([0.0, 1.0], [1e9 + 0.5, 2.0], "f8"),
        ([0.0, np.nan], [1e9 + 0.5, 2.0], "f8"),
    ],
)
def test_times_keep_the_first_dtype_where_it_holds_them(
    first: Any, second: Any, dtype: str
) -> None:
    parts = [
        column(first, "hours since 2000-01-01", "f4"),
        column(second, "hours since 2000-01-02", "f8"),
    ]
    done = combine(parts, "t", read=read_slowly, options=CombineOptions(overlap="keep"))
    assert done.group is not None, done.problems
    found = done.group.arrays["t"]
    np.testing.assert_array_equal(read_slowly(found), [*first, *(np.array(second) + 24)])


# Several grids

UTM = 'PROJCRS["utm 32", ID["EPSG",32632]]'
OTHER = 'PROJCRS["utm 33", ID["EPSG",32633]]'
NAMELESS = 'PROJCRS["somewhere"]'
FIRST_GRID = Raster("a", PixelAxis(0.0, 10.0), PixelAxis(0.0, -10.0), 4, 6, UTM)


def names(*rasters: Raster | Problem) -> dict[str, list[int]]:
    groups = [VirtualGroup(attrs={"n": number}) for number in range(len(rasters))]
    found = by_grid(groups, lambda group: rasters[group.attrs["n"]], 0.1)
    return {name: [group.attrs["n"] for group in part] for name, part in found.items()}


SHIFTED = changed(FIRST_GRID, x0=5.0)
COARSE = changed(FIRST_GRID, dx=20.0, dy=-20.0)
NOWHERE = Problem("not-georeferenced", "")


@pytest.mark.parametrize(
    ("rasters", "expected"),
    [
        ([FIRST_GRID], {"": [0]}),
        ([FIRST_GRID, changed(FIRST_GRID, x0=40.0)], {"": [0, 1]}),
        ([FIRST_GRID, NOWHERE, FIRST_GRID], {"": [0, 2, 1]}),
        ([NOWHERE], {"": [0]}),
        ([NOWHERE, FIRST_GRID, COARSE], {"10": [1, 0], "20": [2]}),
        ([FIRST_GRID, COARSE, FIRST_GRID, COARSE], {"10": [0, 2], "20": [1, 3]}),
        ([FIRST_GRID, SHIFTED], {"grid": [0], "grid_2": [1]}),
        (
            [FIRST_GRID, SHIFTED, changed(FIRST_GRID, x0=2.5)],
            {"grid": [0], "grid_2": [1], "grid_3": [2]},
        ),
        ([FIRST_GRID, replace(FIRST_GRID, crs=OTHER)], {"epsg_32632": [0], "epsg_32633": [1]}),
        ([FIRST_GRID, replace(FIRST_GRID, crs=NAMELESS)], {"epsg_32632": [0], "crs_2": [1]}),
        (
            [FIRST_GRID, replace(COARSE, crs=OTHER), SHIFTED],
            {"epsg_32632_10": [0], "epsg_32633_20": [1], "epsg_32632_10_2": [2]},
        ),
        ([FIRST_GRID, changed(FIRST_GRID, dx=10.5)], {"10": [0], "10.5": [1]}),
        ([FIRST_GRID, changed(FIRST_GRID, dy=-20.0)], {"10": [0], "10_2": [1]}),
    ],
    ids=range(13),
)
def test_grids_are_named_by_what_tells_them_apart(
    rasters: list[Raster | Problem], expected: dict[str, list[int]]
) -> None:
    assert names(*rasters) == expected


def test_no_inputs_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no inputs"):
        names()


def part(name: str, *, problem: bool = False) -> Combination:
    drift = Drift.of("gap", name, {"jump": [0]}, "left")
    problems = (Problem("overlap", f"in {name}"),) if problem else ()
    group = None if problem else VirtualGroup(attrs={"of": name})
    return Combination(group, DriftReport((drift,), (f"{name}.tif",)), problems)


def test_each_grid_is_a_group() -> None:
    alone = part("v")
    assert in_groups({"": alone}) is alone
    done = in_groups({"10": part("v"), "20": part("")})
    assert done.group is not None
    assert {name: group.attrs["of"] for name, group in done.group.groups.items()} == {
        "10": "v",
        "20": "",
    }
    assert [drift.variable for drift in done.report] == ["10/v", "20"]
    assert done.report.files == ("v.tif", ".tif")
    failed = in_groups({"10": part("v"), "20": part("w", problem=True)})
    assert failed.group is None
    assert [(problem.variable, problem.message) for problem in failed.problems] == [("20", "in w")]
    assert len(failed.report) == 2


def laid_apart(places: list[list[int]], shape: list[int], dims: tuple[str, ...]) -> VirtualArray:
    tile = [1] * len(shape)
    tile[-2:] = [2, 3]
    array = chunked_array(np.ones(tile, "u1"), tile, dims)
    return lay_out([array] * len(places), places, shape)


def boxes(rasters: list[Raster]) -> list[tuple[Any, ...]]:
    found = [
        (int(-r.y.begin / 10), int(r.x.begin / 10), r.n_rows, r.n_columns, r.labels)
        for r in rasters
    ]
    return sorted(found, key=str)


def test_an_input_without_holes_is_one_raster() -> None:
    array = chunked_array(np.ones((4, 6), "u1"), (2, 3), ("y", "x"))
    arrays = {"v": array, "spatial_ref": chunked_array(np.array(0), (), ())}
    (alone,) = held_rasters(FIRST_GRID, arrays, {}, ("y", "x"), merges=False)
    assert alone == replace(FIRST_GRID, labels=(("",),))
    labels = {"t": [5, 6], "z": ["a"]}
    (several,) = held_rasters(FIRST_GRID, {**arrays, "w": array}, labels, ("y", "x"), merges=True)
    assert several.labels == ((5, "a", "v"), (5, "a", "w"), (6, "a", "v"), (6, "a", "w"))


def test_pixels_around_holes_are_boxes() -> None:
    array = laid_apart([[0, 0], [0, 3], [2, 3]], [4, 6], ("y", "x"))
    found = held_rasters(FIRST_GRID, {"v": array}, {}, ("y", "x"), merges=False)
    held = np.zeros((4, 6), int)
    for top, left, n_rows, n_columns, own in boxes(found):
        held[top : top + n_rows, left : left + n_columns] += 1
        assert own == (("",),)
    expected = np.ones((4, 6), int)
    expected[2:, :3] = 0
    assert held.tolist() == expected.tolist()


@pytest.mark.parametrize("dims", [("t", "y", "x"), ("t", "b", "y", "x")])
def test_holes_of_some_labels(dims: tuple[str, ...]) -> None:
    """Label 5 of the left half, labels 6 and 7 of the right one."""
    n = len(dims) - 3
    places = [[t, *[0] * n, row, 3 * (t > 0)] for t in range(3) for row in (0, 2)]
    array = laid_apart(places, [3, *[1] * n, 4, 6], dims)
    found = held_rasters(FIRST_GRID, {"v": array}, {"t": [5, 6, 7]}, ("y", "x"), merges=False)
    shown = {(top, left, rows, columns): own for top, left, rows, columns, own in boxes(found)}
    held = {label: np.zeros((4, 6), int) for label in (5, 6, 7)}
    for (top, left, rows, columns), own in shown.items():
        for label, name in own:
            assert name == ""
            held[label][top : top + rows, left : left + columns] = 1
    assert held[5].tolist() == [[1, 1, 1, 0, 0, 0]] * 4 or held[5].sum() == 12


def test_each_variable_has_pixels_of_its_own_where_files_are_merged() -> None:
    left = laid_apart([[0, 0], [2, 0]], [4, 6], ("y", "x"))
    whole = laid_apart([[0, 0], [0, 3], [2, 0], [2, 3]], [4, 6], ("y", "x"))
    found = held_rasters(FIRST_GRID, {"v": left, "w": whole}, {}, ("y", "x"), merges=True)
    of = {own[0][0]: (rows, columns) for _, _, rows, columns, own in boxes(found)}
    assert of == {"v": (4, 3), "w": (4, 6)}
