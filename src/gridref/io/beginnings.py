"""Beginnings of files that are asked for before anybody scans them, many at a time.

A thread that waits for a request is woken up for its answer, which costs more processor time than
the request itself. Requests that are sent from the event loop wake nobody up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from gridref.errors import GridrefError
from gridref.io.address import absolute_url, is_local
from gridref.io.answers import asked, describes_answers
from gridref.io.layouts import Layouts
from gridref.io.limit import requests_in_flight
from gridref.io.remote import RemoteFiles

__all__ = ["Beginning", "Beginnings", "current_beginnings", "using_beginnings"]


@dataclass(frozen=True)
class Beginning:
    """What was asked for of a file.

    Attributes
    ----------
    located
        Its filesystem, and the path in it.
    starts, stops
        Half-open byte ranges; the first starts at 0.
    results
        Of each range: bytes and the file that they are of, or what was raised.
    """

    located: tuple[Any, str]
    starts: Sequence[int]
    stops: Sequence[int]
    results: list[Any]


class Beginnings:
    """Asks for the beginnings of files, and keeps each until it is taken. Thread-safe.

    Parameters
    ----------
    storage_options
        As for `open_for_scan`.
    layouts
        Which bytes files are expected to be read at.
    """

    def __init__(self, storage_options: Mapping[str, Any] | None, layouts: Layouts) -> None:
        self._files = RemoteFiles(storage_options)
        self._layouts = layouts
        self._came: dict[str, Beginning] = {}

    def ask(self, address: str, then: Callable[[], None], first_bytes: int = 0) -> None:
        """Ask for the beginning of a file; `then` is called when it has come, or will not.

        That is `first_bytes`, as long as nothing is known of files beside it.

        Nothing is asked for where answers do not describe the file, or too many requests are in
        flight: whoever scans it does it then. Failures are kept, too: they are its first attempt.
        """
        url = absolute_url(address)
        try:
            located = None if is_local(url) else self._files.locate(url)
        except GridrefError:
            located = None
        if located is None or not describes_answers(located[0]):
            return then()
        starts, stops = self._layouts.ranges(url, first_bytes=first_bytes)
        if not requests_in_flight.begin(len(starts)):
            return then()

        async def fetch() -> None:
            try:
                results = await asked(*located, url, starts, stops)
                self._came[url] = Beginning(located, starts, stops, results)
            finally:
                requests_in_flight.end(len(starts))
                then()

        loop = located[0].loop
        loop.call_soon_threadsafe(lambda: _keep(loop.create_task(fetch())))
        return None

    def take(self, url: str) -> Beginning | None:
        """What came of a file, once."""
        return self._came.pop(url, None)


_running: set[Any] = set()
"""Tasks, which an event loop itself does not hold on to."""


def _keep(task: Any) -> None:
    _running.add(task)
    task.add_done_callback(_running.discard)


_current: ContextVar[Beginnings | None] = ContextVar("gridref_beginnings", default=None)


@contextmanager
def using_beginnings(beginnings: Beginnings) -> Iterator[None]:
    """Let files that are opened inside of the ``with`` block begin with what was asked for."""
    token = _current.set(beginnings)
    try:
        yield
    finally:
        _current.reset(token)


def current_beginnings() -> Beginnings | None:
    """Where files that are opened now find their beginnings; None if nothing was asked for."""
    return _current.get()
