"""Mutations of HDF5 files that reach deep: near structures, with their checksums mended."""

from __future__ import annotations

import random
import re
import struct
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from gridref.formats.hdf5.bytes import lookup3, lookup3_rows

SIGNATURES = re.compile(
    rb"\x89HDF\r\n\x1a\n|TREE|SNOD|HEAP|GCOL|OHDR|OCHK|FRHP|FHDB|FHIB|BTHD|BTIN|BTLF"
    rb"|FAHD|FADB|EAHD|EAIB|EASB|EADB|FSHD|FSSE|SMTB|SMLI"
)
"""Beginnings of structures; headers of version 1 have none."""

MAX_STRUCTURE_BYTES = 2048
_MAX_REMEMBERED = 20_000
_NEAR = 96
_INTERESTING = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**32 - 1, 2**60, 2**64 - 1)


@dataclass(frozen=True)
class Span:
    """Bytes with a checksum, behind them or, in blocks of fractal heaps, among them."""

    start: int
    stop: int
    checksum: int

    def computed(self, data: bytes | bytearray) -> bytes:
        """The right checksum, for which its own place counts as zeros."""
        body = bytearray(data[self.start : self.stop])
        if self.checksum < self.stop:
            body[self.checksum - self.start : self.checksum - self.start + 4] = bytes(4)
        return struct.pack("<I", lookup3(bytes(body)))

    def holds(self, data: bytes | bytearray) -> bool:
        """Whether all of it is there, and its checksum is right."""
        stored = data[self.checksum : self.checksum + 4]
        return self.stop <= len(data) and stored == self.computed(data)


def checked_spans(data: bytes) -> tuple[Span, ...]:
    """The structures of a file whose checksum is right, found by trying every length."""
    found = []
    for match in SIGNATURES.finditer(data):
        start = match.start()
        if match[0] == b"FHDB":
            found += direct_block(data, start)
            continue
        window = np.frombuffer(data[start : start + MAX_STRUCTURE_BYTES + 4], np.uint8)
        lengths = np.arange(8, len(window) - 3)
        if not len(lengths):
            continue
        rows = np.broadcast_to(window[: len(window) - 4], (len(lengths), len(window) - 4))
        computed = lookup3_rows(np.ascontiguousarray(rows), lengths)
        stored = np.lib.stride_tricks.sliding_window_view(window, 4)[lengths]
        hits = np.flatnonzero(computed == np.ascontiguousarray(stored).view("<u4")[:, 0])
        if len(hits):
            stop = start + int(lengths[hits[0]])
            found.append(Span(start, stop, stop))
    return tuple(found)


def direct_block(data: bytes, start: int) -> list[Span]:
    """A block of a fractal heap; its header is one byte longer in heaps of attributes."""
    possible = (
        Span(start, start + (1 << power), start + head)
        for power in range(9, 17)
        for head in (17, 18)
    )
    return [span for span in possible if span.holds(data)][:1]


def mend(data: bytearray, spans: tuple[Span, ...], before: bytes = b"") -> None:
    """Write the right checksum behind each structure that is still there, and was changed."""
    for span in spans:
        stop = max(span.stop, span.checksum + 4)
        if stop <= len(data) and data[span.start : stop] != before[span.start : stop]:
            data[span.checksum : span.checksum + 4] = span.computed(data)


@dataclass(frozen=True)
class Anatomy:
    """Where structures of a file begin, and those with a checksum."""

    starts: tuple[int, ...]
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, data: bytes) -> Anatomy:
        """Found by their signatures."""
        return cls(tuple(match.start() for match in SIGNATURES.finditer(data)), checked_spans(data))


class Mutator:
    """Changes files, and remembers where the structures of what it made lie."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, Anatomy] = OrderedDict()

    def __call__(self, data: bytes, max_size: int, seed: int) -> bytes:
        """A changed copy of a file, of at most `max_size` bytes."""
        chance = random.Random(seed)
        data = bytes(data)
        if len(data) < 16:
            return bytes(data + chance.randbytes(16))[:max_size]
        anatomy = self.anatomy(data)
        changed = bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
            change(changed, anatomy.starts, chance)
        if chance.random() < 0.05:
            del changed[chance.randint(min(16, len(changed)), len(changed)) :]
        elif chance.random() < 0.03:
            shift(changed, anatomy.starts, chance)
        del changed[max_size:]
        if chance.random() < 0.9:
            mend(changed, anatomy.spans, data)
        return self._remembered(bytes(changed), anatomy)

    def crossed(self, one: bytes, other: bytes, max_size: int, seed: int) -> bytes:
        """One file with a piece of another at the same place or at a structure's."""
        chance = random.Random(seed)
        one, other = bytes(one), bytes(other)
        if len(one) < 16 or len(other) < 16:
            return one[:max_size]
        anatomy = self.anatomy(one)
        changed = bytearray(one)
        source = place(other, self.anatomy(other).starts, chance)
        target = place(one, anatomy.starts, chance)
        length = min(chance.choice((8, 24, 64, 256)), len(one) - target, len(other) - source)
        changed[target : target + length] = other[source : source + length]
        mend(changed, anatomy.spans, one)
        return self._remembered(bytes(changed[:max_size]), anatomy)

    def anatomy(self, data: bytes) -> Anatomy:
        """Where the structures of a file lie."""
        found = self._known.get(hash(data))
        if found is None:
            found = Anatomy.of(data)
        self._remembered(data, found)
        return found

    def _remembered(self, data: bytes, anatomy: Anatomy) -> bytes:
        self._known[hash(data)] = anatomy
        self._known.move_to_end(hash(data))
        if len(self._known) > _MAX_REMEMBERED:
            self._known.popitem(last=False)
        return data


def place(data: bytes | bytearray, starts: tuple[int, ...], chance: random.Random) -> int:
    """Some place in a file: mostly in a structure or a header, where the meaning is."""
    if starts and chance.random() < 0.7:
        return min(chance.choice(starts) + chance.randrange(_NEAR), len(data) - 1)
    return chance.randrange(len(data))


def change(data: bytearray, starts: tuple[int, ...], chance: random.Random) -> None:
    """One small change that keeps the length."""
    where = place(data, starts, chance)
    kind = chance.randrange(5)
    if kind == 0:
        data[where] ^= 1 << chance.randrange(8)
    elif kind == 1:
        data[where] = chance.randrange(256)
    elif kind == 2:
        data[where] = (data[where] + chance.choice((-1, 1, 2, 16))) % 256
    elif kind == 3:
        width = chance.choice((1, 2, 4, 8))
        value = chance.choice(_INTERESTING) % (1 << 8 * width)
        new = value.to_bytes(width, "little")
        data[where : where + width] = new[: len(data) - where]
    else:  # an address, size or whole piece from elsewhere: makes cycles
        width = chance.choice((4, 8, 8, 8, 16, 40))
        start = place(data, starts, chance)
        width = min(width, len(data) - where, len(data) - start)
        data[where : where + width] = data[start : start + width]


def shift(data: bytearray, starts: tuple[int, ...], chance: random.Random) -> None:
    """Move all that lies behind some place by a few bytes."""
    where = place(data, starts, chance)
    if chance.random() < 0.5:
        del data[where : where + chance.randrange(1, 9)]
    else:
        data[where:where] = chance.randbytes(chance.randrange(1, 9))
