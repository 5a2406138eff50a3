"""Arrow arrays of numbers and texts, made and read without pandas.

`pyarrow.array` asks whether it was given something of pandas, and imports pandas to know it, as
`to_numpy` does: half a second of every command. Here arrays are made of their buffers, as the Arrow
columnar format lays them out ("Fixed-size primitive layout"), and read by DLPack.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["column_of", "numbers_of"]


def column_of(
    values: Iterable[Any],
    type_: pa.DataType,
    *,
    is_null: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """An Arrow array of texts, or of numbers.

    Parameters
    ----------
    values
        Numbers in an array, or numbers, texts and None for null.
    is_null
        bool (n,), for numbers in an array.

    Raises
    ------
    OverflowError
        If a number does not fit the type.
    """
    if pa.types.is_string(type_):
        texts = pa.lib.StringBuilder()
        texts.append_values(values)
        return texts.finish()
    if not isinstance(values, np.ndarray):
        known = list(values)
        is_null = np.array([value is None for value in known], bool)
        values = np.array([0 if value is None else value for value in known])
    numbers = np.ascontiguousarray(values, type_.to_pandas_dtype())
    if numbers.dtype != values.dtype and (numbers != values).any():
        raise OverflowError(f"a number does not fit {type_}")
    bits = None
    if is_null is not None and is_null.any():
        bits = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(type_, len(numbers), [bits, pa.py_buffer(numbers)])


def numbers_of(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """The numbers of a column without nulls, which are not copied if it is in one piece."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return np.from_dlpack(column)
