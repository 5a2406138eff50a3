"""How many requests are in flight at a time, over all readers of the process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gridref.forks import tell_in_children

__all__ = ["MAX_REQUESTS", "RequestLimit", "requests_in_flight"]

MAX_REQUESTS = 64
"""Most requests that are in flight at a time."""


class RequestLimit:
    """Lets so many requests go at a time. Thread-safe.

    Parameters
    ----------
    most
        How many.
    """

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
        """Wait until `n_requests` may go, of which there are at most `most`; then they do."""
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
