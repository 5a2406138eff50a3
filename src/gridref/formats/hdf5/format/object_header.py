"""Object headers, read straight from the file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.header_forms import (
    BlockForm,
    BlockKind,
    HeaderForm,
    MessagePlace,
    block_kind,
    form_of_blocks,
    known_form,
    remember_form,
)
from gridref.formats.hdf5.format.superblock import FieldCursor, Hdf5Bytes

__all__ = ["HeaderMessage", "ObjectHeader", "read_header"]

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
    """

    kind: int
    data: bytes
    address: int
    is_shared: bool


class HeaderBlock(NamedTuple):
    """A piece of a header that holds nothing but messages, perhaps with a gap at its end."""

    data: bytes
    address: int
    form: BlockForm


@dataclass(frozen=True)
class ObjectHeader:
    """An object header.

    Attributes
    ----------
    address
        Where it lies.
    blocks
        Its pieces.
    tracks_attribute_order
        Whether attributes are listed in the order of their creation, not of their names.
    n_bytes
        Size of all its blocks.
    """

    address: int
    blocks: tuple[HeaderBlock, ...]
    tracks_attribute_order: bool
    n_bytes: int

    @cached_property
    def form(self) -> HeaderForm:
        """What it has in common with those of other files."""
        return form_of_blocks(tuple([block.form for block in self.blocks]))

    @cached_property
    def messages(self) -> tuple[HeaderMessage, ...]:
        """Its messages, those in continuation blocks included."""
        return tuple([self._message(*place) for place in self.form.places])

    @property
    def kinds(self) -> frozenset[int]:
        """The types of its messages."""
        return self.form.kinds

    @property
    def values(self) -> bytes:
        """Values of all attributes that point to nothing else, one after the other."""
        return b"".join([block.form.values(block.data) for block in self.blocks])

    def first(self, kind: int) -> HeaderMessage | None:
        """The first message of a kind, if there is one."""
        place = self.form.first.get(kind)
        return None if place is None else self._message(*place)

    def differing(self, block: int, place: MessagePlace) -> bytes:
        """What a message says that alike headers do not have in common."""
        return self.blocks[block].data[place.differs]

    def _message(self, number: int, place: MessagePlace) -> HeaderMessage:
        block, start = self.blocks[number], place.start
        body = block.data[start : place.stop]
        return HeaderMessage(place.kind, body, block.address + start, place.is_shared)


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
    data, start, kind = _first_block(file, address)
    blocks = [_block(file, data, start, kind)]
    seen = {address}
    budget = file.end_address - len(data)
    for block in blocks:  # which grow meanwhile
        for place in block.form.continuations:
            start, length = _continuation(file, block, place)
            budget -= length
            if start in seen or budget < 0:
                raise SourceFormatError(
                    "the object header continues in a circle", file.place(start, length)
                )
            seen.add(start)
            blocks.append(_block(file, *_next_block(file, kind, start, length), kind))
    n_bytes = file.end_address - budget
    return ObjectHeader(address, tuple(blocks), bool(kind.flags & 0x04), n_bytes)


def _first_block(file: Hdf5Bytes, address: int) -> tuple[bytes, int, BlockKind]:
    """Messages of the first block, where they lie, and what all blocks look like."""
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
    return body, address + 16, block_kind(1, 0, file.offset_bytes, file.length_bytes)


def _first_block_v2(file: Hdf5Bytes, address: int, head: bytes) -> tuple[bytes, int, BlockKind]:
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
    kind = block_kind(2, flags, file.offset_bytes, file.length_bytes)
    return body[start:], address + start, kind


def _extended(file: Hdf5Bytes, address: int, head: bytes, length: int) -> bytes:
    """`length` bytes at `address`, of which `head` are the first ones."""
    if length <= len(head):
        return head[:length]
    rest = file.read(address + len(head), length - len(head), _WHAT)
    return head + rest


def _next_block(file: Hdf5Bytes, kind: BlockKind, address: int, length: int) -> tuple[bytes, int]:
    structure = "a continuation of the object header"
    if kind.version == 1:
        return file.read(address, length, structure), address
    data = file.verified(file.read(address, length, structure), address, structure)
    if data[:4] != b"OCHK":
        cursor = FieldCursor(data, structure, file.place(address, length))
        cursor.expect(b"OCHK", "signature")
    return data[4:], address + 4


def _block(file: Hdf5Bytes, data: bytes, address: int, kind: BlockKind) -> HeaderBlock:
    form = known_form(data, kind)
    if form is None:
        form = remember_form(data, kind, _divided(file, data, address, kind))
    return HeaderBlock(data, address, form)


def _divided(file: Hdf5Bytes, data: bytes, address: int, form: BlockKind) -> list[MessagePlace]:
    position, places = 0, []
    prefix_bytes, kind_bytes = form.prefix_bytes, form.kind_bytes
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
                file.place(address + start, size),
            )
        if kind > _LAST_KNOWN_MESSAGE and flags & _MUST_BE_KNOWN_FLAG:
            raise UnsupportedFeatureError(
                f"the object header has a message of the unknown type {kind}",
                file.place(address + start, size),
            )
        places.append(MessagePlace(kind, start, position, bool(flags & _SHARED_FLAG)))
    return places


def _continuation(file: Hdf5Bytes, block: HeaderBlock, place: MessagePlace) -> tuple[int, int]:
    data, width = block.data[place.start : place.stop], file.offset_bytes
    if len(data) < width + file.length_bytes:
        at = file.place(block.address + place.start, len(data))
        raise SourceFormatError("a continuation message is cut off", at)
    length = data[width : width + file.length_bytes]
    return int.from_bytes(data[:width], "little"), int.from_bytes(length, "little")
