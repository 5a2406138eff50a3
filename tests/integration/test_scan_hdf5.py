"""HDF5 and NetCDF4 files scanned without the HDF5 library, beside h5py and netCDF4."""

from __future__ import annotations

import ctypes
import io
import os
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import fsspec
import h5netcdf
import h5py
import hdf5plugin
import netCDF4
import numpy as np
import pytest
import xarray as xr
from h5py import h5a, h5d, h5p, h5s, h5t
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import gridref
from gridref.api.verify import verify
from gridref.errors import (
    GridrefError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.formats import ScanOptions
from gridref.formats.hdf5.bytes import lookup3
from gridref.formats.hdf5.files import Location, find_object, open_file
from gridref.formats.hdf5.headers import VirtualLayout, data_layout_of
from gridref.formats.hdf5.virtual import read_mappings
from gridref.formats.registry import scan
from gridref.io import open_for_scan
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import EdgePolicy
from gridref.model.scan_report import Fate
from gridref.testing.reference_reader import read_slowly
from tests.hdf5_oracle import (
    compare_with_h5py,
    differences_from_xarray,
    read_original,
    scanned_rightly,
    why_different,
)
from tests.hdf5_support import is_documented
from tests.shared_data import shared_files, shared_hdf5_files
from tests.unit.formats.hdf5.chunks_oracle import hdf5_library


def assert_equals_h5py(path: Path, **settings: Any) -> VirtualGroup:
    group = scan(path, **settings)
    result = compare_with_h5py(path, group)
    assert result.wrong == {}
    assert result.equal
    return group


def array_of(group: VirtualGroup, path: str) -> VirtualArray:
    found = group[path]
    assert isinstance(found, VirtualArray)
    return found


def numbers(*shape: int, dtype: Any = "i4") -> NDArray[Any]:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


# ---- layouts ----------------------------------------------------------------------------
@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("userblock", [0, 512, 8192])
def test_layouts(tmp_path: Path, libver: str, userblock: int) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver, userblock_size=userblock) as file:
        file.create_dataset("contiguous", data=numbers(7, 5))
        file.create_dataset("chunked", data=numbers(7, 5), chunks=(3, 2))
        file.create_dataset("growing", data=numbers(7, 5), chunks=(3, 2), maxshape=(None, 5))
        file.create_dataset("other", data=numbers(7, 5), chunks=(3, 2), maxshape=(7, None))
        file.create_dataset("both", data=numbers(7, 5), chunks=(3, 2), maxshape=(None, None))
        file.create_dataset("zipped", data=numbers(7, 5), chunks=(3, 2), compression="gzip")
        file.create_dataset("single", data=numbers(7, 5), chunks=(7, 5), fletcher32=True)
        file.create_dataset("long", data=numbers(7), chunks=(100,), maxshape=(None,), shuffle=True)
        file.create_dataset("scalar", data=3.5)
        file.create_dataset("absent", shape=(4, 3), dtype="f4", fillvalue=7)
        file.create_dataset("absent_chunks", shape=(4, 3), dtype="f4", chunks=(2, 2), fillvalue=-1)
        file.create_dataset("empty", shape=(0, 3), dtype="f4", maxshape=(None, 3), chunks=(2, 2))
        sparse = file.create_dataset("sparse", shape=(9,), dtype="u2", chunks=(2,), fillvalue=9)
        sparse[4:6] = 1
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((3,))
        made = h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I16BE, space, compact)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1, -2, 3], "i2"))
    group = assert_equals_h5py(path)
    fates = {finding.path: finding.fate for finding in group.report}
    assert fates["/compact"] is Fate.INLINED
    assert set(fates.values()) == {Fate.INLINED, Fate.TAKEN}
    assert array_of(group, "scalar").encodings[0].chunk_shape == ()
    assert array_of(group, "long").encodings[0].chunk_shape == (100,)


@pytest.mark.parametrize("libver", [h5py.h5f.LIBVER_EARLIEST, h5py.h5f.LIBVER_LATEST])
@pytest.mark.parametrize("widths", [(4, 4), (8, 4), (4, 8)])
def test_narrow_addresses_and_lengths(tmp_path: Path, widths: tuple[int, int], libver: int) -> None:
    path = tmp_path / "a.h5"
    creation = h5p.create(h5p.FILE_CREATE)
    creation.set_sizes(*widths)
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_libver_bounds(libver, h5py.h5f.LIBVER_LATEST)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    with h5py.File(h5py.h5f.create(bytes(path), fcpl=creation, fapl=access)) as file:
        group = file.create_group("group", track_order=True)
        for number in range(40):
            group[f"{40 - number}"] = number
            group.attrs[f"{number}"] = number
        file["text"] = ["a", "bc"]
        chunked = file.create_dataset("chunked", data=numbers(9, 8), chunks=(2, 3), shuffle=True)
        file["region"] = np.array([chunked.regionref[1:3]], h5py.regionref_dtype)
    group = assert_equals_h5py(path)
    assert len(group.all_arrays()) == 43
    assert [*group["group"].attrs.values()] == [*range(40)]


def test_contiguous_data_is_split_evenly_where_possible(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["even"] = numbers(120, 10, dtype="f8")
        file["prime"] = numbers(127, 10, dtype="f8")
        file["wide"] = numbers(3, 1000, dtype="f8")
    group = assert_equals_h5py(path, max_chunk_bytes=2000)
    even, prime, wide = (array_of(group, name).encodings[0] for name in ("even", "prime", "wide"))
    assert (even.chunk_shape, even.edge) == ((24, 10), EdgePolicy.PADDED)
    assert (prime.chunk_shape, prime.edge) == ((25, 10), EdgePolicy.TRUNCATED)
    assert (wide.chunk_shape, wide.edge) == ((1, 250), EdgePolicy.PADDED)


def test_filter_masks(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset(
            "x", (4, 4), "i4", chunks=(2, 2), shuffle=True, compression="gzip"
        )
        dataset[...] = numbers(4, 4)
        dataset.id.write_direct_chunk((0, 2), numbers(2, 2).tobytes(), filter_mask=3)
    group = assert_equals_h5py(path)
    assert array_of(group, "x").has_filter_masks


def test_external_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HDF5_EXTFILE_PREFIX", "${ORIGIN}")
    path = tmp_path / "a.h5"
    (tmp_path / "one.bin").write_bytes(bytes(8) + numbers(6, 10).tobytes())
    (tmp_path / "two.bin").write_bytes(numbers(4, 10).tobytes())
    with h5py.File(path, "w") as file:
        parts = [("one.bin", 8, 240), ("two.bin", 0, 160)]
        file.create_dataset("rows", (10, 10), "i4", external=parts)
        odd = [("one.bin", 8, 100), ("two.bin", 0, 20)]
        file.create_dataset("cut", (10, 3), "i4", external=odd)
        short = [("one.bin", 8, h5py.h5f.UNLIMITED)]
        file.create_dataset("short", (90,), "i4", external=short)
    group = assert_equals_h5py(path)
    rows = array_of(group, "rows")
    assert rows.encodings[0].chunk_shape == (6, 10)
    (manifest,) = rows.manifests
    urls = [Path(source.url).name for source in manifest.take(np.arange(2)).sources]
    assert urls == ["one.bin", "two.bin"]


def test_external_storage_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (10,), "i4", external=[("gone.bin", 0, 40)])
    with pytest.raises(UnsupportedFeatureError, match=r"external file gone\.bin"):
        scan(path)
    assert scan(path, on_unsupported="skip").report.skipped[0].path == "/x"


# ---- virtual datasets -------------------------------------------------------------------
def make_virtual(folder: Path) -> Path:
    for number in range(3):
        with h5py.File(folder / f"s{number}.h5", "w") as file:
            values = numbers(4, 6) + 100 * number
            file.create_dataset("x", data=values, chunks=(3, 4), compression="gzip")
    path = folder / "v.h5"
    stacked = h5py.VirtualLayout((3, 4, 6), "i4")
    joined = h5py.VirtualLayout((13, 6), "i4")
    strided = h5py.VirtualLayout((12, 3), "i4")
    for number in range(3):
        source = h5py.VirtualSource(f"s{number}.h5", "x", (4, 6))
        stacked[number] = source
        joined[4 * number : 4 * number + 4] = source
        strided[number::3, :] = source[:, 1::2]
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("stacked", stacked, fillvalue=-1)
        file.create_virtual_dataset("joined", joined, fillvalue=-1)
        file.create_virtual_dataset("strided", strided, fillvalue=-1)
        nested = h5py.VirtualLayout((2, 6), "i4")
        nested[...] = h5py.VirtualSource(".", "joined", (13, 6))[3:5]
        file.create_virtual_dataset("nested", nested)
        lost = h5py.VirtualLayout((8,), "i4")
        lost[2:6] = h5py.VirtualSource("nowhere.h5", "x", (4,))
        file.create_virtual_dataset("lost", lost, fillvalue=5)
    return path


def test_virtual_datasets(tmp_path: Path) -> None:
    group = assert_equals_h5py(make_virtual(tmp_path))
    stacked = array_of(group, "stacked")
    assert stacked.grid.grid_shape == (3, 1, 1)
    assert len(stacked.encodings) == 1
    joined = array_of(group, "joined")
    assert [n.tolist() for n in (joined.grid.axes[0].edges(),)] == [[4, 4, 4, 1]]
    reasons = {finding.path: finding.reason for finding in group.report}
    assert "nowhere.h5" in reasons["/lost"]


def test_virtual_datasets_that_are_no_blocks(tmp_path: Path) -> None:
    path = make_virtual(tmp_path)
    wider = h5py.VirtualLayout((4, 6), "f4")
    wider[...] = h5py.VirtualSource("s0.h5", "x", (4, 6))
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset("narrow", wider)
    group = scan(path, on_unsupported="skip")
    assert [finding.path for finding in group.report.skipped] == ["/narrow"]
    assert "which HDF5 converts" in group.report.skipped[0].reason


# ---- types ------------------------------------------------------------------------------
def test_types(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    struct = np.dtype([("a", "<i4"), ("b", "<f8", (2,)), ("s", "S3")], align=True)
    with h5py.File(path, "w") as file:
        for code in (*"bhiqBHIQefdFD?", ">i2", ">f4", ">c8", "S5"):
            file[code.replace(">", "big_")] = numbers(3, 2).astype(code)
        file["struct"] = np.array([(1, (2, 3), b"x"), (4, (5, 6), b"yz")], struct)
        file["big_struct"] = np.array([(1, 2.5)], [("a", ">i4"), ("b", ">f8")])
        file["mixed_struct"] = np.array([(1, 2.5)], [("a", ">i4"), ("b", "<f8")])
        file["opaque"] = np.array([b"abc", b"def"], "V3")
        file.create_dataset("array", (2,), np.dtype(("i4", (3, 4))))
        file["array"][...] = numbers(2, 3, 4)
        file["times"] = np.array(["2000-01-01", "NaT"], "M8[s]").astype(
            h5py.opaque_dtype(np.dtype("M8[s]"))
        )
        enum = h5py.enum_dtype({"sea": 0, "dry land": 1}, basetype="u1")
        file.create_dataset("enum", data=[1, 0], dtype=enum)
        file.create_dataset("text", data=["", "ä", "xyz"], dtype=h5py.string_dtype())
        file.create_dataset("one_text", data="only", dtype=h5py.string_dtype())
        references = file.create_dataset("references", (2,), h5py.ref_dtype)
        references[0] = file["h"].ref
    group = assert_equals_h5py(path)
    assert array_of(group, "array").shape == (2, 3, 4)
    assert array_of(group, "enum").attrs["flag_meanings"] == "sea dry_land"
    assert read_slowly(array_of(group, "references")).tolist() == ["/h", ""]
    assert array_of(group, "text").dtype.kind == "T"
    assert not any(finding.fate is Fate.SKIPPED for finding in group.report)


def test_odd_integers(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    values = np.array([0, 1, -1, 5, -7, 100, -2048, 2047]).astype("i2")
    space = h5s.create_simple((8,))
    bits = [(12, 0), (9, 4), (16, 0), (1, 15)]
    with h5py.File(path, "w") as file:
        for base, (precision, offset) in product((h5t.STD_I16LE, h5t.STD_U16BE), bits):
            kind = base.copy()
            kind.set_precision(precision)
            kind.set_offset(offset)
            nbit = h5p.create(h5p.DATASET_CREATE)
            nbit.set_chunk((3,))
            nbit.set_filter(h5py.h5z.FILTER_NBIT, h5py.h5z.FLAG_MANDATORY)
            for name, creation in (("contiguous", None), ("nbit", nbit)):
                about = f"{name} {kind.get_sign()} {precision} {offset}"
                made = h5d.create(file.id, about.encode(), kind, space, creation)
                made.write(h5s.ALL, h5s.ALL, values)
    assert len(assert_equals_h5py(path).arrays) == 16


@pytest.mark.parametrize("shape", [(), (2,)])
def test_odd_floats(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        kind = h5py.h5t.IEEE_F16LE.copy()
        kind.set_ebias(16)
        made = h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple(shape))
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.full(shape, 1.5, "f2"))
    assert_equals_h5py(path)


def test_long_values_are_not_inlined(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("text", data=["x" * 100] * 50, dtype=h5py.string_dtype())
    with pytest.raises(UnsupportedFeatureError, match=r"variable-length strings .*take \d+ bytes"):
        scan(path, max_inline_bytes=1000)
    assert_equals_h5py(path)


# ---- names, dimensions and attributes ---------------------------------------------------
def test_unlimited_dimensions_longer_than_a_variable(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 3)
        file.createVariable("long", "i4", ("time", "x"))[:] = numbers(5, 3)
        file.createVariable("short", "f4", ("time", "x"), fill_value=-9.0)[0:2] = numbers(2, 3)
    group = assert_equals_h5py(path)
    short = array_of(group, "short")
    assert short.shape == (5, 3)
    assert (read_slowly(short)[2:] == -9).all()
    np.testing.assert_array_equal(
        read_original(str(path), "short", (slice(1, 4), slice(0, 3))), read_slowly(short)[1:4]
    )


def test_texts_shorter_than_their_unlimited_dimension_end_in_their_fill_value(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createVariable("time", "f8", ("time",))[:] = numbers(4)
        file.createVariable("short", str, ("time",), fill_value="none")[0] = "a"
        file.createVariable("empty", str, ("time",), fill_value="none")
    group = scan(path)
    with netCDF4.Dataset(path) as file:  # h5netcdf returns the short ones
        file.set_auto_mask(False)
        for name in ("short", "empty"):
            assert read_slowly(array_of(group, name)).tolist() == file[name][:].tolist()


def test_dimensions_of_coordinates_with_several_may_be_unlimited(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("level", None)
        file.createVariable("time", "f4", ("time", "level"))[0:2, 0:5] = 1
        file.createVariable("more_times", "f4", ("time",))[:] = numbers(4)
        file.createVariable("fewer_levels", "f4", ("level",))[:] = numbers(3)
    group = scan(path)
    with netCDF4.Dataset(path) as file:  # h5netcdf takes the first length of time for all
        for name, variable in file.variables.items():
            array = array_of(group, name)
            assert (array.dims, array.shape) == (variable.dimensions, variable.shape)
        assert group.unlimited_dims == {"time", "level"}


def test_attributes_that_say_what_values_mean_are_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["packed"], file["plain"] = numbers(3), numbers(3)
        file["packed"].attrs["scale_factor"] = np.longdouble(0.5)
        file["plain"].attrs["note"] = np.longdouble(0.5)
    with pytest.raises(UnsupportedFeatureError, match="its scale_factor cannot be read") as caught:
        scan(path)
    assert is_documented(caught.value.reason)
    assert {*scan(path, on_unsupported="skip").arrays} == {"plain"}


def test_groups_inherit_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        group = file.createGroup("a/b")
        group.createDimension("y", 2)
        group.createVariable("v", "i2", ("y", "x"))[:] = numbers(2, 3)
        group.createVariable("y", "f8", ("x", "y"))[:] = numbers(3, 2)
    scanned = assert_equals_h5py(path)
    assert array_of(scanned, "a/b/v").dims == ("y", "x")
    assert array_of(scanned, "a/b/y").dims == ("x", "y")


def test_dimensions_without_names(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["square"] = numbers(4, 4)
        file["other"] = numbers(4, 2)
        file["scale"] = numbers(5)
        file["scale"].make_scale("scale")
        file["g/deep"] = numbers(4)
    for mode in ("sort", "access"):
        group = scan(path, phony_dims=mode)
        with h5netcdf.File(path, phony_dims=mode) as expected:
            assert array_of(group, "g/deep").dims == expected["g"]["deep"].dimensions
            for name in ("square", "other", "scale"):
                assert array_of(group, name).dims == expected[name].dimensions


def test_an_axis_without_a_scale_beside_one_with_has_its_own_name(tmp_path: Path) -> None:
    # h5netcdf refuses such datasets, netCDF4 fails or names the wrong axis.
    for number, (n_times, start) in enumerate([(4, 0), (4, 4), (3, 8)]):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            for name, n in (("time", n_times), ("level", 4)):
                file[name] = np.arange(float(n)) + (start if name == "time" else 0)
                file[name].make_scale(name)
            file["first"] = numbers(n_times, 4)
            file["first"].dims[0].attach_scale(file["time"])
            file["last"] = numbers(4, n_times)
            file["last"].dims[1].attach_scale(file["time"])
        group = assert_equals_h5py(tmp_path / f"{number}.h5")
        assert array_of(group, "first").dims == ("time", "first_axis_1")
        assert array_of(group, "last").dims == ("last_axis_0", "time")
    planned = gridref.plan(sorted(tmp_path.glob("*.h5")))
    assert planned.group is not None
    assert planned.group.arrays["first"].sizes == {"time": 11, "first_axis_1": 4}
    assert planned.group.arrays["last"].sizes == {"last_axis_0": 4, "time": 11}


def test_a_dataset_has_a_dimension_of_its_name_only_with_its_length(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["time"] = numbers(4)
        file["time"].make_scale("time")
        file["same/time"] = numbers(4)
        file["other/time"] = numbers(7)
    group = assert_equals_h5py(path)
    assert array_of(group, "same/time").dims == ("time",)
    assert array_of(group, "other/time").dims == ("phony_dim_1",)


def test_links_are_followed_once(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"] = numbers(3)
        file["g/y"] = numbers(4)
    with h5py.File(path, "w") as file:
        file["x"] = numbers(2)
        file["g/again"] = h5py.SoftLink("/x")
        file["g/hard"] = file["x"]
        file["g/self"] = h5py.SoftLink("/g")
        file["g/root"] = file["/"]
        file["dangling"] = h5py.SoftLink("/nowhere")
        file["outside"] = h5py.ExternalLink("b.h5", "/x")
        file["outside_group"] = h5py.ExternalLink("b.h5", "/g")
    group = scan(path)
    names = {"x", "g/again", "g/hard", "outside", "outside_group/y"}
    assert set(group.all_arrays()) == names
    (manifest,) = array_of(group, "outside").manifests
    assert Path(manifest.take(np.zeros(1, int)).sources[0].url).name == "b.h5"
    reasons = {finding.path: finding.reason for finding in group.report.skipped}
    assert reasons["/g/self"] == reasons["/g/root"] == "a link back to a group around it"
    assert "leads nowhere" in reasons["/dangling"]


def test_groups_under_very_many_names_come_to_an_end(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for level in range(40):
            group = file.require_group(f"level{level}")
            for name in "ab":
                group[name] = h5py.SoftLink(f"/level{level + 1}")
        file["level40/x"] = numbers(2)
    with pytest.raises(UnsupportedFeatureError, match="max_objects"):
        scan(path, max_objects=5000)


# ---- where files lie --------------------------------------------------------------------
def test_remote_files(tmp_path: Path) -> None:
    make_virtual(tmp_path)
    memory = fsspec.filesystem("memory")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["here"] = numbers(3)
        file["there"] = h5py.ExternalLink("s1.h5", "/x")
    for name in os.listdir(tmp_path):
        memory.pipe_file(f"/hdf5/{name}", (tmp_path / name).read_bytes())
    group = scan("memory://hdf5/a.h5")
    (manifest,) = array_of(group, "there").manifests
    assert manifest.take(np.zeros(1, int)).sources[0].url == "memory://hdf5/s1.h5"
    assert group.report.n_requests > 0
    virtual = scan("memory://hdf5/v.h5")
    assert array_of(virtual, "stacked").grid.grid_shape == (3, 1, 1)
    np.testing.assert_array_equal(read_original("memory://hdf5/a.h5", "here"), numbers(3))


# ---- bad input --------------------------------------------------------------------------


def test_truncated_files(tmp_path: Path) -> None:
    path, cut = tmp_path / "a.h5", tmp_path / "cut.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=numbers(1000), chunks=(100,), compression="gzip")
        file.create_dataset("y", data=numbers(8000))
    whole = path.read_bytes()
    expected = scan(path)
    for size in range(0, len(whole), 97):
        cut.write_bytes(whole[:size])
        with pytest.raises(SourceFormatError) as caught:
            scan(cut)
        assert str(cut) in str(caught.value)
    assert expected.report.n_bytes < len(whole)


def test_absurd_extents(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("empty", (2**60,), "i1", chunks=(1,))
        file.create_dataset("contiguous", (2**60,), "i1")
        few = file.create_dataset("few", (2**40,), "i1", chunks=(1,))
        few[2**39] = 1
    group = scan(path, on_unsupported="skip")
    assert array_of(group, "empty").shape == (2**60,)
    assert array_of(group, "contiguous").n_blocks == 1
    assert [finding.path for finding in group.report.skipped] == ["/few"]


def test_files_left_open_by_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["x"] = numbers(3)
    data = bytearray(path.read_bytes())
    data[11] |= 1
    path.write_bytes(data)
    with pytest.raises(SourceFormatError):
        scan(path)


LIBVERS = ["earliest", "v110", "latest"]


def padded_strings(size: int, padding: int) -> Any:
    datatype = h5t.C_S1.copy()
    datatype.set_size(size)
    datatype.set_strpad(padding)
    return datatype


# ---- attributes -------------------------------------------------------------------------
@pytest.mark.parametrize("libver", LIBVERS)
def test_numbers_are_attributes(tmp_path: Path, libver: str) -> None:
    codes = [*"bhilBHILefdFD?", ">i2", ">f4", ">c8"]
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        for code in codes:
            values = np.arange(6).reshape(2, 3).astype(code)
            attrs = file.create_group(code).attrs
            attrs["many"], attrs["one"], attrs["alone"] = values, values[1, 1], values[1, 1:2]
            attrs["none"] = h5py.Empty(values.dtype)
    group = scan(tmp_path / "a.h5")
    for code in codes:
        attrs, values = group[code].attrs, np.arange(6).reshape(2, 3).astype(code)
        native = values.astype(values.dtype.newbyteorder("="))
        assert why_different(attrs["many"], native) is None
        assert attrs["one"] == attrs["alone"] == native[1, 1]
        assert type(attrs["one"]) is type(native[1, 1])
        assert attrs["none"].shape == (0,)


@pytest.mark.parametrize("libver", LIBVERS)
def test_texts_are_attributes(tmp_path: Path, libver: str) -> None:
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file.attrs["text"] = "späße"
        file.attrs["texts"] = ["a", "", "long " * 900]
        file.attrs["fixed"] = np.array([b"ab", b"c"])
        file.attrs["one"] = np.bytes_(b"latin \xe4")
        file.attrs["empty"] = h5py.Empty("S1")
        for name, padding in (("ended", h5t.STR_NULLTERM), ("spaced", h5t.STR_SPACEPAD)):
            made = h5a.create(
                file.id, name.encode(), padded_strings(6, padding), h5s.create(h5s.SCALAR)
            )
            made.write(np.array(b"ab\0c  ", "S6"), padded_strings(6, padding))
    attrs = scan(tmp_path / "a.h5").attrs
    assert attrs == {
        "text": "späße",
        "texts": ["a", "", "long " * 900],
        "fixed": ["ab", "c"],
        "one": "latin ä",
        "empty": "",
        "ended": "ab",
        "spaced": "ab\0c",
    }


@pytest.mark.parametrize("libver", LIBVERS)
def test_structures_are_attributes(tmp_path: Path, libver: str) -> None:
    plain = np.array([(1, 2.5), (3, -1)], [("a", "<i4"), ("b", "<f8")])
    unlike = plain.astype([("a", ">i4"), ("b", "<f8")])
    texts = np.dtype([("name", h5py.string_dtype()), ("n", "i2", (2,)), ("at", h5py.ref_dtype)])
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file["g/x"] = [1]
        file.attrs["plain"] = plain
        file.attrs["unlike"] = unlike
        kind = h5t.array_create(h5t.STD_I32BE, (2, 3))
        made = h5a.create(file.id, b"array", kind, h5s.create(h5s.SCALAR))
        made.write(np.arange(6, dtype=">i4").reshape(2, 3), kind)
        file.attrs.create("enum", [1, 0], dtype=h5py.enum_dtype({"no": 0, "yes": 1}))
        rows = np.array([("é", (1, 2), file["g/x"].ref), ("", (3, 4), h5py.Reference())], texts)
        file.attrs.create("texts", rows, dtype=texts)
        file["type"] = np.dtype("f4")
        file.attrs.create("committed", 2.5, dtype=file["type"])
    attrs = scan(tmp_path / "a.h5").attrs
    assert why_different(attrs["plain"], plain) is None
    assert why_different(attrs["unlike"], plain) is None
    assert attrs["array"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert attrs["enum"].tolist() == [1, 0]
    assert [(row["name"], row["n"].tolist(), row["at"]) for row in attrs["texts"]] == [
        ("é", [1, 2], "/g/x"),
        ("", [3, 4], ""),
    ]
    assert attrs["committed"] == np.float32(2.5)


@pytest.mark.parametrize("libver", LIBVERS)
def test_what_lies_in_a_heap_is_an_attribute(tmp_path: Path, libver: str) -> None:
    ragged = np.empty(3, object)
    ragged[:] = [np.arange(3, dtype="i2"), np.zeros(0, "i2"), np.array([7], "i2")]
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        first = file.create_dataset("g/first", data=np.arange(10))
        file["also"] = first
        file.attrs.create("ragged", ragged, dtype=h5py.vlen_dtype(np.dtype("<i2")))
        file.attrs.create("objects", [first.ref, file["g"].ref, file.ref], dtype=h5py.ref_dtype)
        file.attrs["object"] = first.ref
        file.attrs["region"] = first.regionref[2:5]
        file.attrs.create("nothing", h5py.RegionReference(), dtype=h5py.regionref_dtype)
        expected = {name: h5py.h5r.get_name(file.attrs[name], file.id) for name in ("object",)}
    attrs = scan(tmp_path / "a.h5").attrs
    assert [values.tolist() for values in attrs["ragged"]] == [[0, 1, 2], [], [7]]
    assert attrs["object"] == attrs["region"] == expected["object"].decode()
    assert attrs["objects"] == [attrs["object"], "/g", "/"]
    assert attrs["nothing"] == ""


def test_no_elements_of_a_structure(tmp_path: Path) -> None:
    text = h5t.C_S1.copy()
    text.set_size(4)
    kind = h5t.create(h5t.COMPOUND, 8)
    kind.insert(b"text", 0, text)
    kind.insert(b"number", 4, h5t.STD_I32LE)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        h5a.create(file.id, b"none", kind, h5s.create_simple((0,)))
        h5d.create(file.id, b"ragged", h5t.vlen_create(kind), h5s.create_simple((2,)))
    group = scan(tmp_path / "a.h5")
    assert group.attrs["none"].shape == (0,)
    assert group.attrs["none"].dtype.names == ("text", "number")
    assert array_of(group, "ragged").shape == (0,)
    assert read_slowly(array_of(group, "ragged_row_size")).tolist() == [0, 0]


@pytest.mark.parametrize("libver", LIBVERS)
@pytest.mark.parametrize("tracked", [False, True])
def test_many_attributes_keep_their_order(tmp_path: Path, libver: str, tracked: bool) -> None:
    names = [f"attribute {number * 7919 % 100}" for number in range(100)]
    with h5py.File(tmp_path / "a.h5", "w", libver=libver, track_order=tracked) as file:
        for name in names:
            file.attrs[name] = name
    attrs = scan(tmp_path / "a.h5").attrs
    assert list(attrs) == (names if tracked else sorted(names))
    assert all(value == name for name, value in attrs.items())


# ---- fill values ------------------------------------------------------------------------
@pytest.mark.parametrize("libver", LIBVERS)
def test_fill_values(tmp_path: Path, libver: str) -> None:
    struct = np.array((7, b"x", (1, 2)), [("a", ">i4"), ("b", "S3"), ("c", "<f4", (2,))])
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        for number, value in enumerate(
            [np.int8(-3), np.array(300, ">u2"), np.float32(np.nan), 2.5 - 1j, b"abc", True]
        ):
            dtype = np.asarray(value).dtype
            file.create_dataset(f"chunked{number}", (5,), dtype, chunks=(2,), fillvalue=value)
            file.create_dataset(f"contiguous{number}", (5,), dtype, fillvalue=value)
        file.create_dataset("struct", (3,), struct.dtype, chunks=(2,), fillvalue=struct)
        file.create_dataset("default", (3,), "f4", chunks=(2,))
        file.create_dataset("array", (3,), np.dtype(("i4", (2,))), chunks=(2,))
        creation = h5p.create(h5p.DATASET_CREATE)
        creation.set_chunk((2,))
        creation.set_fill_value(np.array(b"ab ", "S3"))
        spaced = padded_strings(3, h5t.STR_SPACEPAD)
        h5d.create(file.id, b"spaced", spaced, h5s.create_simple((3,)), creation)
    group = scanned_rightly(tmp_path / "a.h5")
    assert array_of(group, "contiguous1").fill_value == 300


# ---- values that are read at the scan ---------------------------------------------------
def ragged_texts(*shape: int) -> NDArray[Any]:
    values = np.array([f"{'ä' * (n % 5)}{n}" for n in range(int(np.prod(shape)))], object)
    return values.reshape(shape)


@pytest.mark.parametrize("libver", LIBVERS)
def test_texts_in_all_layouts(tmp_path: Path, libver: str) -> None:
    text = h5py.string_dtype()
    with h5py.File(tmp_path / "a.h5", "w", libver=libver, userblock_size=512) as file:
        values = ragged_texts(7, 5)
        file.create_dataset("contiguous", data=values, dtype=text)
        options = {"chunks": (3, 2), "dtype": text}
        file.create_dataset("chunked", data=values, **options)
        file.create_dataset("filtered", data=values, compression="gzip", shuffle=True, **options)
        file.create_dataset("growing", data=values, maxshape=(None, None), **options)
        sparse = file.create_dataset("sparse", (7, 5), maxshape=(None, 5), **options)
        sparse[3:5, 1] = ["in", "side"]
        file.create_dataset("never", (4,), dtype=text)
        file.create_dataset("scalar", data="one", dtype=text)
        file.create_dataset("large", data=["x" * 70_000, "y" * 5000], dtype=text)
        creation = h5p.create(h5p.DATASET_CREATE)
        creation.set_layout(h5d.COMPACT)
        space, kind = h5s.create_simple((2,)), h5t.py_create(text, logical=True)
        compact = h5d.create(file.id, b"compact", kind, space, creation)
        h5py.Dataset(compact)[...] = ["a", "bc"]
    group = scanned_rightly(tmp_path / "a.h5")
    assert {finding.fate for finding in group.report} == {Fate.INLINED}


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=[b"\xff\xfe"], dtype=h5py.string_dtype("ascii"))
    with pytest.raises(UnsupportedFeatureError, match="not valid UTF-8"):
        scan(tmp_path / "a.h5")


@pytest.mark.parametrize("libver", LIBVERS)
def test_references(tmp_path: Path, libver: str) -> None:
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        target = file.create_dataset("deep/er/x", data=np.arange(12).reshape(3, 4))
        file["another"] = target
        file["soft"] = h5py.SoftLink("/deep")
        objects = file.create_dataset("objects", (5,), h5py.ref_dtype, chunks=(2,))
        objects[0], objects[2], objects[4] = target.ref, file["deep"].ref, file.ref
        regions = file.create_dataset("regions", (2, 2), h5py.regionref_dtype)
        regions[0, 1], regions[1, 0] = target.regionref[1:3, ::2], file["objects"].regionref[0]
    group = scanned_rightly(tmp_path / "a.h5")
    assert read_slowly(array_of(group, "objects")).tolist()[1:3] == ["", "/deep"]


@pytest.mark.parametrize("libver", LIBVERS)
def test_structures_of_both_byte_orders(tmp_path: Path, libver: str) -> None:
    struct = np.dtype([("a", ">i4"), ("b", "<f8", (2,)), ("c", [("d", ">u2"), ("e", "?")])])
    values = np.zeros(9, struct)
    values["a"], values["b"], values["c"]["d"] = np.arange(9), 0.5, 300
    values["c"]["e"] = [True, False, True] * 3
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file.create_dataset("chunked", data=values, chunks=(4,), compression="lzf")
        file["contiguous"] = values
    group = scanned_rightly(tmp_path / "a.h5")
    assert why_different(read_slowly(array_of(group, "chunked")), values) is None


def test_padded_strings_are_referenced(tmp_path: Path) -> None:
    raw = np.array([b"ab\0c ", b"     ", b"abcde"], "S5")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, padding in (("ended", h5t.STR_NULLTERM), ("spaced", h5t.STR_SPACEPAD)):
            datatype = padded_strings(5, padding)
            dataset = h5d.create(file.id, name.encode(), datatype, h5s.create_simple((3,)))
            dataset.write(h5s.ALL, h5s.ALL, raw, datatype)
    group = scanned_rightly(tmp_path / "a.h5", max_inline_bytes=0)
    assert read_slowly(array_of(group, "spaced")).tolist() == [b"ab\0c", b"", b"abcde"]
    assert {finding.fate for finding in group.report} == {Fate.TAKEN}


def test_complex_numbers_of_hdf5_2(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        file.create_dataset("x", data=[1 + 2j, 3], dtype=h5t.COMPLEX_IEEE_F32BE)
    group = scanned_rightly(tmp_path / "a.h5")
    assert array_of(group, "x").dtype == np.complex64


def test_large_chunks_are_not_read_at_the_scan(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        options = {"chunks": (1 << 25,), "maxshape": (None,), "compression": "gzip"}
        file.create_dataset("x", (1,), h5py.string_dtype(), **options)[0] = "text"
    with pytest.raises(UnsupportedFeatureError, match="more than the limit inline_chunk_bytes"):
        scan(tmp_path / "a.h5")


# ---- variable-length sequences ----------------------------------------------------------
def fill_ragged(dataset: Any, dtype: Any) -> None:
    """Sequences of 0, 1, 2, ... elements, but for the last one, which is never written."""
    for number, place in enumerate(np.ndindex(*dataset.shape)):
        if number + 1 < max(2, dataset.size):
            dataset[place] = np.arange(number + 1).astype(dtype)


@pytest.mark.parametrize("libver", LIBVERS)
def test_sequences_are_ragged_arrays(tmp_path: Path, libver: str) -> None:
    dtypes: list[Any] = ["<i2", ">f8", "S3", "?", "c8", [("a", ">i4"), ("b", "<f4")]]
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        for number, base in enumerate(map(np.dtype, dtypes)):
            kind, group = h5py.vlen_dtype(base), file.create_group(f"{number}")
            group.create_dataset("contiguous", (5,), kind)
            group.create_dataset("chunked", (3, 4), kind, chunks=(2, 3), maxshape=(None, 4))
            group.create_dataset("zipped", (7,), kind, chunks=(2,), compression=1, shuffle=True)
            group.create_dataset("scalar", (), kind)
            group.create_dataset("never", (2, 3), kind)
            group.create_dataset("empty", (0, 3), kind)
            for name in ("contiguous", "chunked", "zipped", "scalar"):
                if base.names is None:
                    fill_ragged(group[name], base)
                else:
                    rows = np.zeros(2, base)
                    rows["a"], rows["b"] = [1, -2], 0.5
                    group[name][(0,) * group[name].ndim] = rows
            group["chunked"].attrs["units"] = "m"
    scanned = scanned_rightly(tmp_path / "a.h5")
    reasons = {finding.path: (finding.fate, finding.reason) for finding in scanned.report}
    for number in range(len(dtypes)):
        arrays = scanned.groups[f"{number}"].arrays
        elements, sizes = arrays["chunked"], arrays["chunked_row_size"]
        assert elements.dims == ("chunked_obs",)
        assert elements.attrs == {"units": "m"}
        assert (sizes.dtype, sizes.shape) == (np.int64, (3, 4))
        assert sizes.attrs == {"sample_dimension": "chunked_obs"}
        assert read_slowly(sizes).sum() == elements.shape[0]
        assert arrays["never"].shape == (0,)
        why = "variable-length sequences, whose lengths are in chunked_row_size"
        assert reasons[f"/{number}/chunked"] == (Fate.INLINED, why)


def test_sequences_along_dimensions_of_netcdf(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 2)
        kind = file.createVLType("f4", "profile")
        values = file.createVariable("profiles", kind, ("time", "x"))
        values[0, 0], values[0, 1] = np.arange(3, dtype="f4"), np.ones(1, "f4")
        file.createVariable("longer", "i4", ("time",))[:] = np.arange(3)
    group = scan(path)
    sizes = array_of(group, "profiles_row_size")
    assert sizes.dims == ("time", "x")
    assert read_slowly(sizes).tolist() == [[3, 1], [0, 0], [0, 0]]
    assert read_slowly(array_of(group, "profiles")).tolist() == [0, 1, 2, 1]
    assert differences_from_xarray(path, group)[1] == []
    region = (slice(0, 3), slice(1, 2))
    assert read_original(str(path), "profiles_row_size", region).tolist() == [[1], [0], [0]]
    assert read_original(str(path), "profiles", (slice(1, 3),)).tolist() == [1, 2]


def test_sequences_that_cannot_be_ragged_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    numbers = h5py.vlen_dtype(np.dtype("i4"))
    with h5py.File(path, "w") as file:
        file.create_dataset("long", (2,), numbers)[0] = np.arange(100)
        file.create_dataset("texts", (2,), h5py.vlen_dtype(h5py.string_dtype()))
        file.create_dataset("taken", (2,), numbers)
        file["taken_row_size"] = [1, 2]
        file.create_dataset("named", (2,), numbers)
        file["obs"] = [1, 2]
        file["obs"].make_scale("named_obs")
        file.move("obs", "named_obs")
        file["user"] = [1, 2]
        file["user"].dims[0].attach_scale(file["named_obs"])
    group = scan(path, on_unsupported="skip", max_inline_bytes=300)
    reasons = {finding.path: finding.reason for finding in group.report.skipped}
    assert set(reasons) == {"/long", "/texts", "/taken", "/named"}
    assert "raise max_inline_bytes" in reasons["/long"]
    assert "of variable-length strings have no Zarr dtype" in reasons["/texts"]
    assert "taken_row_size" in reasons["/taken"]
    assert "named_obs" in reasons["/named"]
    assert all(map(is_documented, reasons.values()))


# ---- FCIDECOMP (filter 32018): JPEG-LS ----------------------------------------------------
def image(shape: tuple[int, ...], code: str) -> NDArray[Any]:
    """Pixels that JPEG-LS makes smaller, different in each component."""
    noise = np.random.default_rng(3).integers(0, 9, shape)
    return (np.indices(shape).sum(0) * 2 + noise).astype(code)


PLANES = [(2, 40, 30), (3, 40, 30), (4, 40, 30), (3, 40, 3), (3, 1, 4000), (3, 4000, 1)]


def test_jpegls(tmp_path: Path) -> None:
    """Of one component, and of several, which are planes."""
    single = [(40, 30), (1, 4000), (4000, 1), (1, 40, 30), (40, 30, 3)]
    made = [*product(single, ("u1", "i1", "u2", "i2")), *product(PLANES, ("u1", "u2"))]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for shape, code in made:
            file.create_dataset(
                f"{shape} {code}", data=image(shape, code), chunks=shape, **hdf5plugin.FciDecomp()
            )
        for shape, code in product(PLANES, ("u1", "u2")):
            mask, raw = file[f"{shape} {code}"].id.read_direct_chunk((0, 0, 0))
            assert (mask, raw[:4]) == (0, b"\xff\xd8\xff\xf7")
    assert len(scanned_rightly(tmp_path / "a.h5").arrays) == len(made)


# ---- Scale-Offset ------------------------------------------------------------------------
@pytest.mark.parametrize("has_fill", [0, 1, 2, 255, 0xFFFFFFFF])
@pytest.mark.parametrize(("code", "factor"), [("i4", 0), ("u2", 0), ("f4", 2)])
def test_only_one_says_that_scaleoffset_has_a_fill_value(
    tmp_path: Path, code: str, factor: int, has_fill: int
) -> None:
    values = np.arange(30).astype(code)
    values[::7] = 99
    with h5py.File(tmp_path / "a.h5", "w", libver="earliest") as file:
        dataset = file.create_dataset(
            "v", data=values, chunks=(10,), scaleoffset=factor, fillvalue=99
        )
        words = np.array(dataset.id.get_create_plist().get_filter(0)[2], "<u4")
    data = (tmp_path / "a.h5").read_bytes()
    assert words[7] == 1
    changed = words.copy()
    changed[7] = has_fill
    (tmp_path / "a.h5").write_bytes(data.replace(words.tobytes(), changed.tobytes()))
    scanned_rightly(tmp_path / "a.h5")


def test_scaleoffset_of_all_bits_stores_integers_as_they_are(tmp_path: Path) -> None:
    codes = ["i1", "u1", "i2", ">i4", "u4", "i8", "u8"]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for code, more in product(codes, (-1, 0, 1)):
            values = (np.arange(30) * 3).astype(code)
            width = 8 * values.dtype.itemsize + more
            file.create_dataset(f"{code} {width}", data=values, chunks=(10,), scaleoffset=width)
    assert len(scanned_rightly(tmp_path / "a.h5").arrays) == 3 * len(codes)


# ---- Chunks outside of the extent ----------------------------------------------------------
@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("libver", "maxshape"),
    [
        ("earliest", (None, None)),
        ("latest", (50, 60)),
        ("latest", (None, 60)),
        ("latest", (50, None)),
        ("latest", (None, None)),
    ],
    ids=["B-tree 1", "fixed array", "extensible array", "turned extensible array", "B-tree 2"],
)
def test_chunks_outside_of_the_extent_are_not_looked_for(
    tmp_path: Path, libver: str, maxshape: tuple[int | None, ...], options: dict[str, Any]
) -> None:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=libver) as file:
        file.create_dataset(
            "v",
            data=np.arange(1, 601).reshape(20, 30),
            chunks=(3, 4),
            maxshape=maxshape,
            fillvalue=-1,
            **options,
        )
        address = h5py.h5o.get_info(file["v"].id).addr
    for extent in ((20, 30), (9, 30), (20, 11), (9, 11), (1, 1)):
        path = tmp_path / f"{extent}.h5"
        path.write_bytes(with_extent(buffer.getvalue(), address, (20, 30), extent))
        with h5py.File(path) as file:
            assert file["v"].shape == extent
            assert file["v"].id.get_num_chunks() == 7 * 8  # a proper resize would remove some
        scanned_rightly(path)


def with_extent(
    data: bytes, address: int, before: tuple[int, ...], after: tuple[int, ...]
) -> bytes:
    """A file in which the extent of the dataset whose header is at `address` is another one."""
    changed = bytearray(data)
    at = data.index(np.array(before, "<u8").tobytes(), address)
    changed[at : at + 8 * len(after)] = np.array(after, "<u8").tobytes()
    if data[address : address + 4] == b"OHDR":
        flags = data[address + 5]
        width = 1 << (flags & 3)
        size_at = address + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        stop = size_at + width + int.from_bytes(data[size_at : size_at + width], "little")
        assert at < stop
        changed[stop : stop + 4] = lookup3(bytes(changed[address:stop])).to_bytes(4, "little")
    return bytes(changed)


# ---- Groups whose links are compressed -------------------------------------------------------
needs_library = pytest.mark.skipif(hdf5_library() is None, reason="HDF5 library not found")


def called(name: str, *arguments: Any) -> None:
    """Call a function of the HDF5 library that h5py does not offer."""
    library = hdf5_library()
    assert library is not None
    assert getattr(library, name)(*arguments) >= 0


def compressed_group(file: h5py.File, name: str, *filters: tuple[int, ...]) -> h5py.Group:
    """A group that keeps its links in a heap, with filters on it."""
    creation = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    identifier = ctypes.c_int64(creation.id)
    for number, *values in filters:
        parameters = (ctypes.c_uint * len(values))(*values)
        n_values = ctypes.c_size_t(len(values))
        called("H5Pset_filter", identifier, number, ctypes.c_uint(0), n_values, parameters)
    called("H5Pset_link_phase_change", identifier, ctypes.c_uint(0), ctypes.c_uint(0))
    return h5py.Group(h5py.h5g.create(file.id, name.encode(), gcpl=creation))


DEFLATE, FLETCHER = (1, 6), (3,)


@needs_library
@pytest.mark.parametrize(
    "filters", [(DEFLATE,), (FLETCHER,), (DEFLATE, FLETCHER)], ids=["gzip", "sum", "both"]
)
@pytest.mark.parametrize(("n_links", "length"), [(1, 1), (40, 9), (800, 900)])
def test_compressed_links(
    tmp_path: Path, n_links: int, length: int, filters: tuple[Any, ...]
) -> None:
    """One block, several, and blocks below indirect ones; a long name is an object of its own."""
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        group = compressed_group(file, "compressed", *filters)
        file["shared"] = np.arange(5)
        for number in range(n_links):
            group[f"{number:05}{'x' * length}"] = file["shared"]
        for times in (5000, 6000):
            group["long" * times] = times
        long = set(group) - {name for name in group if len(name) < 1000}
    group = scan(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        assert set(group.groups["compressed"].arrays) == set(file["compressed"])
    assert long <= set(group.groups["compressed"].arrays)


@needs_library
def test_a_filter_of_links_that_is_not_known_is_named(tmp_path: Path) -> None:
    """The same file with the number of deflate changed, and the checksum of the heap's header."""
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        compressed_group(file, "compressed", DEFLATE)["inside"] = 1
        file["beside"] = 2
    data = bytearray((tmp_path / "a.h5").read_bytes())
    start = data.index(b"FRHP")
    at = data.index(b"\2\1\1\0", start) + 2  # version 2, one filter, which is deflate
    stop = at + 10  # its number, flags, number of values, and value
    data[at : at + 2] = (200).to_bytes(2, "little")
    data[stop : stop + 4] = lookup3(bytes(data[start:stop])).to_bytes(4, "little")
    (tmp_path / "a.h5").write_bytes(data)
    with pytest.raises(UnsupportedFeatureError, match=r"filter 200 .* cannot be decoded") as caught:
        scan(tmp_path / "a.h5")
    assert caught.value.place.variable == "/compressed"
    skipped = scan(tmp_path / "a.h5", on_unsupported="skip")
    assert list(skipped.all_arrays()) == ["beside"]


# ---- Metadata cache images -----------------------------------------------------------------
class ImageSettings(ctypes.Structure):
    """``H5AC_cache_image_config_t``."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("generate_image", ctypes.c_bool),
        ("save_resize_status", ctypes.c_bool),
        ("entry_ageout", ctypes.c_int),
    )


def with_or_without_image(path: Path, userblock: int = 0, *, image: bool) -> h5py.File:
    """A new file, in which HDF5 will keep an image of its metadata cache."""
    access, creation = (h5py.h5p.create(k) for k in (h5py.h5p.FILE_ACCESS, h5py.h5p.FILE_CREATE))
    access.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    creation.set_userblock(userblock)
    settings = ImageSettings(1, image, False, -1)
    called("H5Pset_mdc_image_config", ctypes.c_int64(access.id), ctypes.byref(settings))
    return h5py.File(h5py.h5f.create(bytes(path), fcpl=creation, fapl=access))


def write_some(file: h5py.File) -> None:
    file.attrs["title"] = "imaged"
    values = np.arange(3000).reshape(60, 50)
    file.create_dataset("z", data=values, chunks=(7, 9), compression=4, maxshape=(None, None))
    file["texts"] = np.array(["a", "bc", ""], object)
    file["plain"] = np.arange(10)


@needs_library
@pytest.mark.parametrize("userblock", [0, 512])
def test_images_of_the_metadata_cache(tmp_path: Path, userblock: int) -> None:
    """Object headers, indexes and heaps are in the image; in their places they may be missing."""
    with with_or_without_image(tmp_path / "a.h5", userblock, image=True) as file:
        write_some(file)
    data = (tmp_path / "a.h5").read_bytes()
    assert b"OHDR" not in data[data.index(b"OHDR", userblock + 100) + 4 : data.index(b"MDCI")]
    group = scanned_rightly(tmp_path / "a.h5")
    assert set(group.arrays) == {"z", "texts", "plain"}
    assert group.attrs == {"title": "imaged"}


@needs_library
def test_images_of_large_groups(tmp_path: Path) -> None:
    """HDF5 2.0 cannot read what it writes here; 1.10 can. So the file without an image is read."""
    for name in ("imaged", "plain"):
        with with_or_without_image(tmp_path / f"{name}.h5", image=name == "imaged") as file:
            write_some(file)
            group = file.create_group("many")
            for number in range(30):
                group[f"d{number}"] = np.arange(number)
                group.attrs[f"a{number}"] = "v" * number
    assert b"MDCI" in (tmp_path / "imaged.h5").read_bytes()
    imaged, plain = scan(tmp_path / "imaged.h5"), scanned_rightly(tmp_path / "plain.h5")
    assert imaged.attrs == plain.attrs
    assert imaged.groups["many"].attrs == plain.groups["many"].attrs
    arrays = imaged.all_arrays()
    assert list(arrays) == list(plain.all_arrays())
    for path, expected in plain.all_arrays().items():
        assert why_different(read_slowly(arrays[path]), read_slowly(expected)) is None


@needs_library
def test_damaged_images_are_refused(tmp_path: Path) -> None:
    with with_or_without_image(tmp_path / "a.h5", image=True) as file:
        write_some(file)
    data = bytearray((tmp_path / "a.h5").read_bytes())
    data[data.index(b"MDCI") + 100] ^= 1
    (tmp_path / "a.h5").write_bytes(data)
    with pytest.raises(SourceFormatError, match="checksum of the image of the metadata cache"):
        scan(tmp_path / "a.h5")


# ---- Compounds with strings of variable length -------------------------------------------------
TEXT = h5py.string_dtype()
PERSON = np.dtype(
    [("name", TEXT), ("n", ">i4"), ("tags", TEXT, (2,)), ("home", [("town", TEXT), ("x", "f8")])]
)


def people() -> NDArray[Any]:
    values = np.zeros(4, PERSON)
    values["name"] = ["Ada", "Grace \u00e9", "", "x" * 300]
    values["n"] = [1, -2, 3, 4]
    values["tags"] = [["a", "bcd"], ["", "c"], ["d", ""], ["", ""]]
    values["home"]["town"] = ["q", "", "w", "e"]
    values["home"]["x"] = np.arange(4) / 3
    return values


def write_people(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["people"] = people()
        file.create_dataset("chunked", data=people(), chunks=(3,), compression="gzip")
        file.create_dataset("unwritten", (3,), PERSON)
        file.create_dataset("none", (0,), PERSON)
        file.create_dataset("one", data=people()[1], dtype=PERSON)
        file.create_dataset("pairs", data=people().reshape(2, 2))
        to = np.dtype([("to", h5py.ref_dtype), ("n", "i4")])
        links = file.create_dataset("links", (2,), to)
        links[0] = file["people"].ref, 1


def test_compounds_with_strings_of_variable_length(tmp_path: Path) -> None:
    write_people(tmp_path / "a.h5")
    group = scanned_rightly(tmp_path / "a.h5")
    assert group["people"].dtype["name"] == "S300"
    assert read_slowly(group["links"])["to"].tolist() == [b"/people", b""]
    raw = b"\xff\xfe not UTF-8"
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"] = np.array([(raw,)], [("name", TEXT)])
    assert read_slowly(scanned_rightly(tmp_path / "b.h5")["x"])["name"].tolist() == [raw]


def test_they_go_through_the_doors(tmp_path: Path) -> None:
    write_people(tmp_path / "a.h5")
    gridref.build([tmp_path / "a.h5"], tmp_path / "a.gridref")
    shown = xr.open_dataset(tmp_path / "a.gridref", engine="gridref")
    for name, values in shown.data_vars.items():
        assert why_different(values.to_numpy(), read_original(str(tmp_path / "a.h5"), name)) is None


def test_strings_of_joined_compounds_are_as_wide_as_the_longest(tmp_path: Path) -> None:
    kind = np.dtype([("name", TEXT), ("n", "i4"), ("raw", "V2")])
    names = [["Ada", "Bob"], ["Grace Hopper", ""]]
    for number, each in enumerate(names):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["t"] = np.arange(2) + 2.0 * number
            file["t"].make_scale("t")
            values = np.zeros(2, kind)
            values["name"], values["n"] = each, number
            file["people"] = values
            file["people"].dims[0].attach_scale(file["t"])
    gridref.build([tmp_path / "0.h5", tmp_path / "1.h5"], tmp_path / "a.gridref", concat_dim="t")
    expected = [name.encode() for each in names for name in each]
    shown = xr.open_dataset(tmp_path / "a.gridref", engine="gridref")["people"]
    assert shown.to_numpy()["name"].tolist() == expected
    served = xr.open_zarr(gridref.open_store(tmp_path / "a.gridref"), consolidated=False)["people"]
    assert served.to_numpy()["name"].tolist() == expected
    assert served.to_numpy()["n"].tolist() == [0, 0, 1, 1]


# ---- Refused by name -----------------------------------------------------------------------
def test_compounds_with_sequences_are_refused_by_name(tmp_path: Path) -> None:
    dtype = np.dtype([("name", TEXT), ("n", h5py.vlen_dtype("i4"))])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("people", (2,), dtype)
        file["beside"] = 2
    with pytest.raises(UnsupportedFeatureError, match="compounds with members that are") as caught:
        scan(tmp_path / "a.h5")
    assert caught.value.place.variable == "/people"
    skipped = scan(tmp_path / "a.h5", on_unsupported="skip")
    assert list(skipped.all_arrays()) == ["beside"]


def test_long_strings_of_compounds_are_kept_up_to_a_bound(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.array([("y" * 5000, 1)] + [("", 2)] * 99, [("name", TEXT), ("n", "i4")])
    with pytest.raises(UnsupportedFeatureError, match=r"raise max_inline_bytes .now 499999."):
        scan(tmp_path / "a.h5", max_inline_bytes=499_999)
    assert scan(tmp_path / "a.h5", max_inline_bytes=600_000)["x"].dtype["name"] == "S5000"


ALL_LIBVERS = ["earliest", "v110", "v112", "latest"]
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


def write_virtual(
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
@given(rows=slabs, columns=slabs, libver=st.sampled_from(ALL_LIBVERS))
def test_hyperslabs(folder: Path, rows: Slab, columns: Slab, libver: str) -> None:
    shape = extent(rows), extent(columns)
    n_rows, n_columns = rows[2] * rows[3], columns[2] * columns[3]
    with h5py.File(folder / "s.h5", "w") as file:
        file["x"] = np.arange(n_rows * n_columns, dtype="<i8").reshape(n_rows, n_columns)
    everything = h5s.create_simple((n_rows, n_columns))
    mapping = hyperslab(shape, [rows, columns]), "s.h5", "x", everything
    write_virtual(folder / "v.h5", shape, [mapping], libver)
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
    write_virtual(folder / "v.h5", shape, mappings, libver)
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
    write_virtual(tmp_path / "v.h5", shape, [mapping], libver)
    assert len(values_of(tmp_path / "v.h5")) == 4 * n_files - 1


@pytest.mark.parametrize("libver", ALL_LIBVERS)
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
    write_virtual(path, shape, mappings, libver)
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
    write_virtual(
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
    write_virtual(tmp_path / "v.h5", (1, 3), [mapping], "latest")
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
    write_virtual(tmp_path / "inner.h5", inner, [(endless, "s.h5", "x", endless)], "latest")
    write_virtual(tmp_path / "v.h5", (1,), [(endless, "inner.h5", "v", endless)], "latest")
    assert len(values_of(tmp_path / "v.h5")) == n_declared


def test_a_virtual_dataset_of_itself_is_refused(tmp_path: Path) -> None:
    endless = hyperslab((1,), [(0, 1, 1, ENDLESS)])
    write_virtual(tmp_path / "v.h5", (1,), [(endless, ".", "v", endless)], "latest")
    with pytest.raises(UnsupportedFeatureError, match="nested 9 deep, more than the limit"):
        scan(tmp_path / "v.h5")


def test_irregular_selections_and_points_are_refused(tmp_path: Path) -> None:
    irregular = hyperslab((6,), [(0, 1, 1, 1)])
    irregular.select_hyperslab((3,), (1,), (1,), (2,), op=h5s.SELECT_OR)
    points = h5s.create_simple((6,), (ENDLESS,))
    points.select_elements([[0], [3], [4]])
    for libver in ALL_LIBVERS:
        for source in (irregular, points):
            virtual = hyperslab((6,), [(0, 1, 1, 3)])
            try:
                write_virtual(tmp_path / "v.h5", (6,), [(virtual, "s.h5", "x", source)], libver)
            except (RuntimeError, ValueError, TypeError):
                continue
            with h5py.File(tmp_path / "s.h5", "w") as file:
                file["x"] = np.arange(6, dtype="<i8")
            with pytest.raises(UnsupportedFeatureError, match="irregular selection"):
                scan(tmp_path / "v.h5")


def test_corrupt_mappings(tmp_path: Path) -> None:
    path = tmp_path / "v.h5"
    whole = h5s.create_simple((3,))
    write_virtual(path, (3,), [(whole, "name-of-the-file.h5", "x", whole)], "latest")
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
    write_virtual(tmp_path / "v.h5", (9,), mappings, "latest")
    assert values_of(tmp_path / "v.h5").tolist() == [0, 1, 10, 11, -1, -1, -1, -1, 0]


GOOD = ("hdf5/**/*", "netcdf4/**/*", "families/**/*")
BAD = ("bad_input/**/*", "not_hdf5/**/*")
NOT_HDF5 = {".tif", ".tiff", ".bin", ".dat"}


@pytest.fixture
def external_files_lie_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HDF5_EXTFILE_PREFIX", "${ORIGIN}")


@pytest.mark.usefixtures("external_files_lie_beside")
@pytest.mark.long(but=24)
@pytest.mark.parametrize("path", shared_hdf5_files(*GOOD))
def test_equals_h5py_or_is_refused(path: Path) -> None:
    group = scan(path, on_unsupported="skip")
    result = compare_with_h5py(path, group)
    assert result.wrong == {}
    undocumented = {
        name: reason for name, reason in result.refused.items() if not is_documented(reason)
    }
    assert undocumented == {}


@pytest.mark.usefixtures("external_files_lie_beside")
@pytest.mark.long(but=16)
@pytest.mark.parametrize(
    "path", shared_hdf5_files("netcdf4/**/*", "families/**/*", "hdf5/features/*")
)
def test_names_and_attributes_equal_xarray(path: Path) -> None:
    group = scan(path, on_unsupported="skip")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, problems = differences_from_xarray(path, group)
    assert problems == []


@pytest.mark.usefixtures("external_files_lie_beside")
@pytest.mark.parametrize("path", shared_files(*BAD))
def test_bad_input_is_an_error_or_right(path: Path) -> None:
    error: GridrefError | None = None
    try:
        group = scan(path, on_unsupported="skip")
    except GridrefError as raised:
        error = raised
    if error is not None:
        assert path.name in str(error)
    elif path.read_bytes().startswith(b"CDF"):
        assert verify(group, all=True).differences == ()
    elif path.suffix not in NOT_HDF5:
        assert compare_with_h5py(path, group).wrong == {}


def test_refusals_are_raised_with_every_name(shared_data: Path) -> None:
    path = shared_data / "hdf5/features/silx-kit__hdf5plugin__sz3.h5"
    with pytest.raises(UnsupportedFeatureError) as caught:
        scan(path)
    message = str(caught.value)
    assert "other objects are refused too" in message
    assert "on_unsupported='skip'" in message


def test_not_a_netcdf4_file(shared_data: Path) -> None:
    with pytest.raises(SourceFormatError, match=r"README\.md"):
        scan(shared_data / "README.md")
