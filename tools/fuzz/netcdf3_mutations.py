"""Mutations of NetCDF3 files: most change words of the header, which counts and places all."""

from __future__ import annotations

import random

from tools.fuzz.mutator import Mutator

_HEADER_BYTES = 1500
_NUMBERS = (*range(13), 16, 32, 33, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1)


def _word(data: bytes | bytearray, rng: random.Random) -> int:
    """Where a word begins, mostly of the header; lists of a header keep to multiples of 4."""
    return 4 * rng.randrange(max(1, min(len(data), _HEADER_BYTES) // 4))


def _change(data: bytearray, rng: random.Random) -> None:
    at = _word(data, rng)
    word = int.from_bytes(data[at : at + 4], "big")
    match rng.randrange(9):
        case 0:
            data[at : at + 4] = rng.choice(_NUMBERS).to_bytes(4, "big")
        case 1:
            near = word + rng.choice((-8, -4, -1, 1, 4, 8))
            data[at : at + 4] = (near % 2**32).to_bytes(4, "big")
        case 2:  # a count or an offset from elsewhere
            other = _word(data, rng)
            data[at : at + 4] = data[other : other + 4]
        case 3 | 4:
            if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 5:
            del data[at : at + 4 * rng.randrange(1, 4)]
        case 6:
            data[at:at] = data[at : at + 4 * rng.randrange(1, 12)]
        case 7:
            del data[rng.randrange(len(data) + 1) :]
        case _:
            data[3:4] = rng.choice((b"\1", b"\2", b"\5"))


MUTATOR = Mutator(_change, _word, width=4)
