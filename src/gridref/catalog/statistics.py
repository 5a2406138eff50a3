"""Statistics of the values in chunks, and the chunks that a condition can match.

`ChunkStatistics` holds the least and greatest value and the number of valid ones, a row for each
chunk. `boxes` takes them and a condition, and returns the elements that may match.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gridref.catalog.entries import TableEntry
from gridref.catalog.folder import TablePlace
from gridref.catalog.tables import (
    ROW_GROUP_ROWS,
    STATISTICS_SCHEMA,
    TableFile,
    TableWriter,
    column_of,
    numbers_of,
    table_of,
)
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray
from gridref.model.listing import NO_ROW, ChunkListing, ListedChunks
from gridref.typing import Int64Array

# Statistics of chunks, and their table

UNKNOWN = -1
"""In place of a count."""


@dataclass(frozen=True, eq=False)
class ChunkStatistics:
    """Statistics of chunks, one row each.

    Attributes
    ----------
    n_valid
        int64 (n,), elements that are not missing; `UNKNOWN` where nothing is known.
    least, greatest
        float64 (n,), of these; NaN where there are none. Integers that a float64 does not hold are
        rounded outward.
    """

    n_valid: Int64Array
    least: NDArray[np.float64]
    greatest: NDArray[np.float64]

    @classmethod
    def unknown(cls, n: int) -> Self:
        """Rows without statistics."""
        return cls(np.full(n, UNKNOWN), np.full(n, np.nan), np.full(n, np.nan))

    @classmethod
    def joined(cls, parts: Sequence[ChunkStatistics]) -> Self:
        """Rows after each other."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*map(np.concatenate, columns)) if parts else cls.unknown(0)

    def __len__(self) -> int:
        return len(self.n_valid)

    @property
    def is_known(self) -> NDArray[np.bool_]:
        """Bool (n,), whether anything is known of a row."""
        return np.not_equal(self.n_valid, UNKNOWN)

    def take(self, rows: NDArray[Any]) -> ChunkStatistics:
        return ChunkStatistics(*(column[rows] for column in vars(self).values()))

    def put(self, rows: Int64Array, others: ChunkStatistics) -> None:
        """Replace some rows by others."""
        for name, column in vars(others).items():
            getattr(self, name)[rows] = column

    def widen(self, rows: Int64Array, found: ChunkStatistics) -> None:
        """Take up what was found of rows; of one that was looked at twice, all that both say."""
        np.maximum.at(self.n_valid, rows, found.n_valid)
        np.fmin.at(self.least, rows, found.least)
        np.fmax.at(self.greatest, rows, found.greatest)

    def to_arrow(self) -> list[pa.Array]:
        """The columns of `STATISTICS_SCHEMA`; null where nothing is known, or valid."""
        none = self.n_valid <= 0
        return [
            column_of(self.n_valid, pa.int64(), is_null=~self.is_known),
            column_of(self.least, pa.float64(), is_null=none),
            column_of(self.greatest, pa.float64(), is_null=none),
        ]


@runtime_checkable
class HasStatistics(Protocol):
    """A manifest that may know something of the values in its chunks."""

    def statistics(self, rows: Int64Array) -> ChunkStatistics: ...


def statistics_of(listed: ListedChunks) -> ChunkStatistics:
    """What is known of chunks, in their order."""
    found = ChunkStatistics.unknown(len(listed))
    for manifest, chunks, rows in listed.by_manifest():
        if isinstance(manifest, HasStatistics):
            found.put(chunks, manifest.statistics(rows))
    return found


class StatisticsTable:
    """Statistics of the chunk rows of a part, in their order. Thread-safe, and can be pickled."""

    def __init__(self, table: TableFile) -> None:
        self.table = table

    def take(self, rows: Int64Array) -> ChunkStatistics:
        """The given rows, in the given order; row groups are read that hold any."""
        found = ChunkStatistics.unknown(len(rows))
        for number, mine, own in self.table.by_row_group(rows):
            found.put(mine, self._group(number).take(own))
        return found

    def _group(self, number: int) -> ChunkStatistics:
        table = self.table.read_row_group(number, STATISTICS_SCHEMA.names)
        n_valid, least, greatest = (table.column(name) for name in STATISTICS_SCHEMA.names)
        read = ChunkStatistics(
            numbers_of(n_valid.fill_null(UNKNOWN)),
            numbers_of(least.fill_null(np.nan)),
            numbers_of(greatest.fill_null(np.nan)),
        )
        has_bounds = read.least <= read.greatest
        if ((read.n_valid < UNKNOWN) | (has_bounds != (read.n_valid > 0))).any():
            raise self.table.corrupt("statistics of a chunk cannot be")
        return read


def write_statistics(folder: TablePlace, file: str, statistics: ChunkStatistics) -> TableEntry:
    """Write the statistics of all chunk rows of a part as a table."""
    with TableWriter(folder, file, STATISTICS_SCHEMA) as writer:
        writer.write(table_of(statistics.to_arrow(), STATISTICS_SCHEMA))
    return writer.entry


# Conditions, and the chunks that may match them

_BOUND = re.compile(r"\s*(<=|>=|==|<|>)\s*(\S+)\s*$")


@dataclass(frozen=True)
class Bound:
    """A comparison with a number.

    Attributes
    ----------
    operator
        ``<``, ``<=``, ``>``, ``>=`` or ``==``.
    number
        What is compared with.
    """

    operator: str
    number: float

    def may_hold(self, known: ChunkStatistics, dtype: np.dtype[Any]) -> NDArray[np.bool_]:
        """Whether chunks of an array of a dtype may have an element for which it is true.

        Arrays of short floats are compared with the number in their own precision, as numpy does:
        chunks for which that makes a difference may. Packed numbers may be shown as float32.
        """
        number = np.array(self.number, np.float64)
        kinds = [np.dtype(np.float32), *([dtype] if dtype.kind == "f" else [])]
        with np.errstate(over="ignore"):
            near = [float(self.number), *(float(number.astype(kind)) for kind in kinds)]
        if near[0] != self.number:  # a long integer, as which integers are compared
            near += [np.nextafter(near[0], -np.inf), np.nextafter(near[0], np.inf)]
        low, high = min(near), max(near)
        greatest, least = known.greatest, known.least
        found = {
            ">": greatest > low,
            ">=": greatest >= low,
            "<": least < high,
            "<=": least <= high,
            "==": (greatest >= low) & (least <= high),
        }
        return found[self.operator] | ~known.is_known


def parse_condition(condition: str) -> list[Bound]:
    """Comparisons that all have to hold, out of ``"> 270 and <= 280"``."""
    bounds = []
    for text in condition.split(" and "):
        match = _BOUND.match(text)
        number = _number(match[2]) if match else None
        if match is None or number is None:
            raise InvalidRequestError(
                f"a condition is written like '> 310', or '>= 0 and < 1', got {condition!r}"
            )
        bounds.append(Bound(match[1], number))
    return bounds


def _number(text: str) -> float | None:
    """A number; integers as they are from which on a float64 is not the only one near it."""
    try:
        number = float(text)
    except ValueError:
        return None
    if abs(number) >= 2**53:
        with suppress(ValueError):
            return int(text)
    return None if np.isnan(number) else number


def boxes(array: VirtualArray, bounds: list[Bound]) -> Iterator[dict[str, slice]]:
    """Elements, by dimension, of the chunks for which all bounds may hold, neighbours joined."""
    n_known, found = 0, []
    is_missing = _holds_no_value(array)
    listing = ChunkListing(array)
    for listed in listing.pieces(ROW_GROUP_ROWS):
        known = statistics_of(listed)
        may = np.logical_and.reduce([bound.may_hold(known, array.dtype) for bound in bounds])
        if is_missing:
            may &= listed.row != NO_ROW
        n_known += int(known.is_known.sum())
        start, stop = listed.bounds
        found.append((start[may], stop[may]))
    if not n_known:
        raise InvalidRequestError(
            "no statistics of its values are recorded: run catalog.scan_values(), or gridref list "
            "CATALOG statistics --scan-values"
        )
    starts, stops = _joined(*map(np.concatenate, zip(*found, strict=True)))
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        yield dict(zip(array.dims, map(slice, start, stop), strict=True))


def _joined(start: Int64Array, stop: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Boxes after each other that are side by side along one dimension as one, each (n, ndim)."""
    for axis in reversed(range(start.shape[1])):
        others = np.delete(np.arange(start.shape[1]), axis)
        alike = (start[1:, others] == start[:-1, others]).all(axis=1)
        alike &= (stop[1:, others] == stop[:-1, others]).all(axis=1)
        apart = ~(alike & (start[1:, axis] == stop[:-1, axis]))
        heads = np.flatnonzero(np.concatenate([[True], apart]))[: len(start)]
        tails = np.append(heads[1:] - 1, len(start) - 1)[: len(heads)]
        start, stop = start[heads], stop[tails]
    return start, stop


def _holds_no_value(array: VirtualArray) -> bool:
    """Whether the fill value, as which what is missing reads, is no valid value."""
    fill = array.fill_value
    if array.dtype.kind == "f" and np.isnan(fill):
        return True
    named = (array.attrs.get(name) for name in ("_FillValue", "missing_value"))
    marks = [np.asarray(mark) for mark in named if mark is not None]
    return any(mark.dtype.kind != "V" and bool(np.any(mark == fill)) for mark in marks)
