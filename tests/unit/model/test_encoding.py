"""Encodings and codecs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr

from gridref.errors import InvalidRequestError
from gridref.faces.zarr.store import open_store
from gridref.model.array import VirtualGroup
from gridref.model.encoding import Codec, Encoding, bytes_codec
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly

DTYPES: list[Any] = [
    "i1",
    "u4",
    "f2",
    "c16",
    "?",
    "S3",
    "U2",
    "V5",
    [("a", "i4"), ("b", "S3"), ("c", "f8")],
    [("a", "i2"), ("n", [("x", "f4"), ("y", "u1")])],
    [("a", "S4"), ("b", "V2")],
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize("view", ["auto", "portable"])
def test_both_byte_orders_of_every_kind_of_element(dtype: Any, big_endian: bool, view: str) -> None:
    kind = np.dtype(dtype)
    raw = np.random.default_rng(0).integers(0, 2, 7 * kind.itemsize, dtype="u1").tobytes()
    values = np.frombuffer(raw, kind)
    array = chunked_array(values, (3,), ("x",), big_endian=big_endian)
    assert read_slowly(array).tobytes() == raw
    shown = zarr.open_group(open_store(VirtualGroup({"x": array}), view), mode="r")["x"]
    assert np.asarray(shown[...]).astype(kind).tobytes() == raw


@pytest.mark.parametrize("dtype", ["u1", "i1", "?", "S1", "V1", "S5", [("a", "S4")]], ids=str)
def test_single_bytes_have_no_order(dtype: Any) -> None:
    assert bytes_codec(np.dtype(dtype)) == Codec("bytes")


@pytest.mark.parametrize(
    "dtype", ["u2", "f8", "U1", [("a", "u1"), ("b", "i2")], [("a", "i4", (2,))]], ids=str
)
def test_longer_ones_have(dtype: Any) -> None:
    assert bytes_codec(np.dtype(dtype)) == Codec.of("bytes", endian="little")
    assert bytes_codec(np.dtype(dtype), big_endian=True) == Codec.of("bytes", endian="big")


def test_bad_encodings() -> None:
    with pytest.raises(InvalidRequestError, match=r"got 0 \(dimension 1\)"):
        Encoding((1, 0), np.dtype("i4"), (Codec("bytes"),))
    with pytest.raises(InvalidRequestError, match="no array -> bytes codec"):
        _ = Encoding((1,), np.dtype("i4"), (Codec("gzip"),)).split_codecs
