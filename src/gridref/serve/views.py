"""How an array is shown as Zarr v3: `native` (chunks as stored) or `portable` (decoded on the way).

Everything here is a function of the model; nothing reads data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.model.array import MISSING_BLOCK, VirtualArray, common_along
from gridref.model.encoding import Codec, EdgePolicy, Encoding, bytes_codec
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.shard import IndexLocation, ShardLayout, shard_axis
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

TINY_CHUNK_BYTES = 8 * 2**10
"""Below this size a chunk costs more to ask for than to carry."""
MANY_CHUNKS = 32
"""Fewer tiny chunks than this do no harm."""
GROWN_CHUNK_BYTES = 2**20
"""Size up to which the portable view puts tiny chunks together."""

COMPRESSORS: Mapping[str, Codec] = {
    "zstd": Codec.of("zstd", level=1, checksum=False),
    "gzip": Codec.of("gzip", level=5),
}
"""Compressors that a portable view can put on top."""


SHARD_BYTES = 64 * 2**20
"""Decoded size that shards of ``"auto"`` come near."""
MAX_AUTO_CHUNKS = 16_384
"""Most inner chunks in a shard of ``"auto"``: an index of 256 KiB."""


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
    shards
        None shows no shards; ``"blocks"`` one a block; lengths by dimension name (dimensions not
        named follow the blocks); ``"auto"`` equal shards of about `SHARD_BYTES` decoded. An array
        whose edges do not divide by its chunks is shown without; `ArrayView.shard_reason` says why.
    index_location
        Where in a shard its index lies.

    Raises
    ------
    InvalidRequestError
        For an unknown compressor or kind of shards, or a length below 1.
    """

    view: View = View.AUTO
    rectilinear: bool = False
    chunks: Mapping[str, int] | None = None
    compressor: str | None = None
    shards: str | Mapping[str, int] | None = None
    index_location: IndexLocation = IndexLocation.END

    def __post_init__(self) -> None:
        if isinstance(self.shards, str) and self.shards not in ("blocks", "auto"):
            raise InvalidRequestError(
                'shards must be "blocks", "auto", lengths by dimension or None,'
                f" got {self.shards!r}"
            )
        for name in ("chunks", "shards"):
            lengths = getattr(self, name)
            for dim, length in lengths.items() if isinstance(lengths, Mapping) else ():
                if length < 1:
                    raise InvalidRequestError(
                        f"length of {name} must be >= 1, got {length} (dimension {dim!r})"
                    )
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
    shards
        How chunks are grouped into shards; None where they are not. The grid of `metadata` then is
        that of the shards.
    shard_reason
        Why there are no shards; empty where there are, or none were wanted.
    """

    array: VirtualArray
    view: View
    metadata: ArrayMetadata
    reason: str = ""
    shards: ShardLayout | None = None
    shard_reason: str = ""

    @property
    def chunk_grid(self) -> ChunkGrid:
        """Grid of the chunks; of the inner ones where there are shards."""
        return self.metadata.grid if self.shards is None else self.shards.chunk_grid

    @cached_property
    def chunk_codecs(self) -> tuple[Codec, ...]:
        """Codecs of the chunks; of the inner ones where there are shards."""
        if self.shards is None:
            return self.metadata.codecs
        (outer,) = self.metadata.codecs
        return tuple(Codec.from_json(entry) for entry in outer.configuration["codecs"])

    def chunk_exists_at(self, coords: Sequence[int]) -> bool:
        """Whether the coords of a key (a chunk, or a shard) lie inside the grid."""
        grid_shape = self.metadata.grid.grid_shape
        return len(coords) == len(grid_shape) and all(
            0 <= k < n for k, n in zip(coords, grid_shape, strict=True)
        )

    def region(self, coords: Sequence[int]) -> tuple[slice, ...]:
        """The part of the array that a key (a chunk, or a shard) holds."""
        grid = self.metadata.grid
        return tuple(
            slice(start, start + length)
            for start, length in zip(grid.start(coords), grid.data_shape(coords), strict=True)
        )

    def locate(self, first: Sequence[int], counts: Sequence[int]) -> tuple[Int64Array, Int64Array]:
        """Where the chunks of a box of the native view are referenced.

        Parameters
        ----------
        first, counts
            Coords of the box's first chunk, and number of chunks along each axis. They must lie
            inside the grid.

        Returns
        -------
        tuple
            Block number and manifest row of each chunk in C order, int64; the row is -1 in a block
            that no file holds.
        """
        table = self.array.blocks
        block = np.zeros((1,) * len(counts), np.int64)
        chunks = []
        for axis, (low, count) in enumerate(zip(first, counts, strict=True)):
            stops = self._chunk_stops[axis]
            chunk = np.arange(low, low + count)
            at = np.searchsorted(stops, chunk, side="right")
            before = np.concatenate([np.zeros(1, np.int64), stops])[at]
            shape = [-1 if other == axis else 1 for other in range(len(counts))]
            block = block * self.array.grid.grid_shape[axis] + at.reshape(shape)
            chunks.append((chunk - before).reshape(shape))
        length = self.array.stored_chunk_shapes
        row = table.first_row[block]
        for axis, chunk in enumerate(chunks):
            origin = table.origin[block, axis] // length[block, axis]
            row = row + (origin + chunk) * table.row_stride[block, axis]
        row = np.where(table.encoding[block] == MISSING_BLOCK, -1, row)
        return np.broadcast_to(block, row.shape).reshape(-1), row.reshape(-1)

    @cached_property
    def _chunk_stops(self) -> tuple[Int64Array, ...]:
        """Per axis, number of chunks up to the end of every block."""
        grid = self.chunk_grid
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
    view = _unsharded(array, options)
    if options.shards is None:
        return view
    try:
        shards = ShardLayout(
            _shard_grid(view, options), _inner_chunk_shape(view), options.index_location
        )
    except NotRepresentableError as error:
        return replace(view, shard_reason=error.reason)
    codecs = (shards.codec(view.metadata.codecs),)
    metadata = replace(view.metadata, grid=shards.grid, codecs=codecs)
    return replace(view, metadata=metadata, shards=shards)


def _unsharded(array: VirtualArray, options: ViewOptions) -> ArrayView:
    reason = ""
    if options.view is not View.PORTABLE:
        wanted = options.chunks and any(dim in options.chunks for dim in array.dims)
        if wanted and options.view is View.AUTO:
            reason = "other chunks were asked for"
        else:
            try:
                native = _native(array, rectilinear=options.rectilinear)
                if options.view is View.NATIVE or options.shards or not _is_tiny(native):
                    return native
                reason = "its stored chunks are tiny: one request for each would cost too much"
            except NotRepresentableError as error:
                if options.view is View.NATIVE:
                    raise
                reason = error.reason
    return _portable(array, options, reason)


def _is_tiny(view: ArrayView) -> bool:
    grid = view.metadata.grid
    chunk_bytes = view.array.nbytes / max(1, grid.n_chunks)
    return grid.n_chunks >= MANY_CHUNKS and chunk_bytes < TINY_CHUNK_BYTES


def _inner_chunk_shape(view: ArrayView) -> tuple[int, ...]:
    """The chunk shape that all shards share."""
    grid = view.metadata.grid
    if not grid.ndim:
        raise NotRepresentableError("a scalar is one chunk")
    if not grid.is_regular:
        raise NotRepresentableError("its chunks are uneven; those inside of a shard must be equal")
    plain = [codec.name for codec in view.metadata.codecs] == ["bytes"]
    if view.view is View.PORTABLE and not plain:
        raise NotRepresentableError(
            "encoded sizes are not known before encoding, and a shard's index needs them"
        )
    return tuple(axis.uniform_length for axis in grid.axes)


def _shard_grid(view: ArrayView, options: ViewOptions) -> ChunkGrid:
    chunk_shape = _inner_chunk_shape(view)
    if options.shards == "auto":
        grid = _auto_shards(view.metadata.grid, view.array.dtype.itemsize)
    else:
        asked = options.shards if isinstance(options.shards, Mapping) else {}
        grid = ChunkGrid(
            tuple(
                _asked_shards(dim, outer, length, asked)
                for dim, outer, length in zip(
                    view.array.dims, view.array.grid.axes, chunk_shape, strict=True
                )
            )
        )
    if not grid.is_regular and not options.rectilinear:
        raise NotRepresentableError("shards are uneven and the reader knows regular grids only")
    return grid


def _asked_shards(
    dim: str, outer: GridAxis, chunk_length: int, asked: Mapping[str, int]
) -> GridAxis:
    try:
        if dim not in asked:
            return shard_axis(outer.extent, chunk_length, outer.edges())
        length = asked[dim]
        if length % chunk_length:
            raise NotRepresentableError(
                f"a shard of {length} is not divisible by the chunk length {chunk_length}"
            )
        return GridAxis.uniform(outer.extent, length)
    except NotRepresentableError as error:
        raise NotRepresentableError(f"{error.reason} (dimension {dim!r})") from None


def _auto_shards(chunks: ChunkGrid, item_bytes: int) -> ChunkGrid:
    """Equal shards of whole chunks near `SHARD_BYTES`, growing from the last axis."""
    lengths = [axis.uniform_length for axis in chunks.axes]
    wanted = SHARD_BYTES // max(1, math.prod(lengths) * item_bytes)
    left = max(1, min(wanted, MAX_AUTO_CHUNKS))
    for axis in reversed(range(chunks.ndim)):
        n_chunks = min(left, max(1, chunks.axes[axis].n_chunks))
        lengths[axis] *= n_chunks
        left //= n_chunks
    return ChunkGrid.regular(chunks.shape, lengths)


def _native(array: VirtualArray, *, rectilinear: bool) -> ArrayView:
    encoding = _one_encoding(array)
    grid = _native_grid(array, encoding)
    if not rectilinear and not grid.is_regular:
        raise NotRepresentableError("chunks are uneven and the reader knows regular grids only")
    return ArrayView(array, View.NATIVE, _metadata(array, grid, encoding.codecs))


def _one_encoding(array: VirtualArray) -> Encoding:
    """The encoding that all blocks share but for the chunk shape, if a Zarr reader can apply it."""
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
    if not chunks and not options.shards:
        axes = _grown(axes, array.dtype.itemsize)
    codecs = [Codec("vlen-utf8") if array.dtype.kind == "T" else bytes_codec(array.dtype)]
    if options.compressor is not None:
        codecs.append(COMPRESSORS[options.compressor])
    grid = ChunkGrid(tuple(axes))
    return ArrayView(array, View.PORTABLE, _metadata(array, grid, tuple(codecs)), reason)


def _grown(axes: Sequence[GridAxis], item_bytes: int) -> list[GridAxis]:
    """Several tiny chunks together, the last axis first; larger chunks stay as they are."""
    lengths = [_commonest(axis.run_lengths, axis.run_counts) for axis in axes]
    chunk_bytes = math.prod(lengths) * max(1, item_bytes)
    if chunk_bytes >= TINY_CHUNK_BYTES:
        return list(axes)
    left = GROWN_CHUNK_BYTES // chunk_bytes
    grown = list(axes)
    for place in reversed(range(len(axes))):
        factor = min(left, max(1, axes[place].n_chunks))
        if factor > 1:
            grown[place] = GridAxis.uniform(axes[place].extent, lengths[place] * factor)
        left //= factor
    return grown


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
