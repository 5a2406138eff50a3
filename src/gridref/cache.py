"""The one cache of the package: values used last are kept, up to a number of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from gridref.forks import new_lock, tell_in_children

__all__ = ["LRU", "nbytes_of"]


def nbytes_of(values: Any) -> int:
    """Size of an array in bytes."""
    return int(values.nbytes)


class LRU[Value]:
    """Values by key; those used longest ago are dropped to stay under a number of bytes.

    Safe for threads. A pickle keeps the bounds and no values.

    Parameters
    ----------
    max_bytes
        Most bytes that all kept values have together; 0 keeps nothing.
    size_of
        Size of a value in bytes; a module's function where the cache is pickled. A value must not
        change in size. None is not a value.
    keeps_last
        So many of the values used last are kept however large they are.
    """

    def __init__(
        self, max_bytes: int, size_of: Callable[[Value], int] = nbytes_of, *, keeps_last: int = 0
    ) -> None:
        self.max_bytes = max_bytes
        self._size_of = size_of
        self._keeps_last = keeps_last
        self._kept: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._loads: dict[Hashable, _Load[Value]] = {}
        self._n_bytes = 0
        self._lock = new_lock()
        tell_in_children(self)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.max_bytes, self._size_of, self._keeps_last

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        max_bytes, size_of, keeps_last = state
        LRU.__init__(self, max_bytes, size_of, keeps_last=keeps_last)

    def after_fork(self) -> None:
        """Wait for no load of another thread: in a child process it never ends."""
        self._loads.clear()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    @property
    def n_bytes(self) -> int:
        """Bytes that the kept values have together now."""
        return self._n_bytes

    def get(self, key: Hashable) -> Value | None:
        """The value under `key`; None if it is not kept (any more)."""
        with self._lock:
            return self._used(key)

    def put(self, key: Hashable, value: Value) -> Value:
        """Keep a value in place of the one under `key`; returns the value."""
        size = self._size_of(value)
        with self._lock:
            _, old_size = self._kept.pop(key, (None, 0))
            self._n_bytes -= old_size
            if size > self.max_bytes and not self._keeps_last:
                return value
            self._kept[key] = value, size
            self._n_bytes += size
            while self._n_bytes > self.max_bytes and len(self._kept) > self._keeps_last:
                _, (_, dropped) = self._kept.popitem(last=False)
                self._n_bytes -= dropped
        return value

    def get_or_load(self, key: Hashable, load: Callable[[], Value]) -> Value:
        """The value under `key`, loaded and kept if it is not there.

        Threads that ask for one key at the same time share one load, and its error if it fails; an
        error is not kept. `load` must not ask the cache for the same key.
        """
        with self._lock:
            value = self._used(key)
            if value is not None:
                return value
            running = self._loads.get(key)
            is_first = running is None
            if running is None:
                running = self._loads[key] = _Load[Value]()
        return self._loaded(key, load, running) if is_first else running.result()

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._kept.clear()
            self._n_bytes = 0

    def _loaded(self, key: Hashable, load: Callable[[], Value], running: _Load[Value]) -> Value:
        """Load a value, and give it to all who wait for it."""
        try:
            running.value = self.put(key, load())
        except BaseException as error:
            running.error = error
            raise
        finally:
            with self._lock:
                del self._loads[key]
            running.done.set()
        return running.value

    def _used(self, key: Hashable) -> Value | None:
        """The value under `key`, which is now the one used last. Called under the lock."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        self._kept.move_to_end(key)
        return kept[0]


class _Load[Value]:
    """A load under way in one thread, which others wait for."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.value: Value | None = None
        self.error: BaseException | None = None

    def result(self) -> Value:
        """What was loaded, when it is there."""
        self.done.wait()
        if self.error is not None:
            raise self.error
        assert self.value is not None
        return self.value
