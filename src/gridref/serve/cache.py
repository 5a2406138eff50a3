"""A bounded cache: decoded chunks, layouts of shards and references, shared between requests."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

__all__ = ["BoundedCache", "array_bytes"]


def array_bytes(values: Any) -> int:
    """Size of an array."""
    return int(values.nbytes)


class BoundedCache[Value]:
    """Least recently used values, up to a number of bytes. Safe for threads; pickled empty.

    Parameters
    ----------
    max_bytes
        Bound on the sum of the values' sizes; 0 keeps nothing.
    size_of
        Size of a value in bytes. Values must not change in size.
    keeps_last
        Whether the value put last is kept even if it is too large.
    """

    def __init__(
        self,
        max_bytes: int,
        size_of: Callable[[Value], int] = array_bytes,
        *,
        keeps_last: bool = False,
    ) -> None:
        self.max_bytes = max_bytes
        self._size_of = size_of
        self._keeps_last = keeps_last
        self._entries: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()

    def __getstate__(self) -> tuple[Any, ...]:
        return self.max_bytes, self._size_of, self._keeps_last

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        max_bytes, size_of, keeps_last = state
        BoundedCache.__init__(self, max_bytes, size_of, keeps_last=keeps_last)

    def get(self, key: Hashable) -> Value | None:
        """The value under `key`, if it is still there."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: Value) -> Value:
        """Keep a value, and drop those used least recently; gives the value back."""
        size = self._size_of(value)
        if size > self.max_bytes and not self._keeps_last:
            return value
        with self._lock:
            old = self._entries.pop(key, None)
            self._n_bytes += size - (0 if old is None else old[1])
            self._entries[key] = (value, size)
            while self._n_bytes > self.max_bytes and len(self._entries) > self._keeps_last:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._n_bytes -= dropped
        return value

    @property
    def n_bytes(self) -> int:
        """Bytes held now."""
        return self._n_bytes
