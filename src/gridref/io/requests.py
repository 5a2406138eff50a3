"""Requests of a piece of work: limits, counts, and the files that were opened.

`requests_in_flight` limits the requests of the whole process. `counted_traffic` counts requests and
bytes inside a ``with`` block, and `noted_files` records the files that are opened there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context, ContextVar
from typing import Any

from gridref.forks import new_lock, tell_in_children
from gridref.limits import limits
from gridref.model.manifest import Source

# Requests in flight in this process, and waiting for answers

MAX_REQUESTS = 64
"""Most requests in flight at a time."""


_at_waits: ContextVar[Callable[[], AbstractContextManager[None]]] = ContextVar(
    "gridref_at_waits", default=nullcontext
)


def tell_waits(context: Context, told: Callable[[], AbstractContextManager[None]]) -> None:
    """Let code in a context enter ``with told():`` whenever it waits for a server."""
    context.run(_at_waits.set, told)


def waiting() -> AbstractContextManager[None]:
    """A context in which a thread waits for a server and other threads can use the processor."""
    return _at_waits.get()()


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


# Counts of requests and bytes


class Traffic:
    """Requests and bytes. Thread-safe.

    Parameters
    ----------
    whole
        The traffic that this is a part of; requests and bytes count in both.

    Attributes
    ----------
    n_requests
        Reads, listings and questions for size and version that were sent; of local files, reads
        and listings only. A retry counts again.
    n_bytes
        Bytes of files in the answers.
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


_traffic: ContextVar[Traffic | None] = ContextVar("gridref_traffic", default=None)


@contextmanager
def counted_traffic() -> Iterator[Traffic]:
    """Count the requests of all readers that are made in the ``with`` block.

    What is counted in a block inside another one counts for both. A reader keeps counting there
    when other threads use it. One that is made in another thread does not, unless that runs in a
    copy of the context: make it before the threads start.
    """
    traffic = Traffic(_traffic.get())
    token = _traffic.set(traffic)
    try:
        yield traffic
    finally:
        _traffic.reset(token)


def current_traffic() -> Traffic:
    """The counter of readers that are made now."""
    return _traffic.get() or Traffic()


# Records of the files that were opened or looked for

type _Noted = dict[str, Source | None]

_noted: ContextVar[_Noted | None] = ContextVar("gridref_opened", default=None)


@contextmanager
def noted_files() -> Iterator[_Noted]:
    """Record by address all files that are opened in the ``with`` block, in this thread.

    Files that are opened for a scan are recorded with their state, others with None.
    """
    noted: _Noted = {}
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def note_opened(address: str, source: Source | None = None) -> None:
    """Record that a file is opened or looked for."""
    noted = _noted.get()
    if noted is not None:
        noted[address] = source or noted.get(address)
