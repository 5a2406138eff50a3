"""Chunks of one dataset as columns, checked against the file and the grid."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.storage.chunk_index.request import IndexRequest, StoredChunks
from gridref.model.manifest import ChunkManifest, ChunkState, Source

__all__ = ["ALL_FILTERS_OFF", "ChunkTable", "checked_table"]

ALL_FILTERS_OFF = 0xFFFFFFFF
"""Filter mask of a chunk to which no filter was applied."""

_MAX_ROWS = 2**28


@dataclass(frozen=True, eq=False)
class ChunkTable:
    """The chunks that a dataset really holds, in any order, each once.

    Attributes
    ----------
    grid_shape
        Number of chunks along each dimension, stored or not.
    number
        int64, C-order number of each chunk inside the grid.
    offset
        int64, first byte in the file, user block included.
    length
        int64, stored size in bytes.
    filter_mask
        uint32, bit ``i`` set where filter ``i`` of the dataset was not applied; None if all
        were applied to all chunks.
    """

    grid_shape: tuple[int, ...]
    number: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    filter_mask: NDArray[np.uint32] | None = None

    @property
    def n_chunks(self) -> int:
        """Number of chunks of the whole grid, stored or not."""
        return math.prod(self.grid_shape)

    @property
    def n_stored(self) -> int:
        """Number of chunks that are stored."""
        return len(self.number)

    def to_manifest(self, source: Source, *, max_rows: int = _MAX_ROWS) -> ChunkManifest:
        """One row for each chunk of the grid in C order; chunks that are not stored are missing.

        Parameters
        ----------
        max_rows
            The most rows to make, each of 21 to 25 bytes.

        Raises
        ------
        UnsupportedFeatureError
            If the grid has more chunks than `max_rows`.
        """
        if self.n_chunks > max_rows:
            raise UnsupportedFeatureError(
                f"the dataset is declared to have {self.n_chunks} chunks ({self.n_stored} stored); "
                f"at most {max_rows} are listed",
                Place(source=source.url),
            )
        if self._is_dense:
            return ChunkManifest.from_columns(
                (source,), offset=self.offset, length=self.length, filter_mask=self.filter_mask
            )
        offset = np.zeros(self.n_chunks, np.int64)
        length = np.zeros(self.n_chunks, np.int64)
        state = np.full(self.n_chunks, ChunkState.MISSING, np.uint8)
        offset[self.number] = self.offset
        length[self.number] = self.length
        state[self.number] = ChunkState.RANGE
        mask = None
        if self.filter_mask is not None:
            mask = np.zeros(self.n_chunks, np.uint32)
            mask[self.number] = self.filter_mask
        return ChunkManifest.from_columns(
            (source,), offset=offset, length=length, state=state, filter_mask=mask
        )

    @property
    def _is_dense(self) -> bool:
        """Every chunk is stored, and they are in C order."""
        return self.n_stored == self.n_chunks and _is_increasing(self.number)


def checked_table(request: IndexRequest, chunks: StoredChunks) -> ChunkTable:
    """Turn what an index says into a table, or raise if it cannot be true.

    Raises
    ------
    SourceFormatError
        If a chunk of the grid lies outside of the file, is listed twice, overlaps another, or has a
        size that it cannot have.
    """
    if not chunks.is_checked:
        chunks = chunks.inside(request.n_chunks)
        _check_numbers(chunks.number)
    partial = _partial_chunks(request, chunks.number)
    length = _lengths(request, chunks, partial)
    offset = _offsets(request, chunks.address, length)
    mask = chunks.filter_mask
    if partial is not None and partial.any():
        mask = np.zeros(len(offset), np.uint32) if mask is None else mask
        mask = np.where(partial, np.uint32(ALL_FILTERS_OFF), mask)
    if mask is not None and not mask.any():
        mask = None
    return ChunkTable(request.grid_shape, chunks.number, offset, length, mask)


def _is_increasing(values: NDArray[np.int64]) -> bool:
    return bool((values[1:] > values[:-1]).all())


def _check_numbers(number: NDArray[np.int64]) -> None:
    if not _is_increasing(number) and not _is_increasing(np.sort(number)):
        raise SourceFormatError("the chunk index lists a chunk twice")


def _partial_chunks(request: IndexRequest, number: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    """Which chunks stick out of the dataset, if those are stored without filters."""
    if not (request.layout.partial_chunks_unfiltered and request.is_filtered):
        return None
    is_partial = np.zeros(len(number), bool)
    grid = request.grid_shape
    for axis, n_chunks in enumerate(grid):
        if request.shape[axis] % request.layout.chunk_shape[axis]:
            coord = number // math.prod(grid[axis + 1 :]) % n_chunks
            is_partial |= coord == n_chunks - 1
    return is_partial


def _lengths(
    request: IndexRequest, chunks: StoredChunks, partial: NDArray[np.bool_] | None
) -> NDArray[np.int64]:
    chunk_bytes = request.layout.chunk_bytes
    if len(chunks.number) and chunk_bytes > request.file.end_address and not request.is_filtered:
        raise SourceFormatError(f"a chunk of {chunk_bytes} bytes is larger than the file")
    if chunks.length is None:
        return np.full(len(chunks.number), chunk_bytes if len(chunks.number) else 0, np.int64)
    length = chunks.length
    if len(length) and int(length.max()) > request.file.end_address:
        raise SourceFormatError(f"a chunk of {int(length.max())} bytes is larger than the file")
    if not length.all():
        raise SourceFormatError("the chunk index lists a chunk of 0 bytes")
    unfiltered = partial if request.is_filtered else slice(None)
    if unfiltered is not None and (length[unfiltered] != chunk_bytes).any():
        raise SourceFormatError(
            f"the chunk index gives an unfiltered chunk another size than its {chunk_bytes} bytes"
        )
    return length.astype(np.int64)


def _follow_each_other(
    start: NDArray[np.int64], stop: NDArray[np.int64], request: IndexRequest
) -> bool:
    """Whether chunks lie in the file one after the other, as most files are written."""
    first, end = request.file.base_address, request.file.end_address + request.file.base_address
    if not len(start) or int(np.maximum.reduce(start)) > end:  # and no sum has overflowed
        return False
    in_order = np.logical_and.reduce(start[1:] >= stop[:-1])
    return bool(in_order) and int(start[0]) >= first and int(stop[-1]) <= end


def _offsets(
    request: IndexRequest, address: NDArray[np.uint64], length: NDArray[np.int64]
) -> NDArray[np.int64]:
    file = request.file
    offset = address.astype(np.int64) + file.base_address
    start, stop = offset, offset + length
    if _follow_each_other(start, stop, request):
        return offset
    if len(address):
        file.check_range(int(address.max()), 0, "a chunk")
    if not _is_increasing(start):
        start, stop = np.sort(start), np.sort(stop)
    if len(stop) and int(stop.max()) > file.reader.size_bytes:
        raise SourceFormatError(
            f"a chunk lies outside of the file of {file.reader.size_bytes} bytes",
            Place(stop=int(stop.max())),
        )
    # Sorted apart: some start is below the stop before it exactly if any two chunks overlap.
    overlaps = start[1:] < stop[:-1]
    if overlaps.any():
        first = int(start[1:][overlaps][0])
        raise SourceFormatError("two chunks overlap", Place(start=first))
    return offset
