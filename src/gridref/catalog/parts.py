"""The parts of a catalog, opened: each three tables that one commit wrote."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gridref.cache import LRU, nbytes_of
from gridref.catalog.arrow_columns import numbers_of
from gridref.catalog.checksum_rows import ChecksumTable
from gridref.catalog.damage import refusing_damage
from gridref.catalog.entries import ArrayRows, PartEntry, TableEntry
from gridref.catalog.rows import ChunkTable, SourceTable
from gridref.catalog.source_rules import SourceRules
from gridref.catalog.statistics import StatisticsTable
from gridref.catalog.storage import Folder
from gridref.catalog.table_file import TableFile
from gridref.catalog.tables import (
    BLOCK_SCHEMA,
    CHECKSUM_SCHEMA,
    CHUNK_SCHEMA,
    INDEX_KEY,
    SOURCE_SCHEMA,
    STATISTICS_SCHEMA,
)
from gridref.catalog.trust import Trust
from gridref.errors import CatalogCorruptError, Place
from gridref.model.array import BlockTable
from gridref.typing import Int64Array

__all__ = ["Part", "open_part"]

_SOURCES_OF_VERSION_1 = ("url", "size_bytes", "mtime_ns", "etag")
_KEPT_BYTES = 8 * 2**20
_LISTS = ("row_stride", "stored_shape", "origin", "step")
_BLOCK_COLUMNS = ("encoding", "first_row", *_LISTS)


@dataclass(frozen=True, eq=False)
class _BlockRows:
    """Decoded rows of a table of blocks, of arrays of any rank.

    Attributes
    ----------
    encoding, first_row
        Columns of numbers.
    lists
        Columns of lists: the numbers of all rows, back to back.
    bounds
        Where in these the numbers of each row begin, and where the last ones end.
    """

    encoding: NDArray[np.int32]
    first_row: Int64Array
    lists: tuple[Int64Array, ...]
    bounds: tuple[Int64Array, ...]

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        """The rows of a table."""
        listed = [table.column(name).combine_chunks() for name in _LISTS]
        return cls(
            numbers_of(table.column("encoding")).astype(np.int32, copy=False),
            numbers_of(table.column("first_row")),
            tuple(numbers_of(column.values) for column in listed),
            tuple(numbers_of(column.offsets) for column in listed),
        )

    @classmethod
    def joined(cls, pieces: Sequence[_BlockRows]) -> _BlockRows:
        """The rows of all pieces, whose bounds mean nothing."""
        if len(pieces) == 1:
            return pieces[0]
        empty = np.zeros(0, np.int64)
        lists = zip(*(piece.lists for piece in pieces), strict=True)
        return cls(
            np.concatenate([empty.astype(np.int32), *(piece.encoding for piece in pieces)]),
            np.concatenate([empty, *(piece.first_row for piece in pieces)]),
            tuple(map(np.concatenate, lists)) if pieces else (empty,) * len(_LISTS),
            (),
        )

    def between(self, rows: slice) -> _BlockRows:
        """Some rows."""
        ends = [(bounds[rows.start], bounds[rows.stop]) for bounds in self.bounds]
        lists = zip(self.lists, ends, strict=True)
        return _BlockRows(
            self.encoding[rows],
            self.first_row[rows],
            tuple(numbers[low:high] for numbers, (low, high) in lists),
            (),
        )

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        lists = sum(column.nbytes for column in (*self.lists, *self.bounds))
        return self.encoding.nbytes + self.first_row.nbytes + lists


class Part:
    """Rows of arrays that were written together. Thread-safe, and can be pickled.

    Parameters
    ----------
    known
        The rows of each array, where the table of blocks does not say.
    statistics
        What is known of the values in its chunks.
    """

    def __init__(
        self,
        sources: SourceTable,
        blocks: TableFile,
        chunks: ChunkTable,
        known: Mapping[str, ArrayRows] | None = None,
        statistics: StatisticsTable | None = None,
    ) -> None:
        self.sources = sources
        self.blocks = blocks
        self.chunks = chunks
        self._known = known
        self.statistics = statistics
        self._groups = LRU[_BlockRows](_KEPT_BYTES, nbytes_of, keeps_last=1)

    def __reduce__(self) -> tuple[Any, ...]:
        return Part, (self.sources, self.blocks, self.chunks, self._known, self.statistics)

    def fits(self, entry: PartEntry, prefixes: Sequence[str]) -> bool:
        """Whether it is what is stated of a part, with the addresses that these prefixes give."""
        statistics = None if self.statistics is None else self.statistics.table.entry
        checksums = self.sources.checksums
        stated = self.blocks.entry, statistics, None if checksums is None else checksums.table.entry
        return stated == (
            entry.blocks,
            entry.statistics,
            entry.checksums,
        ) and self.sources.prefixes == tuple(prefixes[: len(self.sources.prefixes)])

    @cached_property
    def index(self) -> Mapping[str, ArrayRows]:
        """The rows of each array, by path."""
        if self._known is not None:
            return self._known
        place = Place(source=self.blocks.address)
        stated = self.blocks.metadata(INDEX_KEY)
        with refusing_damage("the index of a part", place):
            return {
                path: ArrayRows.from_json(rows) for path, rows in json.loads(stated or "").items()
            }

    def rows(self, path: str) -> ArrayRows:
        """The rows of an array."""
        if path not in self.index:
            raise self.blocks.corrupt(f"it holds nothing of {path!r}")
        return self.index[path]

    def block_rows(self, path: str, n_encodings: int) -> BlockTable:
        """The blocks of an array in this part, in C order; their manifest is number 0."""
        rows, held = self.rows(path), self.read_blocks(path)
        encoding = held.encoding
        if encoding.size and not -1 <= encoding.min() <= encoding.max() < n_encodings:
            raise self.blocks.corrupt(f"a block has encoding {encoding.max()} of {n_encodings}")
        shape = (rows.n_blocks, len(rows.grid_shape))
        if any(each.size != math.prod(shape) for each in held.lists):
            raise self.blocks.corrupt(
                f"blocks of rank {shape[1]} have {held.lists[0].size} numbers"
            )
        manifest = np.zeros(rows.n_blocks, np.int32)
        per_axis = (each.reshape(shape) for each in held.lists)
        return BlockTable(encoding, manifest, held.first_row, *per_axis)

    def lost_blocks(self, path: str) -> CatalogCorruptError:
        """Why the blocks of an array cannot be had."""
        try:
            self.read_blocks(path)
        except CatalogCorruptError as error:
            return error
        return self.blocks.corrupt("blocks could not be read")

    def read_blocks(self, path: str) -> _BlockRows:
        """The rows of the blocks of an array."""
        rows = self.rows(path)
        groups = self.blocks.row_groups(rows.first_block, rows.n_blocks)
        return _BlockRows.joined([self._decoded(number).between(some) for number, some in groups])

    def _decoded(self, number: int) -> _BlockRows:
        """A row group of the table of blocks: arrays share it."""
        return self._groups.get_or_load(
            number, lambda: _BlockRows.of(self.blocks.read_row_group(number, _BLOCK_COLUMNS))
        )


def open_part(
    folder: Folder,
    entry: PartEntry,
    prefixes: Sequence[str],
    storage_options: Mapping[str, Any] | None,
    trust: Trust,
    rules: SourceRules,
    held: Mapping[str, bytes] | None = None,
) -> Part:
    """A part of the catalog in a folder; nothing of it is read yet.

    Tables that are `held` in memory, by name, are not read there.
    """
    known = held or {}

    def table(entry: TableEntry, columns: Sequence[str]) -> TableFile:
        if "/" in entry.file or os.sep in entry.file or entry.file.startswith("."):
            raise CatalogCorruptError(
                f"a table is not in the catalog: {entry.file!r}", Place(source=folder.url)
            )
        content = known.get(entry.file)
        return TableFile(folder.address(entry.file), entry, columns, storage_options, content)

    version_1 = entry.index is not None
    source_columns = _SOURCES_OF_VERSION_1 if version_1 else tuple(SOURCE_SCHEMA.names)
    # The name of the array is for people: readers know its rows by number.
    blocks, chunks = (
        [name for name in schema.names if name != "array"]
        for schema in (BLOCK_SCHEMA, CHUNK_SCHEMA)
    )
    checksums = None
    if entry.checksums is not None:
        checksums = ChecksumTable(table(entry.checksums, CHECKSUM_SCHEMA.names))
    sources = SourceTable(
        table(entry.sources, source_columns), folder.url, tuple(prefixes), trust, rules, checksums
    )
    chunk_table = ChunkTable(table(entry.chunks, chunks), sources)
    statistics = None
    if entry.statistics is not None:
        statistics = StatisticsTable(table(entry.statistics, STATISTICS_SCHEMA.names))
    return Part(sources, table(entry.blocks, blocks), chunk_table, entry.index, statistics)
