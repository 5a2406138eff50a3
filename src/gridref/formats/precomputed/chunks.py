"""Find the chunks of a scale that are a file each, named by the voxels that they hold.

``0-64_64-128_0-30`` has voxels 0 to 64 along x, 64 to 128 along y, and 0 to 30 along z. Files are
listed where the filesystem can list. Others, like web servers, are asked for each chunk, and
those that answer "not found" are absent. Some writers compress files and name them ``*.gz``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np

from gridref.errors import UnsupportedFeatureError
from gridref.formats.chunk_files import StoreFiles, check_chunk_files
from gridref.formats.precomputed.info import Scale
from gridref.limits import beyond, chunk_limit, limits
from gridref.model.grid import chunk_counts
from gridref.model.manifest import ChunkManifest, ChunkState, Source

_GZIP = ".gz"
_UNREAD = ("br", "zst", "zstd", "xz", "lzma", "bz2")


def chunk_files(files: StoreFiles, scale: Scale) -> tuple[ChunkManifest, bool]:
    """Find the files of all chunks.

    Returns
    -------
    tuple
        Their manifest, in C order of the grid, and whether any file is compressed; the filter mask
        then says which are not.

    Raises
    ------
    UnsupportedFeatureError
        If there are more chunks than the limits, or files in another compression than gzip.
    """
    counts = scale.grid_shape
    n_chunks = math.prod(counts)
    if n_chunks > limits().chunk_rows:
        raise UnsupportedFeatureError(beyond("chunk_rows", f"it has {n_chunks} chunks"))
    found = _found(files, scale) if n_chunks else {}
    if limit := chunk_limit(n_chunks, len(found)):
        what = f"it has {n_chunks} chunks; {len(found)} of them are stored"
        raise UnsupportedFeatureError(beyond(limit, what))
    row = np.fromiter(found, np.int64, len(found))
    held = list(found.values())
    is_plain = np.array([not name.endswith(_GZIP) for name, _ in held], bool)
    source, length, state, mask = (np.zeros(n_chunks, np.int64) for _ in range(4))
    source[row] = np.arange(len(held))
    length[row] = [each.size_bytes or 0 for _, each in held]
    state[row] = ChunkState.RANGE
    has_gzip = not bool(is_plain.all())
    mask[row] = is_plain & has_gzip
    manifest = ChunkManifest.from_columns(
        [each for _, each in held],
        source=source,
        offset=np.zeros(n_chunks, np.int64),
        length=length,
        state=state,
        filter_mask=mask,
    )
    return manifest, has_gzip


def _found(files: StoreFiles, scale: Scale) -> dict[int, tuple[str, Source]]:
    """Name and file of each chunk that is there, by its row."""
    listed = files.listed(scale.key)
    if listed is not None:
        return _rows_of(listed.items(), scale)
    check_chunk_files(math.prod(scale.grid_shape))
    names = list(_names(scale))
    found = files.named(scale.key, names)
    return _rows_of(
        (found or files.named(scale.key, [f"{name}{_GZIP}" for name in names])).items(), scale
    )


def _names(scale: Scale) -> Iterable[str]:
    """The names of all chunks, in C order of the grid."""
    axes = zip(scale.shape, scale.offset, scale.chunk_shape, strict=True)
    along = [
        [_span(number, *axis) for number in range(*chunk_counts(axis[:1], axis[2:]))]
        for axis in axes
    ]
    return (f"{x}_{y}_{z}" for z, y, x in itertools.product(*along))


def _span(number: int, extent: int, offset: int, length: int) -> str:
    """The voxels of a chunk along an axis."""
    start = number * length
    return f"{offset + start}-{offset + min(start + length, extent)}"


def _rows_of(files: Iterable[tuple[str, Source]], scale: Scale) -> dict[int, tuple[str, Source]]:
    """Sort files to chunks by their names; those of other names are no chunks."""
    found: dict[int, tuple[str, Source]] = {}
    unread: dict[int, str] = {}
    for name, source in files:
        stem, dot, suffix = name.partition(".")
        row = _row_of(stem, scale)
        if row is None:
            continue
        if not dot or (dot + suffix == _GZIP and row not in found):
            found[row] = name, source
        elif suffix in _UNREAD:
            unread[row] = name
    lost = [name for row, name in unread.items() if row not in found]
    if lost:  # not absent, so that it must not read as zero
        raise UnsupportedFeatureError(f"the compression of the chunk file {lost[0]!r} is not read")
    return found


def _row_of(name: str, scale: Scale) -> int | None:
    """The row of the chunk of a name; None if there is none.

    With chunks of 64 voxels from voxel 10 on, ``74-138`` is number (74 - 10) / 64 = 1.
    """
    row = 0
    spans = name.split("_")
    if len(spans) != 3:
        return None
    axes = zip(
        reversed(spans), scale.shape, scale.offset, scale.chunk_shape, scale.grid_shape, strict=True
    )
    for span, extent, offset, length, count in axes:
        first = span[: span.find("-", 1)]
        if not first.removeprefix("-").isdecimal():
            return None
        number = (int(first) - offset) // length
        if not 0 <= number < count or span != _span(number, extent, offset, length):
            return None
        row = row * count + number
    return row
