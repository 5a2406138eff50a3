"""Mosaics of georeferenced groups."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gridref import mosaic
from gridref.combine import CombineOptions, combine_mosaic
from gridref.errors import CombineError, InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import EdgePolicy
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


def test_variables_that_some_inputs_lack() -> None:
    with_mask = tile(numbers(2, 2), 0, 0)
    mask = chunked_array(numbers(2, 2), (2, 2), ("y", "x"))
    with_mask = with_mask.with_changes(arrays={**with_mask.arrays, "mask": mask})
    with pytest.raises(CombineError) as error:
        mosaic([with_mask, tile(numbers(2, 2), 20, 0)])
    assert causes(error) == ["variable-missing"]


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
    tiles = [tile(numbers(4, 4), 40 * (k % 30), -40 * (k // 30), chunks=(4, 4)) for k in range(900)]
    group = mosaic(tiles)
    assert group.arrays["band_data"].n_blocks == 900
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


def test_gdal_scales_that_differ_between_tiles_are_a_problem() -> None:
    first = tile(numbers(2, 2), 0, 0, attrs={"scales": [1.0, 2.0]})
    other = tile(numbers(2, 2), 20, 0, attrs={"scales": [1.0, 3.0]})
    with pytest.raises(CombineError) as error:
        mosaic([first, other])
    assert causes(error) == ["packing-differs"]


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


def test_a_variable_that_some_tiles_lack_is_filled_in_or_left_out() -> None:
    with_mask = tile(numbers(2, 2), 0, 0)
    mask = chunked_array(numbers(2, 2) * 1.0, (2, 2), ("y", "x"))
    with_mask = with_mask.with_changes(arrays={**with_mask.arrays, "mask": mask})
    tiles = [with_mask, tile(numbers(2, 2), 20, 0)]
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
