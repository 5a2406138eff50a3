from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import zarr

from gridref.codecs import decode_chunk
from gridref.errors import DecodeError
from gridref.model.encoding import Codec, Encoding, bytes_codec
from tests.unit.codecs.support import image_like


def _decode(stored, dtype, *codecs):
    """Decode `stored`, an array that is to become `dtype`."""
    chain = (*codecs, bytes_codec(stored.dtype))
    return decode_chunk(stored.tobytes(), Encoding(stored.shape, np.dtype(dtype), chain))


@pytest.mark.parametrize(
    ("dtype", "scale", "offset"),
    [("f4", 0.1, 5), ("f8", 0.1, -3.3), ("i4", 3, -7), ("u1", 1, 2), ("i8", 2, 10), ("u8", 1, 5)],
)
def test_scale_offset_is_that_of_zarr(tmp_path, dtype, scale, offset):
    values = image_like((6, 8), dtype)
    values = np.clip(values, 2, 100).astype(dtype)
    if dtype[0] in "iu":
        values += np.dtype(dtype).type(max(0, offset))
    codec = {"name": "scale_offset", "configuration": {"scale": scale, "offset": offset}}
    array = zarr.create_array(
        tmp_path,
        shape=(6, 8),
        chunks=(6, 8),
        dtype=dtype,
        filters=[codec],
        compressors=None,
        fill_value=50,
    )
    array[...] = values
    stored = np.frombuffer((tmp_path / "c/0/0").read_bytes(), dtype).reshape(6, 8)
    decoded = _decode(stored, dtype, Codec.from_json(codec))
    assert decoded.tobytes() == array[...].tobytes()


@pytest.mark.parametrize(
    ("stored", "dtype", "scale", "offset"),
    [
        ([4, 5], "i4", 2, 0),
        ([100], "i1", 1, 100),
        ([-128], "i1", -1, 0),
        ([2**64 - 1], "u8", 1, 1),
        ([0], "u1", 1, 300),
        ([1], "i4", 0, 0),
        ([1.0], "f4", 0, 0),
        ([1], "i4", 1.5, 0),
    ],
)
def test_scale_offset_without_a_value(stored, dtype, scale, offset):
    with pytest.raises(DecodeError, match="scale_offset"):
        _decode(
            np.array(stored, dtype), dtype, Codec.of("scale_offset", scale=scale, offset=offset)
        )


@pytest.mark.parametrize("dtype", ["i1", "u1"])
@pytest.mark.parametrize("scale", [1, 3, -2])
@pytest.mark.parametrize("offset", [0, 100, -7])
def test_integers_are_unscaled_exactly_or_not_at_all(dtype, scale, offset):
    limits = np.iinfo(dtype)
    if not all(limits.min <= n <= limits.max for n in (scale, offset)):
        return
    codec = Codec.of("scale_offset", scale=scale, offset=offset)
    for stored in range(limits.min, limits.max + 1):
        exact = Fraction(stored, scale) + offset
        fits = exact.denominator == 1 and limits.min <= exact <= limits.max
        fits &= limits.min <= exact - offset <= limits.max
        try:
            found = _decode(np.array([stored], dtype), dtype, codec)
        except DecodeError:
            assert not fits, stored
        else:
            assert fits, stored
            assert found.tolist() == [exact]


def test_scalars_in_json():
    stored = np.array([1, 2], "f4")
    decoded = _decode(stored, "f4", Codec.of("scale_offset", scale="0x40000000", offset="Infinity"))
    assert decoded.tolist() == [np.inf, np.inf]


def cast(**config):
    return Codec.of("cast_value", **config)


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        ("nearest-even", [0, 0, 1, 2, 2, 4, 0, 0, -1, -2, -2, -4]),
        ("nearest-away", [0, 1, 1, 2, 3, 4, 0, -1, -1, -2, -3, -4]),
        ("towards-zero", [0, 0, 0, 1, 2, 3, 0, 0, 0, -1, -2, -3]),
        ("towards-positive", [1, 1, 1, 2, 3, 4, 0, 0, 0, -1, -2, -3]),
        ("towards-negative", [0, 0, 0, 1, 2, 3, -1, -1, -1, -2, -3, -4]),
    ],
)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_every_way_of_rounding(rounding, expected, dtype):
    positive = [0.25, 0.5, 0.75, 1.5, 2.5, 3.75]
    stored = np.array([*positive, *(-n for n in positive)], dtype)
    found = _decode(stored, "i2", cast(data_type=stored.dtype.name, rounding=rounding))
    assert found.tolist() == expected
    assert found.dtype == np.int16


def test_cast_out_of_range():
    stored = np.array([300, -5, 7], "i4")
    assert _decode(stored, "u1", cast(data_type="int32", out_of_range="clamp")).tolist() == [
        255,
        0,
        7,
    ]
    assert _decode(stored, "u1", cast(data_type="int32", out_of_range="wrap")).tolist() == [
        44,
        251,
        7,
    ]
    with pytest.raises(DecodeError, match="outside of uint8"):
        _decode(stored, "u1", cast(data_type="int32"))
    stored = np.array([2.0**63, -np.inf, 7])
    ends = [2**63 - 1, -(2**63), 7]
    assert _decode(stored, "i8", cast(data_type="float64", out_of_range="clamp")).tolist() == ends
    for mode in ("wrap", "error"):
        with pytest.raises(DecodeError, match="outside of int64"):
            _decode(stored, "i8", cast(data_type="float64", out_of_range=mode))
    stored = np.array([1e300, -1e300, np.inf])
    ends = [np.finfo("f4").max, np.finfo("f4").min, np.inf]
    assert _decode(stored, "f4", cast(data_type="float64", out_of_range="clamp")).tolist() == ends
    with pytest.raises(DecodeError, match="outside of float32"):
        _decode(stored, "f4", cast(data_type="float64"))


def test_cast_of_nan():
    stored = np.array([np.nan, 1])
    with pytest.raises(DecodeError, match="NaN is no value of int32"):
        _decode(stored, "i4", cast(data_type="float64", out_of_range="clamp"))
    decoded = _decode(
        stored,
        "i4",
        cast(data_type="float64", scalar_map={"decode": [["NaN", -9], [1, 5], [1, 6]]}),
    )
    assert decoded.tolist() == [-9, 5]


def test_cast_that_loses_nothing():
    stored = np.arange(6, dtype="u1").reshape(2, 3)
    for dtype in ("i2", "f4", "f8", "u1", "i8"):
        decoded = _decode(stored, dtype, cast(data_type="uint8"))
        assert decoded.dtype == dtype
        np.testing.assert_array_equal(decoded, stored)


def test_scale_offset_after_cast():
    stored = np.array([1, 2, 255], "u1")
    decoded = _decode(
        stored, "f4", Codec.of("scale_offset", scale=10, offset=1), cast(data_type="uint8")
    )
    np.testing.assert_array_equal(decoded, stored.astype("f4") / np.float32(10) + np.float32(1))


def _pack(values, first, last, padding):
    """Packed bits by the specification, element by element."""
    components = values.view(f"{values.dtype.kind}{values.dtype.itemsize}").reshape(-1)
    bits = []
    for component in components:
        word = int.from_bytes(component.tobytes(), "little")
        bits += [word >> place & 1 for place in range(first, last + 1)]
    unused = -len(bits) % 8
    bits += [0] * unused
    packed = np.packbits(np.array(bits, "u1"), bitorder="little").tobytes()
    if padding == "first_byte":
        return bytes([unused]) + packed
    return packed + bytes([unused]) if padding == "last_byte" else packed


@pytest.mark.parametrize("padding", ["none", "first_byte", "last_byte"])
@pytest.mark.parametrize("shape", [(3, 5), (8,), (1,)], ids=str)
def test_packbits_of_bool(padding, shape):
    values = image_like(shape, bool)
    stored = _pack(values.view("u1"), 0, 0, padding)
    chain = (Codec.of("packbits", padding_encoding=padding),)
    np.testing.assert_array_equal(
        decode_chunk(stored, Encoding(shape, values.dtype, chain)), values
    )
    with pytest.raises(DecodeError, match="packbits"):
        decode_chunk(stored + b"\0", Encoding(shape, values.dtype, chain))
    if padding != "none":
        other = bytearray(stored)
        other[0 if padding == "first_byte" else -1] ^= 1
        with pytest.raises(DecodeError, match="bits are said to be unused"):
            decode_chunk(bytes(other), Encoding(shape, values.dtype, chain))


@pytest.mark.parametrize(
    ("dtype", "first", "last"),
    [("u1", 2, 4), ("i1", 0, 3), ("i2", 3, 9), ("u4", 0, 31), ("i8", 1, 62), ("f4", 16, 31)],
)
def test_packbits_of_numbers(dtype, first, last):
    rng = np.random.default_rng(0)
    n_bits = 8 * np.dtype(dtype).itemsize
    words = rng.integers(0, 256, (7, n_bits // 8), np.uint8).view(f"<i{n_bits // 8}").reshape(-1)
    kept = words << (n_bits - 1 - last) >> (n_bits - 1 - last)
    kept = kept >> first << first
    if dtype[0] != "i":
        kept = kept.view(f"u{n_bits // 8}") & np.array((1 << last + 1) - 1, f"u{n_bits // 8}")
    values = kept.view(dtype)
    stored = _pack(values.view(f"u{n_bits // 8}"), first, last, "none")
    chain = (Codec.of("packbits", first_bit=first, last_bit=last),)
    decoded = decode_chunk(stored, Encoding(values.shape, values.dtype, chain))
    assert decoded.tobytes() == values.tobytes()


def test_packbits_of_complex():
    values = image_like((3, 5), "c8")
    decoded = decode_chunk(values.tobytes(), Encoding((3, 5), values.dtype, (Codec("packbits"),)))
    np.testing.assert_array_equal(decoded, values)
