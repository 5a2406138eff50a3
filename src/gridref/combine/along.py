"""Inputs laid one after the other along a dimension: for concatenation and stacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine.columns import Column, Notes
from gridref.combine.gaps import fill_for_gaps
from gridref.combine.layout import Lengths
from gridref.combine.overlaps import LabelOrder, Piece, order_labels
from gridref.combine.stacking import repeated_along
from gridref.combine.values import Values
from gridref.model.array import MISSING_BLOCK, VirtualArray
from gridref.model.indexing import isel
from gridref.model.joining import concatenate, missing_like

__all__ = ["Along"]


@dataclass(frozen=True, eq=False)
class Along:
    """One file after the other, along a dimension; each of several dimensions for itself.

    Attributes
    ----------
    growing
        The dimensions; a variable has one of them.
    order
        Where labels overlap and one of each is kept; None where all of every file follows.
    inputs
        The variables of a group before labels of other dimensions were aligned: what an input does
        not hold hides nothing of another one, what is missing for want of a label does, as in
        xarray.
    """

    growing: tuple[str, ...]
    order: LabelOrder | None = None
    inputs: Mapping[str, Column] = field(default_factory=dict)
    settled: Mapping[str, Collection[str]] = field(default_factory=dict)
    each_may_be_new = False

    @property
    def repeats(self) -> bool:
        """Whether a variable without the dimension can be repeated along it."""
        return len(self.growing) == 1

    def at_level(
        self, columns: Mapping[str, Column], lengths: Lengths, values: Values, notes: Notes
    ) -> Along:
        """The layout in the order of a group's own labels, else of those of the groups above it."""
        order = self._order(columns, lengths, values, notes) or self.order
        return replace(self, order=order, inputs=columns)

    def _order(
        self, columns: Mapping[str, Column], lengths: Lengths, values: Values, notes: Notes
    ) -> LabelOrder | None:
        dim = self.growing[0]
        column = columns.get(dim)
        if len(self.growing) != 1 or column is None or column.path in notes.failed:
            return None
        if any(kind.array.dims != (dim,) for kind in column.kinds):
            return None
        return order_labels(column, values, notes, lengths[dim])

    def dims_of(self, column: Column, notes: Notes) -> tuple[str, ...] | None:
        """The growing dimension that a variable has, as a tuple of at most one."""
        dims = [dim for dim in self.growing if any(dim in kind.array.dims for kind in column.kinds)]
        if len(dims) > 1:
            message = f"it has several of the dimensions that grow: {', '.join(dims)}"
            notes.problem("dimensions-differ", column.path, message, column.files[:1])
            return None
        return tuple(dims)

    def with_dims(
        self, column: Column, dims: Sequence[str], lengths: Lengths, notes: Notes
    ) -> Column:
        """Repeat the arrays that lack the dimension along it."""
        (dim,) = dims
        cases = column.cases(lambda kind: str(kind.array.dims))
        notes.drift("dimensions", column.path, cases, f"repeated along {dim} where it is missing")
        wanted = max((kind.array.dims for kind in column.kinds), key=len)
        return repeated_along(column, dim, lengths[dim], wanted.index(dim))

    def arrangement(
        self, column: Column, dims: Sequence[str], lengths: Lengths, lacking: Sequence[int]
    ) -> _Row:
        """The pieces of all files, one after the other."""
        (dim,) = dims
        axis = column.first.dims.index(dim)
        if self.order is not None:
            absent = {file: np.ones(lengths[dim][file], bool) for file in lacking}
            absent |= _absent_labels(self.inputs.get(column.name, column), dim)
            return _Row(axis, dim, self.order.pieces(absent), frozenset(lacking))
        if not lacking:
            return _Row(axis, dim, None, frozenset())
        files = sorted([*column.files, *lacking])
        pieces = [Piece(file, 0, lengths[dim].get(file, 0)) for file in files]
        return _Row(axis, dim, pieces, frozenset(lacking))


def _absent_labels(column: Column, dim: str) -> dict[int, NDArray[np.bool_]]:
    """For files whose array has missing blocks: where along a dimension it holds nothing."""
    known = {}
    for file, array in zip(column.files, column.arrays, strict=True):
        missing = array.blocks.encoding == MISSING_BLOCK
        if dim in array.dims and missing.any():
            axis = array.dims.index(dim)
            others = tuple(other for other in range(array.ndim) if other != axis)
            by_block = missing.reshape(array.grid.grid_shape).all(axis=others)
            known[file] = np.repeat(by_block, array.grid.axes[axis].edges())
    return known


@dataclass(frozen=True, eq=False)
class _Row:
    """Pieces of files along an axis, where some lack the variable; None takes files whole."""

    axis: int
    dim: str
    pieces: Sequence[Piece] | None
    lacking: frozenset[int]

    def fill(
        self, column: Column, lacking: Sequence[int], notes: Notes
    ) -> tuple[Column, Any] | None:
        """What gaps read as; none where no piece is of a file that lacks the variable."""
        covered = self.lacking.isdisjoint(piece.file for piece in self.pieces or ())
        return fill_for_gaps(column, lacking, self.dim, notes, covered=covered)

    def lay(self, column: Column, dtype: np.dtype[Any], fill: Any, *, alike: bool) -> VirtualArray:
        """Concatenate the pieces, with missing blocks where a file lacks the variable."""
        arrays = list(column.arrays) if self.pieces is None else self._cut(column, fill)
        arrays = arrays or list(column.arrays[:1])
        return concatenate(arrays, self.axis, dtype=dtype, fill_value=fill, alike=alike)

    def _cut(self, column: Column, fill: Any) -> list[VirtualArray]:
        known = dict(zip(column.files, column.arrays, strict=True))
        return [
            _part(known[piece.file], self.axis, piece)
            if piece.file in known
            else missing_like(column.first, self.axis, piece.stop - piece.start, fill)
            for piece in self.pieces or ()
            if piece.file in known or piece.file in self.lacking
        ]


def _part(array: VirtualArray, axis: int, piece: Piece) -> VirtualArray:
    if (piece.start, piece.stop) == (0, array.shape[axis]):
        return array
    return isel(array, {axis: slice(piece.start, piece.stop)})
