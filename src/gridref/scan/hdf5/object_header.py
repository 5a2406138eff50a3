"""Messages of an object header, read straight from the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.scan.hdf5.checksum import lookup3
from gridref.scan.hdf5.superblock import FieldCursor, Hdf5Bytes

__all__ = ["HeaderMessage", "read_messages"]

CONTINUATION_MESSAGE = 0x10
_FIRST_READ_BYTES = 512
_SHARED_FLAG = 0x02
_CHECKSUM_BYTES = 4


@dataclass(frozen=True, slots=True)
class HeaderMessage:
    """One message of an object header.

    Attributes
    ----------
    kind
        Message type, as numbered in the specification.
    data
        The body of the message.
    address
        Where the body lies.
    is_shared
        The body only says where the message really is.
    """

    kind: int
    data: bytes
    address: int
    is_shared: bool


@dataclass(frozen=True, slots=True)
class _Block:
    """A piece of a header that holds nothing but messages, perhaps with a gap at its end."""

    data: bytes
    address: int
    prefix_bytes: int  # of each message
    size_position: int  # of the size inside this prefix; the flags follow it
    kind_bytes: int


def read_messages(file: Hdf5Bytes, address: int, *, verify: bool = True) -> Iterator[HeaderMessage]:
    """All messages of the object header at `address`, continuation blocks included.

    HDF5 File Format Specification v3, IV.A.1 and IV.A.2.q (continuation). The checksum of version
    2 headers is verified.

    Parameters
    ----------
    file
        The file.
    address
        As `h5py.h5o.get_info` gives it: relative to the user block's end.
    verify
        Whether to verify checksums: the HDF5 library has done so if it has opened the object.

    Raises
    ------
    SourceFormatError
        If the header is corrupt.
    UnsupportedFeatureError
        If it is of an unknown version.
    """
    block, has_checksum = _first_block(file, address, verify)
    pending = [block]
    seen = {address}
    budget = file.end_address - len(block.data)
    while pending:
        block = pending.pop(0)
        for message in _messages_of(file, block):
            if message.kind != CONTINUATION_MESSAGE:
                yield message
                continue
            start, length = _continuation(file, message)
            budget -= length
            if start in seen or budget < 0:
                raise SourceFormatError(
                    "the object header continues in a circle", file.place(start, length)
                )
            seen.add(start)
            pending.append(_next_block(file, block, start, length, has_checksum, verify))


def _first_block(file: Hdf5Bytes, address: int, verify: bool) -> tuple[_Block, bool]:
    available = max(0, file.end_address - address)
    head = file.read(address, min(_FIRST_READ_BYTES, available), "the object header")
    if head[:4] == b"OHDR":
        return _first_block_v2(file, address, head, verify), True
    cursor = FieldCursor(head, "the object header", file.place(address, len(head)))
    version = cursor.take(1)
    if version != 1:
        raise UnsupportedFeatureError(
            f"the object header has the unknown version {version}", cursor.place
        )
    # A reserved byte, number of messages, reference count; 4 bytes of padding follow the size.
    cursor.take_bytes(1 + 2 + 4)
    size = cursor.take(4)
    body = _extended(file, address, head, 16 + size)[16:]
    return _Block(body, address + 16, prefix_bytes=8, size_position=2, kind_bytes=2), False


def _first_block_v2(file: Hdf5Bytes, address: int, head: bytes, verify: bool) -> _Block:
    cursor = FieldCursor(head, "the object header", file.place(address, len(head)))
    cursor.expect(b"OHDR", "signature")
    version = cursor.take(1)
    if version != 2:
        raise UnsupportedFeatureError(
            f"the object header has the unknown version {version}", cursor.place
        )
    flags = cursor.take(1)
    cursor.take_bytes(16 if flags & 0x20 else 0)  # access, modification, change and birth time
    cursor.take_bytes(4 if flags & 0x10 else 0)  # when attributes change between compact and dense
    size = cursor.take(1 << (flags & 0x03))
    start = cursor.position
    whole = _extended(file, address, head, start + size + _CHECKSUM_BYTES)
    if verify:
        _verify(file, address, whole)
    prefix_bytes = 6 if flags & 0x04 else 4
    return _Block(whole[start:-_CHECKSUM_BYTES], address + start, prefix_bytes, 1, 1)


def _extended(file: Hdf5Bytes, address: int, head: bytes, length: int) -> bytes:
    """`length` bytes at `address`, of which `head` are the first ones."""
    if length <= len(head):
        return head[:length]
    rest = file.read(address + len(head), length - len(head), "the object header")
    return head + rest


def _next_block(
    file: Hdf5Bytes, first: _Block, address: int, length: int, has_checksum: bool, verify: bool
) -> _Block:
    data = file.read(address, length, "a continuation of the object header")
    start = 0
    if has_checksum:
        cursor = FieldCursor(data, "a continuation", file.place(address, length))
        cursor.expect(b"OCHK", "signature")
        if verify:
            _verify(file, address, data)
        start = cursor.position
        data = data[:-_CHECKSUM_BYTES]
    return _Block(
        data[start:], address + start, first.prefix_bytes, first.size_position, first.kind_bytes
    )


def _verify(file: Hdf5Bytes, address: int, data: bytes) -> None:
    body, stored = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if len(stored) < _CHECKSUM_BYTES or lookup3(body) != int.from_bytes(stored, "little"):
        raise SourceFormatError(
            "the checksum of the object header is wrong", file.place(address, len(data))
        )


def _messages_of(file: Hdf5Bytes, block: _Block) -> Iterator[HeaderMessage]:
    data, position = block.data, 0
    # What is left at the end, and too short for a message, is a gap.
    while position + block.prefix_bytes <= len(data):
        kind = int.from_bytes(data[position : position + block.kind_bytes], "little")
        at = position + block.size_position
        size = int.from_bytes(data[at : at + 2], "little")
        start, position = position + block.prefix_bytes, position + block.prefix_bytes + size
        if position > len(data):
            raise SourceFormatError(
                f"a message of type {kind} is longer than its object header",
                file.place(block.address + start, size),
            )
        yield HeaderMessage(
            kind, data[start:position], block.address + start, bool(data[at + 2] & _SHARED_FLAG)
        )


def _continuation(file: Hdf5Bytes, message: HeaderMessage) -> tuple[int, int]:
    cursor = FieldCursor(
        message.data,
        "a continuation message",
        file.place(message.address, len(message.data)),
    )
    return cursor.take(file.offset_bytes), cursor.take(file.length_bytes)
