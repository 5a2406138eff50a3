"""Which files a piece of work opened, or looked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gridref.model.manifest import Source

__all__ = ["note_opened", "noted_files"]

type _Noted = dict[str, Source | None]

_current: ContextVar[_Noted | None] = ContextVar("gridref_opened", default=None)


@contextmanager
def noted_files() -> Iterator[_Noted]:
    """Note by address all files that are opened inside of the ``with`` block, in this thread.

    Those that are opened for a scan with what they were then, others with None.
    """
    noted: _Noted = {}
    token = _current.set(noted)
    try:
        yield noted
    finally:
        _current.reset(token)


def note_opened(address: str, source: Source | None = None) -> None:
    """Note that a file is opened, or that it is looked for."""
    noted = _current.get()
    if noted is not None:
        noted[address] = source or noted.get(address)
