"""Scanning HDF5 files made for the purpose: layouts, types, links, conventions, bad input."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fsspec
import h5netcdf
import h5py
import netCDF4
import numpy as np
import pytest
from numpy.typing import NDArray

from gridref.errors import (
    SourceFormatError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.formats.registry import scan
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import EdgePolicy
from gridref.model.scan_report import Fate
from gridref.testing.reference_reader import read_slowly
from tests.hdf5_oracle import compare_with_h5py, read_original


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


@pytest.mark.parametrize(("precision", "offset"), [(12, 0), (9, 4), (16, 0), (1, 15)])
@pytest.mark.parametrize("base", ["STD_I16LE", "STD_U16BE"])
def test_odd_integers(tmp_path: Path, base: str, precision: int, offset: int) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for name, chunk in (("contiguous", None), ("nbit", (3,))):
            kind = getattr(h5py.h5t, base).copy()
            kind.set_precision(precision)
            kind.set_offset(offset)
            creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            if chunk:
                creation.set_chunk(chunk)
                creation.set_filter(h5py.h5z.FILTER_NBIT, h5py.h5z.FLAG_MANDATORY)
            space = h5py.h5s.create_simple((8,))
            made = h5py.h5d.create(file.id, name.encode(), kind, space, creation)
            values = np.array([0, 1, -1, 5, -7, 100, -2048, 2047]).astype("i2")
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
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


def test_only_metadata_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=numbers(2_000_000), chunks=(500_000,))
        file.create_dataset("y", data=numbers(2_000_000))
    report = scan(path).report
    assert path.stat().st_size > 16_000_000
    assert 0 < report.n_bytes < 100_000
    assert 0 < report.n_requests < 100


# ---- bad input --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"PK\x03\x04" + bytes(100), "zip"),
        (bytes(5000), "zeros"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
    ],
)
def test_what_is_no_hdf5_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.nc"
    path.write_bytes(content)
    with pytest.raises(SourceFormatError, match=message) as caught:
        scan(path)
    assert caught.value.place.source == str(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError, match=r"none\.nc"):
        scan(tmp_path / "none.nc")


def test_truncated_files(tmp_path: Path) -> None:
    path, cut = tmp_path / "a.h5", tmp_path / "cut.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=numbers(1000), chunks=(100,), compression="gzip")
        file.create_dataset("y", data=numbers(8000))
    whole = path.read_bytes()
    expected = scan(path)
    for size in range(0, len(whole), 97):
        cut.write_bytes(whole[:size])
        with pytest.raises(SourceFormatError):
            scan(cut)
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
