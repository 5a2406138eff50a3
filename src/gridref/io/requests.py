"""Limits of requests: how many are in flight in this process, and how long an answer may take."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gridref.forks import tell_in_children
from gridref.io.context import waiting
from gridref.limits import limits

MAX_REQUESTS = 64
"""Most requests in flight at a time."""


def within_limit(filesystem: Any, method: str, n_bytes: int = 0) -> Callable[..., Any]:
    """A method of an fsspec filesystem that fails after a time limit.

    Only methods that wait on fsspec's event loop have it; others have their own limits, or none.
    """
    has_no_loop = not getattr(filesystem, "async_impl", False) or filesystem.asynchronous

    def ask(*arguments: Any, **options: Any) -> Any:
        from fsspec.asyn import sync

        with waiting():
            if has_no_loop:
                return getattr(filesystem, method)(*arguments, **options)
            coroutine = getattr(filesystem, f"_{method}")
            limit = limits().seconds_for(n_bytes)
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
        """Count `n_requests` more, if so many may be in flight; the caller must end them."""
        with self._changed:
            may_begin = self._n_going + n_requests <= self.most
            self._n_going += n_requests * may_begin
        return may_begin

    def end(self, n_requests: int) -> None:
        """Stop counting some requests."""
        with self._changed:
            self._n_going -= n_requests
            self._changed.notify_all()


requests_in_flight = RequestLimit()
"""The limit of this process."""
