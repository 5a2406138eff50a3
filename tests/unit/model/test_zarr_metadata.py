"""``zarr.json`` documents, with zarr-python and xarray as oracles."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import numpy as np
import pytest
import zarr
from xarray.backends.zarr import FillValueCoder
from zarr.core.metadata.v3 import ArrayV3Metadata

from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.model.encoding import Codec, bytes_codec
from gridref.model.grid import ChunkGrid
from gridref.model.zarr_metadata import (
    ArrayMetadata,
    attributes_to_json,
    data_type_from_json,
    data_type_to_json,
    fill_value_from_json,
    fill_value_to_json,
    group_document,
    is_struct,
    packed_dtype,
    scalar_of,
)

PAYLOAD_NAN = np.array([0x7FF8_0000_0000_0001], "u8").view("f8")[0]

SCALARS: list[Any] = [
    np.bool_(True),
    *(np.dtype(code).type(7) for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")),
    np.int64(-(2**63)),
    np.uint64(2**64 - 1),
    *(
        np.dtype(code).type(value)
        for code in ("f2", "f4", "f8")
        for value in (0.1, np.nan, -np.inf)
    ),
    PAYLOAD_NAN,
    np.complex64(1 + 2j),
    np.complex128(complex(np.nan, -np.inf)),
    np.bytes_(b"ab\xff"),
    np.str_("xyz"),
    np.void(b"\x01\x02\x03"),
    np.array((1, b"ab"), [("a", "i4"), ("b", "S3")])[()],
]


def raw(value: Any, dtype: np.dtype[Any]) -> bytes:
    return np.asarray(value, dtype).tobytes()


@pytest.mark.parametrize("value", SCALARS, ids=repr)
def test_scalars_round_trip_and_zarr_python_agrees(value: Any) -> None:
    dtype = value.dtype
    document = json.loads(json.dumps(fill_value_to_json(value, dtype), allow_nan=False))
    assert raw(fill_value_from_json(document, dtype), dtype) == raw(value, dtype)
    metadata = ArrayMetadata(
        dtype, ChunkGrid.regular((4,), (2,)), (bytes_codec(dtype),), value, ("x",), {"a": 1}
    )
    text = json.dumps(metadata.to_json(), allow_nan=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = ArrayV3Metadata.from_dict(json.loads(text))
        assert theirs.data_type.to_native_dtype() == dtype
        assert raw(theirs.fill_value, dtype) == raw(value, dtype)
        again = json.loads(
            theirs.to_buffer_dict(zarr.core.buffer.default_buffer_prototype())[
                "zarr.json"
            ].to_bytes()
        )
    back = ArrayMetadata.from_json(again)
    assert back.dtype == dtype
    if value is not PAYLOAD_NAN:  # which zarr-python reads, but does not write
        assert raw(back.fill_value, dtype) == raw(value, dtype)
    assert back.grid == metadata.grid
    assert back.dims == ("x",)


def test_strings() -> None:
    dtype = np.dtype(np.dtypes.StringDType())
    assert data_type_to_json(dtype) == "string"
    assert data_type_from_json("string") == dtype
    assert fill_value_from_json(fill_value_to_json("ä", dtype), dtype) == "ä"


def test_what_zarr_cannot_express_is_shown_as_raw_bytes() -> None:
    padded = np.dtype({"names": ["a", "b"], "formats": ["i1", "i4"], "offsets": [0, 4]})
    arrays = np.dtype([("a", "i4", (3,))])
    for dtype in (padded, arrays):
        assert data_type_from_json(data_type_to_json(dtype)) == np.dtype(f"V{dtype.itemsize}")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.float32(1e20), "f4"),
        (np.nan, "f8"),
        (np.int16(-999), "i2"),
        (1 + 2j, "c16"),
        (True, "?"),
    ],
)
def test_fill_value_attribute_is_read_back_by_xarray(value: Any, dtype: str) -> None:
    written = attributes_to_json({"_FillValue": value}, np.dtype(dtype))["_FillValue"]
    read = FillValueCoder.decode(json.loads(json.dumps(written)), np.dtype(dtype))
    assert raw(read, np.dtype(dtype)) == raw(value, np.dtype(dtype))


def test_attributes_are_strict_json() -> None:
    attrs = {
        "valid_range": np.array([-np.inf, 3], "f4"),
        "missing_value": np.float32(np.nan),
        "names": ["a", "b"],
        "flag": np.bool_(True),
        "count": np.int64(3),
        "raw": b"caf\xe9",
    }
    shown = attributes_to_json(attrs, np.dtype("f4"))
    json.dumps(shown, allow_nan=False)
    assert shown["valid_range"] == ["-Infinity", 3.0]
    assert "missing_value" not in shown
    assert shown["names"] == ["a", "b"]
    assert shown["flag"] is True
    assert shown["count"] == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"zarr_format": 2}, "not the metadata of a Zarr v3 array"),
        ({"data_type": "float13"}, "unknown Zarr data type 'float13'"),
        ({"storage_transformers": [{"name": "x"}]}, "storage transformers"),
        ({"packing": {"name": "x"}}, "the member 'packing' of its metadata is not known"),
        ({"chunk_grid": {"name": "hexagonal"}}, "unknown chunk grid"),
        ({"fill_value": "x"}, "bad Zarr array metadata"),
        ({"data_type": "uint8", "fill_value": -1}, "bad Zarr array metadata"),
        ({"shape": None}, "bad Zarr array metadata"),
        ({"shape": [4.5]}, "no list of integers"),
        ({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2.5]}}}, "integers"),
        ({"data_type": "int16", "fill_value": 0.5}, "the fill value 0.5 is no int16"),
        ({"data_type": "bool", "fill_value": "false"}, "'false' is no bool"),
        (
            {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "_"}}},
            "'_' between",
        ),
    ],
)
def test_bad_documents(change: dict[str, Any], message: str) -> None:
    good = ArrayMetadata(
        np.dtype("f4"), ChunkGrid.regular((4,), (2,)), (Codec("bytes"),), 0, None, {}
    ).to_json()
    with pytest.raises(InvalidRequestError, match=message):
        ArrayMetadata.from_json({**good, **change})


def test_members_that_need_not_be_understood_are_left_out() -> None:
    grid = ChunkGrid.regular((4,), (2,))
    document = ArrayMetadata(np.dtype("f4"), grid, (Codec("bytes"),), 0, None, {}).to_json()
    extended = {**document, "about": {"must_understand": False, "by": "x"}}
    assert ArrayMetadata.from_json(extended).to_json() == document


def test_chunk_keys() -> None:
    grid = ChunkGrid.regular((4, 4), (2, 2))
    metadata = ArrayMetadata(np.dtype("f4"), grid, (Codec("bytes"),), 0, None, {})
    assert metadata.chunk_key((1, 0)) == "c/1/0"
    assert metadata.chunk_key(()) == "c"
    document = {**metadata.to_json(), "chunk_key_encoding": {"name": "v2"}}
    assert ArrayMetadata.from_json(document).chunk_key((1, 0)) == "1.0"
    assert ArrayMetadata.from_json(document).chunk_key(()) == "0"


@pytest.mark.parametrize("code", ["M8[s]", "M8[10ms]", "m8[ns]", "m8[7D]", "M8[h]"])
def test_times_keep_kind_unit_and_factor(code: str) -> None:
    dtype = np.dtype(code)
    document: Any = data_type_to_json(dtype)
    assert data_type_from_json(document) == dtype
    factor = document["configuration"].pop("scale_factor", 1)
    assert data_type_from_json(document) == np.dtype(code.replace(f"[{factor}", "["))


@pytest.mark.parametrize(("name", "size"), [("r8", 1), ("r16", 2), ("r800", 100)])
def test_raw_bits_are_whole_bytes(name: str, size: int) -> None:
    assert data_type_from_json(name) == np.dtype(f"V{size}")


@pytest.mark.parametrize("name", ["r7", "r12", "r", "rx8", "float24", ""])
def test_unknown_data_types_are_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(repr(name))):
        data_type_from_json(name)


UNSIGNED: list[tuple[str, Any, str | None, int]] = [
    ("u1", np.uint8(255), "false", -1),
    ("u1", np.uint8(255), None, 255),
    ("u1", np.uint8(255), "true", 255),
    ("u1", np.uint8(7), "false", 7),
    ("i1", np.int8(-1), "true", -1),
    ("i1", np.uint8(255), "true", -1),
    ("i1", np.int8(-1), "false", -1),
    ("i2", np.int16(-5), None, -5),
    ("i2", np.array([3, 4], "i2"), None, 3),
    ("u2", np.array([65535, 4], "u2"), "false", -1),
]


@pytest.mark.parametrize(
    ("code", "fill", "unsigned", "expected"), UNSIGNED, ids=map(str, range(len(UNSIGNED)))
)
def test_fill_values_have_the_sign_that_is_said(
    code: str, fill: Any, unsigned: str | None, expected: int
) -> None:
    attrs = {"_FillValue": fill, **({} if unsigned is None else {"_Unsigned": unsigned})}
    found = attributes_to_json(attrs, np.dtype(code))
    assert found["_FillValue"] == expected
    assert type(found["_FillValue"]) is int


GAP = np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"], "offsets": [0, 8]})
TURNED = np.dtype({"names": ["a", "b"], "formats": ["u1", "u1"], "offsets": [1, 0]})
PACKED = np.dtype([("a", "u1"), ("b", "<f8")])
STRUCTS: list[tuple[Any, bool, Any]] = [
    (PACKED, True, PACKED),
    (GAP, False, PACKED),
    (TURNED, False, np.dtype([("a", "u1"), ("b", "u1")])),
    (np.dtype([("a", "u1", (2,))]), False, np.dtype([("a", "u1", (2,))])),
    (np.dtype([("a", PACKED), ("b", "u1")]), True, np.dtype([("a", PACKED), ("b", "u1")])),
    (np.dtype([("a", GAP), ("b", "u1")]), False, np.dtype([("a", PACKED), ("b", "u1")])),
    (np.dtype([("a", GAP, (2, 3))]), False, np.dtype([("a", PACKED, (2, 3))])),
    (np.dtype([("a", "S0")]), False, np.dtype([("a", "S0")])),
    (np.dtype("i4"), False, np.dtype("i4")),
    (np.dtype("V3"), False, np.dtype("V3")),
]


@pytest.mark.parametrize(("dtype", "is_one", "packed"), STRUCTS, ids=range(len(STRUCTS)))
def test_compounds_without_gaps(dtype: Any, is_one: bool, packed: Any) -> None:
    assert is_struct(dtype) == is_one
    assert packed_dtype(dtype) == packed
    assert (packed_dtype(dtype) is dtype) == (packed == dtype)


@pytest.mark.parametrize(
    ("code", "document"),
    [
        ("S0", None),
        ("U0", None),
        ("O", None),
        ("S5", {"name": "null_terminated_bytes", "configuration": {"length_bytes": 5}}),
        ("U2", {"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}),
        ("V7", {"name": "raw_bytes", "configuration": {"length_bytes": 7}}),
        ("?", "bool"),
        (">i4", "int32"),
        ("c8", "complex64"),
        (
            "m8[3h]",
            {
                "name": "numpy.timedelta64",
                "configuration": {"unit": "h", "scale_factor": 3},
            },
        ),
    ],
)
def test_data_types(code: str, document: Any) -> None:
    dtype = np.dtype(code)
    if document is None:
        with pytest.raises(NotRepresentableError):
            data_type_to_json(dtype)
        return
    assert data_type_to_json(dtype) == document
    assert data_type_from_json(document) == dtype.newbyteorder("=")


def test_compounds_as_lists_or_tables() -> None:
    table = [{"name": "a", "data_type": "int16"}, {"name": "b", "data_type": "float32"}]
    for name in ("struct", "structured"):
        for fields in (table, [["a", "int16"], ["b", "float32"]]):
            document = {"name": name, "configuration": {"fields": fields}}
            assert data_type_from_json(document) == np.dtype([("a", "i2"), ("b", "f4")])


@pytest.mark.parametrize("code", ["?", "i2", "f4", "c8", "S2", "M8[s]"])
def test_no_fill_value_is_zero(code: str) -> None:
    dtype = np.dtype(code)
    assert raw(fill_value_from_json(None, dtype), dtype) == bytes(dtype.itemsize)


def test_fill_values_of_other_forms() -> None:
    assert fill_value_from_json(None, np.dtype(np.dtypes.StringDType())) == ""
    assert fill_value_from_json("0x7f800000", np.dtype("f4")) == np.inf
    assert raw(fill_value_from_json([1, 2, 3], np.dtype("V3")), np.dtype("V3")) == b"\1\2\3"
    assert fill_value_to_json(np.datetime64("NaT", "s"), np.dtype("M8[s]")) == "NaT"
    assert fill_value_to_json(np.timedelta64(5, "s"), np.dtype("m8[s]")) == 5
    assert np.isnat(fill_value_from_json("NaT", np.dtype("M8[s]")))
    with pytest.raises(ValueError, match="is no int32"):
        scalar_of([1], np.dtype("i4"))


@pytest.mark.parametrize("consolidated", [None, {}, {"a": {"k": 1}}])
def test_documents_of_groups(consolidated: Any) -> None:
    document = group_document({"n": 1}, consolidated)
    assert (document["zarr_format"], document["node_type"]) == (3, "group")
    assert document["attributes"] == {"n": 1}
    if consolidated is None:
        assert "consolidated_metadata" not in document
    else:
        assert document["consolidated_metadata"] == {
            "kind": "inline",
            "must_understand": False,
            "metadata": consolidated,
        }


def test_what_documents_may_leave_out() -> None:
    full = ArrayMetadata(
        np.dtype("f4"), ChunkGrid.regular((4,), (2,)), (Codec("bytes"),), 0, None, {}
    ).to_json()
    assert "dimension_names" not in full
    left_out = ("attributes", "chunk_key_encoding", "storage_transformers")
    short = {key: value for key, value in full.items() if key not in left_out}
    for document in (full, short, {**short, "chunk_key_encoding": "default"}):
        read = ArrayMetadata.from_json(document)
        assert (read.dims, read.attrs, read.key_prefix, read.key_separator) == (None, {}, "c", "/")
    v2 = ArrayMetadata.from_json({**short, "chunk_key_encoding": "v2"})
    assert (v2.key_prefix, v2.key_separator, v2.chunk_key((1,))) == ("", ".", "1")
    assert v2.to_json()["chunk_key_encoding"]["name"] == "v2"
    dots = {"name": "default", "configuration": {"separator": "."}}
    assert ArrayMetadata.from_json({**short, "chunk_key_encoding": dots}).chunk_key((1,)) == "c.1"
    for wrong in ({"node_type": "group"}, {"chunk_key_encoding": "v4"}, {"fill_value": [1]}):
        with pytest.raises(InvalidRequestError):
            ArrayMetadata.from_json({**short, **wrong})


ATTRIBUTES: list[tuple[Any, str | None, Any]] = [
    ({"_FillValue": 7}, None, {"_FillValue": 7}),
    ({"_FillValue": np.int16(7)}, "i2", {"_FillValue": 7}),
    ({"_FillValue": 7.0}, "i2", {"_FillValue": 7}),
    ({"_FillValue": 7.5}, "i2", {}),
    ({"_FillValue": "x"}, "i2", {}),
    ({"_FillValue": []}, "i2", {}),
    ({"_FillValue": "x"}, "U1", {"missing_value": "x"}),
    ({"_FillValue": "x", "missing_value": "y"}, "U1", {"missing_value": "y"}),
    ({"_FillValue": b"x"}, "S1", {}),
    ({"missing_value": np.nan}, "f4", {}),
    ({"missing_value": np.array([np.nan, 1.0])}, "f4", {"missing_value": 1.0}),
    ({"missing_value": np.array([np.inf, 1.0, 2.0])}, "i2", {"missing_value": [1.0, 2.0]}),
    ({"missing_value": np.inf}, "i2", {"missing_value": "Infinity"}),
    ({"missing_value": "NaN"}, "f4", {"missing_value": "NaN"}),
    ({"_FillValue": np.bool_(True)}, "?", {"_FillValue": True}),
    ({"a": 1 + 2j}, None, {"a": [1.0, 2.0]}),
    ({"a": {"b": np.int8(1)}}, None, {"a": {"b": 1}}),
    ({"a": b"caf\xc3\xa9"}, None, {"a": "café"}),
    ({"a": None}, None, {"a": None}),
    ({"a": np.float64("-inf")}, None, {"a": "-Infinity"}),
]


@pytest.mark.parametrize(("attrs", "code", "shown"), ATTRIBUTES, ids=range(len(ATTRIBUTES)))
def test_how_attributes_are_shown(attrs: Any, code: str | None, shown: Any) -> None:
    found = attributes_to_json(attrs, None if code is None else np.dtype(code))
    assert found == shown
    assert all(type(found[name]) is type(shown[name]) for name in shown)
