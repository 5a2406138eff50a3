"""Whether stored chunks can be shown untouched, and on which chunk grid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gridref.errors import NotRepresentableError
from gridref.model.array import MISSING_BLOCK, VirtualArray
from gridref.model.blocks import common_along
from gridref.model.encoding import EdgePolicy, Encoding
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.zarr_metadata import data_type_from_json, data_type_to_json
from gridref.typing import Int64Array

__all__ = ["SHUFFLE_CODEC", "has_uneven_shuffle", "native_grid", "one_encoding"]


READER_CODECS = frozenset(
    {"bytes", "transpose", "gzip", "zstd", "blosc", "crc32c", "vlen-utf8", "vlen-bytes"}
    | {
        f"numcodecs.{name}"
        for name in (
            *("adler32", "astype", "bitround", "blosc", "bz2", "crc32", "crc32c", "delta"),
            *("fixedscaleoffset", "fletcher32", "gzip", "jenkins_lookup3", "lz4", "lzma"),
            *("packbits", "quantize", "shuffle", "zlib", "zstd"),
        )
    }
)
"""Codecs that zarr-python has of itself: one that it lacks would make a whole group unreadable."""
SHUFFLE_CODEC = "gridref.shuffle"
"""HDF5's shuffle, which takes any number of bytes; known where gridref is installed."""


def one_encoding(array: VirtualArray) -> Encoding:
    """The encoding that all blocks share but for the chunk shape, in codecs that Zarr readers know.

    What is shuffled by parts of elements has `SHUFFLE_CODEC`.
    """
    used = np.unique(array.blocks.encoding)
    used = used[used != MISSING_BLOCK]
    shared = {
        replace(array.encodings[number], chunk_shape=(1,) * array.ndim) for number in used.tolist()
    }
    if len(shared) != 1:
        raise NotRepresentableError(
            "its blocks differ in encoding" if shared else "no file holds any of it"
        )
    encoding = array.encodings[int(used[0])]
    if array.has_filter_masks:
        raise NotRepresentableError("single chunks have filters switched off")
    if encoding.prefix:
        raise NotRepresentableError("bytes must be put before each chunk")
    if encoding.unpacking is not None or encoding.dtype != array.dtype:
        raise NotRepresentableError("stored values are converted")
    if (
        encoding.fill is not None
        and encoding.fill != np.asarray(array.fill_value, array.dtype).tobytes()
    ):
        raise NotRepresentableError("missing chunks hold another fill value than the array's")
    for codec in encoding.codecs:
        if codec.name not in READER_CODECS:
            raise NotRepresentableError(f"no Zarr reader knows the codec {codec.name}")
    if has_uneven_shuffle(encoding):
        encoding = _with_own_shuffle(encoding)
    if array.dtype.kind == "V" and data_type_from_json(data_type_to_json(array.dtype)) != (
        array.dtype
    ):
        raise NotRepresentableError(f"Zarr cannot express the data type {array.dtype}")
    return encoding


def has_uneven_shuffle(encoding: Encoding) -> bool:
    """Whether what is shuffled may not be a whole number of elements.

    HDF5 leaves the bytes behind the last whole element where they are; numcodecs gives up. It
    happens where a checksum is taken before shuffling, as netCDF-C writes fletcher32.
    """
    even = True
    for codec in encoding.codecs:
        if codec.name == "numcodecs.shuffle":
            if not even or encoding.dtype.itemsize % codec.configuration["elementsize"]:
                return True
        elif codec.name not in ("bytes", "transpose"):
            even = False  # of whatever size
    return False


def _with_own_shuffle(encoding: Encoding) -> Encoding:
    codecs = tuple(
        replace(codec, name=SHUFFLE_CODEC) if codec.name == "numcodecs.shuffle" else codec
        for codec in encoding.codecs
    )
    return replace(encoding, codecs=codecs)


def native_grid(array: VirtualArray, encoding: Encoding) -> ChunkGrid:
    """The stored chunks of all blocks as one grid that declares every chunk's decoded shape."""
    tables = array.axis_tables
    if tables is None:
        raise NotRepresentableError("blocks are cut differently")
    present = (array.blocks.encoding != MISSING_BLOCK).reshape(array.grid.grid_shape)
    axes = []
    for axis, (table, outer) in enumerate(zip(tables, array.grid.axes, strict=True)):
        if (table.step != 1).any():
            raise NotRepresentableError("a block is reversed, repeated or taken in steps")
        stored = common_along(
            array.blocks.stored_shape[:, axis].reshape(array.grid.grid_shape), present, axis
        )
        if stored is None and encoding.edge is EdgePolicy.TRUNCATED:
            raise NotRepresentableError("blocks are cut differently")
        axes.append(
            _native_axis(outer, table.chunk_length, table.origin, stored, encoding.edge, axis)
        )
    return ChunkGrid(tuple(axes))


def _native_axis(
    outer: GridAxis,
    length: Int64Array,
    origin: Int64Array,
    stored: Int64Array | None,
    edge: EdgePolicy,
    axis: int,
) -> GridAxis:
    extents = outer.edges()
    if (origin % length).any():
        raise NotRepresentableError(f"a block begins inside a stored chunk (dimension {axis})")
    n_chunks = -(-extents // length)
    data = extents - (n_chunks - 1) * length
    decoded = length
    if edge is EdgePolicy.TRUNCATED and stored is not None:
        held = stored - origin - (n_chunks - 1) * length
        # Where only missing blocks lie, nothing is stored and any length will do.
        decoded = np.minimum(length, np.where(held > 0, held, length))
    if (decoded[:-1] != data[:-1]).any():
        raise NotRepresentableError(
            f"a stored chunk inside the array overhangs its data (dimension {axis})"
        )
    return GridAxis.from_runs(
        np.stack([length, decoded], axis=1).reshape(-1),
        np.stack([n_chunks - 1, np.ones_like(n_chunks)], axis=1).reshape(-1),
        outer.extent,
    )
