"""Locks on files, which end with the process that holds them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

try:
    import fcntl
except ImportError:  # Windows has none: writers are told apart by comparing only
    fcntl = None  # type: ignore[assignment]

__all__ = ["is_locked", "locked"]


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock of a file, which is made where there is none; waits while another holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # which ends the lock


def is_locked(path: str) -> bool:
    """Whether another process, or thread, holds the lock of a file."""
    if fcntl is None:
        return True
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
