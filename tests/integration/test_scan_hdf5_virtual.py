"""Mappings and extents of virtual datasets: as the HDF5 library reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.files import Location, find_object, open_file
from gridref.formats.hdf5.mappings import read_mappings
from gridref.formats.hdf5.messages import VirtualLayout, data_layout_of
from gridref.formats.options import ScanOptions
from gridref.formats.registry import scan
from gridref.io import open_for_scan
from gridref.model.array import VirtualArray
from gridref.testing.reference_reader import read_slowly
from tests.hdf5_oracle import compare_with_h5py

LIBVERS = ["earliest", "v110", "v112", "latest"]
ENDLESS = h5s.UNLIMITED
QUICK = settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

Slab = tuple[int, int, int, int]
"""Start, stride, count and block along one axis."""


def hyperslab(shape: tuple[int, ...], slabs: list[Slab]) -> Any:
    space = h5s.create_simple(shape, (ENDLESS,) * len(shape))
    start, stride, count, block = zip(*slabs, strict=True)
    space.select_hyperslab(start, count, stride, block)
    return space


def extent(slab: Slab) -> int:
    start, stride, count, block = slab
    return start + (count - 1) * stride + block


slabs = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 4), st.integers(1, 3)).map(
    lambda parts: (parts[0], parts[3] + parts[1], parts[2], parts[3])
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("virtual")


def make_virtual(
    path: Path, shape: tuple[int, ...], mappings: list[tuple[Any, str, str, Any]], libver: str
) -> None:
    creation = h5p.create(h5p.DATASET_CREATE)
    creation.set_fill_value(np.array(-1, "<i8"))
    for virtual, file_name, name, source in mappings:
        creation.set_virtual(virtual, file_name.encode(), name.encode(), source)
    space = h5s.create_simple(shape, (ENDLESS,) * len(shape))
    with h5py.File(path, "w", libver=libver) as file:
        h5d.create(file.id, b"v", h5t.STD_I64LE, space, creation)


def values_of(path: Path) -> Any:
    group = scan(path)
    result = compare_with_h5py(path, group)
    assert result.wrong == {}
    assert result.unreadable == {}
    array = group["v"]
    assert isinstance(array, VirtualArray)
    with h5py.File(path) as file:
        assert array.shape == file["v"].shape
    return read_slowly(array)


@QUICK
@given(rows=slabs, columns=slabs, libver=st.sampled_from(LIBVERS))
def test_hyperslabs(folder: Path, rows: Slab, columns: Slab, libver: str) -> None:
    shape = extent(rows), extent(columns)
    n_rows, n_columns = rows[2] * rows[3], columns[2] * columns[3]
    with h5py.File(folder / "s.h5", "w") as file:
        file["x"] = np.arange(n_rows * n_columns, dtype="<i8").reshape(n_rows, n_columns)
    everything = h5s.create_simple((n_rows, n_columns))
    mapping = hyperslab(shape, [rows, columns]), "s.h5", "x", everything
    make_virtual(folder / "v.h5", shape, [mapping], libver)
    values_of(folder / "v.h5")


@QUICK
@given(
    slab=slabs.filter(lambda slab: slab[2] > 1),
    n_stored=st.integers(0, 12),
    n_declared=st.integers(1, 12),
    of_source=st.sampled_from(["count", "block"]),
    libver=st.sampled_from(["v110", "v112", "latest"]),
)
def test_endless_mappings(
    folder: Path, slab: Slab, n_stored: int, n_declared: int, of_source: str, libver: str
) -> None:
    """The dataset is as large as its source makes it, larger or smaller than it was declared."""
    with h5py.File(folder / "s.h5", "w") as file:
        file["x"] = np.arange(2 * n_stored, dtype="<i8").reshape(n_stored, 2)
    start, stride, _, block = slab
    source_slab = (1, 2, ENDLESS, 1) if of_source == "count" else (0, 1, 1, ENDLESS)
    source = hyperslab((n_stored, 2), [source_slab, (0, 1, 1, 2)])
    endless = (start, stride, ENDLESS, block)
    shape = (n_declared, 2)
    virtual = hyperslab(shape, [endless, (0, 1, 1, 2)])
    fixed = hyperslab(shape, [(0, 1, 1, 1), (0, 1, 1, 2)])
    mappings = [(virtual, "s.h5", "x", source)]
    if start:
        mappings.append((fixed, ".", "own", h5s.create_simple((1, 2))))
    make_virtual(folder / "v.h5", shape, mappings, libver)
    values_of(folder / "v.h5")


@pytest.mark.parametrize("libver", ["v110", "latest"])
@pytest.mark.parametrize("n_files", [1, 3])
def test_numbered_names(tmp_path: Path, n_files: int, libver: str) -> None:
    for number in [*range(n_files), 5]:
        with h5py.File(tmp_path / f"part%{number}.h5", "w") as file:
            file["x"] = np.arange(6, dtype="<i8").reshape(2, 3) + 10 * number
    shape = (1, 3)
    virtual = hyperslab(shape, [(1, 4, ENDLESS, 2), (0, 1, 1, 3)])
    mapping = virtual, "part%%%b.h5", "x", h5s.create_simple((2, 3))
    make_virtual(tmp_path / "v.h5", shape, [mapping], libver)
    assert len(values_of(tmp_path / "v.h5")) == 4 * n_files - 1


@pytest.mark.parametrize("libver", LIBVERS)
def test_names_that_mappings_share(tmp_path: Path, libver: str) -> None:
    """HDF5 2.0 writes equal names once."""
    path = tmp_path / "v.h5"
    shape = (6, 2)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = np.arange(12, dtype="<i8").reshape(6, 2)
        file["y"] = -np.arange(12, dtype="<i8").reshape(6, 2)
    rows = [hyperslab(shape, [(row, 1, 1, 1), (0, 1, 1, 2)]) for row in range(6)]
    names = [("other.h5", "x"), ("other.h5", "y"), (".", "own"), ("other.h5", "x"), (".", "own")]
    mappings = [(rows[row], *name, rows[row]) for row, name in enumerate(names)]
    make_virtual(path, shape, mappings, libver)
    with h5py.File(path, "a", libver=libver) as file:
        file["own"] = np.arange(12, dtype="<i8").reshape(6, 2) + 100
    assert values_of(path)[:, 0].tolist() == [0, -2, 104, 6, 108, -1]
    with open_file(open_for_scan(path), ScanOptions()) as file:
        found = find_object(file, b"v")
        assert isinstance(found, Location)
        header = file.header(found.address)
        layout = data_layout_of(file.bytes, header.messages, header.address)
        assert isinstance(layout, VirtualLayout)
        read = read_mappings(file, layout)
    assert [(mapping.file_name, mapping.dataset_name) for mapping in read] == names


def test_numbered_files_beyond_the_limit_are_not_left_out(
    tmp_path: Path, limited: Callable[[str], None]
) -> None:
    virtual = hyperslab((1,), [(0, 1, ENDLESS, 1)])
    for number in range(3):
        with h5py.File(tmp_path / f"part{number}.h5", "w") as file:
            file["x"] = np.array([number])
    make_virtual(
        tmp_path / "v.h5", (1,), [(virtual, "part%b.h5", "x", h5s.create_simple((1,)))], "latest"
    )
    limited("mapping_pieces=2")
    with pytest.raises(UnsupportedFeatureError, match=r"limit mapping_pieces of 2 .*v\.h5"):
        scan(tmp_path / "v.h5")
    limited("mapping_pieces=3")
    assert values_of(tmp_path / "v.h5").tolist() == [0, 1, 2]


def test_numbered_names_of_no_files(tmp_path: Path) -> None:
    virtual = hyperslab((1, 3), [(1, 4, ENDLESS, 2), (0, 1, 1, 3)])
    mapping = virtual, "part%b.h5", "x", h5s.create_simple((2, 3))
    make_virtual(tmp_path / "v.h5", (1, 3), [mapping], "latest")
    array = scan(tmp_path / "v.h5")["v"]
    assert isinstance(array, VirtualArray)
    with h5py.File(tmp_path / "v.h5") as file:
        assert array.shape == file["v"].shape == (0, 3)


@pytest.mark.parametrize("n_declared", [1, 5, 20])
def test_nested_extents(tmp_path: Path, n_declared: int) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.create_dataset("x", data=np.arange(7, dtype="<i8"), maxshape=(None,))
    endless = hyperslab((1,), [(0, 1, 1, ENDLESS)])
    inner = (n_declared,)
    make_virtual(tmp_path / "inner.h5", inner, [(endless, "s.h5", "x", endless)], "latest")
    make_virtual(tmp_path / "v.h5", (1,), [(endless, "inner.h5", "v", endless)], "latest")
    assert len(values_of(tmp_path / "v.h5")) == n_declared


def test_a_virtual_dataset_of_itself_is_refused(tmp_path: Path) -> None:
    endless = hyperslab((1,), [(0, 1, 1, ENDLESS)])
    make_virtual(tmp_path / "v.h5", (1,), [(endless, ".", "v", endless)], "latest")
    with pytest.raises(UnsupportedFeatureError, match="nested 9 deep, more than the limit"):
        scan(tmp_path / "v.h5")


def test_irregular_selections_and_points_are_refused(tmp_path: Path) -> None:
    irregular = hyperslab((6,), [(0, 1, 1, 1)])
    irregular.select_hyperslab((3,), (1,), (1,), (2,), op=h5s.SELECT_OR)
    points = h5s.create_simple((6,), (ENDLESS,))
    points.select_elements([[0], [3], [4]])
    for libver in LIBVERS:
        for source in (irregular, points):
            virtual = hyperslab((6,), [(0, 1, 1, 3)])
            try:
                make_virtual(tmp_path / "v.h5", (6,), [(virtual, "s.h5", "x", source)], libver)
            except (RuntimeError, ValueError, TypeError):
                continue
            with h5py.File(tmp_path / "s.h5", "w") as file:
                file["x"] = np.arange(6, dtype="<i8")
            with pytest.raises(UnsupportedFeatureError, match="irregular selection"):
                scan(tmp_path / "v.h5")


def test_corrupt_mappings(tmp_path: Path) -> None:
    path = tmp_path / "v.h5"
    whole = h5s.create_simple((3,))
    make_virtual(path, (3,), [(whole, "name-of-the-file.h5", "x", whole)], "latest")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"name-of", b"nAme-of"))
    with pytest.raises(SourceFormatError, match="wrong checksum"):
        scan(path)


def test_numbered_names_end_at_the_first_gap(tmp_path: Path) -> None:
    for number in (0, 1, 3):
        with h5py.File(tmp_path / f"part{number}.h5", "w") as file:
            file["x"] = np.arange(2, dtype="<i8") + 10 * number
    virtual = hyperslab((1,), [(0, 2, ENDLESS, 2)])
    fixed = hyperslab((9,), [(8, 1, 1, 1)])
    mappings = [
        (virtual, "part%b.h5", "x", h5s.create_simple((2,))),
        (fixed, "part0.h5", "x", hyperslab((2,), [(0, 1, 1, 1)])),
    ]
    make_virtual(tmp_path / "v.h5", (9,), mappings, "latest")
    assert values_of(tmp_path / "v.h5").tolist() == [0, 1, 10, 11, -1, -1, -1, -1, 0]
