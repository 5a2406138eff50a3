"""What makes the sources of a group the files that were scanned, and checksums of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from gridref.catalog import CatalogGroup
from gridref.io import Coverage, SourcePool, absolute_url, checksum_of, coverage_of
from gridref.io.object_stores import uri_of
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import ChunkManifest, Identity, Manifest, Source
from gridref.workflows.reading import Sources

__all__ = ["told_as", "with_identity", "with_renamed_sources", "with_sources"]

_MAX_THREADS = 16


def with_identity(
    group: VirtualGroup,
    identity: Identity,
    checksum: Coverage = "sampled",
    storage_options: Mapping[str, Any] | None = None,
) -> VirtualGroup:
    """A group whose sources are told by `identity`; for that of their content, they are read.

    Parameters
    ----------
    group
        As it was scanned, with its manifests in memory.
    identity
        What makes a source the file that was scanned.
    checksum
        What of each source is read for its checksum.
    storage_options
        fsspec options of the sources.

    Raises
    ------
    ReadError
        If a source cannot be read, or changed since it was scanned.
    """
    if identity == "strict":
        return group
    sources = _sources_of(group)
    if identity == "content":
        with SourcePool(storage_options) as pool, ThreadPoolExecutor(_MAX_THREADS) as threads:
            taken = list(threads.map(lambda source: _taken(source, pool, checksum), sources))
    else:
        taken = [None] * len(sources)
    told = {
        source: replace(source, told_by=identity, checksum=taken_now)
        for source, taken_now in zip(sources, taken, strict=True)
    }
    return with_sources(group, told)


def with_sources(group: VirtualGroup, other: Mapping[Source, Source]) -> VirtualGroup:
    """A group in whose manifests, as far as they are in memory, other sources stand."""
    return _mapped(group, _Telling(other))


def with_renamed_sources(array: VirtualArray, new: str | Callable[[str], str]) -> VirtualArray:
    """An array whose chunks lie in files of other addresses, which only their sizes tell.

    Parameters
    ----------
    array
        The array; its manifests are read.
    new
        The address of all its files, or what gives it for each former one, a URI.
    """

    def renamed(source: Source) -> Source:
        url = absolute_url(new if isinstance(new, str) else new(uri_of(source.url)))
        if url == source.url:
            return source
        return replace(source, url=url, mtime_ns=None, etag=None, told_by="size", policy=None)

    def read(manifest: Manifest) -> ChunkManifest:
        rows = manifest.take(np.arange(manifest.n_rows))
        return rows.with_sources(tuple(map(renamed, rows.sources)))

    return array.replace(manifests=tuple(map(read, array.manifests)))


def told_as(catalog: CatalogGroup, group: VirtualGroup, opened: Sources) -> VirtualGroup:
    """A group that was scanned, its sources told as those of a catalog that it is added to."""
    checksums = (source.checksum for part in catalog.parts for source in part.sources.sources)
    known = next(filter(None, checksums), None) if catalog.snapshot.identity == "content" else None
    coverage = "sampled" if known is None else coverage_of(known)
    return with_identity(group, catalog.snapshot.identity, coverage, opened.storage_options)


def _sources_of(group: VirtualGroup) -> list[Source]:
    manifests = [each for array in group.all_arrays().values() for each in array.manifests]
    tuples = {id(m.sources): m.sources for m in manifests if isinstance(m, ChunkManifest)}
    return list(dict.fromkeys(source for sources in tuples.values() for source in sources))


def _taken(source: Source, pool: SourcePool, checksum: Coverage) -> str | None:
    """The checksum of a source; None where its size is not known."""
    if source.size_bytes is None:
        return None

    def read(starts: Sequence[int], stops: Sequence[int]) -> list[bytes]:
        lengths = [stop - start for start, stop in zip(starts, stops, strict=True)]
        return [bytes(part) for part in pool.read_ranges(source, starts, lengths)]

    return checksum_of(source.size_bytes, read, checksum)


class _Telling:
    """Gives manifests other sources; what they share stays shared."""

    def __init__(self, told: Mapping[Source, Source]) -> None:
        self._told = told
        self._tuples: dict[int, tuple[Source, ...]] = {}
        self._manifests: dict[int, tuple[Manifest, Manifest]] = {}

    def __call__(self, manifest: Manifest) -> Manifest:
        if not isinstance(manifest, ChunkManifest):
            return manifest
        if id(manifest) not in self._manifests:
            sources = self._tuples.get(id(manifest.sources))
            if sources is None:
                sources = tuple(self._told.get(source, source) for source in manifest.sources)
                self._tuples[id(manifest.sources)] = sources
            # The old one is kept so that its id stays its own.
            self._manifests[id(manifest)] = (manifest, manifest.with_sources(sources))
        return self._manifests[id(manifest)][1]


def _mapped(group: VirtualGroup, tell: _Telling) -> VirtualGroup:
    arrays = {
        name: array.replace(manifests=tuple(map(tell, array.manifests)))
        for name, array in group.arrays.items()
    }
    groups = {name: _mapped(below, tell) for name, below in group.groups.items()}
    return group.replace(arrays=arrays, groups=groups)
