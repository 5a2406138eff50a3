"""Bodies of the messages of a header, wherever they really lie.

Source: HDF5 File Format Specification v3, IV.A.2 "Shared messages".
"""

from __future__ import annotations

from collections.abc import Iterable

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.scan.hdf5.object_header import HeaderMessage, read_messages
from gridref.scan.hdf5.superblock import FieldCursor, Hdf5Bytes

__all__ = ["DATASPACE", "DATATYPE", "message_body", "shared_body"]

DATASPACE, DATATYPE = 0x01, 0x03

_IN_HEAP = 1


def message_body(file: Hdf5Bytes, messages: Iterable[HeaderMessage], kind: int) -> bytes | None:
    """Body of the first message of a kind; None if there is none.

    Raises
    ------
    SourceFormatError
        If it is shared, and not where it should be.
    """
    for message in messages:
        if message.kind == kind:
            return shared_body(file, message) if message.is_shared else message.data
    return None


def shared_body(file: Hdf5Bytes, message: HeaderMessage) -> bytes:
    """Body of a message that says where it really is."""
    place = file.place(message.address, len(message.data))
    cursor = FieldCursor(message.data, "a shared message", place)
    version, kind = cursor.take(1), cursor.take(1)
    if version == 3 and kind == _IN_HEAP:
        raise UnsupportedFeatureError("a message lies in the heap of shared messages", place)
    if version == 1:
        cursor.take_bytes(6)
    address = cursor.take(file.offset_bytes)
    for found in read_messages(file, address):
        if found.kind == message.kind and not found.is_shared:
            return found.data
    raise SourceFormatError(f"a shared message of type {message.kind} is not there", place)
