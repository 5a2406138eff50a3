"""A memory for what follows from some bytes of a piece of metadata.

Corresponding pieces of metadata in the files of a series are mostly equal: only addresses and
values differ, at the same places in all of them. `AlikeBytes` keeps what follows from the other
bytes, so it is computed once. The key is all of these bytes, so a file cannot change what is read
from another one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import itemgetter

from gridref.cache import LRU

_KEPT_BYTES = 1 << 23
_MOST_CUTS = 8
_MOST_KINDS, _MOST_DIFFERING = 4096, 512


class AlikeBytes[Value]:
    """Values by the bytes that they follow from. Safe for threads.

    Parameters
    ----------
    size_of
        Approximate size of a value in bytes.
    """

    def __init__(self, size_of: Callable[[Value], int]) -> None:
        self._cuts: dict[Hashable, tuple[_Cut, ...]] = {}
        # What it is found again by is kept, too.
        self._values = LRU[tuple[Value, bytes]](
            _KEPT_BYTES, lambda kept: 2000 + size_of(kept[0]) + len(kept[1])
        )

    def get(self, kind: Hashable, data: bytes) -> Value | None:
        """The value that was remembered for similar bytes of this kind."""
        for cut in self._cuts.get((kind, len(data)), ()):
            kept = self._values.get((cut, cut.common(data)))
            if kept is not None:
                return kept[0]
        return None

    def put(self, kind: Hashable, data: bytes, differing: Sequence[slice], value: Value) -> Value:
        """Remember what follows from the bytes of this kind outside ascending ranges."""
        parts = tuple(part for part in differing if part.start < part.stop)
        if len(parts) > _MOST_DIFFERING:
            return value
        key = kind, len(data)
        cuts = self._cuts.get(key, ())
        cut = next((cut for cut in cuts if cut.differing == parts), None)
        if cut is None:
            cut = _Cut(len(data), parts)
            if len(self._cuts) >= _MOST_KINDS:
                self.clear()
            self._cuts[key] = (cut, *cuts)[:_MOST_CUTS]
        common = cut.common(data)
        return self._values.put((cut, common), (value, common))[0]

    def clear(self) -> None:
        self._cuts.clear()
        self._values.clear()


class _Cut:
    """The bytes that similar pieces of one kind and size have in common."""

    def __init__(self, n_bytes: int, differing: tuple[slice, ...]) -> None:
        self.differing = differing
        self.common = but_for(n_bytes, differing)


def but_for(n_bytes: int, parts: Sequence[slice]) -> Callable[[bytes], bytes]:
    """A function that takes all but ascending parts out of metadata of so many bytes."""
    starts = [0, *(part.stop for part in parts)]
    stops = [*(part.start for part in parts), n_bytes]
    return joined_parts(list(map(slice, starts, stops)))


def joined_parts(parts: Sequence[slice]) -> Callable[[bytes], bytes]:
    """A function that joins parts of a piece of metadata."""
    nothing = slice(0, 0)  # at least two, for a tuple
    take: Callable[[bytes], tuple[bytes, ...]] = itemgetter(nothing, nothing, *parts)
    return lambda data: b"".join(take(data))
