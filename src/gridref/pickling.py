"""Pickle an object while other threads use it, as workers of dask do."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any


class Picklable:
    """Travels as what it was made with, without what it has cached in properties.

    A cached property adds to the object's dictionary when it is first asked for. If another thread
    does this while the object is pickled, pickle fails: "dictionary changed size during iteration".
    A dask worker then sends nothing, and who waits for it may wait for ever.
    """

    def __getstate__(self) -> dict[str, Any]:
        kind: Any = type(self)
        cached = _cached(kind)
        own = self.__dict__.copy()  # in one step, so that no other thread comes between
        return {name: value for name, value in own.items() if name not in cached}


@cache
def _cached(kind: Any) -> frozenset[str]:
    """Names of the cached properties of a class."""
    members = [member for each in kind.__mro__ for member in vars(each).items()]
    return frozenset(name for name, value in members if isinstance(value, cached_property))
