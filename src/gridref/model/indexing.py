"""Selections of virtual arrays that are virtual arrays again.

A slice that cuts a stored chunk gives a smaller block over the same chunk: only the block's window
(origin and step) changes. All operations are exact and work on whole columns of the block table.
Their cost grows with the number of blocks, and never with the number of stored chunks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.model.array import Overlay, VirtualArray, VirtualGroup
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.overlay import Box, Cover
from gridref.model.projection import (
    Progression,
    SliceProjection,
    expand_ellipsis,
    normalize_selection,
    project_slice,
)
from gridref.model.reshaping import squeeze
from gridref.typing import Int64Array

MAX_RUNS = 100_000
"""Most blocks along an axis that an array of integers may be cut into."""


def getitem(array: VirtualArray, key: Any) -> VirtualArray:
    """Select with one entry per axis, as numpy's basic indexing.

    Arrays of integers and masks select each along its own axis (orthogonally); an ellipsis stands
    for the axes left out.

    Raises
    ------
    InvalidRequestError
        For a key that does not fit the array.
    NotRepresentableError
        For an array of integers that falls into more than `MAX_RUNS` runs.
    """
    if any(index is None for index in (key if isinstance(key, tuple) else (key,))):
        raise NotRepresentableError("a new axis in an index: use expand_dims")
    return isel(array, dict(enumerate(expand_ellipsis(key, array.ndim))))


def isel(array: VirtualArray, selection: Mapping[str, Any] | Mapping[int, Any]) -> VirtualArray:
    """Select along dimensions by position.

    Parameters
    ----------
    selection
        Per dimension name (or axis number) an integer, which drops the axis, a slice with any step,
        a boolean mask, or integers in any order and number.

    Returns
    -------
    VirtualArray
        Blocks outside the selection are dropped, with the encodings and manifests of only these.

    Raises
    ------
    InvalidRequestError
        For an unknown dimension or a selection out of range.
    NotRepresentableError
        For an array of integers that falls into more than `MAX_RUNS` runs.
    """
    dropped = []
    for key, chosen in selection.items():
        axis = key if isinstance(key, int) else axis_of(array, key)
        normal = normalize_selection(chosen, array.shape[axis], array.dims[axis])
        if isinstance(normal, Progression):
            if not isinstance(chosen, slice):
                dropped.append(axis)
            array = _select_slice(array, axis, normal)
        else:
            array = _select_indices(array, axis, normal)
    return squeeze(array, dropped)


def isel_overlays(
    array: VirtualArray, selection: Mapping[str, Any] | Mapping[int, Any]
) -> tuple[Overlay, ...]:
    """The overlays of what `isel` selects: of slices without gaps, and integers; else none."""
    box = [(0, extent) for extent in array.shape]
    dropped: set[int] = set()
    for key, chosen in selection.items():
        axis = key if isinstance(key, int) else axis_of(array, key)
        normal = normalize_selection(chosen, array.shape[axis], array.dims[axis])
        if not isinstance(normal, Progression) or normal.step != 1 or normal.flipped:
            return ()
        box[axis] = (normal.start, normal.start + normal.count)
        if not isinstance(chosen, slice):
            dropped.add(axis)
    if len(dropped) == array.ndim or any(low == high for low, high in box):
        return ()
    kept = [axis for axis in range(array.ndim) if axis not in dropped]
    selected = (_overlay_in(each, tuple(box), kept) for each in array.overlays)
    return tuple(each for each in selected if each.coverage)


def _overlay_in(overlay: Overlay, box: Box, kept: Sequence[int]) -> Overlay:
    """An overlay of the elements in a box, without the axes that are not kept."""
    sheets: list[VirtualArray] = []
    coverage: list[Cover] = []
    for cover in overlay.coverage:
        part = cover.within(box)
        if part is None:
            continue
        along = {
            axis: slice(low, high) if axis in kept else low
            for axis, (low, high) in enumerate(part.sheet_box)
        }
        start = tuple(part.start[axis] - box[axis][0] for axis in kept)
        shape = tuple(part.shape[axis] for axis in kept)
        coverage.append(Cover(len(sheets), (0,) * len(kept), start, shape))
        sheets.append(isel(overlay.sheets[cover.sheet], along))
    stored, files = (
        replace(
            each,
            chunk_shape=tuple(each.chunk_shape[axis] for axis in kept),
            object_shape=tuple(each.object_shape[axis] for axis in kept),
        )
        for each in (overlay.stored, overlay.files)
    )
    return replace(
        overlay, sheets=tuple(sheets), coverage=tuple(coverage), stored=stored, files=files
    )


def isel_group(group: VirtualGroup, selection: Mapping[str, slice]) -> VirtualGroup:
    """Some elements of all arrays of a group, and of those below it."""

    def selected(_path: str, array: VirtualArray) -> VirtualArray:
        return isel(array, {dim: selection[dim] for dim in array.dims if dim in selection})

    return group.with_each_array(selected)


def axis_of(array: VirtualArray, dim: str) -> int:
    """Axis number of a dimension.

    Raises
    ------
    InvalidRequestError
        If the array has no such dimension.
    """
    if dim not in array.dims:
        raise InvalidRequestError(f"no dimension {dim!r} among {array.dims}")
    return array.dims.index(dim)


def flip(array: VirtualArray, axis: int) -> VirtualArray:
    """Reverse the elements along an axis."""
    return isel(array, {axis: slice(None, None, -1)})


def split_blocks(array: VirtualArray, axis: int, starts: Int64Array) -> VirtualArray:
    """Cut blocks so that one starts at each of the given elements.

    Parameters
    ----------
    starts
        int64, elements where a block shall start; those where one does already change nothing.
    """
    grid_axis = array.grid.axes[axis]
    own = grid_axis.starts(np.arange(grid_axis.n_chunks))
    inside = starts[(starts > 0) & (starts < grid_axis.extent)]
    wanted = np.union1d(own, inside)
    if len(wanted) == len(own):
        return array
    chunk = grid_axis.locate(wanted)
    pieces = SliceProjection(
        chunk,
        wanted - grid_axis.starts(chunk),
        np.ones_like(wanted),
        np.diff(wanted, append=grid_axis.extent),
        wanted,
    )
    return select_pieces(array, axis, pieces)


def _select_slice(array: VirtualArray, axis: int, selection: Progression) -> VirtualArray:
    grid_axis = array.grid.axes[axis]
    if selection == Progression(0, 1, grid_axis.extent):
        return array
    pieces = project_slice(grid_axis, selection)
    if selection.flipped:
        backward = pieces.take(np.arange(len(pieces))[::-1])
        last = backward.start + backward.step * (backward.count - 1)
        pieces = replace(backward, start=last, step=-backward.step)
    return select_pieces(array, axis, pieces)


def _select_indices(array: VirtualArray, axis: int, indices: Int64Array) -> VirtualArray:
    grid_axis = array.grid.axes[axis]
    block = grid_axis.locate(indices)
    first, count = arithmetic_runs(indices, block)
    step = np.ones_like(first)
    several = count > 1
    step[several] = indices[first[several] + 1] - indices[first[several]]
    chunk = block[first]
    pieces = SliceProjection(chunk, indices[first] - grid_axis.starts(chunk), step, count, first)
    return select_pieces(array, axis, pieces)


def arithmetic_runs(indices: Int64Array, block: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Cut integers into runs of equal steps that stay in one block, greedily from the left.

    The indices 0, 2, 4, 5 of one block and 6, 9 of the next are the runs 0 2 4, 5 and 6 9: they
    begin at the positions 0, 3 and 4, and have 3, 1 and 2 elements.

    Returns
    -------
    tuple
        int64 position of the first element of each run, and int64 number of its elements.

    Raises
    ------
    NotRepresentableError
        For more than `MAX_RUNS` runs.
    """
    n_elements = len(indices)
    if n_elements == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    steps = np.diff(indices)
    same_block = block[1:] == block[:-1]
    # Where a run cannot simply go on: position i ends a stretch of equal steps inside one block.
    uneven = (steps[1:] != steps[:-1]) | ~same_block[1:] | ~same_block[:-1]
    stretch_ends = np.append(np.flatnonzero(uneven) + 1, n_elements - 1)
    firsts = []
    position = 0
    while position < n_elements:
        firsts.append(position)
        if len(firsts) > MAX_RUNS:
            raise NotRepresentableError(
                f"{n_elements} indices form more than {MAX_RUNS} runs of equal steps; load the"
                " array instead"
            )
        if position == n_elements - 1 or not same_block[position]:
            position += 1
        else:
            position = int(stretch_ends[np.searchsorted(stretch_ends, position + 1)]) + 1
    first = np.array(firsts, np.int64)
    return first, np.diff(first, append=n_elements)


def select_pieces(array: VirtualArray, axis: int, pieces: SliceProjection) -> VirtualArray:
    """Make one block of each piece of the blocks along an axis.

    Parameters
    ----------
    pieces
        Pieces of blocks in the order of the output; steps may be negative or 0.
    """
    numbers = np.arange(array.n_blocks).reshape(array.grid.grid_shape)
    rows = np.take(numbers, pieces.chunk, axis=axis)
    along = np.arange(len(pieces)).reshape([-1 if a == axis else 1 for a in range(array.ndim)])
    piece = np.broadcast_to(along, rows.shape).reshape(-1)
    axes = list(array.grid.axes)
    axes[axis] = _axis_of_pieces(pieces.count, axes[axis])
    blocks = array.blocks.take(rows.reshape(-1))
    origin, step = blocks.origin.copy(), blocks.step.copy()
    present = blocks.encoding != MISSING_BLOCK
    start = origin[:, axis] + step[:, axis] * pieces.start[piece]
    origin[:, axis] = np.where(present, start, 0)
    # The step of a single element means nothing: write it as 1.
    stride = np.where(pieces.count[piece] == 1, 1, step[:, axis] * pieces.step[piece])
    step[:, axis] = np.where(present, stride, 1)
    result = array.with_changes(
        grid=ChunkGrid(tuple(axes)), blocks=replace(blocks, origin=origin, step=step)
    )
    return pruned(_tightened(result, axis))


def _axis_of_pieces(counts: Int64Array, before: GridAxis) -> GridAxis:
    if len(counts) == 0:
        return GridAxis.uniform(0, int(before.run_lengths[0]))
    return GridAxis.from_edges(counts)


def _tightened(array: VirtualArray, axis: int) -> VirtualArray:
    """Shrink stored arrays along an axis to the stored chunks that blocks show elements of."""
    if array.n_blocks == 0:
        return array
    blocks = array.blocks
    length = array.stored_chunk_shapes[:, axis]
    counts = array.block_shapes()[:, axis]
    start, step = blocks.origin[:, axis], blocks.step[:, axis]
    last = start + step * (counts - 1)
    first_chunk = np.minimum(start, last) // length
    stop_chunk = np.maximum(start, last) // length + 1
    first_chunk[blocks.encoding == MISSING_BLOCK] = 0
    begin = first_chunk * length
    end = np.minimum(blocks.stored_shape[:, axis], stop_chunk * length)
    origin, stored = blocks.origin.copy(), blocks.stored_shape.copy()
    origin[:, axis] = start - begin
    stored[:, axis] = np.where(blocks.encoding == MISSING_BLOCK, 0, end - begin)
    first_row = blocks.manifest_row(slice(None), [first_chunk], [axis])
    return array.with_changes(
        blocks=replace(blocks, first_row=first_row, origin=origin, stored_shape=stored)
    )


def pruned(array: VirtualArray) -> VirtualArray:
    """Drop the encodings and manifests that no block uses."""
    blocks = array.blocks
    present = blocks.encoding != MISSING_BLOCK
    encodings, encoding = _used(blocks.encoding, present, len(array.encodings), MISSING_BLOCK)
    manifests, manifest = _used(blocks.manifest, present, len(array.manifests), 0)
    if len(encodings) == len(array.encodings) and len(manifests) == len(array.manifests):
        return array
    return array.with_changes(
        encodings=tuple(array.encodings[number] for number in encodings),
        manifests=tuple(array.manifests[number] for number in manifests),
        blocks=replace(blocks, encoding=encoding, manifest=manifest),
    )


def _used(
    column: NDArray[np.int32], present: NDArray[np.bool_], n_known: int, absent: int
) -> tuple[list[int], NDArray[np.int32]]:
    """The numbers that occur in a column, and the column counting among those only.

    In the column 3, none, 1, 3 the numbers 1 and 3 occur: counted among these it is 1, none, 0, 1.
    """
    used = np.zeros(n_known, bool)
    used[column[present]] = True
    renumbered = np.append(np.cumsum(used) - 1, 0).astype(np.int32)
    result = np.where(present, renumbered[np.where(present, column, -1)], absent)
    return np.flatnonzero(used).tolist(), result.astype(np.int32)
