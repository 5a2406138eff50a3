"""Bytes that scans fetch along with metadata, since combining the files will ask for them next."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar

from gridref.cache import LRU
from gridref.model.manifest import Source

__all__ = ["AtHand", "current_at_hand", "keeps_at_hand"]

_KEPT_BYTES = 64 * 2**20


class AtHand:
    """Ranges of files as they were when they were scanned. Thread-safe.

    Those kept longest ago are dropped beyond 64 MiB: whoever wants them asks the server.
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


_current: ContextVar[AtHand | None] = ContextVar("gridref_at_hand", default=None)


def keeps_at_hand[**P, R](work: Callable[P, R]) -> Callable[P, R]:
    """Let scans in a call keep what reading in it will ask for.

    That is for one piece of work that scans and then reads: later, files may be others.
    """

    @functools.wraps(work)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        token = _current.set(AtHand())
        try:
            return work(*args, **kwargs)
        finally:
            _current.reset(token)

    return call


def current_at_hand() -> AtHand | None:
    """Where scans that run now keep bytes; None if nobody reads them afterwards."""
    return _current.get()
