"""Attributes, fill values, and values that are read at the scan: as h5py reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from h5py import h5a, h5d, h5p, h5s, h5t
from numpy.typing import NDArray

from gridref.errors import UnsupportedFeatureError
from gridref.formats.registry import scan
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.scan_report import Fate
from gridref.testing.reference_reader import read_slowly
from tests.hdf5_oracle import (
    differences_from_xarray,
    read_original,
    scanned_rightly,
    why_different,
)
from tests.hdf5_support import is_documented

LIBVERS = ["earliest", "v110", "latest"]


def array_of(group: VirtualGroup, path: str) -> VirtualArray:
    found = group[path]
    assert isinstance(found, VirtualArray)
    return found


def padded_strings(size: int, padding: int) -> Any:
    datatype = h5t.C_S1.copy()
    datatype.set_size(size)
    datatype.set_strpad(padding)
    return datatype


# ---- attributes -------------------------------------------------------------------------


@pytest.mark.parametrize("libver", LIBVERS)
@pytest.mark.parametrize("code", [*"bhilBHILefdFD?", ">i2", ">f4", ">c8"])
def test_numbers_are_attributes(tmp_path: Path, libver: str, code: str) -> None:
    values = np.arange(6).reshape(2, 3).astype(code)
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file.attrs["many"] = values
        file.attrs["one"] = values[1, 1]
        file.attrs["alone"] = values[1, 1:2]
        file.attrs["none"] = h5py.Empty(values.dtype)
    attrs = scan(tmp_path / "a.h5").attrs
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
@pytest.mark.parametrize("dtype", ["<i2", ">f8", "S3", "?", "c8", [("a", ">i4"), ("b", "<f4")]])
def test_sequences_are_ragged_arrays(tmp_path: Path, libver: str, dtype: Any) -> None:
    base = np.dtype(dtype)
    kind = h5py.vlen_dtype(base)
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file.create_dataset("contiguous", (5,), kind)
        file.create_dataset("chunked", (3, 4), kind, chunks=(2, 3), maxshape=(None, 4))
        file.create_dataset("zipped", (7,), kind, chunks=(2,), compression="gzip", shuffle=True)
        file.create_dataset("scalar", (), kind)
        file.create_dataset("never", (2, 3), kind)
        file.create_dataset("empty", (0, 3), kind)
        for name in ("contiguous", "chunked", "zipped", "scalar"):
            if base.names is None:
                fill_ragged(file[name], base)
            else:
                rows = np.zeros(2, base)
                rows["a"], rows["b"] = [1, -2], 0.5
                file[name][(0,) * file[name].ndim] = rows
        file["chunked"].attrs["units"] = "m"
    group = scanned_rightly(tmp_path / "a.h5")
    elements, sizes = array_of(group, "chunked"), array_of(group, "chunked_row_size")
    assert elements.dims == ("chunked_obs",)
    assert elements.attrs == {"units": "m"}
    assert (sizes.dtype, sizes.shape) == (np.int64, (3, 4))
    assert sizes.attrs == {"sample_dimension": "chunked_obs"}
    assert read_slowly(sizes).sum() == elements.shape[0]
    assert array_of(group, "never").shape == (0,)
    finding = next(finding for finding in group.report if finding.path == "/chunked")
    assert finding.fate is Fate.INLINED
    assert finding.reason == "variable-length sequences, whose lengths are in chunked_row_size"


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
