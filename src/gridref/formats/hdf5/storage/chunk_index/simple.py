"""Indexes that need no structure in the file: a single chunk, and chunks in a row.

HDF5 File Format Specification v3, VII.A and VII.B.
"""

from __future__ import annotations

import math

import numpy as np

from gridref.errors import SourceFormatError
from gridref.formats.hdf5.storage.chunk_index.request import IndexRequest, StoredChunks

__all__ = ["walk_implicit", "walk_single_chunk"]


def walk_single_chunk(request: IndexRequest) -> StoredChunks:
    """The only chunk of a dataset, whose address stands in the data layout message itself."""
    sizes = request.layout.single_chunk
    if (sizes is not None) != request.is_filtered:
        raise SourceFormatError(
            "the data layout and the filters of the dataset contradict each other"
        )
    if request.n_chunks != 1:
        raise SourceFormatError(f"the dataset has {request.n_chunks} chunks, but an index for one")
    number = np.zeros(1, np.int64)
    address = np.array([request.index_address], np.uint64)
    if sizes is None:
        return StoredChunks(number, address)
    return StoredChunks(
        number, address, np.array(sizes[:1], np.uint64), np.array(sizes[1:], np.uint32)
    )


def walk_implicit(request: IndexRequest) -> StoredChunks:
    """Chunks that lie one behind the other, in C order of the grid's greatest extent."""
    grid, max_grid = request.grid_shape, request.max_grid_shape
    if request.is_filtered or None in max_grid:
        raise SourceFormatError(
            "chunks in a row are possible without filters and within fixed limits only"
        )
    if not request.n_chunks:
        return StoredChunks(np.empty(0, np.int64), np.empty(0, np.uint64))
    limits = [limit for limit in max_grid if limit is not None]
    strides = [math.prod(limits[axis + 1 :]) for axis in range(len(limits))]
    last = sum((n - 1) * stride for n, stride in zip(grid, strides, strict=True))
    chunk_bytes = request.layout.chunk_bytes
    # Checked before anything is allocated: the file is at least as large as there are chunks.
    request.file.check_range(request.index_address, (last + 1) * chunk_bytes, "a chunk")
    index = np.zeros(1, np.int64)
    for n_chunks, stride in zip(grid, strides, strict=True):
        index = np.add.outer(index, np.arange(n_chunks, dtype=np.int64) * stride).reshape(-1)
    address = (index * chunk_bytes + request.index_address).astype(np.uint64)
    return StoredChunks(np.arange(request.n_chunks, dtype=np.int64), address)
