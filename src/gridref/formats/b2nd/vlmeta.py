"""Read the variable-length metadata in the trailer of a Blosc2 frame, as attributes.

Each value is a chunk whose content is msgpack.
Sources: C-Blosc2, ``README_CFRAME_FORMAT.rst``;
https://github.com/msgpack/msgpack/blob/master/spec.md.
"""

from __future__ import annotations

import struct
from typing import Any

from gridref.codecs.blosc2 import decoded_chunk
from gridref.limits import limits

_MOST_DEPTH = 32
_NUMBERS = {
    **dict(zip(range(0xCC, 0xD0), (">B", ">H", ">I", ">Q"), strict=True)),
    **dict(zip(range(0xD0, 0xD4), (">b", ">h", ">i", ">q"), strict=True)),
    0xCA: ">f",
    0xCB: ">d",
}
_SIZES = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_COUNTS = {0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}


class Unpacker:
    """Reads msgpack values one after the other; raises ValueError for what is damaged or unknown.

    Parameters
    ----------
    data
        The bytes.
    at
        The first byte to read.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def take(self, n_bytes: int) -> bytes:
        """The next bytes."""
        if not 0 <= n_bytes <= len(self.data) - self.at:
            raise ValueError("msgpack ends too early")
        self.at += n_bytes
        return self.data[self.at - n_bytes : self.at]

    def number(self, form: str) -> Any:
        """The next number, in a form of `struct`."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def value(self, depth: int = 0) -> Any:
        """The next value."""
        if depth > _MOST_DEPTH:
            raise ValueError("msgpack is nested too deep")
        mark = self.number(">B")
        if mark < 0x80 or mark >= 0xE0:
            return mark - 256 if mark >= 0xE0 else mark
        if mark in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[mark]
        if mark in _NUMBERS:
            return self.number(_NUMBERS[mark])
        if mark in _SIZES or 0xA0 <= mark < 0xC0:
            text = self.take(self.number(_SIZES[mark]) if mark in _SIZES else mark & 31)
            return text if mark in (0xC4, 0xC5, 0xC6) else text.decode()
        n = self.number(_COUNTS[mark]) if mark in _COUNTS else mark & 15
        if mark in (0xDC, 0xDD) or 0x90 <= mark < 0xA0:
            return [self.value(depth + 1) for _ in range(n)]
        if mark in (0xDE, 0xDF) or 0x80 <= mark < 0x90:
            pairs = [(self.value(depth + 1), self.value(depth + 1)) for _ in range(n)]
            return {str(key): value for key, value in pairs}
        raise ValueError(f"msgpack of type {mark:#x} is not read")


def vlmeta(trailer: bytes) -> dict[str, Any]:
    """Attributes from the bytes that end with a trailer; those of unknown types are left out."""
    # It ends with its size (0xCE, uint32) and a fingerprint of 18 bytes.
    if len(trailer) < 23 or trailer[-23] != 0xCE:
        raise ValueError("the frame has no trailer")
    size = int.from_bytes(trailer[-22:-18], "big")
    if not 23 <= size <= len(trailer):
        raise ValueError(f"the trailer states {size} bytes")
    data = trailer[len(trailer) - size :]
    layers = Unpacker(data, 2)  # after the array of four, and the version
    if layers.number(">B") != 0x93:
        raise ValueError("the trailer has no vlmeta")
    layers.value()  # the size of the map
    places = layers.value()
    if not isinstance(places, dict):
        raise ValueError("the trailer has no vlmeta")
    return {name: value for name, at in places.items() for value in _content(data, at)}


def _content(data: bytes, at: Any) -> list[Any]:
    """The value of a layer; nothing if it is of a type that is not read."""
    stored = Unpacker(data, at if type(at) is int and at >= 0 else len(data)).value()
    if not isinstance(stored, bytes):
        raise ValueError("vlmeta is not where the trailer says")
    n_bytes = int.from_bytes(stored[4:8], "little")
    if n_bytes > limits().header_bytes:
        raise ValueError(f"vlmeta of {n_bytes} bytes")
    content = decoded_chunk(stored, n_bytes).tobytes()
    try:
        value = Unpacker(content).value()
    except ValueError:
        return []
    return [] if isinstance(value, bytes) or value is None else [value]
