"""Mutations of binary files, which differ in where numbers lie and in how they are changed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

type Bytes = bytes | bytearray


@dataclass(frozen=True)
class Mutator:
    """Changes files.

    Attributes
    ----------
    change
        Makes one change.
    place
        Where something begins that counts or places other things.
    width
        Bytes of the numbers there; pieces of another file are a multiple of it.
    """

    change: Callable[[bytearray, random.Random], None]
    place: Callable[[Bytes, random.Random], int]
    width: int = 1

    def __call__(self, data: bytes, max_size: int, seed: int) -> bytes:
        """A copy with one to four changes."""
        rng = random.Random(seed)
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            self.change(changed, rng)
        return bytes(changed[:max_size])

    def crossed(self, one: bytes, other: bytes, max_size: int, seed: int) -> bytes:
        """A copy with a piece of another file."""
        rng = random.Random(seed)
        start, piece = self.place(one, rng), self.place(other, rng)
        n_bytes = self.width * rng.randrange(1, 40)
        return (one[:start] + other[piece : piece + n_bytes] + one[start + n_bytes :])[:max_size]
