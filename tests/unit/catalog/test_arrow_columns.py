"""Arrow arrays as pyarrow itself makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gridref.catalog.tables import column_of, numbers_of


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
