"""The chunk rows of arrays: the rows that are needed, and the order in which they are written.

Blocks of one array may share a manifest, whole or in part, and a sliced array needs only some rows
of its manifests. `layout_rows` takes, for each block, the range of rows that its window touches.
Ranges that overlap or touch are stored once. `chunk_batches` yields these rows in batches of one
row group each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gridref.catalog.tables import (
    CHUNK_SCHEMA,
    ROW_GROUP_ROWS,
    gather_bytes,
    names_column,
    steps_of_offsets,
    table_of,
)
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.listing import touched_chunks
from gridref.model.manifest import ChunkManifest, ChunkState, KnownChecksums, Source
from gridref.typing import Int64Array

# Manifest rows that an array needs, and their places in a table. Pure


@dataclass(frozen=True, eq=False)
class RowLayout:
    """Runs of manifest rows, stored one after the other.

    Attributes
    ----------
    manifest
        int64 (n_runs,), the manifest of each run.
    start, stop
        int64 (n_runs,), half-open range of its rows.
    first_row
        int64 (n_blocks,), the blocks' new first rows, counted in the stored rows. It may be before
        them where a window leaves out the first stored chunks.
    touched
        As `_rows_of_blocks` gives them: rows of the array's own manifests.
    """

    manifest: Int64Array
    start: Int64Array
    stop: Int64Array
    first_row: Int64Array
    touched: tuple[Int64Array, Int64Array]

    @property
    def n_rows(self) -> int:
        return int((self.stop - self.start).sum())


def _rows_of_blocks(array: VirtualArray) -> tuple[Int64Array, Int64Array]:
    """int64 (n_blocks,) each: half-open range of manifest rows that the window of a block touches.

    Meaningless for missing blocks.
    """
    blocks = array.blocks
    low, high = touched_chunks(array)
    backward = blocks.row_stride < 0
    start = blocks.manifest_row(slice(None), np.where(backward, high, low).T)
    stop = blocks.manifest_row(slice(None), np.where(backward, low, high).T) + 1
    return start, stop


def layout_rows(array: VirtualArray) -> RowLayout:
    """Lay out the rows of an array, manifests in the order in which blocks use them.

    Raises
    ------
    InvalidRequestError
        If a block points outside of its manifest.
    """
    blocks = array.blocks
    present = np.flatnonzero(blocks.encoding != MISSING_BLOCK)
    if present.size == 0:
        empty = np.zeros(0, np.int64)
        zeros = np.zeros(len(blocks), np.int64)
        return RowLayout(empty, empty, empty, zeros, (zeros, zeros))
    touched = _rows_of_blocks(array)
    start, stop = (column[present] for column in touched)
    used, first_use, of_block = np.unique(
        blocks.manifest[present], return_index=True, return_inverse=True
    )
    _check_manifests(array, used)
    n_rows = np.fromiter((array.manifests[i].n_rows for i in used.tolist()), np.int64, used.size)
    _check_rows(start, stop, n_rows[of_block], present)

    # All manifests on one axis, so that ranges of rows are plain intervals.
    base = np.zeros(used.size, np.int64)
    in_use_order = np.argsort(first_use)
    base[in_use_order] = np.cumsum(n_rows[in_use_order]) - n_rows[in_use_order]
    low, high = start + base[of_block], stop + base[of_block]
    order = np.argsort(low, kind="stable")
    reached = np.maximum.accumulate(high[order])
    begins = np.concatenate([[True], low[order][1:] > reached[:-1]])
    begins[1:] |= of_block[order][1:] != of_block[order][:-1]
    heads = np.flatnonzero(begins)
    run_low, run_high = low[order][heads], reached[np.append(heads[1:], order.size) - 1]
    run_manifest = of_block[order][heads]
    position = np.cumsum(run_high - run_low) - (run_high - run_low)

    run_of_block = np.empty(present.size, np.int64)
    run_of_block[order] = np.cumsum(begins) - 1
    first_row = np.zeros(len(blocks), np.int64)
    shift = base[of_block] - run_low[run_of_block] + position[run_of_block]
    first_row[present] = blocks.first_row[present] + shift
    return RowLayout(
        used[run_manifest].astype(np.int64),
        run_low - base[run_manifest],
        run_high - base[run_manifest],
        first_row,
        touched,
    )


def _check_manifests(array: VirtualArray, used: NDArray[np.int32]) -> None:
    if int(used[0]) < 0 or int(used[-1]) >= len(array.manifests):
        raise InvalidRequestError(
            f"blocks point to manifests {used[0]}..{used[-1]} of {len(array.manifests)}"
        )


def _check_rows(start: Int64Array, stop: Int64Array, n_rows: Int64Array, block: Int64Array) -> None:
    wrong = np.flatnonzero((start < 0) | (stop > n_rows))
    if wrong.size:
        i = int(wrong[0])
        raise InvalidRequestError(
            f"block {block[i]} needs rows {start[i]}-{stop[i]} of a manifest of {n_rows[i]}"
        )


# Chunk rows of arrays in batches, one for each row group

ROW_GROUP_INLINE_BYTES = 4 * 2**20
"""Inline bytes after which a row group of chunks ends."""


class SourceIndex:
    """Numbers sources in the order in which chunk rows first use them."""

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self._seen: dict[Source, int] = {}
        self._candidates: list[Source] = []
        self._numbers = np.zeros(0, np.int64)
        self._tuples: dict[int, tuple[tuple[Source, ...], Int64Array]] = {}
        self._checksums: dict[Source, list[KnownChecksums]] = {}

    @property
    def has_checksums(self) -> bool:
        """Whether there are checksums of the chunks of any source."""
        return bool(self._checksums)

    def checksums(self, number: int) -> list[KnownChecksums]:
        """All that is known of the chunks of a source."""
        return self._checksums.get(self.sources[number], [])

    def candidates(self, sources: tuple[Source, ...]) -> Int64Array:
        """A provisional number for each of `sources`, equal for equal ones."""
        known = self._tuples.get(id(sources))
        if known is None:
            numbers = np.empty(len(sources), np.int64)
            for i, source in enumerate(sources):
                number = self._seen.setdefault(source, len(self._seen))
                if number == len(self._candidates):
                    self._candidates.append(source)
                numbers[i] = number
                if source.chunk_checksums is not None:
                    self._checksums.setdefault(source, []).append(source.chunk_checksums)
            # The tuple is kept so that its id stays its own.
            known = self._tuples[id(sources)] = (sources, numbers)
        return known[1]

    def final(self, candidates: Int64Array) -> NDArray[np.int32]:
        """The numbers of candidates that are in use."""
        room = len(self._candidates) - self._numbers.size
        if room > 0:
            self._numbers = np.concatenate([self._numbers, np.full(room, -1, np.int64)])
        new = np.unique(candidates[self._numbers[candidates] < 0])
        self._numbers[new] = len(self.sources) + np.arange(new.size)
        self.sources += [self._candidates[i] for i in new.tolist()]
        return self._numbers[candidates].astype(np.int32)


@dataclass(frozen=True, eq=False)
class ChunkBatch:
    """Chunk rows that become one row group, and the array each belongs to."""

    array: Int64Array
    source: NDArray[np.int32]
    offset: Int64Array
    length: Int64Array
    state: NDArray[np.uint8]
    filter_mask: NDArray[np.uint32]
    inline: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.state)

    def to_arrow(self, names: Sequence[str]) -> pa.Table:
        """The rows as the table keeps them; `names` are those of the arrays."""
        ranges = np.flatnonzero(self.state == ChunkState.RANGE)
        steps = np.zeros(len(self), np.int64)
        steps[ranges] = steps_of_offsets(
            self.source[ranges], self.offset[ranges], self.length[ranges]
        )
        name = names_column(names, self.array)
        columns = [
            name,
            self.source,
            steps,
            self.length,
            self.state,
            self.filter_mask,
            self._payloads(),
        ]
        return table_of(columns, CHUNK_SCHEMA)

    def _payloads(self) -> pa.Array:
        is_inline = self.state == ChunkState.INLINE
        sizes = np.where(is_inline, self.length, 0)
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        validity = pa.py_buffer(np.packbits(is_inline, bitorder="little").tobytes())
        return pa.LargeBinaryArray.from_buffers(
            pa.large_binary(),
            len(self),
            [validity, pa.py_buffer(ends.tobytes()), pa.py_buffer(self.inline.tobytes())],
        )


@dataclass(frozen=True)
class _Run:
    """Rows of one manifest, for one array."""

    array: int
    manifest: ChunkManifest
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def chunk_batches(
    arrays: Iterable[tuple[VirtualArray, RowLayout]], sources: SourceIndex
) -> Iterator[ChunkBatch]:
    """The chunk rows of all arrays, one after the other, in batches of one row group.

    Raises
    ------
    InvalidRequestError
        If a manifest contradicts itself.
    """
    for runs in _grouped(_runs(arrays)):
        yield from _split_by_inline(_batch(runs, sources))


def _runs(arrays: Iterable[tuple[VirtualArray, RowLayout]]) -> Iterator[_Run]:
    for number, (array, layout) in enumerate(arrays):
        columns = (layout.manifest.tolist(), layout.start.tolist(), layout.stop.tolist())
        for index, start, stop in zip(*columns, strict=True):
            manifest = array.manifests[index]
            if isinstance(manifest, ChunkManifest):
                yield _Run(number, manifest, start, stop)
                continue
            for first in range(start, stop, ROW_GROUP_ROWS):
                rows = np.arange(first, min(stop, first + ROW_GROUP_ROWS))
                yield _Run(number, manifest.take(rows), 0, rows.size)


def _grouped(runs: Iterable[_Run]) -> Iterator[list[_Run]]:
    """Runs, cut so that each group has `ROW_GROUP_ROWS` rows, the last one fewer."""
    group: list[_Run] = []
    room = ROW_GROUP_ROWS
    for run in runs:
        start = run.start
        while run.stop - start >= room:
            group.append(_Run(run.array, run.manifest, start, start + room))
            yield group
            start += room
            group, room = [], ROW_GROUP_ROWS
        if start < run.stop:
            group.append(_Run(run.array, run.manifest, start, run.stop))
            room -= run.stop - start
    if group:
        yield group


def _batch(runs: list[_Run], sources: SourceIndex) -> ChunkBatch:
    counts = np.fromiter(map(len, runs), np.int64, len(runs))
    parts = [run.manifest.take(slice(run.start, run.stop)) for run in runs]

    def column(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])

    state = column("state")
    is_range, is_inline = state == ChunkState.RANGE, state == ChunkState.INLINE
    if int(state.max()) > max(ChunkState):
        raise InvalidRequestError(f"unknown chunk state {int(state.max())}")
    length = np.where(is_range | is_inline, column("length"), 0)
    offset = column("offset")
    if int(length.min()) < 0 or int(np.where(is_range, offset, 0).min()) < 0:
        raise InvalidRequestError("a chunk has a negative offset or length")
    return ChunkBatch(
        np.repeat(np.fromiter((run.array for run in runs), np.int64, len(runs)), counts),
        _global_sources(runs, counts, column("source"), is_range, sources),
        np.where(is_range, offset, 0),
        length,
        state,
        np.where(is_range | is_inline, column("masks"), 0).astype(np.uint32),
        _inline_of(runs, counts, offset, length, is_inline),
    )


def _global_sources(
    runs: list[_Run],
    counts: Int64Array,
    local: NDArray[np.int32],
    is_range: NDArray[np.bool_],
    sources: SourceIndex,
) -> NDArray[np.int32]:
    """Numbers in the catalog of the sources of each row; 0 where there is none."""
    bases: dict[int, int] = {}
    tables: list[Int64Array] = []
    size = 0
    for run in runs:
        key = id(run.manifest.sources)
        if key not in bases:
            bases[key] = size
            tables.append(sources.candidates(run.manifest.sources))
            size += len(run.manifest.sources)
    n_sources = np.fromiter((len(run.manifest.sources) for run in runs), np.int64, len(runs))
    base = np.fromiter((bases[id(run.manifest.sources)] for run in runs), np.int64, len(runs))
    wrong = is_range & ((local < 0) | (local >= np.repeat(n_sources, counts)))
    if wrong.any():
        raise InvalidRequestError("a chunk points to a source that its manifest does not have")
    result = np.zeros(local.size, np.int32)
    lookup = np.concatenate([np.zeros(0, np.int64), *tables])
    result[is_range] = sources.final(lookup[(local + np.repeat(base, counts))[is_range]])
    return result


def _inline_of(
    runs: list[_Run],
    counts: Int64Array,
    offset: Int64Array,
    length: Int64Array,
    is_inline: NDArray[np.bool_],
) -> NDArray[np.uint8]:
    """Payloads of the inline rows, back to back."""
    if not is_inline.any():
        return np.zeros(0, np.uint8)
    blobs: dict[int, int] = {}
    parts: list[bytes] = []
    size = 0
    for run in runs:
        if id(run.manifest) not in blobs:
            blobs[id(run.manifest)] = size
            parts.append(run.manifest.inline)
            size += len(run.manifest.inline)
    base = np.fromiter((blobs[id(run.manifest)] for run in runs), np.int64, len(runs))
    limit = base + np.fromiter((len(run.manifest.inline) for run in runs), np.int64, len(runs))
    ends = (offset + length)[is_inline] + np.repeat(base, counts)[is_inline]
    if (offset[is_inline] < 0).any() or (ends > np.repeat(limit, counts)[is_inline]).any():
        raise InvalidRequestError("an inline chunk reaches out of its manifest's inline bytes")
    data = np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8)
    starts = (offset + np.repeat(base, counts))[is_inline]
    return gather_bytes(data, starts, length[is_inline])


def _split_by_inline(batch: ChunkBatch) -> Iterator[ChunkBatch]:
    """Smaller batches where one holds many inline bytes, so that few are read in vain."""
    if batch.inline.size <= ROW_GROUP_INLINE_BYTES:
        yield batch
        return
    sizes = np.where(batch.state == ChunkState.INLINE, batch.length, 0)
    ends = np.cumsum(sizes)
    first = 0
    while first < len(batch):
        taken = int(ends[first] - sizes[first])
        stop = int(np.searchsorted(ends, taken + ROW_GROUP_INLINE_BYTES, side="right"))
        stop = max(first + 1, stop)
        yield ChunkBatch(
            batch.array[first:stop],
            batch.source[first:stop],
            batch.offset[first:stop],
            batch.length[first:stop],
            batch.state[first:stop],
            batch.filter_mask[first:stop],
            batch.inline[taken : int(ends[stop - 1])],
        )
        first = stop
