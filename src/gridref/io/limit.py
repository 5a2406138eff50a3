"""How many requests are in flight at a time, over all readers of the process, and how long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context, ContextVar
from typing import Any

from gridref.forks import tell_in_children

__all__ = [
    "MAX_REQUESTS",
    "RequestLimit",
    "requests_in_flight",
    "seconds_for",
    "tell_waits",
    "waiting",
    "within_limit",
]

MAX_REQUESTS = 64
"""Most requests that are in flight at a time."""
LONGEST_ANSWER = 120.0
"""Seconds that an answer may take whatever its size."""
SLOWEST = 32 * 2**10
"""Bytes a second that a server has to send beyond that."""


_at_waits: ContextVar[Callable[[], AbstractContextManager[None]]] = ContextVar(
    "gridref_at_waits", default=nullcontext
)


def tell_waits(context: Context, told: Callable[[], AbstractContextManager[None]]) -> None:
    """Let what runs in a context enter ``with told():`` whenever it waits for a server."""
    context.run(_at_waits.set, told)


def waiting() -> AbstractContextManager[None]:
    """In its ``with`` block a thread waits for a server, and others can have the processor."""
    return _at_waits.get()()


def seconds_for(n_bytes: int) -> float:
    """How long a server may take to send so many bytes."""
    return LONGEST_ANSWER + n_bytes / SLOWEST


def within_limit(filesystem: Any, method: str, n_bytes: int = 0) -> Callable[..., Any]:
    """A method of an fsspec filesystem that gives up when it has had its time.

    Only those that wait on fsspec's event loop can be left; others have their own limits, or none.
    """
    has_no_loop = not getattr(filesystem, "async_impl", False) or filesystem.asynchronous

    def ask(*arguments: Any, **options: Any) -> Any:
        from fsspec.asyn import sync

        with waiting():
            if has_no_loop:
                return getattr(filesystem, method)(*arguments, **options)
            coroutine = getattr(filesystem, f"_{method}")
            limit = seconds_for(n_bytes)
            return sync(filesystem.loop, coroutine, *arguments, timeout=limit, **options)

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
        with waiting():
            with self._changed:
                self._changed.wait_for(lambda: self.begin(n_requests))
            try:
                yield
            finally:
                self.end(n_requests)

    def begin(self, n_requests: int) -> bool:
        """Count `n_requests` more, if so many may be in flight; who does that ends them, too."""
        with self._changed:
            may_begin = self._n_going + n_requests <= self.most
            self._n_going += n_requests * may_begin
        return may_begin

    def end(self, n_requests: int) -> None:
        """Count requests no longer."""
        with self._changed:
            self._n_going -= n_requests
            self._changed.notify_all()


requests_in_flight = RequestLimit()
"""The limit of this process."""
