from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridref.catalog.tables import (
    column_of,
    gather_bytes,
    numbers_of,
    offsets_from_steps,
    steps_of_offsets,
)
from gridref.errors import InvalidRequestError

# Arrow arrays as pyarrow itself makes them


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (["a", None, "", "ä"], pa.string()),
        ([], pa.string()),
        ([1, None, -(2**40), 2**63 - 1], pa.int64()),
        ([None] * 9, pa.int64()),
        ([], pa.int64()),
        ([1, 2], pa.int32()),
        (np.arange(6)[::2], pa.int32()),
        (np.arange(3.0), pa.float64()),
        (np.array([0, 255], "u1"), pa.uint8()),
    ],
)
def test_columns_are_those_of_pyarrow(values: Any, type_: pa.DataType) -> None:
    column = column_of(values, type_)
    column.validate(full=True)
    assert column.equals(pa.array(values, type_))
    if not column.null_count and type_ != pa.string():
        assert numbers_of(column).tolist() == list(values)
        assert numbers_of(pa.chunked_array([column, column])).tolist() == [*values, *values]


def test_nulls_where_they_are_named() -> None:
    is_null = np.arange(20) % 3 == 0
    column = column_of(np.arange(20), pa.int64(), is_null=is_null)
    column.validate(full=True)
    assert column.equals(pa.array(np.arange(20), pa.int64(), mask=is_null))


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1])
def test_a_number_that_does_not_fit_is_an_error(number: int) -> None:
    with pytest.raises(OverflowError, match="int32"):
        column_of(np.array([number]), pa.int32())


# Steps of offsets, and gathered bytes

ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2**60), st.integers(0, 2**40)), max_size=30
)


@given(ROWS)
def test_offsets_come_back(rows: list[tuple[int, int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    source, offset, length = columns[0].astype(np.int32), columns[1], columns[2]
    steps = steps_of_offsets(source, offset, length)
    assert np.array_equal(offsets_from_steps(source, steps, length), offset)


def test_chunks_back_to_back_have_steps_of_zero() -> None:
    source = np.array([0, 0, 0, 1, 1], np.int32)
    offset, length = np.array([100, 140, 190, 100, 130]), np.array([40, 40, 5, 30, 30])
    assert steps_of_offsets(source, offset, length).tolist() == [100, 0, 10, 100, 0]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 14)), max_size=10))
def test_gathered_bytes(ranges: list[tuple[int, int]]) -> None:
    data = np.arange(64, dtype=np.uint8)
    columns = np.array(ranges, np.int64).reshape(-1, 2).T
    found = gather_bytes(data, columns[0], columns[1])
    assert found.tolist() == [i for start, size in ranges for i in range(start, start + size)]


@pytest.mark.parametrize(("offset", "length"), [(-1, 2), (60, 5), (3, -1)])
def test_ranges_out_of_the_data_are_refused(offset: int, length: int) -> None:
    with pytest.raises(InvalidRequestError, match="reaches out of the 64 inline bytes"):
        gather_bytes(np.zeros(64, np.uint8), np.array([offset]), np.array([length]))
