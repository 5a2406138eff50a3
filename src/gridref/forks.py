"""What a child process of ``os.fork`` makes anew: locks and threads of its parent.

Only the forking thread lives on in the child. A lock that another one held there would stay locked
for ever, and a pool of threads would take work that nobody does.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol
from weakref import WeakSet

__all__ = ["ForkAware", "new_lock", "new_rlock", "tell_in_children"]


class ForkAware(Protocol):
    """Has something that must not be taken over into a child process."""

    def after_fork(self) -> None:
        """Drop it. Called in the child before anything else."""
        ...


_locks: WeakSet[Any] = WeakSet()
_owners: WeakSet[ForkAware] = WeakSet()


def new_lock() -> threading.Lock:
    """A lock that is open in child processes."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def new_rlock() -> threading.RLock:
    """The same, for a thread that may take it several times."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def tell_in_children(owner: ForkAware) -> None:
    """Call an object's `after_fork` in child processes, as long as it lives."""
    _owners.add(owner)


def _after_fork() -> None:
    for lock in list(_locks):
        # What the standard library does with its own locks.
        lock._at_fork_reinit()  # noqa: SLF001
    for owner in list(_owners):
        owner.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
