"""The checksum of HDF5 metadata, Jenkins' lookup3, for one block or for many at once.

Newer structures (version 2 object headers, fixed and extensible arrays, version 2 B-trees) end
with it. HDF5 File Format Specification v3, "I.A. This Document"; the algorithm is Bob Jenkins'
`lookup3 <https://www.burtleburtle.net/bob/hash/doobs.html>`_, ``hashlittle`` with an initial
value of 0, on bytes taken as little-endian words.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

__all__ = ["lookup3", "lookup3_rows"]

_SEED = 0xDEADBEEF
_WORD = 0xFFFFFFFF
_BLOCK_BYTES = 12
_TRANSPOSED_ROWS = 16
_FEW_ROWS = 8  # below, looping over rows in Python is faster than numpy on short vectors

# Each step changes one of the three state words by another: (target, other, rotation); the mixing
# steps also add the third word to `other`.
_MIX_STEPS = ((0, 2, 4), (1, 0, 6), (2, 1, 8), (0, 2, 16), (1, 0, 19), (2, 1, 4))
_FINAL_STEPS = ((2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24))


def _shifts(
    steps: tuple[tuple[int, int, int], ...],
) -> list[tuple[int, int, NDArray[np.uint32], NDArray[np.uint32]]]:
    """A rotation as shifts to the left and to the right; arrays, as they are fastest in numpy."""
    return [
        (target, other, np.array(bits, np.uint32), np.array(32 - bits, np.uint32))
        for target, other, bits in steps
    ]


_MIX_SHIFTS, _FINAL_SHIFTS = _shifts(_MIX_STEPS), _shifts(_FINAL_STEPS)
_KEEP_BYTES = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF], np.uint32)


def lookup3(data: bytes | memoryview) -> int:
    """Checksum of one block of metadata.

    Parameters
    ----------
    data
        The block without the checksum that follows it.
    """
    length = len(data)
    a = b = c = (_SEED + length) & _WORD
    if not length:
        return c
    padded = bytes(data) + bytes(-length % _BLOCK_BYTES)
    words = struct.unpack(f"<{len(padded) // 4}I", padded)
    for index in range(0, len(words) - 3, 3):
        a += words[index]
        b += words[index + 1]
        c = (c + words[index + 2]) & _WORD
        a = ((a - c) & _WORD) ^ (c << 4 & _WORD | c >> 28)
        c += b
        b = ((b - a) & _WORD) ^ (a << 6 & _WORD | a >> 26)
        a += c
        c = ((c - b) & _WORD) ^ (b << 8 & _WORD | b >> 24)
        b += a
        a = ((a - c) & _WORD) ^ (c << 16 & _WORD | c >> 16)
        c += b
        b = ((b - a) & _WORD) ^ (a << 19 & _WORD | a >> 13)
        a += c
        c = ((c - b) & _WORD) ^ (b << 4 & _WORD | b >> 28)
        b += a
    state = [(a + words[-3]) & _WORD, (b + words[-2]) & _WORD, (c + words[-1]) & _WORD]
    for target, other, bits in _FINAL_STEPS:
        word = state[other]
        rotated = (word << bits | word >> (32 - bits)) & _WORD
        state[target] = ((state[target] ^ word) - rotated) & _WORD
    return int(state[2])


def lookup3_rows(rows: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Checksums of many blocks of metadata.

    All rows go through the same rounds side by side, the longest first, so that the rows which
    still have bytes left are always the first ones.

    Parameters
    ----------
    rows
        (n, width) one block a row.
    lengths
        (n,) how many bytes of each row count, at least 1.

    Returns
    -------
    NDArray[np.uint32]
        (n,) checksums.
    """
    if len(rows) < _FEW_ROWS:
        pairs = zip(rows, lengths.tolist(), strict=True)
        return np.array([lookup3(row[:length].tobytes()) for row, length in pairs], np.uint32)
    order = np.argsort(-lengths, kind="stable")
    counts = lengths[order]
    words = _padded_words(rows, order, counts)
    n_rounds = (counts + (_BLOCK_BYTES - 1)) // _BLOCK_BYTES
    # How many rows have more than r rounds, for each round r.
    left = np.searchsorted(-n_rounds, -np.arange(len(words) + 1), side="left").tolist()
    state = np.empty((3, len(rows)), np.uint32)
    state[:] = (counts + _SEED).astype(np.uint32)
    scratch = np.empty((2, len(rows)), np.uint32)
    for index, block in enumerate(words):
        active, going_on = left[index], left[index + 1]
        state[:, :active] += block[:, :active]
        _mix(state[:, :going_on], scratch[:, :going_on])
        _finalise(state[:, going_on:active], scratch[:, going_on:active])
    checksums = np.empty(len(rows), np.uint32)
    checksums[order] = state[2]
    return checksums


def _padded_words(
    rows: NDArray[np.uint8], order: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Little-endian words as (round, 3, row), each row filled up with zeros to whole rounds."""
    n_rounds = -(-int(counts[0]) // _BLOCK_BYTES)
    words = np.zeros((n_rounds * 3, len(rows)), "<u4")
    n_words = min(n_rounds * 3, -(-int(counts.max()) // 4))
    if rows.shape[1] < 4 * n_words:
        rows = np.pad(rows, ((0, 0), (0, 4 * n_words - rows.shape[1])))
    row_words = rows[:, : 4 * n_words].view("<u4")
    # Few rows at a time: rows lie powers of two apart, where caches keep only a few of them.
    for start in range(0, len(rows), _TRANSPOSED_ROWS):
        stop = start + _TRANSPOSED_ROWS
        words[:n_words, start:stop] = row_words[order[start:stop]].T
    # Words of the last round: keep only those bytes that count.
    last = ((counts - 1) // _BLOCK_BYTES * 3)[:, None] + np.arange(3)
    n_kept = np.clip(counts[:, None] - 4 * last, 0, 4)
    words[last, np.arange(len(rows))[:, None]] &= _KEEP_BYTES[n_kept]
    return words.astype(np.uint32, copy=False).reshape(n_rounds, 3, len(rows))


def _mix(state: NDArray[np.uint32], scratch: NDArray[np.uint32]) -> None:
    if not state.shape[1]:
        return
    words, rotated, carry = list(state), scratch[0], scratch[1]
    for target, other, left, right in _MIX_SHIFTS:
        changed, word = words[target], words[other]
        np.subtract(changed, word, changed)
        np.left_shift(word, left, rotated)
        np.right_shift(word, right, carry)
        np.bitwise_or(rotated, carry, rotated)
        np.bitwise_xor(changed, rotated, changed)
        np.add(word, words[3 - target - other], word)


def _finalise(state: NDArray[np.uint32], scratch: NDArray[np.uint32]) -> None:
    if not state.shape[1]:
        return
    words, rotated, carry = list(state), scratch[0], scratch[1]
    for target, other, left, right in _FINAL_SHIFTS:
        changed, word = words[target], words[other]
        np.bitwise_xor(changed, word, changed)
        np.left_shift(word, left, rotated)
        np.right_shift(word, right, carry)
        np.bitwise_or(rotated, carry, rotated)
        np.subtract(changed, rotated, changed)
