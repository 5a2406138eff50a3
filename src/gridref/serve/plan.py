"""Which stored chunks a selection needs, and where their elements go. Pure: no I/O.

A selection is projected twice, on the blocks and inside them. Where the stored chunk length, origin
and step along an axis depend only on the block's place along it (nearly always), both levels reduce
to one list of pieces per axis, and the plan is their cross product. Otherwise there is one cross
product for every block that the selection touches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import MISSING_BLOCK, VirtualArray
from gridref.model.projection import (
    AxisSelection,
    IndexProjection,
    Progression,
    SliceProjection,
    expand_ellipsis,
    group_indices,
    normalize_selection,
    project,
    project_progressions,
)
from gridref.typing import Int64Array

__all__ = [
    "AxisPieces",
    "CrossProduct",
    "PieceBatch",
    "PieceSet",
    "ReadPlan",
    "plan_read",
]

Projection = SliceProjection | IndexProjection


@dataclass(frozen=True, eq=False)
class AxisPieces:
    """What a selection takes along one axis.

    Attributes
    ----------
    block
        int64, block coordinate along the axis of every piece.
    pieces
        The pieces; their chunk is the coordinate of the stored chunk inside the block's stored
        array.
    """

    block: Int64Array
    pieces: Projection


@dataclass(frozen=True, eq=False)
class PieceBatch:
    """Some pieces of a cross product, resolved to manifest rows.

    Attributes
    ----------
    piece
        int64 (n, ndim), which piece of each axis.
    block
        int64 (n,), block number in C order.
    row
        int64 (n,), row in the block's manifest.
    encoding, manifest
        int32 (n,), as in the block table.
    chunk
        int64 (n, ndim), coords of the stored chunk in the stored array.
    shape
        int64 (n, ndim), decoded shape of the stored chunk.
    """

    piece: Int64Array
    block: Int64Array
    row: Int64Array
    encoding: NDArray[np.int32]
    manifest: NDArray[np.int32]
    chunk: Int64Array
    shape: Int64Array

    def __len__(self) -> int:
        return len(self.row)


class PieceSet(Protocol):
    """Pieces of stored chunks, and where their elements go."""

    @property
    def array(self) -> VirtualArray:
        """The array."""
        ...

    def batches(self, max_pieces: int) -> Iterator[PieceBatch]:
        """Resolve all pieces, at most `max_pieces` at a time."""
        ...

    def in_chunk(self, piece: Int64Array) -> tuple[Any, ...]:
        """Index of a piece's elements inside its decoded chunk."""
        ...

    def in_output(self, piece: Int64Array) -> tuple[Any, ...]:
        """Index of a piece's elements in the output."""
        ...


@dataclass(frozen=True, eq=False)
class CrossProduct:
    """Every combination of the axes' pieces."""

    array: VirtualArray
    axes: tuple[AxisPieces, ...]

    @property
    def n_pieces(self) -> int:
        """Number of pieces: stored chunks touched."""
        return math.prod(len(axis.pieces) for axis in self.axes)

    def batches(self, max_pieces: int) -> Iterator[PieceBatch]:
        """Resolve all pieces in C order, at most `max_pieces` at a time."""
        for start in range(0, self.n_pieces, max_pieces):
            yield self.resolve(np.arange(start, min(start + max_pieces, self.n_pieces)))

    def resolve(self, numbers: Int64Array) -> PieceBatch:
        """Resolve pieces, given by their number in C order, to manifest rows."""
        array, ndim = self.array, self.array.ndim
        counts = tuple(len(axis.pieces) for axis in self.axes)
        positions = np.unravel_index(numbers, counts) if ndim else ()
        piece = _columns(positions, len(numbers))
        chunk = _columns(
            [axis.pieces.chunk[at] for axis, at in zip(self.axes, positions, strict=True)],
            len(numbers),
        )
        block = np.zeros(len(numbers), np.int64)
        for axis, at, n_blocks in zip(self.axes, positions, array.grid.grid_shape, strict=True):
            block = block * n_blocks + axis.block[at]
        table = array.blocks
        return PieceBatch(
            piece,
            block,
            table.manifest_row(block, chunk.T),
            table.encoding[block],
            table.manifest[block],
            chunk,
            array.decoded_shapes(block, chunk),
        )

    def in_chunk(self, piece: Int64Array) -> tuple[Any, ...]:
        """Index of a piece's elements inside its decoded chunk."""
        parts = [axis.pieces.in_chunk(p) for axis, p in zip(self.axes, piece.tolist(), strict=True)]
        return tuple(parts) if self._has_only_slices else _open_mesh(parts)

    def in_output(self, piece: Int64Array) -> tuple[Any, ...]:
        """Index of a piece's elements in the output."""
        parts = [
            axis.pieces.in_output(p) for axis, p in zip(self.axes, piece.tolist(), strict=True)
        ]
        return tuple(parts) if self._has_only_slices else _open_mesh(parts)

    @cached_property
    def _has_only_slices(self) -> bool:
        return all(isinstance(axis.pieces, SliceProjection) for axis in self.axes)


@dataclass(frozen=True, eq=False)
class ReadPlan:
    """How to read a selection.

    Attributes
    ----------
    array
        The array read.
    shape
        Shape of the output before dropping and flipping axes.
    crosses
        The cross products whose pieces fill the output exactly once.
    flipped
        Axes to reverse afterwards (negative strides).
    dropped
        Axes of integer selections, to drop afterwards.
    """

    array: VirtualArray
    shape: tuple[int, ...]
    crosses: tuple[CrossProduct, ...]
    flipped: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()

    def finish(self, out: NDArray[Any]) -> NDArray[Any]:
        """Reverse and drop axes of the filled output."""
        index: list[Any] = [slice(None)] * out.ndim
        for axis in self.flipped:
            index[axis] = slice(None, None, -1)
        for axis in self.dropped:
            index[axis] = 0
        # The ellipsis keeps a single element an array.
        return out[(*index, ...)] if self.flipped or self.dropped else out


def plan_read(array: VirtualArray, selection: Any = None) -> ReadPlan:
    """Plan the reading of a selection.

    Parameters
    ----------
    selection
        None for all, or one entry per axis (an ellipsis stands for the axes left out): an integer
        (drops the axis), a slice with any stride, a boolean mask or an array of integers. Arrays
        select orthogonally, each along its own axis, unlike numpy's.

    Raises
    ------
    InvalidRequestError
        For a selection that does not fit the array.
    """
    indices = expand_ellipsis(() if selection is None else selection, array.ndim)
    selections = [
        normalize_selection(index, extent, axis)
        for axis, (index, extent) in enumerate(zip(indices, array.shape, strict=True))
    ]
    shape = tuple(
        selected.count if isinstance(selected, Progression) else len(selected)
        for selected in selections
    )
    return ReadPlan(
        array,
        shape,
        _project_array(array, selections) if 0 not in shape else (),
        tuple(
            axis
            for axis, selected in enumerate(selections)
            if isinstance(selected, Progression) and selected.flipped
        ),
        tuple(axis for axis, index in enumerate(indices) if _is_integer(index)),
    )


def _is_integer(index: Any) -> bool:
    return not isinstance(index, slice) and np.ndim(index) == 0


def _project_array(
    array: VirtualArray, selections: Sequence[AxisSelection]
) -> tuple[CrossProduct, ...]:
    outer = [
        project(axis, selected) for axis, selected in zip(array.grid.axes, selections, strict=True)
    ]
    tables = array.axis_tables
    if tables is not None:
        axes = [
            _inner(projection, table.chunk_length, table.origin, table.step)
            for projection, table in zip(outer, tables, strict=True)
        ]
        return (CrossProduct(array, tuple(axes)),)
    return tuple(
        CrossProduct(array, _inside_block(array, outer, positions))
        for positions in itertools.product(*(range(len(projection)) for projection in outer))
    )


def _inside_block(
    array: VirtualArray, outer: Sequence[Projection], positions: Sequence[int]
) -> tuple[AxisPieces, ...]:
    """The pieces of one block, for arrays without axis tables."""
    coords = [int(projection.chunk[at]) for projection, at in zip(outer, positions, strict=True)]
    block = int(np.ravel_multi_index(coords, array.grid.grid_shape))
    axes = []
    for axis, (projection, at) in enumerate(zip(outer, positions, strict=True)):
        n_blocks = array.grid.grid_shape[axis]

        def spread(value: Any, n_blocks: int = n_blocks) -> Int64Array:
            return np.full(n_blocks, int(value), np.int64)

        axes.append(
            _inner(
                _one_piece(projection, at),
                spread(array.stored_chunk_shapes[block, axis]),
                spread(array.blocks.origin[block, axis]),
                spread(array.blocks.step[block, axis]),
            )
        )
    return tuple(axes)


def _one_piece(projection: Projection, piece: int) -> Projection:
    if isinstance(projection, SliceProjection):
        return projection.take(np.array([piece]))
    low, high = projection.splits[piece], projection.splits[piece + 1]
    return IndexProjection(
        projection.chunk[piece : piece + 1],
        np.array([0, high - low], np.int64),
        projection.index[low:high],
        projection.out_index[low:high],
    )


def _inner(
    outer: Projection, chunk_length: Int64Array, origin: Int64Array, step: Int64Array
) -> AxisPieces:
    """Project what an axis takes of its blocks on the blocks' stored chunks."""
    block = outer.chunk
    if isinstance(outer, SliceProjection):
        owner, inner = project_progressions(
            origin[block] + step[block] * outer.start,
            step[block] * outer.step,
            outer.count,
            chunk_length[block],
        )
        pieces = SliceProjection(
            inner.chunk,
            inner.start,
            inner.step,
            inner.count,
            inner.out_start + outer.out_start[owner],
        )
        return AxisPieces(block[owner], pieces)
    block = np.repeat(block, outer.count)
    stored = origin[block] + step[block] * outer.index
    length = chunk_length[block]
    (block,), grouped = group_indices((block, stored // length), stored % length)
    return AxisPieces(
        block,
        IndexProjection(
            grouped.chunk, grouped.splits, grouped.index, outer.out_index[grouped.out_index]
        ),
    )


def _columns(values: Sequence[Any], n_rows: int) -> Int64Array:
    if not len(values):
        return np.zeros((n_rows, 0), np.int64)
    return np.stack([np.asarray(value, np.int64) for value in values], axis=1)


def _open_mesh(parts: Sequence[Any]) -> tuple[Any, ...]:
    """Slices and index arrays, each along its own axis, as an open mesh."""
    arrays = [
        np.arange(part.start, part.stop if part.stop is not None else -1, part.step or 1)
        if isinstance(part, slice)
        else part
        for part in parts
    ]
    return np.ix_(*arrays)


def is_missing_block(batch: PieceBatch) -> NDArray[np.bool_]:
    """Which pieces lie in blocks that no file holds."""
    return np.asarray(batch.encoding == MISSING_BLOCK)
