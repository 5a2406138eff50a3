"""CRC-32C of stored chunks by their byte ranges, and which of them a read has to look at. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from gridref.typing import Int64Array

__all__ = ["ChunkChecksums", "KnownChecksums"]


class KnownChecksums(Protocol):
    """Checksums of the stored chunks of one source, at hand or to be loaded."""

    def load(self) -> ChunkChecksums | None:
        """The checksums; None if there are none of this source."""
        ...


@dataclass(frozen=True, eq=False)
class ChunkChecksums:
    """Checksums of all stored chunks of one source, by offset, then by length; each range once.

    Attributes
    ----------
    offset, length
        int64 (n,), the byte range of each chunk.
    crc32c
        uint32 (n,), CRC-32C (RFC 3720, appendix B.4) of its bytes.
    """

    offset: Int64Array
    length: Int64Array
    crc32c: NDArray[np.uint32]

    @classmethod
    def of(cls, offset: Int64Array, length: Int64Array, crc32c: NDArray[np.uint32]) -> Self:
        """Bring ranges in any order, some of them several times, in order."""
        order = np.lexsort((length, offset))
        offset, length = offset[order], length[order]
        first = np.ones(order.size, bool)
        first[1:] = (offset[1:] != offset[:-1]) | (length[1:] != length[:-1])
        return cls(offset[first], length[first], crc32c[order][first])

    @property
    def nbytes(self) -> int:
        """Size in memory, in bytes."""
        return self.offset.nbytes + self.length.nbytes + self.crc32c.nbytes

    def load(self) -> ChunkChecksums:
        """These."""
        return self

    def rows_of(self, offset: Int64Array, length: Int64Array) -> Int64Array:
        """int64 (n,), the number of the chunk that is exactly each range; -1 where none is."""
        row = np.searchsorted(self.offset, offset, side="left")
        stop = np.searchsorted(self.offset, offset, side="right")
        found = np.full(row.size, -1, np.int64)
        open_ones = np.flatnonzero(row < stop)
        while open_ones.size:  # once more for each further chunk that begins at the same byte
            equal = self.length[row[open_ones]] == length[open_ones]
            found[open_ones[equal]] = row[open_ones[equal]]
            row[open_ones] += 1
            open_ones = open_ones[~equal]
            open_ones = open_ones[row[open_ones] < stop[open_ones]]
        return found

    def rows_below(self, start: int, stop: int) -> Int64Array:
        """Numbers of the chunks that hold bytes of ``start:stop``; none if they do not hold all."""
        reached = self._reached
        low = int(np.searchsorted(reached, start, side="right"))
        high = int(np.searchsorted(self.offset, stop, side="left"))
        rows = np.arange(low, high)
        rows = rows[self.offset[low:high] + self.length[low:high] > start]
        if not rows.size:
            return rows
        ends = reached[rows]
        whole = self.offset[rows[0]] <= start and ends[-1] >= stop
        return rows if whole and (self.offset[rows[1:]] <= ends[:-1]).all() else rows[:0]

    @cached_property
    def _reached(self) -> Int64Array:
        """int64 (n,), how far the chunks up to each one reach."""
        return np.asarray(np.maximum.accumulate(self.offset + self.length))
