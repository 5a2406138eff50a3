"""What is done after each scan, whatever the format.

`require_byte_ranges` refuses servers that ignore byte ranges. `with_dimensions_apart` gives a
dimension that has several lengths several names.

Combining files compares their coordinates. `keep_coordinates` fetches the stored bytes of small
coordinates during the scan and keeps them, so that combining sends no further requests. Of local
files it keeps the labels of dimensions. `kept_elements` decodes what is kept of an array: a local
file need not be opened again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import GridrefError
from gridref.io import AtHand, ScanFile, current_context
from gridref.io.remote import RemoteFiles
from gridref.model.array import VirtualArray, VirtualGroup, dims_of
from gridref.model.conventions import referred_names
from gridref.model.encoding import EdgePolicy
from gridref.model.manifest import (
    ChunkManifest,
    ChunkState,
    KnownSources,
    Manifest,
    RunManifest,
    Source,
)
from gridref.model.scan_report import Fate, Finding

# Servers that ignore byte ranges, refused at the scan


def require_byte_ranges(
    group: VirtualGroup, file: ScanFile | None, storage_options: Mapping[str, Any] | None
) -> None:
    """Request one byte of a file from each HTTP server, if chunks are parts of files there.

    Parameters
    ----------
    group
        The result of the scan.
    file
        The scanned file. If its server sent ranges of it, the server is not asked again.
    storage_options
        fsspec options.

    Raises
    ------
    SourceUnavailableError
        If a server ignores byte ranges.
    """
    known = {""} if file is None or file.came_whole else {"", _server(file.source)}
    for manifest in chain.from_iterable(array.manifests for array in group.all_arrays().values()):
        for source in _partial_sources(manifest, known):
            if _server(source) not in known:
                known.add(_server(source))
                files = RemoteFiles(storage_options)
                files.fetch(source.url, [1], [2], policy=source.policy)


def _partial_sources(manifest: Manifest, known: Collection[str]) -> Sequence[Source]:
    """The files with chunks as parts of them, if any may be on a server that is not known yet."""
    if not isinstance(manifest, ChunkManifest):
        return manifest.sources if isinstance(manifest, KnownSources) else ()
    if all(_server(source) in known for source in manifest.sources):
        return ()
    sizes = np.array([source.size_bytes or 0 for source in manifest.sources])
    in_files = manifest.state == ChunkState.RANGE
    numbers, lengths = manifest.source[in_files], manifest.length[in_files]
    partial_ones = np.unique(numbers[lengths < sizes[numbers]])
    return [manifest.sources[number] for number in partial_ones.tolist()]


def _server(source: Source) -> str:
    """The beginning of an HTTP address; empty for others."""
    protocol, _, rest = source.url.partition("://")
    return f"{protocol}://{rest.partition('/')[0]}" if protocol in ("http", "https") else ""


# Dimensions of several lengths, under several names


def with_dimensions_apart(group: VirtualGroup, url: str) -> VirtualGroup:
    """Rename dimensions that have several lengths in a group, or the name of a scalar variable.

    The length of the variable with this name keeps the name, else the first length.
    The others are numbered: ``y_1``, ``y_2``. The report lists them.
    """
    if all(_is_clear(part.arrays) for _, part in group.walk()):
        return group
    findings: list[Finding] = []
    apart = _apart(group, "", url, findings)
    return apart.with_changes(report=replace(group.report, findings=(*group.report, *findings)))


def _apart(group: VirtualGroup, path: str, url: str, findings: list[Finding]) -> VirtualGroup:
    groups = {name: _apart(g, f"{path}/{name}", url, findings) for name, g in group.groups.items()}
    renamed = _renamed(group.arrays)
    if not renamed:
        return group.with_changes(groups=groups) if groups else group
    for (dim, length), name in renamed.items():
        scalar = dim in group.arrays and group.arrays[dim].ndim == 0
        why = "a scalar has its name" if scalar else "it has another length elsewhere"
        reason = f"named {name!r} where its length is {length}, because {why}"
        findings.append(Finding(f"{path}/{dim}", Fate.RENAMED, reason, url))
    arrays = {}
    for name, array in group.arrays.items():
        axes = zip(array.dims, array.shape, strict=True)
        arrays[name] = array.with_changes(dims=tuple(renamed.get(axis, axis[0]) for axis in axes))
    new = {name for (dim, _), name in renamed.items() if dim in group.unlimited_dims}
    used = dims_of(arrays.values())
    unlimited = (group.unlimited_dims | new) & used
    return group.with_changes(arrays=arrays, groups=groups, unlimited_dims=unlimited)


def _is_clear(arrays: Mapping[str, VirtualArray]) -> bool:
    """Whether each dimension has one length, and not the name of a scalar."""
    lengths: dict[str, int] = {}
    for array in arrays.values():
        for dim, length in zip(array.dims, array.shape, strict=True):
            if lengths.setdefault(dim, length) != length:
                return False
    return all(arrays[dim].ndim for dim in lengths if dim in arrays)


def _renamed(arrays: Mapping[str, VirtualArray]) -> dict[tuple[str, int], str]:
    """New names by name and length."""
    if _is_clear(arrays):
        return {}
    axes = {axis: None for a in arrays.values() for axis in zip(a.dims, a.shape, strict=True)}
    dims = {dim: None for dim, _ in axes}
    taken = arrays.keys() | dims.keys()
    renamed: dict[tuple[str, int], str] = {}
    for dim in dims:
        found = [length for name, length in axes if name == dim]
        named = arrays.get(dim)
        if named is None or (named.ndim > 0 and dim not in named.dims):
            kept = found[0]
        else:
            kept = dict(zip(named.dims, named.shape, strict=True)).get(dim, -1)
        free = (name for n in count(1) if (name := f"{dim}_{n}") not in taken)
        renamed |= {(dim, length): next(free) for length in found if length != kept}
    return renamed


# Coordinates, fetched together with the metadata

_RANGE = ChunkState.RANGE
_MOST_BYTES, _MOST_CHUNKS = 64 * 2**10, 16
"""Largest coordinate to fetch ahead."""
_MOST_RECORDS, _MOST_SPAN_BYTES = 1024, 256 * 2**10
"""The same where it is in records: all bytes from the first one to the last one are fetched."""


def keep_coordinates(group: VirtualGroup, file: ScanFile) -> None:
    """Keep the stored bytes of the coordinates of a file, if a reader will need them.

    Reading those of a remote file together takes one request, or none if they are in bytes already
    fetched. The coordinates of files beside it are then fetched with their metadata. If they cannot
    be read, the reader will report it.
    """
    at_hand = current_context().at_hand
    if at_hand is None:
        return
    if not file.is_remote:
        _keep_labels(group, file, at_hand)
        return
    wanted = [
        rows for _, part in group.walk() for array in _coordinates(part) for rows in _rows(array)
    ]
    offsets = [int(start) for rows in wanted for start in rows.offset]
    lengths = [int(n_bytes) for rows in wanted for n_bytes in rows.length]
    if offsets and all(rows.sources == (file.source,) for rows in wanted):
        with suppress(GridrefError):
            at_hand.keep(file.source, offsets, file.read_many(offsets, lengths))


def _keep_labels(group: VirtualGroup, file: ScanFile, at_hand: AtHand) -> None:
    """Keep the stored bytes of labels that are a single chunk of a local file."""
    for _, part in group.walk():
        for name, array in part.arrays.items():
            if not array.is_index(name) or len(array.manifests) != 1:
                continue
            rows = array.manifests[0]
            if not isinstance(rows, ChunkManifest) or rows.n_rows != 1 or rows.state[0] != _RANGE:
                continue
            offset, n_bytes = int(rows.offset[0]), int(rows.length[0])
            if rows.sources == (file.source,) and n_bytes <= _MOST_BYTES:
                with suppress(GridrefError):
                    at_hand.keep(file.source, [offset], file.read_many([offset], [n_bytes]))


def _coordinates(group: VirtualGroup) -> Iterator[VirtualArray]:
    referred = referred_names(group.arrays.values())
    for name, array in group.arrays.items():
        if array.is_index(name) or name in referred:
            yield array


def _rows(array: VirtualArray) -> Iterator[ChunkManifest]:
    """The stored chunks of a small array."""
    n_chunks = sum(manifest.n_rows for manifest in array.manifests)
    in_records = all(
        isinstance(each, RunManifest) and each.n_rows * each.stride <= _MOST_SPAN_BYTES
        for each in array.manifests
    )
    most = _MOST_RECORDS if in_records else _MOST_CHUNKS
    for manifest in array.manifests if n_chunks <= most else ():
        rows = manifest.take(np.arange(manifest.n_rows))
        rows = rows.take(np.flatnonzero(rows.state == ChunkState.RANGE))
        if rows.n_rows and rows.stored_bytes <= _MOST_BYTES:
            yield rows


def kept_elements(array: VirtualArray) -> NDArray[Any] | None:
    """The elements of an array along one dimension, if they are one chunk that a scan kept.

    None for all others, and for any error: a reader then reports it.
    """
    at_hand = current_context().at_hand
    if at_hand is None or array.ndim != 1 or not len(array.manifests) == array.n_blocks == 1:
        return None
    rows, blocks, encoding = array.manifests[0], array.blocks, array.encodings[0]
    if not isinstance(rows, ChunkManifest) or rows.n_rows != 1 or rows.state[0] != _RANGE:
        return None
    (source, *others), stored_size = rows.sources, int(blocks.stored_shape[0, 0])
    if others or source.chunk_checksums is not None or rows.filter_mask is not None:
        return None
    if encoding.unpacking is not None or encoding.dtype != array.dtype:
        return None
    if blocks.origin.any() or blocks.step[0, 0] != 1 or array.shape != (stored_size,):
        return None
    parts = at_hand.parts(source, [int(rows.offset[0])], [int(rows.length[0])])
    if parts is None:
        return None
    from gridref.codecs import decode_chunk

    is_cut = encoding.edge is EdgePolicy.TRUNCATED
    try:
        values = decode_chunk(parts[0], encoding, (stored_size,) if is_cut else None)
    except GridrefError:
        return None
    return values[:stored_size] if len(values) >= stored_size else None
