"""The parts of a catalog: rows of three Parquet tables, loaded when first needed.

`SourceTable`, `ChunkTable` and `ChecksumTable` give sources, chunk rows and their checksums as the
model wants them. `Part` adds the blocks of each array. All of them check the rows that they read.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gridref.cache import LRU, cache_bytes, nbytes_of
from gridref.catalog.entries import ArrayRows, ChunkCounts, PartEntry, TableEntry
from gridref.catalog.folder import Folder
from gridref.catalog.sources import SourceRules, Trust, resolved_url
from gridref.catalog.statistics import ChunkStatistics, StatisticsTable
from gridref.catalog.tables import (
    BLOCK_SCHEMA,
    CHECKSUM_ALGORITHM,
    CHECKSUM_SCHEMA,
    CHUNK_SCHEMA,
    INDEX_KEY,
    SOURCE_SCHEMA,
    STATISTICS_SCHEMA,
    TableFile,
    gather_bytes,
    numbers_of,
    offsets_from_steps,
)
from gridref.catalog.values import record_from_json, refusing_damage
from gridref.errors import CatalogCorruptError, InvalidRequestError, Place
from gridref.io import is_local, real_path
from gridref.model.blocks import BlockTable
from gridref.model.manifest import ChunkChecksums, ChunkManifest, ChunkState, Source
from gridref.typing import Int64Array

# Checksums of chunks, by source and offset


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
    def unchecked(self) -> frozenset[int]:
        """Numbers of the sources of whose chunks there are no checksums."""
        self._first_sources()
        return self._unchecked

    def of(self, number: int) -> ChunkChecksums | None:
        """The checksums of the chunks of a source; None if none were taken of them."""
        if number in self.unchecked:
            return None
        first = self._first_sources()
        return self._kept.get_or_load(number, lambda: self._load(number, first))

    def _first_sources(self) -> Int64Array:
        """The first source of each row group."""
        if self._first is None:
            stated = self.table.metadata(INDEX_KEY)
            with refusing_damage("the index of checksums", Place(source=self.table.address)):
                index = json.loads(stated or "")
                if index["algorithm"] != CHECKSUM_ALGORITHM:
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


# Sources and chunk rows

_ROW_COLUMNS = ("source", "offset_step", "length", "state", "filter_mask")


class SourceTable:
    """The sources of a catalog. Thread-safe, and can be pickled.

    Parameters
    ----------
    prefixes
        Beginnings of addresses, which the table counts into.
    trust
        Which of them may be opened.
    rules
        Where they are now, and what tells them.
    checksums
        Of their chunks, if any were taken.
    """

    def __init__(
        self,
        table: TableFile,
        folder_url: str,
        prefixes: tuple[str, ...],
        trust: Trust,
        rules: SourceRules,
        checksums: ChecksumTable | None = None,
    ) -> None:
        self.table = table
        self.checksums = checksums
        self._folder_url = folder_url
        self.prefixes = prefixes
        self._trust = trust
        self._rules = rules

    def __reduce__(self) -> tuple[Any, ...]:
        # Another machine may not know what this user built.
        trust = self._trust if self._trust.own is not None else self._trust.decided([self.stored])
        own = (self.table, self._folder_url, self.prefixes, trust, self._rules, self.checksums)
        return SourceTable, own

    def __len__(self) -> int:
        return self.table.n_rows

    @property
    def sources(self) -> tuple[Source, ...]:
        """All sources, in the order that chunk rows number them in."""
        return self._read[1]

    @property
    def stored(self) -> list[str]:
        """Their addresses as the table has them."""
        return self._read[0]

    @property
    def folders(self) -> list[str]:
        """The prefixes as addresses, where they are now."""
        here = [resolved_url(prefix, self._folder_url) for prefix in self.prefixes]
        return [self._rules.moved(f"{folder.rstrip('/')}/") for folder in here]

    @cached_property
    def _read(self) -> tuple[list[str], tuple[Source, ...]]:
        if not len(self):
            return [], ()
        columns = self.table.read_rows(0, len(self)).to_pydict()
        stored = self._urls(columns)
        urls = [self._rules.moved(resolved_url(url, self._folder_url)) for url in stored]
        policy = self._trust.policy_for(stored, urls)
        identity = self._rules.identity
        described = zip(
            urls,
            columns["size_bytes"],
            columns["mtime_ns"],
            columns["etag"],
            columns.get("checksum") or [None] * len(self),
            strict=True,
        )
        return stored, tuple(
            Source(*each, identity, policy, self._checksums_of(number))
            for number, each in enumerate(described)
        )

    def _checksums_of(self, number: int) -> SourceChecksums | None:
        return None if self.checksums is None else SourceChecksums(self.checksums, number)

    def _urls(self, columns: Mapping[str, list[Any]]) -> list[str]:
        """The addresses as they are stored."""
        known = len(self.prefixes)
        if any(not 0 <= number < known for number in columns["prefix"]):
            raise self.table.corrupt(f"a source has a prefix that is none of {known}")
        pairs = zip(columns["prefix"], columns["path"], strict=True)
        return [self.prefixes[number] + path for number, path in pairs]


_ROW_BYTES = 25
"""Size of a row in memory."""


class ChunkTable:
    """The chunk rows of a catalog, by row groups, the last used ones kept. Thread-safe.

    Parameters
    ----------
    sources
        The sources that rows count into.
    """

    def __init__(self, table: TableFile, sources: SourceTable) -> None:
        self.table = table
        self.sources = sources
        self._groups = LRU[ChunkManifest](
            cache_bytes() // 2, lambda group: _ROW_BYTES * group.n_rows, keeps_last=1
        )
        self._payloads = LRU[NDArray[np.uint8]](cache_bytes() // 2, nbytes_of, keeps_last=1)

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkTable, (self.table, self.sources)

    def take(self, rows: Int64Array) -> ChunkManifest:
        """The given rows, in the given order."""
        parts, places = [], []
        for number, wanted, own in self.table.by_row_group(rows):
            group = self._groups.get_or_load(number, partial(self._load, number))
            parts.append(self._completed(number, group, group.take(own)))
            places.append(wanted)
        if len(parts) == 1:  # most of the time
            return parts[0]
        return ChunkManifest.concatenate(parts).take(np.argsort(np.concatenate(places)))

    def _completed(self, number: int, group: ChunkManifest, rows: ChunkManifest) -> ChunkManifest:
        """Rows of a group, with the bytes of those that are inline; without masks if all are 0."""
        if rows.has_filter_masks and not rows.masks.any():
            rows = replace(rows, filter_mask=None)
        is_inline = rows.state == ChunkState.INLINE
        if not is_inline.any():
            return rows
        data = self._payloads.get_or_load(number, lambda: self._load_inline(number, group))
        sizes = rows.length[is_inline]
        payload = gather_bytes(data, rows.offset[is_inline], sizes)
        offset = rows.offset
        offset[is_inline] = np.cumsum(sizes) - sizes
        return replace(rows, offset=offset, inline=payload.tobytes())

    def _load(self, number: int) -> ChunkManifest:
        """A row group; the offset of an inline row is that in the payloads of the group."""
        table = self.table.read_row_group(number, _ROW_COLUMNS)
        source, step, length, state, mask = (
            numbers_of(table.column(name)) for name in _ROW_COLUMNS
        )
        is_inline = state == ChunkState.INLINE
        sizes = np.where(is_inline, length, 0)
        offset = np.where(is_inline, np.cumsum(sizes) - sizes, 0)
        ranges = np.flatnonzero(state == ChunkState.RANGE)
        offset[ranges] = offsets_from_steps(source[ranges], step[ranges], length[ranges])
        self._check(source[ranges], offset, length, state)
        masks = mask if mask.any() else None
        return ChunkManifest(self.sources.sources, source, offset, length, state, masks)

    def _check(
        self,
        source: NDArray[np.int32],
        offset: Int64Array,
        length: Int64Array,
        state: NDArray[np.uint8],
    ) -> None:
        """Refuse rows that no writer makes: they would lead to wrong bytes.

        `source` are those of ranges.
        """
        if state.size and int(state.max()) > max(ChunkState):
            raise self.table.corrupt(f"a chunk has the unknown state {int(state.max())}")
        if source.size and (int(source.min()) < 0 or int(source.max()) >= len(self.sources)):
            raise self.table.corrupt(
                f"a chunk points to source {int(source.max())} of {len(self.sources)}"
            )
        if length.size and (int(length.min()) < 0 or int(offset.min()) < 0):
            raise self.table.corrupt("a chunk has a negative offset or length")

    def _load_inline(self, number: int, group: ChunkManifest) -> NDArray[np.uint8]:
        column = self.table.read_row_group(number, ["inline"]).column("inline")
        array = column.combine_chunks().cast(pa.large_binary())
        _, offsets, data = array.buffers()
        bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        sizes = np.where(group.state == ChunkState.INLINE, group.length, 0)
        if (np.diff(bounds) != sizes).any():
            raise self.table.corrupt("inline chunks differ in size from what their rows say")
        raw = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return raw[int(bounds[0]) : int(bounds[-1])]


# Parts: the three tables that one commit wrote

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
        lists = sum(column.nbytes for column in (*self.lists, *self.bounds))
        return self.encoding.nbytes + self.first_row.nbytes + lists


class Part:
    """Rows of arrays that were written together. Thread-safe, and can be pickled.

    Parameters
    ----------
    statistics
        What is known of the values in its chunks.
    """

    def __init__(
        self,
        sources: SourceTable,
        blocks: TableFile,
        chunks: ChunkTable,
        statistics: StatisticsTable | None = None,
    ) -> None:
        self.sources = sources
        self.blocks = blocks
        self.chunks = chunks
        self.statistics = statistics
        self._groups = LRU[_BlockRows](cache_bytes() // 8, nbytes_of, keeps_last=1)

    def __reduce__(self) -> tuple[Any, ...]:
        return Part, (self.sources, self.blocks, self.chunks, self.statistics)

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
        place = Place(source=self.blocks.address)
        stated = self.blocks.metadata(INDEX_KEY)
        with refusing_damage("the index of a part", place):
            index = {
                path: record_from_json(ArrayRows, rows)
                for path, rows in json.loads(stated or "").items()
            }
            for rows in index.values():
                rows.check_inside(self.blocks.n_rows, self.chunks.table.n_rows)
            return index

    def rows(self, path: str) -> ArrayRows:
        if path not in self.index:
            raise self.blocks.corrupt(f"it has no entry for {path!r}")
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


LOST_ROW = 2**62
"""The row of chunks of blocks that cannot be known, as their table is lost: no table has it."""


@dataclass(frozen=True, eq=False)
class ParquetManifest:
    """The chunk rows of one array in one part: a `Manifest` whose rows are read on demand.

    Attributes
    ----------
    part
        The part.
    path
        Path of the array.
    has_filter_masks
        Whether any chunk of the array, in any part, has filters switched off.
    """

    part: Part
    path: str
    has_filter_masks: bool

    @property
    def n_rows(self) -> int:
        return self.part.rows(self.path).n_chunks

    @property
    def counts(self) -> ChunkCounts:
        """How many are ranges, inline and missing, and their stored bytes."""
        return self.part.rows(self.path).counts

    @property
    def stored_bytes(self) -> int:
        """Sum of the stored sizes of all chunks, in bytes."""
        return self.counts.stored_bytes

    def take(self, rows: NDArray[np.int64]) -> ChunkManifest:
        """The given rows, in the given order, in memory.

        Raises
        ------
        InvalidRequestError
            For rows that are not there.
        CatalogCorruptError
            If the table is damaged.
        """
        wanted = np.asarray(rows, np.int64)
        if wanted.size == 0:
            return ChunkManifest.missing(0)
        return self.part.chunks.take(self.table_rows(wanted))

    def statistics(self, rows: Int64Array) -> ChunkStatistics:
        """What is known of the values in chunks."""
        table = self.part.statistics
        if table is None:
            return ChunkStatistics.unknown(len(rows))
        return table.take(self.table_rows(rows))

    def table_rows(self, rows: Int64Array) -> Int64Array:
        """Where rows of this array are in the part's tables of chunks and statistics.

        Raises
        ------
        InvalidRequestError
            For rows that are not there.
        CatalogCorruptError
            For rows of blocks whose own table is lost or damaged.
        """
        if rows.size:
            least, greatest = int(rows.min()), int(rows.max())
            if greatest >= LOST_ROW:
                raise self.part.lost_blocks(self.path)
            if least < 0 or greatest >= self.n_rows:
                raise InvalidRequestError(
                    f"rows {least}..{greatest} of a manifest of {self.n_rows}"
                )
        return rows + self.part.rows(self.path).first_chunk


def open_part(
    folder: Folder,
    entry: PartEntry,
    prefixes: Sequence[str],
    storage_options: Mapping[str, Any] | None,
    trust: Trust,
    rules: SourceRules,
    is_replaced: Callable[[], bool],
    held: Mapping[str, bytes] | None = None,
) -> Part:
    """A part of the catalog in a folder; nothing of it is read yet.

    Tables that are `held` in memory, by name, are not read there. `is_replaced` says whether the
    catalog no longer has the snapshot.
    """
    known = held or {}
    policy = None  # redirects are followed: the user gave the address
    if is_local(folder.url):
        inside = (*trust.policy.prefixes, real_path(folder.url))
        policy = replace(trust.policy, prefixes=inside)

    def table(entry: TableEntry, columns: Sequence[str]) -> TableFile:
        if "/" in entry.file or os.sep in entry.file or entry.file.startswith("."):
            raise CatalogCorruptError(
                f"a table is not in the catalog: {entry.file!r}", Place(source=folder.url)
            )
        content = known.get(entry.file)
        address = folder.address(entry.file)
        return TableFile(address, entry, columns, storage_options, content, policy, is_replaced)

    # The name of the array is for people: readers know its rows by number.
    blocks, chunks = (
        [name for name in schema.names if name != "array"]
        for schema in (BLOCK_SCHEMA, CHUNK_SCHEMA)
    )
    checksums = None
    if entry.checksums is not None:
        checksums = ChecksumTable(table(entry.checksums, CHECKSUM_SCHEMA.names))
    sources = SourceTable(
        table(entry.sources, SOURCE_SCHEMA.names),
        folder.url,
        tuple(prefixes),
        trust,
        rules,
        checksums,
    )
    chunk_table = ChunkTable(table(entry.chunks, chunks), sources)
    statistics = None
    if entry.statistics is not None:
        statistics = StatisticsTable(table(entry.statistics, STATISTICS_SCHEMA.names))
    return Part(sources, table(entry.blocks, blocks), chunk_table, statistics)
