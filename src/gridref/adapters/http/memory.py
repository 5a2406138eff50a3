"""Memory of a server process: buffers of bodies are used again, not taken from the system anew."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["keep_freed_memory"]

KEPT_BYTES = 64 * 2**20
"""Freed memory that the process keeps at the end of each of its heaps."""
LARGEST_KEPT_BYTES = 32 * 2**20
"""Larger buffers are the system's own pages, as glibc bounds it."""
N_ARENAS = 2
"""Heaps of the process, which bounds what is kept in all."""

# Numbers of the parameters: mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> bool:
    """Tell glibc's allocator to keep the memory that large buffers leave.

    By default it gives most of it back at once, and the system clears each page again when the
    next buffer is filled: more than a third of the processor time of sending files.

    Returns
    -------
    bool
        Whether the allocator took it; False where there is no glibc.

    References
    ----------
    The manual page mallopt(3).
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = (
        (_MMAP_THRESHOLD, LARGEST_KEPT_BYTES),
        (_TRIM_THRESHOLD, KEPT_BYTES),
        (_ARENA_MAX, N_ARENAS),
    )
    taken = [mallopt(parameter, value) == 1 for parameter, value in settings]
    return all(taken)
