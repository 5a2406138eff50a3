"""The context that a piece of work shares with every read below it: counts, records and hints.

One context variable holds one `Context`, and `working` changes some of it in a ``with`` block. A
reader takes what it needs when it is made, and keeps it when other threads use it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple

from gridref.forks import new_lock
from gridref.io.prefetch import AtHand, Beginning, Layouts
from gridref.model.manifest import Source

# Counts and records


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


class Reads:
    """Byte ranges that were read, by address.

    Attributes
    ----------
    ranges
        Half-open, in the order of the requests, without bytes that were only read along with them.
    """

    def __init__(self) -> None:
        self.ranges: dict[str, list[tuple[int, int]]] = {}

    def note(self, address: str, offsets: Sequence[int], lengths: Sequence[int]) -> None:
        """Record that ranges of a file are read."""
        known = self.ranges.setdefault(address, [])
        known += [(int(o), int(o + n)) for o, n in zip(offsets, lengths, strict=True) if n]

    def pieces(self, address: str) -> tuple[tuple[int, int], ...]:
        """The ranges of a file, ascending, those that touch or overlap as one."""
        joined: list[tuple[int, int]] = []
        for start, stop in sorted(self.ranges.get(address, [])):
            if joined and start <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(stop, joined[-1][1])
            else:
                joined.append((start, stop))
        return tuple(joined)


# What is shared, by all in one context


class Context(NamedTuple):
    """What reads share that are made now.

    Attributes
    ----------
    traffic
        Counts requests and bytes.
    opened
        Files that are opened or looked for, by address: those that are opened for a scan with
        their state, others with None.
    reads
        The byte ranges that scans read. With it, local files are read, and their requests counted,
        as if they were on a server.
    layouts
        Where the metadata of files was, and is expected to be in others.
    beginning
        Takes the beginning of a file that was requested ahead, if there is one.
    at_hand
        Bytes that are read again after the scan, if they are.
    waits
        Makes what a thread enters while it waits for a server: others use the processor.
    """

    traffic: Traffic | None = None
    opened: dict[str, Source | None] | None = None
    reads: Reads | None = None
    layouts: Layouts | None = None
    beginning: Callable[[str], Beginning | None] | None = None
    at_hand: AtHand | None = None
    waits: Callable[[], AbstractContextManager[None]] = nullcontext


_context: ContextVar[Context] = ContextVar("gridref", default=Context())  # noqa: B039 - a tuple


def current_context() -> Context:
    """What reads share that are made now."""
    return _context.get()


@contextmanager
def working(**changes: Any) -> Iterator[None]:
    """Change fields of the `Context` in the ``with`` block, in this thread."""
    token = _context.set(_context.get()._replace(**changes))
    try:
        yield
    finally:
        _context.reset(token)


@contextmanager
def counted_traffic() -> Iterator[Traffic]:
    """Count the requests of all readers that are made in the ``with`` block.

    What is counted in a block inside another one counts for both. A reader keeps counting there
    when other threads use it. One that is made in another thread does not, unless that runs in a
    copy of the context: make it before the threads start.
    """
    traffic = Traffic(_context.get().traffic)
    with working(traffic=traffic):
        yield traffic


def current_traffic() -> Traffic:
    """The counter of readers that are made now."""
    return _context.get().traffic or Traffic()


def note_opened(address: str, source: Source | None = None) -> None:
    """Record that a file is opened or looked for."""
    opened = _context.get().opened
    if opened is not None:
        opened[address] = source or opened.get(address)


def waiting() -> AbstractContextManager[None]:
    """A context in which a thread waits for a server and other threads can use the processor."""
    return _context.get().waits()


def keeps_at_hand[**P, R](work: Callable[P, R]) -> Callable[P, R]:
    """Let scans in a call keep bytes that later reads of this call need.

    This is for one piece of work that scans and then reads: files may change later.
    """

    @functools.wraps(work)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with working(at_hand=AtHand()):
            return work(*args, **kwargs)

    return call
