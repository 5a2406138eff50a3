"""Extensible arrays: chunk indexes of datasets that grow without limit along one dimension.

HDF5 File Format Specification v3, VII.D. The index block holds the first elements and points to
the first data blocks; behind them, super blocks of growing size point to data blocks of growing
size. Large data blocks are cut into pages; the super block marks which of them are written.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.superblock import FieldCursor
from gridref.formats.hdf5.storage.chunk_index.blocks import (
    CHECKSUM_BYTES,
    BlockRun,
    Elements,
    array_elements,
    defined_elements,
    join_chunks,
    numbers_of,
    read_blocks,
    read_checked,
)
from gridref.formats.hdf5.storage.chunk_index.request import (
    IndexRequest,
    StoredChunks,
    check_addresses,
)

__all__ = ["walk_extensible_array"]

_HEADER = "the header of the extensible array"
_INDEX_BLOCK = "the index block of the extensible array"
_SUPER_BLOCK = "a super block of the extensible array"
_DATA_BLOCK = "a data block of the extensible array"
_PAGE = "a page of the extensible array"


@dataclass(frozen=True, slots=True)
class _SuperBlock:
    """A run of equally long data blocks."""

    first_index: int
    n_blocks: int
    block_elements: int


@dataclass(frozen=True, slots=True)
class _Header:
    """The header of an extensible array: everything else follows from it."""

    address: int
    elements: Elements
    max_bits: int
    n_direct_elements: int
    min_block_elements: int
    min_block_pointers: int
    page_bits: int
    n_set: int
    index_block: int

    @property
    def page_elements(self) -> int:
        return 1 << self.page_bits

    @property
    def block_offset_bytes(self) -> int:
        return -(-self.max_bits // 8)

    @property
    def n_direct_super_blocks(self) -> int:
        """How many super blocks have their data blocks in the index block."""
        return 2 * (self.min_block_pointers.bit_length() - 1)

    def prefix(self, signature: bytes, offset_bytes: int) -> bytes:
        """What every block begins with."""
        head = signature + bytes([0, self.elements.client])
        return head + self.address.to_bytes(offset_bytes, "little")

    def super_blocks(self) -> list[_SuperBlock]:
        """All possible super blocks: they double the number of blocks and their length in turn."""
        n_super_blocks = 1 + self.max_bits - (self.min_block_elements.bit_length() - 1)
        blocks, first = [], self.n_direct_elements
        for level in range(n_super_blocks):
            n_blocks = 1 << (level // 2)
            block_elements = (1 << ((level + 1) // 2)) * self.min_block_elements
            blocks.append(_SuperBlock(first, n_blocks, block_elements))
            first += n_blocks * block_elements
        return blocks


def walk_extensible_array(request: IndexRequest) -> StoredChunks:
    """All chunks of an extensible array, as far as it declares to be in use.

    Raises
    ------
    SourceFormatError
        If it is corrupt.
    UnsupportedFeatureError
        If it is of an unknown version or proportions.
    """
    endless = [axis for axis, size in enumerate(request.max_shape) if size is None]
    if len(endless) != 1:
        raise SourceFormatError(
            f"an extensible array grows along 1 dimension, the dataset along {len(endless)}"
        )
    header = _read_header(request)
    if header.index_block == request.file.undefined_address:
        return join_chunks([])
    chunks = join_chunks(_read_index_block(request, header))
    chunks = chunks.inside(header.n_set)
    axes = endless + [axis for axis in range(len(request.shape)) if axis not in endless]
    number = numbers_of(request, chunks.number, axes)
    return StoredChunks(number, chunks.address, chunks.length, chunks.filter_mask)


def _read_header(request: IndexRequest) -> _Header:
    file = request.file
    n_bytes = 12 + 6 * file.length_bytes + file.offset_bytes + CHECKSUM_BYTES
    cursor = read_checked(request, request.index_address, n_bytes, _HEADER)
    cursor.expect(b"EAHD", "signature")
    version = cursor.take(1)
    if version != 0:
        raise UnsupportedFeatureError(f"the extensible array has the unknown version {version}")
    elements = array_elements(request, cursor.take(1), cursor.take(1))
    max_bits, n_direct, min_elements, min_pointers, page_bits = (cursor.take(1) for _ in range(5))
    # Numbers and sizes of super blocks and data blocks.
    cursor.take_bytes(4 * file.length_bytes)
    n_set = cursor.take(file.length_bytes)
    cursor.take(file.length_bytes)
    powers_of_two = all(n and not n & (n - 1) for n in (min_elements, min_pointers))
    if not powers_of_two or not min_elements.bit_length() <= max_bits <= 64 or page_bits > 62:
        raise UnsupportedFeatureError("the extensible array has unknown proportions")
    return _Header(
        request.index_address,
        elements,
        max_bits,
        n_direct,
        min_elements,
        min_pointers,
        page_bits,
        n_set,
        cursor.take(file.offset_bytes),
    )


def _read_index_block(request: IndexRequest, header: _Header) -> list[StoredChunks]:
    file = request.file
    super_blocks = header.super_blocks()
    direct = super_blocks[: header.n_direct_super_blocks]
    indirect = super_blocks[header.n_direct_super_blocks :]
    n_pointers = sum(block.n_blocks for block in direct)
    prefix = header.prefix(b"EAIB", file.offset_bytes)
    n_element_bytes = header.n_direct_elements * header.elements.n_bytes
    n_bytes = (
        len(prefix)
        + n_element_bytes
        + (n_pointers + len(indirect)) * file.offset_bytes
        + CHECKSUM_BYTES
    )
    cursor = read_checked(request, header.index_block, n_bytes, _INDEX_BLOCK)
    cursor.expect(prefix, "prefix")
    own = np.frombuffer(cursor.take_bytes(n_element_bytes), header.elements.dtype)
    index = np.arange(header.n_direct_elements, dtype=np.int64)
    runs: list[BlockRun] = []
    for block in direct:
        if block.block_elements > header.page_elements:
            raise UnsupportedFeatureError(
                "the index block of the extensible array has paged data blocks"
            )
        addresses = _addresses(request, cursor, block.n_blocks)
        runs.append(_data_blocks(request, header, block, addresses))
    for block, address in zip(indirect, _addresses(request, cursor, len(indirect)), strict=True):
        if int(address) != file.undefined_address:
            runs.append(_read_super_block(request, header, block, int(address)))
    own_chunks = defined_elements(file, header.elements, own, index)
    return [own_chunks, *read_blocks(request, header.elements, runs)]


def _read_super_block(
    request: IndexRequest, header: _Header, block: _SuperBlock, address: int
) -> BlockRun:
    file = request.file
    prefix = header.prefix(b"EASB", file.offset_bytes)
    n_pages = block.block_elements // header.page_elements
    is_paged = block.block_elements > header.page_elements
    n_bitmap = block.n_blocks * -(-n_pages // 8) if is_paged else 0
    n_head = len(prefix) + header.block_offset_bytes
    n_bytes = n_head + n_bitmap + block.n_blocks * file.offset_bytes + CHECKSUM_BYTES
    cursor = read_checked(request, address, n_bytes, _SUPER_BLOCK)
    cursor.expect(prefix, "prefix")
    cursor.take_bytes(header.block_offset_bytes)
    bitmap = np.frombuffer(cursor.take_bytes(n_bitmap), np.uint8)
    addresses = _addresses(request, cursor, block.n_blocks)
    if not is_paged:
        return _data_blocks(request, header, block, addresses)
    is_written = np.unpackbits(bitmap, count=block.n_blocks * n_pages).reshape(-1, n_pages)
    return _pages(request, header, block, addresses, is_written.astype(bool))


def _data_blocks(
    request: IndexRequest, header: _Header, block: _SuperBlock, addresses: NDArray[np.uint64]
) -> BlockRun:
    order = np.flatnonzero(addresses != request.file.undefined_address)
    return BlockRun(
        check_addresses(request.file, addresses[order], 0, _DATA_BLOCK),
        block.first_index + order * block.block_elements,
        block.block_elements,
        header.prefix(b"EADB", request.file.offset_bytes),
        header.block_offset_bytes,
        _DATA_BLOCK,
    )


def _pages(
    request: IndexRequest,
    header: _Header,
    block: _SuperBlock,
    addresses: NDArray[np.uint64],
    is_written: NDArray[np.bool_],
) -> BlockRun:
    """Pages follow the head of their data block, whether written or not."""
    file = request.file
    is_written = is_written & (addresses != file.undefined_address)[:, None]
    order, page = np.nonzero(is_written)
    head_bytes = len(header.prefix(b"EADB", file.offset_bytes)) + header.block_offset_bytes
    page_bytes = header.page_elements * header.elements.n_bytes + CHECKSUM_BYTES
    blocks = check_addresses(file, addresses[order], 0, _DATA_BLOCK)
    return BlockRun(
        blocks + head_bytes + CHECKSUM_BYTES + page * page_bytes,
        block.first_index + order * block.block_elements + page * header.page_elements,
        header.page_elements,
        b"",
        0,
        _PAGE,
    )


def _addresses(request: IndexRequest, cursor: FieldCursor, n: int) -> NDArray[np.uint64]:
    width = request.file.offset_bytes
    return np.frombuffer(cursor.take_bytes(n * width), f"<u{width}").astype(np.uint64)
