"""The cache class of the package: it keeps the values used last, up to a number of bytes."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from gridref.errors import InvalidRequestError
from gridref.forks import new_lock, tell_in_children

VARIABLE = "GRIDREF_CACHE_BYTES"
"""Environment variable with another number of bytes for `cache_bytes`."""

_CACHE_BYTES = 64 * 2**20


def cache_bytes() -> int:
    """Bytes that one cache keeps; caches of small things keep a part of them.

    Decoded chunks have a size of their own, ``cache_bytes=`` of an opened catalog.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if text and not text.isdecimal():
        raise InvalidRequestError(
            f"{VARIABLE} in the environment says {text!r}: write a number of bytes, like"
            f" {_CACHE_BYTES}"
        )
    return int(text or _CACHE_BYTES)


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
        self._loads: dict[Hashable, Load[Value]] = {}
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
        with self._lock:  # written out: asked very often
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._kept.move_to_end(key)
            return kept[0]

    def put(self, key: Hashable, value: Value, n_bytes: int | None = None) -> Value:
        """Keep a value in place of the one under `key`; returns the value.

        Parameters
        ----------
        n_bytes
            Its size; None asks `size_of`.
        """
        size = self._size_of(value) if n_bytes is None else n_bytes
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
        known = self.get(key)
        if known is not None:
            return known
        running, is_ours = self.claim(key)
        if not is_ours:
            return running.result()
        try:
            return self.finish(key, load())
        except BaseException as error:
            self.fail(key, error)
            raise

    def claim(self, key: Hashable) -> tuple[Load[Value], bool]:
        """The load of the value under `key`, and whether it is the caller who has to do it.

        Who has to ends it by `finish` or `fail`, whatever happens, and waits for no other load
        before; a kept value is a load that is done.
        """
        with self._lock:
            value = self._used(key)
            if value is not None:
                return Load(value), False
            running = self._loads.get(key)
            if running is not None:
                return running, False
            ours: Load[Value] = Load()  # Load[Value]() takes five times as long
            self._loads[key] = ours
            return ours, True

    def finish(self, key: Hashable, value: Value) -> Value:
        """End a claimed load: keep its value, and give it to all who wait for it."""
        self.put(key, value)
        self._end(key, value, None)
        return value

    def fail(self, key: Hashable, error: BaseException) -> None:
        """End a claimed load by an error, which all who wait for it raise."""
        self._end(key, None, error)

    def _end(self, key: Hashable, value: Value | None, error: BaseException | None) -> None:
        with self._lock:
            load = self._loads.pop(key, None)
        if load is not None:
            load.end(value, error)

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._kept.clear()
            self._n_bytes = 0

    def _used(self, key: Hashable) -> Value | None:
        """The value under `key`, which is now the one used last. Called under the lock."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        self._kept.move_to_end(key)
        return kept[0]


class Load[Value]:
    """A load under way in one thread, for which others wait, or one that is done."""

    __slots__ = ("_done", "_error", "_value")

    def __init__(self, value: Value | None = None) -> None:
        self._value = value
        self._error: BaseException | None = None
        self._done = None if value is not None else threading.Event()

    def end(self, value: Value | None, error: BaseException | None) -> None:
        """Let go those who wait."""
        self._value, self._error = value, error
        assert self._done is not None
        self._done.set()

    def value(self) -> Value | None:
        """What was loaded, when it is there; None if that failed."""
        if self._done is not None:
            self._done.wait()
        return self._value

    def result(self) -> Value:
        """What was loaded, when it is there.

        Raises
        ------
        Exception
            What the load raised.
        """
        value = self.value()
        if self._error is not None:
            raise self._error
        assert value is not None
        return value
