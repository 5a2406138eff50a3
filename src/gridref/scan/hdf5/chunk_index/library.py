"""Chunks as the HDF5 library lists them: slow, for indexes that no walker knows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gridref.errors import UnsupportedFeatureError
from gridref.scan.hdf5.chunk_index.request import IndexRequest, StoredChunks
from gridref.scan.hdf5.data_layout import ChunkIndexKind

__all__ = ["list_with_library"]


def list_with_library(request: IndexRequest, dataset_id: Any) -> StoredChunks:
    """All chunks, by ``H5Dchunk_iter``.

    The library is not believed where it is known to be wrong. Up to HDF5 2.0 at least, it
    gives the wrong coords (not only in ``H5Dchunk_iter``, but also in ``H5Dget_chunk_info``
    and ``H5Dget_chunk_info_by_coord``) for extensible arrays whose endless dimension is not the
    first one; and some versions leave the user block out of offsets.

    Parameters
    ----------
    request
        The dataset.
    dataset_id
        Its `h5py.h5d.DatasetID`.

    Raises
    ------
    UnsupportedFeatureError
        If the answer could be wrong.
    """
    if request.layout.kind == ChunkIndexKind.EXTENSIBLE_ARRAY and request.max_shape[0] is not None:
        raise UnsupportedFeatureError(
            "the HDF5 library lists the chunks of this dataset wrongly: it grows without limit "
            "along another dimension than the first"
        )
    if request.file.base_address:
        raise UnsupportedFeatureError(
            "the HDF5 library may list these chunks wrongly, as the file has a user block"
        )
    rows: list[tuple[int, ...]] = []

    def note(chunk: Any) -> None:
        rows.append((*chunk.chunk_offset, chunk.byte_offset, chunk.size, chunk.filter_mask))

    dataset_id.chunk_iter(note)
    rank = len(request.shape)
    columns = np.array(rows, np.uint64).reshape(-1, rank + 3)
    places = columns[:, :rank] // np.array(request.layout.chunk_shape, np.uint64)
    number = np.zeros(len(rows), np.int64)
    for axis, n_chunks in enumerate(request.grid_shape):
        if (places[:, axis] >= n_chunks).any():
            raise UnsupportedFeatureError("the HDF5 library lists a chunk outside of the dataset")
        number = number * n_chunks + places[:, axis].astype(np.int64)
    return StoredChunks(
        number, columns[:, rank], columns[:, rank + 1], columns[:, rank + 2].astype(np.uint32)
    )
