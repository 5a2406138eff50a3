"""Columns of numbers that take little memory: equal rows and equal columns are kept once.

In many similar files, most columns have equal rows. Such a column is a read-only view that repeats
its row (its first stride is 0). Anything that reads an array can read it, and a copy of it is a
plain array again. Columns that are equal for all variables of these files are one object. Numbers
of bytes mostly fit in 32 bits and are kept in 32 bits; `WideColumn` returns them as 64 bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

_FEWEST_ROWS = 64
_in_use = WeakValueDictionary[tuple[bytes, str, tuple[int, ...]], NDArray[Any]]()
"""Columns by their content, as long as an object refers to them."""


class WideColumn:
    """An attribute of int64 numbers, which objects may keep in fewer bits.

    The kept numbers are in their ``vars``. Reading an attribute kept in 32 bits makes a new array.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else wide(vars(instance)[self._name])

    def __set__(self, instance: object, column: NDArray[Any]) -> None:
        vars(instance)[self._name] = column


def wide(column: NDArray[Any]) -> NDArray[np.int64]:
    """The numbers of a column in 64 bits."""
    return column.astype(np.int64, copy=False)


def joined_columns(parts: Sequence[NDArray[Any]], *, narrow: bool = False) -> NDArray[Any]:
    """The rows of all parts, one after the other; condensed."""
    if len(parts) == 1:
        return parts[0]
    if all(_is_one_row(part) for part in parts):
        rows = np.stack([part[0] for part in parts])
        if (rows == rows[0]).all():
            return _repeated(rows[0], sum(map(len, parts)))
    return condensed(np.concatenate(parts), narrow=narrow)


def condensed(column: NDArray[Any], *, narrow: bool = False) -> NDArray[Any]:
    """The column in less memory; read-only if it is another object than the given one.

    Parameters
    ----------
    column
        Nothing else may change its rows.
    narrow
        Whether its readers accept 32 bits, too, if its numbers fit.
    """
    if len(column) < _FEWEST_ROWS or _is_one_row(column):
        return column
    if not (column[-1] != column[0]).any() and (column == column[0]).all():
        return _repeated(column[0], len(column))
    return _the_one(np.ascontiguousarray(narrowed(column) if narrow else column))


def narrowed(column: NDArray[Any]) -> NDArray[Any]:
    """The numbers in 32 bits, if there are many and they fit."""
    if len(column) < _FEWEST_ROWS or column.dtype != np.int64:
        return column
    fits = column.min() >= 0 and column.max() <= np.iinfo(np.uint32).max
    return column.astype(np.uint32) if fits else column


def _the_one(column: NDArray[Any]) -> NDArray[Any]:
    """The column, or an equal one that is in use."""
    column.flags.writeable = False
    digest = hashlib.blake2b(column.data, digest_size=16).digest()
    known: NDArray[Any] = _in_use.setdefault((digest, column.dtype.str, column.shape), column)
    return known


def taken(column: NDArray[Any], rows: Any) -> NDArray[Any]:
    """Some rows of a column, by their numbers, a mask or a slice; condensed where the column is."""
    if not _is_one_row(column) or not isinstance(rows, np.ndarray) or rows.ndim != 1:
        some: NDArray[Any] = column[rows]
        return some
    n_rows = len(_a_byte_of_each(column)[rows])
    return _repeated(column[0], n_rows) if n_rows else column[:0]


def _a_byte_of_each(column: NDArray[Any]) -> NDArray[np.uint8]:
    """As many rows of one byte: selecting from them shows if there are such rows, and how many."""
    return np.broadcast_to(np.uint8(0), len(column))


def _is_one_row(column: NDArray[Any]) -> bool:
    return column.ndim > 0 and len(column) > 0 and column.strides[0] == 0


def _repeated(row: NDArray[Any], n_rows: int) -> NDArray[Any]:
    return np.broadcast_to(row.copy(), (n_rows, *row.shape))
