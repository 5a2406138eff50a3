"""Read heaps of HDF5 files, and the small B-trees that index them.

This module reads version 2 B-trees of links, attributes and heap objects; local heaps; fractal
heaps; and the global heap. Each reader takes the address of a structure, checks it, and returns
records or bytes. Trees of chunks can be very large: `gridref.formats.hdf5.chunks` reads those.

Source: HDF5 File Format Specification v3, III.A.2 "Version 2 B-trees" (records of types 1 and 2),
III.D "Local Heaps", III.E "Global Heap", III.G "Fractal Heap"; IV.A.2.d, "Variable-length", for the
elements that point into the global heap.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from gridref.cache import LRU, cache_bytes
from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.bytes import CHECKSUM_BYTES, FieldCursor, Hdf5Bytes
from gridref.formats.hdf5.filters import Filter, read_filters, unfiltered
from gridref.learned import FORMS
from gridref.limits import beyond, limits

# Version 2 B-trees: headers, and all records of small trees

NODE_PREFIX_BYTES = 6
_MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class NodeLevel:
    """The structure of nodes of one level; level 0 are the leaves.

    Attributes
    ----------
    max_records, max_total
        Most records of a node, and of a node and all below it.
    pointer_bytes, count_bytes
        Size of a pointer to a child, and of the number of records of the child in it.
    """

    max_records: int
    max_total: int
    pointer_bytes: int = 0
    count_bytes: int = 0


@dataclass(frozen=True, slots=True)
class BTreeV2:
    """The header of a tree.

    Attributes
    ----------
    levels
        From the leaves to the root.
    root, root_records
        Address of the root (None: no root), and its number of records.
    """

    version: int
    record_type: int
    record_bytes: int
    node_bytes: int
    levels: tuple[NodeLevel, ...]
    root: int | None
    root_records: int
    n_records: int


def read_btree_v2(file: Hdf5Bytes, address: int, structure: str) -> BTreeV2:
    """Read the header of a tree; `structure` names the tree in errors."""
    structure = f"the header of {structure}"
    n_bytes = 16 + file.offset_bytes + 2 + file.length_bytes + CHECKSUM_BYTES
    cursor = file.read_checked(address, n_bytes, structure)
    cursor.expect(b"BTHD", "signature")
    version, record_type = cursor.take(1), cursor.take(1)
    node_bytes, record_bytes, depth = cursor.take(4), cursor.take(2), cursor.take(2)
    cursor.take_bytes(2)  # when to split and merge nodes
    root, root_records = cursor.take(file.offset_bytes), cursor.take(2)
    n_records = cursor.take(file.length_bytes)
    if not record_bytes or depth > _MAX_DEPTH:
        raise cursor.error(f"has records of {record_bytes} bytes and is {depth} levels deep")
    levels = _levels(cursor, file.offset_bytes, node_bytes, record_bytes, depth)
    is_empty = root == file.undefined_address
    if is_empty and n_records:
        raise cursor.error(f"declares {n_records} records, but has none")
    return BTreeV2(
        version,
        record_type,
        record_bytes,
        node_bytes,
        levels,
        None if is_empty else root,
        root_records,
        n_records,
    )


def _levels(
    cursor: FieldCursor, offset_bytes: int, node_bytes: int, record_bytes: int, depth: int
) -> tuple[NodeLevel, ...]:
    """Sizes of the nodes of each level; pointers are only as wide as the counts they hold."""
    overhead = NODE_PREFIX_BYTES + CHECKSUM_BYTES
    most = max(0, node_bytes - overhead) // record_bytes
    levels = [NodeLevel(most, most)]
    count_bytes = _width(most)
    for level in range(1, depth + 1):
        total_bytes = _width(levels[-1].max_total) if level > 1 else 0
        pointer_bytes = offset_bytes + count_bytes + total_bytes
        room = max(0, node_bytes - overhead - pointer_bytes)
        most = room // (record_bytes + pointer_bytes)
        total = (most + 1) * levels[-1].max_total + most
        levels.append(NodeLevel(most, total, pointer_bytes, count_bytes))
        if not most or total_bytes > 8:
            raise cursor.error(f"declares {depth + 1} levels of nodes of {node_bytes} bytes")
    return tuple(levels)


def _width(limit: int) -> int:
    """Size in bytes of numbers up to `limit`."""
    return max(1, -(-limit.bit_length() // 8))


def records_of(
    file: Hdf5Bytes, address: int, structure: str, *, record_type: int, record_bytes: int
) -> list[bytes]:
    """All records of a tree of this type and size of records, in its order."""
    tree = read_btree_v2(file, address, structure)
    if (tree.version, tree.record_type, tree.record_bytes) != (0, record_type, record_bytes):
        raise SourceFormatError(
            f"{structure} has records of type {tree.record_type} and {tree.record_bytes} bytes"
            f" instead of type {record_type} and {record_bytes} bytes",
            file.place(address),
        )
    if tree.root is None or not tree.n_records:
        return []
    if tree.n_records * record_bytes > file.end_address:
        raise SourceFormatError(
            f"{structure} declares {tree.n_records} records, more than the file can hold",
            file.place(address),
        )
    depth = len(tree.levels) - 1
    walk = _records(file, tree, f"a node of {structure}", tree.root, tree.root_records, depth)
    records = list(islice(walk, tree.n_records + 1))  # in a circle there are more and more
    if len(records) != tree.n_records:
        raise SourceFormatError(
            f"{structure} holds {len(records)} records instead of the {tree.n_records} it declares",
            file.place(address),
        )
    return records


def _records(
    file: Hdf5Bytes, tree: BTreeV2, structure: str, address: int, n_records: int, depth: int
) -> Iterator[bytes]:
    """The records in a node and below it, children between them."""
    level, width = tree.levels[depth], tree.record_bytes
    if not 0 < n_records <= level.max_records:
        place = file.place(address, tree.node_bytes)
        raise SourceFormatError(f"{structure} has an impossible number of records", place)
    pointers = NODE_PREFIX_BYTES + n_records * width
    used = pointers + ((n_records + 1) * level.pointer_bytes if depth else 0)
    cursor = file.read_checked(address, used + CHECKSUM_BYTES, structure)
    cursor.expect(b"BTIN" if depth else b"BTLF", "signature")
    cursor.expect(bytes([0, tree.record_type]), "version and record type")
    data = cursor.data
    children = [
        (
            int.from_bytes(data[start : start + file.offset_bytes], "little"),
            int.from_bytes(
                data[start + file.offset_bytes :][: level.count_bytes],
                "little",
            ),
        )
        for start in range(pointers, len(data), level.pointer_bytes or 1)
    ]
    for number in range(n_records):
        if depth:
            yield from _records(file, tree, structure, *children[number], depth - 1)
        start = NODE_PREFIX_BYTES + number * width
        yield data[start : start + width]
    if depth:
        yield from _records(file, tree, structure, *children[n_records], depth - 1)


# Local heaps: names of links in old groups, and of external files

_NO_FREE_PIECE = 1


class LocalHeap:
    """The strings of a local heap; each is taken once."""

    def __init__(self, file: Hdf5Bytes, address: int) -> None:
        structure = "the local heap"
        n_bytes = 8 + 2 * file.length_bytes + file.offset_bytes
        cursor = file.read_fields(address, n_bytes, structure)
        cursor.expect(b"HEAP\0", "signature and version")
        cursor.take_bytes(3)
        size, free = cursor.take(file.length_bytes), cursor.take(file.length_bytes)
        self._data = file.read(cursor.take(file.offset_bytes), size, structure)
        self._cursor = cursor
        self._n_left = 2 * size
        self._check_free_list(free, file.length_bytes)

    def _check_free_list(self, first: int, width: int) -> None:
        """Check the free pieces: HDF5 reads no string of a heap whose free pieces are invalid."""
        piece, n_pieces = first, 0
        while piece != _NO_FREE_PIECE:
            ends = [piece + 2 * width]
            if ends[0] <= len(self._data):
                size = int.from_bytes(self._data[piece + width : ends[0]], "little")
                ends.append(piece + size)
            n_pieces += 1
            if max(ends) > len(self._data) or n_pieces * 2 * width > len(self._data):
                raise self._cursor.error(f"has a bad list of free pieces, at {piece}")
            piece = int.from_bytes(self._data[piece : piece + width], "little")

    def text(self, offset: int) -> bytes:
        """The string that begins at an offset."""
        stop = self._data.find(b"\0", offset)
        if stop < 0:
            raise self._cursor.error(f"has no string at {offset}")
        self._n_left -= stop - offset + 1
        if self._n_left < 0:
            raise self._cursor.error("has strings that overlap")
        return self._data[offset:stop]


# Fractal heaps: links and attributes that are too many for an object header

_FRACTAL_HEAP = "the fractal heap"
_MANAGED, _HUGE, _TINY = 0, 1, 2
_HUGE_RECORD, _FILTERED_HUGE_RECORD = 1, 2
_MASK_BYTES = 4
_MAX_DIRECT_BYTES = 1 << 31
_MOST_TINY_SHORT = 17
_MAX_NESTED = 64
_MAX_HEAP_BITS = 64  # HDF5 makes heaps of 40 bits even in files with lengths of 32


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The doubling table of a heap: rows of blocks, twice as large in each further row.

    Attributes
    ----------
    first_block, max_direct
        Sizes of the smallest block, and of the largest direct one.
    max_bits
        Bits of an offset into the heap.
    """

    width: int
    first_block: int
    max_direct: int
    max_bits: int

    @property
    def offset_bytes(self) -> int:
        return -(-self.max_bits // 8)

    @property
    def n_direct_rows(self) -> int:
        """Rows of direct blocks that come before those of indirect ones."""
        return (self.max_direct // self.first_block).bit_length() + 1

    @property
    def most_rows(self) -> int:
        """Number of rows that together reach as far as offsets."""
        return self.max_bits - (self.first_block * self.width).bit_length() + 2

    def block_bytes(self, row: int) -> int:
        """Bytes of the heap in each block of a row."""
        return self.first_block << max(0, row - 1)

    def rows_below(self, row: int) -> int:
        """Rows of the indirect blocks in a row."""
        return (self.block_bytes(row) // (self.first_block * self.width)).bit_length()

    def locate(self, offset: int) -> tuple[int, int, int]:
        """Row and column of the block that holds a byte, and its place in the block."""
        first_row = self.first_block * self.width
        row = (offset // first_row).bit_length()
        start = first_row << (row - 1) if row else 0
        column, inside = divmod(offset - start, self.block_bytes(row))
        return row, column, inside


class FractalHeap:
    """The objects of a fractal heap, by their ids; blocks are kept once they are read."""

    def __init__(self, file: Hdf5Bytes, address: int) -> None:
        self._file = file
        self._address = address
        self._blocks: dict[int, bytes] = {}
        self._huge: dict[int, bytes] | None = None
        self._filters: tuple[Filter, ...] = ()
        self._filtered: dict[int, tuple[int, int]] = {}  # stored size and mask, by address
        self._n_left = limits().reads_of(file.end_address)
        cursor = _read_header(file, address)
        length_bytes = file.length_bytes
        self.id_bytes = cursor.take(2)
        n_filter_bytes, flags, max_managed = cursor.take(2), cursor.take(1), cursor.take(4)
        self._has_checksums = bool(flags & 2)
        cursor.take(length_bytes)  # the next id of a huge object
        self._huge_index = cursor.take(file.offset_bytes)
        cursor.take_bytes(9 * length_bytes + file.offset_bytes)  # counts and free space
        width, first_block = cursor.take(2), cursor.take(length_bytes)
        max_direct, max_bits, _ = cursor.take(length_bytes), cursor.take(2), cursor.take(2)
        self._root, self._n_rows = cursor.take(file.offset_bytes), cursor.take(2)
        self._sizes = _Sizes(width, first_block, max_direct, max_bits)
        self._check(cursor)
        self._head_bytes = 5 + file.offset_bytes + self._sizes.offset_bytes
        self._head_bytes += CHECKSUM_BYTES if self._has_checksums else 0
        self._last = 0, b""  # start in the heap of the block that was used last
        self._length_bytes = -(-min(max_direct, max_managed).bit_length() // 8)
        if n_filter_bytes:
            self._filtered[self._root] = cursor.take(length_bytes), cursor.take(_MASK_BYTES)
            self._filters = read_filters(cursor.take_bytes(n_filter_bytes))

    def _check(self, cursor: FieldCursor) -> None:
        sizes = self._sizes
        sizes_fit = (
            all(
                size.bit_count() == 1  # a power of two
                for size in (sizes.width, sizes.first_block, sizes.max_direct)
            )
            and sizes.first_block <= sizes.max_direct <= _MAX_DIRECT_BYTES
            and sizes.max_direct.bit_length() <= sizes.max_bits <= _MAX_HEAP_BITS
        )
        if not sizes_fit:
            raise cursor.error("declares blocks of sizes that cannot be")
        if self._n_rows > max(1, sizes.most_rows) or self.id_bytes < 1:
            raise cursor.error(f"declares {self._n_rows} rows and ids of {self.id_bytes} bytes")

    def get(self, heap_id: bytes) -> bytes:
        """An object."""
        data = self._object(heap_id)
        self._n_left -= len(data)
        if self._n_left < 0:
            raise self._error(beyond("read_times", "has objects that overlap"))
        return data

    def _object(self, heap_id: bytes) -> bytes:
        kind = heap_id[0] >> 4 if heap_id else -1
        if kind == _MANAGED:
            stop = 1 + self._sizes.offset_bytes
            offset = int.from_bytes(heap_id[1:stop], "little")
            length = int.from_bytes(heap_id[stop : stop + self._length_bytes], "little")
            return self._managed(offset, length)
        if kind == _HUGE:
            return self._huge_object(heap_id)
        if kind == _TINY:
            return self._tiny_object(heap_id)
        raise UnsupportedFeatureError(
            f"{_FRACTAL_HEAP} has an id of the unknown kind {kind}", self._file.place(self._address)
        )

    def _error(self, reason: str) -> SourceFormatError:
        return SourceFormatError(f"{_FRACTAL_HEAP} {reason}", self._file.place(self._address))

    def _tiny_object(self, heap_id: bytes) -> bytes:
        """An object inside its id."""
        length, start = heap_id[0] & 0x0F, 1
        if self.id_bytes > _MOST_TINY_SHORT:
            length, start = length << 8 | heap_id[1], 2
        if start + length + 1 > len(heap_id):
            raise self._error("has an object that is longer than its id")
        return heap_id[start : start + length + 1]

    def _huge_object(self, heap_id: bytes) -> bytes:
        """An object with its own place in the file."""
        file, n_bytes = self._file, self._huge_bytes
        if self.id_bytes > n_bytes:
            fields = heap_id[1 : 1 + n_bytes]
        else:
            key = int.from_bytes(heap_id[1:9], "little")
            fields = self._huge_fields().get(key, b"")
            if not fields:
                raise self._error(f"has no huge object {key}")
        cursor = FieldCursor(fields, "an id of " + _FRACTAL_HEAP, file.place(self._address))
        address, length = cursor.take(file.offset_bytes), cursor.take(file.length_bytes)
        data = file.read(address, length, "a huge object of " + _FRACTAL_HEAP)
        if not self._filters:
            return data
        return self._unfiltered(data, cursor.take(_MASK_BYTES), cursor.take(file.length_bytes))

    @property
    def _huge_bytes(self) -> int:
        """Size of a huge object's address and length; if filtered, of mask and true size, too."""
        file = self._file
        more = _MASK_BYTES + file.length_bytes if self._filters else 0
        return file.offset_bytes + file.length_bytes + more

    def _huge_fields(self) -> dict[int, bytes]:
        if self._huge is None:
            file, n_bytes = self._file, self._huge_bytes
            if self._huge_index == file.undefined_address:
                raise self._error("has no index of huge objects")
            records = records_of(
                file,
                self._huge_index,
                "the index of huge objects",
                record_type=_FILTERED_HUGE_RECORD if self._filters else _HUGE_RECORD,
                record_bytes=n_bytes + file.length_bytes,
            )
            self._huge = {
                int.from_bytes(record[n_bytes:], "little"): record[:n_bytes] for record in records
            }
        return self._huge

    def _unfiltered(self, data: bytes, mask: int, n_bytes: int) -> bytes:
        if n_bytes > limits().heap_object_bytes:
            what = f"has {n_bytes} filtered bytes in one piece"
            raise self._error(beyond("heap_object_bytes", what))
        return unfiltered(data, self._filters, mask, n_bytes)

    def _managed(self, offset: int, length: int) -> bytes:
        start, block = self._last
        inside = offset - start
        if not 0 <= inside < len(block):
            block, inside = self._direct_block(offset)
            self._last = offset - inside, block
        if not self._head_bytes <= inside <= inside + length <= len(block):
            raise self._error(f"has no object of {length} bytes at {offset}")
        return block[inside : inside + length]

    def _direct_block(self, offset: int) -> tuple[bytes, int]:
        """The block that holds a byte of the heap, and its place in the block."""
        sizes, address, n_rows = self._sizes, self._root, self._n_rows
        inside, block_bytes = offset, sizes.first_block
        for _ in range(_MAX_NESTED):
            if not n_rows:
                return self._direct(address, block_bytes, offset - inside), inside
            start = offset - inside
            row, column, inside = sizes.locate(inside)
            if row >= n_rows:
                break
            address = self._child(address, n_rows, start, row * sizes.width + column)
            block_bytes = sizes.block_bytes(row)
            n_rows = 0 if row < sizes.n_direct_rows else sizes.rows_below(row)
            if row >= sizes.n_direct_rows and not n_rows:
                break
        raise self._error(f"has no block at {offset}")

    def _child(self, address: int, n_rows: int, offset: int, number: int) -> int:
        """Address of a block that an indirect block lists."""
        file, sizes = self._file, self._sizes
        more = file.length_bytes + _MASK_BYTES if self._filters else 0  # of each direct block
        n_direct = sizes.n_direct_rows * sizes.width
        if address not in self._blocks:
            n_children = n_rows * sizes.width
            n_bytes = 5 + file.offset_bytes + sizes.offset_bytes + CHECKSUM_BYTES
            n_bytes += n_children * file.offset_bytes + min(n_direct, n_children) * more
            cursor = file.read_checked(address, n_bytes, "an indirect block of " + _FRACTAL_HEAP)
            self._expect_head(cursor, b"FHIB", offset)
            self._blocks[address] = cursor.data[cursor.position :]
        start = number * file.offset_bytes + min(n_direct, number) * more
        fields = self._blocks[address][start : start + file.offset_bytes + more]
        child = int.from_bytes(fields[: file.offset_bytes], "little")
        if more and number < n_direct:
            size, mask = fields[file.offset_bytes : -_MASK_BYTES], fields[-_MASK_BYTES:]
            self._filtered[child] = int.from_bytes(size, "little"), int.from_bytes(mask, "little")
        return child

    def _direct(self, address: int, n_bytes: int, offset: int) -> bytes:
        file = self._file
        if address not in self._blocks:
            structure = "a block of " + _FRACTAL_HEAP
            data = self._direct_bytes(address, n_bytes, structure)
            cursor = FieldCursor(data, structure, file.place(address, n_bytes))
            self._expect_head(cursor, b"FHDB", offset)
            if self._has_checksums:
                # The checksum of the whole block, with zeros in the checksum's own place.
                at = cursor.position
                blank = data[:at] + bytes(CHECKSUM_BYTES) + data[at + CHECKSUM_BYTES :]
                file.verified(blank + data[at : at + CHECKSUM_BYTES], address, structure)
            self._blocks[address] = data
        return self._blocks[address]

    def _direct_bytes(self, address: int, n_bytes: int, structure: str) -> bytes:
        if not self._filters:
            return self._file.read(address, n_bytes, structure)
        length, mask = self._filtered[address]
        return self._unfiltered(self._file.read(address, length, structure), mask, n_bytes)

    def _expect_head(self, cursor: FieldCursor, signature: bytes, offset: int) -> None:
        """The first bytes of direct and indirect blocks."""
        file = self._file
        cursor.expect(signature + b"\0", "signature and version")
        cursor.expect(self._address.to_bytes(file.offset_bytes, "little"), "heap")
        cursor.expect(offset.to_bytes(self._sizes.offset_bytes, "little"), "offset")


def _read_header(file: Hdf5Bytes, address: int) -> FieldCursor:
    structure = "the header of " + _FRACTAL_HEAP
    n_bytes = 22 + 12 * file.length_bytes + 3 * file.offset_bytes
    head = file.read(address, n_bytes, structure)
    n_filter_bytes = int.from_bytes(head[7:9], "little")
    if n_filter_bytes:
        n_bytes += file.length_bytes + 4 + n_filter_bytes
    cursor = file.read_checked(address, n_bytes + CHECKSUM_BYTES, structure)
    cursor.expect(b"FRHP\0", "signature and version")
    return cursor


# The global heap: variable-length elements, region references and mappings

_FIRST_READ_BYTES = 4096
_INTEGERS = {2: "H", 4: "I", 8: "Q"}
_COLLECTION = "a collection of the global heap"
_HEAD_BYTES = 16  # of a collection, and of an object: whole words, even if lengths are shorter


@dataclass(frozen=True, slots=True)
class _Collection:
    """A collection, and first byte and length in it of each object, by number."""

    data: bytes
    objects: dict[int, tuple[int, int]]


class GlobalHeap:
    """Objects of a file's global heap; the collections that were read last are kept."""

    def __init__(self, file: Hdf5Bytes) -> None:
        self._file = file
        self._collections = LRU[_Collection](
            cache_bytes(), lambda collection: len(collection.data), keeps_last=1
        )
        self._budget = limits().reads_of(file.end_address)
        self._last: tuple[int, _Collection | None] = -1, None
        # Number of elements, address of a collection, number of an object in it.
        self._pointer = struct.Struct(f"<I{_INTEGERS[file.offset_bytes]}I")

    @property
    def pointer_bytes(self) -> int:
        """Size of a variable-length element."""
        return self._pointer.size

    def items(self, data: bytes, count: int, itemsize: int) -> Iterator[bytes]:
        """The bytes that each of `count` variable-length elements points to.

        Parameters
        ----------
        itemsize
            Size of the items that each of them counts.
        """
        if len(data) < count * self.pointer_bytes:
            raise SourceFormatError(
                f"{count} variable-length elements take {count * self.pointer_bytes} bytes, and"
                f" {len(data)} are there"
            )
        pointers = data[: count * self.pointer_bytes]
        for length, address, index in self._pointer.iter_unpack(pointers):
            yield self._item(address, index, length * itemsize) if length and address else b""

    def texts(self, data: bytes, count: int) -> Iterator[bytes]:
        """The strings that each of `count` elements points to; they end at a zero byte."""
        return (item.partition(b"\0")[0] for item in self.items(data, count, 1))

    def object(self, address: int, index: int) -> bytes:
        """An object by the address of its collection and its number there."""
        collection = self._collection(address)
        extent = collection.objects.get(index)
        if extent is None:
            raise SourceFormatError(
                f"object {index} of the global heap is not there", self._file.place(address)
            )
        start, length = extent
        self._spend(length, address)
        return collection.data[start : start + length]

    def _item(self, address: int, index: int, n_bytes: int) -> bytes:
        collection = self._collection(address)
        start, length = collection.objects.get(index, (0, -1))
        if length < n_bytes:
            raise SourceFormatError(
                f"object {index} of the global heap is not there, or has not {n_bytes} bytes",
                self._file.place(address),
            )
        self._spend(n_bytes, address)
        return collection.data[start : start + n_bytes]

    def _spend(self, n_bytes: int, address: int) -> None:
        """Bound the output for a file in which many elements point to the same bytes."""
        self._budget -= n_bytes
        if self._budget < 0:
            what = "the global heap is used for more than it can hold"
            raise SourceFormatError(beyond("read_times", what), self._file.place(address))

    def _collection(self, address: int) -> _Collection:
        last_address, last = self._last
        if address == last_address and last is not None:
            return last
        collection = self._collections.get_or_load(address, lambda: self._read(address))
        self._last = address, collection
        return collection

    def _read(self, address: int) -> _Collection:
        file, width = self._file, self._file.length_bytes
        available = max(0, file.end_address - address)
        head = file.read(address, min(_FIRST_READ_BYTES, available), _COLLECTION)
        if head[:5] != b"GCOL\x01" or len(head) < 8 + width:
            raise SourceFormatError("the global heap has no collection here", file.place(address))
        size = int.from_bytes(head[8 : 8 + width], "little")
        file.check_range(address, size, _COLLECTION)
        self._spend(max(size, len(head)), address)
        data = head[:size] if size <= len(head) else file.read(address, size, _COLLECTION)
        objects = FORMS.find((_Collection, width), data)
        return _Collection(data, _objects(data, width) if objects is None else objects)


def _objects(data: bytes, width: int) -> dict[int, tuple[int, int]]:
    """First byte and length of each object of a collection that is inside it."""
    objects: dict[int, tuple[int, int]] = {}
    differing: list[slice] = []
    position = _HEAD_BYTES
    while position + _HEAD_BYTES <= len(data):
        index = int.from_bytes(data[position : position + 2], "little")
        start = position + _HEAD_BYTES
        length = int.from_bytes(data[position + 8 : position + 8 + width], "little")
        if index == 0:  # free space, whose length includes its header
            if length < _HEAD_BYTES:
                break
            differing.append(slice(start, min(position + length, len(data))))
            position += length
            continue
        if start + length > len(data):
            break
        objects[index] = start, length
        position = start + -(-length // 8) * 8
        differing.append(slice(start, min(position, len(data))))
    return FORMS.keep((_Collection, width), data, differing, objects, 200 * len(objects))
