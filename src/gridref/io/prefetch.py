"""Bytes that scans request ahead of time: metadata blocks, beginnings of files, coordinates.

`Layouts` learns which blocks of a file hold its metadata, and predicts them for files in the same
folder. A `Beginning` of a file is requested before the scan (`gridref.io.remote.Beginnings`).
`AtHand` keeps bytes that combining the files will read next.

These are hints. A wrong one costs bytes or a request, and never changes what is read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gridref.cache import LRU, cache_bytes
from gridref.forks import new_lock
from gridref.io.coalesce import REMOTE_MERGING, plan_reads
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
