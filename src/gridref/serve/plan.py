"""Plan a read: the stored chunks that a selection needs, and where their elements go. Pure: no I/O.

`plan_read` projects a selection twice, on the blocks and inside them. Where the stored chunk
length, origin and step along an axis depend only on the block's place along it (nearly always),
both levels reduce to one list of pieces per axis, and the plan is their cross product. Otherwise
there is one cross product for every block that the selection touches.

Points are not a cross product of axes. `plan_points` groups them by stored chunk: each chunk is
read once.

`look_up` adds the chunk references to the pieces of a plan.

A contiguous variable of a file is one chunk, however large, and one point of it is a few bytes.
`runs_of` finds the bytes of an uncompressed chunk that a selection needs.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.encoding import Encoding
from gridref.model.manifest import ChunkManifest, ChunkState
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
from gridref.serve.choosing import (
    Choice,
    Part,
    choose,
    choose_points,
)
from gridref.typing import Int64Array

# Plans of selections: a cross product of pieces along each axis

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
    def array(self) -> VirtualArray: ...

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


type Crosses = tuple[CrossProduct, ...]


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
    return _planned(array, selection, _project_array)


def plan_with_overlays(
    array: VirtualArray, selection: Any = None
) -> tuple[ReadPlan, Choice[AxisSelection] | None]:
    """Plan the reading of a selection, from overlays where that is faster.

    Returns
    -------
    tuple
        The plan, and the choice that it is made by; None for the files alone.

    Raises
    ------
    InvalidRequestError
        For a selection that does not fit the array.
    """
    chosen: list[Choice[AxisSelection]] = []

    def project(array: VirtualArray, selections: Sequence[AxisSelection]) -> Crosses:
        choice = choose(array, selections) if array.overlays else None
        if choice is None:
            return _project_array(array, selections)
        chosen.append(choice)
        return tuple(itertools.chain.from_iterable(map(_project_part, choice.parts)))

    plan = _planned(array, selection, project)
    return plan, chosen[0] if chosen else None


def plan_in_files(
    array: VirtualArray, parts: Sequence[Part[AxisSelection]]
) -> Iterator[CrossProduct]:
    """What parts of a selection would need of the files, if no overlay answered for them."""
    for part in parts:
        yield from _project_array(array, part.in_files)


def _planned(
    array: VirtualArray,
    selection: Any,
    project: Callable[[VirtualArray, Sequence[AxisSelection]], Crosses],
) -> ReadPlan:
    indices = expand_ellipsis(() if selection is None else selection, array.ndim)
    selections = [
        normalize_selection(index, extent, dim)
        for index, extent, dim in zip(indices, array.shape, array.dims, strict=True)
    ]
    shape = tuple(
        selected.count if isinstance(selected, Progression) else len(selected)
        for selected in selections
    )
    return ReadPlan(
        array,
        shape,
        project(array, selections) if 0 not in shape else (),
        tuple(
            axis
            for axis, selected in enumerate(selections)
            if isinstance(selected, Progression) and selected.flipped
        ),
        tuple(axis for axis, index in enumerate(indices) if _is_integer(index)),
    )


def _is_integer(index: Any) -> bool:
    return not isinstance(index, slice) and np.ndim(index) == 0


def _project_part(part: Part[AxisSelection]) -> Crosses:
    """The pieces of a part of a selection, at their places in the whole."""
    return tuple(
        replace(cross, axes=tuple(map(_at_places, cross.axes, part.places)))
        for cross in _project_array(part.array, part.wanted)
    )


def _at_places(axis: AxisPieces, places: int | Int64Array) -> AxisPieces:
    pieces = axis.pieces
    if isinstance(pieces, SliceProjection):
        return replace(axis, pieces=replace(pieces, out_start=pieces.out_start + places))
    out_index = np.asarray(places)[pieces.out_index]
    return replace(axis, pieces=replace(pieces, out_index=out_index))


def _project_array(array: VirtualArray, selections: Sequence[AxisSelection]) -> Crosses:
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
    """Which pieces are in blocks that no file holds."""
    return np.asarray(batch.encoding == MISSING_BLOCK)


# Plans of single points


@dataclass(frozen=True, eq=False)
class PointSet:
    """Points, grouped by stored chunk: a piece is the points of one.

    Attributes
    ----------
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


def plan_points_with_overlays(
    array: VirtualArray, coords: Sequence[ArrayLike]
) -> tuple[tuple[PointSet, ...], Choice[Int64Array] | None]:
    """Plan the reading of points, from overlays where that is faster.

    Returns
    -------
    tuple
        Sets that hold each point once, and the choice that they are made by; None for the files
        alone.

    Raises
    ------
    InvalidRequestError
        As `plan_points` does.
    """
    indices = [np.asarray(along, np.int64).reshape(-1) for along in coords]
    _check(array, indices)
    choice = choose_points(array, indices) if array.overlays and len(indices[0]) else None
    if choice is None:
        return (plan_points(array, coords),), None
    return tuple(_points_of(part) for part in choice.parts), choice


def _points_of(part: Part[Int64Array]) -> PointSet:
    points = plan_points(part.array, part.wanted)
    return replace(points, out_index=np.asarray(part.places[0])[points.out_index])


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


# Pieces of a plan with the references of their stored chunks


@dataclass(frozen=True, eq=False)
class ManifestRows:
    """Pieces that are in one manifest.

    Attributes
    ----------
    members
        int64, numbers of the pieces in their batch.
    rows
        The reference of each one's stored chunk.
    """

    members: Int64Array
    rows: ChunkManifest


@dataclass(frozen=True, eq=False)
class LookedUp[Pieces: PieceSet]:
    """Pieces of a plan, with their references.

    Attributes
    ----------
    pieces
        A part of the plan.
    batch
        Some of its pieces.
    references
        By manifest. Pieces of blocks that no file holds are in none.
    """

    pieces: Pieces
    batch: PieceBatch
    references: tuple[ManifestRows, ...]


def look_up[Pieces: PieceSet](pieces: Pieces, batch: PieceBatch) -> LookedUp[Pieces]:
    """Look up the stored chunks of a batch of pieces."""
    return LookedUp(pieces, batch, tuple(_references(pieces.array, batch)))


def _references(array: VirtualArray, batch: PieceBatch) -> Iterator[ManifestRows]:
    present = np.flatnonzero(~is_missing_block(batch))
    if not len(present):
        return
    order = present[np.argsort(batch.manifest[present], kind="stable")]
    numbers = batch.manifest[order]
    for members in np.split(order, np.flatnonzero(numbers[1:] != numbers[:-1]) + 1):
        manifest = array.manifests[int(batch.manifest[members[0]])]
        yield ManifestRows(members, manifest.take(batch.row[members]))


def identify(looked_up: Iterable[LookedUp[CrossProduct]], digest: hashlib.blake2b) -> None:
    """Add to a digest all that the elements of pieces depend on.

    These are the elements of stored chunks and their places, the chunks themselves, and how they
    are decoded. Sources count by identity, not by their number in a catalog.
    """
    for part in looked_up:
        for axis in part.pieces.axes:
            assert isinstance(axis.pieces, SliceProjection)
            pieces = axis.pieces
            _add(digest, pieces.start, pieces.step, pieces.count, pieces.out_start)
        _add(digest, part.batch.piece, part.batch.shape)
        for references in part.references:
            used, numbers = np.unique(part.batch.encoding[references.members], return_inverse=True)
            _add(digest, references.members, numbers)
            for number in used.tolist():
                digest.update(_encoding_identity(part.pieces.array.encodings[number]))
            _identify_rows(references.rows, digest)


def _identify_rows(rows: ChunkManifest, digest: hashlib.blake2b) -> None:
    in_file = rows.state == ChunkState.RANGE
    used, numbers = np.unique(rows.source[in_file], return_inverse=True)
    for number in used.tolist():
        digest.update(rows.sources[number].identity.encode())
    _add(digest, numbers, rows.offset[in_file], rows.length, rows.state)
    if rows.filter_mask is not None and rows.filter_mask.any():
        _add(digest, rows.filter_mask)
    for row in np.flatnonzero(rows.state == ChunkState.INLINE).tolist():
        digest.update(rows.inline_bytes(row))


@lru_cache(maxsize=256)
def _encoding_identity(encoding: Encoding) -> bytes:
    return repr(encoding).encode()


def _add(digest: hashlib.blake2b, *columns: NDArray[np.generic]) -> None:
    for column in columns:
        digest.update(len(column).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(column))


# Bytes of an uncompressed chunk that a selection needs

LEAST_BYTES = 256 * 2**10
"""Smaller chunks are read whole: their parts cost as much to ask for."""
MOST_RUNS = 65_536
"""With more runs than this, chunks are read whole."""
RUN_BYTES = 4096
"""What can be read in the time that one more run takes."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Bytes side by side in a chunk, of equal length; in order, they are the selected elements.

    Attributes
    ----------
    offset
        int64 (n_runs,), first byte of each run in the chunk.
    n_bytes
        Size of each run.
    is_whole
        Whether it is the whole chunk.
    """

    shape: tuple[int, ...]
    offset: Int64Array
    n_bytes: int
    is_whole: bool = False


def runs_of(
    encoding: Encoding, shape: tuple[int, ...], stored_bytes: int, index: tuple[Any, ...]
) -> Runs | None:
    """The runs of a selection of a chunk, or None where the chunk is better read whole.

    Parameters
    ----------
    stored_bytes
        Its size in the file.
    index
        What is selected, as numpy takes it: slices, an open mesh, or the coords of points.
    """
    item_bytes = encoding.dtype.itemsize
    is_plain = [codec.name for codec in encoding.codecs] == ["bytes"] and not encoding.prefix
    if not is_plain or not shape or stored_bytes != math.prod(shape) * item_bytes:
        return None
    if all(isinstance(part, slice) for part in index):
        runs = _of_slices(shape, index)
    else:
        runs = _of_arrays(shape, index)
    if runs is None:
        return None
    n_bytes = runs.n_bytes * item_bytes
    if len(runs.offset) > 1 and len(runs.offset) * (n_bytes + RUN_BYTES) > stored_bytes:
        return None
    return Runs(runs.shape, runs.offset * item_bytes, n_bytes, n_bytes == stored_bytes)


def _of_slices(shape: tuple[int, ...], index: tuple[slice, ...]) -> Runs | None:
    """Runs counted in elements: along the last axes as far as what is selected is together."""
    ranges = [range(*part.indices(length)) for part, length in zip(index, shape, strict=True)]
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    selected = tuple(map(len, ranges))
    inner, together = len(shape), 1
    while inner and ranges[inner - 1].step == 1:
        inner -= 1
        together *= selected[inner]
        if selected[inner] != shape[inner]:
            break
    if math.prod(selected[:inner]) > MOST_RUNS:
        return None
    offset = np.zeros((1,) * inner, np.int64)
    for axis, (along, stride) in enumerate(zip(ranges[:inner], strides, strict=False)):
        starts = np.array(along, np.int64) * stride
        offset = offset + starts.reshape([-1 if other == axis else 1 for other in range(inner)])
    first = sum(r.start * n for r, n in zip(ranges[inner:], strides[inner:], strict=True))
    return Runs(selected, offset.reshape(-1) + first, together)


def _of_arrays(shape: tuple[int, ...], index: tuple[Any, ...]) -> Runs | None:
    """Single elements."""
    selected = np.broadcast_shapes(*(np.shape(part) for part in index))
    if math.prod(selected) > MOST_RUNS:
        return None
    starts = np.ravel_multi_index(tuple(np.broadcast_arrays(*index)), shape)
    return Runs(selected, np.asarray(starts, np.int64).reshape(-1), 1)
