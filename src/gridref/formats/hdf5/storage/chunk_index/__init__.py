"""Where the chunks of an HDF5 dataset lie, read from the file's own indexes without a loop.

Give `read_superblock` a reader of the file, `data_layout_of` the address of a dataset's object
header (`h5py.h5o.get_info(dataset.id).addr`), and `walk_chunks` the layout, if it is a
`ChunkedLayout`. The result is checked: whatever is not possible in a valid file is an error.
"""

from __future__ import annotations

import numpy as np

from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.data_layout import ChunkedLayout, ChunkIndexKind
from gridref.formats.hdf5.format.superblock import Hdf5Bytes
from gridref.formats.hdf5.storage.chunk_index.btree_v1 import walk_btree_v1
from gridref.formats.hdf5.storage.chunk_index.btree_v2 import walk_btree_v2
from gridref.formats.hdf5.storage.chunk_index.extensible_array import walk_extensible_array
from gridref.formats.hdf5.storage.chunk_index.fixed_array import walk_fixed_array
from gridref.formats.hdf5.storage.chunk_index.request import IndexRequest, StoredChunks
from gridref.formats.hdf5.storage.chunk_index.simple import walk_implicit, walk_single_chunk
from gridref.formats.hdf5.storage.chunk_index.table import (
    ALL_FILTERS_OFF,
    ChunkTable,
    checked_table,
)

__all__ = ["ALL_FILTERS_OFF", "ChunkTable", "walk_chunks"]

_WALKERS = {
    ChunkIndexKind.BTREE_V1: walk_btree_v1,
    ChunkIndexKind.SINGLE_CHUNK: walk_single_chunk,
    ChunkIndexKind.IMPLICIT: walk_implicit,
    ChunkIndexKind.FIXED_ARRAY: walk_fixed_array,
    ChunkIndexKind.EXTENSIBLE_ARRAY: walk_extensible_array,
    ChunkIndexKind.BTREE_V2: walk_btree_v2,
}


def walk_chunks(
    file: Hdf5Bytes,
    layout: ChunkedLayout,
    *,
    shape: tuple[int, ...],
    max_shape: tuple[int | None, ...],
    is_filtered: bool,
) -> ChunkTable:
    """All chunks that a dataset holds.

    Where the layout says that partial chunks are stored without filters, their filter mask is
    `ALL_FILTERS_OFF`, whatever the index says.

    Parameters
    ----------
    shape, max_shape
        The dataset's shape, and how far it may grow (None: endlessly), as
        `h5py.Dataset.shape` and `h5py.Dataset.maxshape`.
    is_filtered
        Whether the dataset has any filter.

    Raises
    ------
    SourceFormatError
        If the index is corrupt.
    UnsupportedFeatureError
        If the grid has more chunks than can be numbered, or the index is of an unknown kind or
        version.
    """
    request = IndexRequest(file, layout, shape, max_shape, is_filtered)
    if layout.index_address is None:
        nothing = StoredChunks(np.empty(0, np.int64), np.empty(0, np.uint64))
        return checked_table(request, nothing)
    walker = _WALKERS.get(layout.kind)
    if walker is None:
        raise UnsupportedFeatureError(f"chunks are indexed by {layout.kind.name}")
    try:
        return checked_table(request, walker(request))
    except SourceFormatError as error:
        # Where no single part is wrong, at least say where the index begins.
        raise error.located(Place(start=file.place(layout.index_address).start)) from None
