"""Attributes as object headers hold them.

Source: HDF5 File Format Specification v3, IV.A.2.m "The Attribute Message", IV.A.2.v "The Attribute
Info Message".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gridref.cache import remembers_short
from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.dense_attributes import attribute_info, dense_attribute_messages
from gridref.formats.hdf5.format.header_forms import attribute_head_bytes, says_all
from gridref.formats.hdf5.format.object_header import HeaderMessage
from gridref.formats.hdf5.format.shared_messages import SharedMessages

__all__ = [
    "StoredAttribute",
    "attribute_messages",
    "cut_attribute",
    "dataspace_of",
    "datatype_of",
]

_DATASPACE, _DATATYPE, _ATTRIBUTE, _ATTRIBUTE_INFO = 0x01, 0x03, 0x0C, 0x15
_SHARED_DATATYPE, _SHARED_DATASPACE = 0x01, 0x02
_SIZES = struct.Struct("<HHH")
_CACHED_HEADS = 4096


class StoredAttribute(NamedTuple):
    """An attribute as its message holds it.

    Attributes
    ----------
    name
        Its name.
    datatype, dataspace
        Messages about its elements and their number.
    is_shared
        Whether the first or the second of these only says where the message really is.
    data
        The elements' bytes.
    """

    name: bytes
    datatype: bytes
    dataspace: bytes
    is_shared: tuple[bool, bool]
    data: bytes


def attribute_messages(
    shared: SharedMessages, messages: Sequence[HeaderMessage]
) -> Iterator[tuple[bytes, int, bool]]:
    """Bodies of the attribute messages of an object, about where they lie, and if they say all.

    Those that do not point to what lies elsewhere in the file.

    Raises
    ------
    SourceFormatError
        If where they lie is corrupt.
    """
    for message in messages:
        if message.kind == _ATTRIBUTE:
            original = shared.resolved(message) if message.is_shared else message
            is_whole = not message.is_shared and says_all(message.data)
            yield original.data, message.address, is_whole
        elif message.kind == _ATTRIBUTE_INFO:
            info = attribute_info(shared.file, message.data)
            if info.heap_address is not None:
                for body in dense_attribute_messages(shared, info):
                    yield body, info.heap_address, says_all(body)


def cut_attribute(data: bytes) -> StoredAttribute:
    """Cut an attribute message into its parts.

    Raises
    ------
    SourceFormatError
        If it is cut off.
    UnsupportedFeatureError
        If it is of an unknown version.
    """
    if len(data) < 9:
        raise SourceFormatError("an attribute message is cut off")
    version = data[0]
    if version not in (1, 2, 3):
        raise UnsupportedFeatureError(f"an attribute message has the unknown version {version}")
    stop = attribute_head_bytes(data)
    if stop > len(data):
        raise SourceFormatError("an attribute message is cut off")
    return StoredAttribute(*_cut_head(data[:stop]), data[stop:])


@remembers_short(_CACHED_HEADS)
def _cut_head(head: bytes) -> tuple[bytes, bytes, bytes, tuple[bool, bool]]:
    """All of an attribute message but the elements, which files of a series have in common."""
    version, flags = head[0], head[1]
    position = 9 if version == 3 else 8
    parts = []
    for size in _SIZES.unpack_from(head, 2):
        parts.append(head[position : position + size])
        position += -(-size // 8) * 8 if version == 1 else size
    name, datatype, dataspace = parts
    is_shared = (False, False)
    if version > 1:
        is_shared = bool(flags & _SHARED_DATATYPE), bool(flags & _SHARED_DATASPACE)
    return name.partition(b"\0")[0], datatype, dataspace, is_shared


def datatype_of(shared: SharedMessages, attribute: StoredAttribute, address: int) -> bytes:
    """The message about the elements of an attribute."""
    message = HeaderMessage(_DATATYPE, attribute.datatype, address, attribute.is_shared[0])
    return shared.resolved(message).data


def dataspace_of(shared: SharedMessages, attribute: StoredAttribute, address: int) -> bytes:
    """The message about the number of elements of an attribute."""
    message = HeaderMessage(_DATASPACE, attribute.dataspace, address, attribute.is_shared[1])
    return shared.resolved(message).data
