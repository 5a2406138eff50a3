"""The stored chunks of an array as a table, one row for each chunk that a block shows. Pure.

Rows are in the order of the blocks in the outer grid, and within each block in C order of its
window. Any run of rows can be computed on its own, so an array of any size can be listed in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.manifest import Manifest
from gridref.typing import Int64Array

NO_ROW = -1
"""Manifest row of a block that no file holds; it is listed as one chunk."""


def touched_chunks(array: VirtualArray) -> tuple[Int64Array, Int64Array]:
    """int64 (n_blocks, ndim) each: first and last stored chunk that a block's window touches.

    Meaningless for missing blocks.
    """
    blocks = array.blocks
    first = blocks.origin
    last = blocks.origin + blocks.step * (array.block_shapes() - 1)
    lengths = array.stored_chunk_shapes
    return np.minimum(first, last) // lengths, np.maximum(first, last) // lengths


class ChunkListing:
    """Lists the stored chunks of an array in pieces of any size.

    A stored chunk that two blocks show is listed for both. A block that no file holds is one row.

    Parameters
    ----------
    array
        The array; its blocks are loaded.
    """

    def __init__(self, array: VirtualArray) -> None:
        self.array = array
        self.is_missing = array.blocks.encoding == MISSING_BLOCK
        low, high = touched_chunks(array)
        self.low = np.where(self.is_missing[:, np.newaxis], 0, low)
        self.n_chunks = np.where(self.is_missing[:, np.newaxis], 1, high - low + 1)
        self._of_block = self.n_chunks.prod(axis=1)
        self._ends = np.cumsum(self._of_block)
        self._leaps = bool((np.abs(array.blocks.step) > 1).any())
        self.runs_backward = bool((array.blocks.step < 0).any())

    @property
    def n_rows(self) -> int:
        """Number of rows, including chunks that a stride skips."""
        return int(self._ends[-1]) if self._ends.size else 0

    def pieces(self, n_rows: int) -> Iterator[ListedChunks]:
        """All rows, in pieces of at most `n_rows`."""
        for first in range(0, self.n_rows, n_rows):
            yield self.rows(first, min(self.n_rows, first + n_rows))

    def rows(self, first: int, stop: int) -> ListedChunks:
        """The rows from `first` to before `stop`, without chunks that a stride skips."""
        number = np.arange(first, stop)
        block = np.searchsorted(self._ends, number, side="right")
        rest = number - (self._ends - self._of_block)[block]
        index = np.empty((number.size, self.array.ndim), np.int64)
        for axis in reversed(range(self.array.ndim)):
            rest, index[:, axis] = np.divmod(rest, self.n_chunks[block, axis])
        listed = ListedChunks(self, block, index)
        if not self._leaps:
            return listed
        start, end = listed.bounds
        return listed.take((start < end).all(axis=1))

    @cached_property
    def extents(self) -> Int64Array:
        """int64 (n_blocks, ndim), shape of each block."""
        return self.array.block_shapes()

    @cached_property
    def first_element(self) -> Int64Array:
        """int64 (n_blocks, ndim), first element of each block in the array."""
        return self._summed(self.extents)

    @cached_property
    def first_chunk(self) -> Int64Array:
        """int64 (n_blocks, ndim), chunk coords of the first chunk of each block."""
        return self._summed(self.n_chunks)

    def _summed(self, counts: Int64Array) -> Int64Array:
        """Counts of the blocks before, along each axis; the largest one where they differ."""
        grid_shape = self.array.grid.grid_shape
        starts = []
        for axis in range(self.array.ndim):
            across = tuple(other for other in range(self.array.ndim) if other != axis)
            along = counts[:, axis].reshape(grid_shape).max(axis=across, initial=0)
            starts.append(np.cumsum(along) - along)
        if not starts:
            return np.zeros((len(counts), 0), np.int64)
        return np.stack([part.reshape(-1) for part in np.meshgrid(*starts, indexing="ij")], axis=-1)


@dataclass(frozen=True, eq=False)
class ListedChunks:
    """Some stored chunks of an array, one row each; most columns are computed when needed.

    Attributes
    ----------
    block
        int64 (n,), number of the block in C order of the outer grid.
    index
        int64 (n, ndim), index among the chunks that the block shows, in the order of the array.
    """

    listing: ChunkListing
    block: Int64Array
    index: Int64Array

    def __len__(self) -> int:
        return len(self.block)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> ListedChunks:
        """Some of the rows."""
        return ListedChunks(self.listing, self.block[rows], self.index[rows])

    @cached_property
    def chunk(self) -> Int64Array:
        """int64 (n, ndim), chunk coords in the array: counted along each axis over all blocks."""
        return self.listing.first_chunk[self.block] + self.index

    @cached_property
    def stored(self) -> Int64Array:
        """int64 (n, ndim), chunk coords in the block's stored array."""
        listing, block = self.listing, self.block
        if not listing.runs_backward:
            return listing.low[block] + self.index
        backward = listing.array.blocks.step[block] < 0
        last = listing.n_chunks[block] - 1
        return listing.low[block] + np.where(backward, last - self.index, self.index)

    @cached_property
    def row(self) -> Int64Array:
        """int64 (n,), row in the block's manifest, or `NO_ROW`."""
        rows = self.listing.array.blocks.manifest_row(self.block, self.stored.T)
        return np.where(self.listing.is_missing[self.block], NO_ROW, rows)

    def by_manifest(self) -> Iterator[tuple[Manifest, Int64Array, Int64Array]]:
        """Each manifest, with the numbers of the chunks that are in it, and their rows there."""
        array = self.listing.array
        held = np.flatnonzero(self.row != NO_ROW)
        manifest = array.blocks.manifest[self.block[held]]
        for number in np.unique(manifest).tolist():
            chunks = held[manifest == number]
            yield array.manifests[number], chunks, self.row[chunks]

    @cached_property
    def bounds(self) -> tuple[Int64Array, Int64Array]:
        """int64 (n, ndim) each: the elements of the array that a chunk holds, half-open.

        Element ``i`` of a block is stored element ``origin + step * i``: it is in chunk ``k`` of
        length ``c`` for ``k * c <= origin + step * i < (k + 1) * c``.
        """
        array, block = self.listing.array, self.block
        extent, before = self.listing.extents[block], self.listing.first_element[block]
        origin, step = array.blocks.origin[block], array.blocks.step[block]
        length = array.stored_chunk_shapes[block]
        by = np.maximum(np.abs(step), 1)
        ahead = self.stored * length - origin
        behind = ahead + length
        start = np.where(step > 0, -(-ahead // by), -((behind - 1) // by))
        stop = np.where(step > 0, -(-behind // by), -ahead // by + 1)
        whole = (step == 0) | self.listing.is_missing[block][:, np.newaxis]
        start = np.where(whole, 0, np.clip(start, 0, extent))
        return before + start, before + np.where(whole, extent, np.clip(stop, 0, extent))
