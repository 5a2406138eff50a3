"""Parquet columns of a few bytes that stand for gigabytes.

Source: Apache Parquet, ``parquet.thrift`` and "Encodings"; Thrift's compact protocol; RFC 8878
(zstd), section 3.1.1.2 for blocks that are one byte repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

type Field = tuple[int, Any]
"""Type in the compact protocol, and value."""
type Struct = dict[int, Field]

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_UNCOMPRESSED, _ZSTD = 0, 6
_PLAIN, _RLE, _DELTA_BYTE_ARRAY, _RLE_DICTIONARY = 0, 3, 7, 8


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _parse(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    def number(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value, at

    if kind in (1, 2):
        return kind == 1, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, _I32, _I64):
        value, at = number(at)
        return value >> 1 ^ -(value & 1), at
    if kind == _BINARY:
        size, at = number(at)
        return data[at : at + size], at + size
    if kind == _LIST:
        head, at = data[at], at + 1
        size, at = (head >> 4, at) if head >> 4 < 15 else number(at)
        values = []
        for _ in range(size):
            value, at = _parse(data, at, head & 15)
            values.append(value)
        return (head & 15, values), at
    assert kind == _STRUCT, kind
    struct: Struct = {}
    number_of = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number_of += head >> 4
        else:
            step, at = number(at)
            number_of = step >> 1 ^ -(step & 1)
        value, at = _parse(data, at, head & 15)
        struct[number_of] = (head & 15, value)
    return struct, at + 1


def _dump(kind: int, value: Any) -> bytes:
    if kind in (1, 2):
        return b""
    if kind == 3:
        return bytes([value])
    if kind in (4, _I32, _I64):
        return varint(value << 1 if value >= 0 else (-value << 1) - 1)
    if kind == _BINARY:
        return varint(len(value)) + value
    if kind == _LIST:
        of, values = value
        return bytes([0xF0 | of]) + varint(len(values)) + b"".join(_dump(of, v) for v in values)
    fields = [
        bytes([k]) + _dump(_I32, number) + _dump(k, v) for number, (k, v) in sorted(value.items())
    ]
    return b"".join(fields) + b"\0"


def _page(kind: int, about: int, n_values: int, encoding: int, n_bytes: int, data: bytes) -> bytes:
    """A page of a kind (0 of data, 2 of a dictionary), with what its header says."""
    described: Struct = {1: (_I32, n_values), 2: (_I32, encoding)}
    if kind == 0:
        described |= {3: (_I32, _RLE), 4: (_I32, _RLE)}
    header: Struct = {
        1: (_I32, kind),
        2: (_I32, n_bytes),
        3: (_I32, len(data)),
        about: (_STRUCT, described),
    }
    return _dump(_STRUCT, header) + data


def _run(count: int, value: bytes) -> bytes:
    return varint(count << 1) + value


@dataclass(frozen=True)
class Bomb:
    """Pages for a column: how many values they state, where its dictionary ends, how compressed."""

    pages: bytes
    n_values: int
    n_dictionary: int = 0
    codec: int = _UNCOMPRESSED
    n_stated: int = 100


def long_list(n: int) -> Bomb:
    """One row: a list of `n` zeros."""
    dictionary = _page(2, 7, 1, _PLAIN, 8, bytes(8))
    repetition = _run(1, b"\0") + _run(n - 1, b"\1")
    definition = _run(n, b"\1")
    levels = b"".join(len(part).to_bytes(4, "little") + part for part in (repetition, definition))
    data = levels + b"\0" + _run(n, b"")
    pages = dictionary + _page(0, 5, n, _RLE_DICTIONARY, len(data), data)
    return Bomb(pages, n, len(dictionary))


def _zeros(n: int) -> bytes:
    """So many zeros as a frame of zstd; a multiple of 128 KiB."""
    size = 2**17
    blocks = [(size << 3 | 1 << 1 | (i == n // size - 1)) for i in range(n // size)]
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(b.to_bytes(3, "little") + b"\0" for b in blocks)


def compressed(n: int) -> Bomb:
    """One number, in a page that has `n` bytes, most of which nobody asks for."""
    data = _zeros(n)
    return Bomb(_page(0, 5, 1, _PLAIN, n, data), 1, codec=_ZSTD)


def large_dictionary(n: int) -> Bomb:
    """One number, and a dictionary of `n` bytes."""
    dictionary = _page(2, 7, n // 8, _PLAIN, n, _zeros(n))
    data = b"\x28\xb5\x2f\xfd\x20\x03\x19\x00\x00" + b"\1\2\0"
    return Bomb(dictionary + _page(0, 5, 1, _RLE_DICTIONARY, 3, data), 1, len(dictionary), _ZSTD)


def put(path: Path, column: int, bomb: Bomb) -> None:
    """Exchange a column of the first row group of a file; its footer states small sizes."""
    content = path.read_bytes()
    size = int.from_bytes(content[-8:-4], "little")
    footer, _ = _parse(content[-8 - size : -8], 0, _STRUCT)
    at = len(content) - 8 - size
    group = footer[4][1][1][0]
    about = group[1][1][1][column][3][1]
    about |= {
        2: (_LIST, (_I32, [_PLAIN, _RLE, _RLE_DICTIONARY])),
        4: (_I32, bomb.codec),
        5: (_I64, bomb.n_values),
        6: (_I64, bomb.n_stated),
        7: (_I64, len(bomb.pages)),
        9: (_I64, at + bomb.n_dictionary),
    }
    if bomb.n_dictionary:
        about[11] = (_I64, at)
    for name in (8, 12, 13, 16):
        about.pop(name, None)
    end = _dump(_STRUCT, footer)
    path.write_bytes(content[:at] + bomb.pages + end + len(end).to_bytes(4, "little") + b"PAR1")


BOMBS: dict[str, tuple[str, int, Bomb]] = {
    "a list": ("blocks", 3, long_list(2**27)),
    "a compressed page": ("chunks", 2, compressed(2**29)),
    "a dictionary": ("sources", 2, large_dictionary(2**29)),
}
"""By name: the table of a catalog, its column, and what is put there."""
