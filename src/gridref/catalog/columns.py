"""How chunk references become columns that compress well, and back. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.typing import Int64Array

__all__ = ["gather_bytes", "offsets_from_steps", "steps_of_offsets"]


def steps_of_offsets(
    source: NDArray[np.int32], offset: Int64Array, length: Int64Array
) -> Int64Array:
    """Bytes between the end of the chunk before and this one, where both lie in the same source.

    Files hold most chunks back to back, so that nearly all steps are zero. The first row, and the
    first of each run of rows of one source, keep their offset.
    """
    steps = offset.copy()
    follows = np.flatnonzero(source[1:] == source[:-1]) + 1
    steps[follows] -= offset[follows - 1] + length[follows - 1]
    return steps


def offsets_from_steps(
    source: NDArray[np.int32], step: Int64Array, length: Int64Array
) -> Int64Array:
    """The offsets again."""
    if step.size == 0:
        return step.copy()
    starts_run = np.concatenate([[True], source[1:] != source[:-1]])
    moves = step.copy()
    moves[1:] += np.where(starts_run[1:], 0, length[:-1])
    reached = np.cumsum(moves)
    heads = np.flatnonzero(starts_run)
    before = reached[heads] - moves[heads]
    return reached - np.repeat(before, np.diff(np.append(heads, step.size)))


def gather_bytes(
    data: NDArray[np.uint8], offset: Int64Array, length: Int64Array
) -> NDArray[np.uint8]:
    """Byte ranges of `data`, back to back.

    Raises
    ------
    InvalidRequestError
        If a range reaches out of `data`.
    """
    if offset.size == 0:
        return np.zeros(0, np.uint8)
    if int(offset.min()) < 0 or int(length.min()) < 0 or int((offset + length).max()) > data.size:
        raise InvalidRequestError(f"an inline chunk reaches out of the {data.size} inline bytes")
    if (offset[1:] == offset[:-1] + length[:-1]).all():
        first = int(offset[0])
        return data[first : first + int(length.sum())]
    starts = np.cumsum(length) - length
    positions = np.arange(int(length.sum())) + np.repeat(offset - starts, length)
    return np.asarray(data[positions])
