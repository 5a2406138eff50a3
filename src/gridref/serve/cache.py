"""A bounded cache of decoded chunks, shared between neighbouring requests."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from numpy.typing import NDArray

__all__ = ["DecodedChunkCache"]


class DecodedChunkCache:
    """Least recently used decoded chunks, up to a number of bytes. Safe for threads.

    Parameters
    ----------
    max_bytes
        Bound on the sum of the arrays' sizes; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, NDArray[Any]] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return DecodedChunkCache, (self.max_bytes,)

    def get(self, key: Hashable) -> NDArray[Any] | None:
        """The chunk under `key`, if it is still there."""
        with self._lock:
            values = self._entries.get(key)
            if values is not None:
                self._entries.move_to_end(key)
            return values

    def put(self, key: Hashable, values: NDArray[Any]) -> None:
        """Keep a chunk, dropping the least recently used ones; too large a one is not kept."""
        if values.nbytes > self.max_bytes:
            return
        with self._lock:
            old = self._entries.pop(key, None)
            self._n_bytes += values.nbytes - (0 if old is None else old.nbytes)
            self._entries[key] = values
            while self._n_bytes > self.max_bytes:
                _, dropped = self._entries.popitem(last=False)
                self._n_bytes -= dropped.nbytes

    @property
    def n_bytes(self) -> int:
        """Bytes held now."""
        return self._n_bytes
