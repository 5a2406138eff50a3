"""What codecs say of settings that cannot be, before anything is read, and what edges are."""

from __future__ import annotations

from typing import Any

import imagecodecs
import numpy as np
import pytest

from gridref.codecs import decode_chunk, why_not
from gridref.codecs.hdf5 import unpack_integers
from gridref.errors import DecodeError
from gridref.model.encoding import Codec
from tests.unit.codecs.support import encoding

FLOAT = {
    "size": 4,
    "sign_position": 31,
    "exponent_position": 23,
    "exponent_bits": 8,
    "exponent_bias": 127,
    "mantissa_position": 0,
    "mantissa_bits": 23,
    "normalization": "implied",
}
FLOATS: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"size": 8}, None),
    ({"size": 3}, "floats of 3 bytes are not supported"),
    ({"size": 16}, "floats of 16 bytes are not supported"),
    ({"normalization": "none"}, "normalization none is not supported"),
    ({"normalization": "set"}, None),
    ({"size": 8, "mantissa_bits": 52}, None),
    ({"size": 8, "mantissa_bits": 53}, "more bits than float64 has"),
    ({"size": 8, "exponent_bits": 11}, None),
    ({"size": 8, "exponent_bits": 12}, "more bits than float64 has"),
    ({"sign_position": 32}, "fields do not lie in 32 bits"),
    ({"exponent_position": 25}, "fields do not lie in 32 bits"),
    ({"mantissa_position": 10}, "fields do not lie in 32 bits"),
    ({"mantissa_position": 9}, None),
]


@pytest.mark.parametrize(("changes", "expected"), FLOATS, ids=range(len(FLOATS)))
def test_floats_of_hdf5(changes: dict[str, Any], expected: str | None) -> None:
    problem = why_not(Codec.of("gridref.hdf5_float", **{**FLOAT, **changes}))
    assert (problem is None) == (expected is None)
    assert expected is None or expected in str(problem)


def hdf5(name: str, *values: int) -> Codec:
    return Codec.of(f"gridref.hdf5_{name}", cd_values=list(values))


@pytest.mark.parametrize(
    ("codec", "problem"),
    [
        (Codec.of("gridref.tiff_rgb_bits", bits=[16, 16], dtype="u2"), None),
        (Codec.of("gridref.tiff_rgb_bits", bits=[16, 17], dtype="u4"), "do not become"),
        (Codec.of("gridref.tiff_rgb_bits", bits=[9, 3], dtype="u1"), "do not become"),
        (Codec.of("gridref.tiff_rgb_bits", bits=[8, 3], dtype="u1"), None),
        (Codec.of("gridref.tiff_rgb_bits", bits=[8, 3], dtype="i2"), "do not become"),
        (Codec.of("gridref.tiff_rgb_bits", bits=[8, 3], dtype="u1", endian="big"), "disagree"),
        (Codec.of("gridref.tiff_rgb_bits", bits=[8, 3], dtype="u2", endian="big"), None),
        (Codec.of("gridref.tiff_packints", bits=31, dtype="u4", run_length=1), None),
        (Codec.of("gridref.tiff_packints", bits=32, dtype="u4", run_length=1), "not supported"),
        (Codec.of("gridref.tiff_packints", bits=33, dtype="u4", run_length=1), "do not become"),
        (Codec.of("gridref.tiff_packints", bits=0, dtype="u1", run_length=1), "do not become"),
        (Codec.of("gridref.tiff_packints", bits=1, dtype="bool", run_length=1), None),
        (Codec.of("gridref.tiff_packints", bits=1, dtype="i1", run_length=1), "do not become"),
        (Codec.of("gridref.tiff_packints", bits=1, dtype="u1", run_length=0), "run_length"),
        (Codec.of("gridref.tiff_complex_integers", bits=8), None),
        (Codec.of("gridref.tiff_complex_integers", bits=12), "parts of 12 bits"),
        (Codec.of("gridref.tiff_complex_integers", bits=8, endian="x"), "endian"),
        (Codec.of("gridref.tiff_predictor", predictor=1, axis=0), "predictor 1 is unknown"),
        (Codec.of("gridref.tiff_predictor", predictor=2, axis=0, distance=2), "distance 2"),
        (Codec.of("gridref.tiff_predictor", predictor=3, axis=0, distance=2), None),
        (Codec.of("gridref.tiff_predictor", predictor=3, axis=0, distance=3), "distance 3"),
        (Codec.of("gridref.tiff_png", width=0, samples=1), "must be >= 1"),
        (Codec.of("gridref.tiff_png", width=1, samples=0), "must be >= 1"),
        (Codec.of("gridref.tiff_png", width=1, samples=1), None),
        (Codec.of("gridref.tiff_ccitt", scheme="fax5", width=1, samples=1), "fax5 is unknown"),
        (Codec.of("gridref.tiff_ccitt", scheme="fax4", width=1, samples=2), "2 samples"),
        (Codec.of("gridref.tiff_ccitt", scheme="fax4", width=0, samples=1), "must be >= 1"),
        (Codec.of("numcodecs.shuffle", elementsize=0), "must be >= 1"),
        (Codec.of("numcodecs.shuffle", elementsize=1), None),
        (Codec.of("bytes", endian="middle"), "neither big nor little"),
        (Codec.of("cast_value", data_type="int8", out_of_range=None), None),
        (Codec.of("gridref.tiff_predictor", predictor=4, axis=1), "predictor 4 is unknown"),
        (Codec.of("gridref.tiff_packints", bits=33, dtype="uint64", run_length=1), "33 bits"),
        (Codec.of("gridref.tiff_packints", bits=9, dtype="uint8", run_length=1), "9 bits"),
        (Codec.of("gridref.tiff_float24", endian="pdp"), "neither big nor little"),
        (Codec.of("gridref.tiff_rgb_bits", bits=[16, 16, 16], dtype="uint16"), "16, 16"),
        (Codec.of("gridref.tiff_png", width=10), "lacks samples"),
        (Codec.of("reshape", shape=[2, 3]), None),
        (Codec.of("reshape", shape=[-1, 3]), "shape of -1"),
        (Codec.of("cast_value", data_type="complex64"), "complex64 is not supported"),
        (Codec.of("cast_value", data_type="int8", rounding="up"), "rounding up is unknown"),
        (Codec.of("cast_value", data_type="int8", out_of_range="x"), "out_of_range x is unknown"),
        (Codec.of("packbits", padding_encoding="x"), "padding_encoding x"),
        (Codec.of("numcodecs.delta", dtype="nonsense"), "numcodecs cannot make it"),
        (Codec("numcodecs.delta"), "lacks dtype"),
        (Codec("numcodecs.unheard"), "codec numcodecs.unheard: no decoder is known"),
        (hdf5("szip", 141, 4), "too few"),
        (Codec("gridref.hdf5_szip"), "lacks cd_values"),
        (hdf5("bitshuffle", 0, 3), "lack the size of an element"),
        (hdf5("bitshuffle", 0, 2, 0), "lack the size of an element"),
        (hdf5("bitshuffle", 0, 2, -1), "lack the size of an element"),
        (hdf5("bitshuffle", 0, 2, 1), None),
        (hdf5("bitshuffle", 0, 3, 4, 0, 9), "compression 9 is unknown"),
        (hdf5("zfp", 1, 2, 3), "is no zfp stream"),
        (hdf5("scaleoffset", 2, 0, 12), "too few"),
        (hdf5("scaleoffset", 1, 2, 12, 1, 4, 0, 0, 0), "scale type 1"),
        (hdf5("scaleoffset", 2, 0, 12, 1, 4, 0, 0, 0), "scale type 2 for class 1"),
        (hdf5("scaleoffset", 2, 0, 12, 0, 3, 0, 0, 0), "of 3 bytes"),
        (hdf5("scaleoffset", 0, 0, 12, 1, 2, 0, 0, 0), "floats of 2 bytes"),
        (hdf5("scaleoffset", 2, 0, 12, 0, 4, 2, 0, 0), "integers of sign 2"),
        (hdf5("nbit"), "client data values"),
        (hdf5("nbit", 8, 0), "client data values"),
        (hdf5("nbit", 8, 0, 6, 1, 4, 0), "client data values"),
        (hdf5("nbit", 8, 0, 6, 1, 4, 0, 30, 5), "client data values"),
        (hdf5("nbit", 8, 0, 6, 1, 4, 0, 0, 0), "client data values"),
        (hdf5("nbit", 5, 0, 6, 9, 4), "client data values"),
        (hdf5("nbit", 9, 0, 6, 2, 7, 1, 4, 0, 3, 0), "client data values"),
        (hdf5("nbit", 10, 0, 6, 3, 4, 1, 2, 1, 4, 0, 8, 0), "client data values"),
        (hdf5("nbit", 9, 0, 6, 2, 4, 2, 4, 2, 4), "client data values"),
    ],
    ids=str,
)
def test_settings_at_their_bounds(codec: Codec, problem: str | None) -> None:
    found = why_not(codec)
    assert (found is None) == (problem is None), found
    assert problem is None or problem in str(found)


NUMBER = [1, 4, 0, 8, 0]  # little-endian, 8 bits of 4 bytes
ARRAYS: list[tuple[int, str | None]] = [
    (4, None),
    (40, None),
    (42, "array of 42 bytes of elements of 4 bytes"),
    (4 << 14, None),
    (4 << 24, "more than the limit nbit_fields"),
]


@pytest.mark.parametrize(("n_bytes", "expected"), ARRAYS)
def test_arrays_of_nbit(n_bytes: int, expected: str | None) -> None:
    values = [10, 0, 1, 2, n_bytes, *NUMBER]
    problem = why_not(Codec.of("gridref.hdf5_nbit", cd_values=values))
    assert (problem is None) == (expected is None), problem
    assert expected is None or expected in str(problem)


@pytest.mark.parametrize("count", [0, 1, 7, 9])
def test_packed_integers(count: int) -> None:
    for width in range(1, 65):
        check_packed_integers(width, count)


def check_packed_integers(width: int, count: int) -> None:
    rng = np.random.default_rng(width)
    numbers = [int(n) >> (64 - width) for n in rng.integers(0, 2**64, count, "u8")]
    bits = "".join(f"{n:0{width}b}" for n in numbers)
    packed = int(bits.ljust(-(-len(bits) // 8) * 8, "0") or "0", 2).to_bytes(-(-len(bits) // 8))
    size = next(size for size in (1, 2, 4, 8) if 8 * size >= width)
    for more in (b"", b"\xff"):
        for item_bytes in {size, 8}:
            found = unpack_integers(packed + more, width, count, item_bytes)
            assert found.tolist() == numbers
            assert found.dtype == f"u{item_bytes}"
    if count:
        with pytest.raises(ValueError, match="hold fewer than"):
            unpack_integers(packed[:-1], width, count, size)


@pytest.mark.parametrize("astype", ["<i2", ">i2", "<i4"])
def test_elements_that_are_stored_as_others(astype: str) -> None:
    """Of numcodecs' filters, the stored dtype is the one that is named."""
    values = np.arange(-5, 6, dtype="<f8")
    codec = Codec.of("numcodecs.fixedscaleoffset", offset=0, scale=1, dtype="<f8", astype=astype)
    stored = values.astype(np.dtype(astype).newbyteorder("<")).tobytes()  # as `bytes` says
    found = decode_chunk(stored, encoding(values, before=(codec,)), values.shape)
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_images_before_a_codec_of_unknown_size(rows: int) -> None:
    """The number of rows follows from the bytes that are expected, or from the chunk."""
    pixels = (np.arange(rows * 16) % 200).astype("u1").reshape(rows, 16)
    codec = Codec.of("gridref.tiff_png", width=16, samples=1, endian="little")
    raw = imagecodecs.png_encode(pixels)
    found = decode_chunk(raw, encoding(pixels, codec), pixels.shape)
    np.testing.assert_array_equal(found, pixels)
    wrong = Codec.of("gridref.tiff_png", width=7, samples=1, endian="little")
    with pytest.raises(DecodeError, match="no rows of 7 pixels"):
        decode_chunk(raw, encoding(pixels, wrong), pixels.shape)
