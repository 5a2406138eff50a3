"""Projection of selections on chunks.

A slice (start, stop, stride) or an array of indices along an axis is cut into *pieces*, one for
each chunk that it touches. A piece says which chunk, which elements inside it, and where they go in
the output. A selection over several axes is the cross product of its axes' pieces. This is the
hyperslab algorithm of "Chunking Algorithms for NetCDF-C" (per-dimension slice projections, then an
odometer over them), extended to uneven edges and computed for all chunks at once in numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gridref.errors import InvalidRequestError, OutOfBoundsError, number_of
from gridref.model.grid import GridAxis
from gridref.typing import Int64Array


@dataclass(frozen=True)
class Progression:
    """A slice in normal form: ``start, start + step, ...``, `count` elements, `step` >= 1.

    `flipped` says that the caller asked for the elements in reverse (a negative stride): the output
    is to be reversed along the axis after reading.
    """

    start: int
    step: int
    count: int
    flipped: bool = False

    @classmethod
    def from_slice(cls, selection: slice, extent: int) -> Progression:
        """Normalise a slice over an axis of `extent` elements, with the meaning of Python's slices.

        Raises
        ------
        InvalidRequestError
            For a stride of 0.
        """
        try:
            start, stop, step = selection.indices(extent)
        except (ValueError, TypeError) as error:
            raise InvalidRequestError(f"bad slice {selection}: {error}") from error
        count = len(range(start, stop, step))
        if count == 0:
            return cls(0, 1, 0)
        if count == 1:  # the step means nothing, and may be larger than any number of 64 bits
            return cls(start, 1, 1)
        if step < 0:
            return cls(start + step * (count - 1), -step, count, flipped=True)
        return cls(start, step, count)


AxisSelection = Progression | Int64Array
"""The selection along one axis: a slice in normal form, or an array of indices."""


@dataclass(frozen=True, eq=False)
class SliceProjection:
    """The pieces of a slice along one axis; each field is an int64 array, one entry a piece.

    Attributes
    ----------
    chunk
        Chunk index along the axis.
    start, step, count
        The elements ``start, start + step, ...`` inside the chunk. A step may be negative, or 0:
        one element repeated.
    out_start
        Where in the output the piece begins; its elements follow each other there.
    """

    chunk: Int64Array
    start: Int64Array
    step: Int64Array
    count: Int64Array
    out_start: Int64Array

    def __len__(self) -> int:
        return len(self.chunk)

    def in_chunk(self, piece: int) -> slice:
        """Slice inside the chunk; for a step of 0, of the one element to repeat."""
        start, step = int(self.start[piece]), int(self.step[piece])
        if step == 0:
            return slice(start, start + 1)
        stop = start + step * (int(self.count[piece]) - 1) + (1 if step > 0 else -1)
        return slice(start, stop if stop >= 0 else None, step)

    def in_output(self, piece: int) -> slice:
        """Slice of the output."""
        start = int(self.out_start[piece])
        return slice(start, start + int(self.count[piece]))

    def take(self, pieces: NDArray[np.int64] | NDArray[np.bool_] | slice) -> SliceProjection:
        return SliceProjection(*[column[pieces] for column in vars(self).values()])


@dataclass(frozen=True, eq=False)
class IndexProjection:
    """The pieces of an array of indices along one axis.

    Attributes
    ----------
    chunk
        int64, chunk index along the axis, one entry a piece.
    splits
        int64, one entry more than pieces: piece ``p`` has the entries ``splits[p]:splits[p + 1]``
        of the next two.
    index, out_index
        int64: element inside the chunk, and its place in the output.
    """

    chunk: Int64Array
    splits: Int64Array
    index: Int64Array
    out_index: Int64Array

    def __len__(self) -> int:
        return len(self.chunk)

    @property
    def count(self) -> Int64Array:
        """Number of elements of each piece."""
        return np.diff(self.splits)

    def in_chunk(self, piece: int) -> Int64Array:
        """Indices inside the chunk."""
        return self.index[self.splits[piece] : self.splits[piece + 1]]

    def in_output(self, piece: int) -> Int64Array:
        """Indices in the output."""
        return self.out_index[self.splits[piece] : self.splits[piece + 1]]


def expand_ellipsis(key: Any, ndim: int) -> list[Any]:
    """An index with one entry per axis: ``x[..., 0]`` of three axes is ``[:, :, 0]``.

    Parameters
    ----------
    key
        One entry, or a tuple of them. An ellipsis stands for the axes left out; without one, those
        are the last ones.

    Raises
    ------
    InvalidRequestError
        For several ellipses, or more entries than axes.
    """
    indices = list(key) if isinstance(key, tuple) else [key]
    ellipses = [position for position, index in enumerate(indices) if index is Ellipsis]
    if len(ellipses) > 1:
        raise InvalidRequestError("a selection has at most one ellipsis")
    n_given = len(indices) - len(ellipses)
    if n_given > ndim:
        raise InvalidRequestError(
            f"{number_of(n_given, 'index', 'indices')} for an array of rank {ndim}"
        )
    at = ellipses[0] if ellipses else len(indices)
    return [*indices[:at], *[slice(None)] * (ndim - n_given), *indices[at + 1 :]]


def normalize_selection(
    selection: int | slice | ArrayLike, extent: int, dim: int | str = 0
) -> AxisSelection:
    """Bring the selection of a user along one axis into normal form.

    Parameters
    ----------
    selection
        An integer (a selection of one element), a slice, a boolean mask, or integers in any order
        and number; negative ones count from the end.
    extent
        Number of elements along the axis.
    dim
        Name or number of the axis, for messages.

    Raises
    ------
    OutOfBoundsError
        For indices out of range.
    InvalidRequestError
        For masks of another length, or anything else.
    """
    if isinstance(selection, slice):
        return Progression.from_slice(selection, extent)
    indices = np.asarray(selection)
    if indices.dtype == np.bool_:
        if indices.shape != (extent,):
            raise InvalidRequestError(
                f"mask of shape {indices.shape} for {number_of(extent, 'element')}"
                f" (dimension {dim!r})"
            )
        indices = np.flatnonzero(indices)
    if indices.size == 0:
        indices = indices.astype(np.int64)
    if indices.dtype.kind in "iu" and indices.dtype.itemsize < 8:
        indices = indices.astype(np.int64)  # small ones cannot be added to the extent
    if indices.dtype.kind not in "iu" or indices.ndim > 1:
        raise InvalidRequestError(
            f"an index is an integer, a slice or a list of integers, got {selection!r}"
            f" (dimension {dim!r})"
        )
    wrapped = np.where(indices < 0, indices + extent, indices).astype(np.int64)
    if wrapped.size and (int(wrapped.min()) < 0 or int(wrapped.max()) >= extent):
        beyond = indices[(wrapped < 0) | (wrapped >= extent)] if indices.ndim else indices
        raise OutOfBoundsError(f"index {beyond.flat[0]} is out of bounds for {dim!r} ({extent})")
    if wrapped.ndim == 0:
        return Progression(int(wrapped), 1, 1)
    return wrapped


def project(axis: GridAxis, selection: AxisSelection) -> SliceProjection | IndexProjection:
    """Project a selection in normal form on the chunks of an axis."""
    if isinstance(selection, Progression):
        return project_slice(axis, selection)
    return project_indices(axis, selection)


def project_slice(axis: GridAxis, selection: Progression) -> SliceProjection:
    """Project a slice on the chunks of an axis; the cost grows with the chunks it spans."""
    start, step, count = selection.start, selection.step, selection.count
    if count == 0:
        return SliceProjection(*(np.zeros(0, np.int64) for _ in range(5)))
    last = start + step * (count - 1)
    if last >= axis.extent or start < 0:
        raise InvalidRequestError(f"elements {start}..{last} of an axis of {axis.extent}")
    first = int(axis.locate(start))
    chunk_start = axis.starts_between(first, int(axis.locate(last)))
    chunk = np.arange(first, first + len(chunk_start))
    # Elements 3, 5, 7, 9 (start 3, step 2, count 4) on chunks that begin at 0, 4 and 8:
    # before = [0, 1, 3] of them are before each chunk, so that the chunks hold [1, 2, 1] of them,
    # the first of which inside its chunk is start - chunk_start + before * step = [3, 1, 1].
    # Selected elements before each chunk; the difference to the next chunk's is the chunk's own.
    before = chunk_start - start if step == 1 else -((start - chunk_start) // step)
    np.maximum(before, 0, out=before)
    piece_count = np.diff(before, append=count)
    hit = piece_count > 0
    if not hit.all():
        chunk, chunk_start, before = chunk[hit], chunk_start[hit], before[hit]
        piece_count = piece_count[hit]
    return SliceProjection(
        chunk,
        start - chunk_start + before * step,
        np.full(len(chunk), step, dtype=np.int64),
        piece_count,
        before,
    )


def project_indices(axis: GridAxis, indices: Int64Array) -> IndexProjection:
    """Project an array of indices, in any order and with repeats, on the chunks of an axis."""
    chunk = axis.locate(indices)
    return group_indices((chunk,), indices - axis.starts(chunk))[1]


def group_indices(
    keys: Sequence[Int64Array], index: Int64Array
) -> tuple[tuple[Int64Array, ...], IndexProjection]:
    """Sort elements into pieces of equal keys.

    Parameters
    ----------
    keys
        One or more int64 arrays, one entry an element; the last one is the chunk.
    index
        Element inside the chunk.

    Returns
    -------
    tuple
        The keys before the last of every piece, and the pieces.
    """
    # Chunks [1, 0, 1] of elements [5, 6, 7]: sorted by chunk they are elements [6, 5, 7], in order
    # [1, 0, 2]. A piece begins where the chunk changes: heads = [0, 1], so splits = [0, 1, 3].
    order = np.lexsort(keys[::-1])
    ordered = [key[order] for key in keys]
    changed = np.zeros(max(0, len(index) - 1), dtype=bool)
    for key in ordered:
        changed |= key[1:] != key[:-1]
    heads = np.flatnonzero(np.concatenate([[len(index) > 0], changed]))
    splits = np.append(heads, len(index)).astype(np.int64)
    pieces = [key[heads] for key in ordered]
    return tuple(pieces[:-1]), IndexProjection(pieces[-1], splits, index[order], order)


def project_progressions(
    start: Int64Array, step: Int64Array, count: Int64Array, chunk_length: Int64Array
) -> tuple[Int64Array, SliceProjection]:
    """Project many arithmetic progressions, each on a grid of equal chunks of its own.

    This is the inner level: progression ``i`` is what a selection takes of block ``i``.

    Parameters
    ----------
    start, step, count
        int64, one entry a progression: the stored elements ``start + step * j`` for
        ``0 <= j < count``. Steps may be negative or 0; counts are >= 1.
    chunk_length
        int64, length of the equal chunks that the progression is laid on.

    Returns
    -------
    tuple
        Which progression each piece belongs to, and the pieces; `SliceProjection.out_start` counts
        from the progression's first element.
    """
    # Start 7, step -3, count 3 on chunks of 4: elements 7, 4, 1, in ascending order 1, 4, 7. They
    # span chunks 0 to 1. Chunk 0 holds j = 0 (element 1), chunk 1 holds j = 1, 2 (elements 4, 7).
    # Counted backwards, out_start is [2, 0], and in_chunk is [1, 3]: 7 - 3 * 2 - 0 and 7 - 0 - 4.
    span = step * (count - 1)
    low = start + np.minimum(span, 0)
    high = start + np.maximum(span, 0)
    first = low // chunk_length
    last = high // chunk_length
    if (first == last).all():  # each in one chunk
        pieces = SliceProjection(first, start - first * chunk_length, step, count, 0 * first)
        return np.arange(len(start)), pieces
    stride = np.abs(step)
    # Strides up to the chunk length hit every chunk on the way; longer ones hit one element each.
    sparse = stride > chunk_length
    n_pieces = np.where(sparse, count, last - first + 1)
    owner = np.repeat(np.arange(len(start)), n_pieces)
    nth = np.arange(len(owner)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)
    low, stride, length, total = low[owner], stride[owner], chunk_length[owner], count[owner]
    sparse = sparse[owner]
    chunk = np.where(sparse, (low + nth * stride) // length, first[owner] + nth)
    divisor = np.maximum(stride, 1)
    # In ascending order, the piece holds the progression's elements j_first <= j < j_stop.
    j_first = np.where(sparse, nth, np.maximum(0, -((low - chunk * length) // divisor)))
    j_stop = np.where(
        sparse, nth + 1, np.minimum(total, -((low - (chunk + 1) * length) // divisor))
    )
    constant = stride == 0
    j_first = np.where(constant, 0, j_first)
    j_stop = np.where(constant, total, j_stop)
    signed = step[owner]
    out_start = np.where(signed < 0, total - j_stop, j_first)
    in_chunk = start[owner] + signed * out_start - chunk * length
    return owner, SliceProjection(chunk, in_chunk, signed, j_stop - j_first, out_start)
