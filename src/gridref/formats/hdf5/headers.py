"""Read object headers of HDF5 files, and what they say about the shape and the place of data.

`read_header` takes the address of an object and returns its header messages. `SharedMessages`
finds the messages that several headers share. `with_cache_image` reads a file whose metadata is in
the image of the metadata cache. `read_dataspace` returns the shape of a dataset or attribute, and
its maximum shape. `data_layout_of` returns the place of a dataset's data: in the header, in one
piece, in chunks with an index, or in the source datasets of a virtual one.

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

Source for dataspace and layout: HDF5 File Format Specification v3, IV.A.2.b "The Dataspace
Message", IV.A.2.i "The Data Layout Message".
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property, partial
from typing import NamedTuple

from gridref.errors import ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.bytes import CHECKSUM_BYTES, ByteReader, FieldCursor, Hdf5Bytes
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
        return {place.kind: (number, place) for number, place in reversed(self.places)}

    @cached_property
    def kinds(self) -> frozenset[int]:
        return frozenset(self.first)

    @cached_property
    def is_plain(self) -> bool:
        """Whether no message is shared."""
        return not any(place.is_shared for _, place in self.places)


def _remember_form(data: bytes, kind: BlockKind, places: list[MessagePlace]) -> BlockForm:
    places = [place._replace(differs=_differing(data, place, kind)) for place in places]
    form = BlockForm(tuple(places))
    holes = [place.differs for place in places]
    return FORMS.keep(kind, data, holes, form, 1000 + 400 * len(places))


def _form_of_blocks(blocks: tuple[BlockForm, ...]) -> HeaderForm:
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


class HeaderMessage(NamedTuple):
    """One message of an object header.

    Attributes
    ----------
    kind
        Message type, as numbered in the specification.
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
        return _form_of_blocks(tuple([block.form for block in self.blocks]))

    @cached_property
    def messages(self) -> tuple[HeaderMessage, ...]:
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
    whole = _extended(file, address, head, start + size + CHECKSUM_BYTES)
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
        form = _remember_form(data, kind, _divided(file, data, address, kind))
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
        """What the first message of a kind in a header says; None if there is none."""
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
        return self._reader.size_bytes

    def read(self, offset: int, length: int) -> bytes:
        return self._overlay(offset, self._reader.read(offset, length))

    def read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
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


# The dataspace message: shape and maximum shape

_MAX_RANK = 32
_MAX_EXTENT = (1 << 63) - 1
_HEADER_BYTES = {1: 8, 2: 4}
_HAS_MAXIMUM = 0x01
_NULL = 2


@dataclass(frozen=True, slots=True)
class Dataspace:
    """Extents of a dataset or an attribute.

    Attributes
    ----------
    shape
        Extents now; None for a null dataspace, which holds no elements.
    maxshape
        Greatest extents; None: without limit.
    """

    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...]


@FORMS.remembers
def read_dataspace(message: bytes, length_bytes: int) -> Dataspace:
    """Decode a dataspace message.

    Parameters
    ----------
    length_bytes
        Width of a length in the file.
    """
    if len(message) < 4:
        raise SourceFormatError("the dataspace message is cut off")
    version, rank, flags = message[:3]
    start = _HEADER_BYTES.get(version)
    if start is None:
        raise SourceFormatError(f"the dataspace message has the unknown version {version}")
    if rank > _MAX_RANK:
        raise SourceFormatError(f"the dataspace message declares {rank} dimensions")
    if version == 2 and message[3] == _NULL:
        return Dataspace(None, ())
    shape = _extents(message, start, rank, length_bytes)
    if max(shape, default=0) > _MAX_EXTENT:
        raise SourceFormatError(f"the dataspace message declares the extents {shape}")
    if not flags & _HAS_MAXIMUM:
        return Dataspace(shape, shape)
    unlimited = (1 << 8 * length_bytes) - 1
    largest = _extents(message, start + rank * length_bytes, rank, length_bytes)
    if any(most < extent for extent, most in zip(shape, largest, strict=True)):
        raise SourceFormatError(f"the dataspace's extents {shape} are larger than {largest}")
    return Dataspace(shape, tuple(None if most == unlimited else most for most in largest))


def _extents(message: bytes, start: int, rank: int, width: int) -> tuple[int, ...]:
    stop = start + rank * width
    if stop > len(message):
        raise SourceFormatError("the dataspace message is cut off")
    return tuple(
        int.from_bytes(message[at : at + width], "little") for at in range(start, stop, width)
    )


# The data layout message: the place of a dataset's data, or of its chunk index

_MAX_DIMENSIONS = 33  # 32 of the dataspace, and the element size
_PARTIAL_CHUNKS_UNFILTERED = 0x01
_SINGLE_CHUNK_FILTERED = 0x02


class ChunkIndexKind(IntEnum):
    """Kinds of chunk indexes, numbered as in version 4 of the message, which lacks number 0."""

    BTREE_V1 = 0
    SINGLE_CHUNK = 1
    IMPLICIT = 2
    FIXED_ARRAY = 3
    EXTENSIBLE_ARRAY = 4
    BTREE_V2 = 5


@dataclass(frozen=True, slots=True)
class CompactLayout:
    """The data is in the object header itself.

    Attributes
    ----------
    offset
        First byte in the file, user block included.
    """

    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ContiguousLayout:
    """The data is in one piece.

    Attributes
    ----------
    offset
        First byte in the file, user block included; None if never allocated (or stored in
        external files).
    size_bytes
        Size of the data; None if an old version of the message does not state it.
    """

    offset: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class VirtualLayout:
    """The data is in other datasets.

    Attributes
    ----------
    heap_address, heap_index
        Collection of the global heap that holds the mappings, and their number in it; no address
        if there are no mappings.
    """

    heap_address: int | None
    heap_index: int


@dataclass(frozen=True, slots=True)
class ChunkedLayout:
    """The data is in chunks.

    Attributes
    ----------
    chunk_shape
        Elements of a chunk along each dimension.
    element_bytes
        Size of an element in the file.
    index_address
        Address of the index; None if no chunk was ever allocated.
    partial_chunks_unfiltered
        Chunks that extend beyond the dataset are stored without any filter, whatever their filter
        mask.
    single_chunk
        Stored size and filter mask of a filtered single chunk.
    """

    kind: ChunkIndexKind
    chunk_shape: tuple[int, ...]
    element_bytes: int
    index_address: int | None
    partial_chunks_unfiltered: bool = False
    single_chunk: tuple[int, int] | None = None

    @property
    def chunk_bytes(self) -> int:
        """Size of an unfiltered chunk."""
        return math.prod(self.chunk_shape) * self.element_bytes


DataLayout = CompactLayout | ContiguousLayout | ChunkedLayout | VirtualLayout


def data_layout_of(
    file: Hdf5Bytes, messages: Iterable[HeaderMessage], header_address: int
) -> DataLayout:
    """The layout of a dataset: one of the messages of the object header at `header_address`.

    HDF5 File Format Specification v3, IV.A.2.i; version 5 of the message (HDF5 2.0) differs from
    version 4 only in the width of stored sizes inside chunk indexes.
    """
    layouts = [m for m in messages if m.kind == LAYOUT]
    if len(layouts) != 1:
        raise SourceFormatError(
            f"the object header has {len(layouts)} data layout messages instead of 1",
            file.place(header_address),
        )
    return _decode(file, layouts[0])


def _decode(file: Hdf5Bytes, message: HeaderMessage) -> DataLayout:
    place = partial(file.place, message.address, len(message.data))
    cursor = FieldCursor(message.data, "the data layout message", place)
    if message.is_shared:
        raise UnsupportedFeatureError("the data layout message is shared", cursor.place)
    version = cursor.take(1)
    if version in (1, 2):
        return _decode_v1(file, message, cursor)
    if version not in (3, 4, 5):
        raise UnsupportedFeatureError(
            f"the data layout message has the unknown version {version}", cursor.place
        )
    layout_class = cursor.take(1)
    if layout_class == 0:
        return _compact(file, message, cursor, cursor.take(2))
    if layout_class == 1:
        return ContiguousLayout(
            _offset(file, cursor.take(file.offset_bytes)), cursor.take(file.length_bytes)
        )
    if layout_class == 2:
        return _chunked_v3(file, cursor) if version == 3 else _chunked_v4(file, cursor)
    if layout_class == 3 and version > 3:
        heap_address = cursor.take(file.offset_bytes)
        return VirtualLayout(
            None if heap_address == file.undefined_address else heap_address, cursor.take(4)
        )
    raise UnsupportedFeatureError(
        f"the data layout has the unknown class {layout_class}", cursor.place
    )


def _decode_v1(file: Hdf5Bytes, message: HeaderMessage, cursor: FieldCursor) -> DataLayout:
    """Versions 1 and 2, up to HDF5 1.6."""
    n_dimensions, layout_class = cursor.take(1), cursor.take(1)
    if not 0 < n_dimensions <= _MAX_DIMENSIONS:
        raise cursor.error(f"declares {n_dimensions} dimensions")
    cursor.take_bytes(5)
    address = cursor.take(file.offset_bytes) if layout_class != 0 else None
    lengths = [cursor.take(4) for _ in range(n_dimensions)]
    if layout_class == 0:
        return _compact(file, message, cursor, cursor.take(4))
    if layout_class == 1:
        return ContiguousLayout(_offset(file, address), None)
    if layout_class == 2:
        return _chunked(file, cursor, ChunkIndexKind.BTREE_V1, lengths, address)
    raise UnsupportedFeatureError(
        f"the data layout has the unknown class {layout_class}", cursor.place
    )


def _chunked_v3(file: Hdf5Bytes, cursor: FieldCursor) -> ChunkedLayout:
    n_dimensions = cursor.take(1)
    address = cursor.take(file.offset_bytes)
    n_lengths = min(n_dimensions, _MAX_DIMENSIONS + 1)
    lengths = struct.unpack(f"<{n_lengths}I", cursor.take_bytes(4 * n_lengths))
    return _chunked(file, cursor, ChunkIndexKind.BTREE_V1, lengths, address)


def _chunked_v4(file: Hdf5Bytes, cursor: FieldCursor) -> ChunkedLayout:
    flags, n_dimensions, width = cursor.take(1), cursor.take(1), cursor.take(1)
    if flags & ~(_PARTIAL_CHUNKS_UNFILTERED | _SINGLE_CHUNK_FILTERED):
        raise UnsupportedFeatureError(
            f"the data layout message has unknown flags {flags:#x}", cursor.place
        )
    if not 0 < width <= 8:
        raise cursor.error(f"declares chunk lengths of {width} bytes")
    lengths = [cursor.take(width) for _ in range(min(n_dimensions, _MAX_DIMENSIONS + 1))]
    number = cursor.take(1)
    if number == ChunkIndexKind.BTREE_V1 or number > max(ChunkIndexKind):
        raise UnsupportedFeatureError(
            f"chunks are indexed in the unknown way {number}", cursor.place
        )
    kind = ChunkIndexKind(number)
    single_chunk = None
    if kind == ChunkIndexKind.SINGLE_CHUNK and flags & _SINGLE_CHUNK_FILTERED:
        single_chunk = (cursor.take(file.length_bytes), cursor.take(4))
    # The index's own header repeats its creation parameters.
    cursor.take_bytes(
        {
            ChunkIndexKind.FIXED_ARRAY: 1,
            ChunkIndexKind.EXTENSIBLE_ARRAY: 5,
            ChunkIndexKind.BTREE_V2: 6,
        }.get(kind, 0)
    )
    address = cursor.take(file.offset_bytes)
    unfiltered = bool(flags & _PARTIAL_CHUNKS_UNFILTERED)
    return _chunked(file, cursor, kind, lengths, address, unfiltered, single_chunk)


def _chunked(
    file: Hdf5Bytes,
    cursor: FieldCursor,
    kind: ChunkIndexKind,
    lengths: Sequence[int],
    address: int | None,
    partial_chunks_unfiltered: bool = False,
    single_chunk: tuple[int, int] | None = None,
) -> ChunkedLayout:
    if not 2 <= len(lengths) <= _MAX_DIMENSIONS:
        raise cursor.error(f"declares {len(lengths)} dimensions for a chunked dataset")
    if not all(lengths):
        raise cursor.error(f"declares chunks of shape {tuple(lengths)}")
    return ChunkedLayout(
        kind,
        tuple(lengths[:-1]),
        lengths[-1],
        None if address == file.undefined_address else address,
        partial_chunks_unfiltered,
        single_chunk,
    )


def _compact(
    file: Hdf5Bytes, message: HeaderMessage, cursor: FieldCursor, size: int
) -> CompactLayout:
    start = cursor.position
    cursor.take_bytes(size)
    return CompactLayout(file.base_address + message.address + start, size)


def _offset(file: Hdf5Bytes, address: int | None) -> int | None:
    if address is None or address == file.undefined_address:
        return None
    return file.base_address + address
