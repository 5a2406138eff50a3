"""Reuse the parsed metadata of one file for other files like it.

Corresponding pieces of metadata in the files of a series are equal, or differ only in addresses,
sizes and values, at the same places in all of them. `FORMS` keeps what follows from these pieces:

- `LearnedForms.remembers`: what a parser makes of equal bytes.
- `LearnedForms.keeps`: what a function makes of equal values.
- `LearnedForms.find` and `keep`: what follows from the bytes outside of given holes.
- `LearnedForms.get` and `put`: what follows from other forms.

Callers keep five rules. With these, a file cannot change what is read from another one:

1. Read the bytes of this file, verify range and checksum, and only then look them up.
2. The key holds everything that the value follows from: the bytes, and versions, flags and widths.
3. A hole is an address, a size or a value. What is in it is checked in each file.
4. What is kept is immutable, or copied by those who take it.
5. A look-up never raises. Without a form, the full parser reads the bytes, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from operator import itemgetter
from typing import Any, Concatenate

from gridref.cache import LRU, cache_bytes

_LONGEST = 2048
_MOST_CUTS, _MOST_HOLES = 8, 512


class LearnedForms(LRU[Any]):
    """What follows from metadata. The first item of a key names its kind."""

    def remembers[Piece: bytes | str | tuple[Any, ...], **P, R](
        self, parse: Callable[Concatenate[Piece, P], R]
    ) -> Callable[Concatenate[Piece, P], R]:
        """Decorate a parser, so that it parses equal pieces once. Long pieces are not kept."""

        def n_bytes(made: R, piece: Piece, *args: P.args, **kwargs: P.kwargs) -> int:
            # A byte of a compound datatype makes some 70 bytes of objects.
            return 1000 + 70 * len(piece) if len(piece) <= _LONGEST else 0

        return self.keeps(n_bytes)(parse)

    def keeps[**P, R](
        self, n_bytes: Callable[..., int]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorate a function of plain values, so that it computes equal ones once.

        Parameters
        ----------
        n_bytes
            Size of a result and its values, roughly, as a function of both; 0 if it is not kept.
        """

        def decorated(make: Callable[P, R]) -> Callable[P, R]:
            @wraps(make)
            def call(*args: P.args, **kwargs: P.kwargs) -> R:
                key = make, args, *kwargs.items()
                known: tuple[R] | None = self.get(key)
                if known is not None:
                    return known[0]
                made = make(*args, **kwargs)
                if size := n_bytes(made, *args, **kwargs):
                    self.put(key, (made,), size)
                return made

            return call

        return decorated

    def find(self, kind: Hashable, data: bytes) -> Any | None:
        """What follows from the bytes of `data` outside of its holes; None if it is not known.

        Parameters
        ----------
        kind
            All else that it follows from.
        """
        key = _Cut, kind, len(data)
        with self._lock:  # once for both look-ups: asked very often
            kept = self._kept
            cuts = kept.get(key)
            if cuts is None:
                return None
            kept.move_to_end(key)
            for cut in cuts[0]:
                form_key = cut, cut.outside(data)
                known = kept.get(form_key)
                if known is not None:
                    kept.move_to_end(form_key)
                    return known[0]
        return None

    def keep[Value](
        self, kind: Hashable, data: bytes, holes: Sequence[slice], value: Value, n_bytes: int
    ) -> Value:
        """Remember what follows from the bytes outside of holes, which ascend.

        Parameters
        ----------
        n_bytes
            Size of the value, roughly.
        """
        ranges = tuple(hole for hole in holes if hole.start < hole.stop)
        if len(ranges) > _MOST_HOLES:
            return value
        key = _Cut, kind, len(data)
        cuts: tuple[_Cut, ...] = self.get(key) or ()
        cut = next((cut for cut in cuts if cut.holes == ranges), None)
        if cut is None:
            cut = _Cut(len(data), ranges)
            cuts = (cut, *cuts)[:_MOST_CUTS]
            self.put(key, cuts, 1000 + sum(500 + 300 * len(each.holes) for each in cuts))
        outside = cut.outside(data)
        self.put((cut, outside), value, 1000 + len(outside) + n_bytes)
        return value


class _Cut:
    """Which bytes of similar pieces differ."""

    def __init__(self, n_bytes: int, holes: tuple[slice, ...]) -> None:
        self.holes = holes
        starts = [0, *(hole.stop for hole in holes)]
        stops = [*(hole.start for hole in holes), n_bytes]
        nothing = slice(0, 0)  # at least two parts, for a tuple
        take = itemgetter(nothing, nothing, *map(slice, starts, stops))
        self.outside: Callable[[bytes], bytes] = lambda data: b"".join(take(data))


FORMS = LearnedForms(cache_bytes())
"""The store of this process."""
