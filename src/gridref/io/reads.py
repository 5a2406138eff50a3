"""Which bytes of files a piece of work reads, as if each file lay on a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import override

from gridref.io.local import OpenFile
from gridref.io.traffic import current_traffic
from gridref.model.manifest import Source

__all__ = ["AsOnAServer", "Reads", "current_reads", "noted_reads"]


class Reads:
    """Byte ranges that were looked at, by address.

    Attributes
    ----------
    ranges
        Half-open, in the order in which they were asked for; what came along with them is not in.
    """

    def __init__(self) -> None:
        self.ranges: dict[str, list[tuple[int, int]]] = {}

    def note(self, address: str, offsets: Sequence[int], lengths: Sequence[int]) -> None:
        """Note that ranges of a file are looked at."""
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


_current: ContextVar[Reads | None] = ContextVar("gridref_reads", default=None)


@contextmanager
def noted_reads() -> Iterator[Reads]:
    """Note what scans inside of the ``with`` block look at, in this thread.

    Local files are read, and their requests counted, as if they were on a server.
    """
    noted = Reads()
    token = _current.set(noted)
    try:
        yield noted
    finally:
        _current.reset(token)


def current_reads() -> Reads | None:
    """Where scans that run now note what they look at; None if nobody asks."""
    return _current.get()


class AsOnAServer(OpenFile):
    """A local file that is read, and whose requests are counted, like one on a server."""

    def begin(
        self, url: str, starts: Sequence[int], stops: Sequence[int]
    ) -> tuple[Source, list[bytes]]:
        """Describe the file and read bytes of it, as `RemoteFiles.begin` does."""
        return self.describe(), self.fetch(url, starts, stops)

    @override
    def fetch(self, url: str, starts: Sequence[int], stops: Sequence[int]) -> list[bytes]:
        parts = super().fetch(url, starts, stops)
        current_traffic().add(len(parts), sum(map(len, parts)))
        return parts
