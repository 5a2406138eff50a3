"""Whatever goes wrong in understanding metadata by way of other packages is damage of the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gridref.errors import GridrefError, Place, SourceFormatError

__all__ = ["refusing_damage"]


@contextmanager
def refusing_damage(url: str, what: str = "the metadata is damaged") -> Iterator[None]:
    """Make a `SourceFormatError` of any error that is not ours.

    Such metadata may be of any type, depth and size: what Python raises for them
    (`RecursionError`, `OverflowError`, `UnicodeEncodeError`, ...) says nothing about the file.
    """
    try:
        yield
    except GridrefError:
        raise
    except Exception as error:
        shown = f"{type(error).__name__}: {error}"[:500]
        raise SourceFormatError(f"{what} ({shown})", Place(source=url)) from error
