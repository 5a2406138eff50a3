"""What an array's rows say, as a number that does not depend on the tables they lie in. Pure.

Equal content has an equal digest whatever the way it grew, so rows are hashed one by one and
composed: the hash of a sequence ``h`` is ``sum(h[i] * BASE**i)`` modulo 2**64, in two lanes. That
of two sequences laid one after the other follows from those of both (`joined`), and that of any
stretch from running sums. It tells contents apart and finds accidents; it is not made to withstand
somebody who wants two contents to have one hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.chunk_rows import ChunkBatch
from gridref.catalog.layout import RowLayout
from gridref.catalog.values import encoding_to_json
from gridref.model.array import MISSING_BLOCK, VirtualArray
from gridref.model.encoding import Encoding
from gridref.model.manifest import ChunkState, Source

__all__ = ["ContentDigest", "Hash", "hash_of_missing", "joined"]

Lanes = NDArray[np.uint64]
"""uint64 (2, n): two independent hashes of n things."""

_BASES = (0x9E3779B97F4A7C15 | 5, 0xC2B2AE3D27D4EB4F & ~7 | 5)
_INVERSES = tuple(pow(base, -1, 2**64) for base in _BASES)
_SEEDS = np.array([[0x243F6A8885A308D3], [0x13198A2E03707344]], np.uint64)
_K1, _K2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MASK = 2**64 - 1


@dataclass(frozen=True)
class Hash:
    """The hash of a sequence of `n` things."""

    lanes: tuple[int, int]
    n: int

    def __str__(self) -> str:
        return "".join(f"{lane:016x}" for lane in self.lanes)

    @classmethod
    def parse(cls, text: str, n: int) -> Hash:
        """The hash that was written as text."""
        return cls((int(text[:16], 16), int(text[16:], 16)), n)


def joined(hashes: Sequence[Hash]) -> Hash:
    """The hash of sequences laid one after the other."""
    lanes = [0, 0]
    n = 0
    for each in hashes:
        for lane, base in enumerate(_BASES):
            lanes[lane] = (lanes[lane] + each.lanes[lane] * pow(base, n, 2**64)) & _MASK
        n += each.n
    return Hash((lanes[0], lanes[1]), n)


def _hash_of(rows: Lanes) -> Hash:
    """The hash of the sequence of all of `rows`."""
    n = rows.shape[1]
    lanes = [int((rows[lane] * _powers(_BASES[lane], 0, n)).sum()) for lane in range(2)]
    return Hash((lanes[0], lanes[1]), n)


def _mixed(seed: Lanes, *columns: NDArray[np.integer]) -> Lanes:
    """Hashes of rows: `seed` (2, n or 1) mixed with one integer column after the other.

    The mixing function is that of splitmix64 (Steele, Lea, Flood 2014).
    """
    state: Lanes = seed ^ _SEEDS
    for column in columns:
        state = state + (column.astype(np.int64).view(np.uint64) + np.uint64(1)) * _K1
        state = (state ^ (state >> np.uint64(30))) * _K1
        state = (state ^ (state >> np.uint64(27))) * _K2
        state = state ^ (state >> np.uint64(31))
    return state


def _hashes_of_text(texts: Sequence[str]) -> Lanes:
    """Hashes of texts, one by one."""
    raw = b"".join(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        for text in texts
    )
    return np.frombuffer(raw, "<u8").reshape(-1, 2).T.astype(np.uint64)


_MISSING = _mixed(np.zeros((2, 1), np.uint64), np.zeros(1, np.int64))
"""The hash of a block that no file holds."""


def hash_of_missing(n_blocks: int) -> Hash:
    """The hash of so many blocks that no file holds."""
    return _hash_of(np.repeat(_MISSING, n_blocks, axis=1))


class ContentDigest:
    """Hashes the blocks and chunk rows of arrays while the rows are written.

    Parameters
    ----------
    arrays
        The arrays, and where their rows come to lie.
    """

    def __init__(self, arrays: Sequence[tuple[VirtualArray, RowLayout]]) -> None:
        self._arrays = [array for array, _ in arrays]
        self._starts, self._running = [], []
        for array, layout in arrays:
            present = array.blocks.encoding != MISSING_BLOCK
            shift = layout.first_row - array.blocks.first_row
            start, stop = (np.where(present, bound + shift, 0) for bound in layout.touched)
            self._starts.append(layout.first_row - start)
            self._running.append(_RunningHash(start, stop))
        self._sources = np.zeros((2, 0), np.uint64)

    def add_sources(self, sources: Sequence[Source], urls: Sequence[str]) -> None:
        """More sources that rows count into, with their addresses as they are stored."""
        texts = [
            repr((url, source.size_bytes, source.mtime_ns, source.etag, source.checksum))
            for source, url in zip(sources, urls, strict=True)
        ]
        self._sources = np.concatenate([self._sources, _hashes_of_text(texts)], axis=1)

    def add(self, batch: ChunkBatch) -> None:
        """The next rows."""
        rows = self._rows(batch)
        heads = np.flatnonzero(np.concatenate([[True], batch.array[1:] != batch.array[:-1]]))
        tails = [*heads[1:].tolist(), len(batch)]
        for start, stop in zip(heads.tolist(), tails, strict=True):
            self._running[int(batch.array[start])].add(rows[:, start:stop])

    def _rows(self, batch: ChunkBatch) -> Lanes:
        seed = np.zeros((2, len(batch)), np.uint64)
        ranges = np.flatnonzero(batch.state == ChunkState.RANGE)
        seed[:, ranges] = self._sources[:, batch.source[ranges]]
        inline = np.flatnonzero(batch.state == ChunkState.INLINE)
        if inline.size:
            stops = np.cumsum(batch.length[inline])
            content = _RunningHash(stops - batch.length[inline], stops)
            content.add(
                np.broadcast_to(
                    batch.inline.astype(np.uint64) + np.uint64(1), (2, batch.inline.size)
                )
            )
            seed[:, inline] = content.stretches()
        masks = batch.filter_mask.astype(np.int64)
        return _mixed(seed, batch.offset, batch.length, batch.state.astype(np.int64), masks)

    def finished(self) -> list[Hash]:
        """The hash of each array."""
        return [
            _hash_of(_block_hashes(*each))
            for each in zip(self._arrays, self._starts, self._running, strict=True)
        ]


def _block_hashes(array: VirtualArray, first: NDArray[np.int64], running: _RunningHash) -> Lanes:
    """uint64 (2, n_blocks): what turns into elements how, whatever rows it is kept in."""
    blocks = array.blocks
    present = blocks.encoding != MISSING_BLOCK
    lanes = np.concatenate([*map(_encoding_lanes, array.encodings), _MISSING], axis=1)
    seed = lanes[:, blocks.encoding] * _K2 + running.stretches()
    numbers = (blocks.row_stride, blocks.stored_shape, blocks.origin, blocks.step)
    columns = [column[:, axis] for column in numbers for axis in range(array.ndim)]
    return np.where(present, _mixed(seed, first, *columns), _MISSING)


@lru_cache(maxsize=4096)
def _encoding_lanes(encoding: Encoding) -> Lanes:
    return _hashes_of_text([json.dumps(encoding_to_json(encoding))])


class _RunningHash:
    """Hashes of stretches of a sequence that comes piece by piece.

    Parameters
    ----------
    starts, stops
        int64 (n,), half-open stretches of the sequence.
    """

    def __init__(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        self._starts = starts
        self._bounds, where = np.unique(np.concatenate([starts, stops]), return_inverse=True)
        self._of_start, self._of_stop = np.split(where.reshape(-1), 2)
        self._sums = np.zeros((2, self._bounds.size), np.uint64)
        self._total = np.zeros((2, 1), np.uint64)
        self._n = 0

    def add(self, rows: Lanes) -> None:
        """The next piece of the sequence: its hashes, uint64 (2, n)."""
        n = rows.shape[1]
        powers = np.stack([_powers(base, self._n, n) for base in _BASES])
        sums = np.concatenate([np.zeros((2, 1), np.uint64), np.cumsum(rows * powers, axis=1)], 1)
        sums = sums + self._total
        first, last = np.searchsorted(self._bounds, [self._n, self._n + n], side="left")
        last += int(last < self._bounds.size and self._bounds[last] == self._n + n)
        self._sums[:, first:last] = sums[:, self._bounds[first:last] - self._n]
        self._total = sums[:, -1:]
        self._n += n

    def stretches(self) -> Lanes:
        """uint64 (2, n), the hash of each stretch as a sequence of its own."""
        sums = self._sums[:, self._of_stop] - self._sums[:, self._of_start]
        back = np.stack([_power_of_each(inverse, self._starts) for inverse in _INVERSES])
        return sums * back


def _powers(base: int, first: int, n: int) -> NDArray[np.uint64]:
    """``base ** (first + i)`` for i < n."""
    factors = np.full(n, base, np.uint64)
    if n:
        factors[0] = pow(base, first, 2**64)
    return np.multiply.accumulate(factors)


def _power_of_each(base: int, exponents: NDArray[np.int64]) -> NDArray[np.uint64]:
    """``base ** exponent`` for each of some exponents."""
    result = np.ones(exponents.size, np.uint64)
    rest = exponents.copy()
    while rest.any():
        result = np.where(rest & 1, result * np.uint64(base), result)
        rest >>= 1
        base = base * base & _MASK
    return result
