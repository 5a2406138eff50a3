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

from gridref.errors import InvalidRequestError
from gridref.model.encoding import Codec, bytes_codec
from gridref.model.grid import ChunkGrid
from gridref.model.zarr_attributes import attributes_to_json
from gridref.model.zarr_metadata import (
    ArrayMetadata,
    data_type_from_json,
    data_type_to_json,
    fill_value_from_json,
    fill_value_to_json,
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
        ({"chunk_grid": {"name": "hexagonal"}}, "unknown chunk grid"),
        ({"fill_value": "x"}, "bad Zarr array metadata"),
        ({"shape": None}, "bad Zarr array metadata"),
    ],
)
def test_bad_documents(change: dict[str, Any], message: str) -> None:
    good = ArrayMetadata(
        np.dtype("f4"), ChunkGrid.regular((4,), (2,)), (Codec("bytes"),), 0, None, {}
    ).to_json()
    with pytest.raises(InvalidRequestError, match=message):
        ArrayMetadata.from_json({**good, **change})


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
