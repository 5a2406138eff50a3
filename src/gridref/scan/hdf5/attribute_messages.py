"""Attributes read straight from object headers, for the common kinds of values.

Opening an attribute with the HDF5 library costs more than reading a whole header. Whatever is not
understood here is left to the library.

Source: HDF5 File Format Specification v3, IV.A.2.b "Dataspace", IV.A.2.d "Datatype", IV.A.2.m
"Attribute", IV.A.2.v "Attribute Info".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from h5py import h5t

from gridref.scan.hdf5.dense_attributes import attribute_info, dense_attribute_messages
from gridref.scan.hdf5.dtypes import ElementType, Form
from gridref.scan.hdf5.object_header import HeaderMessage
from gridref.scan.hdf5.superblock import Hdf5Bytes

__all__ = ["StoredAttribute", "stored_attributes"]

_ATTRIBUTE, _ATTRIBUTE_INFO = 0x0C, 0x15
_CLASS_STRING, _CLASS_REFERENCE, _CLASS_VLEN = 3, 7, 9
_PADDINGS = ("terminated", "zeros", "spaces")
_CACHED_TYPES = 1024


@dataclass(frozen=True, slots=True)
class StoredAttribute:
    """An attribute as its message holds it.

    Attributes
    ----------
    name
        Its name.
    element
        What its elements are; None for what only the library understands.
    shape
        Extents; None for a null dataspace.
    data
        The elements' bytes.
    is_first
        Whether it is the first one read of a block that has a checksum of its own.
    """

    name: bytes
    element: ElementType | None = None
    shape: tuple[int, ...] | None = ()
    data: bytes = b""
    is_first: bool = False


def stored_attributes(
    file: Hdf5Bytes, messages: Sequence[HeaderMessage]
) -> list[StoredAttribute] | None:
    """The attributes of an object with these header messages; None if the library has to read them.

    Raises
    ------
    SourceFormatError
        If where they lie is corrupt.
    """
    bodies: list[tuple[bytes, bool]] = []
    for message in messages:
        if message.kind == _ATTRIBUTE_INFO:
            info = attribute_info(file, message.data)
            if info.heap_address is not None:
                bodies += ((body, False) for body in dense_attribute_messages(file, info))
        elif message.kind == _ATTRIBUTE:
            if message.is_shared:
                return None
            bodies.append((message.data, False))
    found = [_parse(body, file.length_bytes, is_first) for body, is_first in bodies]
    return None if None in found else [attribute for attribute in found if attribute is not None]


def _parse(data: bytes, length_bytes: int, is_first: bool) -> StoredAttribute | None:
    """Cut an attribute message into its parts; None if it has shared ones or is not understood."""
    if len(data) < 9 or data[0] not in (1, 2, 3) or (data[0] > 1 and data[1]):
        return None
    sizes = struct.unpack_from("<HHH", data, 2)
    parts = []
    position = 9 if data[0] == 3 else 8
    for size in sizes:
        parts.append(data[position : position + size])
        position += -(-size // 8) * 8 if data[0] == 1 else size
    name, datatype, space = parts
    known, shape = _shape(space, length_bytes)
    if position > len(data) or not known:
        return None
    element = _known_type(datatype)
    values = data[position:]
    if element is not None and shape is not None:
        item = struct.unpack_from("<I", datatype, 4)[0]
        if item * math.prod(shape) > len(values):
            return None
    return StoredAttribute(name.partition(b"\0")[0], element, shape, values, is_first)


def _shape(space: bytes, length_bytes: int) -> tuple[bool, tuple[int, ...] | None]:
    """Whether a dataspace is understood, and its extents (None: a null dataspace)."""
    version, rank = space[:1], space[1] if len(space) > 3 else 0
    if version == b"\x01":
        start = 8
    elif version == b"\x02":
        start = 4
        if space[3:4] == b"\x02":
            return True, None
    else:
        return False, None
    if len(space) < start + rank * length_bytes:
        return False, None
    return True, tuple(
        int.from_bytes(space[start + axis * length_bytes :][:length_bytes], "little")
        for axis in range(rank)
    )


def _numbers() -> dict[bytes, ElementType]:
    """Standard numbers by their datatype message, without its version."""
    known = {}
    for order, letter in (("LE", "<"), ("BE", ">")):
        for size in (1, 2, 4, 8):
            for kind in "IUF":
                tid = getattr(
                    h5t, f"{'IEEE' if kind == 'F' else 'STD'}_{kind}{8 * size}{order}", None
                )
                if tid is None or (kind == "F" and size == 1):
                    continue
                message = tid.encode()[2:]
                dtype = np.dtype(f"{kind.lower()}{size}")
                known[_unversioned(message)] = ElementType(
                    dtype, order="|" if size == 1 else "<" if letter == "<" else ">"
                )
    return known


def _unversioned(message: bytes) -> bytes:
    return bytes([message[0] & 0x0F]) + message[1:]


_NUMBERS = _numbers()
_TEXT = ElementType(np.dtypes.StringDType(), Form.TEXT, text=True)
_REFERENCES = ElementType(np.dtype("u8"), Form.RAGGED)


@lru_cache(_CACHED_TYPES)
def _known_type(message: bytes) -> ElementType | None:
    """What a datatype message says; None for what is left to the library."""
    if len(message) < 8:
        return None
    kind, flags = message[0] & 0x0F, message[1]
    if kind == _CLASS_STRING and flags & 0x0F < len(_PADDINGS):
        size = struct.unpack_from("<I", message, 4)[0]
        return ElementType(np.dtype(f"S{size}"), text=True, padding=_PADDINGS[flags & 0x0F])
    if kind == _CLASS_VLEN and flags & 0x0F == 1:
        return _TEXT
    if kind == _CLASS_VLEN and flags & 0x0F == 0 and len(message) >= 16:
        of_objects = message[8] & 0x0F == _CLASS_REFERENCE and message[9] & 0x0F == 0
        return _REFERENCES if of_objects and message[8] >> 4 < 4 else None
    return _NUMBERS.get(_unversioned(message).rstrip(b"\0")) or _NUMBERS.get(_unversioned(message))
