"""Whatever goes wrong in understanding a catalog is damage of the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gridref.errors import CatalogCorruptError, CatalogError, Place, ReadError

__all__ = ["refusing_damage"]


@contextmanager
def refusing_damage(part: str, place: Place) -> Iterator[None]:
    """Make a `CatalogCorruptError` of any error but those of catalogs and of reading them.

    A catalog may come from anywhere, and its members may be of any type, depth and size: what
    Python raises for them (`RecursionError`, `MemoryError`, `OverflowError`, ...) says nothing.

    Parameters
    ----------
    part
        The part that is looked at, like ``"the description of an array"``.
    """
    try:
        yield
    except (CatalogError, ReadError):
        raise
    except Exception as error:
        shown = f"{type(error).__name__}: {error}"[:500]
        raise CatalogCorruptError(
            f"{part} is damaged ({shown}): build the catalog again", place
        ) from error
