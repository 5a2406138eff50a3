"""Mosaics of georeferenced groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.combine.mosaic import Placement, mosaic, place_inputs
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
        tile(numbers(4, 4), 400, 0, attrs={"_FillValue": 7}),
    ]
    with pytest.raises(CombineError) as error:
        mosaic([first, *bad])
    assert causes(error) == ["crs-differs", "resolution-differs", "off-grid", "nodata-differs"]
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
    with_mask = with_mask.replace(arrays={**with_mask.arrays, "mask": mask})
    with pytest.raises(CombineError) as error:
        mosaic([with_mask, tile(numbers(2, 2), 20, 0)])
    assert causes(error) == ["variable-missing"]


def test_small_drift_is_forgiven() -> None:
    places, problems = place_inputs([tile(numbers(4, 4), 0, 0), tile(numbers(4, 4), 40.05, 0)])
    assert problems == []
    assert places == [Placement(0, 0, 4, 4), Placement(0, 4, 4, 4)]


def test_bad_calls() -> None:
    with pytest.raises(InvalidRequestError):
        mosaic([])
    with pytest.raises(InvalidRequestError):
        mosaic([tile(numbers(2, 2), 0, 0)], overlap="mean")  # type: ignore[arg-type]


def test_cost_grows_with_tiles_not_chunks() -> None:
    tiles = [tile(numbers(4, 4), 40 * (k % 30), -40 * (k // 30), chunks=(4, 4)) for k in range(900)]
    group = mosaic(tiles)
    assert group.arrays["band_data"].n_blocks == 900
    assert len(group.arrays["band_data"].encodings) == 1
