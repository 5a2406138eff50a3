"""Checksums of the stored chunks of a group: all of them are read once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.io import SourcePool, crc32c_of
from gridref.model.array import VirtualGroup
from gridref.model.chunk_checksums import ChunkChecksums
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.typing import Int64Array
from gridref.workflows.identity import with_sources

__all__ = ["with_checksums"]


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
    ranges = _ranges_of(group)
    batches = [
        (source, offset[rows], length[rows])
        for source, (offset, length) in ranges.items()
        for rows in _batches(length)
    ]
    with SourcePool(storage_options) as pool, ThreadPoolExecutor(_MAX_THREADS) as threads:
        taken = list(threads.map(lambda batch: _taken(pool, *batch), batches))
    found: dict[Source, list[NDArray[np.uint32]]] = {source: [] for source in ranges}
    for (source, _, _), crc32c in zip(batches, taken, strict=True):
        found[source].append(crc32c)
    checked = {
        source: replace(
            source, chunk_checksums=ChunkChecksums.of(*ranges[source], np.concatenate(crc32c))
        )
        for source, crc32c in found.items()
    }
    return with_sources(group, checked)


def _ranges_of(group: VirtualGroup) -> dict[Source, tuple[Int64Array, Int64Array]]:
    """The byte ranges of each source that chunks lie in, in the order in which they lie there."""
    columns: dict[Source, list[tuple[Int64Array, Int64Array]]] = {}
    manifests = [each for array in group.all_arrays().values() for each in array.manifests]
    for manifest in {id(each): each for each in manifests}.values():
        if not isinstance(manifest, ChunkManifest):
            continue
        held = np.flatnonzero((manifest.state == ChunkState.RANGE) & (manifest.length > 0))
        order = held[np.argsort(manifest.source[held], kind="stable")]
        for rows in np.split(order, np.flatnonzero(np.diff(manifest.source[order])) + 1):
            if rows.size:
                source = manifest.sources[int(manifest.source[rows[0]])]
                pair = manifest.offset[rows], manifest.length[rows]
                columns.setdefault(source, []).append(pair)
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
