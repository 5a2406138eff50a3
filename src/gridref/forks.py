"""Renew locks, threads and connections in a child process of ``os.fork``.

Only the forking thread lives on in the child. A lock that another one held there would stay locked
for ever, and a pool of threads would take work that nobody does. Connections of fsspec's event loop
belong to the parent, and so does what tells that there is something to read from them.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet


class ForkAware(Protocol):
    """Has something that must not be taken over into a child process."""

    def after_fork(self) -> None:
        """Drop it. Called in the child before anything else."""
        ...


_locks: WeakSet[Any] = WeakSet()
_owners: WeakSet[ForkAware] = WeakSet()
_left: list[Any] = []
"""Event loops of the parent, in a child that was just forked."""


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


def _before_fork() -> None:
    """Remember fsspec's event loop, which fsspec itself forgets in the child."""
    module: Any = sys.modules.get("fsspec.asyn")
    _left[:] = [] if module is None else [loop for loop in module.loop if loop is not None]


def _leave(loop: Any) -> None:
    """Let an event loop of the parent count as closed here, without closing anything.

    Parent and child share one epoll instance: what the child takes out of it, as it does when it
    drops a connection, the parent is never told of again (epoll(7), "Questions and answers").
    The next request over that connection would wait until its time is over.
    """
    with suppress(AttributeError):  # loops of other packages
        loop._closed, loop._thread_id = True, None  # noqa: SLF001 - all that asks looks at these


def _after_fork() -> None:
    while _left:
        _leave(_left.pop())
    for lock in list(_locks):
        # What the standard library does with its own locks.
        lock._at_fork_reinit()  # noqa: SLF001
    for owner in list(_owners):
        owner.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
