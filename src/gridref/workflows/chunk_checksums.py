"""Checksums of the stored chunks of a group, or of a catalog: all of them are read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.checksum_rows import write_checksums
from gridref.catalog.commits import Base
from gridref.catalog.parts import Part
from gridref.catalog.recording import WriteTable
from gridref.io import SourcePool, crc32c_of
from gridref.model.array import VirtualGroup
from gridref.model.chunk_checksums import ChunkChecksums
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.typing import Int64Array
from gridref.workflows.identity import with_sources

__all__ = ["ChecksumScan", "with_checksums"]

type Progress = Callable[[int, int], None]

_MAX_THREADS = 8
_BATCH_BYTES = 16 * 2**20
"""Bytes that a thread reads at a time; the last chunk comes on top."""


def with_checksums(
    group: VirtualGroup, storage_options: Mapping[str, Any] | None = None
) -> VirtualGroup:
    """A group of whose stored chunks there are checksums: each is read once.

    Parameters
    ----------
    group
        As it was scanned, with its manifests in memory.
    storage_options
        fsspec options of the sources.

    Raises
    ------
    ReadError
        If a chunk cannot be read, or its source changed since it was scanned.
    """
    manifests = [each for array in group.all_arrays().values() for each in array.manifests]
    distinct = {id(each): each for each in manifests if isinstance(each, ChunkManifest)}
    found = _checksums_of(_ranges_of(distinct.values()), storage_options)
    checked = {source: replace(source, chunk_checksums=each) for source, each in found.items()}
    return with_sources(group, checked)


class ChecksumScan:
    """Reads chunks of which there are no checksums, each once however often a commit is tried.

    Parameters
    ----------
    storage_options
        fsspec options of the sources.
    progress
        Called with the number of chunks read, and of all to read.
    """

    def __init__(
        self,
        storage_options: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._storage_options = storage_options
        self._progress = progress
        self._kept: dict[str, dict[Source, ChunkChecksums]] = {}

    @property
    def n_chunks(self) -> int:
        """Distinct stored chunks of which checksums were taken."""
        return sum(c.offset.size for found in self._kept.values() for c in found.values())

    def of(self, base: Base) -> Mapping[int, WriteTable]:
        """Tables of the checksums of those parts that lack some."""
        tables: dict[int, WriteTable] = {}
        for number, part in enumerate(base.group.parts):
            checksums = part.sources.checksums
            if checksums is not None and checksums.is_complete:
                continue
            found = self._found(part)
            sources = enumerate(part.sources.sources)
            if known := {n: found[each] for n, each in sources if each in found}:
                tables[number] = partial(write_checksums, known=known)
        return tables

    def _found(self, part: Part) -> Mapping[Source, ChunkChecksums]:
        address = part.blocks.address
        if address not in self._kept:
            ranges = _ranges_of(_manifests_of(part))
            self._kept[address] = _checksums_of(ranges, self._storage_options, self._progress)
        return self._kept[address]


def _manifests_of(part: Part) -> Iterator[ChunkManifest]:
    """All chunk rows of a part."""
    for start, stop in pairwise(part.chunks.table.row_group_starts.tolist()):
        yield part.chunks.take(np.arange(start, stop))


type _Ranges = Mapping[Source, tuple[Int64Array, Int64Array]]
"""Offset and length of the chunks of each source, in the order in which they lie there."""


def _checksums_of(
    ranges: _Ranges,
    storage_options: Mapping[str, Any] | None,
    progress: Progress | None = None,
) -> dict[Source, ChunkChecksums]:
    """The checksums of chunks, which are read."""
    batches = [
        (source, offset[rows], length[rows])
        for source, (offset, length) in ranges.items()
        for rows in _batches(length)
    ]
    total = sum(offset.size for _, offset, _ in batches)
    found: dict[Source, list[NDArray[np.uint32]]] = {source: [] for source in ranges}
    n_done = 0
    with SourcePool(storage_options) as pool, ThreadPoolExecutor(_MAX_THREADS) as threads:
        taken = threads.map(lambda batch: _taken(pool, *batch), batches)
        for (source, offset, _), crc32c in zip(batches, taken, strict=True):
            found[source].append(crc32c)
            n_done += offset.size
            if progress is not None:
                progress(n_done, total)
    return {
        source: ChunkChecksums.of(*ranges[source], np.concatenate(crc32c))
        for source, crc32c in found.items()
    }


def _ranges_of(manifests: Iterable[ChunkManifest]) -> _Ranges:
    columns: dict[Source, list[tuple[Int64Array, Int64Array]]] = {}
    for manifest in manifests:
        held = np.flatnonzero((manifest.state == ChunkState.RANGE) & (manifest.length > 0))
        rows = manifest.take(held[np.argsort(manifest.source[held], kind="stable")])
        offset, length = rows.offset, rows.length
        cuts = np.flatnonzero(np.diff(rows.source)) + 1
        for own in np.split(np.arange(rows.n_rows), cuts):
            if own.size:
                source = manifest.sources[int(rows.source[own[0]])]
                columns.setdefault(source, []).append((offset[own], length[own]))
    return {source: _distinct(pairs) for source, pairs in columns.items()}


def _distinct(pairs: list[tuple[Int64Array, Int64Array]]) -> tuple[Int64Array, Int64Array]:
    offset, length = map(np.concatenate, zip(*pairs, strict=True))
    each = ChunkChecksums.of(offset, length, np.zeros(offset.size, np.uint32))
    return each.offset, each.length


def _batches(length: Int64Array) -> Iterator[slice]:
    number = (np.cumsum(length) - length) // _BATCH_BYTES
    cuts = np.flatnonzero(np.diff(number)) + 1
    bounds = [0, *cuts.tolist(), length.size]
    yield from map(slice, bounds[:-1], bounds[1:])


def _taken(
    pool: SourcePool, source: Source, offset: Int64Array, length: Int64Array
) -> NDArray[np.uint32]:
    parts = pool.read_ranges(source, offset, length)
    return np.fromiter(map(crc32c_of, parts), np.uint32, len(parts))
