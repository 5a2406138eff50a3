"""Plan the reads for a set of byte ranges. Pure.

`plan_reads` merges near ranges and reads overlapping ones once. It returns the reads, and the place
of each range in them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gridref.errors import InvalidRequestError
from gridref.typing import Int64Array


@dataclass(frozen=True)
class Merging:
    """When to read two ranges as one.

    Attributes
    ----------
    max_gap_bytes
        Most unneeded bytes between two ranges that are read as one.
    max_span_bytes
        Size up to which ranges are merged into one read. A single larger range stays one read.

    Raises
    ------
    InvalidRequestError
        For a negative gap or a span below 1.
    """

    max_gap_bytes: int
    max_span_bytes: int

    def __post_init__(self) -> None:
        if self.max_gap_bytes < 0 or self.max_span_bytes < 1:
            raise InvalidRequestError(f"gap must be >= 0 and span >= 1, got {self}")


LOCAL_MERGING = Merging(16 * 2**10, 8 * 2**20)
"""For files: copying 16 KiB out of the page cache takes as long as one more system call."""
REMOTE_MERGING = Merging(256 * 2**10, 16 * 2**20)
"""For requests over a network, with several in flight at once."""


@dataclass(frozen=True, eq=False)
class MergedReads:
    """Reads, and the place of each range in them.

    Attributes
    ----------
    start, stop
        int64 (n_reads,), half-open byte range of each read, ascending.
    read_of
        int64 (n_ranges,), the read that holds each range; -1 for an empty range.
    offset_in_read
        int64 (n_ranges,), where in its read each range starts.
    """

    start: Int64Array
    stop: Int64Array
    read_of: Int64Array
    offset_in_read: Int64Array

    def __len__(self) -> int:
        return len(self.start)


def plan_reads(offsets: ArrayLike, lengths: ArrayLike, merging: Merging) -> MergedReads:
    """Plan the reads for ranges in any order, which may touch, overlap or be equal.

    Ranges of 10 bytes at 100, 8 at 0 and 2 at 4 are two reads, of bytes 0..8 and 100..110: the
    ranges are in the reads 1, 0 and 0, from their bytes 0, 0 and 4 on.

    Parameters
    ----------
    offsets, lengths
        int64 (n_ranges,), first byte and size in bytes of each range.

    Raises
    ------
    InvalidRequestError
        For a negative offset or length, or columns of different sizes.
    """
    offset = np.asarray(offsets, np.int64).reshape(-1)
    length = np.asarray(lengths, np.int64).reshape(-1)
    if offset.shape != length.shape:
        raise InvalidRequestError(f"{offset.size} offsets for {length.size} lengths")
    if offset.size and (int(offset.min()) < 0 or int(length.min()) < 0):
        bad = int(np.flatnonzero((offset < 0) | (length < 0))[0])
        raise InvalidRequestError(f"byte range of {length[bad]} bytes at {offset[bad]}")
    if offset.size == 1 and length[0]:
        only = np.zeros(1, np.int64)
        return MergedReads(offset, offset + length, only, only)
    filled = np.flatnonzero(length)
    # The longest of the ranges with one start comes first, and holds the others.
    order = filled[np.lexsort((-length[filled], offset[filled]))]
    start = offset[order]
    stop = np.maximum.accumulate(start + length[order])
    heads = _first_of_reads(start, stop, merging)
    read_of = np.full(offset.size, -1, np.int64)
    read_of[order] = np.searchsorted(heads, np.arange(order.size), side="right") - 1
    offset_in_read = np.zeros(offset.size, np.int64)
    offset_in_read[order] = start - start[heads[read_of[order]]]
    lasts = np.append(heads[1:], order.size) - 1 if heads.size else heads
    return MergedReads(start[heads], stop[lasts], read_of, offset_in_read)


def _first_of_reads(start: Int64Array, stop: Int64Array, merging: Merging) -> Int64Array:
    """Positions, in the sorted ranges, of the first range of each read.

    `stop` is the running maximum of the ranges' ends. A range that begins a read ends beyond
    everything before it, so its running maximum is its own end.
    """
    if start.size == 0:
        return np.zeros(0, np.int64)
    apart = np.flatnonzero(start[1:] > stop[:-1] + merging.max_gap_bytes) + 1
    firsts = np.concatenate([[0], apart])
    ends = np.append(apart, start.size)
    too_long = stop[ends - 1] - start[firsts] > merging.max_span_bytes
    if not too_long.any():
        return firsts.astype(np.int64)
    heads: list[int] = firsts[~too_long].tolist()
    for first, end in zip(firsts[too_long].tolist(), ends[too_long].tolist(), strict=True):
        head = first
        while head < end:
            heads.append(head)
            limit = max(int(start[head]) + merging.max_span_bytes, int(stop[head]))
            head += int(np.searchsorted(stop[head:end], limit, side="right"))
    return np.sort(np.array(heads, np.int64))
