"""HDF4 files beside pyhdf, and HDF-EOS2 grids and swaths in them."""

from __future__ import annotations

import shutil
import struct
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyproj
import pytest
import xarray as xr
import zarr
from numpy.typing import NDArray
from pyhdf.error import HDF4Error
from pyhdf.HDF import HC, HDF
from pyhdf.SD import SD, SDC

import gridref
from gridref.errors import GridrefError, SourceFormatError, UnsupportedFeatureError
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import Fate
from tests.hdf4_files import (
    TILE_METRES,
    TYPES,
    library_values,
    modis_tile,
    set_chunks,
    set_external,
    set_nbit,
    write_bytes,
    write_datasets,
    write_old,
    write_structures,
)
from tests.http_server import Site, serving
from tests.shared_data import shared_files

TWINS = {"SDSszip": "SDSgzip"}
"""What the library of pyhdf cannot decode, and a data set that was written with the same values."""

INTERNAL = ("Attr0", "DimVal0", "CoordVar", "SDSVar", "RIATTR", "_HDF_")
GRID = {"spatial_ref", "x", "y"}
DIMS_OF_GRIDS = {"XDim": "x", "YDim": "y"}


def numbers(dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    random = np.random.default_rng(5)
    raw = random.integers(0, 256, (int(np.prod(shape)), np.dtype(dtype).itemsize), np.uint8)
    values: NDArray[Any] = raw.view(dtype).reshape(shape)
    return np.where(np.isnan(values), 1, values) if values.dtype.kind == "f" else values


def as_pyhdf_has_them(path: Path) -> list[tuple[str, Any]]:
    """Data sets by the names that gridref gives them; scales without labels are left out."""
    file = SD(str(path))
    datasets = [file.select(number) for number in range(file.info()[0])]
    named = []
    for dataset in datasets:
        if dataset.iscoordvar() and dataset.dim(0).info()[2] == 0:
            continue
        name = dataset.info()[0]
        before = sum(dataset.info()[0] == each.info()[0] for _, each in named)
        named.append((f"{name}_{before}" if before else name, dataset))
    return named


def assert_as_in_pyhdf(path: Path, group: VirtualGroup, read: Any) -> int:
    """Compare names, dimensions, attributes and bits of values; returns the number of data sets."""
    datasets = as_pyhdf_has_them(path)
    aside = {table for table, _ in tables_in_pyhdf(path)}
    aside |= GRID if "spatial_ref" in group.arrays else set()
    own = [name for name in group.arrays if name not in aside]
    assert [name for name, _ in datasets] == own
    assert_same_attrs(group.attrs, SD(str(path)).attributes())
    renamed = any(finding.fate is Fate.RENAMED for finding in group.report)
    for name, dataset in datasets:
        array, shape = group.arrays[name], dataset.info()[2]
        assert array.shape == (tuple(shape) if isinstance(shape, list) else (shape,))
        dims = [dataset.dim(axis).info()[0] for axis in range(array.ndim)]
        in_grid = [DIMS_OF_GRIDS.get(dim.partition(":")[0], dim) for dim in dims]
        assert list(array.dims) in (dims, in_grid) or renamed
        links = {"grid_mapping", "coordinates"} if "grid_mapping" in array.attrs else set()
        attrs = {key: value for key, value in array.attrs.items() if key not in links}
        assert_same_attrs(attrs, dataset.attributes())
        if 0 in array.shape:
            continue  # pyhdf refuses to read nothing
        twin = dict(datasets)[TWINS.get(name, name)]
        expected, values = np.asarray(twin.get()), np.asarray(read(name))
        assert values.dtype == expected.dtype
        assert values.shape == expected.shape
        assert values.tobytes() == expected.tobytes(), name
    return len(datasets)


def tables_in_pyhdf(path: Path) -> list[tuple[str, list[Any]]]:
    """Names and rows of the Vdata of users; those without rows have none."""
    file = HDF(str(path))
    interface = file.vstart()
    tables = []
    try:
        listed = interface.vdatainfo()
    except HDF4Error:
        listed = []
    for name, kind, ref, n_rows, *_ in listed:
        if not kind.startswith(INTERNAL) and not name.startswith(INTERNAL):
            table = interface.attach(ref)
            tables.append((name, table[:] if n_rows else []))
            table.detach()
    interface.end()
    file.close()
    return tables


def assert_same_attrs(attrs: Any, expected: dict[str, Any]) -> None:
    assert list(attrs) == list(expected)
    for name, value in expected.items():
        wanted = value.rstrip("\0") if isinstance(value, str) else value
        np.testing.assert_array_equal(attrs[name], wanted, err_msg=name)


# ---- values, against pyhdf --------------------------------------------------------------
@pytest.mark.parametrize("path", shared_files("formats/hdf4/*"))
def test_real_files(path: Path) -> None:
    group = gridref.scan(path, on_unsupported="skip")
    assert_as_in_pyhdf(path, group, lambda name: group.arrays[name][...])
    skipped = {finding.reason for finding in group.report if finding.fate is Fate.SKIPPED}
    assert skipped <= {"raster images are not read"}


@pytest.mark.parametrize(
    ("name", "images"),
    [
        ("grtdfi322", ["/Image_array_5", "/Raster Image #0"]),
        ("IMCOMP", ["/Raster-Image-2", "/Raster-Image-3"]),
    ],
)
def test_images_are_listed_in_the_report(shared_data: Path, name: str, images: list[str]) -> None:
    report = gridref.scan(shared_data / f"formats/hdf4/HDFGroup__hdf4__{name}.hdf").report
    assert [finding.path for finding in report if finding.fate is Fate.SKIPPED] == images


@pytest.mark.parametrize("view", ["native", "portable"])
def test_every_type_in_both_views(tmp_path: Path, view: Any) -> None:
    values = {f"v_{dtype}": numbers(dtype, (5, 7)) for dtype in TYPES}
    path = write_datasets(tmp_path / "a.hdf", values, ("y", "x"))
    group = gridref.scan(path)
    assert group.arrays["v_f4"].dims == ("y", "x")
    root = zarr.open_group(gridref.open_store(group, view), mode="r")
    assert_as_in_pyhdf(path, group, lambda name: root[name][...])


LAYOUTS = {
    "contiguous": lambda dataset: None,
    "chunked": lambda dataset: set_chunks(dataset, (3, 4)),
    "compressed": lambda dataset: dataset.setcompress(SDC.COMP_DEFLATE, 6),
    "compressed chunks": lambda dataset: set_chunks(dataset, (3, 4), deflate=6),
    "not compressed": lambda dataset: dataset.setcompress(SDC.COMP_NONE),
    "runs": lambda dataset: dataset.setcompress(SDC.COMP_RLE),
    "chunks of runs": lambda dataset: set_chunks(dataset, (3, 4), coder=(SDC.COMP_RLE,)),
    "Huffman": lambda dataset: dataset.setcompress(SDC.COMP_SKPHUFF, 2),
    "Huffman chunks": lambda dataset: set_chunks(dataset, (3, 4), coder=(SDC.COMP_SKPHUFF, 2)),
    "bits": lambda dataset: set_nbit(dataset, (15, 16, 0, 0)),
    "chunks of bits": lambda dataset: set_nbit(dataset, (15, 16, 0, 0), (3, 4)),
}
WHOLE = {"compressed", "runs", "Huffman", "bits"}
"""The library writes such data sets whole only."""


@pytest.mark.parametrize("region", [(7, 11), (2, 3), (0, 0)])
@pytest.mark.parametrize("fill", [None, -5])
def test_layouts(tmp_path: Path, region: tuple[int, int], fill: int | None) -> None:
    path = tmp_path / "a.hdf"
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    for layout, number in product(LAYOUTS, range(2)):
        if region == (2, 3) and layout in WHOLE:
            continue
        dataset = file.create(f"{layout} {number}", SDC.INT16, (7, 11))
        if fill is not None:
            dataset.setfillvalue(fill)
        LAYOUTS[layout](dataset)
        if region != (0, 0):
            dataset[: region[0], : region[1]] = numbers("i2", region)
        dataset.endaccess()
    file.end()
    group = gridref.scan(path)
    assert_as_in_pyhdf(path, group, lambda name: group.arrays[name][...])


def write_records(path: Path, n_records: int = 200) -> Path:
    """Three data sets that grow in turn, so that their linked blocks are mixed."""
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    datasets = [file.create(f"v{number}", SDC.FLOAT32, (SDC.UNLIMITED, 30)) for number in range(3)]
    for dataset in datasets:
        dataset.dim(0).setname("time")
    for record in range(n_records):
        for dataset in datasets:
            dataset[record] = numbers("f4", (30,))
    for dataset in datasets:
        dataset.endaccess()
    file.end()
    return path


@pytest.mark.parametrize("n_kept", [100, 10])
def test_linked_blocks_may_hold_more_rows_than_the_data_set(tmp_path: Path, n_kept: int) -> None:
    path = write_records(tmp_path / "a.hdf")
    data = path.read_bytes().replace(b"UDim0.0", b"Dim0.0\0")
    path.write_bytes(data.replace((200).to_bytes(4, "big"), n_kept.to_bytes(4, "big")))
    group = gridref.scan(path)
    assert group.arrays["v1"].shape == (n_kept, 30)
    assert_as_in_pyhdf(path, group, lambda name: group.arrays[name][...])


def test_records_that_grow_in_turn_are_linked_blocks_of_rows(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.hdf")
    group = gridref.scan(path)
    assert group.unlimited_dims == {"time"}
    assert group.arrays["v1"].n_blocks > 1
    assert {finding.fate for finding in group.report} == {Fate.TAKEN}
    assert_as_in_pyhdf(path, group, lambda name: group.arrays[name][...])


def test_blocks_that_cut_rows_are_kept_inline_or_refused(shared_data: Path) -> None:
    path = shared_data / "formats" / "hdf4" / "HDFGroup__hdf4__test.hdf"
    group = gridref.scan(path)
    assert [f.path for f in group.report if f.fate is Fate.INLINED] == ["/Byte"]
    with pytest.raises(UnsupportedFeatureError, match="linked blocks that no chunks fit") as caught:
        gridref.scan(path, max_inline_bytes=10)
    assert "'skip'" in str(caught.value)
    assert "Byte" not in gridref.scan(path, max_inline_bytes=10, on_unsupported="skip").arrays


def test_deflated_data_in_linked_blocks_are_kept_inline(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf"
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    datasets = [file.create(name, SDC.INT16, (40, 2000)) for name in ("a", "b")]
    for dataset in datasets:
        dataset.setcompress(SDC.COMP_DEFLATE, 6)
    for dataset in datasets:
        dataset[:4] = numbers("i2", (4, 2000))
    for dataset in datasets:
        dataset.endaccess()
    file.end()
    group = gridref.scan(path)
    assert {finding.fate for finding in group.report} == {Fate.INLINED}
    assert_as_in_pyhdf(path, group, lambda name: group.arrays[name][...])


@pytest.mark.parametrize("deflate", [0, 6])
@pytest.mark.parametrize("shape", [(11,), (4, 5, 6), (2, 3, 4, 5)])
def test_chunks_of_any_rank(tmp_path: Path, shape: tuple[int, ...], deflate: int) -> None:
    path = tmp_path / "a.hdf"
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    dataset = file.create("v", SDC.FLOAT64, shape)
    set_chunks(dataset, [3] * len(shape), deflate)
    dataset[:] = numbers("f8", shape)
    dataset.endaccess()
    file.end()
    group = gridref.scan(path)
    assert group.arrays["v"].encodings[0].chunk_shape == (3,) * len(shape)
    assert_as_in_pyhdf(path, group, lambda name: group.arrays[name][...])


def test_little_endian_numbers(tmp_path: Path) -> None:
    path, values = tmp_path / "a.hdf", numbers("i2", (7, 11))
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    dataset = file.create("v", SDC.INT16 | 0x4000, (7, 11))
    write_bytes(dataset, values)
    dataset.endaccess()
    file.end()
    array = gridref.scan(path).arrays["v"]
    np.testing.assert_array_equal(array[...], values)
    assert array.encodings[0].codecs[0].configuration == {"endian": "little"}


def test_an_external_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, values = tmp_path / "a.hdf", numbers("i2", (7, 11))
    file = SD("a.hdf", SDC.WRITE | SDC.CREATE)
    dataset = file.create("v", SDC.INT16, (7, 11))
    set_external(dataset, "data.bin", 10)
    dataset[:] = values
    dataset.endaccess()
    file.end()
    group = gridref.scan(path)
    assert_as_in_pyhdf(path, group, lambda name: group.arrays[name][...])
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "data.bin", tmp_path / "elsewhere")
    with pytest.raises(UnsupportedFeatureError, match=r"the external file data\.bin"):
        gridref.scan(path)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "f4", "f8"])
def test_bits_of_every_type(tmp_path: Path, dtype: str) -> None:
    path, n_bits = tmp_path / "a.hdf", 8 * np.dtype(dtype).itemsize
    bits = [(n_bits - 1, n_bits), (n_bits - 1, 3), (n_bits - 2, n_bits - 3), (2, 1)]
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    for each in product(bits, (0, 1), (0, 1), [(), (7, 61)]):
        (start, n), sign, ones, chunk_shape = each
        dataset = file.create(str(each), TYPES[dtype], (40, 61))
        set_nbit(dataset, (start, n, sign, ones), chunk_shape)
        dataset[:] = numbers(dtype, (40, 61))
        dataset.endaccess()
    file.end()
    group = gridref.scan(path)
    assert_as_in_pyhdf(path, group, lambda name: group.arrays[name][...])


@pytest.mark.parametrize("coder", [(SDC.COMP_RLE,), (SDC.COMP_SKPHUFF, 4)])
@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_long_runs_and_codes(tmp_path: Path, coder: tuple[int, ...], dtype: str) -> None:
    path = tmp_path / "a.hdf"
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    for period in (1, 3, 400, 5000):
        dataset = file.create(f"v{period}", TYPES[dtype], (5000,))
        dataset.setcompress(*coder)
        dataset[:] = np.repeat(numbers(dtype, (5000 // period,)), period)
        dataset.endaccess()
    file.end()
    group = gridref.scan(path)
    assert_as_in_pyhdf(path, group, lambda name: group.arrays[name][...])


def write_one(path: Path, n_elements: int, *coder: int) -> bytes:
    """A compressed data set beside a plain one; returns the file."""
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    for name in ("packed", "plain"):
        dataset = file.create(name, SDC.INT16, (n_elements,))
        if name == "packed":
            dataset.setcompress(*coder)
        dataset[:] = np.zeros(n_elements, "i2")
        dataset.endaccess()
    file.end()
    return path.read_bytes()


def test_other_compressions_are_refused_by_variable(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf"
    data = bytearray(write_one(path, 1200, SDC.COMP_RLE))
    at = data.index(struct.pack(">HHI", 3, 0, 2400)) + 12
    assert data[at : at + 2] == b"\0\1"
    data[at + 1] = 7
    path.write_bytes(data)
    with pytest.raises(UnsupportedFeatureError, match="by JPEG of HDF4"):
        gridref.scan(path)
    assert list(gridref.scan(path, on_unsupported="skip").arrays) == ["plain"]


def test_much_that_only_python_decodes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf"
    write_one(path, (1 << 21) + 1, SDC.COMP_SKPHUFF, 2)
    with pytest.raises(UnsupportedFeatureError, match="limit huffman_bytes of 4194304"):
        gridref.scan(path)
    assert list(gridref.scan(path, on_unsupported="skip").arrays) == ["plain"]


def test_damaged_parameters_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf"
    data = bytearray(write_one(path, 1200, SDC.COMP_SKPHUFF, 2))
    at = data.index(struct.pack(">HHI", 3, 0, 2400)) + 14
    data[at : at + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    with pytest.raises(SourceFormatError, match="parameters of its compression are damaged"):
        gridref.scan(path)


# ---- tables -----------------------------------------------------------------------------
def as_python(value: Any) -> Any:
    """A value as pyhdf shows it: characters are numbers, lists of them texts."""
    if isinstance(value, bytes):
        return value[0] if len(value) == 1 else value.decode().rstrip("\0")
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


@pytest.mark.parametrize("path", shared_files("formats/hdf4/*data*.hdf", "formats/hdf4/*tst[12]*"))
def test_tables_are_arrays_of_compounds(path: Path) -> None:
    group = gridref.scan(path, on_unsupported="skip")
    for name, rows in tables_in_pyhdf(path):
        array = group.arrays[name]
        values = array[...]
        assert len(values) == len(rows)
        for value, row in zip(values, rows, strict=True):
            members = list(value) if array.dtype.names else [value]
            shown = [as_python(member) for member in members]
            assert shown == [as_python(member) for member in row]


def test_rows_of_a_table_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf"
    file = HDF(str(path), HC.WRITE | HC.CREATE)
    interface = file.vstart()
    tables = [
        interface.create(name, (("t", HC.FLOAT64, 1), ("id", HC.INT16, 1), ("at", HC.FLOAT32, 2)))
        for name in ("fires", "floods")
    ]
    for row in range(300):
        for table in tables:
            table.write([[row / 2, row, [row, -row]]])
    for table in tables:
        table.detach()
    interface.end()
    file.close()
    values = gridref.scan(path).arrays["floods"][...]
    assert values.dtype.names == ("t", "id", "at")
    np.testing.assert_array_equal(values["t"], np.arange(300) / 2)
    np.testing.assert_array_equal(values["id"], np.arange(300))
    np.testing.assert_array_equal(values["at"], np.stack([np.arange(300), -np.arange(300)], 1))


# ---- names, dimensions and attributes ---------------------------------------------------
def test_scales_units_and_calibration(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf"
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    file.title = "two words"
    dataset = file.create("v", SDC.INT16, (3, 2))
    dataset[:] = numbers("i2", (3, 2))
    dataset.setcal(0.5, 0.1, 10.0, 0.2, SDC.INT16)
    dataset.setdatastrs("label", "unit", "format", "system")
    dataset.setrange(-7, 9)
    dataset.setfillvalue(-5)
    dataset.numbers = [1, 2, 3]
    labelled, described = dataset.dim(0), dataset.dim(1)
    labelled.setname("y")
    labelled.setscale(SDC.FLOAT32, [1.0, 2.0, 3.0])
    labelled.setstrs("label of y", "m", "format")
    described.setname("x")
    described.setstrs("label of x", "m", "format")
    dataset.endaccess()
    file.end()
    group = gridref.scan(path)
    assert_as_in_pyhdf(path, group, lambda name: group.arrays[name][...])
    assert list(group.arrays) == ["v", "y"]
    attrs = group.arrays["v"].attrs
    assert (attrs["scale_factor"], attrs["add_offset"]) == (0.5, 10.0)
    assert group.arrays["v"].fill_value == attrs["_FillValue"] == -5
    assert [f.path for f in group.report if f.fate is Fate.NAMED] == ["/x"]


@pytest.mark.parametrize("dtype", ["i2", "f4", "f8", "u1"])
def test_files_before_names_and_attributes(tmp_path: Path, dtype: str) -> None:
    datasets = [numbers(dtype, (3, 4)), numbers(dtype, (2, 3, 5))]
    path = write_old(tmp_path / "a.hdf", datasets)
    group = gridref.scan(path)
    assert_as_in_pyhdf(path, group, lambda name: group.arrays[name][...])
    names = [name for name in group.arrays if name.startswith("Data-Set")]
    for name, values in zip(names, datasets, strict=True):
        np.testing.assert_array_equal(group.arrays[name][...], values)
        assert group.arrays[name].attrs["scale_factor"] == 0.5
        labels = group.arrays[group.arrays[name].dims[-1]][...]
        np.testing.assert_array_equal(labels, np.arange(values.shape[-1]))


def test_fill_values_are_those_of_the_library(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf"
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    for dtype, number_type in TYPES.items():
        file.create(f"v_{dtype}", number_type, (2, 3)).endaccess()
    file.end()
    group = gridref.scan(path)
    assert_as_in_pyhdf(path, group, lambda name: group.arrays[name][...])


def test_names_that_would_be_paths_are_refused_alone(tmp_path: Path) -> None:
    path = write_datasets(tmp_path / "a.hdf", {"a/b": numbers("i2", (2, 2))})
    with pytest.raises(UnsupportedFeatureError, match="has a slash"):
        gridref.scan(path)
    assert not gridref.scan(path, on_unsupported="skip").arrays


# ---- bad input --------------------------------------------------------------------------
def test_the_content_decides_what_is_hdf5(tmp_path: Path) -> None:
    write_datasets(tmp_path / "a.hdf", {"v": numbers("i2", (2, 3))}, ("y", "x"))
    with h5py.File(tmp_path / "b.hdf", "w") as file:
        file["v"] = numbers("i2", (2, 3))
    for name in ("a.hdf", "b.hdf"):
        assert gridref.scan(tmp_path / name).arrays["v"].shape == (2, 3)


SMALL = list(LAYOUTS)[:6]
"""Layouts of a file that is read in one request."""


def small_file(path: Path) -> Path:
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    for name in SMALL:
        dataset = file.create(name, SDC.INT16, (7, 11))
        LAYOUTS[name](dataset)
        dataset[:] = numbers("i2", (7, 11))
        dataset.endaccess()
    file.end()
    return path


def assert_as_in_whole(group: VirtualGroup) -> None:
    assert list(group.arrays) == SMALL
    for array in group.arrays.values():
        np.testing.assert_array_equal(array[...], numbers("i2", (7, 11)))


@pytest.mark.parametrize("every", [97, pytest.param(13, marks=pytest.mark.long)])
def test_cut_off_anywhere(tmp_path: Path, every: int) -> None:
    """Every 13 bytes cut each descriptor, of 12 bytes, in another place than the one before."""
    whole = small_file(tmp_path / "a.hdf").read_bytes()
    path = tmp_path / "cut.hdf"
    stops = range(4, len(whole), every)
    taken = []
    for stop in stops:
        path.write_bytes(whole[:stop])
        with suppress(GridrefError):
            taken.append(assert_as_in_whole(gridref.scan(path)))
    assert len(taken) < len(stops) / 50  # the end of the file holds little that is needed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:4] + b"\xff\xff" + data[6:], "longer than the file"),
        (lambda data: data[:6] + b"\0\0\0\4" + data[10:], "two elements of tag"),
        (lambda data: data[:10] + data[22:34] + data[22:], "two elements of tag"),
    ],
)
def test_damaged_descriptors(tmp_path: Path, change: Any, message: str) -> None:
    path = small_file(tmp_path / "a.hdf")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(SourceFormatError, match=message):
        gridref.scan(path)


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        (702, "element 3 of tag 702 is not in the file"),
        (106, "element 9 of tag 106 is not in the file"),
        (1962, "one of its dimensions has no length"),
        (1965, "the list of data sets names it, and it is not in the file"),
    ],
)
def test_what_is_lost_is_not_taken_for_empty(tmp_path: Path, tag: int, message: str) -> None:
    path = write_datasets(tmp_path / "a.hdf", {"v": numbers("i2", (2, 3))}, ("y", "x"))
    data = path.read_bytes()
    place = next(at for at in range(10, 400, 12) if int.from_bytes(data[at : at + 2], "big") == tag)
    path.write_bytes(data[:place] + b"\0\1" + data[place + 2 :])
    with pytest.raises(SourceFormatError, match=message):
        gridref.scan(path)
    assert not gridref.scan(path, on_unsupported="skip").arrays


# ---- what else one does with an archive -------------------------------------------------
def test_days_are_one_cube_that_is_verified(tmp_path: Path) -> None:
    """Of a data set in each layout."""
    paths = []
    for day in range(3):
        file = SD(str(tmp_path / f"day{day}.hdf"), SDC.WRITE | SDC.CREATE)
        for layout, arrange in LAYOUTS.items():
            dataset = file.create(layout, SDC.INT16, (7, 11))
            dataset.dim(0).setname("y")
            dataset.dim(1).setname("x")
            arrange(dataset)
            dataset[:] = numbers("i2", (7, 11)) + np.int16(day)
            dataset.endaccess()
        file.end()
        paths.append(tmp_path / f"day{day}.hdf")
    layout_of_cube = gridref.Labels("day{day:d}.hdf")
    gridref.build(paths[:2], tmp_path / "a.gridref", layout=layout_of_cube)
    catalog = gridref.open_catalog(tmp_path / "a.gridref")
    catalog.append(paths[2:])
    catalog = gridref.open_catalog(tmp_path / "a.gridref")
    expected = [numbers("i2", (7, 11)) + np.int16(day) for day in range(3)]
    for layout in LAYOUTS:
        np.testing.assert_array_equal(catalog[layout][...], expected, layout)
    result = catalog.verify()
    assert result.differences == ()
    assert {path for path, _ in result.not_compared} <= {"day"}


# ---- files on a server ------------------------------------------------------------------
def test_files_on_a_server_take_few_requests(tmp_path: Path) -> None:
    path = small_file(tmp_path / "a.hdf")
    with serving(Site({"/a.hdf": path.read_bytes()})) as site:
        group = gridref.scan(f"{site.url}/a.hdf")
        assert len(site.requests) == group.report.n_requests == 1
        values = group.arrays["compressed chunks"][...]
        assert len(site.requests) == 2
        np.testing.assert_array_equal(values, numbers("i2", (7, 11)))
        gridref.build([f"{site.url}/a.hdf"], tmp_path / "a.gridref")
        result = gridref.open_catalog(tmp_path / "a.gridref").verify()
    assert result.differences == ()
    assert result.not_compared == ()


def test_a_large_file_on_a_server(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "formats" / "hdf4" / "fsspec__kerchunk__MOD14.hdf4"
    with serving(Site({"/MOD14.hdf4": path.read_bytes()})) as site:
        group = gridref.scan(f"{site.url}/MOD14.hdf4")
        assert len(site.requests) == 4  # 64 KiB, and then each twice as long as the one before
        values = group.arrays["fire mask"][1000:1010, 5]
    np.testing.assert_array_equal(values, library_values(path)["fire mask"][1000:1010, 5])


MODIS = "+proj=sinu +lon_0=0 +x_0=0 +y_0=0 +R=6371007.181 +units=m +no_defs"
N_PIXELS = 12


def pixels(seed: int = 0, shape: tuple[int, ...] = (N_PIXELS, N_PIXELS)) -> NDArray[Any]:
    return np.random.default_rng(seed).integers(-2000, 10000, shape).astype("i2")


def tile(path: Path, seed: int, horizontal: int = 18, vertical: int = 4, **options: Any) -> Path:
    """A file like those of MOD13: one grid with two fields."""
    plane = ("YDim", "XDim")
    fields = {"NDVI": (plane, pixels(seed)), "EVI": (plane, pixels(seed + 1000))}
    grid = {"fields": fields, **modis_tile(horizontal, vertical)}
    return write_structures(path, {"MODIS_Grid_16DAY_1km_VI": grid}, **options)


def opened(path: Path, **options: Any) -> xr.Dataset:
    """A file or files as a dataset."""
    gridref.build([path], path.with_suffix(".gridref"), **options)
    return xr.open_dataset(path.with_suffix(".gridref"), engine="gridref")


# ---- grids ------------------------------------------------------------------------------
def test_the_only_grid_is_the_root_with_coordinates_of_pixel_centres(tmp_path: Path) -> None:
    dataset = opened(tile(tmp_path / "a.hdf", 1))
    assert dataset["NDVI"].dims == ("y", "x")
    np.testing.assert_array_equal(dataset["NDVI"], pixels(1))
    step = TILE_METRES / N_PIXELS
    np.testing.assert_allclose(dataset["x"], (np.arange(N_PIXELS) + 0.5) * step)
    np.testing.assert_allclose(dataset["y"], 5 * TILE_METRES - (np.arange(N_PIXELS) + 0.5) * step)
    assert_is_of_modis(dataset["NDVI"])
    left, bottom, right, top = dataset["NDVI"].rio.bounds()
    np.testing.assert_allclose(
        [left, bottom, right, top], [0, 4 * TILE_METRES, TILE_METRES, 5 * TILE_METRES]
    )
    longitude, latitude = pyproj.Proj(MODIS)(left, top, inverse=True)
    np.testing.assert_allclose([longitude, latitude], [0, 50], atol=1e-6)


def assert_is_of_modis(values: xr.DataArray) -> None:
    found = pyproj.CRS.from_wkt(values.rio.crs.to_wkt())
    assert found.to_dict() == pyproj.CRS.from_proj4(MODIS).to_dict()


SYSTEMS = [
    ("GCTP_SNSOID", {}, -1, "+proj=sinu +lon_0=0 +R=6371007.181"),
    (
        "GCTP_SNSOID",
        {4: -60030000.0, 6: 5.0, 7: 7.0},
        19,
        "+proj=sinu +lon_0=-60.5 +x_0=5 +y_0=7 +R=6370997",
    ),
    ("GCTP_LAMAZ", {0: 6371228.0, 5: 90000000.0}, -1, "+proj=laea +lat_0=90 +lon_0=0 +R=6371228"),
    (
        "GCTP_PS",
        {0: 6378273.0, 1: 6356889.449, 4: -45000000.0, 5: 70000000.0},
        -1,
        "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +a=6378273 +b=6356889.449",
    ),
    (  # as NSIDC writes it: minus the square of the eccentricity
        "GCTP_PS",
        {0: 6378273.0, 1: -0.006694, 4: -45000000.0, 5: 70000000.0},
        -1,
        "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +a=6378273 +es=0.006694",
    ),
    (
        "GCTP_PS",
        {0: 0.0, 5: -71000000.0},
        12,
        "+proj=stere +lat_0=-90 +lat_ts=-71 +lon_0=0 +datum=WGS84",
    ),
    (
        "GCTP_ALBERS",
        {2: 29030000.0, 3: 45030000.0, 4: -96000000.0, 5: 23000000.0},
        8,
        "+proj=aea +lat_1=29.5 +lat_2=45.5 +lat_0=23 +lon_0=-96 +ellps=GRS80",
    ),
    (
        "GCTP_LAMCC",
        {2: 33000000.0, 3: 45000000.0, 4: -97000000.0, 5: 40000000.0},
        0,
        "+proj=lcc +lat_1=33 +lat_2=45 +lat_0=40 +lon_0=-97 +ellps=clrk66",
    ),
    (
        "GCTP_TM",
        {2: 0.9996, 4: 9000000.0},
        12,
        "+proj=tmerc +k_0=0.9996 +lon_0=9 +lat_0=0 +datum=WGS84",
    ),
    ("GCTP_CEA", {0: 6371228.0, 5: 30000000.0}, -1, "+proj=cea +lat_ts=30 +lon_0=0 +R=6371228"),
    ("GCTP_MERCAT", {5: 10030036.0}, 12, "+proj=merc +lat_ts=10.51 +lon_0=0 +datum=WGS84"),
    ("GCTP_GEO", {0: 0.0}, -1, "+proj=longlat +datum=WGS84"),
]


@pytest.mark.parametrize(("projection", "numbers", "code", "expected"), SYSTEMS)
def test_reference_systems(
    tmp_path: Path, projection: str, numbers: dict[int, float], code: int, expected: str
) -> None:
    parameters = [{0: 6371007.181, **numbers}.get(place, 0.0) for place in range(13)]
    entries = {
        **modis_tile(18, 4),
        "Projection": projection,
        "ProjParams": f"({','.join(f'{number:.6f}' for number in parameters)})",
        "SphereCode": str(code),
    }
    if projection == "GCTP_GEO":
        entries |= {"UpperLeftPointMtrs": "(0,10)", "LowerRightMtrs": "(10,0)"}
    grid = {"fields": {"v": (("YDim", "XDim"), pixels())}, **entries}
    group = gridref.scan(write_structures(tmp_path / "a.hdf", {"g": grid}))
    found = pyproj.CRS.from_wkt(group.arrays["spatial_ref"].attrs["crs_wkt"])
    assert found.equals(pyproj.CRS.from_proj4(expected), ignore_axis_order=True)


@pytest.mark.parametrize(("zone", "epsg"), [(33, 32633), (-19, 32719)])
def test_zones_of_utm(tmp_path: Path, zone: int, epsg: int) -> None:
    entries = {**modis_tile(18, 4), "Projection": "GCTP_UTM", "ZoneCode": zone, "SphereCode": 12}
    grid = {"fields": {"v": (("YDim", "XDim"), pixels())}, **entries}
    group = gridref.scan(write_structures(tmp_path / "a.hdf", {"g": grid}))
    found = pyproj.CRS.from_wkt(group.arrays["spatial_ref"].attrs["crs_wkt"])
    assert found.to_epsg() == epsg


def test_corners_in_degrees_are_packed(tmp_path: Path) -> None:
    entries = {
        "UpperLeftPointMtrs": "(-180000000.000000,90000000.000000)",
        "LowerRightMtrs": "(180000000.000000,-90000000.000000)",
        "Projection": "GCTP_GEO",
    }
    grid = {"fields": {"v": (("YDim", "XDim"), pixels(0, (180, 360)))}, **entries}
    dataset = opened(write_structures(tmp_path / "a.hdf", {"MOD_CMG": grid}))
    np.testing.assert_allclose(dataset["y"], 89.5 - np.arange(180))
    np.testing.assert_allclose(dataset["x"], np.arange(360) - 179.5)
    assert dataset["x"].attrs["standard_name"] == "longitude"
    assert dataset["v"].rio.crs.to_epsg() == 4326


@pytest.mark.parametrize(
    ("origin", "x", "y"),
    [("UL", 1, -1), ("UR", -1, -1), ("LL", 1, 1), ("LR", -1, 1)],
)
def test_grids_may_begin_at_any_corner(tmp_path: Path, origin: str, x: int, y: int) -> None:
    entries = {**modis_tile(18, 4), "GridOrigin": f"HDFE_GD_{origin}"}
    grid = {"fields": {"v": (("YDim", "XDim"), pixels())}, **entries}
    group = gridref.scan(write_structures(tmp_path / "a.hdf", {"g": grid}))
    for name, direction in (("x", x), ("y", y)):
        assert (np.sign(np.diff(group.arrays[name][...])) == direction).all()


@pytest.mark.parametrize("projection", ["GCTP_ISINUS", "GCTP_BCEA", "nonsense"])
def test_an_unknown_projection_gives_no_reference_system(tmp_path: Path, projection: str) -> None:
    entries = {**modis_tile(18, 4), "Projection": projection}
    grid = {"fields": {"v": (("YDim", "XDim"), pixels())}, **entries}
    group = gridref.scan(write_structures(tmp_path / "a.hdf", {"g": grid}))
    np.testing.assert_array_equal(group.arrays["v"][...], pixels())
    mapping = group.arrays.get("spatial_ref")
    assert mapping is None or "crs_wkt" not in mapping.attrs


def test_several_grids_are_groups_that_may_share_names(tmp_path: Path) -> None:
    plane = ("YDim", "XDim")
    coarse, fine = pixels(1, (6, 6)), pixels(2, (12, 12))
    path = write_structures(
        tmp_path / "a.hdf",
        {
            "Grid_1km": {"fields": {"state": (plane, coarse)}, **modis_tile(18, 4)},
            "Grid_500m": {
                "fields": {"state": (plane, fine), "bands": (("Band", *plane), fine[np.newaxis])},
                **modis_tile(18, 4),
            },
        },
    )
    group = gridref.scan(path)
    assert list(group.groups) == ["Grid_1km", "Grid_500m"]
    np.testing.assert_array_equal(group.groups["Grid_1km"].arrays["state"][...], coarse)
    np.testing.assert_array_equal(group.groups["Grid_500m"].arrays["state"][...], fine)
    assert group.groups["Grid_500m"].arrays["bands"].dims == ("Band", "y", "x")
    gridref.build([path], tmp_path / "a.gridref")
    tree = xr.open_datatree(tmp_path / "a.gridref", engine="gridref")
    assert tree["Grid_1km"].sizes == {"y": 6, "x": 6}
    assert tree["Grid_500m"].sizes == {"Band": 1, "y": 12, "x": 12}


# ---- swaths -----------------------------------------------------------------------------
def test_a_swath_has_its_latitudes_and_longitudes_as_coordinates(tmp_path: Path) -> None:
    track, values = ("along", "across"), pixels(3, (5, 7))
    fields = {
        "Latitude": (track, np.linspace(40, 41, 35, dtype="f4").reshape(5, 7)),
        "Longitude": (track, np.linspace(7, 9, 35, dtype="f4").reshape(5, 7)),
        "temperature": (track, values),
        "quality": (("Band", *track), values[np.newaxis]),
        "coarse": (("along_5", "across_5"), pixels(4, (1, 1))),
        "Time": (("along",), np.linspace(0, 1, 5)),
    }
    dataset = opened(write_structures(tmp_path / "a.hdf", {"mod07": {"fields": fields}}))
    assert dataset["temperature"].dims == track
    assert set(dataset["temperature"].coords) == {"Latitude", "Longitude"}
    assert set(dataset["quality"].coords) == {"Latitude", "Longitude"}
    assert not dataset["coarse"].coords
    np.testing.assert_array_equal(dataset["Latitude"], fields["Latitude"][1])
    np.testing.assert_array_equal(dataset["temperature"], values)
    assert dataset["Time"].dims == ("along",)
    np.testing.assert_array_equal(dataset["Time"], fields["Time"][1])


# ---- archives ---------------------------------------------------------------------------
@pytest.mark.parametrize("stored", [{"deflate": 6}, {"deflate": 6, "chunks": (5, 5)}, {}])
def test_tiles_of_many_days_are_one_cube(tmp_path: Path, stored: dict[str, Any]) -> None:
    paths = [
        tile(tmp_path / f"MOD13A2.A{2020001 + 16 * day}.h18v04.061.hdf", day, **stored)
        for day in range(4)
    ]
    layout = gridref.Labels("A{time:%Y%j}.h")
    gridref.build(paths[:3], tmp_path / "a.gridref", layout=layout)
    gridref.open_catalog(tmp_path / "a.gridref").append(paths[3:])
    cube = xr.open_dataset(tmp_path / "a.gridref", engine="gridref")
    expected = np.array(["2020-01-01", "2020-01-17", "2020-02-02", "2020-02-18"], "M8[ns]")
    np.testing.assert_array_equal(cube["time"], expected)
    for day in range(4):
        np.testing.assert_array_equal(cube["NDVI"][day], pixels(day))
    assert_is_of_modis(cube["NDVI"])
    result = gridref.open_catalog(tmp_path / "a.gridref").verify()
    assert result.differences == ()
    assert not {"NDVI", "EVI"} & {path for path, _ in result.not_compared}


def test_tiles_side_by_side_are_a_mosaic_over_time(tmp_path: Path) -> None:
    paths = [
        tile(tmp_path / f"M.A{2020001 + day}.h{h}v04.hdf", 10 * day + h, h)
        for day in range(2)
        for h in (18, 19)
    ]
    layout = gridref.Mosaic(labels=gridref.Labels("A{time:%Y%j}.h"))
    gridref.build(paths, tmp_path / "a.gridref", layout=layout)
    cube = xr.open_dataset(tmp_path / "a.gridref", engine="gridref")
    assert cube["NDVI"].sizes == {"time": 2, "y": N_PIXELS, "x": 2 * N_PIXELS}
    for day in range(2):
        expected = np.concatenate([pixels(10 * day + h) for h in (18, 19)], axis=1)
        np.testing.assert_array_equal(cube["NDVI"][day], expected)


def test_a_file_of_hdf4_beside_one_of_netcdf4(tmp_path: Path) -> None:
    write_datasets(tmp_path / "day1.hdf", {"v": pixels(1)}, ("y", "x"))
    data = xr.Dataset({"v": (("y", "x"), pixels(2))})
    data.to_netcdf(tmp_path / "day2.nc", engine="netcdf4")
    layout = gridref.Labels("day{day:d}")
    paths = [tmp_path / "day1.hdf", tmp_path / "day2.nc"]
    gridref.build(paths, tmp_path / "a.gridref", layout=layout)
    cube = xr.open_dataset(tmp_path / "a.gridref", engine="gridref")
    np.testing.assert_array_equal(cube["v"], [pixels(1), pixels(2)])
    assert gridref.open_catalog(tmp_path / "a.gridref").verify().differences == ()
