"""A read that fails never looks like a chunk that is absent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gridref.errors import GridrefError, ReadError

__all__ = ["never_absent"]


@contextmanager
def never_absent() -> Iterator[None]:
    """Turn errors that Zarr readers take for a missing chunk into errors of ours.

    zarr-python fills in for a ``KeyError`` or ``FileNotFoundError``, fsspec's mappers for any
    ``OSError`` of their list. Whatever raises one below a read, a filesystem, a codec or a slip of
    our own, the read has failed, and nothing is absent.

    Raises
    ------
    ReadError
        In place of a `LookupError` or `OSError` that is not ours.
    """
    try:
        yield
    except GridrefError:
        raise
    except (LookupError, OSError) as error:
        raise ReadError(f"reading failed: {type(error).__name__}: {error}") from error
