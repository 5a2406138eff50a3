"""Place virtual arrays in a larger array, which they need not fill.

`lay_out` takes arrays and the corner of each in the result. It cuts the result into cells wherever
a block starts or an array ends, and finds the array that shows each cell. `boxes_of` combines
neighbouring cells of the same array. Two arrays of 3 elements, at 0 and at 2 of 7, make four
cells::

    corner 0:  a a a            blocks start at 0, 2, 3, 5
    corner 2:      b b b        the cell 2..3 is in both arrays: the first one shows
    result:    a a a b b . .    the cell 5..7 is in none: a missing block
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.indexing import split_blocks
from gridref.model.joining import (
    cast_scalar,
    common_dtype,
    common_enumeration,
    missing_array,
    pooled,
    recast,
)
from gridref.typing import Int64Array

# Grids of numbers as boxes of equal numbers

Coords = tuple[int, ...]


def boxes_of(numbers: NDArray[np.integer[Any]]) -> Iterator[tuple[Coords, Coords]]:
    """First cell and shape of boxes of one number each; together they hold all except -1.

    Equal neighbours are joined along the first axis, then along the next one.
    """
    if numbers.ndim == 0:
        if numbers >= 0:
            yield (), ()
        return
    differ = (numbers[1:] != numbers[:-1]).any(axis=tuple(range(1, numbers.ndim)))
    cuts = [0, *(np.flatnonzero(differ) + 1).tolist(), len(numbers)] if numbers.size else []
    for low, high in itertools.pairwise(cuts):
        for start, shape in boxes_of(numbers[low]):
            yield (low, *start), (high - low, *shape)


# Arrays at their places in a larger array

MAX_CELLS = 50_000_000
"""Most cells: more mean that the arrays hardly share any edge."""


def lay_out(
    arrays: Sequence[VirtualArray],
    corners: Sequence[Sequence[int]],
    shape: Sequence[int],
    *,
    keep_last: bool = False,
    dtype: np.dtype[Any] | None = None,
    fill_value: Any = None,
) -> VirtualArray:
    """Lay arrays at places of a larger array; elements in none of them are missing.

    A missing block of one array never hides elements of another one. Dimension names and attributes
    are those of the first array.

    Parameters
    ----------
    arrays
        One or more arrays of the same rank.
    corners
        The place of the first element of each array in the result, along each axis.
    keep_last
        Whether the last of several arrays with the same element shows, instead of the first.
    dtype, fill_value
        Dtype and fill value of the result, as for `gridref.model.joining.concatenate`.

    Raises
    ------
    InvalidRequestError
        If the edges of the arrays make more than `MAX_CELLS` cells.
    """
    first = arrays[0]
    dtype = common_dtype(arrays) if dtype is None else dtype
    fill_value = cast_scalar(first.fill_value if fill_value is None else fill_value, dtype)
    parts = [recast(array, dtype, fill_value) for array in arrays]
    places = np.array(corners, np.int64).reshape(len(parts), len(shape))
    whole = all(part.n_blocks == 1 for part in parts)  # the usual case, without a loop
    stops = places + np.array([part.shape for part in parts], np.int64).reshape(places.shape)
    starts = [
        _unique_starts([places[:, axis], stops[:, axis]], extent)
        if whole
        else _starts(parts, corners, axis, extent)
        for axis, extent in enumerate(shape)
    ]
    check_number_of_cells([len(along) for along in starts])
    cells = _single_cells(places, stops, starts) if whole else None
    if cells is None:
        parts = [_cut(part, corner, starts) for part, corner in zip(parts, corners, strict=True)]
    nothing = missing_array((1,) * first.ndim, dtype, dims=first.dims, fill_value=fill_value)
    pool = pooled([*parts, nothing])  # its last row is a missing block, which -1 takes
    if cells is None:
        chosen = _chosen(parts, corners, starts, keep_last=keep_last)
    else:
        held = pool.blocks.encoding[: len(parts)] != MISSING_BLOCK
        chosen = _in_cells(cells, held, [len(along) for along in starts], keep_last=keep_last)
    axes = [
        GridAxis.from_edges(np.diff(axis_starts, append=extent))
        for axis_starts, extent in zip(starts, shape, strict=True)
    ]
    return first.with_changes(
        grid=ChunkGrid(tuple(axes)),
        dtype=dtype,
        fill_value=fill_value,
        encodings=pool.encodings,
        manifests=pool.manifests,
        blocks=pool.blocks.take(chosen.reshape(-1)),
        enumeration=common_enumeration(parts),
    )


def check_number_of_cells(counts: Sequence[int]) -> None:
    """Refuse inputs whose edges make too many cells to look at.

    Raises
    ------
    InvalidRequestError
        For more than `MAX_CELLS`.
    """
    if np.prod(counts, dtype=float) > MAX_CELLS:
        raise InvalidRequestError(
            f"the edges of the inputs make a grid of {' by '.join(map(str, counts))} cells: they "
            "share almost no edges; combine only inputs that share edges, or warp rasters to "
            "common tiles first"
        )


def _starts(
    arrays: Sequence[VirtualArray], corners: Sequence[Sequence[int]], axis: int, extent: int
) -> Int64Array:
    """Starts of cells along an axis: wherever a block starts or an array ends."""
    edges = [np.zeros(1, np.int64)]
    for array, corner in zip(arrays, corners, strict=True):
        along = array.grid.axes[axis]
        edges += [corner[axis] + along.starts(np.arange(along.n_chunks))]
        edges += [np.array([corner[axis] + along.extent])]
    return _unique_starts(edges, extent)


def _unique_starts(edges: Sequence[Int64Array], extent: int) -> Int64Array:
    """Starts of cells, from all edges, in order."""
    starts = np.unique(np.concatenate([np.zeros(1, np.int64), *edges]))
    return starts[starts < extent]


def _single_cells(
    places: Int64Array, stops: Int64Array, starts: Sequence[Int64Array]
) -> Int64Array | None:
    """int64 (n,), the cell of each array of one block; None if any is cut or empty."""
    first = [np.searchsorted(along, places[:, axis]) for axis, along in enumerate(starts)]
    last = [np.searchsorted(along, stops[:, axis]) for axis, along in enumerate(starts)]
    if any((stop - start != 1).any() for start, stop in zip(first, last, strict=True)):
        return None
    if not starts:
        return np.zeros(len(places), np.int64)
    return np.ravel_multi_index(first, [len(along) for along in starts])


def _in_cells(
    cells: Int64Array, held: NDArray[np.bool_], shape: Sequence[int], *, keep_last: bool
) -> Int64Array:
    """The same as `_chosen`, for arrays of one cell each."""
    chosen = np.full(shape, -1, np.int64)
    rows = np.flatnonzero(held)
    rows = rows if keep_last else rows[::-1]  # the last assignment to a cell stays
    chosen.reshape(-1)[cells[rows]] = rows
    return chosen


def _cut(array: VirtualArray, corner: Sequence[int], starts: Sequence[Int64Array]) -> VirtualArray:
    """Cut the blocks of an array where cells start."""
    for axis, (begin, axis_starts) in enumerate(zip(corner, starts, strict=True)):
        array = split_blocks(array, axis, axis_starts - begin)
    return array


def _chosen(
    parts: Sequence[VirtualArray],
    corners: Sequence[Sequence[int]],
    starts: Sequence[Int64Array],
    *,
    keep_last: bool,
) -> Int64Array:
    """The row of each cell among the blocks of all parts; -1 if none holds it."""
    chosen = np.full([len(axis_starts) for axis_starts in starts], -1, np.int64)
    sizes = [part.n_blocks for part in parts]
    bases = np.cumsum(sizes) - sizes
    numbered = list(zip(parts, corners, bases.tolist(), strict=True))
    for part, corner, base in reversed(numbered) if keep_last else numbered:
        at = [int(np.searchsorted(f, begin)) for f, begin in zip(starts, corner, strict=True)]
        counts = part.grid.grid_shape
        cells = chosen[tuple(slice(k, k + n) for k, n in zip(at, counts, strict=True))]
        held = (part.blocks.encoding != MISSING_BLOCK).reshape(counts)
        rows = base + np.arange(part.n_blocks, dtype=np.int64).reshape(counts)
        free = held & (cells < 0)
        cells[free] = rows[free]
    return chosen
