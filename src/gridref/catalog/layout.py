"""Which manifest rows an array needs, and where they come to lie in a table. Pure.

Blocks of one array may share a manifest, whole or in part, and a sliced array needs only some rows
of its manifests. For each block the range of rows that its window touches is taken; ranges that
overlap or touch are stored once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.model.array import MISSING_BLOCK, VirtualArray
from gridref.model.listing import touched_chunks
from gridref.typing import Int64Array

__all__ = ["RowLayout", "layout_rows"]


@dataclass(frozen=True, eq=False)
class RowLayout:
    """Runs of manifest rows, stored one after the other.

    Attributes
    ----------
    manifest
        int64 (n_runs,), the manifest of each run.
    start, stop
        int64 (n_runs,), half-open range of its rows.
    first_row
        int64 (n_blocks,), the blocks' new first rows, counted in the stored rows. It may lie before
        them where a window leaves out the first stored chunks.
    touched
        As `_rows_of_blocks` gives them: rows of the array's own manifests.
    """

    manifest: Int64Array
    start: Int64Array
    stop: Int64Array
    first_row: Int64Array
    touched: tuple[Int64Array, Int64Array]

    @property
    def n_rows(self) -> int:
        """Number of stored rows."""
        return int((self.stop - self.start).sum())


def _rows_of_blocks(array: VirtualArray) -> tuple[Int64Array, Int64Array]:
    """int64 (n_blocks,) each: half-open range of manifest rows that the window of a block touches.

    Meaningless for missing blocks.
    """
    blocks = array.blocks
    low, high = touched_chunks(array)
    backward = blocks.row_stride < 0
    start = blocks.manifest_row(slice(None), np.where(backward, high, low).T)
    stop = blocks.manifest_row(slice(None), np.where(backward, low, high).T) + 1
    return start, stop


def layout_rows(array: VirtualArray) -> RowLayout:
    """Lay out the rows of an array, manifests in the order in which blocks use them.

    Raises
    ------
    InvalidRequestError
        If a block points outside of its manifest.
    """
    blocks = array.blocks
    present = np.flatnonzero(blocks.encoding != MISSING_BLOCK)
    if present.size == 0:
        empty = np.zeros(0, np.int64)
        zeros = np.zeros(len(blocks), np.int64)
        return RowLayout(empty, empty, empty, zeros, (zeros, zeros))
    touched = _rows_of_blocks(array)
    start, stop = (column[present] for column in touched)
    used, first_use, of_block = np.unique(
        blocks.manifest[present], return_index=True, return_inverse=True
    )
    _check_manifests(array, used)
    n_rows = np.fromiter((array.manifests[i].n_rows for i in used.tolist()), np.int64, used.size)
    _check_rows(start, stop, n_rows[of_block], present)

    # All manifests on one axis, so that ranges of rows are plain intervals.
    base = np.zeros(used.size, np.int64)
    in_use_order = np.argsort(first_use)
    base[in_use_order] = np.cumsum(n_rows[in_use_order]) - n_rows[in_use_order]
    low, high = start + base[of_block], stop + base[of_block]
    order = np.argsort(low, kind="stable")
    reached = np.maximum.accumulate(high[order])
    begins = np.concatenate([[True], low[order][1:] > reached[:-1]])
    begins[1:] |= of_block[order][1:] != of_block[order][:-1]
    heads = np.flatnonzero(begins)
    run_low, run_high = low[order][heads], reached[np.append(heads[1:], order.size) - 1]
    run_manifest = of_block[order][heads]
    position = np.cumsum(run_high - run_low) - (run_high - run_low)

    run_of_block = np.empty(present.size, np.int64)
    run_of_block[order] = np.cumsum(begins) - 1
    first_row = np.zeros(len(blocks), np.int64)
    shift = base[of_block] - run_low[run_of_block] + position[run_of_block]
    first_row[present] = blocks.first_row[present] + shift
    return RowLayout(
        used[run_manifest].astype(np.int64),
        run_low - base[run_manifest],
        run_high - base[run_manifest],
        first_row,
        touched,
    )


def _check_manifests(array: VirtualArray, used: NDArray[np.int32]) -> None:
    if int(used[0]) < 0 or int(used[-1]) >= len(array.manifests):
        raise InvalidRequestError(
            f"blocks point to manifests {used[0]}..{used[-1]} of {len(array.manifests)}"
        )


def _check_rows(start: Int64Array, stop: Int64Array, n_rows: Int64Array, block: Int64Array) -> None:
    wrong = np.flatnonzero((start < 0) | (stop > n_rows))
    if wrong.size:
        i = int(wrong[0])
        raise InvalidRequestError(
            f"block {block[i]} needs rows {start[i]}-{stop[i]} of a manifest of {n_rows[i]}"
        )
