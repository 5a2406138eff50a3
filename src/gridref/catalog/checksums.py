"""The table of checksums of a part: checksums of its chunk rows, by source and offset.

`ChecksumRows` collects the byte ranges of chunks while a part is written, `write_checksums` writes
the table, and `ChecksumTable` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.cache import LRU, cache_bytes, nbytes_of
from gridref.catalog.chunk_rows import ChunkBatch, SourceIndex
from gridref.catalog.entries import TableEntry
from gridref.catalog.folder import TablePlace
from gridref.catalog.tables import (
    CHECKSUM_SCHEMA,
    INDEX_KEY,
    ROW_GROUP_ROWS,
    TableFile,
    TableWriter,
    numbers_of,
    offsets_from_steps,
    steps_of_offsets,
    table_of,
)
from gridref.catalog.values import refusing_damage
from gridref.errors import Place
from gridref.model.manifest import ChunkChecksums, ChunkState, KnownChecksums
from gridref.typing import Int64Array

_ALGORITHM = "crc32c"


class ChecksumRows:
    """Collects the byte ranges of chunk rows, and looks up their checksums.

    Parameters
    ----------
    index
        The sources of the part.
    """

    def __init__(self, index: SourceIndex) -> None:
        self._index = index
        self._ranges: list[tuple[NDArray[np.int32], Int64Array, Int64Array]] = []

    def add(self, batch: ChunkBatch) -> None:
        """The next rows."""
        if self._index.has_checksums:
            rows = np.flatnonzero((batch.state == ChunkState.RANGE) & (batch.length > 0))
            self._ranges.append((batch.source[rows], batch.offset[rows], batch.length[rows]))

    def found(self) -> tuple[dict[int, ChunkChecksums], list[int]]:
        """Checksums by number of the source, and the sources without any.

        Of a source there are some only if there is one of each of its chunks.
        """
        known: dict[int, ChunkChecksums] = {}
        unchecked: list[int] = []
        for number, offset, length in self._by_source():
            checksums = _looked_up(self._index.checksums(number), offset, length)
            if checksums is None:
                unchecked.append(number)
            else:
                known[number] = checksums
        return known, unchecked

    def _by_source(self) -> Iterator[tuple[int, Int64Array, Int64Array]]:
        """The ranges of each source, in the order of sources."""
        if not self._ranges:
            return
        source, offset, length = map(np.concatenate, zip(*self._ranges, strict=True))
        order = np.argsort(source, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(source[order])) + 1):
            if rows.size:
                yield int(source[rows[0]]), offset[rows], length[rows]


def _looked_up(
    known: Sequence[KnownChecksums], offset: Int64Array, length: Int64Array
) -> ChunkChecksums | None:
    """The checksums of all ranges, taken from any of those known; None if one is missing."""
    crc32c = np.zeros(offset.size, np.uint32)
    missing = np.ones(offset.size, bool)
    for each in known:
        held = each.load()
        if held is not None:
            rows = held.rows_of(offset, length)
            crc32c[rows >= 0] = held.crc32c[rows[rows >= 0]]
            missing &= rows < 0
    return None if missing.any() else ChunkChecksums.of(offset, length, crc32c)


def write_checksums(
    folder: TablePlace,
    file: str,
    known: Mapping[int, ChunkChecksums],
    unchecked: Sequence[int] = (),
) -> TableEntry:
    """Write a table of checksums by number of the source, in ascending order."""
    source = np.repeat(list(known), [each.offset.size for each in known.values()]).astype(np.int32)
    offset, length, crc32c = (
        np.concatenate([getattr(each, name) for each in known.values()])
        for name in ("offset", "length", "crc32c")
    )
    first = list(range(0, source.size, ROW_GROUP_ROWS))
    index = {
        "algorithm": _ALGORITHM,
        "first_source": source[first].tolist(),
        "unchecked": list(unchecked),
    }
    with TableWriter(folder, file, CHECKSUM_SCHEMA) as writer:
        writer.index = json.dumps(index)
        for start in first:
            rows = slice(start, start + ROW_GROUP_ROWS)
            steps = steps_of_offsets(source[rows], offset[rows], length[rows])
            columns = [source[rows], steps, length[rows], crc32c[rows]]
            writer.write(table_of(columns, CHECKSUM_SCHEMA))
    return writer.entry


class ChecksumTable:
    """The checksums of a part, by source. Thread-safe, and can be pickled."""

    def __init__(self, table: TableFile) -> None:
        self.table = table
        self._kept = LRU[ChunkChecksums](cache_bytes() // 2, nbytes_of, keeps_last=1)
        self._first: Int64Array | None = None
        self._unchecked: frozenset[int] = frozenset()

    def __reduce__(self) -> tuple[Any, ...]:
        return ChecksumTable, (self.table,)

    @property
    def is_complete(self) -> bool:
        """Whether there are checksums of the chunks of all sources."""
        self._first_sources()
        return not self._unchecked

    def of(self, number: int) -> ChunkChecksums | None:
        """The checksums of the chunks of a source; None if none were taken of them."""
        first = self._first_sources()
        if number in self._unchecked:
            return None
        return self._kept.get_or_load(number, lambda: self._load(number, first))

    def _first_sources(self) -> Int64Array:
        """The first source of each row group."""
        if self._first is None:
            stated = self.table.metadata(INDEX_KEY)
            with refusing_damage("the index of checksums", Place(source=self.table.address)):
                index = json.loads(stated or "")
                if index["algorithm"] != _ALGORITHM:
                    raise ValueError(f"checksums by {index['algorithm']!r}")
                first = np.array(index["first_source"], np.int64)
                n_groups = self.table.row_group_starts.size - 1
                if first.shape != (n_groups,) or (np.diff(first) < 0).any():
                    raise ValueError(f"sources of {first.shape} row groups for {n_groups}")
                self._unchecked = frozenset(map(int, index["unchecked"]))
            self._first = first
        return self._first

    def _load(self, number: int, first: Int64Array) -> ChunkChecksums:
        low = max(0, int(np.searchsorted(first, number, side="left")) - 1)
        high = int(np.searchsorted(first, number, side="right"))
        parts = [self._rows(group, number) for group in range(low, high)]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        if not parts or not columns[0].size:
            raise self.table.corrupt(f"it holds no checksums of source {number}")
        return ChunkChecksums.of(*columns)

    def _rows(self, group: int, number: int) -> tuple[Int64Array, Int64Array, NDArray[np.uint32]]:
        rows = self.table.read_row_group(group, CHECKSUM_SCHEMA.names)
        source, steps, length, crc32c = (numbers_of(column) for column in rows.columns)
        offset = offsets_from_steps(source, steps, length)
        mine = source == number
        offset, length = offset[mine], length[mine]
        if mine.any() and (int(offset.min()) < 0 or int(length.min()) <= 0):
            raise self.table.corrupt("a checksum names a range that cannot exist")
        return offset, length, crc32c[mine]


@dataclass(frozen=True)
class SourceChecksums:
    """The checksums of one source of a part, loaded when something of it is read."""

    table: ChecksumTable
    number: int

    def load(self) -> ChunkChecksums | None:
        return self.table.of(self.number)
