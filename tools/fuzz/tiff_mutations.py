"""Mutations of TIFF files that reach deep: in directories, and in the values that they point to."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

_MAX_DIRECTORIES = 40
_MAX_ENTRIES = 200
_SUB_IFDS = 330
_ITEM_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
_ITEM_BYTES |= {16: 8, 17: 8, 18: 8}
_INTERESTING = (0, 1, 2, 3, 7, 8, 15, 16, 17, 32, 255, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**60)
_COMPRESSIONS = (1, 2, 3, 4, 5, 6, 7, 8, 32773, 32946, 33003, 34712, 34887, 34925, 34933, 34934)
_COMPRESSIONS += (50000, 50001, 50002, 50013)
_TAGS = (254, 256, 257, 258, 259, 262, 266, 270, 273, 277, 278, 279, 284, 305, 317, 322, 323, 324)
_TAGS += (325, 330, 338, 339, 347, 530, 32997, 33550, 33922, 34264, 34412, 34735, 42112, 42113)


@dataclass(frozen=True)
class Layout:
    """Where what matters lies in a file.

    Attributes
    ----------
    order, width
        Byte order, and size of an offset: 4 or 8 bytes.
    entries
        Offset, tag and type of each entry of a directory.
    pointers
        Offsets of the pointers to directories.
    values
        Start and stop of what entries point to, pixels excepted.
    """

    order: Literal["little", "big"]
    width: int
    entries: tuple[tuple[int, int, int], ...]
    pointers: tuple[int, ...]
    values: tuple[tuple[int, int], ...]


@lru_cache(maxsize=512)
def layout_of(data: bytes) -> Layout:
    """Find the directories of a file, as far as they can be followed."""
    order: Literal["little", "big"] = "big" if data[:2] == b"MM" else "little"
    mark = ">" if order == "big" else "<"
    width = 8 if int.from_bytes(data[2:4], order) == 43 else 4
    pointers, entries, values = [width], [], []
    waiting, seen = [width], set()
    while waiting and len(seen) < _MAX_DIRECTORIES:
        at = int.from_bytes(data[(place := waiting.pop()) : place + width], order)
        n_count, n_entry = (8, 20) if width == 8 else (2, 12)
        n_entries = int.from_bytes(data[at : at + n_count], order)
        after = at + n_count + n_entries * n_entry
        if at < 8 or at in seen or n_entries > _MAX_ENTRIES or after + width > len(data):
            continue
        seen.add(at)
        for start in range(at + n_count, after, n_entry):
            code, kind = struct.unpack_from(f"{mark}HH", data, start)
            count = int.from_bytes(data[start + 4 : start + 4 + width], order)
            entries.append((start, code, kind))
            n_bytes = count * _ITEM_BYTES.get(kind, 1)
            where = int.from_bytes(data[start + 4 + width : start + 4 + 2 * width], order)
            where = start + 4 + width if n_bytes <= width else where
            if n_bytes > width and where + n_bytes <= len(data):
                values.append((where, where + n_bytes))
            if code == _SUB_IFDS and where + n_bytes <= len(data):
                waiting += range(where, where + n_bytes, width)
        pointers.append(after)
        waiting.append(after)
    return Layout(order, width, tuple(entries), tuple(pointers), tuple(values))


class Mutator:
    """Changes files."""

    def __call__(self, data: bytes, max_size: int, seed: int) -> bytes:
        """A changed copy of a file, of at most `max_size` bytes."""
        chance = random.Random(seed)
        changed = bytearray(data)
        if len(changed) < 16:
            return bytes(changed + chance.randbytes(16))[:max_size]
        layout = layout_of(bytes(changed))
        for _ in range(chance.choice((1, 1, 1, 2, 3, 5))):
            change(changed, layout, chance)
        if chance.random() < 0.06:
            del changed[chance.randrange(8, len(changed)) :]
        return bytes(changed[:max_size])

    def crossed(self, one: bytes, other: bytes, max_size: int, seed: int) -> bytes:
        """One file with an entry of a directory of another."""
        chance = random.Random(seed)
        one, other = bytes(one), bytes(other)
        if len(one) < 16 or len(other) < 16:
            return one[:max_size]
        here, there = layout_of(one), layout_of(other)
        changed = bytearray(one)
        if here.entries and there.entries and here.width == there.width:
            size = 4 + 2 * here.width
            target, source = chance.choice(here.entries)[0], chance.choice(there.entries)[0]
            changed[target : target + size] = other[source : source + size]
        return bytes(changed[:max_size])


def change(data: bytearray, layout: Layout, chance: random.Random) -> None:
    """One change that keeps the length."""
    kind = chance.random()
    if kind < 0.55 and layout.entries:
        _change_entry(data, layout, chance)
    elif kind < 0.65:
        pointer = chance.choice(layout.pointers)
        targets = [
            int.from_bytes(data[p : p + layout.width], layout.order) for p in layout.pointers
        ]
        value = chance.choice((*targets, chance.randrange(len(data)), 2**31, 0))
        _write(data, pointer, value, layout.width, layout)
    elif kind < 0.85 and layout.values:
        start, stop = chance.choice(layout.values)
        _flip(data, chance.randrange(start, stop), chance)
    else:
        _flip(data, chance.randrange(len(data)), chance)


def _change_entry(data: bytearray, layout: Layout, chance: random.Random) -> None:
    start, code, kind = chance.choice(layout.entries)
    field = chance.random()
    if field < 0.15:
        _write(data, start, chance.choice(_TAGS), 2, layout)
    elif field < 0.25:
        _write(data, start + 2, chance.randrange(20), 2, layout)
    elif field < 0.45:
        _write(data, start + 4, chance.choice(_INTERESTING), layout.width, layout)
    else:
        width = min(_ITEM_BYTES.get(kind, 4), layout.width)
        value = chance.choice((*_INTERESTING, chance.randrange(len(data))))
        value = chance.choice(_COMPRESSIONS) if code == 259 else value
        _write(data, start + 4 + layout.width, value, width, layout)


def _write(data: bytearray, at: int, value: int, width: int, layout: Layout) -> None:
    new = (value % (1 << 8 * width)).to_bytes(width, layout.order)
    data[at : at + width] = new[: len(data) - at]


def _flip(data: bytearray, at: int, chance: random.Random) -> None:
    if chance.random() < 0.5:
        data[at] ^= 1 << chance.randrange(8)
    else:
        data[at] = chance.choice((0, 1, 255, chance.randrange(256)))
