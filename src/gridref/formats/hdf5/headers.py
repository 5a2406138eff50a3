"""Read object headers of HDF5 files, with shared messages and metadata cache images.

`read_header` takes the address of an object and returns its header messages. `SharedMessages`
finds the messages that several headers share. `with_cache_image` reads a file whose metadata is in
the image of the metadata cache.

The files of a series have nearly identical object headers: only addresses and attribute values
differ. Blocks that are equal apart from those share one `BlockForm`, which records where their
messages are. Headers made of such blocks share one `HeaderForm`. What follows from a form is
computed once for all of them. A form is found by every byte that may not differ, so a file cannot
change what is read from another one.

Source for shared messages: HDF5 File Format Specification v3, II.C "Superblock Extension", III.H
"Shared Object Header Message Table", IV.A.2.p "Shared Message Table Message", and "Shared Message"
in IV.A.2 for the body that stands for a shared message.

Source for cache images: HDF5 1.10 on, ``H5Cimage.c`` ("Metadata Cache Image block") and
``H5Omdci.c``. The HDF5 File Format Specification v3, IV.A.2, describes neither.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from gridref.errors import ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.bytes import ByteReader, FieldCursor, Hdf5Bytes
from gridref.formats.hdf5.heaps import FractalHeap
from gridref.learned import FORMS

# Types of messages (IV.A.2)

NIL, DATASPACE, LINK_INFO, DATATYPE, OLD_FILL, FILL = 0x00, 0x01, 0x02, 0x03, 0x04, 0x05
LINK, EXTERNAL_FILES, LAYOUT, FILTERS, ATTRIBUTE = 0x06, 0x07, 0x08, 0x0B, 0x0C
SHARED_TABLE, CONTINUATION, SYMBOL_TABLE, DRIVER = 0x0F, 0x10, 0x11, 0x14
ATTRIBUTE_INFO, FILE_SPACE_INFO, CACHE_IMAGE = 0x15, 0x17, 0x18

# Forms: what similar header blocks have in common

_COMPACT, _CONTIGUOUS, _CHUNKED = 0, 1, 2


class BlockKind(NamedTuple):
    """The structure of all blocks of one header: its version and flags, and the file's widths."""

    version: int
    flags: int
    offset_bytes: int
    length_bytes: int

    @property
    def prefix_bytes(self) -> int:
        """Size of what comes before the body of each message."""
        if self.version == 1:
            return 8
        return 6 if self.flags & 0x04 else 4

    @property
    def kind_bytes(self) -> int:
        """Size of the message type, which the size of the body and the flags follow."""
        return 2 if self.version == 1 else 1


class MessagePlace(NamedTuple):
    """A message, and the place of its body in its block.

    Attributes
    ----------
    kind, is_shared
        As in `gridref.formats.hdf5.headers.HeaderMessage`.
    start, stop
        Byte range of the body.
    differs
        Byte range that differs in similar blocks: addresses, values; empty where nothing does.
    """

    kind: int
    start: int
    stop: int
    is_shared: bool
    differs: slice = slice(0, 0)


@dataclass(frozen=True, eq=False)
class BlockForm:
    """What similar blocks have in common; one object for all of them."""

    places: tuple[MessagePlace, ...]

    @cached_property
    def continuations(self) -> tuple[MessagePlace, ...]:
        """The messages with the address of the next block of the header."""
        return tuple(place for place in self.places if place.kind == CONTINUATION)


@dataclass(frozen=True, eq=False)
class HeaderForm:
    """What similar object headers have in common; one object for all of them."""

    blocks: tuple[BlockForm, ...]

    @cached_property
    def places(self) -> tuple[tuple[int, MessagePlace], ...]:
        """The messages other than continuations, each with the number of its block."""
        return tuple(
            (number, place)
            for number, block in enumerate(self.blocks)
            for place in block.places
            if place.kind != CONTINUATION
        )

    @cached_property
    def first(self) -> dict[int, tuple[int, MessagePlace]]:
        """The first message of each kind."""
        return {place.kind: (number, place) for number, place in reversed(self.places)}

    @cached_property
    def kinds(self) -> frozenset[int]:
        return frozenset(self.first)

    @cached_property
    def is_plain(self) -> bool:
        """Whether no message is shared."""
        return not any(place.is_shared for _, place in self.places)


def remember_form(data: bytes, kind: BlockKind, places: list[MessagePlace]) -> BlockForm:
    """Remember the messages of a block."""
    places = [place._replace(differs=_differing(data, place, kind)) for place in places]
    form = BlockForm(tuple(places))
    holes = [place.differs for place in places]
    return FORMS.keep(kind, data, holes, form, 1000 + 400 * len(places))


def form_of_blocks(blocks: tuple[BlockForm, ...]) -> HeaderForm:
    """The form of a header with such blocks."""
    key = HeaderForm, blocks
    known: HeaderForm | None = FORMS.get(key)
    return FORMS.put(key, HeaderForm(blocks), 1000 + 1000 * len(blocks)) if known is None else known


def _differing(data: bytes, place: MessagePlace, kind: BlockKind) -> slice:
    """The part of a message that differs in similar blocks, if the message is valid."""
    body = data[place.start : place.stop]
    if place.is_shared:
        return slice(0, 0)
    start, stop = next(_open_part(body, place.kind, kind), (0, 0))
    if not 0 <= start < stop <= len(body):
        return slice(0, 0)
    return slice(place.start + start, place.start + stop)


def _open_part(body: bytes, message: int, kind: BlockKind) -> Iterator[tuple[int, int]]:
    width, flags = kind.offset_bytes, body[1] if len(body) > 1 else 0
    if message in (NIL, CONTINUATION, SYMBOL_TABLE):
        yield 0, len(body)
    elif message in (LINK_INFO, ATTRIBUTE_INFO):
        counter = 8 if message == LINK_INFO else 2
        start = 2 + (counter if flags & 1 else 0)
        stop = start + width * (3 if flags & 2 else 2)
        if body[start:stop].count(0xFF) != stop - start:  # it points elsewhere
            yield start, stop
    elif message == LINK and not flags & 0x08:
        yield len(body) - width, len(body)
    elif message == LAYOUT:
        yield _open_part_of_layout(body, width)
    elif message == ATTRIBUTE:
        yield attribute_head_bytes(body), len(body)


def _open_part_of_layout(body: bytes, width: int) -> tuple[int, int]:
    """Addresses of data or a chunk index; data itself; sizes in an index of one chunk."""
    version, second, third = body[:3].ljust(3, b"\0")
    if version in (1, 2):  # number of dimensions and class
        return (8 + 4 * second + 4, len(body)) if third == _COMPACT else (8, 8 + width)
    if version == 3 and second in (_COMPACT, _CHUNKED):  # class
        return (4, len(body)) if second == _COMPACT else (3, 3 + width)
    if second != _CHUNKED:
        return (2, 2 + width) if second == _CONTIGUOUS else (2, len(body))
    n_dimensions, length_bytes = body[3:5].ljust(2, b"\0")
    return 5 + n_dimensions * length_bytes + 1, len(body)


def attribute_head_bytes(body: bytes) -> int:
    """Size of an attribute's message without its elements."""
    sizes = [int.from_bytes(body[at : at + 2], "little") for at in (2, 4, 6)]
    if body[:1] == b"\1":
        sizes = [-(-size // 8) * 8 for size in sizes]
    return (9 if body[:1] == b"\3" else 8) + sum(sizes)


# Object headers and their blocks

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
        Where the body is.
    is_shared
        The body only points to the message itself: see
        `gridref.formats.hdf5.headers.SharedMessages`.
    """

    kind: int
    data: bytes
    address: int
    is_shared: bool


class HeaderBlock(NamedTuple):
    """A piece of a header with messages only, perhaps with a gap at its end."""

    data: bytes
    address: int
    form: BlockForm


@dataclass(frozen=True)
class ObjectHeader:
    """An object header.

    Attributes
    ----------
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
        """What it has in common with headers of other files."""
        return form_of_blocks(tuple([block.form for block in self.blocks]))

    @cached_property
    def messages(self) -> tuple[HeaderMessage, ...]:
        """Its messages, those in continuation blocks included."""
        return tuple([self._message(*place) for place in self.form.places])

    @property
    def kinds(self) -> frozenset[int]:
        return self.form.kinds

    def first(self, kind: int) -> HeaderMessage | None:
        """The first message of a kind, if there is one."""
        place = self.form.first.get(kind)
        return None if place is None else self._message(*place)

    def differing(self, block: int, place: MessagePlace) -> bytes:
        """The parts of a message that differ in similar headers."""
        return self.blocks[block].data[place.differs]

    def _message(self, number: int, place: MessagePlace) -> HeaderMessage:
        block, start = self.blocks[number], place.start
        body = block.data[start : place.stop]
        return HeaderMessage(place.kind, body, block.address + start, place.is_shared)


def read_header(file: Hdf5Bytes, address: int) -> ObjectHeader:
    """The object header at `address`, which counts from the end of the user block.

    HDF5 File Format Specification v3, IV.A.1 and IV.A.2.q (continuation). The checksum of version
    2 headers is verified.
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
    """Messages of the first block, their place, and the structure of all blocks."""
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
    return body, address + 16, BlockKind(1, 0, file.offset_bytes, file.length_bytes)


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
    kind = BlockKind(2, flags, file.offset_bytes, file.length_bytes)
    return body[start:], address + start, kind


def _extended(file: Hdf5Bytes, address: int, head: bytes, length: int) -> bytes:
    """`length` bytes at `address`, the first of them being `head`."""
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
    form = FORMS.find(kind, data)
    if form is None:
        form = remember_form(data, kind, _divided(file, data, address, kind))
    return HeaderBlock(data, address, form)


def _divided(file: Hdf5Bytes, data: bytes, address: int, form: BlockKind) -> list[MessagePlace]:
    position, places = 0, []
    prefix_bytes, kind_bytes = form.prefix_bytes, form.kind_bytes
    # A rest at the end that is too short for a message is a gap.
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


# Shared messages: committed datatypes, and messages in the file's heaps

_IN_HEAP = 1
_HEAP_ID_BYTES = 8
_INDEX_BYTES = 14  # of an index in the table, without its two addresses
_MOST_INDEXES = 8


class SharedMessages:
    """Header messages; shared ones are looked up once."""

    def __init__(self, file: Hdf5Bytes) -> None:
        self.file = file
        self._resolved: dict[tuple[int, bytes], HeaderMessage] = {}
        self._heaps: dict[int, FractalHeap] = {}

    def resolved(self, message: HeaderMessage) -> HeaderMessage:
        """The message that a shared one refers to; the message itself if it is not shared.

        Looked up once for each body: many datasets may share one datatype.
        """
        if not message.is_shared:
            return message
        key = message.kind, message.data
        original = self._resolved.get(key)
        if original is None:
            original = self._resolved[key] = self._resolve(message)
        return original

    def decoded[T](self, header: ObjectHeader, kind: int, decode: Callable[[bytes], T]) -> T | None:
        """What the first message of a kind in a header says; None if there is none.

        Raises
        ------
        SourceFormatError, UnsupportedFeatureError
            The errors of `decode`, with the message's place in the file.
        """
        message = header.first(kind)
        if message is None:
            return None
        try:
            return decode(self.resolved(message).data)
        except ScanError as error:
            place = self.file.place(message.address, len(message.data))
            raise error.located(place) from error.__cause__

    def in_heap(self, kind: int, heap_id: bytes) -> bytes:
        """The body of a message of some type in the heap for shared messages of this type."""
        heap = self._heaps.get(kind)
        if heap is None:
            heap = self._heaps[kind] = FractalHeap(self.file, _heap_address(self.file, kind))
        return heap.get(heap_id)

    def _resolve(self, message: HeaderMessage) -> HeaderMessage:
        file = self.file
        place = file.place(message.address, len(message.data))
        cursor = FieldCursor(message.data, "a shared message", place)
        version, kind = cursor.take(1), cursor.take(1)
        if version not in (1, 2, 3):
            raise UnsupportedFeatureError(
                f"a shared message has the unknown version {version}", place
            )
        if version == 3 and kind == _IN_HEAP:
            data = self.in_heap(message.kind, cursor.take_bytes(_HEAP_ID_BYTES))
            return message._replace(data=data, is_shared=False)
        if version == 1:
            cursor.take_bytes(6 + file.length_bytes)
        address = cursor.take(file.offset_bytes)
        original = read_header(file, address).first(message.kind)
        if original is None or original.is_shared:
            raise SourceFormatError(
                f"the object header has no message of type {message.kind} to share",
                file.place(address),
            )
        return original


def _heap_address(file: Hdf5Bytes, kind: int) -> int:
    """The address of the heap of shared messages of a type."""
    if file.extension is None:
        raise SourceFormatError("the file has no table of shared messages", file.place(0))
    message = read_header(file, file.extension).first(SHARED_TABLE)
    if message is None:
        raise SourceFormatError(
            "the file has no table of shared messages", file.place(file.extension)
        )
    place = file.place(message.address, len(message.data))
    cursor = FieldCursor(message.data, "the message about shared messages", place)
    cursor.expect(b"\0", "version")
    address, n_indexes = cursor.take(file.offset_bytes), cursor.take(1)
    if n_indexes > _MOST_INDEXES:
        raise cursor.error(f"declares {n_indexes} indexes")
    entry_bytes = _INDEX_BYTES + 2 * file.offset_bytes
    table = file.read_checked(address, 8 + n_indexes * entry_bytes, "the table of shared messages")
    table.expect(b"SMTB", "signature")
    for _ in range(n_indexes):
        table.take_bytes(2)  # version and kind of the index
        kinds = table.take(2)
        table.take_bytes(_INDEX_BYTES - 4 + file.offset_bytes)
        heap = table.take(file.offset_bytes)
        if kinds >> kind & 1:
            return heap
    raise table.error(f"has no messages of type {kind}")


# Metadata cache images: metadata in one piece, newer than the metadata in its own place

_IMAGE = "the image of the metadata cache"


def with_cache_image(file: Hdf5Bytes, message: HeaderMessage) -> Hdf5Bytes:
    """A file whose metadata comes from its image, as far as that has it.

    `message` is in the superblock extension.
    """
    place = file.place(message.address, len(message.data))
    cursor = FieldCursor(message.data, "the message about the metadata cache", place)
    cursor.expect(b"\0", "version")
    address, length = cursor.take(file.offset_bytes), cursor.take(file.length_bytes)
    if address == file.undefined_address or not length:
        return file
    entries = dict(_entries(file, file.read_checked(address, length, _IMAGE)))
    return replace(file, reader=_Overlaid(file.reader, entries))


def _entries(file: Hdf5Bytes, cursor: FieldCursor) -> Iterator[tuple[int, bytes]]:
    """Offset in the file and bytes of each piece of metadata."""
    cursor.expect(b"MDCI\0", "signature and version")
    cursor.take(1)  # whether the cache's settings are kept, too
    cursor.take(file.length_bytes)
    for _ in range(cursor.take(4)):
        # Type, flags, ring and age; how many entries depend on it, and how many of them are dirty.
        cursor.take_bytes(4 + 2 + 2)
        n_parents = cursor.take(2)
        cursor.take_bytes(4)  # its rank among those that were used last
        address, length = cursor.take(file.offset_bytes), cursor.take(file.length_bytes)
        file.check_range(address, length, "metadata in " + _IMAGE)
        cursor.take_bytes(n_parents * file.offset_bytes)
        yield file.base_address + address, cursor.take_bytes(length)


class _Overlaid:
    """Bytes of a file in which pieces, by offset, are replaced; they do not overlap."""

    def __init__(self, reader: ByteReader, pieces: Mapping[int, bytes]) -> None:
        self._reader = reader
        self._pieces = [pieces[start] for start in sorted(pieces)]
        self._starts = sorted(pieces)

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self._reader.size_bytes

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on."""
        return self._overlay(offset, self._reader.read(offset, length))

    def read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Several reads at once."""
        return list(map(self._overlay, offsets, self._reader.read_many(offsets, lengths)))

    def _overlay(self, offset: int, data: bytes) -> bytes:
        stop = offset + len(data)
        first = max(0, bisect_right(self._starts, offset) - 1)
        for start, piece in zip(self._starts[first:], self._pieces[first:], strict=True):
            if start >= stop:
                break
            if start + len(piece) > offset:
                inside = piece[max(0, offset - start) : stop - start]
                at = max(0, start - offset)
                data = data[:at] + inside + data[at + len(inside) :]
        return data
