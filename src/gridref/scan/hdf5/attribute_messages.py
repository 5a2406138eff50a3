"""Attributes as object headers hold them.

Source: HDF5 File Format Specification v3, IV.A.2.m "The Attribute Message", IV.A.2.v "The Attribute
Info Message".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.scan.hdf5.dense_attributes import attribute_info, dense_attribute_messages
from gridref.scan.hdf5.object_header import HeaderMessage
from gridref.scan.hdf5.shared_messages import resolved
from gridref.scan.hdf5.superblock import Hdf5Bytes

__all__ = ["StoredAttribute", "stored_attributes"]

_DATASPACE, _DATATYPE, _ATTRIBUTE, _ATTRIBUTE_INFO = 0x01, 0x03, 0x0C, 0x15
_SHARED_DATATYPE, _SHARED_DATASPACE = 0x01, 0x02
_SIZES = struct.Struct("<HHH")


@dataclass(frozen=True, slots=True)
class StoredAttribute:
    """An attribute as its message holds it.

    Attributes
    ----------
    name
        Its name.
    datatype, dataspace
        Messages about its elements and their number.
    data
        The elements' bytes.
    """

    name: bytes
    datatype: HeaderMessage
    dataspace: HeaderMessage
    data: bytes


def stored_attributes(
    file: Hdf5Bytes, messages: Sequence[HeaderMessage]
) -> Iterator[StoredAttribute]:
    """The attributes of an object with these header messages.

    Raises
    ------
    SourceFormatError
        If they, or where they lie, are corrupt.
    UnsupportedFeatureError
        If a message is of an unknown version.
    """
    for message in messages:
        if message.kind == _ATTRIBUTE:
            found = resolved(file, message)
            yield _cut(file, found.data, found.address)
        elif message.kind == _ATTRIBUTE_INFO:
            info = attribute_info(file, message.data)
            if info.heap_address is not None:
                for body in dense_attribute_messages(file, info):
                    yield _cut(file, body, info.heap_address)


def _cut(file: Hdf5Bytes, data: bytes, address: int) -> StoredAttribute:
    """Cut an attribute message into its parts."""
    version, flags = (data[0], data[1]) if len(data) > 8 else (0, 0)
    if version not in (1, 2, 3):
        place = file.place(address, len(data))
        if len(data) > 8:
            raise UnsupportedFeatureError(
                f"an attribute message has the unknown version {version}", place
            )
        raise SourceFormatError("an attribute message is cut off", place)
    position = 9 if version == 3 else 8
    parts = []
    for size in _SIZES.unpack_from(data, 2):
        parts.append(data[position : position + size])
        position += -(-size // 8) * 8 if version == 1 else size
    if position > len(data):
        raise SourceFormatError("an attribute message is cut off", file.place(address, len(data)))
    name, datatype, dataspace = parts
    shared = 0 if version == 1 else flags
    return StoredAttribute(
        name.partition(b"\0")[0],
        HeaderMessage(_DATATYPE, datatype, address, bool(shared & _SHARED_DATATYPE)),
        HeaderMessage(_DATASPACE, dataspace, address, bool(shared & _SHARED_DATASPACE)),
        data[position:],
    )
