"""Read the sources of a catalog once: for identity, checksums or statistics of chunks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.api.decoding import decoded_values
from gridref.api.readable import Sources, from_files
from gridref.catalog.commit import Base, WriteTable
from gridref.catalog.group import CatalogGroup
from gridref.catalog.parts import ParquetManifest, Part
from gridref.catalog.statistics import ChunkStatistics, write_statistics
from gridref.catalog.tables import ROW_GROUP_ROWS
from gridref.catalog.writing import write_checksums
from gridref.io import Coverage, SourcePool, absolute_url, checksum_of, coverage_of, crc32c_of
from gridref.io.address import uri_of
from gridref.io.ahead import in_threads
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.listing import ChunkListing, ListedChunks
from gridref.model.manifest import (
    ChunkChecksums,
    ChunkManifest,
    ChunkState,
    Identity,
    KnownSources,
    Manifest,
    Source,
)
from gridref.options import check_names
from gridref.serve.reader import Reader
from gridref.typing import Int64Array

# Identity of sources: what makes a file the one that was scanned


def with_identity(
    group: VirtualGroup,
    identity: Identity,
    checksum: Coverage = "sampled",
    storage_options: Mapping[str, Any] | None = None,
) -> VirtualGroup:
    """Set the identity by which a group's sources are checked; ``"content"`` reads the sources.

    Parameters
    ----------
    group
        As it was scanned, with its manifests in memory.
    identity
        What makes a source the file that was scanned.
    checksum
        How much of each source to read for its checksum.
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
        with SourcePool(storage_options) as pool:
            taken = list(in_threads(lambda source: _taken(source, pool, checksum), sources))
    else:
        taken = [None] * len(sources)
    told = {
        source: replace(source, told_by=identity, checksum=taken_now)
        for source, taken_now in zip(sources, taken, strict=True)
    }
    return with_sources(group, told)


def with_sources(group: VirtualGroup, other: Mapping[Source, Source]) -> VirtualGroup:
    """Replace sources in the manifests of a group that are in memory."""
    tell = _Telling(other)

    def told(_path: str, array: VirtualArray) -> VirtualArray:
        return array.with_changes(manifests=tuple(map(tell, array.manifests)))

    return group.with_each_array(told)


def with_renamed_sources(array: VirtualArray, new: str | Callable[[str], str]) -> VirtualArray:
    """An array with other addresses of its files, which are checked by size only.

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

    return array.with_changes(manifests=tuple(map(read, array.manifests)))


def told_as(catalog: CatalogGroup, group: VirtualGroup, opened: Sources) -> VirtualGroup:
    """A scanned group whose sources are checked as those of the catalog it is added to."""
    checksums = (source.checksum for part in catalog.parts for source in part.sources.sources)
    known = next(filter(None, checksums), None) if catalog.snapshot.identity == "content" else None
    coverage = "sampled" if known is None else coverage_of(known)
    return with_identity(group, catalog.snapshot.identity, coverage, opened.storage_options)


def _sources_of(group: VirtualGroup) -> list[Source]:
    manifests = [each for array in group.all_arrays().values() for each in array.manifests]
    held = [each for each in manifests if isinstance(each, KnownSources)]
    tuples = {id(each.sources): each.sources for each in held}
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
        if not isinstance(manifest, KnownSources):
            return manifest
        if id(manifest) not in self._manifests:
            sources = self._tuples.get(id(manifest.sources))
            if sources is None:
                sources = tuple(self._told.get(source, source) for source in manifest.sources)
                self._tuples[id(manifest.sources)] = sources
            # The old one is kept so that its id stays its own.
            self._manifests[id(manifest)] = (manifest, manifest.with_sources(sources))
        return self._manifests[id(manifest)][1]


# Checksums of stored chunks

type Progress = Callable[[int, int], None]

_CHECKSUM_THREADS = 8
_BATCH_BYTES = 16 * 2**20
"""Bytes that a thread reads at a time; the last chunk comes on top."""


def with_checksums(
    group: VirtualGroup, storage_options: Mapping[str, Any] | None = None
) -> VirtualGroup:
    """Compute checksums of a group's stored chunks: each is read once.

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
    distinct = {id(each): each for each in manifests if isinstance(each, KnownSources)}
    rows = (each.take(np.arange(each.n_rows)) for each in distinct.values())
    found = _checksums_of(_ranges_of(rows), storage_options)
    checked = {source: replace(source, chunk_checksums=each) for source, each in found.items()}
    return with_sources(group, checked)


class ChecksumScan:
    """Reads chunks without checksums, each once, even if the commit is tried again.

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
        self._kept: dict[tuple[str, frozenset[int]], Mapping[Source, ChunkChecksums]] = {}

    @property
    def n_chunks(self) -> int:
        """Number of distinct stored chunks whose checksums were computed."""
        return sum(c.offset.size for found in self._kept.values() for c in found.values())

    def of(self, base: Base) -> Mapping[int, WriteTable]:
        """Tables of the checksums of those parts that lack some.

        Sources that nothing shows any more are left alone: they may have changed, or be gone.
        """
        tables: dict[int, WriteTable] = {}
        parts = zip(base.root.snapshot.parts, base.group.parts, strict=True)
        for number, (entry, part) in enumerate(parts):
            checksums, unused = part.sources.checksums, frozenset(entry.unused)
            if checksums is not None and checksums.unchecked <= unused:
                continue
            found = self._found(part, unused)
            sources = enumerate(part.sources.sources)
            if known := {n: found[each] for n, each in sources if each in found}:
                tables[number] = partial(write_checksums, known=known, unchecked=entry.unused)
        return tables

    def _found(self, part: Part, unused: frozenset[int]) -> Mapping[Source, ChunkChecksums]:
        key = part.blocks.address, unused
        if key not in self._kept:
            ranges = _ranges_of(_manifests_of(part, unused))
            self._kept[key] = _checksums_of(ranges, self._storage_options, self._progress)
        return self._kept[key]


def _manifests_of(part: Part, unused: frozenset[int]) -> Iterator[ChunkManifest]:
    """All chunk rows of a part, but those of unused sources."""
    for start, stop in pairwise(part.chunks.table.row_group_starts.tolist()):
        rows = part.chunks.take(np.arange(start, stop))
        yield rows.take(np.flatnonzero(~np.isin(rows.source, list(unused)))) if unused else rows


type _Ranges = Mapping[Source, tuple[Int64Array, Int64Array]]
"""Offset and length of the chunks of each source, in the order in which they are there."""


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
    with SourcePool(storage_options) as pool:
        taken = in_threads(lambda batch: _checksums_taken(pool, *batch), batches, _CHECKSUM_THREADS)
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


def _checksums_taken(
    pool: SourcePool, source: Source, offset: Int64Array, length: Int64Array
) -> NDArray[np.uint32]:
    parts = pool.read_ranges(source, offset, length)
    return np.fromiter(map(crc32c_of, parts), np.uint32, len(parts))


# Statistics of the values of chunks

N_THREADS = 16
NUMBERS = "biuf"
"""Kinds of dtypes that are ordered as numbers."""


class ValueScan:
    """Reads chunks without statistics, each once, even if the commit is tried again.

    Values are those that xarray shows without decoding of times: unpacked by ``scale_factor`` and
    ``add_offset``, and missing where they are ``_FillValue`` or NaN.

    Parameters
    ----------
    arrays
        Paths of arrays; None for all. Those that hold no numbers are passed over.
    progress
        Called with the number of chunks read, and of all to read.
    """

    def __init__(
        self,
        arrays: Collection[str] | None,
        reader: Reader,
        n_threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._arrays = None if arrays is None else {path.strip("/") for path in arrays}
        self._reader = reader
        self._n_threads = n_threads or N_THREADS
        self._progress = progress
        self._kept: dict[str, ChunkStatistics] = {}

    def of(self, base: Base) -> Mapping[int, WriteTable]:
        """Tables of statistics of all chunk rows of those parts that have some that are new."""
        parts = {part.blocks.address: part for part in base.group.parts}
        known = {address: self._known(part) for address, part in parts.items()}
        wanted = [
            piece
            for path, array in self._chosen(base.group).items()
            for piece in _unknown(path, array, known)
        ]
        total, done = sum(len(listed) for _, listed in wanted), 0
        for path, listed in wanted:
            found = self._measured(path, listed)
            for address, rows, mine in _rows_by_part(listed):
                known[address].widen(rows, found.take(mine))
                self._kept[address] = known[address]
            done += len(listed)
            if self._progress is not None:
                self._progress(done, total)
        numbered = enumerate(parts)
        return {
            number: partial(write_statistics, statistics=self._kept[address])
            for number, address in numbered
            if address in self._kept
        }

    def _chosen(self, group: CatalogGroup) -> dict[str, VirtualArray]:
        arrays = from_files(group).all_arrays()
        if self._arrays is not None:
            check_names("the catalog", self._arrays, arrays, kind="array")
            arrays = {path: arrays[path] for path in self._arrays}
        return {path: each for path, each in arrays.items() if each.dtype.kind in NUMBERS}

    def _known(self, part: Part) -> ChunkStatistics:
        kept = self._kept.get(part.blocks.address)
        n_rows = part.chunks.table.n_rows
        if kept is not None:
            return kept
        if part.statistics is None:
            return ChunkStatistics.unknown(n_rows)
        return part.statistics.take(np.arange(n_rows))

    def _measured(self, path: str, listed: ListedChunks) -> ChunkStatistics:
        array, (starts, stops) = listed.listing.array, listed.bounds

        def measure(i: int) -> Measured:
            box = tuple(map(slice, starts[i].tolist(), stops[i].tolist()))
            return measured(path, self._reader.read(array, box, name=path), array)

        columns = zip(*in_threads(measure, range(len(listed)), self._n_threads), strict=True)
        return ChunkStatistics(*map(np.array, columns))


type Measured = tuple[int, float, float]
"""Number of valid elements, the least and the greatest of them."""


def measured(path: str, values: NDArray[Any], array: VirtualArray) -> Measured:
    """Statistics of elements, bounds rounded outward to float64."""
    shown = decoded_values(path.rpartition("/")[2], values, array, decode_times=False)
    if shown.dtype.kind not in NUMBERS:
        return -1, np.nan, np.nan
    valid = shown[~np.isnan(shown)] if shown.dtype.kind == "f" else shown.reshape(-1)
    if not valid.size:
        return 0, np.nan, np.nan
    return valid.size, _outward(valid.min(), -np.inf), _outward(valid.max(), np.inf)


def _outward(value: Any, direction: float) -> float:
    """A number as a float64 that is not nearer to the other numbers."""
    exact, rounded = value.item(), float(value)
    wrong = rounded > exact if direction < 0 else rounded < exact
    return float(np.nextafter(rounded, direction)) if wrong else rounded


def _unknown(
    path: str, array: VirtualArray, known: Mapping[str, ChunkStatistics]
) -> Iterator[tuple[str, ListedChunks]]:
    """The chunks of an array without statistics, in pieces."""
    for listed in ChunkListing(array).pieces(ROW_GROUP_ROWS):
        is_known = np.ones(len(listed), bool)
        for part, rows, mine in _rows_by_part(listed):
            is_known[mine] = known[part].is_known[rows]
        if not is_known.all():
            yield path, listed.take(~is_known)


def _rows_by_part(
    listed: ListedChunks,
) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.int64]]]:
    """By address of a part the rows of its chunk table, and which of the chunks they are."""
    for manifest, chunks, rows in listed.by_manifest():
        assert isinstance(manifest, ParquetManifest)
        yield manifest.part.blocks.address, manifest.table_rows(rows), chunks
