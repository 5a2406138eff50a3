"""Where the chunks of a chunked dataset lie."""

from __future__ import annotations

from gridref.errors import ScanError
from gridref.formats.hdf5.format.data_layout import ChunkedLayout
from gridref.formats.hdf5.objects.tree import DatasetNode
from gridref.formats.hdf5.storage.chunk_index import ChunkTable, walk_chunks

__all__ = ["chunk_table"]


def chunk_table(dataset: DatasetNode, layout: ChunkedLayout, *, is_filtered: bool) -> ChunkTable:
    """The chunks that a chunked dataset holds.

    Raises
    ------
    SourceFormatError
        If the chunk index is corrupt or a chunk reaches beyond the end of the file.
    UnsupportedFeatureError
        If the index is of a kind that is not known.
    """
    try:
        return walk_chunks(
            dataset.file.bytes,
            layout,
            shape=dataset.shape or (),
            max_shape=dataset.maxshape,
            is_filtered=is_filtered,
        )
    except ScanError as error:
        raise error.located(dataset.file.place(dataset.path)) from error.__cause__
