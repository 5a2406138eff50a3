"""Builders of files with all kinds of chunk indexes, and comparison with the HDF5 library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from gridref.formats.hdf5.bytes import ByteReader, read_superblock
from gridref.formats.hdf5.chunks import ChunkTable, IndexRequest, walk_chunks
from gridref.formats.hdf5.headers import ChunkedLayout, ChunkIndexKind
from tests.hdf5_bytes import LocalReader, read_data_layout

PARTIAL_CHUNKS_UNFILTERED = 0x02  # H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS


def hdf5_library() -> ctypes.CDLL | None:
    """The HDF5 library that h5py uses, for what h5py does not offer."""
    try:
        maps = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    paths = {line.split()[-1] for line in maps if "libhdf5" in line and "_hl" not in line}
    paths = {path for path in paths if path.startswith("/") and "netCDF4" not in path}
    candidates = sorted(path for path in paths if "h5py" in path) or sorted(paths)
    return ctypes.CDLL(candidates[0]) if candidates else None


def create_file(
    path: Path,
    libver: str | tuple[str, str] = "latest",
    *,
    sizes: tuple[int, int] | None = None,
    userblock: int = 0,
    chunk_btree_k: int | None = None,
) -> h5py.File:
    """A new file with uncommon properties."""
    if sizes is None and chunk_btree_k is None:
        return h5py.File(path, "w", libver=libver, userblock_size=userblock or None)
    fcpl = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    if sizes is not None:
        fcpl.set_sizes(*sizes)
    if userblock:
        fcpl.set_userblock(userblock)
    if chunk_btree_k is not None:
        library = hdf5_library()
        assert library is not None
        assert library.H5Pset_istore_k(ctypes.c_int64(fcpl.id), ctypes.c_uint(chunk_btree_k)) >= 0
    fapl = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    fapl.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    if libver == "latest":
        fapl.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
    return h5py.File(h5py.h5f.create(bytes(path), h5py.h5f.ACC_TRUNC, fcpl=fcpl, fapl=fapl))


def create_unfiltered_edges(
    file: h5py.File,
    name: str,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    max_shape: tuple[int | None, ...] | None = None,
) -> h5py.Dataset:
    """A deflated dataset whose partial chunks are stored unfiltered."""
    library = hdf5_library()
    assert library is not None
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_chunk(chunks)
    dcpl.set_deflate(4)
    options = ctypes.c_uint(PARTIAL_CHUNKS_UNFILTERED)
    assert library.H5Pset_chunk_opts(ctypes.c_int64(dcpl.id), options) >= 0
    limits = tuple(h5py.h5s.UNLIMITED if n is None else n for n in max_shape or shape)
    space = h5py.h5s.create_simple(shape, limits)
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.NATIVE_INT32, space, dcpl)
    return file[name]


def walk(dataset: h5py.Dataset, reader: ByteReader) -> tuple[ChunkTable, ChunkedLayout]:
    """The chunks of an open dataset by our own means."""
    file = read_superblock(reader)
    layout = read_data_layout(file, h5py.h5o.get_info(dataset.id).addr)
    assert isinstance(layout, ChunkedLayout)
    assert layout.chunk_shape == dataset.chunks
    table = walk_chunks(
        IndexRequest(
            file,
            layout,
            shape=dataset.shape,
            max_shape=dataset.maxshape,
            is_filtered=is_filtered(dataset),
        )
    )
    return table, layout


def is_filtered(dataset: h5py.Dataset) -> bool:
    return dataset.id.get_create_plist().get_nfilters() > 0


def is_listed_rightly(dataset: h5py.Dataset, layout: ChunkedLayout) -> bool:
    """Whether the library's list of chunks can be believed; see `list_with_library`."""
    return layout.kind != ChunkIndexKind.EXTENSIBLE_ARRAY or dataset.maxshape[0] is None


def rows_of(table: ChunkTable) -> list[tuple[int, int, int, int]]:
    """(number, offset, length, filter mask) of all chunks by number."""
    mask = table.filter_mask
    masks = np.zeros(table.n_stored, np.uint32) if mask is None else mask
    columns = (table.number, table.offset, table.length, masks)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def rows_by_library(dataset: h5py.Dataset, grid: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The same by `chunk_iter`."""
    rows: list[tuple[int, ...]] = []

    def note(chunk: Any) -> None:
        coords = [
            start // length
            for start, length in zip(chunk.chunk_offset, dataset.chunks, strict=True)
        ]
        number = int(np.ravel_multi_index(coords, grid))
        rows.append((number, chunk.byte_offset, chunk.size, chunk.filter_mask))

    dataset.id.chunk_iter(note)
    return sorted(rows)


def assert_direct_reads_agree(
    dataset: h5py.Dataset, reader: ByteReader, table: ChunkTable, most: int = 300
) -> None:
    """Each chunk's bytes are those that the library finds at its coords."""
    rows = rows_of(table)
    for number, offset, length, mask in rows[:: max(1, len(rows) // most)]:
        coords = np.unravel_index(number, table.grid_shape)
        origin = [int(c) * n for c, n in zip(coords, dataset.chunks, strict=True)]
        stored_mask, stored = dataset.id.read_direct_chunk(tuple(origin))
        assert stored == reader.read(offset, length), (number, offset, length)
        assert mask in (stored_mask, 0xFFFFFFFF)


def assert_walked_rightly(path: Path, name: str = "data") -> tuple[ChunkTable, ChunkedLayout]:
    """Compare a dataset's chunks with all that the library says about them."""
    with h5py.File(path, "r") as file, LocalReader(path) as reader:
        dataset = file[name]
        table, layout = walk(dataset, reader)
        assert table.n_stored == dataset.id.get_num_chunks()
        assert_direct_reads_agree(dataset, reader, table)
        if is_listed_rightly(dataset, layout) and not layout.partial_chunks_unfiltered:
            assert rows_of(table) == rows_by_library(dataset, table.grid_shape)
        return table, layout


Fill = Callable[[h5py.Dataset], None]


def fill_all(dataset: h5py.Dataset) -> None:
    """Write every element."""
    values = np.arange(dataset.size, dtype=np.int64).reshape(dataset.shape)
    dataset[...] = values.astype(dataset.dtype)


def fill_sparsely(dataset: h5py.Dataset) -> None:
    """Write some chunks here and there, in no order."""
    rng = np.random.default_rng(7)
    grid = [-(-n // c) for n, c in zip(dataset.shape, dataset.chunks, strict=True)]
    n_chunks = int(np.prod(grid))
    for number in rng.permutation(n_chunks)[: max(1, n_chunks // 5)]:
        coords = np.unravel_index(number, grid)
        origin = tuple(int(c) * n for c, n in zip(coords, dataset.chunks, strict=True))
        dataset[tuple(slice(o, o + 1) for o in origin)] = int(number) + 1
