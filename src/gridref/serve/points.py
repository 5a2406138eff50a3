"""Which stored chunks single points of an array lie in. Pure: no I/O.

A selection of `gridref.serve.plan` is a cross product of its axes; points are not. They are grouped
by the stored chunk that holds them, so that each chunk is read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray
from gridref.serve.plan import PieceBatch
from gridref.typing import Int64Array

__all__ = ["PointSet", "plan_points"]


@dataclass(frozen=True, eq=False)
class PointSet:
    """Points, grouped by stored chunk: a piece is the points of one.

    Attributes
    ----------
    array
        The array.
    block
        int64 (n_pieces,), block number of each piece.
    chunk
        int64 (n_pieces, ndim), coords of its stored chunk in the block's stored array.
    splits
        int64 (n_pieces + 1,), where the points of each piece begin in the next two.
    inside
        int64 (n_points, ndim), place of each point in its stored chunk, piece after piece.
    out_index
        int64 (n_points,), its place in the output.
    """

    array: VirtualArray
    block: Int64Array
    chunk: Int64Array
    splits: Int64Array
    inside: Int64Array
    out_index: Int64Array

    def batches(self, max_pieces: int) -> Iterator[PieceBatch]:
        """Resolve all pieces, at most `max_pieces` at a time."""
        for start in range(0, len(self.block), max_pieces):
            yield self._resolve(slice(start, start + max_pieces))

    def _resolve(self, pieces: slice) -> PieceBatch:
        table, block, chunk = self.array.blocks, self.block[pieces], self.chunk[pieces]
        return PieceBatch(
            np.arange(len(self.block))[pieces, np.newaxis],
            block,
            table.manifest_row(block, chunk.T),
            table.encoding[block],
            table.manifest[block],
            chunk,
            self.array.decoded_shapes(block, chunk),
        )

    def in_chunk(self, piece: Int64Array) -> tuple[Any, ...]:
        """Index of a piece's elements inside its decoded chunk."""
        low, high = self.splits[piece[0]], self.splits[piece[0] + 1]
        return tuple(self.inside[low:high].T)

    def in_output(self, piece: Int64Array) -> tuple[Any, ...]:
        """Index of a piece's elements in the output."""
        return (self.out_index[self.splits[piece[0]] : self.splits[piece[0] + 1]],)


def plan_points(array: VirtualArray, coords: Sequence[ArrayLike]) -> PointSet:
    """Plan the reading of points.

    Parameters
    ----------
    array
        The array, of rank 1 or more.
    coords
        int64 (n_points,) for each axis: the points' places along it, from 0.

    Raises
    ------
    InvalidRequestError
        For coords of another rank, of different numbers, or outside of the array.
    """
    indices = [np.asarray(along, np.int64).reshape(-1) for along in coords]
    _check(array, indices)
    table = array.blocks
    block = np.zeros(len(indices[0]), np.int64)
    offsets = []
    for along, axis in zip(indices, array.grid.axes, strict=True):
        at = axis.locate(along)
        block = block * axis.n_chunks + at
        offsets.append(along - axis.starts(at))
    stored = table.origin[block] + table.step[block] * np.stack(offsets, axis=1)
    lengths = array.stored_chunk_shapes[block]
    chunk = stored // lengths
    key = np.column_stack([block, chunk])
    order = np.lexsort(key.T[::-1])
    key = key[order]
    new = np.flatnonzero((key[1:] != key[:-1]).any(axis=1)) + 1
    firsts = np.concatenate([np.zeros(min(1, len(key)), np.int64), new])
    return PointSet(
        array,
        key[firsts, 0],
        key[firsts, 1:],
        np.append(firsts, len(key)),
        (stored % lengths)[order],
        order,
    )


def _check(array: VirtualArray, indices: Sequence[Int64Array]) -> None:
    if not indices or len(indices) != array.ndim:
        raise InvalidRequestError(f"points of {len(indices)} coords in an array of {array.ndim}")
    if len({len(along) for along in indices}) != 1:
        raise InvalidRequestError(
            f"points have as many coords along every axis, got {[len(p) for p in indices]}"
        )
    for axis, (along, extent) in enumerate(zip(indices, array.shape, strict=True)):
        outside = (along < 0) | (along >= extent)
        if outside.any():
            raise InvalidRequestError(
                f"index {along[outside][0]} is out of bounds for axis {axis} of {extent}"
            )
