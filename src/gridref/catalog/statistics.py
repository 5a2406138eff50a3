"""What is known of the values of chunks: least, greatest, and how many are valid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gridref.catalog.arrow_columns import column_of, numbers_of
from gridref.catalog.entries import TableEntry
from gridref.catalog.storage import TablePlace
from gridref.catalog.table_file import TableFile
from gridref.catalog.tables import STATISTICS_SCHEMA, TableWriter, table_of
from gridref.model.listing import NO_ROW, ListedChunks
from gridref.typing import Int64Array

__all__ = [
    "ChunkStatistics",
    "HasStatistics",
    "StatisticsTable",
    "statistics_of",
    "write_statistics",
]

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
        """Rows of which nothing is known."""
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
        """Some of the rows."""
        return ChunkStatistics(*(column[rows] for column in vars(self).values()))

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

    def statistics(self, rows: Int64Array) -> ChunkStatistics:
        """Of some of its rows."""
        ...


def statistics_of(listed: ListedChunks) -> ChunkStatistics:
    """What is known of chunks, in their order."""
    array = listed.listing.array
    found = ChunkStatistics.unknown(len(listed))
    held = np.flatnonzero(listed.row != NO_ROW)
    manifest = array.blocks.manifest[listed.block[held]]
    for number in np.unique(manifest).tolist():
        of = array.manifests[number]
        if isinstance(of, HasStatistics):
            rows = held[manifest == number]
            taken = of.statistics(listed.row[rows])
            for field in fields(taken):
                getattr(found, field.name)[rows] = getattr(taken, field.name)
    return found


class StatisticsTable:
    """Statistics of the chunk rows of a part, in their order. Thread-safe, and can be pickled."""

    def __init__(self, table: TableFile) -> None:
        self.table = table

    def take(self, rows: Int64Array) -> ChunkStatistics:
        """The given rows, in the given order; row groups are read that hold any."""
        starts = self.table.row_group_starts
        groups = np.searchsorted(starts, rows, side="right") - 1
        found = ChunkStatistics.unknown(len(rows))
        for number in np.unique(groups).tolist():
            mine = groups == number
            read = self._group(number).take(rows[mine] - starts[number])
            for field in fields(read):
                getattr(found, field.name)[mine] = getattr(read, field.name)
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
    writer = TableWriter(folder.create(file), STATISTICS_SCHEMA)
    try:
        writer.write(table_of(statistics.to_arrow(), STATISTICS_SCHEMA))
        return writer.finish(file)
    except BaseException:
        writer.abandon()
        folder.remove(file)
        raise
