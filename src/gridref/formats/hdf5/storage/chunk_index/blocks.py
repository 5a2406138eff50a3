"""Checksummed pieces of chunk indexes, and the arrays of elements inside them.

Fixed and extensible arrays (HDF5 File Format Specification v3, VII.C and VII.D) keep one element
a chunk: its address and, in filtered datasets, its stored size and filter mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.checksum import lookup3_rows
from gridref.formats.hdf5.format.superblock import FieldCursor, Hdf5Bytes
from gridref.formats.hdf5.storage.chunk_index.request import (
    IndexRequest,
    StoredChunks,
    numbers_inside,
)

__all__ = [
    "BATCH_BYTES",
    "CHECKSUM_BYTES",
    "BlockRun",
    "Elements",
    "array_elements",
    "defined_elements",
    "join_chunks",
    "numbers_of",
    "read_blocks",
    "read_checked",
    "stored_size",
    "verify_rows",
]

BATCH_BYTES = 8 << 20  # with fewer, the checksums of too few blocks go side by side
CHECKSUM_BYTES = 4
_MASK_BYTES = 4
_BEYOND = 2**62


@dataclass(frozen=True, slots=True)
class Elements:
    """What an element of an array index looks like.

    Attributes
    ----------
    dtype
        Fields ``address`` and perhaps ``length`` (unsigned bytes, little-endian) and
        ``filter_mask``.
    client
        The number by which every part of the array names this kind of element.
    """

    dtype: np.dtype[np.void]
    client: int

    @property
    def n_bytes(self) -> int:
        """Size of an element."""
        return self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class BlockRun:
    """Blocks that all hold equally many elements, and end with a checksum.

    Attributes
    ----------
    addresses, first_index
        Where each block lies, and the array index of its first element.
    n_elements
        How many elements each has.
    prefix, n_skipped
        What each must begin with, and how many bytes then come before the elements.
    structure
        What the blocks are called in errors.
    """

    addresses: NDArray[np.int64]
    first_index: NDArray[np.int64]
    n_elements: int
    prefix: bytes
    n_skipped: int
    structure: str

    def n_bytes(self, elements: Elements) -> int:
        """Size of a block."""
        n_head = len(self.prefix) + self.n_skipped
        return n_head + self.n_elements * elements.n_bytes + CHECKSUM_BYTES

    def part(self, start: int, stop: int) -> BlockRun:
        """Some of the blocks."""
        return replace(
            self,
            addresses=self.addresses[start:stop],
            first_index=self.first_index[start:stop],
        )


@dataclass(frozen=True, slots=True)
class _ReadRun:
    run: BlockRun
    rows: NDArray[np.uint8]


def array_elements(request: IndexRequest, client: int, element_bytes: int) -> Elements:
    """The elements of an array whose header gives this client number and element size.

    The width of the stored size follows from the element's: it depends on the chunk's size in
    version 4 of the data layout message, and is that of all lengths in version 5.
    """
    if client not in (0, 1):
        raise UnsupportedFeatureError(
            f"the array index holds elements of the unknown kind {client}"
        )
    address_bytes = request.file.offset_bytes
    fields: list[tuple[str, str] | tuple[str, str, tuple[int]]]
    fields = [("address", f"<u{address_bytes}")]
    if bool(client) != request.is_filtered:
        raise SourceFormatError(
            "the chunk index and the filters of the dataset contradict each other"
        )
    if client == 1:
        width = element_bytes - address_bytes - _MASK_BYTES
        if not 0 < width <= 8:
            raise SourceFormatError(f"the chunk index has elements of {element_bytes} bytes")
        fields += [("length", "u1", (width,)), ("filter_mask", "<u4")]
    dtype = np.dtype(fields)
    if dtype.itemsize != element_bytes:
        raise SourceFormatError(f"the chunk index has elements of {element_bytes} bytes")
    return Elements(dtype, client)


def read_checked(request: IndexRequest, address: int, length: int, structure: str) -> FieldCursor:
    """A piece of metadata without the checksum at its end, which is verified.

    Raises
    ------
    SourceFormatError
        If it lies outside of the file, or its checksum is wrong.
    """
    request.budget.spend(length, structure)
    return request.file.read_checked(address, length, structure)


def verify_rows(
    file: Hdf5Bytes,
    rows: NDArray[np.uint8],
    lengths: NDArray[np.int64],
    addresses: NDArray[np.int64],
    structure: str,
) -> None:
    """Raise unless the first `lengths` bytes of each row are followed by their checksum."""
    columns = lengths[:, None] + np.arange(CHECKSUM_BYTES)
    stored = np.take_along_axis(rows, columns, axis=1).view("<u4")[:, 0]
    is_wrong = stored != lookup3_rows(rows, lengths)
    if is_wrong.any():
        first = int(np.flatnonzero(is_wrong)[0])
        place = file.place(int(addresses[first]), int(lengths[first]) + CHECKSUM_BYTES)
        raise SourceFormatError(f"the checksum of {structure} is wrong", place)


def read_blocks(
    request: IndexRequest, elements: Elements, runs: Iterable[BlockRun]
) -> list[StoredChunks]:
    """The chunks in all blocks, numbered by array index.

    Blocks of all runs are read and verified together, in batches: that pays where each run has few.
    """
    chunks: list[StoredChunks] = []
    batch: list[_ReadRun] = []
    n_pending = 0
    for run in runs:
        length = run.n_bytes(elements)
        request.budget.spend(length * len(run.addresses), run.structure)
        step = max(1, BATCH_BYTES // length)
        for start in range(0, len(run.addresses), step):
            part = run.part(start, start + step)
            if n_pending + length * len(part.addresses) > BATCH_BYTES:
                chunks += _finished(request, elements, batch)
                batch, n_pending = [], 0
            batch.append(
                _ReadRun(part, request.file.read_rows(part.addresses, length, part.structure))
            )
            n_pending += length * len(part.addresses)
    return chunks + _finished(request, elements, batch)


def _finished(
    request: IndexRequest, elements: Elements, batch: list[_ReadRun]
) -> list[StoredChunks]:
    """Verify all blocks at once, then take their elements."""
    if not batch:
        return []
    widths = [read.rows.shape[1] for read in batch]
    sizes = [len(read.rows) for read in batch]
    rows = batch[0].rows
    if len(batch) > 1:
        rows = np.zeros((sum(sizes), max(widths)), np.uint8)
        stops = np.cumsum(sizes).tolist()
        for read, width, stop in zip(batch, widths, stops, strict=True):
            rows[stop - len(read.rows) : stop, :width] = read.rows
    verify_rows(
        request.file,
        rows,
        np.repeat(widths, sizes) - CHECKSUM_BYTES,
        np.concatenate([read.run.addresses for read in batch]),
        batch[0].run.structure,
    )
    return [_elements_of(request, elements, read) for read in batch]


def _elements_of(request: IndexRequest, elements: Elements, read: _ReadRun) -> StoredChunks:
    run, rows = read.run, read.rows
    if (rows[:, : len(run.prefix)] != np.frombuffer(run.prefix, np.uint8)).any():
        place = request.file.place(int(run.addresses[0]))
        raise SourceFormatError(f"{run.structure} is not where it should be", place)
    n_head = len(run.prefix) + run.n_skipped
    body = np.ascontiguousarray(rows[:, n_head:-CHECKSUM_BYTES]).view(elements.dtype)
    index = run.first_index[:, None] + np.arange(run.n_elements)
    return defined_elements(request.file, elements, body, index)


def defined_elements(
    file: Hdf5Bytes, elements: Elements, records: NDArray[np.void], index: NDArray[np.int64]
) -> StoredChunks:
    """The elements that have an address, numbered by array index."""
    is_defined = records["address"] != file.undefined_address
    defined = records[is_defined]
    return StoredChunks(
        index[is_defined],
        defined["address"].astype(np.uint64),
        stored_size(defined["length"]) if elements.client else None,
        np.ascontiguousarray(defined["filter_mask"]) if elements.client else None,
    )


def stored_size(raw: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Little-endian unsigned integers of any width up to 8, from (n, width) bytes."""
    padded = np.zeros((len(raw), 8), np.uint8)
    padded[:, : raw.shape[1]] = raw
    return padded.view("<u8")[:, 0]


def join_chunks(parts: Iterable[StoredChunks]) -> StoredChunks:
    """All chunks of several parts of an index."""
    pieces = [part for part in parts if len(part.number)]
    if not pieces:
        return StoredChunks(np.empty(0, np.int64), np.empty(0, np.uint64))
    lengths = [piece.length for piece in pieces if piece.length is not None]
    masks = [piece.filter_mask for piece in pieces if piece.filter_mask is not None]
    return StoredChunks(
        np.concatenate([piece.number for piece in pieces]),
        np.concatenate([piece.address for piece in pieces]),
        np.concatenate(lengths) if lengths else None,
        np.concatenate(masks) if masks else None,
    )


def numbers_of(
    request: IndexRequest, index: NDArray[np.int64], axes: Sequence[int]
) -> NDArray[np.int64]:
    """Numbers inside the grid of chunks that are numbered inside the grid's greatest extent.

    Those of chunks outside of the grid are not in it.

    Parameters
    ----------
    index
        C-order numbers in the grid of as many chunks as the dataset may ever have.
    axes
        Order of the dimensions in this numbering; only the first may be endless.
    """
    grid, max_grid = request.grid_shape, request.max_grid_shape
    if not len(index) or (tuple(axes) == tuple(range(len(grid))) and grid[1:] == max_grid[1:]):
        return index
    coords: list[NDArray[np.int64]] = [index] * len(grid)
    rest = index
    for position, axis in enumerate(axes):
        sizes = [max_grid[later] for later in axes[position + 1 :]]
        stride = min(_BEYOND, math.prod(size for size in sizes if size is not None))
        coords[axis], rest = np.divmod(rest, stride)
    return numbers_inside(coords, grid)
