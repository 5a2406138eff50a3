"""Mutations of HDF4 files: descriptors, and numbers inside of the elements that they name."""

from __future__ import annotations

import random

from tools.fuzz.mutator import Mutator

_NUMBERS = (*range(9), 16, 20, 40, 61, 106, 255, 702, 720, 1962, 1963, 1965, 0x42BE, 2**16 - 1)
_LARGE = (2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1)


def _descriptors(data: bytes | bytearray) -> list[int]:
    """Where descriptors in use begin."""
    found: list[int] = []
    block, seen = 4, set[int]()
    while 0 < block < len(data) - 6 and block not in seen:
        seen.add(block)
        n_descriptors = min(int.from_bytes(data[block : block + 2], "big"), 1000)
        starts = range(block + 6, min(block + 6 + 12 * n_descriptors, len(data) - 12), 12)
        found += [start for start in starts if data[start : start + 2] != b"\0\1"]
        block = int.from_bytes(data[block + 2 : block + 6], "big")
    return found


def _place(data: bytes | bytearray, rng: random.Random) -> int:
    """A byte of a descriptor, or of a small element that one names."""
    descriptors = _descriptors(data)
    if not descriptors or rng.random() < 0.05:
        return rng.randrange(max(1, len(data)))
    start = rng.choice(descriptors)
    if rng.random() < 0.25:
        return start + rng.choice((0, 2, 4, 6, 8, 10))
    offset, length = (int.from_bytes(data[start + n : start + n + 4], "big") for n in (4, 8))
    inside = offset + rng.randrange(max(1, min(length, 200)))
    return inside if inside < len(data) else start


def _change(data: bytearray, rng: random.Random) -> None:
    at, width = _place(data, rng), rng.choice((1, 2, 2, 4))
    number = int.from_bytes(data[at : at + width], "big")
    match rng.randrange(8):
        case 0:
            chosen = rng.choice((*_NUMBERS, *_LARGE)) % 256**width
            data[at : at + width] = chosen.to_bytes(width, "big")
        case 1 | 2:
            near = number + rng.choice((-8, -4, -2, -1, 1, 2, 4, 8))
            data[at : at + width] = (near % 256**width).to_bytes(width, "big")
        case 3:  # a number from elsewhere
            other = _place(data, rng)
            data[at : at + width] = data[other : other + width]
        case 4 | 5:
            if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
        case 6:  # another element
            descriptors = _descriptors(data) or [4]
            one, other = rng.choice(descriptors), rng.choice(descriptors)
            data[one + 4 : one + 12] = data[other + 4 : other + 12]
        case _:
            if rng.random() < 0.3:
                del data[rng.randrange(len(data) + 1) :]
            else:
                data[at : at + width] = bytes(width)


MUTATOR = Mutator(_change, _place)
