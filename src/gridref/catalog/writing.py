"""Write a part: the chunk rows of some arrays as tables, and the hash of their content.

Blocks of one array may share a manifest, whole or in part, and a sliced array needs only some rows
of its manifests. `layout_rows` takes, for each block, the range of rows that its window touches.
Ranges that overlap or touch are stored once. `chunk_batches` yields these rows in batches of one
row group each, and `write_part` writes them.

Equal content has an equal digest, however the catalog has grown. So rows are hashed one by one and
the hashes are composed: the hash of a sequence ``h`` is ``sum(h[i] * BASE**i)`` modulo 2**64, in
two lanes. The hash of two sequences, one after the other, follows from the hashes of both
(`joined`), and that of any stretch from running sums. The hash finds accidental differences. It is
not made to withstand somebody who constructs two contents with one hash.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gridref.catalog.document import SourceUrls
from gridref.catalog.entries import ArrayRows, ChunkCounts, PartEntry, TableEntry
from gridref.catalog.folder import TablePlace
from gridref.catalog.sources import relative_url, remember, split
from gridref.catalog.statistics import ChunkStatistics, HasStatistics, write_statistics
from gridref.catalog.tables import (
    BLOCK_SCHEMA,
    CHECKSUM_ALGORITHM,
    CHECKSUM_SCHEMA,
    CHUNK_SCHEMA,
    ROW_GROUP_ROWS,
    SOURCE_SCHEMA,
    TableWriter,
    blocks_table,
    gather_bytes,
    names_column,
    sources_table,
    steps_of_offsets,
    table_of,
)
from gridref.catalog.values import encoding_to_json, record_to_json
from gridref.errors import GridrefError, InvalidRequestError, Place
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.encoding import Encoding
from gridref.model.listing import touched_chunks
from gridref.model.manifest import (
    IDENTITIES,
    ChunkChecksums,
    ChunkManifest,
    ChunkState,
    Identity,
    KnownChecksums,
    Source,
)
from gridref.secrets import without_signature
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


# Checksums of the chunks that are written


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
        "algorithm": CHECKSUM_ALGORITHM,
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


# The hash of an array's rows, whatever tables they are in. Pure

Lanes = NDArray[np.uint64]
"""uint64 (2, n): two independent hashes of n things."""

_BASES = (0x9E3779B97F4A7C15 | 5, 0xC2B2AE3D27D4EB4F & ~7 | 5)
_INVERSES = tuple(pow(base, -1, 2**64) for base in _BASES)
_SEEDS = np.array([[0x243F6A8885A308D3], [0x13198A2E03707344]], np.uint64)
_K1, _K2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MASK = 2**64 - 1


@dataclass(frozen=True)
class Hash:
    """The hash of a sequence of `n` things."""

    lanes: tuple[int, int]
    n: int

    def __str__(self) -> str:
        return "".join(f"{lane:016x}" for lane in self.lanes)

    @classmethod
    def parse(cls, text: str, n: int) -> Hash:
        """The hash that was written as text."""
        return cls((int(text[:16], 16), int(text[16:], 16)), n)


def joined(hashes: Sequence[Hash]) -> Hash:
    """The hash of sequences laid one after the other."""
    lanes = [0, 0]
    n = 0
    for each in hashes:
        for lane, base in enumerate(_BASES):
            lanes[lane] = (lanes[lane] + each.lanes[lane] * pow(base, n, 2**64)) & _MASK
        n += each.n
    return Hash((lanes[0], lanes[1]), n)


def _hash_of(rows: Lanes) -> Hash:
    """The hash of the sequence of all of `rows`."""
    n = rows.shape[1]
    lanes = [int((rows[lane] * _powers(_BASES[lane], 0, n)).sum()) for lane in range(2)]
    return Hash((lanes[0], lanes[1]), n)


def _mixed(seed: Lanes, *columns: NDArray[np.integer]) -> Lanes:
    """Hashes of rows: `seed` (2, n or 1) mixed with one integer column after the other.

    The mixing function is that of splitmix64 (Steele, Lea, Flood 2014).
    """
    state: Lanes = seed ^ _SEEDS
    for column in columns:
        state = state + (column.astype(np.int64).view(np.uint64) + np.uint64(1)) * _K1
        state = (state ^ (state >> np.uint64(30))) * _K1
        state = (state ^ (state >> np.uint64(27))) * _K2
        state = state ^ (state >> np.uint64(31))
    return state


def _hashes_of_text(texts: Sequence[str]) -> Lanes:
    """Hashes of texts, one by one."""
    raw = b"".join(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        for text in texts
    )
    return np.frombuffer(raw, "<u8").reshape(-1, 2).T.astype(np.uint64)


_MISSING = _mixed(np.zeros((2, 1), np.uint64), np.zeros(1, np.int64))
"""The hash of a block that no file holds."""


class ContentDigest:
    """Hashes the blocks and chunk rows of arrays while the rows are written."""

    def __init__(self, arrays: Sequence[tuple[VirtualArray, RowLayout]]) -> None:
        self._arrays = [array for array, _ in arrays]
        self._starts, self._running = [], []
        for array, layout in arrays:
            present = array.blocks.encoding != MISSING_BLOCK
            shift = layout.first_row - array.blocks.first_row
            start, stop = (np.where(present, bound + shift, 0) for bound in layout.touched)
            self._starts.append(layout.first_row - start)
            self._running.append(_RunningHash(start, stop))
        self._sources = np.zeros((2, 0), np.uint64)

    def add_sources(self, sources: Sequence[Source], urls: Sequence[str]) -> None:
        """More sources that rows count into, with their addresses as they are stored."""
        texts = [
            repr((url, source.size_bytes, source.mtime_ns, source.etag, source.checksum))
            for source, url in zip(sources, urls, strict=True)
        ]
        self._sources = np.concatenate([self._sources, _hashes_of_text(texts)], axis=1)

    def add(self, batch: ChunkBatch) -> None:
        """The next rows."""
        rows = self._rows(batch)
        heads = np.flatnonzero(np.concatenate([[True], batch.array[1:] != batch.array[:-1]]))
        tails = [*heads[1:].tolist(), len(batch)]
        for start, stop in zip(heads.tolist(), tails, strict=True):
            self._running[int(batch.array[start])].add(rows[:, start:stop])

    def _rows(self, batch: ChunkBatch) -> Lanes:
        seed = np.zeros((2, len(batch)), np.uint64)
        ranges = np.flatnonzero(batch.state == ChunkState.RANGE)
        seed[:, ranges] = self._sources[:, batch.source[ranges]]
        inline = np.flatnonzero(batch.state == ChunkState.INLINE)
        if inline.size:
            stops = np.cumsum(batch.length[inline])
            content = _RunningHash(stops - batch.length[inline], stops)
            content.add(
                np.broadcast_to(
                    batch.inline.astype(np.uint64) + np.uint64(1), (2, batch.inline.size)
                )
            )
            seed[:, inline] = content.stretches()
        masks = batch.filter_mask.astype(np.int64)
        return _mixed(seed, batch.offset, batch.length, batch.state.astype(np.int64), masks)

    def finished(self) -> list[Hash]:
        """The hash of each array."""
        return [
            _hash_of(_block_hashes(*each))
            for each in zip(self._arrays, self._starts, self._running, strict=True)
        ]


def _block_hashes(array: VirtualArray, first: NDArray[np.int64], running: _RunningHash) -> Lanes:
    """uint64 (2, n_blocks): what turns into elements how, whatever rows it is kept in."""
    blocks = array.blocks
    present = blocks.encoding != MISSING_BLOCK
    lanes = np.concatenate([*map(_encoding_lanes, array.encodings), _MISSING], axis=1)
    seed = lanes[:, blocks.encoding] * _K2 + running.stretches()
    numbers = (blocks.row_stride, blocks.stored_shape, blocks.origin, blocks.step)
    columns = [column[:, axis] for column in numbers for axis in range(array.ndim)]
    return np.where(present, _mixed(seed, first, *columns), _MISSING)


@lru_cache(maxsize=4096)
def _encoding_lanes(encoding: Encoding) -> Lanes:
    return _hashes_of_text([json.dumps(encoding_to_json(encoding))])


class _RunningHash:
    """Hashes of stretches of a sequence that comes piece by piece.

    Parameters
    ----------
    starts, stops
        int64 (n,), half-open stretches of the sequence.
    """

    def __init__(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        self._starts = starts
        self._bounds, where = np.unique(np.concatenate([starts, stops]), return_inverse=True)
        self._of_start, self._of_stop = np.split(where.reshape(-1), 2)
        self._sums = np.zeros((2, self._bounds.size), np.uint64)
        self._total = np.zeros((2, 1), np.uint64)
        self._n = 0

    def add(self, rows: Lanes) -> None:
        """The next piece of the sequence: its hashes, uint64 (2, n)."""
        n = rows.shape[1]
        powers = np.stack([_powers(base, self._n, n) for base in _BASES])
        sums = np.concatenate([np.zeros((2, 1), np.uint64), np.cumsum(rows * powers, axis=1)], 1)
        sums = sums + self._total
        first, last = np.searchsorted(self._bounds, [self._n, self._n + n], side="left")
        last += int(last < self._bounds.size and self._bounds[last] == self._n + n)
        self._sums[:, first:last] = sums[:, self._bounds[first:last] - self._n]
        self._total = sums[:, -1:]
        self._n += n

    def stretches(self) -> Lanes:
        """uint64 (2, n), the hash of each stretch as a sequence of its own."""
        sums = self._sums[:, self._of_stop] - self._sums[:, self._of_start]
        back = np.stack([_power_of_each(inverse, self._starts) for inverse in _INVERSES])
        return sums * back


def _powers(base: int, first: int, n: int) -> NDArray[np.uint64]:
    """``base ** (first + i)`` for i < n."""
    factors = np.full(n, base, np.uint64)
    if n:
        factors[0] = pow(base, first, 2**64)
    return np.multiply.accumulate(factors)


def _power_of_each(base: int, exponents: NDArray[np.int64]) -> NDArray[np.uint64]:
    """``base ** exponent`` for each of some exponents."""
    result = np.ones(exponents.size, np.uint64)
    rest = exponents.copy()
    while rest.any():
        result = np.where(rest & 1, result * np.uint64(base), result)
        rest >>= 1
        base = base * base & _MASK
    return result


# Writing the three tables of a part


@dataclass(frozen=True)
class WrittenPart:
    """A part that was written.

    Attributes
    ----------
    entry
        Its tables.
    prefixes
        The beginnings of addresses then known.
    identity
        What makes each source the file that was scanned: the strictest of all.
    """

    entry: PartEntry
    rows: Mapping[str, ArrayRows]
    prefixes: tuple[str, ...]
    identity: Identity


def part_files(commit: str) -> tuple[str, ...]:
    """The files that the part of a commit may have: chunks, blocks, sources, checksums and more."""
    return tuple(f"{table}-{commit}.parquet" for table in _TABLES)


_TABLES = ("chunks", "blocks", "sources", "checksums", "statistics")
PART_FILE = re.compile(rf"(?:{'|'.join(_TABLES)})-([0-9a-f]{{16}})(?:c|-\d+)?\.parquet$")
"""Names of such files, with the id of their commit."""


def write_part(
    folder: TablePlace,
    commit: str,
    arrays: Mapping[str, VirtualArray],
    source_urls: SourceUrls = "absolute",
    prefixes: Sequence[str] = (),
    *,
    keep_secrets: bool = False,
    keep_statistics: bool = False,
) -> WrittenPart:
    """Write the rows of arrays.

    Parameters
    ----------
    commit
        Id of the commit, for the names of the files.
    arrays
        By path. Blocks of encoding ``n`` mean entry ``n`` of the array's encodings.
    source_urls
        Whether addresses are stored relative to the folder where possible.
    prefixes
        Beginnings of addresses that are known already.
    keep_secrets
        Whether credentials and signatures in addresses are kept.
    keep_statistics
        Whether what is known of the values of chunks is: they have to be shown as before.
    """
    layouts = _layouts(arrays)
    described = list(zip(arrays.values(), layouts, strict=True))
    names = part_files(commit)
    rows = _Rows(folder, described, list(arrays), source_urls, keep_secrets)
    checksums = ChecksumRows(rows.index)
    with TableWriter(folder, names[0], CHUNK_SCHEMA) as chunks:
        for batch in chunk_batches(described, rows.index):
            chunks.write(batch.to_arrow(rows.names))
            rows.add(batch)
            checksums.add(batch)
    found = rows.finished()
    with TableWriter(folder, names[1], BLOCK_SCHEMA) as blocks:
        if arrays:
            rows_of = {path: array.blocks for path, array in arrays.items()}
            blocks.write(blocks_table(rows_of, [layout.first_row for layout in layouts]))
        blocks.index = json.dumps({path: record_to_json(each) for path, each in found.items()})
    after, numbers, rest = split(rows.urls, prefixes)
    with TableWriter(folder, names[2], SOURCE_SCHEMA) as sources:
        sources.write(sources_table(rows.index.sources, numbers, rest))
    known, unchecked = checksums.found()
    checked = write_checksums(folder, names[3], known, unchecked) if known else None
    values = _known_values(described) if keep_statistics else None
    statistics = None if values is None else write_statistics(folder, names[4], values)
    remember(rows.index.sources, rows.urls)
    tables = (sources.entry, blocks.entry, chunks.entry)
    identities = {source.told_by for source in rows.index.sources} or {"strict"}
    strictest = next(each for each in IDENTITIES if each in identities)
    entry = PartEntry(*tables, checksums=checked, statistics=statistics)
    return WrittenPart(entry, found, after, strictest)


def _known_values(described: Sequence[tuple[VirtualArray, RowLayout]]) -> ChunkStatistics | None:
    """Statistics of the rows in the order in which they are written; None if none are known."""
    taken = []
    for array, layout in described:
        runs = zip(layout.manifest.tolist(), layout.start, layout.stop, strict=True)
        for number, start, stop in runs:
            manifest, rows = array.manifests[number], np.arange(start, stop)
            has = isinstance(manifest, HasStatistics)
            taken.append(manifest.statistics(rows) if has else ChunkStatistics.unknown(len(rows)))
    found = ChunkStatistics.joined(taken)
    return found if found.is_known.any() else None


def recounted(
    folder: TablePlace, arrays: Mapping[str, VirtualArray], source_urls: SourceUrls
) -> Mapping[str, ArrayRows]:
    """What `write_part` would say of the rows of arrays; nothing is written."""
    described = list(zip(arrays.values(), _layouts(arrays), strict=True))
    rows = _Rows(folder, described, list(arrays), source_urls, keep_secrets=True)  # as they stand
    for batch in chunk_batches(described, rows.index):
        rows.add(batch)
    return rows.finished()


class _Rows:
    """What is counted and hashed of chunk rows while they are written."""

    def __init__(
        self,
        folder: TablePlace,
        arrays: list[tuple[VirtualArray, RowLayout]],
        names: list[str],
        source_urls: SourceUrls,
        keep_secrets: bool,
    ) -> None:
        self._keeps_secrets = keep_secrets
        self.names = names
        self.index = SourceIndex()
        self.urls: list[str] = []
        self._folder = folder if source_urls == "relative" else None
        self._arrays = arrays
        self._digest = ContentDigest(arrays)
        self._sums = np.zeros((len(arrays), 5), np.int64)

    def add(self, batch: ChunkBatch) -> None:
        """The next rows."""
        new = self.index.sources[len(self.urls) :]
        urls = [self._stored_url(source) for source in new]
        self.urls += urls
        self._digest.add_sources(new, urls)
        self._digest.add(batch)
        _add_counts(self._sums, batch)

    def _stored_url(self, source: Source) -> str:
        url = source.url if self._keeps_secrets else without_signature(source.url)
        return relative_url(url, self._folder.url) if self._folder else url

    def finished(self) -> dict[str, ArrayRows]:
        """The rows of each array."""
        found = {}
        n_blocks = n_chunks = 0
        each = zip(
            self.names, self._arrays, self._sums.tolist(), self._digest.finished(), strict=True
        )
        for name, (array, layout), sums, content in each:
            n_ranges, n_inline, n_missing, n_bytes, masks = sums
            counts = ChunkCounts(n_ranges, n_inline, n_missing, n_bytes, bool(masks))
            grid_shape = array.grid.grid_shape
            found[name] = ArrayRows(
                grid_shape, n_blocks, n_chunks, layout.n_rows, counts, str(content)
            )
            n_blocks += array.n_blocks
            n_chunks += layout.n_rows
        return found


def _layouts(arrays: Mapping[str, VirtualArray]) -> list[RowLayout]:
    layouts = []
    for path, array in arrays.items():
        try:
            layouts.append(layout_rows(array))
        except GridrefError as error:
            raise error.located(Place(variable=path)) from None
    return layouts


def _add_counts(sums: np.ndarray[Any, Any], batch: ChunkBatch) -> None:
    """Rows of one array follow each other, so sums over runs are sums over arrays."""
    heads = np.flatnonzero(np.concatenate([[True], batch.array[1:] != batch.array[:-1]]))
    columns = [
        batch.state == ChunkState.RANGE,
        batch.state == ChunkState.INLINE,
        batch.state == ChunkState.MISSING,
        batch.length,
        batch.filter_mask != 0,
    ]
    for position, column in enumerate(columns):
        sums[batch.array[heads], position] += np.add.reduceat(column.astype(np.int64), heads)
