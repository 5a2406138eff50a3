"""Where the chunks of a chunked dataset lie."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import SourceFormatError
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.scan.hdf5.files import hdf5_errors
from gridref.scan.hdf5.tree import DatasetNode

__all__ = ["chunk_manifest"]


def chunk_manifest(dataset: DatasetNode, chunk_shape: tuple[int, ...]) -> ChunkManifest:
    """The manifest of a chunked dataset, one row a chunk in C order.

    Raises
    ------
    SourceFormatError
        If the chunk index is corrupt or a chunk reaches beyond the end of the file.
    """
    with hdf5_errors(dataset.file.place(dataset.path), "read the chunk index"):
        return _by_iteration(dataset, chunk_shape)


def _by_iteration(dataset: DatasetNode, chunk_shape: tuple[int, ...]) -> ChunkManifest:
    """By h5py's iteration over chunks: slow, and right for all kinds of index."""
    starts: list[tuple[int, ...]] = []
    rows: list[tuple[int, int, int]] = []

    def note(info: Any) -> None:
        starts.append(info.chunk_offset)
        rows.append((info.byte_offset, info.size, info.filter_mask))

    dataset.did.chunk_iter(note)
    shape = dataset.shape or ()
    grid = tuple(-(-extent // length) for extent, length in zip(shape, chunk_shape, strict=True))
    n_chunks = math.prod(grid)
    if not rows:
        return ChunkManifest.missing(n_chunks)
    coords = np.array(starts, dtype=np.int64) // np.array(chunk_shape, dtype=np.int64)
    # Chunks behind the current extents are left over from before the dataset shrank.
    inside = (coords < np.array(grid)).all(axis=1)
    columns = np.array(rows, dtype=np.int64)[inside]
    row = np.ravel_multi_index(tuple(coords[inside].T), grid) if grid else np.zeros(1, np.int64)
    offset, length, mask = (np.zeros(n_chunks, np.int64) for _ in range(3))
    offset[row], length[row], mask[row] = columns.T
    state = np.full(n_chunks, ChunkState.MISSING, np.uint8)
    state[row] = ChunkState.RANGE
    _check_ranges(dataset, offset, length, grid)
    return _manifest(dataset.file.source, offset, length, state, mask)


def _manifest(
    source: Source,
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    state: NDArray[np.uint8],
    mask: NDArray[np.int64],
) -> ChunkManifest:
    return ChunkManifest.from_columns(
        [source], offset=offset, length=length, state=state, filter_mask=mask.astype(np.uint32)
    )


def _check_ranges(
    dataset: DatasetNode,
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    grid: tuple[int, ...],
) -> None:
    size = dataset.file.source.size_bytes
    if size is None or not len(offset):
        return
    stop = offset + length
    bad = np.flatnonzero((stop > size) | (offset < 0) | (length < 0))
    if len(bad):
        row = int(bad[0])
        place = dataset.file.place(dataset.path)
        chunk = tuple(int(index) for index in np.unravel_index(row, grid))
        raise SourceFormatError(
            f"{len(bad)} chunk(s) reach beyond the end of the file of {size} bytes",
            type(place)(place.source, place.variable, chunk, int(offset[row]), int(stop[row])),
        )
