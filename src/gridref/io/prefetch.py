"""Bytes that scans request ahead of time: metadata blocks, beginnings of files, coordinates.

`Layouts` learns which blocks of a file hold its metadata, and predicts them for files in the same
folder. `Beginnings` requests the beginnings of many files before they are scanned. `AtHand` keeps
bytes that combining the files will read next.

These are hints. A wrong one costs bytes or a request, and never changes what is read.

Waking up a thread for an answer costs more processor time than the request itself. The requests of
`Beginnings` are sent from the event loop, which wakes up no thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gridref.cache import LRU
from gridref.errors import GridrefError
from gridref.forks import new_lock
from gridref.io.address import absolute_url, is_local
from gridref.io.coalesce import REMOTE_MERGING, plan_reads
from gridref.io.remote import RemoteFiles, asked, describes_answers
from gridref.io.requests import requests_in_flight
from gridref.model.manifest import Source

# Blocks of metadata, learnt from files in the same folder

BLOCK_BYTES = 16 * 2**10
"""Size of a block, unless a scan uses another one."""
MAX_FIRST_RANGES = 4
"""Ranges of a file that are requested before anything of it is known."""

MAX_BLOCKS = 256
"""Most blocks of a hint: others are requested when they are needed."""
MAX_MISSES = 3
"""Files in a row that need less than half of a hint before it is learnt anew."""


@dataclass(frozen=True)
class _Hint:
    blocks: frozenset[int]
    n_misses: int = 0

    def after(self, used: frozenset[int]) -> _Hint:
        """The hint for the next file, after one that used these blocks."""
        both = self.blocks | used
        n_misses = self.n_misses + 1 if 2 * len(used) < len(both) else 0
        if n_misses >= MAX_MISSES or len(both) > MAX_BLOCKS:
            return _Hint(frozenset(sorted(used)[:MAX_BLOCKS]))
        return _Hint(both, n_misses)


class Layouts:
    """The blocks that scans of files used, by folder and suffix. Thread-safe."""

    def __init__(self) -> None:
        self._hints: dict[tuple[str, str], _Hint] = {}
        self._lock = new_lock()

    def expected(self, url: str) -> list[int]:
        """Numbers of the blocks that a scan of a file may use, ascending; the first is always 0."""
        hint = self._hints.get(_kind_of(url))
        return sorted({0} if hint is None else hint.blocks | {0})

    def ranges(
        self, url: str, block_bytes: int = BLOCK_BYTES, first_bytes: int = 0
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Starts and stops of byte ranges to ask for first; the first range starts at 0.

        If nothing is known about files beside it, one block, or `first_bytes`.
        """
        if first_bytes > block_bytes and _kind_of(url) not in self._hints:
            return (0,), (first_bytes,)
        return _runs(tuple(self.expected(url)), block_bytes)

    def learn(self, url: str, used: Collection[int]) -> None:
        """Take note of the blocks that a scan used."""
        kind, blocks = _kind_of(url), frozenset(used)
        with self._lock:
            known = self._hints.get(kind, _Hint(frozenset()))
            self._hints[kind] = known.after(blocks)


def _kind_of(url: str) -> tuple[str, str]:
    folder, _, name = url.partition("?")[0].rpartition("/")
    return folder, name.rpartition(".")[2]


@lru_cache(maxsize=64)
def _runs(blocks: tuple[int, ...], block_bytes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Byte ranges that cover blocks; near blocks are joined with what is between them."""
    offsets = [number * block_bytes for number in blocks]
    plan = plan_reads(offsets, [block_bytes] * len(blocks), REMOTE_MERGING)
    starts, stops = plan.start.tolist(), plan.stop.tolist()
    return tuple(starts[:MAX_FIRST_RANGES]), tuple(stops[:MAX_FIRST_RANGES])


_layouts: ContextVar[Layouts | None] = ContextVar("gridref_layouts", default=None)


@contextmanager
def learning_layouts(layouts: Layouts) -> Iterator[None]:
    """Let scans in the ``with`` block use these layouts, and add to them."""
    token = _layouts.set(layouts)
    try:
        yield
    finally:
        _layouts.reset(token)


def current_layouts() -> Layouts:
    """The layouts that scans use now."""
    return _layouts.get() or Layouts()


# Beginnings of files, requested before the scan


@dataclass(frozen=True)
class Beginning:
    """The beginning of a file, as it was requested.

    Attributes
    ----------
    located
        Its filesystem, and the path in it.
    starts, stops
        Half-open byte ranges; the first starts at 0.
    results
        For each range: its bytes and their file, or the exception.
    """

    located: tuple[Any, str]
    starts: Sequence[int]
    stops: Sequence[int]
    results: list[Any]


class Beginnings:
    """Requests the beginnings of files, and keeps each until it is taken. Thread-safe.

    Parameters
    ----------
    storage_options
        As for `open_for_scan`.
    layouts
        The expected places of reads in files.
    """

    def __init__(self, storage_options: Mapping[str, Any] | None, layouts: Layouts) -> None:
        self._files = RemoteFiles(storage_options)
        self._layouts = layouts
        self._came: dict[str, Beginning] = {}

    def ask(self, address: str, then: Callable[[], None], first_bytes: int = 0) -> None:
        """Request the beginning of a file; `then` is called when it has arrived or failed.

        The beginning is `first_bytes` until something is known about files beside it.

        Nothing is requested if answers do not describe the file, or if too many requests are in
        flight: the scan requests it then. Failures are kept, too: they count as the first attempt.
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
        """Take what arrived of a file; each beginning can be taken once."""
        return self._came.pop(url, None)


_running: set[Any] = set()
"""Tasks: an event loop itself keeps no references to them."""


def _keep(task: Any) -> None:
    _running.add(task)
    task.add_done_callback(_running.discard)


_beginnings: ContextVar[Beginnings | None] = ContextVar("gridref_beginnings", default=None)


@contextmanager
def using_beginnings(beginnings: Beginnings) -> Iterator[None]:
    """Let files that are opened in the ``with`` block use these beginnings."""
    token = _beginnings.set(beginnings)
    try:
        yield
    finally:
        _beginnings.reset(token)


def current_beginnings() -> Beginnings | None:
    """The beginnings for files that are opened now; None if none were requested."""
    return _beginnings.get()


# Bytes that combining will read, fetched along with the metadata

_KEPT_BYTES = 64 * 2**20


class AtHand:
    """Ranges of files as they were when they were scanned. Thread-safe.

    The oldest are dropped beyond 64 MiB: readers then ask the server for them.
    """

    def __init__(self) -> None:
        self._parts = LRU[bytes](_KEPT_BYTES, lambda part: 300 + len(part))

    def keep(self, source: Source, offsets: Sequence[int], parts: Sequence[bytes]) -> None:
        """Keep the bytes that begin at each of some offsets."""
        for offset, part in zip(offsets, parts, strict=True):
            self._parts.put((source, offset, len(part)), part)

    def parts(
        self, source: Source, offsets: Sequence[int], lengths: Sequence[int]
    ) -> list[bytes] | None:
        """The bytes of ranges, if all of them are kept."""
        parts = []
        for offset, length in zip(offsets, lengths, strict=True):
            part = self._parts.get((source, offset, length))
            if part is None:
                return None
            parts.append(part)
        return parts


_at_hand: ContextVar[AtHand | None] = ContextVar("gridref_at_hand", default=None)


def keeps_at_hand[**P, R](work: Callable[P, R]) -> Callable[P, R]:
    """Let scans in a call keep bytes that later reads of this call need.

    This is for one piece of work that scans and then reads: files may change later.
    """

    @functools.wraps(work)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        token = _at_hand.set(AtHand())
        try:
            return work(*args, **kwargs)
        finally:
            _at_hand.reset(token)

    return call


def current_at_hand() -> AtHand | None:
    """The store of bytes for scans that run now; None if nothing reads them afterwards."""
    return _at_hand.get()
