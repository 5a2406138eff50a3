"""Boxes at integer places: where the elements of inputs are in the result.

Order, labels, pixels and counts are ways to find places, and all find the same: `Runs`, neighbours
of an input that are neighbours in the result, along one dimension. A variable of an input is in the
product of its runs along all dimensions: these are its `Boxes`. `lay` joins the arrays in them.
`Cells` finds the boxes that share elements, and what no box holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gridref.combine.columns import Column
from gridref.model.array import VirtualArray
from gridref.model.indexing import isel, pruned
from gridref.model.joining import boxes_of, check_number_of_cells, concatenate, lay_out
from gridref.model.overlay import Box
from gridref.typing import Int64Array

_WHOLE = -1
"""The count of a run that is all of an input, however long that is."""

# Places along one dimension


@dataclass(frozen=True, eq=False)
class Runs:
    """Where elements of inputs are along one dimension of the result.

    The elements start, start + step, ... (count of them) of an input are at the places place,
    place + 1, ... of the result. Labels 0 1 2 of input 0 and 1 2 3 of input 1, each shown once::

        file   0  1
        start  0  2
        step   1  1
        count  3  1
        place  0  3    and extent 4

    Attributes
    ----------
    extent
        Length of the result.
    file
        int64 (n_runs,), the input of each run, ascending.
    start, step, count, place
        int64 (n_runs,), as above.
    follow
        Whether each input is whole and follows the one before: arrays may be joined unseen.
    """

    extent: int
    file: Int64Array
    start: Int64Array
    step: Int64Array
    count: Int64Array
    place: Int64Array
    follow: bool = False

    @classmethod
    def whole(cls, files: Sequence[int], places: Sequence[int], extent: int) -> Self:
        """Each input at its place, as long as it is."""
        file = np.array(files, np.int64)
        nothing, one = np.zeros_like(file), np.ones_like(file)
        return cls(extent, file, nothing, one, one * _WHOLE, np.array(places, np.int64))

    @classmethod
    def in_a_row(cls, files: Sequence[int], lengths: Sequence[int]) -> Self:
        """Inputs one after the other: lengths of 31, 28, 31 are at 0, 31, 59."""
        file, count = np.array(files, np.int64), np.array(lengths, np.int64)
        stops = np.cumsum(count)
        extent = int(stops[-1]) if len(stops) else 0
        nothing, one = np.zeros_like(file), np.ones_like(file)
        return cls(extent, file, nothing, one, count, stops - count, follow=True)

    @classmethod
    def of_places(cls, places: Mapping[int, Int64Array], extent: int) -> Self:
        """Runs of neighbours, given the place of each element of each input.

        Where the places of an input fall, its elements are taken backwards.
        """
        files, sizes = np.array([*places], np.int64), np.array([*map(len, places.values())], int)
        falls = np.array([len(own) > 1 and own[0] > own[-1] for own in places.values()], bool)
        rising = [
            own[:: -1 if back else 1] for own, back in zip(places.values(), falls, strict=True)
        ]
        at = np.concatenate([np.zeros(0, np.int64), *rising])
        owner, within = counted(sizes)
        index = np.where(falls[owner], sizes[owner] - 1 - within, within)
        heads, stops = stretches((owner[1:] != owner[:-1]) | (at[1:] != at[:-1] + 1), len(at))
        own = owner[heads]
        step = np.where(falls[own], -1, 1)
        return cls(extent, files[own], index[heads], step, stops - heads, at[heads])


def stretches(cuts: NDArray[np.bool_], n: int) -> tuple[Int64Array, Int64Array]:
    """Start and stop of each stretch of n elements, given which but the first begin one."""
    starts = np.append(0, np.flatnonzero(cuts) + 1)[:n]
    return starts, np.append(starts, n)[1:]


def counted(sizes: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Which group each element is of, and its place there: 2 and 1 are 0 0 1 and 0 1 0."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)


# Boxes of a variable


@dataclass(frozen=True, eq=False)
class Boxes:
    """The parts of a column's arrays that the result shows, and where.

    Attributes
    ----------
    dims
        The dimensions along which the places are.
    extents
        Length of the result along each of these.
    position
        int64 (n,), which array of the column each box is of, ascending.
    start, step, count, place
        int64 (n, n_dims), the run along each dimension, as in `Runs`.
    """

    dims: tuple[str, ...]
    extents: tuple[int, ...]
    position: Int64Array
    start: Int64Array
    step: Int64Array
    count: Int64Array
    place: Int64Array

    @classmethod
    def of(cls, files: Sequence[int], runs: Mapping[str, Runs]) -> Self:
        """The product of the runs that each input has along the dimensions."""
        position = np.arange(len(files))
        chosen: list[Int64Array] = []  # along each dimension, the run of each box
        for own in runs.values():
            first = np.searchsorted(own.file, files)[position]
            n_runs = np.searchsorted(own.file, files, side="right")[position] - first
            each, within = counted(n_runs)
            position, chosen = (
                position[each],
                [*(rows[each] for rows in chosen), first[each] + within],
            )
        columns = {
            name: np.stack(
                [getattr(own, name)[rows] for own, rows in zip(runs.values(), chosen, strict=True)],
                axis=1,
            )
            for name in ("start", "step", "count", "place")
        }
        extents = tuple(own.extent for own in runs.values())
        return cls(tuple(runs), extents, position, **columns)

    def parts(self, column: Column) -> list[VirtualArray]:
        """The array of each box, cut where it is not all of the input's."""
        arrays = [column.arrays[position] for position in self.position.tolist()]
        if (self.count == _WHOLE).all():
            return arrays
        whole = (self.start == 0) & (self.step == 1) & (self.count == self._lengths(column))
        cut = ~((self.count == _WHOLE) | whole).all(axis=1)
        for k in np.flatnonzero(cut).tolist():
            arrays[k] = isel(arrays[k], self.cut(column, k))
        return arrays

    def cut(self, column: Column, box: int) -> dict[int, slice]:
        """The elements of an array that are in a box, along its axes."""
        runs = zip(self.start[box], self.step[box], self.count[box], strict=True)
        spans = zip(self._axes(column), (map(int, run) for run in runs), strict=True)
        return {axis: _slice(*span) for axis, span in spans}

    def counts(self, column: Column) -> Int64Array:
        """int64 (n, n_dims), how long each box is along each of the dimensions."""
        if (self.count != _WHOLE).all():
            return self.count
        return np.where(self.count == _WHOLE, self._lengths(column), self.count)

    def row(self, column: Column) -> Int64Array | None:
        """The order in which boxes fill the only dimension; None for others."""
        if len(self.dims) > 1:
            return None
        lengths = self.counts(column)[:, 0]
        order = np.lexsort((lengths, self.place[:, 0]))
        starts = np.append(0, np.cumsum(lengths[order]))
        wanted = np.append(self.place[order, 0], self.extents[0])
        return order if (starts == wanted).all() else None

    def have_holes(self, column: Column) -> bool:
        """Whether some element of the result is in none of them."""
        spans = np.stack([self.place, self.place + self.counts(column)], axis=2)
        return bool((Cells.of(spans, self.position, self.extents).owner < 0).any())

    def corners(self, column: Column) -> Int64Array:
        """int64 (n, rank), where each box begins along every dimension of the column."""
        corners = np.zeros((len(self.position), column.first.ndim), np.int64)
        corners[:, self._axes(column)] = self.place
        return corners

    def shape(self, column: Column) -> list[int]:
        """The shape of the result."""
        sizes = column.first.sizes | dict(zip(self.dims, self.extents, strict=True))
        return [sizes[dim] for dim in column.first.dims]

    def held(self, column: Column) -> tuple[Int64Array, Int64Array]:
        """The spans that boxes hold something in: all of them, or each block that is not missing.

        Returns
        -------
        tuple
            int64 (m,), the number of the input of each; int64 (m, n_dims, 2), their spans.
        """
        axes = self._axes(column)
        files, spans = [np.zeros(0, np.int64)], [np.zeros((0, len(axes), 2), np.int64)]
        for k, array in enumerate(self.parts(column)):
            own = held_spans(array, axes, block_by_block=True)
            files.append(np.full(len(own), column.files[int(self.position[k])]))
            spans.append(own + self.place[k][:, np.newaxis])
        return np.concatenate(files), np.concatenate(spans)

    def _axes(self, column: Column) -> list[int]:
        return [column.first.dims.index(dim) for dim in self.dims]

    def _lengths(self, column: Column) -> Int64Array:
        """int64 (n, n_dims), the length of the array of each box along each of the dimensions."""
        shapes = [column.arrays[position].shape for position in self.position.tolist()]
        return np.array(shapes, np.int64).reshape(-1, column.first.ndim)[:, self._axes(column)]


def _slice(start: int, step: int, count: int) -> slice:
    if count == _WHOLE:
        return slice(None)
    stop = start + step * count
    return slice(start, stop if stop >= 0 else None, step)


def held_spans(
    array: VirtualArray, axes: Sequence[int], *, block_by_block: bool = False
) -> Int64Array:
    """The spans along some axes in which an array holds something.

    Parameters
    ----------
    block_by_block
        Whether each block that is not missing has spans of its own, if any is missing; else those
        of neighbouring blocks are joined.

    Returns
    -------
    numpy.ndarray
        int64 (n, n_axes, 2), first element and the one after the last.
    """
    if array.held_blocks.all():
        return np.array([[(0, array.shape[axis]) for axis in axes]], np.int64)
    held = _held_blocks(array, axes)
    if block_by_block:
        firsts = np.argwhere(held)
        stops = firsts + 1
    else:
        boxes = np.array([*boxes_of(np.where(held, 0, -1))], np.int64).reshape(-1, 2, len(axes))
        firsts, stops = boxes[:, 0], boxes.sum(axis=1)
    lines = [np.cumsum([0, *array.grid.axes[axis].edges()]) for axis in axes]
    spans = [
        np.stack([cuts[firsts[:, at]], cuts[stops[:, at]]], axis=1) for at, cuts in enumerate(lines)
    ]
    return np.stack(spans, axis=1)


def held_along(array: VirtualArray, axes: Sequence[int]) -> NDArray[np.bool_]:
    """Which elements along some axes an array holds anything at."""
    held = _held_blocks(array, axes)
    for at, axis in enumerate(axes):
        held = np.repeat(held, array.grid.axes[axis].edges(), axis=at)
    return held


def _held_blocks(array: VirtualArray, axes: Sequence[int]) -> NDArray[np.bool_]:
    """Where along some axes any block is not missing."""
    others = tuple(axis for axis in range(array.ndim) if axis not in axes)
    held: NDArray[np.bool_] = array.held_blocks.any(axis=others)
    return held.transpose(np.argsort(np.argsort(axes)))


def lay(
    column: Column,
    runs: Mapping[str, Runs],
    *,
    keep_last: bool = False,
    dtype: np.dtype[Any] | None = None,
    fill: Any = None,
    alike: bool = False,
) -> VirtualArray:
    """Join the arrays of a column at their places; what no box holds is missing.

    Parameters
    ----------
    runs
        Where inputs are along each dimension that grows.
    keep_last
        Whether the last of several boxes that hold an element shows, and not the first.
    dtype, fill
        Of the result, as for `gridref.model.joining.concatenate`.
    alike
        Whether dtypes and fill values are known to be the same.
    """
    axis = column.first.dims.index(next(iter(runs)))
    join = partial(concatenate, axis=axis, dtype=dtype, fill_value=fill, alike=alike)
    if len(runs) == 1 and all(own.follow for own in runs.values()):
        return join(column.arrays)
    boxes = Boxes.of(column.files, runs)
    parts = boxes.parts(column)
    order = boxes.row(column)
    if not parts:
        return column.first
    if order is not None:
        return join([parts[k] for k in order.tolist()])
    corners, shape = boxes.corners(column).tolist(), boxes.shape(column)
    laid = lay_out(parts, corners, shape, keep_last=keep_last, dtype=dtype, fill_value=fill)
    return pruned(laid).with_changes(attrs=column.first.attrs)


# Cells between the edges of boxes: holes and clashes


@dataclass(frozen=True, eq=False)
class Cells:
    """Boxes laid on the cells that their edges make.

    Attributes
    ----------
    lines
        Where cells start along each dimension, and the extent.
    owner
        For each cell the number of the first box that holds it; -1 where none does.
    clashes
        Boxes that hold a cell which a box of another input holds already: their number, and that
        one's.
    """

    lines: Sequence[Int64Array]
    owner: Int64Array
    clashes: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, spans: Int64Array, files: Int64Array, shape: Sequence[int]) -> Cells:
        """Lay boxes, the first one below.

        Parameters
        ----------
        spans
            int64 (n, n_dims, 2), first element and the one after the last.
        files
            int64 (n,), the input of each box: those of one input never clash.

        Raises
        ------
        InvalidRequestError
            If their edges make too many cells to look at.
        """
        lines = [
            np.unique(np.append(spans[:, axis].reshape(-1), [0, extent]))
            for axis, extent in enumerate(shape)
        ]
        sizes = [len(cuts) - 1 for cuts in lines]
        check_number_of_cells(sizes)
        owner = np.full(sizes, -1, np.int64)
        cells = np.stack(
            [np.searchsorted(cuts, spans[:, axis]) for axis, cuts in enumerate(lines)], axis=1
        )
        if (cells[..., 1] - cells[..., 0] == 1).all():
            single = np.ravel_multi_index(tuple(cells[..., 0].T), sizes)
            if len(np.unique(single)) == len(single):  # the usual case, without a loop
                owner.reshape(-1)[single] = np.arange(len(single))
                return cls(lines, owner, [])
        clashes = []
        for number, box in enumerate(cells.tolist()):
            mine = owner[tuple(slice(*span) for span in box)]
            taken = mine[(mine >= 0) & (files[mine] != files[number])]
            if taken.size:
                clashes.append((number, int(taken[0])))
            mine[mine < 0] = number
        return cls(lines, owner, clashes)

    def holes(self) -> Iterator[Box]:
        """Cells that no box holds; neighbours along the last dimension are one."""
        empty = np.argwhere(self.owner < 0)
        apart = (empty[1:, :-1] != empty[:-1, :-1]).any(axis=1)
        apart |= empty[1:, -1] != empty[:-1, -1] + 1
        for start, stop in zip(*stretches(apart, len(empty)), strict=True):
            first, last = empty[start].tolist(), empty[stop - 1].tolist()
            yield tuple(
                (int(cuts[low]), int(cuts[high + 1]))
                for cuts, low, high in zip(self.lines, first, last, strict=True)
            )
