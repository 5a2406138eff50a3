"""Columns that take little memory say the same as plain ones."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.combine import N_CHUNKS, N_VARIABLES, one_file
from gridref.combine import combine
from gridref.model.columns import condensed, joined_columns, taken

COLUMNS = {
    "equal rows": np.full((100, 3), 7),
    "one row differs": np.where(np.arange(100) == 50, 1, 7),
    "the last differs": np.where(np.arange(100) == 99, 1, 7).astype(np.uint8),
    "all differ": np.arange(100),
    "few": np.zeros(3, np.int32),
    "none": np.zeros((0, 3)),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_values_stay_what_they_are(column: NDArray[Any]) -> None:
    kept = condensed(column.copy())
    np.testing.assert_array_equal(kept, column)
    assert kept.dtype == column.dtype
    n = len(column)
    for rows in (np.arange(n)[::-2], np.arange(n) % 3 == 0, np.zeros(0, np.int64), slice(1, None)):
        np.testing.assert_array_equal(taken(kept, rows), column[rows])
    for other in COLUMNS.values():
        if other.shape[1:] == column.shape[1:]:
            joined = joined_columns([kept, condensed(other.copy()), kept])
            np.testing.assert_array_equal(joined, np.concatenate([column, other, column]))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(kept)), column)


@pytest.mark.parametrize("shape", [(100,), (100, 3), (64, 2)])
def test_rows_of_equal_rows_are_kept_as_one(shape: tuple[int, ...]) -> None:
    kept = condensed(np.full(shape, 7))
    assert kept.strides[0] == 0
    for some in (taken(kept, np.arange(5)), joined_columns([kept, kept]), condensed(kept)):
        assert some.strides[0] == 0
    assert condensed(kept) is kept
    assert condensed(np.full((63, *shape[1:]), 7)).strides[0] != 0


def test_a_row_that_is_not_there_is_an_error() -> None:
    with pytest.raises(IndexError):
        taken(condensed(np.full(100, 7)), np.array([100]))


def test_equal_rows_and_equal_columns_are_kept_once() -> None:
    assert condensed(np.full((1000, 3), 7)).strides[0] == 0
    one, other = condensed(np.arange(1000)), condensed(np.arange(1000))
    assert one is other
    assert condensed(np.arange(1000, dtype=np.uint64)) is not one
    with pytest.raises(ValueError, match="read-only"):
        one[0] = 5


def test_combined_files_take_little_memory() -> None:
    n_files = 1000
    group = combine((one_file(number) for number in range(n_files)), "time").group
    assert group is not None
    columns = {}
    for array in group.arrays.values():
        tables = [array.blocks, *array.manifests, *array.grid.axes]
        for values in (value for table in tables for value in vars(table).values()):
            if isinstance(values, np.ndarray):
                owner = values if values.base is None else values.base
                columns[id(owner)] = owner
    n_bytes = sum(values.nbytes for values in columns.values())
    offsets = 8 * (N_VARIABLES * N_CHUNKS + 1)
    assert n_bytes < n_files * (offsets + 200)
