"""Show an array as Zarr v3: the native, portable and direct views.

`native` shows chunks as they are stored. `portable` shows chunks that are decoded on the way. In
the `direct` view, zarr-python in this process passes its selections to our reader
(`faces.zarr.direct`). `show` takes an array and `ViewOptions`, and returns an `ArrayView` with
grid, codecs and metadata.

All functions here depend on the model only. Nothing reads data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Literal

import numpy as np

from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.encoding import Codec, bytes_codec
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.shard import IndexLocation, ShardLayout, shard_axis
from gridref.model.zarr_metadata import (
    ArrayMetadata,
    attributes_to_json,
    data_type_to_json,
    is_struct,
    packed_dtype,
)
from gridref.options import check_choices, refuses_unknown
from gridref.serve.choosing import laid_out
from gridref.serve.grids import (
    MANY_CHUNKS,
    PACKAGE_CODECS,
    SHUFFLE_CODEC,
    TINY_CHUNK_BYTES,
    direct_codec,
    direct_grid,
    native_grid,
    one_encoding,
    portable_grid,
)
from gridref.typing import Int64Array

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
    DIRECT = "direct"
    """Selections are read by our own reader. It needs zarr-python with gridref installed. Strings
    of any length, scalars and empty arrays are portable, because zarr cannot read them in this
    way."""


@refuses_unknown
@dataclass(frozen=True)
class ViewOptions:
    """Options of a view.

    Attributes
    ----------
    view
        Which view.
    grid
        ``"rectilinear"``: the chunk grid of that name may be shown. ``"regular"``: arrays of uneven
        chunks are shown portable, on a regular grid. ``"auto"`` follows zarr-python's
        ``array.rectilinear_chunks`` if zarr-python is loaded, and else is regular.
    chunks
        Chunk lengths of the portable view by dimension name; dimensions not named follow the stored
        chunks. With chunk lengths, `View.AUTO` shows the array portable. In the direct view, these
        are the lengths of the pieces in which zarr and dask read.
    compressor
        ``"zstd"``, ``"gzip"`` or None: compressor of portable chunks.
    shards
        None shows no shards; ``"blocks"`` one a block; lengths by dimension name (dimensions not
        named follow the blocks); ``"auto"`` equal shards of about `SHARD_BYTES` decoded. An array
        whose edges do not divide by its chunks is shown without; `ArrayView.shard_reason` says why.
    index_location
        Position of the index in a shard.

    Raises
    ------
    InvalidRequestError
        For an unknown view, grid, compressor, kind of shards or place of their index, or a length
        below 1.
    """

    view: View = View.AUTO
    grid: Literal["auto", "regular", "rectilinear"] = "auto"
    chunks: Mapping[str, int] | None = None
    compressor: str | None = None
    shards: str | Mapping[str, int] | None = None
    index_location: IndexLocation = IndexLocation.END

    def __post_init__(self) -> None:
        check_choices(self)
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

    @property
    def rectilinear(self) -> bool:
        """Whether uneven chunk grids may be shown."""
        return self.grid == "rectilinear"


@dataclass(frozen=True, eq=False)
class ArrayView:
    """An array as a Zarr v3 array.

    Attributes
    ----------
    array
        What is shown.
    view
        `View.NATIVE`, `View.PORTABLE` or `View.DIRECT`.
    metadata
        Its ``zarr.json``.
    reason
        Why the native view was not taken; empty if it was, or was not wanted.
    shards
        How chunks are grouped into shards; None where they are not. The grid of `metadata` then is
        that of the shards.
    shard_reason
        Why there are no shards; empty where there are, or none were wanted.
    as_stored
        Whether chunks are sent as they are stored: all native ones, and portable ones of plain
        bytes on the grid of the stored chunks.
    """

    array: VirtualArray
    view: View
    metadata: ArrayMetadata
    reason: str = ""
    shards: ShardLayout | None = None
    shard_reason: str = ""
    as_stored: bool = False

    @property
    def chunk_grid(self) -> ChunkGrid:
        """Grid of the chunks; of the inner ones where there are shards."""
        return self.metadata.grid if self.shards is None else self.shards.chunk_grid

    @cached_property
    def chunk_codecs(self) -> tuple[Codec, ...]:
        """Codecs of the chunks as they are sent; of the inner ones where there are shards."""
        if self.view is View.DIRECT:
            return (_serial_codec(self.array),)
        if self.shards is None:
            return self.metadata.codecs
        (outer,) = self.metadata.codecs
        return tuple(Codec.from_json(codec) for codec in outer.configuration["codecs"])

    @property
    def why_needs_package(self) -> str:
        """Why only readers with another package decode the native chunks; empty where all do.

        `View.AUTO` and kerchunk references show such an array decoded.
        """
        for codec in self.chunk_codecs:
            if codec.name == SHUFFLE_CODEC:
                return "it is shuffled by parts of elements"
            if codec.name in PACKAGE_CODECS:
                package = PACKAGE_CODECS[codec.name]
                return f"zarr-python decodes {codec.name} with the package {package} only"
        return ""

    @cached_property
    def stored_chunks_below(self) -> int:
        """About the most stored chunks that one chunk touches."""
        stored = self.array.stored_chunk_shapes
        least = stored.min(axis=0).tolist() if len(stored) else [1] * self.array.ndim
        longest = [int(axis.run_lengths.max(initial=1)) for axis in self.chunk_grid.axes]
        return math.prod(-(-n // max(1, k)) for n, k in zip(longest, least, strict=True))

    def chunk_exists_at(self, coords: Sequence[int]) -> bool:
        """Whether the coords of a key (a chunk, or a shard) are inside the grid."""
        grid_shape = self.metadata.grid.grid_shape
        return len(coords) == len(grid_shape) and all(
            0 <= k < n for k, n in zip(coords, grid_shape, strict=True)
        )

    def locate(self, first: Sequence[int], counts: Sequence[int]) -> tuple[Int64Array, Int64Array]:
        """Where the chunks of a box of the native view are referenced.

        Parameters
        ----------
        first, counts
            Coords of the box's first chunk, and number of chunks along each axis. They must be
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
        stored = (
            table.origin[block, axis] // length[block, axis] + chunk
            for axis, chunk in enumerate(chunks)
        )
        row = table.manifest_row(block, stored)
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
    if options.view is View.DIRECT and array.size and array.ndim and array.dtype.kind != "T":
        return _direct(array, options)
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


def why_not_zarr(array: VirtualArray) -> str | None:
    """Why no view can show an array: Zarr has no type for its elements. None if one can."""
    try:
        data_type_to_json(packed_dtype(array.dtype))
    except NotRepresentableError as error:
        return error.reason
    return None


def _unsharded(array: VirtualArray, options: ViewOptions) -> ArrayView:
    if options.view is View.NATIVE:
        return _native(laid_out(array), rectilinear=options.rectilinear)
    if options.view is not View.AUTO:
        return _portable(array, options, "")
    if any(dim in array.dims for dim in options.chunks or ()):
        return _portable(array, options, "other chunks were requested")
    try:
        native = _native(laid_out(array), rectilinear=options.rectilinear)
    except NotRepresentableError as error:
        return _portable(array, options, error.reason)
    reason = native.why_needs_package
    if not reason and not options.shards and _is_tiny(native):
        reason = "its stored chunks are tiny: one request for each would cost too much"
    return _portable(array, options, reason) if reason else native


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
        grid = _auto_shards(view.metadata.grid, view.metadata.dtype.itemsize)
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
    encoding = one_encoding(array)
    grid = native_grid(array, encoding)
    if not rectilinear and not grid.is_regular:
        raise NotRepresentableError("chunks are uneven and the reader knows regular grids only")
    metadata = _metadata(array, grid, encoding.codecs)
    return ArrayView(array, View.NATIVE, metadata, as_stored=True)


def _portable(array: VirtualArray, options: ViewOptions, reason: str) -> ArrayView:
    chunks = options.chunks or {}
    grow = not chunks and not options.shards
    grid = portable_grid(array, chunks, rectilinear=options.rectilinear, grow=grow)
    codecs = [_serial_codec(array)]
    if options.compressor is not None:
        codecs.append(COMPRESSORS[options.compressor])
    metadata = _metadata(array, grid, tuple(codecs))
    as_stored = _is_stored_so(array, metadata)
    return ArrayView(array, View.PORTABLE, metadata, reason, as_stored=as_stored)


def _is_stored_so(array: VirtualArray, metadata: ArrayMetadata) -> bool:
    """Whether stored chunks are, byte for byte, what a view says that its chunks are."""
    try:
        stored = _native(array, rectilinear=True).metadata
    except NotRepresentableError:
        return False
    return stored.codecs == metadata.codecs and stored.grid == metadata.grid


def _direct(array: VirtualArray, options: ViewOptions) -> ArrayView:
    grid = direct_grid(array, options.chunks or {})
    return ArrayView(array, View.DIRECT, _metadata(array, grid, (direct_codec(array, grid),)))


def _serial_codec(array: VirtualArray) -> Codec:
    """The codec of plain elements, little-endian."""
    dtype = packed_dtype(array.dtype)
    return Codec("vlen-utf8") if dtype.kind == "T" else bytes_codec(dtype)


def _metadata(array: VirtualArray, grid: ChunkGrid, codecs: tuple[Codec, ...]) -> ArrayMetadata:
    dtype = packed_dtype(array.dtype)
    data_type_to_json(dtype)  # which refuses what Zarr has no type for
    fill = array.fill_value
    if dtype != array.dtype:
        fill = np.asarray(fill, array.dtype).astype(dtype)[()]
    attrs = attributes_to_json(array.attrs, array.dtype)
    if dtype.names is not None and not is_struct(dtype):
        attrs["numpy_descr"] = np.lib.format.dtype_to_descr(dtype)
    return ArrayMetadata(dtype, grid, codecs, fill, array.dims, attrs)
