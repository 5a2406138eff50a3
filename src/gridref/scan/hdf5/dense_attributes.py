"""Attributes that are kept in a fractal heap: those of objects that have more than a few.

Only heaps of one level and indexes of one node are read here, which hold some thirty attributes;
the HDF5 library reads the others.

Source: HDF5 File Format Specification v3, III.A.2 "Version 2 B-trees", III.G "Fractal Heap",
IV.A.2.v "Attribute Info".
"""

from __future__ import annotations

from dataclasses import dataclass

from gridref.errors import SourceFormatError
from gridref.scan.hdf5.superblock import FieldCursor, Hdf5Bytes

__all__ = ["AttributeInfo", "attribute_info", "dense_attribute_messages"]

_FIRST_READ_BYTES = 512
_NAME_INDEX = 8
_RECORD_BYTES = 17
_MANAGED = 0
_MAX_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class AttributeInfo:
    """Where attributes lie that are not in the object header; None if there are none."""

    heap_address: int | None
    index_address: int | None


@dataclass(frozen=True, slots=True)
class _Heap:
    """What of a fractal heap's header is needed to find an object."""

    max_bits: int
    length_bytes: int
    width: int
    first_block_bytes: int
    root: int
    n_rows: int

    @property
    def offset_bytes(self) -> int:
        return -(-self.max_bits // 8)

    def block(self, offset: int) -> tuple[int, int, int] | None:
        """Number, first byte and size of the direct block of the root that holds a byte."""
        start, size = 0, self.first_block_bytes
        for row in range(self.n_rows):
            size = self.first_block_bytes << max(0, row - 1)
            if offset < start + self.width * size:
                column = (offset - start) // size
                return row * self.width + column, start + column * size, size
            start += self.width * size
        return None


def attribute_info(file: Hdf5Bytes, data: bytes) -> AttributeInfo:
    """Decode an attribute info message."""
    cursor = FieldCursor(data, "the attribute info message", file.place(0))
    cursor.take(1)
    if cursor.take(1) & 1:
        cursor.take(2)
    heap, index = cursor.take(file.offset_bytes), cursor.take(file.offset_bytes)
    undefined = file.undefined_address
    return AttributeInfo(None if heap == undefined else heap, None if index == undefined else index)


def dense_attribute_messages(
    file: Hdf5Bytes, info: AttributeInfo
) -> list[tuple[bytes, bool]] | None:
    """The attribute messages in a fractal heap, in order of creation; None if left to the library.

    Each is told whether it is the first of its block. Checksums are not verified: the library does
    so for a block when it opens an attribute in it.

    Raises
    ------
    SourceFormatError
        If the heap or its index is corrupt.
    """
    if info.heap_address is None or info.index_address is None:
        return None
    heap = _read_heap(file, info.heap_address)
    records = _read_records(file, info.index_address)
    if heap is None or records is None:
        return None
    blocks: dict[int, bytes] = {}
    messages = []
    for record in sorted(records, key=lambda record: record[9:13][::-1]):
        # A heap id begins with its version and the kind of object; shared messages are flagged.
        if record[0] >> 4 != _MANAGED or record[8]:
            return None
        offset = int.from_bytes(record[1 : 1 + heap.offset_bytes], "little")
        start = 1 + heap.offset_bytes
        length = int.from_bytes(record[start : start + heap.length_bytes], "little")
        n_blocks = len(blocks)
        message = _object(file, heap, blocks, offset, length)
        if message is None:
            return None
        messages.append((message, len(blocks) > n_blocks))
    return messages


def _read_start(file: Hdf5Bytes, address: int, what: str) -> bytes:
    return file.read(address, min(_FIRST_READ_BYTES, max(0, file.end_address - address)), what)


def _read_heap(file: Hdf5Bytes, address: int) -> _Heap | None:
    what = "the fractal heap of attributes"
    cursor = FieldCursor(_read_start(file, address, what), what, file.place(address))
    cursor.expect(b"FRHP\0", "signature and version")
    offset_bytes, length_bytes = file.offset_bytes, file.length_bytes
    id_bytes, filter_bytes, _ = cursor.take(2), cursor.take(2), cursor.take(1)
    max_managed = cursor.take(4)
    cursor.take_bytes(10 * length_bytes + 2 * offset_bytes)
    width, first_block = cursor.take(2), cursor.take(length_bytes)
    max_direct, max_bits, _ = cursor.take(length_bytes), cursor.take(2), cursor.take(2)
    root, n_rows = cursor.take(offset_bytes), cursor.take(2)
    max_rows = (max_direct // max(1, first_block)).bit_length() + 1
    known = id_bytes == 8 and not filter_bytes and n_rows <= max_rows and max_bits <= 64
    if not known or root == file.undefined_address or first_block > _MAX_BLOCK_BYTES:
        return None
    sizes = min(max_direct, max_managed)
    return _Heap(max_bits, -(-sizes.bit_length() // 8), width, first_block, root, n_rows)


def _read_records(file: Hdf5Bytes, address: int) -> list[bytes] | None:
    what = "the index of attributes"
    head = file.read(address, min(64, max(0, file.end_address - address)), what)
    cursor = FieldCursor(head, what, file.place(address))
    cursor.expect(b"BTHD\0", "signature and version")
    kind, node_bytes, record_bytes, depth = (cursor.take(n) for n in (1, 4, 2, 2))
    cursor.take(2)
    root, n_records = cursor.take(file.offset_bytes), cursor.take(2)
    if kind != _NAME_INDEX or record_bytes != _RECORD_BYTES or depth or n_records == 0:
        return None
    if 6 + n_records * record_bytes > node_bytes:
        raise cursor.error("has more records than fit")
    node = file.read(root, 6 + n_records * record_bytes, what)
    if node[:4] != b"BTLF":
        raise SourceFormatError(f"{what} has no node here", file.place(root))
    return [node[start : start + record_bytes] for start in range(6, len(node), record_bytes)]


def _object(
    file: Hdf5Bytes, heap: _Heap, blocks: dict[int, bytes], offset: int, length: int
) -> bytes | None:
    """An object of the heap; blocks are kept once they are read."""
    number, start, size = 0, 0, heap.first_block_bytes
    if heap.n_rows:
        found = heap.block(offset)
        if found is None:
            return None
        number, start, size = found
    if number not in blocks:
        address = heap.root
        if heap.n_rows:
            place = 5 + file.offset_bytes + heap.offset_bytes + number * file.offset_bytes
            raw = file.read(heap.root + place, file.offset_bytes, "the fractal heap's root block")
            address = int.from_bytes(raw, "little")
        elif offset + length > size:
            size = _MAX_BLOCK_BYTES
        size = min(size, max(0, file.end_address - address))
        blocks[number] = file.read(address, size, "a block of the fractal heap")
        if blocks[number][:4] != b"FHDB":
            raise SourceFormatError("the fractal heap has no block here", file.place(address))
    message = blocks[number][offset - start : offset - start + length]
    return message if len(message) == length else None
