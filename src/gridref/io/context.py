"""The context that a piece of work shares with every read below it: counts, records and hints.

One context variable holds one `Context`, and `working` changes some of it in a ``with`` block. A
reader takes what it needs when it is made, and keeps it when other threads use it.

Scans request bytes ahead of time. `Layouts` learns which blocks of a file hold its metadata, and
predicts them for files in the same folder. A `Beginning` of a file is requested before the scan
(`gridref.io.remote.Beginnings`). `AtHand` keeps bytes that combining the files will read next.
These are hints. A wrong one costs bytes or a request, and never changes what is read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from gridref.cache import LRU, cache_bytes
from gridref.forks import new_lock
from gridref.io.coalesce import REMOTE_MERGING, plan_reads
from gridref.model.grid import joined_ranges
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
        return joined_ranges(self.ranges.get(address, []))


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

    def knows(self, url: str) -> bool:
        """Whether a file of this folder and suffix was scanned."""
        return _kind_of(url) in self._hints

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
        if first_bytes > block_bytes and not self.knows(url):
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


# Bytes that combining will read, fetched along with the metadata


class AtHand:
    """Ranges of files as they were when they were scanned. Thread-safe.

    The oldest are dropped beyond 64 MiB: readers then ask the server for them.
    """

    def __init__(self) -> None:
        self._parts = LRU[bytes](cache_bytes(), lambda part: 300 + len(part))

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
