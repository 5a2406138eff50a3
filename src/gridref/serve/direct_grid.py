"""The direct view's chunk grid of an array, and the codecs with which zarr writes copies.

Nothing is ever fetched by super-chunks: they are the pieces in which zarr and dask hand selections
over, so they are large, made of whole stored chunks, and cut where files end if equal ones can be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from gridref.model.array import MISSING_BLOCK, VirtualArray
from gridref.model.encoding import Codec, bytes_codec
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.zarr_metadata import packed_dtype
from gridref.serve.portable_grid import commonest

__all__ = [
    "DIRECT_CODEC",
    "SUPER_CHUNK_BYTES",
    "direct_codec",
    "direct_grid",
]


DIRECT_CODEC = "gridref.direct"
"""Name of the array -> bytes codec of the direct view."""
SUPER_CHUNK_BYTES = 128 * 2**20
"""Most decoded bytes of a super-chunk, unless one stored chunk is larger."""
SMALLEST_COPIED_BYTES = 64 * 2**10
"""Stored chunks below this size are not kept in copies: each costs zarr-python much time."""

COPIED_CODECS = frozenset(
    {
        "bytes",
        "transpose",
        "gzip",
        "zstd",
        "blosc",
        "crc32c",
        "numcodecs.zlib",
        "numcodecs.shuffle",
        "numcodecs.bz2",
        "numcodecs.lzma",
        "numcodecs.lz4",
        "numcodecs.fletcher32",
    }
)
"""Codecs that zarr-python can write, and that give back what was written."""
CHECKSUM_CODECS = frozenset({"crc32c", "numcodecs.fletcher32"})
PLAIN_CODECS = frozenset({"bytes", "transpose", "gridref.reverse"})
"""Codecs that compress nothing."""
DEFAULT_COMPRESSOR = Codec.of("zstd", level=0, checksum=False)
"""Shown for stored forms that zarr-python cannot write: what it takes by itself."""


def direct_grid(array: VirtualArray, chunks: Mapping[str, int]) -> ChunkGrid:
    """The super-chunks of an array, all of one shape.

    They grow from the stored chunk along the last axis first, to at most `SUPER_CHUNK_BYTES`.

    Parameters
    ----------
    chunks
        Lengths that were asked for, by dimension name.
    """
    asked = tuple(chunks.get(dim) for dim in array.dims)
    stored = tuple(_stored_length(array, axis) for axis in range(array.ndim))
    item_bytes = max(1, array.dtype.itemsize)
    return _super_chunks(array.grid, stored, asked, SUPER_CHUNK_BYTES // item_bytes)


@lru_cache(maxsize=256)  # the arrays of a cube have few grids
def _super_chunks(
    grid: ChunkGrid, stored: tuple[int, ...], asked: tuple[int | None, ...], most_elements: int
) -> ChunkGrid:
    extents = [max(1, extent) for extent in grid.shape]
    lengths = [
        min(extent, length or stored_length)
        for extent, length, stored_length in zip(extents, asked, stored, strict=True)
    ]
    for axis in reversed(range(grid.ndim)):
        if asked[axis] is not None:
            continue
        unit = lengths[axis]
        most = max(unit, most_elements // (math.prod(lengths) // unit))
        lengths[axis] = _grown(extents[axis], unit, _file_length(grid.axes[axis]), most)
    return ChunkGrid.regular(grid.shape, lengths)


def _stored_length(array: VirtualArray, axis: int) -> int:
    """The stored chunk length along an axis; the commonest, where blocks differ."""
    outer = array.grid.axes[axis]
    if not outer.n_chunks or not array.n_blocks:
        return 1
    lengths = {encoding.chunk_shape[axis] for encoding in array.encodings}
    if len(lengths) == 1:  # without a look at the blocks, which opening many arrays would load
        return _commonest_below(outer, lengths.pop())
    tables = array.axis_tables
    if tables is None:
        length = array.stored_chunk_shapes[:, axis]
        return commonest(length, np.ones_like(length))
    edges = outer.edges()
    return commonest(np.minimum(tables[axis].chunk_length, edges), edges)


@lru_cache(maxsize=256)
def _commonest_below(outer: GridAxis, length: int) -> int:
    edges = outer.edges()
    return commonest(np.minimum(edges, length), edges)


def _file_length(outer: GridAxis) -> int | None:
    """The length of the blocks along an axis, if all but the last are alike."""
    edges = outer.edges()
    if len(edges) < 2 or (edges[:-1] != edges[0]).any() or edges[-1] > edges[0]:
        return None
    return int(edges[0])


def _grown(extent: int, unit: int, file_length: int | None, most: int) -> int:
    """The length of equal pieces of an axis: at most `most`, of whole files or stored chunks."""
    if extent <= most:
        return extent
    if file_length is not None and file_length <= most:
        return _balanced(extent, file_length, most)
    if file_length is not None and file_length % unit == 0:
        n_units = file_length // unit
        for n_parts in range(2, min(n_units, 4 * file_length // most) + 1):
            if n_units % n_parts == 0 and file_length // n_parts <= most:
                return file_length // n_parts
    return _balanced(extent, unit, most)


def _balanced(extent: int, unit: int, most: int) -> int:
    """A multiple of `unit` up to `most` that cuts the extent into pieces of nearly one size."""
    n_units = -(-extent // unit)
    n_pieces = -(-n_units // max(1, most // unit))
    return -(-n_units // n_pieces) * unit


def direct_codec(array: VirtualArray, grid: ChunkGrid) -> Codec:
    """The codec of the direct view, which names chunks and codecs that copies are written by."""
    return _codec_of(_copied_chunk_shape(array, grid), _copied_codecs(array))


@lru_cache(maxsize=256)
def _codec_of(chunk_shape: tuple[int, ...], codecs: tuple[Codec, ...]) -> Codec:
    inner = [codec.to_json() for codec in codecs]
    return Codec.of(DIRECT_CODEC, chunk_shape=chunk_shape, codecs=inner)


def _copied_chunk_shape(array: VirtualArray, grid: ChunkGrid) -> tuple[int, ...]:
    """The shape of the inner chunks of copies: that of stored chunks, if not tiny."""
    stored = tuple(_stored_length(array, axis) for axis in range(array.ndim))
    if math.prod(stored) * array.dtype.itemsize >= SMALLEST_COPIED_BYTES:
        return stored
    return tuple(axis.uniform_length for axis in grid.axes)


def _commonest_encoding(array: VirtualArray) -> int:
    if len(array.encodings) == 1:
        return 0
    used = array.blocks.encoding[array.blocks.encoding != MISSING_BLOCK]
    return int(np.argmax(np.bincount(used))) if len(used) else 0


def _copied_codecs(array: VirtualArray) -> tuple[Codec, ...]:
    """The codecs by which copies are written.

    Those of the commonest stored form, if zarr-python can write it; else plain elements, compressed
    if the stored ones are.
    """
    dtype = packed_dtype(array.dtype)
    plain = (bytes_codec(dtype),)
    if not array.encodings:
        return plain
    encoding = array.encodings[_commonest_encoding(array)]
    names = [codec.name for codec in encoding.codecs]
    converted = encoding.dtype != dtype or encoding.unpacking is not None
    if not converted and COPIED_CODECS.issuperset(names):
        return _checksums_last(encoding.codecs)
    return plain if set(names) <= PLAIN_CODECS else (*plain, DEFAULT_COMPRESSOR)


def _checksums_last(codecs: tuple[Codec, ...]) -> tuple[Codec, ...]:
    """The same codecs, checksums behind all others.

    Files may take a checksum before shuffling; zarr-python cannot shuffle what it makes uneven.
    """
    return tuple(sorted(codecs, key=lambda codec: codec.name in CHECKSUM_CODECS))
