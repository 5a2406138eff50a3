"""How an array is shown as Zarr v3: `native` (chunks as stored) or `portable` (decoded on the way).

Everything here is a function of the model; nothing reads data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.model.array import MISSING_BLOCK, VirtualArray, common_along
from gridref.model.encoding import Codec, EdgePolicy, Encoding, bytes_codec
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.zarr_metadata import (
    ArrayMetadata,
    attributes_to_json,
    data_type_from_json,
    data_type_to_json,
)

__all__ = ["ArrayView", "View", "ViewOptions", "block_chunks", "show"]

Int64Array = NDArray[np.int64]

READER_CODECS = frozenset(
    {"bytes", "transpose", "gzip", "zstd", "blosc", "crc32c", "vlen-utf8", "vlen-bytes", "packbits"}
)
"""Core and registered codec names; ``numcodecs.*`` come on top."""

COMPRESSORS: Mapping[str, Codec] = {
    "zstd": Codec.of("zstd", level=1, checksum=False),
    "gzip": Codec.of("gzip", level=5),
}
"""Compressors that a portable view can put on top."""


class View(StrEnum):
    """How chunks are served."""

    AUTO = "auto"
    """Native where that is representable, else portable, array by array."""
    NATIVE = "native"
    """Chunk bytes as stored, untouched."""
    PORTABLE = "portable"
    """Decoded on the way, as little-endian ``bytes``: any Zarr v3 reader can read it."""


@dataclass(frozen=True)
class ViewOptions:
    """What a user may ask of a view.

    Attributes
    ----------
    view
        Which view.
    rectilinear
        Whether the ``rectilinear`` chunk grid may be used. Where not, arrays of uneven chunks are
        shown portable on a regular grid.
    chunks
        Chunk lengths of the portable view by dimension name; dimensions not named follow the stored
        chunks. Asking for chunks makes an array portable under `View.AUTO`.
    compressor
        ``"zstd"``, ``"gzip"`` or None: compressor of portable chunks.
    """

    view: View = View.AUTO
    rectilinear: bool = False
    chunks: Mapping[str, int] | None = None
    compressor: str | None = None

    def __post_init__(self) -> None:
        if self.compressor is not None and self.compressor not in COMPRESSORS:
            raise InvalidRequestError(
                f"compressor must be one of {sorted(COMPRESSORS)} or None, got {self.compressor!r}"
            )


@dataclass(frozen=True, eq=False)
class ArrayView:
    """An array as a Zarr v3 array.

    Attributes
    ----------
    array
        What is shown.
    view
        `View.NATIVE` or `View.PORTABLE`.
    metadata
        Its ``zarr.json``.
    reason
        Why the native view was not taken; empty where it was, or was not wanted.
    """

    array: VirtualArray
    view: View
    metadata: ArrayMetadata
    reason: str = ""

    def chunk_exists_at(self, coords: Sequence[int]) -> bool:
        """Whether chunk coords lie inside the grid."""
        grid_shape = self.metadata.grid.grid_shape
        return len(coords) == len(grid_shape) and all(
            0 <= k < n for k, n in zip(coords, grid_shape, strict=True)
        )

    def region(self, coords: Sequence[int]) -> tuple[slice, ...]:
        """The part of the array that a chunk holds."""
        grid = self.metadata.grid
        return tuple(
            slice(start, start + length)
            for start, length in zip(grid.start(coords), grid.data_shape(coords), strict=True)
        )

    def locate(self, coords: Sequence[int]) -> tuple[int, int]:
        """Block number and manifest row of a chunk of the native view; the row is -1 if missing."""
        blocks = self.array.blocks
        places = [
            (int(np.searchsorted(stops, k, side="right")), k)
            for stops, k in zip(self._chunk_stops, coords, strict=True)
        ]
        block = 0
        for (at, _), n_blocks in zip(places, self.array.grid.grid_shape, strict=True):
            block = block * n_blocks + at
        if blocks.encoding[block] == MISSING_BLOCK:
            return block, -1
        row = int(blocks.first_row[block])
        chunk_shape = self.array.encodings[int(blocks.encoding[block])].chunk_shape
        for axis, (at, k) in enumerate(places):
            before = int(self._chunk_stops[axis][at - 1]) if at else 0
            first = int(blocks.origin[block, axis]) // chunk_shape[axis]
            row += (first + k - before) * int(blocks.row_stride[block, axis])
        return block, row

    @cached_property
    def _chunk_stops(self) -> tuple[Int64Array, ...]:
        """Per axis, number of chunks up to the end of every block."""
        grid = self.metadata.grid
        stops = []
        for axis, chunks in zip(self.array.grid.axes, grid.axes, strict=True):
            ends = np.cumsum(axis.edges())
            stops.append(chunks.locate(ends - 1) + 1 if len(ends) else ends)
        return tuple(stops)


def show(array: VirtualArray, options: ViewOptions | None = None) -> ArrayView:
    """Show an array as Zarr v3.

    Raises
    ------
    NotRepresentableError
        If the native view is asked for and cannot express the array.
    """
    options = options or ViewOptions()
    reason = ""
    if options.view is not View.PORTABLE:
        wanted = options.chunks and any(dim in options.chunks for dim in array.dims)
        if wanted and options.view is View.AUTO:
            reason = "other chunks were asked for"
        else:
            try:
                return _native(array, rectilinear=options.rectilinear)
            except NotRepresentableError as error:
                if options.view is View.NATIVE:
                    raise
                reason = error.reason
    return _portable(array, options, reason)


def _native(array: VirtualArray, *, rectilinear: bool) -> ArrayView:
    encoding = _one_encoding(array)
    grid = _native_grid(array, encoding)
    if not rectilinear and not grid.is_regular:
        raise NotRepresentableError("chunks are uneven and the reader knows regular grids only")
    return ArrayView(array, View.NATIVE, _metadata(array, grid, encoding.codecs))


def _one_encoding(array: VirtualArray) -> Encoding:
    """The encoding that all blocks share, if a Zarr reader can apply it."""
    used = np.unique(array.blocks.encoding)
    used = used[used != MISSING_BLOCK]
    if len(used) != 1:
        raise NotRepresentableError(
            "its blocks differ in encoding" if len(used) else "no file holds any of it"
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
        if codec.name not in READER_CODECS and not codec.name.startswith("numcodecs."):
            raise NotRepresentableError(f"no Zarr reader knows the codec {codec.name}")
    if array.dtype.kind == "V" and data_type_from_json(data_type_to_json(array.dtype)) != (
        array.dtype
    ):
        raise NotRepresentableError(f"Zarr cannot express the data type {array.dtype}")
    return encoding


def _native_grid(array: VirtualArray, encoding: Encoding) -> ChunkGrid:
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
    if not len(extents):
        return GridAxis.uniform(0, int(length[0]) if len(length) else 1)
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


def _portable(array: VirtualArray, options: ViewOptions, reason: str) -> ArrayView:
    chunks = options.chunks or {}
    axes = []
    for axis, (dim, outer) in enumerate(zip(array.dims, array.grid.axes, strict=True)):
        if dim in chunks:
            axes.append(GridAxis.uniform(outer.extent, min(chunks[dim], max(1, outer.extent))))
        else:
            axes.append(_portable_axis(array, axis, rectilinear=options.rectilinear))
    codecs = [Codec("vlen-utf8") if array.dtype.kind == "T" else bytes_codec(array.dtype)]
    if options.compressor is not None:
        codecs.append(COMPRESSORS[options.compressor])
    grid = ChunkGrid(tuple(axes))
    return ArrayView(array, View.PORTABLE, _metadata(array, grid, tuple(codecs)), reason)


def _portable_axis(array: VirtualArray, axis: int, *, rectilinear: bool) -> GridAxis:
    """Chunks that follow the stored ones if they can, else equal ones of the commonest length."""
    outer = array.grid.axes[axis]
    extents = outer.edges()
    tables = array.axis_tables
    if not len(extents) or not array.n_blocks:
        return GridAxis.uniform(outer.extent, max(1, outer.extent))
    if tables is None:
        length = array.stored_chunk_shapes[:, axis]
        return GridAxis.uniform(outer.extent, _commonest(length, np.ones_like(length)))
    table = tables[axis]
    stride = np.maximum(np.abs(table.step), 1)
    length = np.minimum(np.maximum(table.chunk_length // stride, 1), extents)
    aligned = not (table.origin % table.chunk_length).any() and not (table.step != 1).any()
    if aligned:
        n_chunks = -(-extents // length)
        rest = extents - (n_chunks - 1) * length
        rest[-1] = length[-1]  # the last chunk may overhang: regular, if the others are
        runs = np.stack([length, rest], axis=1).reshape(-1)
        counts = np.stack([n_chunks - 1, np.ones_like(n_chunks)], axis=1).reshape(-1)
        chunks = GridAxis.from_runs(runs, counts, outer.extent)
        if chunks.is_uniform or rectilinear:
            return chunks
    return GridAxis.uniform(outer.extent, _commonest(length, extents))


def block_chunks(array: VirtualArray, max_bytes: int) -> tuple[tuple[int, ...], ...]:
    """Chunks for lazy computation: the blocks, cut along stored chunks where they are too large.

    Returns
    -------
    tuple of tuple of int
        Chunk lengths along each axis, as dask writes them.
    """
    chunks = [axis.edges() for axis in array.grid.axes]
    for axis in range(array.ndim):
        largest = [max(lengths.tolist(), default=0) for lengths in chunks]
        too_large = math.prod(largest) * array.dtype.itemsize / max_bytes
        if too_large <= 1:
            break
        stored = array.stored_chunk_shapes[:, axis]
        unit = int(stored.max()) if len(stored) else 1
        longest = max(unit, int(largest[axis] / too_large) // unit * unit)
        chunks[axis] = _cut(chunks[axis], longest)
    return tuple(tuple(lengths.tolist()) for lengths in chunks)


def _cut(lengths: Int64Array, longest: int) -> Int64Array:
    n_parts = -(-lengths // longest)
    parts = np.full(int(n_parts.sum()), longest, np.int64)
    parts[np.cumsum(n_parts) - 1] = lengths - (n_parts - 1) * longest
    return parts


def _commonest(lengths: Int64Array, weights: Int64Array) -> int:
    values, places = np.unique(lengths, return_inverse=True)
    return int(values[np.argmax(np.bincount(places, weights=weights))])


def _metadata(array: VirtualArray, grid: ChunkGrid, codecs: tuple[Codec, ...]) -> ArrayMetadata:
    return ArrayMetadata(
        array.dtype,
        grid,
        codecs,
        array.fill_value,
        array.dims,
        attributes_to_json(array.attrs, array.dtype),
    )
