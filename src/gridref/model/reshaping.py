"""Axes of virtual arrays: added, dropped, permuted and repeated.

The stored chunks stay as they are; only their encodings change. A permutation is a ``transpose``
codec at the head of the chain (Zarr v3 core). If a chain's result depends on the shape of its
chunks (image codecs, predictors), an added axis is a ``reshape`` codec there (zarr-extensions). If
an axis is dropped whose stored chunks are longer than 1, a ``gridref.select`` codec decodes to one
index along that axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError, number_of
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK, BlockTable
from gridref.model.encoding import Codec, Encoding, transpose_codec
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.typing import Int64Array

SHAPE_FREE = frozenset(
    {
        "bytes",
        "vlen-utf8",
        "vlen-bytes",
        "gzip",
        "zstd",
        "blosc",
        "crc32c",
        "numcodecs.zlib",
        "numcodecs.gzip",
        "numcodecs.zstd",
        "numcodecs.blosc",
        "numcodecs.lz4",
        "numcodecs.bz2",
        "numcodecs.lzma",
        "numcodecs.shuffle",
        "numcodecs.fletcher32",
        "transpose",
        "gridref.renumber",
        "gridref.jpeg2000",
        "gridref.hdf4_rle",
        "gridref.hdf4_nbit",
        "gridref.hdf4_skphuff",
        "gridref.hdf4_szip",
    }
)
"""Codecs that depend only on the number of elements: axes of length 1 do not matter to them."""


def transpose(array: VirtualArray, order: Sequence[int]) -> VirtualArray:
    """Permute the axes: axis ``i`` of the result is axis ``order[i]`` of the array.

    Raises
    ------
    InvalidRequestError
        If `order` is not a permutation of the axes.
    """
    order = tuple(axis + array.ndim if axis < 0 else axis for axis in order)
    if sorted(order) != list(range(array.ndim)):
        raise InvalidRequestError(
            f"{order} does not permute {number_of(array.ndim, 'axis', 'axes')}"
        )
    if order == tuple(range(array.ndim)):
        return array
    rows = np.arange(array.n_blocks).reshape(array.grid.grid_shape).transpose(order).reshape(-1)
    taken = array.blocks.take(rows)
    axes = list(order)
    return array.with_changes(
        grid=ChunkGrid(tuple(array.grid.axes[axis] for axis in order)),
        dims=tuple(array.dims[axis] for axis in order),
        encodings=tuple(_transposed(encoding, order) for encoding in array.encodings),
        blocks=replace(
            taken,
            row_stride=taken.row_stride[:, axes],
            stored_shape=taken.stored_shape[:, axes],
            origin=taken.origin[:, axes],
            step=taken.step[:, axes],
        ),
    )


def _transposed(encoding: Encoding, order: tuple[int, ...]) -> Encoding:
    head, rest = _split_transpose(encoding)
    position_of = {axis: position for position, axis in enumerate(order)}
    stored = tuple(position_of[axis] for axis in head)
    return replace(
        encoding,
        chunk_shape=tuple(encoding.chunk_shape[axis] for axis in order),
        codecs=_with_transpose(stored, rest),
    )


def _split_transpose(encoding: Encoding) -> tuple[tuple[int, ...], tuple[Codec, ...]]:
    """The permutation at the head of the chain (the identity if there is none), and the rest."""
    codecs = encoding.codecs
    if codecs and codecs[0].name == "transpose":
        return tuple(codecs[0].configuration["order"]), codecs[1:]
    return tuple(range(encoding.ndim)), codecs


def _with_transpose(stored: tuple[int, ...], rest: tuple[Codec, ...]) -> tuple[Codec, ...]:
    return rest if stored == tuple(range(len(stored))) else (transpose_codec(stored), *rest)


def expand_dims(array: VirtualArray, axis: int, dim: str) -> VirtualArray:
    """Insert an axis of extent 1.

    Raises
    ------
    InvalidRequestError
        If the axis is out of range, or the array has the dimension already.
    """
    if not 0 <= axis <= array.ndim:
        raise InvalidRequestError(f"new axis {axis} for an array of rank {array.ndim}")
    if dim in array.dims:
        raise InvalidRequestError(f"there is a dimension {dim!r} already")
    expanded = _expanded_block if array.n_blocks == 1 else _expanded
    grid, blocks = expanded(array.grid, array.blocks, axis)
    return array.with_changes(
        grid=grid,
        dims=(*array.dims[:axis], dim, *array.dims[axis:]),
        encodings=tuple([expanded_encoding(encoding, axis) for encoding in array.encodings]),
        blocks=blocks,
    )


def _expanded(grid: ChunkGrid, blocks: BlockTable, axis: int) -> tuple[ChunkGrid, BlockTable]:
    present = (blocks.encoding != MISSING_BLOCK).astype(np.int64)
    return ChunkGrid((*grid.axes[:axis], GridAxis.uniform(1, 1), *grid.axes[axis:])), replace(
        blocks,
        row_stride=_with_column(blocks.row_stride, axis, 0),
        stored_shape=_with_column(blocks.stored_shape, axis, present),
        origin=_with_column(blocks.origin, axis, 0),
        step=_with_column(blocks.step, axis, 1),
    )


@lru_cache(maxsize=256)
def _expanded_block(grid: ChunkGrid, blocks: BlockTable, axis: int) -> tuple[ChunkGrid, BlockTable]:
    """The same for one block; similar files that shared its table share the result, too."""
    wide, table = _expanded(grid, blocks, axis)
    for column in vars(table).values():
        column.flags.writeable = False
    return wide, table


def _with_column(table: Int64Array, axis: int, values: Int64Array | int) -> Int64Array:
    """`numpy.insert` of a column, which takes ten times as long for the few rows of a file."""
    wide = np.empty((len(table), table.shape[1] + 1), table.dtype)
    wide[:, :axis], wide[:, axis], wide[:, axis + 1 :] = table[:, :axis], values, table[:, axis:]
    return wide


@lru_cache(maxsize=4096)
def expanded_encoding(encoding: Encoding, axis: int) -> Encoding:
    """The encoding with a new axis of chunk length 1."""
    shape = encoding.chunk_shape
    if _is_shape_free(encoding):
        head, rest = _split_transpose(encoding)
        stored = tuple(old + (old >= axis) for old in head)
        # The position of an axis of length 1 among the stored axes does not matter to the bytes.
        at = axis if stored == tuple(sorted(stored)) else 0
        codecs = _with_transpose((*stored[:at], axis, *stored[at:]), rest)
    else:
        codecs = (_merging_reshape(axis, len(shape) + 1), *encoding.codecs)
    return replace(encoding, chunk_shape=(*shape[:axis], 1, *shape[axis:]), codecs=codecs)


def _is_shape_free(encoding: Encoding) -> bool:
    array_to_array, _, _ = encoding.split_codecs
    n_transposes = sum(codec.name == "transpose" for codec in array_to_array)
    at_head = n_transposes == 0 or (n_transposes == 1 and encoding.codecs[0].name == "transpose")
    return at_head and all(codec.name in SHAPE_FREE for codec in encoding.codecs)


def _merging_reshape(axis: int, ndim: int) -> Codec:
    """A codec whose encoded form lacks an axis of length 1: it is merged into a neighbour."""
    groups = [[other] for other in range(ndim) if other != axis]
    if not groups:
        return Codec.of("reshape", shape=[])
    neighbour = min(axis, len(groups) - 1)
    groups[neighbour] = sorted([*groups[neighbour], axis])
    return Codec.of("reshape", shape=groups)


def squeeze(array: VirtualArray, axes: Sequence[int]) -> VirtualArray:
    """Drop axes of extent 1.

    Raises
    ------
    InvalidRequestError
        If an axis is longer.
    """
    for axis in sorted({axis % array.ndim for axis in axes}, reverse=True):
        if array.shape[axis] != 1:
            raise InvalidRequestError(
                f"cannot drop dimension {array.dims[axis]!r} of length {array.shape[axis]}"
            )
        array = _drop_axis(array, axis)
    return array


def _drop_axis(array: VirtualArray, axis: int) -> VirtualArray:
    blocks = array.blocks
    present = blocks.encoding != MISSING_BLOCK
    length = array.stored_chunk_shapes[:, axis]
    chunk = blocks.origin[:, axis] // length
    index = blocks.origin[:, axis] - chunk * length
    codec_length = _decoded_lengths(array, axis, chunk)
    encodings, encoding = _reencode(array, [index, codec_length], axis)
    first_row = blocks.manifest_row(slice(None), [np.where(present, chunk, 0)], [axis])
    return array.with_changes(
        grid=ChunkGrid((*array.grid.axes[:axis], *array.grid.axes[axis + 1 :])),
        dims=(*array.dims[:axis], *array.dims[axis + 1 :]),
        encodings=encodings,
        blocks=replace(
            blocks,
            encoding=encoding,
            first_row=first_row,
            row_stride=np.delete(blocks.row_stride, axis, axis=1),
            stored_shape=np.delete(blocks.stored_shape, axis, axis=1),
            origin=np.delete(blocks.origin, axis, axis=1),
            step=np.delete(blocks.step, axis, axis=1),
        ),
    )


def _decoded_lengths(array: VirtualArray, axis: int, chunk: Int64Array) -> Int64Array:
    """Length along an axis of one decoded chunk of each block."""
    coords = np.zeros((array.n_blocks, array.ndim), np.int64)
    coords[:, axis] = chunk
    return array.decoded_shapes(np.arange(array.n_blocks), coords)[:, axis]


def _reencode(
    array: VirtualArray, keys: Sequence[Int64Array], axis: int
) -> tuple[tuple[Encoding, ...], NDArray[np.int32]]:
    """New encodings without an axis, one for every encoding, index and length that occur."""
    present = array.blocks.encoding != MISSING_BLOCK
    rows = np.stack([array.blocks.encoding.astype(np.int64), *keys], axis=-1)[present]
    column = np.full(len(present), MISSING_BLOCK, np.int32)
    if len(rows) == 0:
        return (), column
    distinct, number = np.unique(rows, axis=0, return_inverse=True)
    interned: dict[Encoding, int] = {}
    ids = [
        interned.setdefault(_squeezed(array.encodings[old], axis, index, length), len(interned))
        for old, index, length in distinct.tolist()
    ]
    column[present] = np.array(ids, np.int32)[number.reshape(-1)]
    return tuple(interned), column


def _squeezed(encoding: Encoding, axis: int, index: int, length: int) -> Encoding:
    """The encoding of blocks that show one index along an axis, without that axis."""
    shape = encoding.chunk_shape
    rest_shape = (*shape[:axis], *shape[axis + 1 :])
    if length == 1 and _is_shape_free(encoding):
        head, rest = _split_transpose(encoding)
        stored = tuple(old - (old > axis) for old in head if old != axis)
        return replace(encoding, chunk_shape=rest_shape, codecs=_with_transpose(stored, rest))
    select = Codec.of("gridref.select", axis=axis, index=index, length=length)
    return replace(encoding, chunk_shape=rest_shape, codecs=(select, *encoding.codecs))


def broadcast_axis(array: VirtualArray, axis: int, extent: int) -> VirtualArray:
    """Repeat the one element along an axis `extent` times.

    Raises
    ------
    InvalidRequestError
        If the axis has another length than 1.
    """
    if array.shape[axis] == extent:
        return array
    if array.shape[axis] != 1:
        raise InvalidRequestError(
            f"cannot repeat dimension {array.dims[axis]!r} of length {array.shape[axis]}"
        )
    axes = list(array.grid.axes)
    axes[axis] = GridAxis.uniform(extent, max(1, extent))
    blocks = array.blocks
    if extent == 0:
        blocks = blocks.take(np.zeros(0, np.int64))
    step = blocks.step.copy()
    step[:, axis] = np.where(blocks.encoding == MISSING_BLOCK, 1, 0)
    return array.with_changes(grid=ChunkGrid(tuple(axes)), blocks=replace(blocks, step=step))
