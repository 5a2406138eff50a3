"""Rows of a catalog's tables as the model wants them, loaded when they are first looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gridref.cache import LRU, nbytes_of
from gridref.catalog.arrow_columns import numbers_of
from gridref.catalog.checksum_rows import ChecksumTable, SourceChecksums
from gridref.catalog.columns import gather_bytes, offsets_from_steps
from gridref.catalog.relative import resolved_url
from gridref.catalog.source_rules import SourceRules
from gridref.catalog.table_file import TableFile
from gridref.catalog.trust import Trust
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.typing import Int64Array

__all__ = ["ChunkTable", "SourceTable"]


_MAX_CACHED_BYTES = 64 * 2**20
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
        """The addresses as they are stored; version 1 has them whole."""
        if "url" in columns:
            return columns["url"]
        known = len(self.prefixes)
        if any(not 0 <= number < known for number in columns["prefix"]):
            raise self.table.corrupt(f"a source has a prefix that is none of {known}")
        pairs = zip(columns["prefix"], columns["path"], strict=True)
        return [self.prefixes[number] + path for number, path in pairs]


@dataclass(frozen=True, eq=False)
class _Rows:
    """The decoded rows of a row group."""

    source: NDArray[np.int32]
    offset: Int64Array
    length: Int64Array
    state: NDArray[np.uint8]
    filter_mask: NDArray[np.uint32]

    @cached_property
    def inline_start(self) -> Int64Array:
        """Where in the row group's payloads each inline row begins."""
        sizes = np.where(self.state == ChunkState.INLINE, self.length, 0)
        return np.asarray(np.cumsum(sizes) - sizes)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in vars(self).values())


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
        self._groups = LRU[_Rows](_MAX_CACHED_BYTES // 2, nbytes_of, keeps_last=1)
        self._payloads = LRU[NDArray[np.uint8]](_MAX_CACHED_BYTES // 2, nbytes_of, keeps_last=1)

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkTable, (self.table, self.sources)

    def take(self, rows: Int64Array) -> ChunkManifest:
        """The given rows, in the given order."""
        starts = self.table.row_group_starts
        groups = np.searchsorted(starts, rows, side="right") - 1
        numbers = np.unique(groups)
        if numbers.size == 1:
            number = int(numbers[0])
            return self._manifest(*self._taken(number, rows - starts[number]))
        result = _Rows(*(np.zeros(rows.size, dtype) for dtype in ("i4", "i8", "i8", "u1", "u4")))
        payloads = []
        n_inline = 0
        order = np.argsort(groups, kind="stable")
        bounds = np.append(np.searchsorted(groups[order], numbers), rows.size)
        for position, number in enumerate(numbers.tolist()):
            wanted = order[bounds[position] : bounds[position + 1]]
            part, payload = self._taken(number, rows[wanted] - starts[number])
            part.offset[part.state == ChunkState.INLINE] += n_inline
            n_inline += len(payload)
            payloads.append(payload)
            for column, values in zip(_columns(result), _columns(part), strict=True):
                column[wanted] = values
        return self._manifest(result, b"".join(payloads))

    def _manifest(self, rows: _Rows, payload: bytes) -> ChunkManifest:
        mask = rows.filter_mask if rows.filter_mask.any() else None
        return ChunkManifest(
            self.sources.sources, rows.source, rows.offset, rows.length, rows.state, mask, payload
        )

    def _taken(self, number: int, rows: Int64Array) -> tuple[_Rows, bytes]:
        """Rows of one row group, and the payloads of those that are inline."""
        group = self._groups.get_or_load(number, lambda: self._load(number))
        part = _Rows(*(column[rows] for column in _columns(group)))
        is_inline = part.state == ChunkState.INLINE
        if not is_inline.any():
            return part, b""
        data = self._payloads.get_or_load(number, lambda: self._load_inline(number, group))
        sizes = part.length[is_inline]
        payload = gather_bytes(data, group.inline_start[rows[is_inline]], sizes)
        part.offset[is_inline] = np.cumsum(sizes) - sizes
        return part, payload.tobytes()

    def _load(self, number: int) -> _Rows:
        table = self.table.read_row_group(number, _ROW_COLUMNS)
        source, step, length, state, mask = (
            numbers_of(table.column(name)) for name in _ROW_COLUMNS
        )
        ranges = np.flatnonzero(state == ChunkState.RANGE)
        offset = np.zeros(state.size, np.int64)
        offset[ranges] = offsets_from_steps(source[ranges], step[ranges], length[ranges])
        rows = _Rows(source, offset, length, state, mask)
        self._check(rows, ranges)
        return rows

    def _check(self, rows: _Rows, ranges: NDArray[np.int64]) -> None:
        """Refuse rows that no writer makes: they would lead to wrong bytes."""
        source = rows.source[ranges]
        if rows.state.size and int(rows.state.max()) > max(ChunkState):
            raise self.table.corrupt(f"a chunk has the unknown state {int(rows.state.max())}")
        if source.size and (int(source.min()) < 0 or int(source.max()) >= len(self.sources)):
            raise self.table.corrupt(
                f"a chunk points to source {int(source.max())} of {len(self.sources)}"
            )
        if rows.length.size and (int(rows.length.min()) < 0 or int(rows.offset.min()) < 0):
            raise self.table.corrupt("a chunk has a negative offset or length")

    def _load_inline(self, number: int, group: _Rows) -> NDArray[np.uint8]:
        column = self.table.read_row_group(number, ["inline"]).column("inline")
        array = column.combine_chunks().cast(pa.large_binary())
        _, offsets, data = array.buffers()
        bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        is_inline = group.state == ChunkState.INLINE
        sizes = np.where(is_inline, group.length, 0)
        if (np.diff(bounds) != sizes).any():
            raise self.table.corrupt("inline chunks differ in size from what their rows say")
        raw = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return raw[int(bounds[0]) : int(bounds[-1])]


def _columns(rows: _Rows) -> tuple[NDArray[Any], ...]:
    return rows.source, rows.offset, rows.length, rows.state, rows.filter_mask
