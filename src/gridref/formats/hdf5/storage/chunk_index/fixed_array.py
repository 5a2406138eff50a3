"""Fixed arrays: chunk indexes of datasets that cannot grow without limit.

HDF5 File Format Specification v3, VII.C. One element for each chunk of the greatest extent, in C
order; long arrays are cut into pages, of which those never written are marked in a bitmap.
"""

from __future__ import annotations

import math

import numpy as np

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.storage.chunk_index.blocks import (
    CHECKSUM_BYTES,
    BlockRun,
    Elements,
    array_elements,
    join_chunks,
    numbers_of,
    read_blocks,
    read_checked,
)
from gridref.formats.hdf5.storage.chunk_index.request import IndexRequest, StoredChunks

__all__ = ["walk_fixed_array"]

_BLOCK = "the data block of the fixed array"
_PAGE = "a page of the fixed array"


def walk_fixed_array(request: IndexRequest) -> StoredChunks:
    """All chunks of a fixed array.

    Raises
    ------
    SourceFormatError
        If it is corrupt.
    UnsupportedFeatureError
        If it is of an unknown version.
    """
    file = request.file
    header = request.index_address
    n_bytes = 8 + file.length_bytes + file.offset_bytes + CHECKSUM_BYTES
    cursor = read_checked(request, header, n_bytes, "the header of the fixed array")
    cursor.expect(b"FAHD", "signature")
    version = cursor.take(1)
    if version != 0:
        raise UnsupportedFeatureError(f"the fixed array has the unknown version {version}")
    elements = array_elements(request, cursor.take(1), cursor.take(1))
    page_bits = cursor.take(1)
    n_elements = cursor.take(file.length_bytes)
    address = cursor.take(file.offset_bytes)
    _check_size(request, n_elements)
    if address == file.undefined_address:
        return join_chunks([])
    prefix = b"FADB" + bytes([0, elements.client]) + header.to_bytes(file.offset_bytes, "little")
    if page_bits >= file.length_bytes * 8 or n_elements <= 1 << page_bits:
        request.file.check_range(address, 0, _BLOCK)
        block = np.array([address], np.int64)
        runs = [BlockRun(block, np.zeros(1, np.int64), n_elements, prefix, 0, _BLOCK)]
    else:
        runs = _pages(request, elements, address, n_elements, 1 << page_bits, prefix)
    chunks = join_chunks(read_blocks(request, elements, runs))
    number = numbers_of(request, chunks.number, range(len(request.shape)))
    return StoredChunks(number, chunks.address, chunks.length, chunks.filter_mask)


def _check_size(request: IndexRequest, n_elements: int) -> None:
    sizes = [size for size in request.max_grid_shape if size is not None]
    if len(sizes) != len(request.shape):
        raise SourceFormatError("the dataset may grow without limit, but has a fixed array")
    if math.prod(sizes) != n_elements:
        raise SourceFormatError(
            f"the fixed array has {n_elements} elements, the dataset has {math.prod(sizes)} chunks"
        )


def _pages(
    request: IndexRequest,
    elements: Elements,
    address: int,
    n_elements: int,
    page_elements: int,
    prefix: bytes,
) -> list[BlockRun]:
    """Pages lie one behind the other, whether written or not; the last one is shorter."""
    n_pages = -(-n_elements // page_elements)
    n_bitmap = -(-n_pages // 8)
    head_bytes = len(prefix) + n_bitmap + CHECKSUM_BYTES
    cursor = read_checked(request, address, head_bytes, _BLOCK)
    cursor.expect(prefix, "prefix")
    bitmap = np.frombuffer(cursor.take_bytes(n_bitmap), np.uint8)
    written = np.flatnonzero(np.unpackbits(bitmap, count=n_pages))
    page_bytes = page_elements * elements.n_bytes + CHECKSUM_BYTES
    start = address + head_bytes
    if len(written):
        request.file.check_range(start, int(written[-1]) * page_bytes, _PAGE)
    is_last = written == n_pages - 1
    n_last = n_elements - (n_pages - 1) * page_elements
    return [
        BlockRun(start + pages * page_bytes, pages * page_elements, size, b"", 0, _PAGE)
        for pages, size in ((written[~is_last], page_elements), (written[is_last], n_last))
    ]
