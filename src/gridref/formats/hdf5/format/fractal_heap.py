"""Fractal heaps: where links and attributes lie that are too many for an object header.

Source: HDF5 File Format Specification v3, III.G "Fractal Heap", III.A.2 "Version 2 B-trees"
(records of types 1 and 2).
"""

from __future__ import annotations

from dataclasses import dataclass

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.btree_v2 import records_of
from gridref.formats.hdf5.format.filter_pipeline import Filter, read_filters, unfiltered
from gridref.formats.hdf5.format.superblock import FieldCursor, Hdf5Bytes

__all__ = ["FractalHeap"]

_WHAT = "the fractal heap"
_MANAGED, _HUGE, _TINY = 0, 1, 2
_HUGE_RECORD, _FILTERED_HUGE_RECORD = 1, 2
_CHECKSUM_BYTES = 4
_MASK_BYTES = 4
_MAX_FILTERED_BYTES = 1 << 26
_MAX_DIRECT_BYTES = 1 << 31
_MOST_TINY_SHORT = 17
_MAX_NESTED = 64
_MOST_USES_OF_A_BYTE, _ALWAYS_USED_BYTES = 64, 1 << 26


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The doubling table of a heap: rows of blocks, each row's twice as large as the one before.

    Attributes
    ----------
    width
        Blocks in a row.
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
        """Size of an offset into the heap."""
        return -(-self.max_bits // 8)

    @property
    def n_direct_rows(self) -> int:
        """Rows of direct blocks that come before those of indirect ones."""
        return (self.max_direct // self.first_block).bit_length() + 1

    @property
    def most_rows(self) -> int:
        """Rows that together hold as much as offsets reach."""
        return self.max_bits - (self.first_block * self.width).bit_length() + 2

    def block_bytes(self, row: int) -> int:
        """Bytes of the heap in each block of a row."""
        return self.first_block << max(0, row - 1)

    def rows_below(self, row: int) -> int:
        """Rows of the indirect blocks in a row."""
        return (self.block_bytes(row) // (self.first_block * self.width)).bit_length()

    def locate(self, offset: int) -> tuple[int, int, int]:
        """Row and column of the block that holds a byte, and where in the block it lies."""
        first_row = self.first_block * self.width
        row = (offset // first_row).bit_length()
        start = first_row << (row - 1) if row else 0
        column, inside = divmod(offset - start, self.block_bytes(row))
        return row, column, inside


class FractalHeap:
    """The objects of a fractal heap, by their ids; blocks are kept once they are read.

    Raises
    ------
    SourceFormatError
        If the header is corrupt.
    UnsupportedFeatureError
        If a filter of its blocks cannot be decoded.
    """

    def __init__(self, file: Hdf5Bytes, address: int) -> None:
        self._file = file
        self._address = address
        self._blocks: dict[int, bytes] = {}
        self._huge: dict[int, bytes] | None = None
        self._filters: tuple[Filter, ...] = ()
        self._filtered: dict[int, tuple[int, int]] = {}  # stored size and mask, by address
        self._n_left = _ALWAYS_USED_BYTES + _MOST_USES_OF_A_BYTE * file.end_address
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
        self._head_bytes += _CHECKSUM_BYTES if self._has_checksums else 0
        self._last = 0, b""  # where in the heap the block begins that was used last
        self._length_bytes = -(-min(max_direct, max_managed).bit_length() // 8)
        if n_filter_bytes:
            self._filtered[self._root] = cursor.take(length_bytes), cursor.take(_MASK_BYTES)
            self._filters = read_filters(cursor.take_bytes(n_filter_bytes))

    def _check(self, cursor: FieldCursor) -> None:
        """Raise if what the header says cannot be."""
        sizes = self._sizes
        sizes_fit = (
            all(
                size.bit_count() == 1  # a power of two
                for size in (sizes.width, sizes.first_block, sizes.max_direct)
            )
            and sizes.first_block <= sizes.max_direct <= _MAX_DIRECT_BYTES
            and sizes.max_direct.bit_length() <= sizes.max_bits <= 8 * self._file.length_bytes
        )
        if not sizes_fit:
            raise cursor.error("declares blocks of sizes that cannot be")
        if self._n_rows > max(1, sizes.most_rows) or self.id_bytes < 1:
            raise cursor.error(f"declares {self._n_rows} rows and ids of {self.id_bytes} bytes")

    def get(self, heap_id: bytes) -> bytes:
        """An object.

        Raises
        ------
        SourceFormatError
            If it is not there, what leads to it is corrupt, or objects overlap so much that they
            are far more than the file can hold.
        UnsupportedFeatureError
            If the id is of an unknown kind.
        """
        data = self._object(heap_id)
        self._n_left -= len(data)
        if self._n_left < 0:
            raise self._error("has objects that overlap")
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
            f"{_WHAT} has an id of the unknown kind {kind}", self._file.place(self._address)
        )

    def _error(self, reason: str) -> SourceFormatError:
        return SourceFormatError(f"{_WHAT} {reason}", self._file.place(self._address))

    def _tiny_object(self, heap_id: bytes) -> bytes:
        """An object inside its id."""
        length, start = heap_id[0] & 0x0F, 1
        if self.id_bytes > _MOST_TINY_SHORT:
            length, start = length << 8 | heap_id[1], 2
        if start + length + 1 > len(heap_id):
            raise self._error("has an object that is longer than its id")
        return heap_id[start : start + length + 1]

    def _huge_object(self, heap_id: bytes) -> bytes:
        """An object that lies in the file on its own."""
        file, n_bytes = self._file, self._huge_bytes
        if self.id_bytes > n_bytes:
            fields = heap_id[1 : 1 + n_bytes]
        else:
            key = int.from_bytes(heap_id[1:9], "little")
            fields = self._huge_fields().get(key, b"")
            if not fields:
                raise self._error(f"has no huge object {key}")
        cursor = FieldCursor(fields, "an id of " + _WHAT, file.place(self._address))
        address, length = cursor.take(file.offset_bytes), cursor.take(file.length_bytes)
        data = file.read(address, length, "a huge object of " + _WHAT)
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
        if n_bytes > _MAX_FILTERED_BYTES:
            raise self._error(f"has {n_bytes} filtered bytes in one piece")
        return unfiltered(data, self._filters, mask, n_bytes)

    def _managed(self, offset: int, length: int) -> bytes:
        """An object in a direct block."""
        start, block = self._last
        inside = offset - start
        if not 0 <= inside < len(block):
            block, inside = self._direct_block(offset)
            self._last = offset - inside, block
        if not self._head_bytes <= inside <= inside + length <= len(block):
            raise self._error(f"has no object of {length} bytes at {offset}")
        return block[inside : inside + length]

    def _direct_block(self, offset: int) -> tuple[bytes, int]:
        """The block that holds a byte of the heap, and where in the block it lies."""
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
            n_bytes = 5 + file.offset_bytes + sizes.offset_bytes + _CHECKSUM_BYTES
            n_bytes += n_children * file.offset_bytes + min(n_direct, n_children) * more
            cursor = file.read_checked(address, n_bytes, "an indirect block of " + _WHAT)
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
            structure = "a block of " + _WHAT
            data = self._direct_bytes(address, n_bytes, structure)
            cursor = FieldCursor(data, structure, file.place(address, n_bytes))
            self._expect_head(cursor, b"FHDB", offset)
            if self._has_checksums:
                # Of the whole block, as if the checksum's own place held zeros.
                at = cursor.position
                blank = data[:at] + bytes(_CHECKSUM_BYTES) + data[at + _CHECKSUM_BYTES :]
                file.verified(blank + data[at : at + _CHECKSUM_BYTES], address, structure)
            self._blocks[address] = data
        return self._blocks[address]

    def _direct_bytes(self, address: int, n_bytes: int, structure: str) -> bytes:
        if not self._filters:
            return self._file.read(address, n_bytes, structure)
        length, mask = self._filtered[address]
        return self._unfiltered(self._file.read(address, length, structure), mask, n_bytes)

    def _expect_head(self, cursor: FieldCursor, signature: bytes, offset: int) -> None:
        """What direct and indirect blocks begin with."""
        file = self._file
        cursor.expect(signature + b"\0", "signature and version")
        cursor.expect(self._address.to_bytes(file.offset_bytes, "little"), "heap")
        cursor.expect(offset.to_bytes(self._sizes.offset_bytes, "little"), "offset")


def _read_header(file: Hdf5Bytes, address: int) -> FieldCursor:
    structure = "the header of " + _WHAT
    n_bytes = 22 + 12 * file.length_bytes + 3 * file.offset_bytes
    head = file.read(address, n_bytes, structure)
    n_filter_bytes = int.from_bytes(head[7:9], "little")
    if n_filter_bytes:
        n_bytes += file.length_bytes + 4 + n_filter_bytes
    cursor = file.read_checked(address, n_bytes + _CHECKSUM_BYTES, structure)
    cursor.expect(b"FRHP\0", "signature and version")
    return cursor
