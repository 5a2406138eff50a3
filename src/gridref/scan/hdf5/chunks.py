"""Where the chunks of a chunked dataset lie."""

from __future__ import annotations

from gridref.errors import SourceFormatError
from gridref.scan.hdf5.chunk_index import (
    ChunkTable,
    WalkerUnsupported,
    list_chunks,
    walk_chunks,
)
from gridref.scan.hdf5.data_layout import (
    ChunkedLayout,
    DataLayout,
    data_layout_of,
)
from gridref.scan.hdf5.files import hdf5_errors
from gridref.scan.hdf5.tree import DatasetNode

__all__ = ["chunk_table"]


def chunk_table(dataset: DatasetNode) -> ChunkTable:
    """The chunks that a chunked dataset holds.

    Raises
    ------
    SourceFormatError
        If the chunk index is corrupt or a chunk reaches beyond the end of the file.
    UnsupportedFeatureError
        If the index is of a kind that neither we nor the HDF5 library reads reliably.
    """
    place = dataset.file.place(dataset.path)
    with hdf5_errors(place, "read the chunk index"):
        layout = _layout(dataset)
        if not isinstance(layout, ChunkedLayout):
            raise SourceFormatError("the dataset has two layouts that contradict each other", place)
        shape, max_shape = dataset.shape or (), dataset.maxshape
        is_filtered = dataset.creation.get_nfilters() > 0
        file = dataset.file.bytes
        try:
            return walk_chunks(
                file, layout, shape=shape, max_shape=max_shape, is_filtered=is_filtered
            )
        except WalkerUnsupported:
            return list_chunks(
                dataset.did,
                file,
                layout,
                shape=shape,
                max_shape=max_shape,
                is_filtered=is_filtered,
            )


def _layout(dataset: DatasetNode) -> DataLayout:
    file, address = dataset.file.bytes, dataset.address[1]
    return data_layout_of(file, dataset.messages, address)
