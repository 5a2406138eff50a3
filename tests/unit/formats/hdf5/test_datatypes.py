"""Datatype messages, compared with what h5py makes of the same datatypes."""

from __future__ import annotations

import struct
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5d, h5s, h5t
from hypothesis import assume, given
from hypothesis import strategies as st

from gridref.codecs import decode_chunk
from gridref.errors import ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.datatypes import ElementType, Form, element_type, read_datatype
from gridref.model.encoding import Encoding


def message_of(tid: Any) -> bytes:
    encoded: bytes = tid.encode()
    return encoded[2:]


def described(tid: Any) -> ElementType:
    return element_type(message_of(tid))


@pytest.mark.parametrize(
    "dtype",
    [
        *("i1", "u1", "<i2", ">i2", "<u4", ">u8", "<f2", ">f4", "<f8", ">c8", "<c16", "bool"),
        *("S5", "V7"),
        [("a", "<i4"), ("b", "<f8", (2, 3)), ("c", [("d", "S3"), ("e", "u1", 2)])],
        {"names": ["x", "y"], "formats": ["u1", "<u4"], "offsets": [1, 8], "itemsize": 40},
        h5py.opaque_dtype(np.dtype(">M8[us]")),
        h5py.opaque_dtype(np.dtype("<m8[D]")),
    ],
)
def test_dtypes_are_those_of_h5py(dtype: Any) -> None:
    datatype = h5t.py_create(np.dtype(dtype), logical=True)
    element = described(datatype)
    assert element.form is Form.STORED
    native = datatype.dtype.newbyteorder("=")
    assert element.dtype == (native if native.names else np.dtype(native.str))
    assert element.stored_dtype.itemsize == datatype.get_size()


def test_all_versions_of_a_compound_are_alike() -> None:
    """Versions 1, with arrays inside of members, 2 and 3 of the same compound."""
    number = struct.pack("<BBHIHH", 0x10, 8, 0, 2, 0, 16)
    old = struct.pack("<BBHI", 0x16, 1, 0, 12) + b"name".ljust(8, b"\0")
    old += struct.pack("<IB3xII4I", 0, 2, 0, 0, 2, 3, 0, 0) + number
    array = struct.pack("<BBHIB3xIIII", 0x2A, 0, 0, 12, 2, 2, 3, 0, 0) + number
    middle = struct.pack("<BBHI", 0x26, 1, 0, 12) + b"name".ljust(8, b"\0") + bytes(4) + array
    array = struct.pack("<BBHIBII", 0x3A, 0, 0, 12, 2, 2, 3) + number
    new = struct.pack("<BBHI", 0x36, 1, 0, 12) + b"name\0" + b"\0" + array
    expected = np.dtype([("name", "<i2", (2, 3))])
    assert {element_type(message).dtype for message in (old, middle, new)} == {expected}


def test_enumerations() -> None:
    colours = h5t.py_create(
        h5py.enum_dtype({"red": -1, "green": 300}, basetype=">i2"), logical=True
    )
    element = described(colours)
    assert (element.dtype, element.order) == (np.dtype("i2"), ">")
    assert sorted(element.enum) == [("green", 300), ("red", -1)]
    assert described(h5t.py_create(np.dtype(bool), logical=True)).enum == ()
    narrow = h5t.STD_I16LE.copy()
    narrow.set_precision(5)
    narrow.set_offset(3)
    odd = h5t.enum_create(narrow)
    odd.enum_insert(b"minus", -7)
    assert described(odd).enum == (("minus", -7),)


def test_complex_numbers_of_hdf5_2() -> None:
    assert described(h5t.COMPLEX_IEEE_F32BE) == ElementType(np.dtype("c8"), order=">")
    assert described(h5t.COMPLEX_IEEE_F64LE) == ElementType(np.dtype("c16"), order="<")
    with pytest.raises(UnsupportedFeatureError, match="complex numbers of 4 bytes"):
        described(h5t.COMPLEX_IEEE_F16LE)


def test_what_lies_in_a_heap() -> None:
    text = described(h5t.py_create(h5py.string_dtype(), logical=True))
    assert (text.form, text.text) == (Form.TEXT, True)
    sequence = described(h5t.vlen_create(h5t.STD_I32BE))
    assert sequence.form is Form.RAGGED
    assert sequence.base == ElementType(np.dtype("i4"), order=">")
    objects, regions = described(h5t.STD_REF_OBJ), described(h5t.STD_REF_DSETREG)
    assert (objects.form, objects.region, regions.region) == (Form.REFERENCE, False, True)
    with pytest.raises(UnsupportedFeatureError, match="H5T_STD_REF"):
        element_type(b"\x17\x12\0\0\x40\0\0\0")
    mixed = described(h5t.py_create(np.dtype([("a", h5py.string_dtype()), ("b", "i4")]), True))
    assert mixed.form is Form.MIXED
    assert "variable-length strings" in mixed.reason


def test_time_and_vax_are_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="class time has no dtype"):
        described(h5t.UNIX_D32LE)
    with pytest.raises(UnsupportedFeatureError, match="byte order"):
        element_type(b"\x31\x61\x1f\0\4\0\0\0\0\0\x20\0\x17\x08\0\x17\x81\0\0\0")


@given(
    base=st.sampled_from([h5t.IEEE_F16LE, h5t.IEEE_F32LE, h5t.IEEE_F64BE]),
    exponent_bits=st.integers(2, 11),
    mantissa_bits=st.integers(1, 52),
    first=st.integers(0, 8),
    bias=st.one_of(st.none(), st.integers(1, 1200)),
    values=st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=8),
)
def test_floats_of_any_layout_equal_h5py(
    base: Any,
    exponent_bits: int,
    mantissa_bits: int,
    first: int,
    bias: int | None,
    values: list[bytes],
) -> None:
    datatype = base.copy()
    size = datatype.get_size()
    assume(first + exponent_bits + mantissa_bits + 1 <= 8 * size)
    exponent = first + mantissa_bits
    try:
        datatype.set_fields(exponent + exponent_bits, exponent, exponent_bits, first, mantissa_bits)
        datatype.set_ebias((1 << (exponent_bits - 1)) - 1 if bias is None else bias)
        dtype = datatype.dtype
    except (ValueError, TypeError, RuntimeError):
        assume(False)
    try:
        element = described(datatype)
    except UnsupportedFeatureError:
        assert dtype.itemsize not in (2, 4, 8)
        return
    assert element.dtype == np.dtype(dtype.newbyteorder("=").str)
    raw = b"".join(value[:size] for value in values)
    shape = (len(values),)
    found = decode_chunk(raw, Encoding(shape, element.dtype, element.codecs), shape)
    with h5py.File.in_memory() as file:
        dataset = h5d.create(file.id, b"x", datatype, h5s.create_simple(shape))
        dataset.write(h5s.ALL, h5s.ALL, np.frombuffer(raw, f"V{size}"), datatype)
        expected = file["x"][()].astype(element.dtype)
    np.testing.assert_array_equal(found, expected)
    assert found.tobytes() == expected.tobytes()


@given(message=st.binary(min_size=1, max_size=80))
def test_any_bytes_are_a_datatype_or_refused(message: bytes) -> None:
    try:
        element_type(message)
    except ScanError:
        return


@given(data=st.data())
def test_damaged_messages_are_a_datatype_or_refused(data: st.DataObject) -> None:
    compound = np.dtype([("a", "<i4", (2,)), ("b", h5py.string_dtype()), ("c", "S3")])
    message = bytearray(message_of(h5t.py_create(compound, logical=True)))
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    try:
        element_type(bytes(message))
    except ScanError:
        return


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\x10\x08\0\0\4\0\0", "is cut off"),
        (b"\x10\x08\0\0\0\0\0\0\0\0\x20\0", "no size"),
        (b"\x10\x08\0\0\4\0\0\0\x08\0\x20\0", "bits 8 to 40"),
        (b"\x11\x20\x1f\0\4\0\0\0\0\0\x20\1\x17\x08\0\x17\x7f\0\0\0", "288 bits in 4 bytes"),
        (b"\x16\x00\0\0\4\0\0\0", "without members"),
        (b"\x13\x05\0\0\4\0\0\0", "padding 5"),
        (b"\x19\0\0\0\x10\0\0\0" * 40, "nested more than"),
        (b"\x3a\0\0\0\x09\0\0\0\1\2\0\0\0\x10\x08\0\0\4\0\0\0\0\0\x20\0", "of 9 bytes"),
    ],
)
def test_corrupt_messages(message: bytes, reason: str) -> None:
    with pytest.raises(SourceFormatError, match=reason):
        element_type(message)


def test_members_that_overlap_are_corrupt() -> None:
    message = bytearray(message_of(h5t.py_create(np.dtype([("a", "<i4"), ("b", "<i4")]))))
    assert [member.offset for member in read_datatype(bytes(message)).members] == [0, 4]
    message[message.index(b"b\0", 8) + (2 if message[0] >> 4 > 2 else 8)] = 2
    with pytest.raises(SourceFormatError, match="members overlap"):
        element_type(bytes(message))
