"""Chunk indexes of every kind, of generated and shared files, with the HDF5 library as oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from gridref.errors import GridrefError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.bytes import read_superblock
from gridref.formats.hdf5.chunks import ALL_FILTERS_OFF, IndexRequest, walk_chunks
from gridref.formats.hdf5.headers import (
    ChunkedLayout,
    ChunkIndexKind,
    CompactLayout,
    ContiguousLayout,
    VirtualLayout,
)
from gridref.model.manifest import ChunkState, Source
from tests.hdf5_bytes import BufferReader, LocalReader, read_data_layout
from tests.shared_data import shared_files, shared_hdf5_files
from tests.unit.formats.hdf5.chunks_oracle import (
    Fill,
    assert_direct_reads_agree,
    assert_walked_rightly,
    create_file,
    create_unfiltered_edges,
    fill_all,
    fill_sparsely,
    hdf5_library,
    is_listed_rightly,
    rows_by_library,
    rows_of,
    walk,
)

Kind = ChunkIndexKind
needs_library = pytest.mark.skipif(hdf5_library() is None, reason="HDF5 library not found")


@dataclass(frozen=True)
class Case:
    kind: ChunkIndexKind
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    maxshape: tuple[int | None, ...] | None = None
    fill: Fill = fill_all
    libver: str = "latest"
    early: bool = False
    dtype: str = "i4"


def fill_corners(dataset: h5py.Dataset) -> None:
    """Write a few chunks at the start, the middle and the end."""
    for place in (0, 1, dataset.shape[0] // 2, dataset.shape[0] - 1):
        dataset[place] = 5


CASES = {
    "btree1-rank1": Case(Kind.BTREE_V1, (1001,), (3,), libver="earliest"),
    "btree1-rank2": Case(Kind.BTREE_V1, (101, 50), (3, 7), libver="earliest"),
    "btree1-deep": Case(Kind.BTREE_V1, (150, 150), (1, 2), libver="earliest"),
    "btree1-rank5": Case(Kind.BTREE_V1, (5, 4, 3, 6, 7), (2, 3, 1, 4, 2), libver="earliest"),
    "btree1-sparse": Case(
        Kind.BTREE_V1, (300, 70), (3, 7), (None, None), fill_sparsely, libver="earliest"
    ),
    "single": Case(Kind.SINGLE_CHUNK, (10, 7), (10, 7)),
    "implicit": Case(Kind.IMPLICIT, (31, 17), (4, 5), early=True),
    "implicit-growing": Case(Kind.IMPLICIT, (31, 17), (4, 5), (60, 33), early=True),
    "fixed": Case(Kind.FIXED_ARRAY, (31, 17), (4, 5)),
    "fixed-rank1": Case(Kind.FIXED_ARRAY, (100,), (7,)),
    "fixed-rank4": Case(Kind.FIXED_ARRAY, (7, 5, 6, 3), (2, 2, 4, 1)),
    "fixed-sparse": Case(Kind.FIXED_ARRAY, (60, 70), (3, 7), fill=fill_sparsely),
    "fixed-growing": Case(Kind.FIXED_ARRAY, (31, 17), (4, 5), (64, 50)),
    "fixed-exactly-a-page": Case(Kind.FIXED_ARRAY, (1024,), (1,)),
    "fixed-paged": Case(Kind.FIXED_ARRAY, (100, 101), (2, 1)),
    "fixed-paged-whole-pages": Case(Kind.FIXED_ARRAY, (64, 64), (2, 1)),
    "fixed-paged-sparse": Case(Kind.FIXED_ARRAY, (400, 100), (2, 1), fill=fill_corners),
    "fixed-paged-growing": Case(Kind.FIXED_ARRAY, (60, 50), (2, 1), (100, 200)),
    "extensible": Case(Kind.EXTENSIBLE_ARRAY, (31, 17), (4, 5), (None, 17)),
    "extensible-one": Case(Kind.EXTENSIBLE_ARRAY, (3,), (5,), (None,)),
    "extensible-second": Case(Kind.EXTENSIBLE_ARRAY, (31, 17), (4, 5), (40, None)),
    "extensible-third": Case(Kind.EXTENSIBLE_ARRAY, (9, 11, 40), (2, 3, 4), (20, 11, None)),
    "extensible-middle": Case(Kind.EXTENSIBLE_ARRAY, (9, 31, 8), (2, 3, 4), (12, None, 9)),
    "extensible-super-blocks": Case(Kind.EXTENSIBLE_ARRAY, (2500,), (1,), (None,)),
    "extensible-paged": Case(Kind.EXTENSIBLE_ARRAY, (60_000,), (1,), (None,), dtype="i1"),
    "extensible-paged-sparse": Case(
        Kind.EXTENSIBLE_ARRAY, (400_000,), (1,), (None,), fill_corners, dtype="i1"
    ),
    "extensible-sparse": Case(Kind.EXTENSIBLE_ARRAY, (500, 16), (1, 4), (None, 20), fill_sparsely),
    "btree2": Case(Kind.BTREE_V2, (31, 17), (4, 5), (None, None)),
    "btree2-deep": Case(Kind.BTREE_V2, (150, 80), (1, 1), (None, None), dtype="i1"),
    "btree2-rank5": Case(Kind.BTREE_V2, (5, 4, 3, 6, 7), (2, 3, 1, 4, 2), (None,) * 5),
    "btree2-sparse": Case(Kind.BTREE_V2, (90, 70), (1, 1), (None, None), fill_sparsely),
}


def create(path: Path, case: Case, **filters: Any) -> None:
    with h5py.File(path, "w", libver=case.libver) as file:
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if case.early:
            dcpl.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        file.create_dataset("before", data=np.zeros(3))
        dataset = file.create_dataset(
            "data",
            shape=case.shape,
            chunks=case.chunks,
            maxshape=case.maxshape,
            dtype=case.dtype,
            dcpl=dcpl,
            **filters,
        )
        case.fill(dataset)


@pytest.mark.parametrize("name", CASES)
def test_chunks_are_those_of_the_library(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    create(tmp_path / "a.h5", case)
    table, layout = assert_walked_rightly(tmp_path / "a.h5")
    assert layout.kind == case.kind
    assert table.filter_mask is None
    assert set(table.length.tolist()) == {layout.chunk_bytes}
    if not case.early:
        create(tmp_path / "b.h5", case, compression="gzip", shuffle=True)
        _, layout = assert_walked_rightly(tmp_path / "b.h5")
        assert layout.kind == case.kind


@pytest.mark.parametrize("libver", ["earliest", "v108", "v110", "v112", "v114", "latest"])
def test_library_versions(libver: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    values = np.arange(1200).reshape(30, 40)
    with h5py.File(path, "w", libver=(libver, "latest")) as file:
        for maxshape in (None, (None, 40), (40, None), (None, None)):
            for compression in (None, "gzip"):
                options = {"maxshape": maxshape, "compression": compression}
                file.create_dataset(
                    f"{maxshape} {compression}", data=values, chunks=(7, 9), **options
                )
        names = list(file)
    for name in names:
        assert_walked_rightly(path, name)


@pytest.mark.parametrize("userblock", [512, 4096])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_user_block(userblock: int, libver: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with create_file(path, libver, userblock=userblock) as file:
        for name, maxshape in (("a", None), ("b", (None, 40)), ("c", (None, None))):
            values = np.arange(1200).reshape(30, 40)
            file.create_dataset(name, data=values, chunks=(3, 5), maxshape=maxshape)
            file.create_dataset(
                name + "z", data=values, chunks=(3, 5), maxshape=maxshape, compression="gzip"
            )
    with open(path, "r+b") as raw:
        raw.write(b"x" * userblock)
    for name in ("a", "az", "b", "bz", "c", "cz"):
        table, _ = assert_walked_rightly(path, name)
        assert table.n_stored == 80


def test_user_block_added_later(tmp_path: Path) -> None:
    create(tmp_path / "a.h5", CASES["fixed"])
    path = tmp_path / "b.h5"
    path.write_bytes(b"x" * 1024 + (tmp_path / "a.h5").read_bytes())
    assert_walked_rightly(path)


@pytest.mark.parametrize("sizes", [(4, 4), (8, 4), (4, 8), (2, 2)])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_sizes_of_offsets_and_lengths(sizes: tuple[int, int], libver: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    limits = [None, (60, 80)]
    if libver == "earliest" or sizes[1] == 8:  # else the library cannot open its own file
        limits += [(None, 40), (None, None)]
    with create_file(path, libver, sizes=sizes) as file:
        values = np.arange(1200, dtype="i2").reshape(30, 40)
        for number, maxshape in enumerate(limits):
            for compression in (None, "gzip"):
                file.create_dataset(
                    f"{number} {compression}",
                    data=values,
                    chunks=(5, 5),
                    maxshape=maxshape,
                    compression=compression,
                )
    for number in range(len(limits)):
        for compression in (None, "gzip"):
            table, _ = assert_walked_rightly(path, f"{number} {compression}")
            assert table.n_stored == 48


@needs_library
@pytest.mark.parametrize("k", [1, 5, 200])
def test_width_of_btree_nodes(k: int, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with create_file(path, "earliest", chunk_btree_k=k) as file:
        fill_sparsely(file.create_dataset("data", (300, 70), "i4", chunks=(1, 7)))
    table, layout = assert_walked_rightly(path)
    assert layout.kind == Kind.BTREE_V1
    assert table.n_stored == 600


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("maxshape", [(None, None), (None, 40), (40, None), (200, 200)])
def test_grown_and_shrunk(
    libver: str, maxshape: tuple[int | None, int | None], tmp_path: Path
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        dataset = file.create_dataset("data", (20, 30), "i2", chunks=(3, 4), maxshape=maxshape)
        fill_all(dataset)
        dataset.resize((40, 40))
        fill_sparsely(dataset)
        dataset.resize((23, 21))
    table, _ = assert_walked_rightly(path)
    assert table.grid_shape == (8, 6)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("maxshape", [None, (None,), (1000,)])
def test_filter_masks(libver: str, maxshape: tuple[int | None] | None, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        dataset = file.create_dataset(
            "data", (64,), "i2", chunks=(8,), maxshape=maxshape, compression="gzip", shuffle=True
        )
        dataset[:16] = 3
        dataset.id.write_direct_chunk((16,), bytes(16), filter_mask=3)
        dataset.id.write_direct_chunk((32,), bytes(40), filter_mask=2)
    table, _ = assert_walked_rightly(path)
    assert [row[3] for row in rows_of(table)] == [0, 0, 3, 2]


@needs_library
@pytest.mark.parametrize(
    ("shape", "maxshape", "kind"),
    [
        ((30, 40), None, Kind.FIXED_ARRAY),
        ((30, 40), (None, 40), Kind.EXTENSIBLE_ARRAY),
        ((30, 40), (None, None), Kind.BTREE_V2),
        ((28, 36), None, Kind.FIXED_ARRAY),
        ((28, 40), None, Kind.FIXED_ARRAY),
    ],
)
def test_partial_chunks_stored_without_filters(
    shape: tuple[int, ...],
    maxshape: tuple[int | None, ...] | None,
    kind: ChunkIndexKind,
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        fill_all(create_unfiltered_edges(file, "data", shape, (7, 9), maxshape))
    table, layout = assert_walked_rightly(path)
    assert layout.kind == kind
    assert layout.partial_chunks_unfiltered
    raw = path.read_bytes()
    with h5py.File(path) as file:
        values = file["data"][...]
    n_partial = 0
    for number, offset, length, mask in rows_of(table):
        row, column = (int(index) for index in np.unravel_index(number, table.grid_shape))
        block = values[row * 7 : row * 7 + 7, column * 9 : column * 9 + 9]
        assert mask == (0 if block.shape == (7, 9) else ALL_FILTERS_OFF)
        if mask:
            n_partial += 1
            stored = np.frombuffer(raw[offset : offset + length], "i4").reshape(7, 9)
            assert (stored[: block.shape[0], : block.shape[1]] == block).all()
    assert (n_partial > 0) == (shape != (28, 36))


def test_nothing_allocated(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    for libver in ("earliest", "latest"):
        with h5py.File(path, "w", libver=libver) as file:
            file.create_dataset("data", (100, 100), "f8", chunks=(10, 10))
        table, _ = assert_walked_rightly(path)
        assert table.n_stored == 0
        manifest = table.to_manifest(Source("a.h5"))
        assert manifest.n_rows == 100
        assert set(manifest.state.tolist()) == {ChunkState.MISSING}


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_no_elements(libver: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        dataset = file.create_dataset("data", (5, 5), "i4", chunks=(2, 2), maxshape=(None, 5))
        fill_all(dataset)
        dataset.resize((0, 5))
    table, _ = assert_walked_rightly(path)
    assert table.n_chunks == 0
    assert table.to_manifest(Source("a.h5")).n_rows == 0


def test_other_element_types(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        text = file.create_dataset("text", (20,), h5py.string_dtype(), chunks=(3,))
        text[...] = "abc"
        compound = np.zeros(20, [("a", "i1"), ("b", "f8", (3,))])
        file.create_dataset("compound", data=compound, chunks=(3,))
    assert assert_walked_rightly(path, "text")[1].element_bytes == 16
    assert assert_walked_rightly(path, "compound")[1].element_bytes == 25


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_long_object_headers(libver: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        dataset = file.create_dataset("data", data=np.arange(100), chunks=(7,))
        for index in range(7 if libver == "latest" else 300):
            dataset.attrs[f"attribute {index}"] = "x" * (10 * index % 900)
    assert_walked_rightly(path)


def test_creation_order_in_object_header(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest", track_order=True) as file:
        dataset = file.create_dataset(
            "data", data=np.arange(100), chunks=(7,), track_times=True, track_order=True
        )
        dataset.attrs["a"] = np.zeros(1000)
    assert_walked_rightly(path)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_layouts_without_chunks(libver: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    values = np.arange(10, dtype="i4")
    with create_file(path, libver, userblock=512) as file:
        file.create_dataset("contiguous", data=values)
        file.create_dataset("never", (10,), "i4")
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_layout(h5py.h5d.COMPACT)
        file.create_dataset("compact", data=values, dcpl=dcpl)
        virtual = h5py.VirtualLayout((10,), "i4")
        virtual[:] = h5py.VirtualSource(file["contiguous"])
        file.create_virtual_dataset("virtual", virtual)
    with h5py.File(path) as file, LocalReader(path) as reader:
        view = read_superblock(reader)
        layouts = {
            name: read_data_layout(view, h5py.h5o.get_info(file[name].id).addr) for name in file
        }
        assert layouts["contiguous"] == ContiguousLayout(file["contiguous"].id.get_offset(), 40)
        assert layouts["never"] == ContiguousLayout(None, 40)
        assert isinstance(layouts["virtual"], VirtualLayout)
        compact = layouts["compact"]
        assert isinstance(compact, CompactLayout)
        assert reader.read(compact.offset, compact.size_bytes) == values.tobytes()


def test_dense_manifest(tmp_path: Path, limited: Callable[[str], None]) -> None:
    path = tmp_path / "a.h5"
    create(path, CASES["btree1-sparse"], compression="gzip")
    table, _ = assert_walked_rightly(path)
    source = Source("a.h5", path.stat().st_size)
    manifest = table.to_manifest(source)
    assert manifest.sources == (source,)
    assert manifest.n_rows == table.n_chunks == 1000
    assert (manifest.state == ChunkState.RANGE).sum() == table.n_stored == 200
    assert manifest.offset[table.number].tolist() == table.offset.tolist()
    assert manifest.length[table.number].tolist() == table.length.tolist()
    assert not manifest.length[manifest.state == ChunkState.MISSING].any()
    first = {name: getattr(table, name)[:1] for name in ("number", "offset", "length")}
    for few, limit in ((table, "chunk_rows"), (replace(table, **first), "sparse_chunk_rows")):
        assert few.to_manifest(source).n_rows == 1000
        limited(f"{limit}=999")
        with pytest.raises(UnsupportedFeatureError, match=rf"1000 chunks .* limit {limit}"):
            few.to_manifest(source)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("maxshape", [None, (None, None, None)])
def test_absurd_grids(libver: str, maxshape: tuple[None, ...] | None, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    for shape in ((2**20, 2**20, 2**20), (2**60, 1, 1), (2**31, 2**31, 2**20)):
        with h5py.File(path, "w", libver=libver) as file:
            try:
                file.create_dataset("data", shape, "i1", chunks=(1, 1, 1), maxshape=maxshape)
                if maxshape or libver == "earliest":
                    file["data"][0, 0, 0] = 1
            except (ValueError, OSError):
                continue
        with h5py.File(path) as file, LocalReader(path) as reader:
            view = read_superblock(reader)
            layout = read_data_layout(view, h5py.h5o.get_info(file["data"].id).addr)
            assert isinstance(layout, ChunkedLayout)
            with pytest.raises(UnsupportedFeatureError, match="chunks"):
                walk_chunks(
                    IndexRequest(
                        view, layout, shape=shape, max_shape=maxshape or shape, is_filtered=False
                    )
                ).to_manifest(Source("a.h5"))


def test_metadata_of_another_dataset(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    create(path, CASES["fixed"])
    with h5py.File(path) as file, LocalReader(path) as reader:
        view = read_superblock(reader)
        layout = read_data_layout(view, h5py.h5o.get_info(file["data"].id).addr)
        assert isinstance(layout, ChunkedLayout)
        for shape, filtered in (((31, 17), True), ((31, 16, 1), False), ((31, 50), False)):
            with pytest.raises(SourceFormatError):
                walk_chunks(
                    IndexRequest(view, layout, shape=shape, max_shape=shape, is_filtered=filtered)
                )


def test_no_signature() -> None:
    with pytest.raises(SourceFormatError, match="signature"):
        read_superblock(BufferReader(bytes(5000)))
    with pytest.raises(SourceFormatError, match="cut off"):
        read_superblock(BufferReader(b"\x89HDF\r\n\x1a\n\x00\x00"))
    with pytest.raises(UnsupportedFeatureError, match="version 9"):
        read_superblock(BufferReader(b"\x89HDF\r\n\x1a\n\x09" + bytes(90)))


# Written by an unreleased version of the library, which numbered chunks in another way: some lie
# outside of the dataset for every release, which then reads fill values there.
MISNUMBERED = {
    "qkoziol__hdf5__h5fc_ext1_f.h5": {"/DSET_EA"},
    "qkoziol__hdf5__h5fc_ext1_i.h5": {"/DSET_EA"},
    "qkoziol__hdf5__h5fc_ext2_sf.h5": {"/DSET_EA"},
    "qkoziol__hdf5__h5fc_ext_none.h5": {"/DSET_EA"},
}


@pytest.mark.long(but=20)
@pytest.mark.parametrize("path", shared_hdf5_files("hdf5/**/*", "netcdf4/**/*", "families/**/*"))
def test_good_files(path: Path) -> None:
    misnumbered = set()
    with h5py.File(path, "r") as file, LocalReader(path) as reader:
        for dataset in _chunked_datasets(file):
            if dataset.name in MISNUMBERED.get(path.name, ()):
                table, _ = walk(dataset, reader)
                assert 0 < table.n_stored < dataset.id.get_num_chunks()
                assert_direct_reads_agree(dataset, reader, table)
                misnumbered.add(dataset.name)
                continue
            _compare(dataset, reader)
    assert misnumbered == MISNUMBERED.get(path.name, set())


@pytest.mark.parametrize("path", shared_files("bad_input/**/*"))
def test_bad_files(path: Path) -> None:
    """An error of ours, or what the library says."""
    if not _can_be_opened(path):
        pytest.skip("not an HDF5 file that h5py opens")
    with h5py.File(path, "r") as file, LocalReader(path) as reader:
        for dataset in _chunked_datasets(file):
            try:
                walk(dataset, reader)
            except GridrefError:
                continue
            _compare(dataset, reader)


def _compare(dataset: h5py.Dataset, reader: LocalReader) -> None:
    table, layout = walk(dataset, reader)
    assert table.n_stored == dataset.id.get_num_chunks()
    assert_direct_reads_agree(dataset, reader, table, most=50)
    if is_listed_rightly(dataset, layout) and not layout.partial_chunks_unfiltered:
        assert rows_of(table) == rows_by_library(dataset, table.grid_shape)


def _can_be_opened(path: Path) -> bool:
    try:
        if not h5py.is_hdf5(path):
            return False
        h5py.File(path, "r").close()
    except OSError:
        return False
    return True


def _chunked_datasets(file: h5py.File) -> Iterator[h5py.Dataset]:
    """All of them, each once, as far as the library can reach them."""
    pending: list[h5py.Group] = [file]
    seen: set[int] = set()
    while pending:
        group = pending.pop()
        for name in _or_none(lambda group=group: list(group)) or ():
            found = _or_none(lambda group=group, name=name: group[name])
            address = _or_none(lambda found=found: h5py.h5o.get_info(found.id).addr)
            if address is None or address in seen or found.file.filename != file.filename:
                continue
            seen.add(address)
            if isinstance(found, h5py.Group):
                pending.append(found)
            elif isinstance(found, h5py.Dataset) and found.chunks is not None:
                yield found


def _or_none(call: Callable[[], Any]) -> Any:
    """What the library answers, or None if it fails on a broken file."""
    try:
        return call()
    except (AttributeError, KeyError, OSError, RuntimeError, ValueError, TypeError):
        return None
