"""How many requests are in flight at a time, over all readers of the process, and how long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gridref.forks import tell_in_children

__all__ = ["MAX_REQUESTS", "RequestLimit", "requests_in_flight", "seconds_for", "within_limit"]

MAX_REQUESTS = 64
"""Most requests that are in flight at a time."""
LONGEST_ANSWER = 120.0
"""Seconds that an answer may take whatever its size."""
SLOWEST = 32 * 2**10
"""Bytes a second that a server has to send beyond that."""


def seconds_for(n_bytes: int) -> float:
    """How long a server may take to send so many bytes."""
    return LONGEST_ANSWER + n_bytes / SLOWEST


def within_limit(filesystem: Any, method: str, n_bytes: int = 0) -> Callable[..., Any]:
    """A method of an fsspec filesystem that gives up when it has had its time.

    Only those that wait on fsspec's event loop can be left; others have their own limits, or none.
    """
    if not getattr(filesystem, "async_impl", False) or filesystem.asynchronous:
        asked: Callable[..., Any] = getattr(filesystem, method)
        return asked

    def ask(*arguments: Any, **options: Any) -> Any:
        from fsspec.asyn import sync

        coroutine = getattr(filesystem, f"_{method}")
        return sync(filesystem.loop, coroutine, *arguments, timeout=seconds_for(n_bytes), **options)

    return ask


class RequestLimit:
    """Limits the number of requests that are in flight at a time. Thread-safe."""

    def __init__(self, most: int = MAX_REQUESTS) -> None:
        self.most = most
        tell_in_children(self)
        self.after_fork()

    def after_fork(self) -> None:
        """Forget requests of the parent process."""
        self._n_going = 0
        self._changed = threading.Condition()

    @contextmanager
    def going(self, n_requests: int) -> Iterator[None]:
        """Wait until `n_requests` more may be in flight, and count them in the ``with`` block."""
        with self._changed:
            self._changed.wait_for(lambda: self._n_going + n_requests <= self.most)
            self._n_going += n_requests
        try:
            yield
        finally:
            with self._changed:
                self._n_going -= n_requests
                self._changed.notify_all()


requests_in_flight = RequestLimit()
"""The limit of this process."""
