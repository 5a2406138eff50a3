"""The chunk grids of decoded chunks: near the stored ones, but not tiny."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from gridref.model.array import VirtualArray
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.typing import Int64Array

__all__ = ["MANY_CHUNKS", "TINY_CHUNK_BYTES", "block_chunks", "commonest", "portable_grid"]


TINY_CHUNK_BYTES = 8 * 2**10
"""Below this size a chunk costs more to ask for than to carry."""
MANY_CHUNKS = 32
"""Fewer tiny chunks than this do no harm."""
GROWN_CHUNK_BYTES = 2**20
"""Size up to which the portable view puts tiny chunks together."""


def portable_grid(
    array: VirtualArray, chunks: Mapping[str, int], *, rectilinear: bool, grow: bool
) -> ChunkGrid:
    """The chunk grid of the portable view.

    Parameters
    ----------
    chunks
        Chunk lengths that were asked for, by dimension name; the others follow the stored chunks.
    rectilinear
        Whether the grid may be uneven.
    grow
        Whether tiny chunks are put together.
    """
    axes = []
    for axis, (dim, outer) in enumerate(zip(array.dims, array.grid.axes, strict=True)):
        if dim in chunks:
            axes.append(GridAxis.uniform(outer.extent, min(chunks[dim], max(1, outer.extent))))
        else:
            axes.append(_portable_axis(array, axis, rectilinear=rectilinear))
    if grow:
        axes = _grown(axes, array.dtype.itemsize)
    return ChunkGrid(tuple(axes))


def _grown(axes: Sequence[GridAxis], item_bytes: int) -> list[GridAxis]:
    """Several tiny chunks together, the last axis first; larger chunks stay as they are."""
    lengths = [commonest(axis.run_lengths, axis.run_counts) for axis in axes]
    chunk_bytes = math.prod(lengths) * max(1, item_bytes)
    if chunk_bytes >= TINY_CHUNK_BYTES:
        return list(axes)
    left = GROWN_CHUNK_BYTES // chunk_bytes
    grown = list(axes)
    for axis in reversed(range(len(axes))):
        factor = min(left, max(1, axes[axis].n_chunks))
        if factor > 1:
            grown[axis] = GridAxis.uniform(axes[axis].extent, lengths[axis] * factor)
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
        return GridAxis.uniform(outer.extent, commonest(length, np.ones_like(length)))
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
    return GridAxis.uniform(outer.extent, commonest(length, extents))


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


def commonest(lengths: Int64Array, weights: Int64Array) -> int:
    """The length with the most weight; of several, the shortest."""
    values, inverse = np.unique(lengths, return_inverse=True)
    return int(values[np.argmax(np.bincount(inverse, weights=weights))])
