"""Which blocks of a file hold its metadata, learnt from files beside it, to ask for them first.

A hint, never truth: a wrong one costs bytes or a request, and never changes what is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache

from gridref.forks import new_lock
from gridref.io.coalesce import REMOTE_MERGING, plan_reads

__all__ = ["BLOCK_BYTES", "Layouts", "current_layouts", "learning_layouts"]

BLOCK_BYTES = 16 * 2**10
"""Size of a block, unless someone scans in others."""
MAX_FIRST_RANGES = 4
"""Ranges of a file that are asked for before anything of it is known."""

MAX_BLOCKS = 256
"""Most blocks of a hint: what a scan reads beyond them is asked for when it is needed."""
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
    """Which blocks scans of files used, by folder and suffix. Thread-safe."""

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

        Where nothing is known of files beside it, that is one block, or `first_bytes`.
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
    """Byte ranges that cover blocks; near blocks are joined with what lies between them."""
    offsets = [number * block_bytes for number in blocks]
    plan = plan_reads(offsets, [block_bytes] * len(blocks), REMOTE_MERGING)
    starts, stops = plan.start.tolist(), plan.stop.tolist()
    return tuple(starts[:MAX_FIRST_RANGES]), tuple(stops[:MAX_FIRST_RANGES])


_current: ContextVar[Layouts | None] = ContextVar("gridref_layouts", default=None)


@contextmanager
def learning_layouts(layouts: Layouts) -> Iterator[None]:
    """Let scans inside of the ``with`` block learn from these layouts, and add to them."""
    token = _current.set(layouts)
    try:
        yield
    finally:
        _current.reset(token)


def current_layouts() -> Layouts:
    """What scans that run now learn from."""
    return _current.get() or Layouts()
