"""Object headers, read straight from the file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.known_messages import (
    MessageForm,
    MessagePlace,
    known_places,
    remember_places,
)
from gridref.formats.hdf5.format.superblock import FieldCursor, Hdf5Bytes

__all__ = ["HeaderMessage", "ObjectHeader", "read_header"]

CONTINUATION_MESSAGE = 0x10
_FIRST_READ_BYTES = 512
_WHAT = "the object header"
_LAST_KNOWN_MESSAGE = 0x18
_SHARED_FLAG, _MUST_BE_KNOWN_FLAG = 0x02, 0x80
_CHECKSUM_BYTES = 4


class HeaderMessage(NamedTuple):
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
        The body only says where the message really is: see
        `gridref.formats.hdf5.format.shared_messages.SharedMessages`.
    is_common
        The body is the same object for all files that have it, and points to nothing else in them.
    """

    kind: int
    data: bytes
    address: int
    is_shared: bool
    is_common: bool = False


@dataclass(frozen=True)
class ObjectHeader:
    """An object header.

    Attributes
    ----------
    address
        Where it lies.
    messages
        Its messages, those in continuation blocks included.
    tracks_attribute_order
        Whether attributes are listed in the order of their creation, not of their names.
    n_bytes
        Size of all its blocks.
    """

    address: int
    messages: tuple[HeaderMessage, ...]
    tracks_attribute_order: bool = False
    n_bytes: int = 0

    @cached_property
    def kinds(self) -> frozenset[int]:
        """The types of its messages."""
        return frozenset([message.kind for message in self.messages])

    def first(self, kind: int) -> HeaderMessage | None:
        """The first message of a kind, if there is one."""
        for message in self.messages:
            if message.kind == kind:
                return message
        return None


@dataclass(frozen=True, slots=True)
class _Block:
    """A piece of a header that holds nothing but messages, perhaps with a gap at its end."""

    data: bytes
    address: int


def read_header(file: Hdf5Bytes, address: int) -> ObjectHeader:
    """The object header at `address`, which counts from the end of the user block.

    HDF5 File Format Specification v3, IV.A.1 and IV.A.2.q (continuation). The checksum of version
    2 headers is verified.

    Raises
    ------
    SourceFormatError
        If the header is corrupt.
    UnsupportedFeatureError
        If it has a message that must be understood and is not known.
    """
    block, form = _first_block(file, address)
    pending = [block]
    messages: list[HeaderMessage] = []
    seen = {address}
    budget = file.end_address - len(block.data)
    while pending:
        found = _messages_of(file, pending.pop(0), form)
        continuations = [message for message in found if message[0] == CONTINUATION_MESSAGE]
        messages += [m for m in found if m[0] != CONTINUATION_MESSAGE] if continuations else found
        for message in continuations:
            start, length = _continuation(file, message)
            budget -= length
            if start in seen or budget < 0:
                raise SourceFormatError(
                    "the object header continues in a circle", file.place(start, length)
                )
            seen.add(start)
            pending.append(_next_block(file, form, start, length))
    n_bytes = file.end_address - budget
    return ObjectHeader(address, tuple(messages), bool(form.flags & 0x04), n_bytes)


def _first_block(file: Hdf5Bytes, address: int) -> tuple[_Block, MessageForm]:
    head = file.read_start(address, _FIRST_READ_BYTES, _WHAT)
    if head[:4] == b"OHDR":
        return _first_block_v2(file, address, head)
    cursor = FieldCursor(head, _WHAT, file.place(address, len(head)))
    version = cursor.take(1)
    if version != 1:
        raise cursor.error(f"has the unknown version {version}")
    # A reserved byte, number of messages, reference count; 4 bytes of padding follow the size.
    cursor.take_bytes(1 + 2 + 4)
    size = cursor.take(4)
    body = _extended(file, address, head, 16 + size)[16:]
    return _Block(body, address + 16), MessageForm(1)


def _first_block_v2(file: Hdf5Bytes, address: int, head: bytes) -> tuple[_Block, MessageForm]:
    version, flags = head[4:6].ljust(2, b"\0")
    # Access, modification, change and birth time; when attributes change between compact and dense.
    at = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    start = at + (1 << (flags & 0x03))
    if version != 2 or start > len(head):
        reason = f"has the unknown version {version}" if version != 2 else "is cut off"
        raise SourceFormatError(f"{_WHAT} {reason}", file.place(address, len(head)))
    size = int.from_bytes(head[at:start], "little")
    whole = _extended(file, address, head, start + size + _CHECKSUM_BYTES)
    body = file.verified(whole, address, _WHAT)
    return _Block(body[start:], address + start), MessageForm(2, flags)


def _extended(file: Hdf5Bytes, address: int, head: bytes, length: int) -> bytes:
    """`length` bytes at `address`, of which `head` are the first ones."""
    if length <= len(head):
        return head[:length]
    rest = file.read(address + len(head), length - len(head), _WHAT)
    return head + rest


def _next_block(file: Hdf5Bytes, form: MessageForm, address: int, length: int) -> _Block:
    structure = "a continuation of the object header"
    if form.version == 1:
        return _Block(file.read(address, length, structure), address)
    cursor = file.read_checked(address, length, structure)
    cursor.expect(b"OCHK", "signature")
    return _Block(cursor.data[cursor.position :], address + cursor.position)


def _messages_of(file: Hdf5Bytes, block: _Block, form: MessageForm) -> list[HeaderMessage]:
    data, address = block.data, block.address
    places = known_places(data, form)
    if places is None:
        places = remember_places(data, form, _divided(file, block, form))
    return [
        HeaderMessage(kind, data[start:stop], address + start, is_shared)
        if body is None
        else HeaderMessage(kind, body, address + start, is_shared, True)
        for kind, start, stop, is_shared, body in places
    ]


def _divided(file: Hdf5Bytes, block: _Block, form: MessageForm) -> list[MessagePlace]:
    data, position = block.data, 0
    prefix_bytes, kind_bytes = form.prefix_bytes, form.kind_bytes
    places = []
    # What is left at the end, and too short for a message, is a gap.
    while position + prefix_bytes <= len(data):
        at = position + kind_bytes
        kind = int.from_bytes(data[position:at], "little")
        size = int.from_bytes(data[at : at + 2], "little")
        flags = data[at + 2]
        start, position = position + prefix_bytes, position + prefix_bytes + size
        if position > len(data):
            raise SourceFormatError(
                f"a message of type {kind} is longer than its object header",
                file.place(block.address + start, size),
            )
        if kind > _LAST_KNOWN_MESSAGE and flags & _MUST_BE_KNOWN_FLAG:
            raise UnsupportedFeatureError(
                f"the object header has a message of the unknown type {kind}",
                file.place(block.address + start, size),
            )
        places.append(MessagePlace(kind, start, position, bool(flags & _SHARED_FLAG)))
    return places


def _continuation(file: Hdf5Bytes, message: HeaderMessage) -> tuple[int, int]:
    data, width = message.data, file.offset_bytes
    if len(data) < width + file.length_bytes:
        place = file.place(message.address, len(data))
        raise SourceFormatError("a continuation message is cut off", place)
    length = data[width : width + file.length_bytes]
    return int.from_bytes(data[:width], "little"), int.from_bytes(length, "little")
