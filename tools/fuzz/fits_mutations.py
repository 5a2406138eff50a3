"""Mutations of FITS files: most change cards, whose numbers count and place all."""

from __future__ import annotations

import random

from tools.fuzz.mutator import Bytes, Mutator

_CARD_BYTES = 80
_CARDS = 110
_NUMBERS = (-(2**63), -(2**31), -1, *range(5), 7, 8, 16, 32, 64, 255, 2880, 2**16, 2**31, 2**63)
_VALUES = (b"T", b"F", b"1.5", b"'RICE_1'", b"'GZIP_2'", b"'PLIO_1'", b"'1QB'", b"'1PE(9)'", b"''")


def _card(data: Bytes, rng: random.Random) -> int:
    """Where a card begins, mostly of a header."""
    return _CARD_BYTES * rng.randrange(max(1, min(len(data) // _CARD_BYTES, _CARDS)))


def _change(data: bytearray, rng: random.Random) -> None:
    at = _card(data, rng)
    match rng.randrange(11):
        case 0 | 1:
            data[at + 10 : at + 30] = b"%20d" % rng.choice(_NUMBERS)
        case 2:
            digits = [at + n for n in range(10, 40) if data[at + n : at + n + 1].isdigit()]
            if digits:
                data[rng.choice(digits)] = rng.choice(b"0123456789-.E ")
        case 3:
            data[at + 10 : at + 40] = rng.choice(_VALUES).ljust(30)
        case 4:  # the value of another card
            other = _card(data, rng)
            data[at + 8 : at + 80] = data[other + 8 : other + 80]
        case 5:
            other = _card(data, rng)
            data[at : at + 80], data[other : other + 80] = (
                data[other : other + 80],
                data[at : at + 80],
            )
        case 6:
            data[at : at + 80] = b" " * len(data[at : at + 80])
        case 7 | 8:
            if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 9:
            del data[rng.randrange(len(data) + 1) :]
        case _:
            if data:
                start = rng.randrange(len(data))
                data[start : start + 4] = rng.choice(_NUMBERS[5:16]).to_bytes(4, "big")


MUTATOR = Mutator(_change, _card, width=_CARD_BYTES)
