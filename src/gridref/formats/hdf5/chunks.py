"""Walk chunk indexes of HDF5 datasets.

`walk_chunks` takes an `IndexRequest` (the file, the address of the index, and the chunk grid) and
calls the walker for its kind of index. Walkers return the address, stored size and filter mask of
each chunk as columns. These are compared with the file and the grid, and become a `ChunkTable`.
Anything that is impossible in a valid file is an error. To get the layout of a dataset: pass a
reader of the file to `read_superblock`, then the address of the dataset's object header
(`h5py.h5o.get_info(dataset.id).addr`) to `data_layout_of`.

Single chunk and implicit indexes need no structure in the file.
Source: HDF5 File Format Specification v3, VII.A and VII.B.

A fixed array has one element for each chunk of the greatest extent, in C order. An element is the
chunk's address and, in filtered datasets, its stored size and filter mask. Long arrays are cut into
pages, and a bitmap marks the pages that were written.
Source: HDF5 File Format Specification v3, VII.C.

An extensible array has the same elements. Its index block holds the first of them and points to the
first data blocks. Super blocks of growing size point to further data blocks of growing size. Large
data blocks are cut into pages, and the super block marks the pages that were written.
Source: HDF5 File Format Specification v3, VII.D.

Version 1 B-trees have no checksum, so everything in them is compared with what else is known about
the dataset. Their keys increase in C order from the first leaf to the last.
Source: HDF5 File Format Specification v3, III.A.1.

Version 2 B-trees index datasets that grow without limit along several dimensions. Their inner nodes
hold chunks, too.
Source: HDF5 File Format Specification v3, III.A.2 (records of types 10 and 11) and VII.E.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.chunks import check_chunks, scattered_chunks
from gridref.formats.hdf5.bytes import CHECKSUM_BYTES, FieldCursor, Hdf5Bytes, lookup3_rows
from gridref.formats.hdf5.headers import ChunkedLayout, ChunkIndexKind
from gridref.formats.hdf5.heaps import NODE_PREFIX_BYTES, BTreeV2, NodeLevel, read_btree_v2
from gridref.learned import FORMS
from gridref.model.grid import chunk_counts
from gridref.model.manifest import ChunkManifest, Source

# Input and output of all walkers

_MAX_GRID = 2**62


class _ReadBudget:
    """Ends walks in circles: the parts of an index never take more bytes than the file has."""

    def __init__(self, file: Hdf5Bytes) -> None:
        self._left = file.end_address

    def spend(self, n_bytes: int, structure: str) -> None:
        """Raise if, with `n_bytes` more, the index is larger than the file."""
        self._left -= n_bytes
        if self._left < 0:
            raise SourceFormatError(f"{structure} overlap: the index would be larger than the file")


@dataclass(frozen=True, slots=True)
class _StoredChunks:
    """The content of a chunk index, not yet compared with the file and the grid.

    Attributes
    ----------
    number
        int64, C-order number of each chunk inside the grid; negative, or too large, for those
        outside it.
    address
        uint64, place of the chunk.
    length
        uint64 or uint32, stored size; None if all have the size of an unfiltered chunk.
    filter_mask
        uint32, filters that were not applied; None if all were.
    is_checked
        The numbers are known to increase, and to be inside the grid.
    """

    number: NDArray[np.int64]
    address: NDArray[np.uint64]
    length: NDArray[np.unsignedinteger] | None = None
    filter_mask: NDArray[np.uint32] | None = None
    is_checked: bool = False

    def inside(self, n_chunks: int) -> _StoredChunks:
        """The chunks of the grid of `n_chunks`.

        An index may list others, if the file grows while it is read, or if an early version of the
        library wrote it. HDF5 does not look for them.
        """
        number = self.number
        if not len(number) or (int(number.min()) >= 0 and int(number.max()) < n_chunks):
            return self
        kept = (number >= 0) & (number < n_chunks)
        return _StoredChunks(
            number[kept],
            self.address[kept],
            None if self.length is None else self.length[kept],
            None if self.filter_mask is None else self.filter_mask[kept],
        )


@dataclass(frozen=True)
class IndexRequest:
    """A chunk index to walk.

    Attributes
    ----------
    shape, max_shape
        The dataset's shape, and its greatest extent along each dimension (None: unlimited).
    """

    file: Hdf5Bytes
    layout: ChunkedLayout
    shape: tuple[int, ...]
    max_shape: tuple[int | None, ...]
    is_filtered: bool
    budget: _ReadBudget = field(init=False)

    def __post_init__(self) -> None:
        rank = len(self.layout.chunk_shape)
        if len(self.shape) != rank or len(self.max_shape) != rank:
            raise SourceFormatError(
                f"the data layout has rank {rank}, the dataset has rank {len(self.shape)}"
            )
        if self.n_chunks > _MAX_GRID:
            raise UnsupportedFeatureError(
                f"the dataset of shape {self.shape} is declared to have {self.n_chunks} chunks"
            )
        object.__setattr__(self, "budget", _ReadBudget(self.file))

    @cached_property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return chunk_counts(self.shape, self.layout.chunk_shape)

    @property
    def max_grid_shape(self) -> tuple[int | None, ...]:
        """Number of chunks along each dimension at the dataset's greatest extent."""
        return tuple(
            None if extent is None else -(-extent // length)
            for extent, length in zip(self.max_shape, self.layout.chunk_shape, strict=True)
        )

    @cached_property
    def n_chunks(self) -> int:
        """Number of chunks of the whole grid, stored or not."""
        return math.prod(self.grid_shape)

    @property
    def index_address(self) -> int:
        """Address of the index, which exists."""
        address = self.layout.index_address
        if address is None:
            raise SourceFormatError("the dataset has no chunk index")
        return address


def _check_addresses(
    file: Hdf5Bytes, addresses: NDArray[np.unsignedinteger], structure: str
) -> NDArray[np.int64]:
    """Addresses as int64, after a check that they are inside the file."""
    if len(addresses):
        file.check_range(int(addresses.max()), 0, structure)
    return addresses.astype(np.int64)


def numbers_inside(
    coords: Sequence[NDArray[Any]] | NDArray[Any], grid_shape: tuple[int, ...]
) -> NDArray[np.int64]:
    """C-order numbers of chunks by their coords, an array of each dimension; -1 outside."""
    number = np.zeros(len(coords[0]), np.int64)
    outside = np.zeros(len(number), bool)
    for coord, n_chunks in zip(coords, grid_shape, strict=True):
        outside |= coord >= n_chunks
        number = number * n_chunks + np.where(outside, 0, coord).astype(np.int64)
    number[outside] = -1
    return number


# The chunks of one dataset as columns, checked against the file and the grid

ALL_FILTERS_OFF = 0xFFFFFFFF
"""Filter mask of a chunk to which no filter was applied."""


@dataclass(frozen=True, eq=False)
class ChunkTable:
    """The chunks that a dataset holds, in any order, each once.

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
        return len(self.number)

    def to_manifest(self, source: Source) -> ChunkManifest:
        """One row for each chunk of the grid in C order; chunks that are not stored are missing."""
        check_chunks(self.n_chunks, self.n_stored)
        columns: dict[str, Any] = {
            "offset": self.offset,
            "length": self.length,
            "filter_mask": self.filter_mask,
        }
        if self._is_dense:
            return ChunkManifest.from_columns((source,), **columns)
        return scattered_chunks(self.n_chunks, self.number, (source,), **columns)

    @property
    def _is_dense(self) -> bool:
        """Every chunk is stored, and they are in C order."""
        return self.n_stored == self.n_chunks and _is_increasing(self.number)


def _checked_table(request: IndexRequest, chunks: _StoredChunks) -> ChunkTable:
    """Turn the content of an index into a table, or raise if it is impossible."""
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
    """The chunks that extend beyond the dataset, if those are stored without filters."""
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
    request: IndexRequest, chunks: _StoredChunks, partial: NDArray[np.bool_] | None
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


def follow_each_other(
    file: Hdf5Bytes, start: NDArray[np.int64], stop: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether chunks along the last axis, at least one, follow each other in the file.

    So they do in most files.
    """
    first, end = file.base_address, file.end_address + file.base_address
    follow = np.logical_and.reduce(start[..., 1:] >= stop[..., :-1], axis=-1)
    follow &= np.maximum.reduce(start, axis=-1) <= end  # and no sum has overflowed
    inside = (start[..., 0] >= first) & (stop[..., -1] <= end)
    return np.asarray(follow & inside)


def _offsets(
    request: IndexRequest, address: NDArray[np.uint64], length: NDArray[np.int64]
) -> NDArray[np.int64]:
    file = request.file
    offset = address.astype(np.int64) + file.base_address
    start, stop = offset, offset + length
    if not len(address) or follow_each_other(file, start, stop):
        return offset
    file.check_range(int(address.max()), 0, "a chunk")
    if not _is_increasing(start):
        start, stop = np.sort(start), np.sort(stop)
    if int(stop.max()) > file.reader.size_bytes:
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


# Indexes without a structure in the file: a single chunk, and chunks in a row


def _walk_single_chunk(request: IndexRequest) -> _StoredChunks:
    """The only chunk of a dataset, whose address is in the data layout message itself."""
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
        return _StoredChunks(number, address)
    return _StoredChunks(
        number, address, np.array(sizes[:1], np.uint64), np.array(sizes[1:], np.uint32)
    )


def _walk_implicit(request: IndexRequest) -> _StoredChunks:
    """Chunks that are one after the other, in C order of the grid's greatest extent."""
    grid, max_grid = request.grid_shape, request.max_grid_shape
    if request.is_filtered or None in max_grid:
        raise SourceFormatError(
            "chunks in a row are possible without filters and within fixed limits only"
        )
    if not request.n_chunks:
        return _StoredChunks(np.empty(0, np.int64), np.empty(0, np.uint64))
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
    return _StoredChunks(np.arange(request.n_chunks, dtype=np.int64), address)


# Blocks of fixed and extensible arrays: checksums and elements

_BATCH_BYTES = 8 << 20  # with fewer, the checksums of too few blocks go side by side
_MASK_BYTES = 4
_BEYOND = 2**62


@dataclass(frozen=True, slots=True)
class _BlockRun:
    """Blocks with equal numbers of elements, each with a checksum at its end.

    Attributes
    ----------
    addresses, first_index
        The address of each block, and the array index of its first element.
    prefix, n_skipped
        The first bytes of each block, and the number of further bytes before the elements.
    structure
        Name of the blocks in errors.
    """

    addresses: NDArray[np.int64]
    first_index: NDArray[np.int64]
    n_elements: int
    prefix: bytes
    n_skipped: int
    structure: str

    def n_bytes(self, element: np.dtype[np.void]) -> int:
        n_head = len(self.prefix) + self.n_skipped
        return n_head + self.n_elements * element.itemsize + CHECKSUM_BYTES

    def part(self, start: int, stop: int) -> _BlockRun:
        return replace(
            self,
            addresses=self.addresses[start:stop],
            first_index=self.first_index[start:stop],
        )


def _chunk_dtype(
    request: IndexRequest, n_bytes: int, structure: str, *more: tuple[Any, ...]
) -> np.dtype[np.void]:
    """An entry of an index: address, if filtered stored size and filter mask, then other fields.

    The width of the stored size follows from the entry's. It depends on the chunk's size in
    version 4 of the data layout message. In version 5 it is the width of all lengths.
    """
    address = ("address", f"<u{request.file.offset_bytes}")
    dtype = np.dtype([address, *more])
    if request.is_filtered:
        width = n_bytes - dtype.itemsize - _MASK_BYTES
        if not 0 < width <= 8:
            raise SourceFormatError(f"{structure} of {n_bytes} bytes")
        dtype = np.dtype([address, ("length", "u1", (width,)), ("filter_mask", "<u4"), *more])
    if dtype.itemsize != n_bytes:
        raise SourceFormatError(f"{structure} of {n_bytes} bytes")
    return dtype


def _array_header(
    request: IndexRequest, n_bytes: int, signature: bytes, array: str
) -> tuple[FieldCursor, np.dtype[np.void]]:
    """The header of an array, up to its elements, and what these are."""
    cursor = read_checked(request, request.index_address, n_bytes, f"the header of {array}")
    cursor.expect(signature, "signature")
    version, client, element_bytes = cursor.take(1), cursor.take(1), cursor.take(1)
    if version != 0:
        raise UnsupportedFeatureError(f"{array} has the unknown version {version}")
    if client not in (0, 1):
        raise UnsupportedFeatureError(
            f"the array index holds elements of the unknown kind {client}"
        )
    if bool(client) != request.is_filtered:
        raise SourceFormatError(
            "the chunk index and the filters of the dataset contradict each other"
        )
    return cursor, _chunk_dtype(request, element_bytes, "the chunk index has elements")


def _prefix(request: IndexRequest, signature: bytes) -> bytes:
    """The first bytes of each block of an array: version, kind of elements, and its header."""
    address = request.index_address.to_bytes(request.file.offset_bytes, "little")
    return signature + bytes([0, request.is_filtered]) + address


def read_checked(request: IndexRequest, address: int, length: int, structure: str) -> FieldCursor:
    """A piece of metadata without the checksum at its end, which is verified."""
    request.budget.spend(length, structure)
    return request.file.read_checked(address, length, structure)


def _verify_rows(
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


def _read_blocks(
    request: IndexRequest, element: np.dtype[np.void], runs: Iterable[_BlockRun]
) -> list[_StoredChunks]:
    """The chunks in all blocks, numbered by array index.

    Blocks of all runs are read and verified together in batches, which is faster for short runs.
    """
    chunks: list[_StoredChunks] = []
    batch: list[tuple[_BlockRun, NDArray[np.uint8]]] = []
    n_pending = 0
    for run in runs:
        length = run.n_bytes(element)
        request.budget.spend(length * len(run.addresses), run.structure)
        step = max(1, _BATCH_BYTES // length)
        for start in range(0, len(run.addresses), step):
            part = run.part(start, start + step)
            if n_pending + length * len(part.addresses) > _BATCH_BYTES:
                chunks += _finished(request, element, batch)
                batch, n_pending = [], 0
            batch.append((part, request.file.read_rows(part.addresses, length, part.structure)))
            n_pending += length * len(part.addresses)
    return chunks + _finished(request, element, batch)


def _finished(
    request: IndexRequest,
    element: np.dtype[np.void],
    batch: list[tuple[_BlockRun, NDArray[np.uint8]]],
) -> list[_StoredChunks]:
    """Verify all blocks at once, then take their elements."""
    if not batch:
        return []
    widths = [rows.shape[1] for _, rows in batch]
    sizes = [len(rows) for _, rows in batch]
    together = batch[0][1]
    if len(batch) > 1:
        together = np.zeros((sum(sizes), max(widths)), np.uint8)
        stops = np.cumsum(sizes).tolist()
        for (_, rows), width, stop in zip(batch, widths, stops, strict=True):
            together[stop - len(rows) : stop, :width] = rows
    _verify_rows(
        request.file,
        together,
        np.repeat(widths, sizes) - CHECKSUM_BYTES,
        np.concatenate([run.addresses for run, _ in batch]),
        batch[0][0].structure,
    )
    return [_elements_of(request, element, run, rows) for run, rows in batch]


def _elements_of(
    request: IndexRequest, element: np.dtype[np.void], run: _BlockRun, rows: NDArray[np.uint8]
) -> _StoredChunks:
    if (rows[:, : len(run.prefix)] != np.frombuffer(run.prefix, np.uint8)).any():
        place = request.file.place(int(run.addresses[0]))
        raise SourceFormatError(f"{run.structure} is not where it should be", place)
    n_head = len(run.prefix) + run.n_skipped
    body = np.ascontiguousarray(rows[:, n_head:-CHECKSUM_BYTES]).view(element)
    index = run.first_index[:, None] + np.arange(run.n_elements)
    return _defined_elements(request, body, index)


def _defined_elements(
    request: IndexRequest, records: NDArray[np.void], index: NDArray[np.int64]
) -> _StoredChunks:
    """The elements that have an address, numbered by array index."""
    is_defined = records["address"] != request.file.undefined_address
    defined = records[is_defined]
    return _StoredChunks(
        index[is_defined],
        defined["address"].astype(np.uint64),
        _stored_size(defined["length"]) if request.is_filtered else None,
        np.ascontiguousarray(defined["filter_mask"]) if request.is_filtered else None,
    )


def _stored_size(raw: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Little-endian unsigned integers of any width up to 8, from (n, width) bytes."""
    padded = np.zeros((len(raw), 8), np.uint8)
    padded[:, : raw.shape[1]] = raw
    return padded.view("<u8")[:, 0]


def _join_chunks(parts: Iterable[_StoredChunks]) -> _StoredChunks:
    """All chunks of several parts of an index."""
    pieces = [part for part in parts if len(part.number)]
    if not pieces:
        return _StoredChunks(np.empty(0, np.int64), np.empty(0, np.uint64))
    lengths = [piece.length for piece in pieces if piece.length is not None]
    masks = [piece.filter_mask for piece in pieces if piece.filter_mask is not None]
    return _StoredChunks(
        np.concatenate([piece.number for piece in pieces]),
        np.concatenate([piece.address for piece in pieces]),
        np.concatenate(lengths) if lengths else None,
        np.concatenate(masks) if masks else None,
    )


def _numbers_of(
    request: IndexRequest, index: NDArray[np.int64], axes: Sequence[int]
) -> NDArray[np.int64]:
    """Numbers inside the grid of chunks that are numbered inside the grid's greatest extent.

    Those of chunks outside the grid are not in it.

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


# Fixed arrays: for datasets that cannot grow without limit

_BLOCK = "the data block of the fixed array"
_FIXED_PAGE = "a page of the fixed array"


def _walk_fixed_array(request: IndexRequest) -> _StoredChunks:
    file = request.file
    n_bytes = 8 + file.length_bytes + file.offset_bytes + CHECKSUM_BYTES
    cursor, element = _array_header(request, n_bytes, b"FAHD", "the fixed array")
    page_bits = cursor.take(1)
    n_elements = cursor.take(file.length_bytes)
    address = cursor.take(file.offset_bytes)
    _check_size(request, n_elements)
    if address == file.undefined_address:
        return _join_chunks([])
    prefix = _prefix(request, b"FADB")
    if page_bits >= file.length_bytes * 8 or n_elements <= 1 << page_bits:
        request.file.check_range(address, 0, _BLOCK)
        block = np.array([address], np.int64)
        runs = [_BlockRun(block, np.zeros(1, np.int64), n_elements, prefix, 0, _BLOCK)]
    else:
        runs = _fixed_pages(request, element, address, n_elements, 1 << page_bits)
    chunks = _join_chunks(_read_blocks(request, element, runs))
    number = _numbers_of(request, chunks.number, range(len(request.shape)))
    return _StoredChunks(number, chunks.address, chunks.length, chunks.filter_mask)


def _check_size(request: IndexRequest, n_elements: int) -> None:
    sizes = [size for size in request.max_grid_shape if size is not None]
    if len(sizes) != len(request.shape):
        raise SourceFormatError("the dataset may grow without limit, but has a fixed array")
    if math.prod(sizes) != n_elements:
        raise SourceFormatError(
            f"the fixed array has {n_elements} elements, the dataset has {math.prod(sizes)} chunks"
        )


def _fixed_pages(
    request: IndexRequest,
    element: np.dtype[np.void],
    address: int,
    n_elements: int,
    page_elements: int,
) -> list[_BlockRun]:
    """Pages are one after the other, whether written or not; the last one is shorter."""
    prefix = _prefix(request, b"FADB")
    n_pages = -(-n_elements // page_elements)
    n_bitmap = -(-n_pages // 8)
    head_bytes = len(prefix) + n_bitmap + CHECKSUM_BYTES
    cursor = read_checked(request, address, head_bytes, _BLOCK)
    cursor.expect(prefix, "prefix")
    bitmap = np.frombuffer(cursor.take_bytes(n_bitmap), np.uint8)
    written = np.flatnonzero(np.unpackbits(bitmap, count=n_pages))
    page_bytes = page_elements * element.itemsize + CHECKSUM_BYTES
    start = address + head_bytes
    if len(written):
        request.file.check_range(start, int(written[-1]) * page_bytes, _FIXED_PAGE)
    is_last = written == n_pages - 1
    n_last = n_elements - (n_pages - 1) * page_elements
    return [
        _BlockRun(start + pages * page_bytes, pages * page_elements, size, b"", 0, _FIXED_PAGE)
        for pages, size in ((written[~is_last], page_elements), (written[is_last], n_last))
    ]


# Extensible arrays: for datasets that grow without limit along one dimension

_INDEX_BLOCK = "the index block of the extensible array"
_SUPER_BLOCK = "a super block of the extensible array"
_DATA_BLOCK = "a data block of the extensible array"
_EXTENSIBLE_PAGE = "a page of the extensible array"


@dataclass(frozen=True, slots=True)
class _SuperBlock:
    """A run of equally long data blocks."""

    first_index: int
    n_blocks: int
    block_elements: int


@dataclass(frozen=True, slots=True)
class _Header:
    """The header of an extensible array: everything else follows from it."""

    element: np.dtype[np.void]
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
        """The number of super blocks that have their data blocks in the index block."""
        return 2 * (self.min_block_pointers.bit_length() - 1)

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


def _walk_extensible_array(request: IndexRequest) -> _StoredChunks:
    """All chunks of an extensible array, as far as it declares to be in use."""
    endless = [axis for axis, size in enumerate(request.max_shape) if size is None]
    if len(endless) != 1:
        raise SourceFormatError(
            f"an extensible array grows along 1 dimension, the dataset along {len(endless)}"
        )
    header = _read_header(request)
    if header.index_block == request.file.undefined_address:
        return _join_chunks([])
    chunks = _join_chunks(_read_index_block(request, header))
    chunks = chunks.inside(header.n_set)
    axes = endless + [axis for axis in range(len(request.shape)) if axis not in endless]
    number = _numbers_of(request, chunks.number, axes)
    return _StoredChunks(number, chunks.address, chunks.length, chunks.filter_mask)


def _read_header(request: IndexRequest) -> _Header:
    file = request.file
    n_bytes = 12 + 6 * file.length_bytes + file.offset_bytes + CHECKSUM_BYTES
    cursor, element = _array_header(request, n_bytes, b"EAHD", "the extensible array")
    max_bits, n_direct, min_elements, min_pointers, page_bits = (cursor.take(1) for _ in range(5))
    # Numbers and sizes of super blocks and data blocks.
    cursor.take_bytes(4 * file.length_bytes)
    n_set = cursor.take(file.length_bytes)
    cursor.take(file.length_bytes)
    powers_of_two = all(n and not n & (n - 1) for n in (min_elements, min_pointers))
    if not powers_of_two or not min_elements.bit_length() <= max_bits <= 64 or page_bits > 62:
        raise UnsupportedFeatureError("the extensible array has unknown proportions")
    return _Header(
        element,
        max_bits,
        n_direct,
        min_elements,
        min_pointers,
        page_bits,
        n_set,
        cursor.take(file.offset_bytes),
    )


def _read_index_block(request: IndexRequest, header: _Header) -> list[_StoredChunks]:
    file = request.file
    super_blocks = header.super_blocks()
    direct = super_blocks[: header.n_direct_super_blocks]
    indirect = super_blocks[header.n_direct_super_blocks :]
    n_pointers = sum(block.n_blocks for block in direct)
    prefix = _prefix(request, b"EAIB")
    n_element_bytes = header.n_direct_elements * header.element.itemsize
    n_bytes = (
        len(prefix)
        + n_element_bytes
        + (n_pointers + len(indirect)) * file.offset_bytes
        + CHECKSUM_BYTES
    )
    cursor = read_checked(request, header.index_block, n_bytes, _INDEX_BLOCK)
    cursor.expect(prefix, "prefix")
    own = np.frombuffer(cursor.take_bytes(n_element_bytes), header.element)
    index = np.arange(header.n_direct_elements, dtype=np.int64)
    runs: list[_BlockRun] = []
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
    return [_defined_elements(request, own, index), *_read_blocks(request, header.element, runs)]


def _read_super_block(
    request: IndexRequest, header: _Header, block: _SuperBlock, address: int
) -> _BlockRun:
    file = request.file
    prefix = _prefix(request, b"EASB")
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
    return _extensible_pages(request, header, block, addresses, is_written.astype(bool))


def _data_blocks(
    request: IndexRequest, header: _Header, block: _SuperBlock, addresses: NDArray[np.uint64]
) -> _BlockRun:
    order = np.flatnonzero(addresses != request.file.undefined_address)
    return _BlockRun(
        _check_addresses(request.file, addresses[order], _DATA_BLOCK),
        block.first_index + order * block.block_elements,
        block.block_elements,
        _prefix(request, b"EADB"),
        header.block_offset_bytes,
        _DATA_BLOCK,
    )


def _extensible_pages(
    request: IndexRequest,
    header: _Header,
    block: _SuperBlock,
    addresses: NDArray[np.uint64],
    is_written: NDArray[np.bool_],
) -> _BlockRun:
    """Pages follow the head of their data block, whether written or not."""
    file = request.file
    is_written = is_written & (addresses != file.undefined_address)[:, None]
    order, page = np.nonzero(is_written)
    head_bytes = len(_prefix(request, b"EADB")) + header.block_offset_bytes
    page_bytes = header.page_elements * header.element.itemsize + CHECKSUM_BYTES
    blocks = _check_addresses(file, addresses[order], _DATA_BLOCK)
    return _BlockRun(
        blocks + head_bytes + CHECKSUM_BYTES + page * page_bytes,
        block.first_index + order * block.block_elements + page * header.page_elements,
        header.page_elements,
        b"",
        0,
        _EXTENSIBLE_PAGE,
    )


def _addresses(request: IndexRequest, cursor: FieldCursor, n: int) -> NDArray[np.uint64]:
    width = request.file.offset_bytes
    return np.frombuffer(cursor.take_bytes(n * width), f"<u{width}").astype(np.uint64)


# Version 1 B-trees of chunks, a whole level at a time

_CHUNK_NODE_TYPE = 1
_NODES_BYTES = 1 << 20
_WHAT = "a node of the chunk B-tree"
_HIDDEN = "keys of the chunk B-tree do not enclose the chunks below them"
_UNORDERED = "the keys of the chunk B-tree are out of order"
_LEAF_HEAD = b"TREE" + bytes([_CHUNK_NODE_TYPE, 0])


def _walk_btree_v1(request: IndexRequest) -> _StoredChunks:
    """All chunks of a version 1 B-tree, in C order."""
    only = read_leaf(request)
    if only is not None:
        leaf, entries = only
        return _stored(request, entries, leaf.number, is_checked=leaf.is_inside)
    file = request.file
    root = np.array([request.index_address], np.uint64)
    addresses = _check_addresses(file, root, _WHAT)
    nodes = _NodeReader(request)
    level = nodes.root_level(addresses)
    bounds = None
    while level:
        parts = nodes.entries(addresses, level)
        _check_keys(parts, bounds)
        bounds = _bounds_of_children(parts, nodes.scale)
        children = [part.entries["child"] for part in parts]
        addresses = _check_addresses(file, np.concatenate(children), _WHAT)
        if not len(addresses):
            return _join_chunks([])
        level -= 1
    leaves = nodes.entries(addresses, 0)
    _check_keys(leaves, bounds)
    chunks = _join_chunks(
        _stored(request, part.entries, _numbers(request, part.keys)) for part in leaves
    )
    _check_order(chunks.number)
    return chunks


@dataclass(frozen=True, eq=False)
class Leaf:
    """What follows from a chunk B-tree of one leaf; one object for all similar ones.

    Attributes
    ----------
    kind
        By what similar ones are found in `FORMS`, with all their bytes but places and sizes.
    dtype
        All of the leaf that is used.
    number
        int64, C-order number of each chunk inside the grid; negative for those outside it.
    is_inside
        The numbers increase, and are inside the grid.
    """

    kind: tuple[Any, ...]
    dtype: np.dtype[np.void]
    number: NDArray[np.int64]
    is_inside: bool


def read_leaf(request: IndexRequest) -> tuple[Leaf, NDArray[np.void]] | None:
    """A tree that is one leaf, and its entries; None if it is more, or not valid.

    That is how the trees of small files are, whose keys mostly are the same in all files of a
    series.
    """
    file, layout = request.file, request.layout
    rank, capacity = len(request.shape), 2 * file.chunk_btree_k
    n_bytes = _node_dtype(file.offset_bytes, rank, capacity).itemsize
    data = file.read_start(request.index_address, n_bytes, _WHAT)
    count = int.from_bytes(data[6:8], "little")
    if data[:6] != _LEAF_HEAD or count > capacity:
        return None
    dtype = _node_dtype(file.offset_bytes, rank, count)
    if dtype.itemsize > len(data):
        return None
    data = data[: dtype.itemsize]
    request.budget.spend(len(data), "nodes of the chunk B-tree")
    entries = np.frombuffer(data, dtype)[0]["entries"]
    bounds = request.shape, layout.chunk_shape, layout.element_bytes
    kind = Leaf, file.offset_bytes, request.is_filtered, *bounds
    leaf: Leaf | None = FORMS.find(kind, data)
    return leaf or _learnt(request, kind, dtype, data), entries


def _learnt(
    request: IndexRequest, kind: tuple[Any, ...], dtype: np.dtype[np.void], data: bytes
) -> Leaf:
    nodes, reader = np.frombuffer(data, dtype), _NodeReader(request)
    counts = nodes["n_entries"].astype(np.int64)
    part = _used(nodes, counts, int(counts[0]), reader.scale)
    _check_keys([part], None)
    number = _numbers(request, part.keys)
    _check_order(number)
    number.flags.writeable = False
    leaf = Leaf(kind, dtype, number, bool((number >= 0).all()))
    holes = [*_differing(dtype, request)]
    return FORMS.keep(kind, data, holes, leaf, 1000 + 5 * number.nbytes)


def _differing(dtype: np.dtype[np.void], request: IndexRequest) -> Iterator[slice]:
    """Bytes of a leaf that differ in similar ones: addresses of chunks, and sizes if filtered."""
    fields: Any = dtype.fields
    (entries, first), (key, end) = fields["entries"][:2], fields["end"][:2]
    names = ("length", "child") if request.is_filtered else ("child",)
    for start in range(first, end, entries.base.itemsize):
        for part, at in (entries.base.fields[name][:2] for name in names):
            yield slice(start + at, start + at + part.itemsize)
    yield slice(end, end + key.itemsize - key["origin"].itemsize)  # size and filters of no chunk


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The content of nodes that were read together.

    Attributes
    ----------
    counts
        (n,) how many of them each node has.
    ends
        (n, rank + 1) origin in the key after each node's last entry: HDF5 finds no chunk from
        there on. It often differs from that of the last chunk in the last place alone, which
        counts bytes of an element.
    """

    entries: NDArray[np.void]
    counts: NDArray[np.int64]
    ends: NDArray[np.uint64]

    @property
    def keys(self) -> NDArray[np.uint64]:
        """(m, rank + 1) origin in the key of each entry."""
        return np.asarray(self.entries["origin"])

    @property
    def last(self) -> NDArray[np.int64]:
        """(n,) index of each node's last entry."""
        return np.cumsum(self.counts) - 1


def _check_keys(parts: list[_Nodes], bounds: NDArray[np.uint64] | None) -> None:
    """Raise unless HDF5 finds all entries: their keys are between those of the nodes above.

    `bounds` is (n, 2, rank + 1): the keys before and after each node; None for the root.
    """
    start = 0
    for part in parts:
        used = part.counts > 0
        last = part.keys[part.last[used]]
        wrong = not _precedes(last, part.ends[used]).all()
        ascends = _precedes(part.keys[:-1], part.keys[1:])
        ascends[part.last[used][:-1]] = True  # the next one is in another node
        if not ascends.all():
            raise SourceFormatError(_UNORDERED)
        if bounds is not None:
            low, high = bounds[start : start + len(part.counts)][used].transpose(1, 0, 2)
            first = part.keys[(part.last - part.counts + 1)[used]]
            wrong |= bool(_precedes(first, low).any()) or not _precedes(last, high).all()
        if wrong:
            raise SourceFormatError(_HIDDEN)
        start += len(part.counts)


def _bounds_of_children(parts: list[_Nodes], scale: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The keys before and after each child of some nodes, in whole chunks, as HDF5 compares."""
    bounds_of_parts = []
    for part in parts:
        behind = np.roll(part.keys, -1, axis=0)
        used = part.counts > 0
        behind[part.last[used]] = part.ends[used]
        bounds_of_parts.append(np.stack([part.keys, behind], axis=1))
    bounds = np.concatenate(bounds_of_parts)
    return np.asarray(bounds - bounds % scale)


def _precedes(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each row comes before the other in C order."""
    result = np.zeros(len(one), bool)
    for axis in reversed(range(one.shape[1])):
        left, right = one[:, axis], other[:, axis]
        result = (left < right) | ((left == right) & result)
    return result


class _NodeReader:
    """Reads nodes in batches that are small beside the entries decoded from them."""

    def __init__(self, request: IndexRequest) -> None:
        self._request = request
        self._capacity = 2 * request.file.chunk_btree_k
        self.scale = np.array([*request.layout.chunk_shape, request.layout.element_bytes], "u8")

    def root_level(self, root: NDArray[np.int64]) -> int:
        return int(self._read(root, 0)["level"][0])

    def entries(self, addresses: NDArray[np.int64], level: int) -> list[_Nodes]:
        """The entries of all nodes, which must be of the given level, in batches."""
        batches: list[_Nodes] = []
        step = max(1, _NODES_BYTES // self._dtype(self._capacity).itemsize)
        for start in range(0, len(addresses), step):
            part = addresses[start : start + step]
            nodes = self._read(part, self._capacity)
            counts = nodes["n_entries"].astype(np.int64)
            self._check(part, nodes, counts, level)
            if counts.max() <= self._capacity:
                batches.append(_used(nodes, counts, self._capacity, self.scale))
            else:
                batches += self._long_nodes(part, counts)
        return batches

    def _long_nodes(self, addresses: NDArray[np.int64], counts: NDArray[np.int64]) -> list[_Nodes]:
        """Entries of nodes that have more than expected, each read at its own size."""
        return [
            _used(self._read(part, count), counts[row : row + 1], count, self.scale)
            for row, count in enumerate(counts.tolist())
            for part in (addresses[row : row + 1],)
        ]

    def _check(
        self,
        addresses: NDArray[np.int64],
        nodes: NDArray[np.void],
        counts: NDArray[np.int64],
        level: int,
    ) -> None:
        """All must be nodes of this level, inside the file, and together not larger than it."""
        fits = (
            (nodes["signature"] == b"TREE")
            & (nodes["type"] == _CHUNK_NODE_TYPE)
            & (nodes["level"] == level)
        )
        if not fits.all():
            raise self._error(addresses[~fits], f"is not a chunk node of level {level}")
        empty = self._dtype(0).itemsize
        used = empty + counts * (self._dtype(1).itemsize - empty)
        is_cut = addresses + used > self._request.file.end_address
        if is_cut.any():
            raise self._error(addresses[is_cut], "lies outside of the file")
        self._request.budget.spend(int(used.sum()), "nodes of the chunk B-tree")

    def _read(self, addresses: NDArray[np.int64], capacity: int) -> NDArray[np.void]:
        dtype = self._dtype(capacity)
        rows = self._request.file.read_rows(addresses, dtype.itemsize, _WHAT, padded=True)
        return rows.reshape(-1).view(dtype)

    def _dtype(self, capacity: int) -> np.dtype[np.void]:
        return _node_dtype(self._request.file.offset_bytes, len(self._request.shape), capacity)

    def _error(self, addresses: NDArray[np.int64], reason: str) -> SourceFormatError:
        place = self._request.file.place(int(addresses[0]), self._dtype(0).itemsize)
        return SourceFormatError(f"{_WHAT} {reason}", place)


@lru_cache(maxsize=64)
def _node_dtype(offset_bytes: int, rank: int, capacity: int) -> np.dtype[np.void]:
    """A node of so many entries: its head, then keys and children in turn, and a last key."""
    address = f"<u{offset_bytes}"
    key = [("length", "<u4"), ("filter_mask", "<u4"), ("origin", "<u8", (rank + 1,))]
    entry = [*key, ("child", address)]
    return np.dtype(
        [
            ("signature", "S4"),
            ("type", "u1"),
            ("level", "u1"),
            ("n_entries", "<u2"),
            ("siblings", address, (2,)),
            ("entries", entry, (capacity,)),
            ("end", key),
        ]
    )


def _used(
    nodes: NDArray[np.void], counts: NDArray[np.int64], capacity: int, scale: NDArray[np.uint64]
) -> _Nodes:
    """The entries in use of nodes with room for `capacity`; the key after them comes next."""
    rows = np.arange(len(nodes))
    ends = nodes["end"]["origin"].copy()
    short = counts < capacity
    ends[short] = nodes["entries"]["origin"][rows[short], counts[short]]
    entries = nodes["entries"][np.arange(capacity) < counts[:, None]]
    return _Nodes(entries, counts, ends - ends % scale)


def _stored(
    request: IndexRequest,
    entries: NDArray[np.void],
    number: NDArray[np.int64],
    *,
    is_checked: bool = False,
) -> _StoredChunks:
    mask = np.ascontiguousarray(entries["filter_mask"]) if request.is_filtered else None
    length = np.ascontiguousarray(entries["length"])
    return _StoredChunks(number, entries["child"].astype(np.uint64), length, mask, is_checked)


def _numbers(request: IndexRequest, origin: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Numbers of chunks whose origins are given in elements."""
    if origin[:, -1].any():
        raise SourceFormatError("a key of the chunk B-tree does not start at a whole element")
    coords, rest = np.divmod(origin[:, :-1], np.array(request.layout.chunk_shape, np.uint64))
    if rest.any():
        axis = int(rest.any(axis=0).argmax())
        raise SourceFormatError(
            f"a key of the chunk B-tree is not the origin of a chunk (dimension {axis})"
        )
    return numbers_inside(coords.T, request.grid_shape)


def _check_order(number: NDArray[np.int64]) -> None:
    inside = number[number >= 0]
    if (inside[1:] <= inside[:-1]).any():
        raise SourceFormatError(_UNORDERED)


# Version 2 B-trees of chunks, a whole level at a time

_UNFILTERED_RECORD, _FILTERED_RECORD = 10, 11


@dataclass(frozen=True, slots=True)
class _NodesV2:
    """Nodes of one level, and how many records each has."""

    addresses: NDArray[np.int64]
    counts: NDArray[np.int64]


def _walk_btree_v2(request: IndexRequest) -> _StoredChunks:
    """All chunks of a version 2 B-tree."""
    tree = _read_tree_header(request)
    record = _record(request, tree)
    if tree.root is None or not tree.n_records:
        return _join_chunks([])
    root = _check_addresses(request.file, np.array([tree.root], np.uint64), _WHAT)
    nodes = _NodesV2(root, np.array([tree.root_records], np.int64))
    chunks_of_levels: list[_StoredChunks] = []
    for depth in reversed(range(len(tree.levels))):
        chunks, nodes = _read_level(request, tree, record, depth, nodes)
        chunks_of_levels += chunks
    joined = _join_chunks(chunks_of_levels)
    if len(joined.number) != tree.n_records:
        raise SourceFormatError(
            f"the chunk B-tree holds {len(joined.number)} chunks instead of the {tree.n_records} "
            "it declares"
        )
    return joined


def _read_tree_header(request: IndexRequest) -> BTreeV2:
    tree = read_btree_v2(request.file, request.index_address, "the chunk B-tree")
    kinds = (_UNFILTERED_RECORD, _FILTERED_RECORD)
    if tree.version != 0 or tree.record_type not in kinds:
        raise UnsupportedFeatureError(
            f"the B-tree has version {tree.version} and records of {tree.record_type}"
        )
    return tree


def _record(request: IndexRequest, tree: BTreeV2) -> np.dtype[np.void]:
    """A record: address, perhaps stored size and filter mask, and the chunk's coords."""
    if (tree.record_type == _FILTERED_RECORD) != request.is_filtered:
        raise SourceFormatError(
            "the chunk B-tree and the filters of the dataset contradict each other"
        )
    coords = ("coords", "<u8", (len(request.shape),))
    return _chunk_dtype(request, tree.record_bytes, "the chunk B-tree has records", coords)


def _read_level(
    request: IndexRequest, tree: BTreeV2, record: np.dtype[np.void], depth: int, nodes: _NodesV2
) -> tuple[list[_StoredChunks], _NodesV2]:
    """The chunks in nodes of one level, and the nodes below them."""
    level = tree.levels[depth]
    is_bad = (nodes.counts > level.max_records) | (nodes.counts < 1)
    if is_bad.any():
        place = request.file.place(int(nodes.addresses[is_bad][0]), tree.node_bytes)
        raise SourceFormatError(f"{_WHAT} has an impossible number of chunks", place)
    request.budget.spend(tree.node_bytes * len(nodes.addresses), "nodes of the chunk B-tree")
    chunks: list[_StoredChunks] = []
    children: list[_NodesV2] = []
    step = max(1, _BATCH_BYTES // tree.node_bytes)
    for start in range(0, len(nodes.addresses), step):
        part = _NodesV2(nodes.addresses[start : start + step], nodes.counts[start : start + step])
        rows = _read_nodes(request, tree, depth, part)
        chunks.append(_chunks_of_records(request, record, level, rows, part.counts))
        if depth:
            children.append(_children(request, tree, level, rows, part.counts))
    none = np.empty(0, np.int64)
    below = _NodesV2(
        np.concatenate([none, *(child.addresses for child in children)]),
        np.concatenate([none, *(child.counts for child in children)]),
    )
    return chunks, below


def _read_nodes(
    request: IndexRequest, tree: BTreeV2, depth: int, nodes: _NodesV2
) -> NDArray[np.uint8]:
    rows = request.file.read_rows(nodes.addresses, tree.node_bytes, _WHAT)
    prefix = (b"BTIN" if depth else b"BTLF") + bytes([0, tree.record_type])
    is_bad = (rows[:, :NODE_PREFIX_BYTES] != np.frombuffer(prefix, np.uint8)).any(axis=1)
    if is_bad.any():
        place = request.file.place(int(nodes.addresses[is_bad][0]), tree.node_bytes)
        raise SourceFormatError(f"{_WHAT} is not one of level {depth}", place)
    used = NODE_PREFIX_BYTES + nodes.counts * tree.record_bytes
    if depth:
        used = used + (nodes.counts + 1) * tree.levels[depth].pointer_bytes
    _verify_rows(request.file, rows, used, nodes.addresses, _WHAT)
    return rows


def _chunks_of_records(
    request: IndexRequest,
    record: np.dtype[np.void],
    level: NodeLevel,
    rows: NDArray[np.uint8],
    counts: NDArray[np.int64],
) -> _StoredChunks:
    stop = NODE_PREFIX_BYTES + level.max_records * record.itemsize
    body = np.ascontiguousarray(rows[:, NODE_PREFIX_BYTES:stop]).view(record)
    records = body[np.arange(level.max_records) < counts[:, None]]
    if not _ascend(records["coords"]):
        raise SourceFormatError(f"{_WHAT} is out of order: HDF5 would not find all chunks")
    number = numbers_inside(records["coords"].T, request.grid_shape)
    address = records["address"].astype(np.uint64)
    if not request.is_filtered:
        return _StoredChunks(number, address)
    mask = np.ascontiguousarray(records["filter_mask"])
    return _StoredChunks(number, address, _stored_size(records["length"]), mask)


def _ascend(coords: NDArray[np.uint64]) -> bool:
    """Whether (n, rank) coords ascend, the first axis before the others, by which HDF5 searches."""
    before, after = coords[:-1], coords[1:]
    differs = before != after
    first = differs.argmax(axis=1)[:, None]
    rises = np.take_along_axis(before, first, 1) < np.take_along_axis(after, first, 1)
    return bool(rises.all())


def _children(
    request: IndexRequest,
    tree: BTreeV2,
    level: NodeLevel,
    rows: NDArray[np.uint8],
    counts: NDArray[np.int64],
) -> _NodesV2:
    """Pointers follow the records directly: one more than there are records."""
    columns = np.arange((level.max_records + 1) * level.pointer_bytes)
    start = NODE_PREFIX_BYTES + counts * tree.record_bytes
    pointer_columns = np.minimum(start[:, None] + columns, rows.shape[1] - 1)
    pointers = np.take_along_axis(rows, pointer_columns, axis=1).reshape(
        len(rows), level.max_records + 1, level.pointer_bytes
    )
    pointers = pointers[np.arange(level.max_records + 1) <= counts[:, None]]
    stop = request.file.offset_bytes
    addresses = _stored_size(pointers[:, :stop])
    child_counts = _stored_size(pointers[:, stop : stop + level.count_bytes])
    # Nodes are checked against the counts later, so a count need not be in range yet.
    checked = _check_addresses(request.file, addresses, _WHAT)
    return _NodesV2(checked, child_counts.astype(np.int64))


# The chunks of a dataset, by whichever index it has

_WALKERS = {
    ChunkIndexKind.BTREE_V1: _walk_btree_v1,
    ChunkIndexKind.SINGLE_CHUNK: _walk_single_chunk,
    ChunkIndexKind.IMPLICIT: _walk_implicit,
    ChunkIndexKind.FIXED_ARRAY: _walk_fixed_array,
    ChunkIndexKind.EXTENSIBLE_ARRAY: _walk_extensible_array,
    ChunkIndexKind.BTREE_V2: _walk_btree_v2,
}


def walk_chunks(request: IndexRequest) -> ChunkTable:
    """All chunks that a dataset holds.

    Where the layout says that partial chunks are stored without filters, their filter mask is
    `ALL_FILTERS_OFF`, whatever the index states.
    """
    layout = request.layout
    if layout.index_address is None:
        return _checked_table(request, _join_chunks([]))
    walker = _WALKERS.get(layout.kind)
    if walker is None:
        raise UnsupportedFeatureError(f"chunks are indexed by {layout.kind.name}")
    try:
        return _checked_table(request, walker(request))
    except SourceFormatError as error:
        # Where no single part is wrong, at least say where the index begins.
        start = request.file.place(layout.index_address).start
        raise error.located(Place(start=start)) from None
