"""Memory for results that are copied on and dropped, used again and again.

A large array of its own costs more than filling it: the system clears every page first.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError

__all__ = ["KEPT_BYTES", "Scratch", "empty", "scratch"]

KEPT_BYTES = 256 * 2**20
"""Most bytes that are kept for the next results: two super-chunks of the direct view."""
LEAST_BYTES = 2**20
"""Smaller results lie in memory of their own, which the C library keeps by itself."""


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array to be filled; nothing is ever copied into the gaps between members of a compound."""
    allocate = np.zeros if dtype.names else np.empty
    try:
        return allocate(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise _too_large(shape, dtype) from error


def _too_large(shape: Sequence[int], dtype: np.dtype[Any]) -> InvalidRequestError:
    n_bytes = math.prod(shape) * dtype.itemsize
    return InvalidRequestError(
        f"an array of shape {tuple(shape)} has {n_bytes} bytes, more than there is memory for:"
        " select less of it"
    )


class Scratch:
    """Gives arrays whose memory goes to others once nothing refers to it any more. Thread-safe.

    Parameters
    ----------
    kept_bytes
        Most bytes that are kept while no array uses them.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self.kept_bytes = kept_bytes
        # Threads take and give with single operations of a deque, which need no lock: memory may
        # come back in the middle of anything.
        self._free: deque[NDArray[np.uint8]] = deque()

    @property
    def n_bytes(self) -> int:
        """Bytes that are kept now."""
        return sum(block.nbytes for block in list(self._free))

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array with anything in it, as of `numpy.empty`."""
        n_elements = math.prod(shape)
        if n_elements * dtype.itemsize < LEAST_BYTES or dtype.kind not in "biufcmM":
            return empty(shape, dtype)
        try:
            lease: Any = _Lease(self, self._taken(n_elements * dtype.itemsize))
        except (MemoryError, ValueError) as error:
            raise _too_large(shape, dtype) from error
        return np.frombuffer(lease, dtype, n_elements).reshape(shape)

    def _taken(self, n_bytes: int) -> NDArray[np.uint8]:
        """A kept block of about the size; else a new one."""
        for _ in range(len(self._free)):
            try:
                block = self._free.popleft()
            except IndexError:  # another thread was first
                break
            if n_bytes <= block.nbytes <= 4 * n_bytes:
                return block
            self.give(block)
        return np.empty(n_bytes, np.uint8)

    def give(self, block: NDArray[np.uint8]) -> None:
        """Take a block back; those that came back first are dropped, if they are too much."""
        self._free.append(block)
        while self.n_bytes > self.kept_bytes:
            try:
                self._free.popleft()
            except IndexError:
                break


class _Lease:
    """A block of memory while arrays lie in it: they keep this object alive, and it comes back."""

    __slots__ = ("_block", "_scratch")

    def __init__(self, scratch: Scratch, block: NDArray[np.uint8]) -> None:
        self._scratch, self._block = scratch, block

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self._block)

    def __del__(self) -> None:
        self._scratch.give(self._block)


scratch = Scratch()
"""That of this process."""
