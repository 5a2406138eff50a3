"""HDF5's N-Bit filter: only the significant bits of each element are stored.

Sources: "Using the N-Bit Filter" in the HDF5 documentation (``H5Pset_nbit``), with the layout of
the client data values: number of values, whether nothing was packed, number of elements, then the
datatype as a tree. The bits of all elements follow each other, the most significant bit of each
field first, whatever the byte order of the elements is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gridref.codecs.bits import unpack_integers
from gridref.codecs.stage import ArraySpec, BytesCodec, BytesDecode, Config, Raw, as_u1

__all__ = ["BYTES_CODECS"]

_ATOMIC, _ARRAY, _COMPOUND, _UNPACKED = 1, 2, 3, 4
"""Classes of datatypes in the client data values."""

_MAX_FIELDS = 1 << 16


@dataclass(frozen=True)
class _Field:
    """Some bits of an element.

    Attributes
    ----------
    start_byte
        First byte, in the element, of the number that the bits belong to.
    size_bytes
        Size of that number.
    big_endian
        Byte order of that number.
    precision, offset
        Number of bits, and place of the lowest one inside of the number.
    """

    start_byte: int
    size_bytes: int
    big_endian: bool
    precision: int
    offset: int


@dataclass(frozen=True)
class _Layout:
    """Size of an element in bytes, and its fields in the order in which they are stored."""

    size_bytes: int
    fields: tuple[_Field, ...]


def _layout(values: list[int], start_byte: int, budget: int) -> tuple[_Layout, list[int]]:
    """Read one datatype off the front of the client data values; the rest is returned too."""
    kind, size, *rest = values
    if kind == _ATOMIC:
        order, precision, offset, *rest = rest
        if not (size >= 1 and precision >= 1 and precision + offset <= 8 * size):
            raise ValueError(f"bits {offset} to {offset + precision} of {size} bytes")
        return _Layout(size, (_Field(start_byte, size, order == 1, precision, offset),)), rest
    if kind == _UNPACKED:
        return _Layout(size, (_Field(start_byte, size, True, 8 * size, 0),)), rest
    if kind == _ARRAY:
        return _array_layout(size, rest, start_byte, budget)
    if kind == _COMPOUND:
        return _compound_layout(size, rest, start_byte, budget)
    raise ValueError(f"datatype of class {kind} is unknown")


def _array_layout(
    size: int, values: list[int], start_byte: int, budget: int
) -> tuple[_Layout, list[int]]:
    base, rest = _layout(values, start_byte, budget)
    count, remainder = divmod(size, base.size_bytes)
    if remainder or count * len(base.fields) > budget:
        raise ValueError(f"array of {size} bytes of elements of {base.size_bytes} bytes")
    fields = tuple(
        replace(field, start_byte=field.start_byte + index * base.size_bytes)
        for index in range(count)
        for field in base.fields
    )
    return _Layout(size, fields), rest


def _compound_layout(
    size: int, values: list[int], start_byte: int, budget: int
) -> tuple[_Layout, list[int]]:
    n_members, *rest = values
    fields: tuple[_Field, ...] = ()
    for _ in range(n_members):
        offset, *rest = rest
        member, rest = _layout(rest, start_byte + offset, budget - len(fields))
        if offset + member.size_bytes > size:
            raise ValueError(f"member at byte {offset} does not fit into {size} bytes")
        fields += member.fields
    return _Layout(size, fields), rest


def _unpack_one(packed: Raw, field: _Field, count: int) -> NDArray[np.uint8]:
    """Elements that are one number of up to 8 bytes: their bits need no gathering."""
    numbers = unpack_integers(packed, field.precision, count, field.size_bytes)
    if field.offset:
        numbers <<= field.offset
    ordered = numbers.astype(numbers.dtype.newbyteorder(">" if field.big_endian else "<"))
    unpacked: NDArray[np.uint8] = ordered.view(np.uint8)
    return unpacked


def _unpack_fields(packed: Raw, layout: _Layout, count: int) -> NDArray[np.uint8]:
    """Elements of any layout, bit by bit."""
    width = sum(field.precision for field in layout.fields)
    if len(packed) * 8 < width * count:
        raise ValueError(f"{len(packed)} bytes hold fewer than {count} elements of {width} bits")
    stored = np.unpackbits(as_u1(packed), count=width * count).reshape(count, width)
    # One bit a byte, the highest bit of each byte first, as `numpy.packbits` wants them.
    bits = np.zeros((count, layout.size_bytes * 8), np.uint8)
    start = 0
    for field in layout.fields:
        bits[:, _places(field)] = stored[:, start : start + field.precision]
        start += field.precision
    return np.packbits(bits)


def _places(field: _Field) -> NDArray[np.int64]:
    """Where the bits of a field go in an element, from its most significant bit on."""
    significance = np.arange(field.offset + field.precision - 1, field.offset - 1, -1)
    byte = significance // 8
    if field.big_endian:
        byte = field.size_bytes - 1 - byte
    return (field.start_byte + byte) * 8 + 7 - significance % 8


def _nbit_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    n_values, unpacked, count, *values = config["cd_values"]
    if unpacked:
        return lambda raw: raw
    layout, _ = _layout(values[: n_values - 3], 0, _MAX_FIELDS)
    if decoded_bytes is not None and decoded_bytes != count * layout.size_bytes:
        raise ValueError(f"{count} elements of {layout.size_bytes} bytes are not {decoded_bytes}")
    first = layout.fields[0] if layout.fields else None
    is_number = len(layout.fields) == 1 and layout.size_bytes in (1, 2, 4, 8)
    if first is not None and is_number and first.size_bytes == layout.size_bytes:
        return lambda raw: _unpack_one(raw, first, count)
    return lambda raw: _unpack_fields(raw, layout, count)


def _nbit_problem(config: Config) -> str | None:
    values = config["cd_values"]
    if len(values) < 3 or (not values[1] and len(values) < 5):
        return f"{len(values)} client data values are too few"
    try:
        if not values[1]:
            _layout(values[3 : values[0]], 0, _MAX_FIELDS)
    except (ValueError, ZeroDivisionError, RecursionError) as error:
        return f"client data values are wrong: {error}"
    return None


BYTES_CODECS = {
    "gridref.hdf5_nbit": BytesCodec(_nbit_decoder, required=("cd_values",), problem=_nbit_problem)
}
