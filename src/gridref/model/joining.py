"""Join virtual arrays: in a row along an axis, or at any places of a larger array.

The blocks of the inputs become the blocks of the result. Stored chunks, manifests and their rows
are shared and never walked. Encodings are interned, so any number of similar files share one.

`concatenate` lays arrays one after the other. `lay_out` takes arrays and the corner of each in a
result that they need not fill. It cuts the result into cells wherever a block starts or an array
ends, and finds the array that shows each cell. `boxes_of` combines neighbouring cells of the same
array. Two arrays of 3 elements, at 0 and at 2 of 7, make four cells::

    corner 0:  a a a            blocks start at 0, 2, 3, 5
    corner 2:      b b b        the cell 2..3 is in both arrays: the first one shows
    result:    a a a b b . .    the cell 5..7 is in none: a missing block
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.model.array import Enumeration, VirtualArray
from gridref.model.blocks import MISSING_BLOCK, BlockTable
from gridref.model.columns import condensed, joined_columns
from gridref.model.encoding import Encoding, bytes_codec, element_bytes
from gridref.model.grid import ChunkGrid, GridAxis, region_of
from gridref.model.indexing import split_blocks
from gridref.model.manifest import (
    ChunkManifest,
    ChunkState,
    Manifest,
    distinct_objects,
    identity_numbers,
)
from gridref.model.overlay import Coords
from gridref.typing import Int64Array


def concatenate(
    arrays: Sequence[VirtualArray],
    axis: int,
    *,
    dtype: np.dtype[Any] | None = None,
    fill_value: Any = None,
    alike: bool = False,
) -> VirtualArray:
    """Lay arrays one after the other along an axis.

    Chunk shapes, codecs, byte orders and edge policies may differ. Where the outer grids differ
    along other axes, blocks are cut to their common refinement. Dimension names and attributes are
    those of the first array; arrays of extent 0 along the axis add nothing.

    Parameters
    ----------
    arrays
        One or more arrays, of equal extents along the other axes.
    dtype
        Dtype of the result; by default the one that numpy promotes to.
    fill_value
        Fill value of the result, by default the first array's. Absent elements of an array still
        read as that array's own fill value.
    alike
        Whether dtypes and fill values are known to be equal: they are then not compared.

    Raises
    ------
    InvalidRequestError
        If ranks or extents differ, or there is no common dtype.
    """
    if not arrays:
        raise InvalidRequestError("nothing to concatenate")
    first = arrays[0]
    if not 0 <= axis < first.ndim:
        raise InvalidRequestError(f"axis {axis} of an array of rank {first.ndim}")
    lengths = _checked_lengths([array.grid for array in arrays], axis)
    parts = list(arrays)
    if 0 in lengths:
        parts = [array for array, n in zip(arrays, lengths, strict=True) if n] or [first]
    if not alike:
        dtype = common_dtype(arrays) if dtype is None else dtype
        fill_value = cast_scalar(first.fill_value if fill_value is None else fill_value, dtype)
        parts = [recast(array, dtype, fill_value) for array in parts]
    if len(parts) > 1:
        parts = _refined(parts, axis)
    template = parts[0].with_changes(dims=first.dims, attrs=first.attrs)
    return template if len(parts) == 1 else _joined(parts, axis, template)


def missing_array(
    shape: Sequence[int],
    dtype: np.dtype[Any],
    *,
    dims: Sequence[str],
    fill_value: Any,
    attrs: Any = None,
) -> VirtualArray:
    """An array that no file holds: one missing block, which reads as the fill value."""
    grid = ChunkGrid.regular(shape, [max(1, extent) for extent in shape])
    blocks = BlockTable.missing(grid.n_chunks, grid.ndim)
    return VirtualArray(grid, dtype, fill_value, tuple(dims), dict(attrs or {}), (), (), blocks)


def missing_like(array: VirtualArray, axis: int, extent: int, fill_value: Any) -> VirtualArray:
    """An array that no file holds, equal to another one except for its extent along an axis."""
    shape = (*array.shape[:axis], extent, *array.shape[axis + 1 :])
    return missing_array(
        shape, array.dtype, dims=array.dims, fill_value=fill_value, attrs=array.attrs
    )


def _checked_lengths(grids: Sequence[ChunkGrid], axis: int) -> list[int]:
    """Lengths along the axis; the extents along the others are checked."""
    expected = grids[0].shape
    for grid in distinct_objects(grids):
        shape = grid.shape
        if shape[:axis] != expected[:axis] or shape[axis + 1 :] != expected[axis + 1 :]:
            raise InvalidRequestError(
                f"array {grids.index(grid)} of shape {shape} does not fit {expected} along"
                f" dimension {axis}"
            )
    return [grid.shape[axis] for grid in grids]


def common_dtype(arrays: Sequence[VirtualArray]) -> np.dtype[Any]:
    """The dtype that numpy promotes the dtypes of the arrays to.

    Raises
    ------
    InvalidRequestError
        If there is none.
    """
    dtypes = list(dict.fromkeys(array.dtype for array in arrays))
    if len(dtypes) == 1:
        return dtypes[0]
    try:
        return np.result_type(*dtypes)
    except TypeError as error:
        names = ", ".join(map(str, dtypes))
        raise InvalidRequestError(f"dtypes {names} have no common one") from error


def cast_scalar(value: Any, dtype: np.dtype[Any]) -> Any:
    """A fill value as a scalar of `dtype`."""
    if dtype.kind == "T":
        return str(value)
    return np.asarray(value).astype(dtype)[()]


def same_scalar(one: Any, other: Any, dtype: np.dtype[Any]) -> bool:
    """Whether two fill values are the same bits of `dtype`."""
    if one is other:
        return True
    if dtype.kind == "T":
        return bool(one == other)
    return element_bytes(one, dtype) == element_bytes(other, dtype)


def recast(
    array: VirtualArray, dtype: np.dtype[Any], fill_value: Any, *, keeps_absent: bool = False
) -> VirtualArray:
    """The same values in another dtype, with another fill value for arrays yet to be added.

    Stored chunks are cast on reading. Absent elements still read as the old fill value. If it means
    what the new one does, `keeps_absent` leaves missing blocks as they are.

    Raises
    ------
    NotRepresentableError
        If a block's stored dtype cannot hold the old fill value, or if an array of strings of
        variable length has absent elements and the fill values differ.
    """
    same_dtype = array.dtype == dtype
    if same_dtype and same_scalar(array.fill_value, fill_value, dtype):
        return array
    if array.dtype.kind == "T" or dtype.kind == "T":
        if same_dtype and is_complete(array):
            return array.with_changes(fill_value=fill_value)
        raise NotRepresentableError(
            f"strings of variable length cannot become {dtype} with fill value {fill_value!r}"
        )
    same_fill = same_scalar(cast_scalar(array.fill_value, dtype), fill_value, dtype)
    if not (same_fill or keeps_absent):
        array = _with_real_blocks(array)
    encodings = tuple(_with_fill(encoding, array.fill_value) for encoding in array.encodings)
    return array.with_changes(dtype=dtype, fill_value=fill_value, encodings=encodings)


def _with_fill(encoding: Encoding, fill_value: Any) -> Encoding:
    """The encoding with the fill value of its missing chunks."""
    if encoding.fill is not None:
        return encoding
    scalar = np.asarray(fill_value)
    stored = scalar.astype(encoding.dtype)
    if not same_scalar(stored, scalar, scalar.dtype):
        raise NotRepresentableError(f"fill value {fill_value!r} is not one of {encoding.dtype}")
    return replace(encoding, fill=element_bytes(stored, encoding.dtype))


def is_complete(array: VirtualArray) -> bool:
    """Whether it is known that no element is absent."""
    return bool(array.held_blocks.all()) and all(
        isinstance(rows, ChunkManifest) and bool((rows.state != ChunkState.MISSING).all())
        for rows in array.manifests
    )


def _with_real_blocks(array: VirtualArray) -> VirtualArray:
    """Turn missing blocks into blocks of one missing chunk with its own fill value."""
    blocks = array.blocks
    absent = blocks.encoding == MISSING_BLOCK
    if not absent.any():
        return array
    shapes = array.block_shapes()
    dtype = array.dtype
    encoding = Encoding(
        tuple(np.maximum(shapes[absent].max(axis=0), 1).tolist()),
        dtype,
        (bytes_codec(dtype),),
        fill=element_bytes(array.fill_value, dtype),
    )
    wide = absent[:, np.newaxis]
    return array.with_changes(
        encodings=(*array.encodings, encoding),
        manifests=(*array.manifests, ChunkManifest.missing(1)),
        blocks=BlockTable(
            np.where(absent, len(array.encodings), blocks.encoding).astype(np.int32),
            np.where(absent, len(array.manifests), blocks.manifest).astype(np.int32),
            np.where(absent, 0, blocks.first_row),
            np.where(wide, 0, blocks.row_stride),
            np.where(wide, shapes, blocks.stored_shape),
            np.where(wide, 0, blocks.origin),
            np.where(wide, 1, blocks.step),
        ),
    )


def _refined(arrays: list[VirtualArray], axis: int) -> list[VirtualArray]:
    """Cut blocks to give all arrays the same outer grid along the other axes."""
    if all([array.block_source.n_blocks == 1 for array in arrays]):  # noqa: C419 - faster
        return arrays
    for other in range(arrays[0].ndim):
        if other == axis:
            continue
        distinct = {axis_key(array.grid.axes[other]): array.grid.axes[other] for array in arrays}
        if len(distinct) == 1:
            continue
        starts = np.unique(
            np.concatenate([cut.starts(np.arange(cut.n_chunks)) for cut in distinct.values()])
        )
        arrays = [split_blocks(array, other, starts) for array in arrays]
    return arrays


def axis_key(axis: GridAxis) -> tuple[int, bytes, bytes]:
    """A key that axes share exactly if they are equal; keys are compared faster than axes."""
    return axis.extent, axis.run_lengths.tobytes(), axis.run_counts.tobytes()


def _joined(arrays: Sequence[VirtualArray], axis: int, template: VirtualArray) -> VirtualArray:
    """Concatenate arrays of equal outer grids along the other axes."""
    pool = pooled(arrays)
    blocks = pool.blocks
    axes = list(template.grid.axes)
    if len(blocks) == len(arrays):
        order = None
        axes[axis] = GridAxis.from_edges([array.grid.shape[axis] for array in arrays])
    else:
        grid_axes = [array.grid.axes[axis] for array in arrays]
        counts = [grid_axis.n_chunks for grid_axis in grid_axes]
        order = _joined_order(counts, template.grid.grid_shape, axis)
        axes[axis] = joined_axis(grid_axes)
    return template.with_changes(
        grid=ChunkGrid(tuple(axes)),
        encodings=pool.encodings,
        manifests=pool.manifests,
        blocks=blocks if order is None else blocks.take(order),
        enumeration=common_enumeration(arrays),
    )


def common_enumeration(arrays: Sequence[VirtualArray]) -> Enumeration | None:
    """The one enumeration of all arrays with values in files."""
    enumerations = {array.enumeration for array in arrays if array.encodings}
    return enumerations.pop() if len(enumerations) == 1 else None


@dataclass(frozen=True, eq=False)
class Pool:
    """The blocks of several arrays in one table, with the encodings and manifests of all."""

    encodings: tuple[Encoding, ...]
    manifests: tuple[Manifest, ...]
    blocks: BlockTable


def pooled(arrays: Sequence[VirtualArray]) -> Pool:
    """Put the blocks of arrays in one table, array after array, each in its own order."""
    joined = _joined_tables([array.blocks for array in arrays])
    encodings, encoding = _interned_encodings(arrays, joined)
    manifests, manifest = _interned_manifests(arrays, joined)
    return Pool(encodings, manifests, replace(joined, encoding=encoding, manifest=manifest))


def _joined_tables(tables: Sequence[BlockTable]) -> BlockTable:
    """The rows of all tables; tables of one row that many arrays share are read once."""
    distinct, rows = identity_numbers(tables)
    shared = 4 * len(distinct) <= len(tables) and all(
        len(table.encoding) == 1 for table in distinct
    )
    columns = [vars(table) for table in (distinct if shared else tables)]
    joined = BlockTable(
        *(
            joined_columns([column[field.name] for column in columns])
            for field in fields(BlockTable)
        )
    )
    if not shared:
        return joined
    return BlockTable(*(condensed(column[rows]) for column in vars(joined).values()))


def joined_axis(axes: Sequence[GridAxis]) -> GridAxis:
    """The blocks of axes that end where their last block does, one after the other."""
    return GridAxis.from_runs(
        np.concatenate([axis.run_lengths for axis in axes]),
        np.concatenate([axis.run_counts for axis in axes]),
    )


def _joined_order(counts: list[int], grid_shape: tuple[int, ...], axis: int) -> Int64Array | None:
    """The order that brings the rows of all inputs into C order; None if they are in it."""
    outer = int(np.prod(grid_shape[:axis], dtype=np.int64))
    if outer == 1:
        return None
    inner = int(np.prod(grid_shape[axis + 1 :], dtype=np.int64))
    # Inputs of 1 and 2 blocks along axis 1 of 2 x (1 + 2) blocks have the rows 0 1 and 2 3 4 5. Row
    # 0 of the result is 0 | 2 3, its row 1 is 1 | 4 5: in C order of the result, 0 2 3 1 4 5.
    # Here count = [1, 2], base = [0, 2], first = [0, 2, 3], and stride = [1, 2, 2].
    count = np.array(counts, np.int64) * inner
    base = (np.cumsum(count) - count) * outer
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    first = np.repeat(base, count) + within
    stride = np.repeat(count, count)
    return (first + np.arange(outer)[:, np.newaxis] * stride).reshape(-1)


def _interned_encodings(
    arrays: Sequence[VirtualArray], joined: BlockTable
) -> tuple[tuple[Encoding, ...], NDArray[np.int32]]:
    held = [array.encodings for array in arrays]
    if len(held[0]) == 1 and held.count(held[0]) == len(held):
        return held[0], joined.encoding
    interned: dict[Encoding, int] = {}
    known = [
        interned.setdefault(encoding, len(interned))
        for encoding in itertools.chain.from_iterable(held)
    ]
    sizes = [len(array.blocks.encoding) for array in arrays]
    column = _renumbered(joined.encoding, sizes, list(map(len, held)), known)
    return tuple(interned), column


def _interned_manifests(
    arrays: Sequence[VirtualArray], joined: BlockTable
) -> tuple[tuple[Manifest, ...], NDArray[np.int32]]:
    held = [array.manifests for array in arrays]
    n_held = list(map(len, held))
    listed = list(itertools.chain.from_iterable(held))
    distinct, known = identity_numbers(listed)
    if len(joined) == len(distinct) == len(arrays) == n_held.count(1):
        return tuple(listed), np.arange(len(listed), dtype=np.int32)
    sizes = [len(array.blocks.encoding) for array in arrays]
    if len(distinct) == len(arrays) == n_held.count(1):
        return tuple(listed), np.repeat(np.arange(len(listed), dtype=np.int32), sizes)
    column = _renumbered(joined.manifest, sizes, n_held, known)
    return tuple(distinct), np.maximum(column, 0)


def _renumbered(
    joined: NDArray[np.int32], n_rows: list[int], n_known: list[int], known: Iterable[int]
) -> NDArray[np.int32]:
    """Turn indices into each array's own list into indices of the common list.

    Indices without an entry (missing blocks) become `MISSING_BLOCK`.
    """
    # Arrays of 2 and 1 encodings: known = [0, 1, 0] says that the second's is the first's first.
    # Of rows [1, -1] of one and [0] of the other, the numbers in `known` are [1, none, 2]: the
    # common numbers are [1, MISSING_BLOCK, 0].
    sizes = np.array(n_rows, np.int64)
    base = np.cumsum(n_known) - n_known
    own = joined.astype(np.int64)
    absent = (own < 0) | (own >= np.repeat(np.array(n_known, np.int64), sizes))
    lookup = np.array([*known, MISSING_BLOCK], np.int32)
    return lookup[np.where(absent, -1, own + np.repeat(base, sizes))]


SMALL_MANIFEST_ROWS = 4096
"""Manifests of up to so many rows cost more as objects than as rows of a larger manifest."""


def compacted(array: VirtualArray) -> VirtualArray:
    """Put the rows of many small manifests in memory into one, which blocks then point into."""
    small, kept = _small_manifests(array.manifests)
    if len(small) < 2:
        return array
    sizes = np.fromiter((len(manifest.state) for manifest in small), np.int64, len(small))
    number = np.full(len(array.manifests), len(kept), np.int32)
    shift = np.zeros(len(array.manifests), np.int64)
    if kept:
        is_kept = np.isin(np.arange(len(number)), list(kept))
        number[is_kept] = np.arange(len(kept))
        shift[~is_kept] = np.cumsum(sizes) - sizes
    else:
        shift = np.cumsum(sizes) - sizes
    blocks = array.blocks
    return array.with_changes(
        manifests=(*kept.values(), ChunkManifest.concatenate(small)),
        blocks=replace(
            blocks,
            manifest=condensed(number[blocks.manifest]),
            first_row=condensed(blocks.first_row + shift[blocks.manifest]),
        ),
    )


def _small_manifests(
    manifests: Sequence[Manifest],
) -> tuple[list[ChunkManifest], dict[int, Manifest]]:
    """Small manifests, and the others by their number."""
    small: list[ChunkManifest] = []
    kept: dict[int, Manifest] = {}
    for number, manifest in enumerate(manifests):
        if isinstance(manifest, ChunkManifest) and len(manifest.state) <= SMALL_MANIFEST_ROWS:
            small.append(manifest)
        else:
            kept[number] = manifest
    return small, kept


# Grids of numbers as boxes of equal numbers


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
        cells = chosen[region_of(at, counts)]
        rows = base + np.arange(part.n_blocks, dtype=np.int64).reshape(counts)
        free = part.held_blocks & (cells < 0)
        cells[free] = rows[free]
    return chosen
