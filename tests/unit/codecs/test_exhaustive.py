"""Decoders against plain arithmetic, for every small number and at every boundary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gridref.codecs import decode_chunk
from gridref.codecs.numcodecs_codecs import ZfpHeader
from gridref.codecs.stage import stated_size
from gridref.errors import DecodeError
from gridref.limits import limits
from gridref.model.encoding import Codec, Encoding, bytes_codec

pytestmark = pytest.mark.long

NAMES = {
    np.dtype(code): np.dtype(code).name
    for code in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
}


def decoded(stored: np.ndarray, dtype: Any, *codecs: Codec) -> np.ndarray:
    chain = (*codecs, bytes_codec(stored.dtype))
    return decode_chunk(stored.tobytes(), Encoding(stored.shape, np.dtype(dtype), chain))


# cast_value


def boundaries(dtype: np.dtype[Any]) -> list[Any]:
    """Numbers where conversions change, as far as the dtype has them."""
    numbers = {0, 1, -1}
    for bits in (7, 8, 15, 16, 31, 32, 63, 64):
        for near in (-1, 0, 1):
            numbers |= {2**bits + near, -(2**bits) + near}
    if dtype.kind == "f":
        extra = [0.5, 1.5, 2.5, -0.5, -1.5, 0.49, 255.5, -128.5, math.inf, -math.inf]
        with np.errstate(over="ignore"):
            return np.unique(np.array([*map(float, numbers), *extra], dtype)).tolist()
    limits = np.iinfo(dtype)
    return [n for n in sorted(numbers) if limits.min <= n <= limits.max]


@pytest.mark.parametrize("target", ["i1", "u1", "i2", "i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("source", [dtype.str for dtype in NAMES])
def test_casts_to_integers_keep_the_value_or_say_so(source: str, target: str) -> None:
    dtype, limits = np.dtype(source), np.iinfo(target)
    for value in boundaries(dtype):
        stored = np.array([0, value, 1], dtype)
        rounded = round(value) if math.isfinite(value) else value  # half to even
        inside = limits.min <= rounded <= limits.max

        def cast(stored: np.ndarray = stored, **options: str) -> list[Any]:
            codec = Codec.of("cast_value", data_type=NAMES[dtype], **options)
            return decoded(stored, target, codec).tolist()

        clamped = min(max(rounded, limits.min), limits.max)
        assert cast(out_of_range="clamp") == [0, clamped, 1]
        if inside:
            assert cast() == cast(out_of_range="wrap") == [0, rounded, 1]
            continue
        with pytest.raises(DecodeError, match="outside of"):
            cast()
        if dtype.kind == "f":
            with pytest.raises(DecodeError, match="outside of"):
                cast(out_of_range="wrap")
        else:
            span = limits.max - limits.min + 1
            wrapped = (rounded - limits.min) % span + limits.min
            assert cast(out_of_range="wrap") == [0, wrapped, 1]


def test_casts_to_floats() -> None:
    large = np.array([1.0, 65504.0, 65536.0, -65536.0, np.inf, -np.inf], "f8")
    clamp = Codec.of("cast_value", data_type="float64", out_of_range="clamp")
    expected = [1.0, 65504.0, 65504.0, -65504.0, np.inf, -np.inf]
    assert decoded(large, "f2", clamp).tolist() == expected
    with pytest.raises(DecodeError, match="outside of float16"):
        decoded(large, "f2", Codec.of("cast_value", data_type="float64"))
    nan = decoded(np.array([np.nan]), "f4", Codec.of("cast_value", data_type="float64"))
    assert np.isnan(nan).all()
    exact = Codec.of("cast_value", data_type="uint8", rounding="towards-zero")
    assert decoded(np.array([7], "u1"), "f4", exact).tolist() == [7.0]
    with pytest.raises(DecodeError, match="rounding towards-zero"):
        decoded(
            np.array([7], "i4"),
            "f4",
            Codec.of("cast_value", data_type="int32", rounding="towards-zero"),
        )


@pytest.mark.parametrize(("source", "target"), [("i8", "u1"), ("f8", "i2"), ("f8", "f4")])
def test_casts_of_nothing(source: str, target: str) -> None:
    codec = Codec.of("cast_value", data_type=NAMES[np.dtype(source)])
    chain = (codec, bytes_codec(np.dtype(source)))
    found = decode_chunk(b"", Encoding((1,), np.dtype(target), chain), (0,))
    assert (found.shape, found.dtype) == ((0,), np.dtype(target))


def test_values_that_stand_for_others() -> None:
    table = {"decode": [[255, "NaN"], [254, "-Infinity"], [254, 3], [0, 9.5]]}
    codec = Codec.of("cast_value", data_type="uint8", scalar_map=table)
    found = decoded(np.array([255, 254, 0, 1], "u1"), "f8", codec)
    np.testing.assert_array_equal(found, [np.nan, -np.inf, 9.5, 1.0])
    none = Codec.of("cast_value", data_type="uint8", scalar_map={"encode": [[1, 2]]})
    assert decoded(np.array([1], "u1"), "f8", none).tolist() == [1.0]
    outside = Codec.of("cast_value", data_type="int16", scalar_map={"decode": [[-999, 255]]})
    assert decoded(np.array([-999, 254], "i2"), "u1", outside).tolist() == [255, 254]


# packbits


@pytest.mark.parametrize(
    ("first", "last", "dtype"), [(5, 4, "u1"), (-1, 3, "u1"), (0, 8, "u1"), (0, 1, "b1")]
)
def test_bits_that_an_element_does_not_have(first: int, last: int, dtype: str) -> None:
    codec = Codec.of("packbits", first_bit=first, last_bit=last)
    with pytest.raises(DecodeError, match="do not lie in an element"):
        decode_chunk(bytes(8), Encoding((8,), np.dtype(dtype), (codec,)))


# Headers


def test_sizes_in_headers() -> None:
    assert stated_size(7, 7) == stated_size(7, None) == 7
    assert stated_size(limits().decoded_bytes, None) == limits().decoded_bytes
    for said, wanted in ((7, 8), (8, 7), (limits().decoded_bytes + 1, None), (2**40, 2**40)):
        with pytest.raises(ValueError, match="header says"):
            stated_size(said, wanted)


def zfp_header(lengths: tuple[int, ...], kind: int, mode: int, mode_bits: int) -> bytes:
    """zfp's `zfp_write_header`: magic, type and shape, and mode; the lowest bit comes first."""
    width = 48 // len(lengths)
    shape = sum(length - 1 << width * axis for axis, length in enumerate(lengths))
    meta = kind | len(lengths) - 1 << 2 | shape << 4
    bits = int.from_bytes(b"zfp\x05", "little") | meta << 32 | mode << 84
    return bits.to_bytes(-(-(84 + mode_bits) // 8), "little")


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("lengths", [(1,), (5,), (5, 4), (9, 1, 2), (3, 8, 2, 6)])
def test_headers_of_zfp(lengths: tuple[int, ...], kind: int) -> None:
    for mode, mode_bits, n_bits in ((7, 12, 96), (0xFFE, 12, 96), (0xFFF | 5 << 12, 64, 148)):
        data = zfp_header(lengths, kind, mode, mode_bits)
        header = ZfpHeader.from_bytes(data + b"behind")
        assert (header.lengths, header.n_bits) == (lengths, n_bits)
        assert header.decoded_bytes == math.prod(lengths) * (4, 8, 4, 8)[kind]
        assert header.data == data
        assert ZfpHeader.from_bytes(data) == header
        with pytest.raises(ValueError, match="is no zfp stream"):
            ZfpHeader.from_bytes(data[:-1])
        with pytest.raises(ValueError, match="is no zfp stream"):
            ZfpHeader.from_bytes(b"zfq" + data[3:])
        padded = data + bytes(-len(data) % 4)
        for order in "<>":
            words = np.frombuffer(padded, f"{order}u4").tolist()
            read = ZfpHeader.from_words(words)
            assert (read.lengths, read.big_endian) == (lengths, order == ">")


# Integers of some bits


@pytest.mark.parametrize(
    ("precision", "offset", "dtype"),
    [(0, 0, "u1"), (9, 0, "u1"), (8, 1, "u1"), (1, 8, "u1"), (4, -1, "u1"), (8, 0, "f4")],
)
def test_bits_that_an_integer_does_not_have(precision: int, offset: int, dtype: str) -> None:
    codec = Codec.of("gridref.hdf5_integer", precision=precision, offset=offset)
    with pytest.raises(DecodeError, match="hdf5_integer"):
        decoded(np.zeros(2, dtype), dtype, codec)


def float_of(word: int, exponent_bits: int, mantissa_bits: int, bias: int, implied: bool) -> float:
    """A number by its bits, exactly: sign, exponent, mantissa (IEEE 754-2008, 3.4)."""
    mantissa = word & (1 << mantissa_bits) - 1
    exponent = word >> mantissa_bits & (1 << exponent_bits) - 1
    sign = -1.0 if word >> mantissa_bits + exponent_bits & 1 else 1.0
    if exponent == (1 << exponent_bits) - 1:
        return math.nan if mantissa else math.copysign(math.inf, sign)
    if not implied:
        return math.ldexp(sign * mantissa, exponent - bias - mantissa_bits + 1)
    if exponent == 0:
        return math.ldexp(sign * mantissa, 1 - bias - mantissa_bits)
    return math.ldexp(sign * (mantissa | 1 << mantissa_bits), exponent - bias - mantissa_bits)


@pytest.mark.parametrize("implied", [True, False])
@pytest.mark.parametrize(("exponent_bits", "bias"), [(4, 7), (5, 15), (3, 0), (2, 4)])
def test_every_float_of_a_byte(exponent_bits: int, bias: int, implied: bool) -> None:
    mantissa_bits = 7 - exponent_bits
    codec = Codec.of(
        "gridref.hdf5_float",
        size=1,
        sign_position=7,
        exponent_position=mantissa_bits,
        exponent_bits=exponent_bits,
        exponent_bias=bias,
        mantissa_position=0,
        mantissa_bits=mantissa_bits,
        normalization="implied" if implied else "set",
    )
    found = decoded(np.arange(256, dtype="u1"), "f8", codec)
    expected = np.array(
        [float_of(word, exponent_bits, mantissa_bits, bias, implied) for word in range(256)]
    )
    np.testing.assert_array_equal(found, expected)
    assert (np.signbit(found) == (np.arange(256) > 127)).all()


# TIFF


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("dtype", ["u2", "u4"])
@pytest.mark.parametrize("bits", [[1], [4, 4], [5, 6, 5], [1, 7, 3], [10, 11, 11]])
def test_samples_are_stretched_by_repeating_their_bits(
    bits: list[int], dtype: str, endian: str
) -> None:
    total, target = sum(bits), 8 * np.dtype(dtype).itemsize
    size = next(size for size in (1, 2, 4) if 8 * size >= total)
    rng = np.random.default_rng(0)
    pixels = [0, (1 << total) - 1, *(int(n) % (1 << total) for n in rng.integers(0, 2**32, 30))]
    raw = b"".join(pixel.to_bytes(size, endian) for pixel in pixels)
    codec = Codec.of("gridref.tiff_rgb_bits", bits=bits, dtype=dtype, endian=endian)
    shape = (len(pixels), len(bits))
    chain = (bytes_codec(np.dtype(dtype)), codec)
    found = decode_chunk(raw, Encoding(shape, np.dtype(dtype), chain))
    expected = []
    for pixel in pixels:
        text, samples = f"{pixel:0{total}b}", []
        for width in bits:
            sample, text = text[:width], text[width:]
            samples.append(int((sample * target)[:target], 2))
        expected.append(samples)
    assert found.tolist() == expected
