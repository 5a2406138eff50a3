"""Requests and bytes of a piece of work, counted where they are sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gridref.forks import new_lock

__all__ = ["Traffic", "counted_traffic", "current_traffic"]


class Traffic:
    """Requests and bytes. Thread-safe.

    Parameters
    ----------
    whole
        The traffic that this is a part of: what is counted here is counted there too.

    Attributes
    ----------
    n_requests
        Reads, listings and questions for size and version that were sent; of local files, reads
        and listings only. One that is tried again counts again.
    n_bytes
        Bytes of files that came back.
    """

    def __init__(self, whole: Traffic | None = None) -> None:
        self._whole = whole
        self.n_requests = 0
        self.n_bytes = 0
        self._lock = new_lock()

    def add(self, n_requests: int, n_bytes: int = 0) -> None:
        """Add to the counts."""
        with self._lock:
            self.n_requests += n_requests
            self.n_bytes += n_bytes
        if self._whole is not None:
            self._whole.add(n_requests, n_bytes)


_current: ContextVar[Traffic | None] = ContextVar("gridref_traffic", default=None)


@contextmanager
def counted_traffic() -> Iterator[Traffic]:
    """Count what all readers ask for that are made inside of the ``with`` block.

    What is counted in a block inside of another one counts for both. A reader keeps counting there
    when other threads use it. One that is made in another thread does not, unless that runs in a
    copy of the context: make it before the threads start.
    """
    traffic = Traffic(_current.get())
    token = _current.set(traffic)
    try:
        yield traffic
    finally:
        _current.reset(token)


def current_traffic() -> Traffic:
    """Where a reader that is made now counts what it asks for."""
    return _current.get() or Traffic()
