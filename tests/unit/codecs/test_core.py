from __future__ import annotations

import gzip
import zlib

import google_crc32c
import numcodecs
import numpy as np
import pytest
import zarr

from gridref.codecs import decode_chunk
from gridref.errors import DecodeError
from gridref.model.encoding import Codec, Encoding, transpose_codec
from tests.unit.codecs.support import encoding, image_like

DTYPES = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("big_endian", [False, True])
def test_bytes_of_numbers(dtype, big_endian):
    values = image_like((3, 5), dtype)
    stored = values.astype(values.dtype.newbyteorder(">" if big_endian else "<")).tobytes()
    decoded = decode_chunk(stored, encoding(values, big_endian=big_endian))
    assert decoded.dtype == values.dtype
    assert decoded.dtype.isnative
    np.testing.assert_array_equal(decoded, values)


@pytest.mark.parametrize(
    "values",
    [
        np.array([b"a", b"bcd", b""], "S4"),
        np.array(["a", "bé", ""], "U3"),
        np.array([(1, 2.5), (3, 4.5)], [("x", "<i2"), ("y", "<f8")]),
        np.array([b"\x01\x02", b"\x03\x04"], "V2"),
        np.zeros((2, 3), "S0"),
    ],
    ids=str,
)
def test_bytes_of_other_kinds(values):
    chain = (Codec.of("bytes", endian="little"),)
    decoded = decode_chunk(values.tobytes(), Encoding(values.shape, values.dtype, chain))
    np.testing.assert_array_equal(decoded, values)


def test_bytes_in_big_endian_order_of_other_kinds():
    text = np.array(["a", "bé", ""], "U3")
    record = np.array([(1, 2.5), (3, 4.5)], [("x", "<i2"), ("y", "<f8")])
    for values in (text, record):
        stored = values.astype(values.dtype.newbyteorder(">")).tobytes()
        chain = (Codec.of("bytes", endian="big"),)
        decoded = decode_chunk(stored, Encoding(values.shape, values.dtype, chain))
        np.testing.assert_array_equal(decoded, values)


def test_bytes_without_endian_are_as_the_dtype_stands():
    values = np.array([(1, 2.5), (3, 4.5)], [("x", ">i2"), ("y", "<f8")])
    decoded = decode_chunk(values.tobytes(), Encoding((2,), values.dtype, (Codec("bytes"),)))
    np.testing.assert_array_equal(decoded, values)


def test_transpose_and_reverse():
    values = image_like((2, 3, 4), "f4")
    stored = np.ascontiguousarray(values.transpose(2, 0, 1))
    encoded = encoding(values, before=(transpose_codec((2, 0, 1)),))
    np.testing.assert_array_equal(decode_chunk(stored.tobytes(), encoded), values)
    encoded = encoding(values, before=(Codec.of("gridref.reverse", axes=[0, 2]),))
    stored = np.ascontiguousarray(values[::-1, :, ::-1])
    np.testing.assert_array_equal(decode_chunk(stored.tobytes(), encoded), values)


def test_transpose_is_that_of_zarr(tmp_path):
    values = image_like((4, 6, 5), "i4")
    array = zarr.create_array(
        tmp_path,
        shape=values.shape,
        chunks=values.shape,
        dtype=values.dtype,
        filters=zarr.codecs.TransposeCodec(order=(1, 2, 0)),
        compressors=None,
    )
    array[...] = values
    stored = (tmp_path / "c/0/0/0").read_bytes()
    encoded = encoding(values, before=(transpose_codec((1, 2, 0)),))
    np.testing.assert_array_equal(decode_chunk(stored, encoded), values)


def test_reshape_and_select():
    values = image_like((2, 3, 4), "f4")
    encoded = encoding(values, before=(Codec.of("reshape", shape=[[0, 1], [2]]),))
    np.testing.assert_array_equal(decode_chunk(values.tobytes(), encoded), values)
    encoded = encoding(
        values[:, 1], before=(Codec.of("gridref.select", axis=1, index=1, length=3),)
    )
    np.testing.assert_array_equal(decode_chunk(values.tobytes(), encoded), values[:, 1])


COMPRESSORS = {
    "gzip": gzip.compress,
    "numcodecs.gzip": gzip.compress,
    "numcodecs.zlib": zlib.compress,
    "zstd": numcodecs.Zstd().encode,
    "numcodecs.zstd": numcodecs.Zstd(checksum=True).encode,
    "blosc": numcodecs.Blosc("zstd", shuffle=2).encode,
    "numcodecs.blosc": numcodecs.Blosc().encode,
}


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compressors(name):
    values = image_like((40, 30), "f4")
    stored = bytes(COMPRESSORS[name](values.tobytes()))
    for data in (stored, memoryview(stored), memoryview(bytearray(stored))):
        decoded = decode_chunk(data, encoding(values, Codec(name)))
        np.testing.assert_array_equal(decoded, values)


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compressors_inside_of_each_other(name):
    """The outer one cannot know what it decodes to."""
    values = image_like((40, 30), "f4")
    stored = bytes(COMPRESSORS[name](zlib.compress(values.tobytes())))
    decoded = decode_chunk(stored, encoding(values, Codec("numcodecs.zlib"), Codec(name)))
    np.testing.assert_array_equal(decoded, values)


@pytest.mark.parametrize("name", COMPRESSORS)
@pytest.mark.parametrize("change", [-4, 4, 4000])
def test_compressors_that_decode_to_another_size(name, change):
    values = image_like((40, 30), "f4")
    data = values.tobytes()
    stored = bytes(COMPRESSORS[name](data[:change] if change < 0 else data + bytes(change)))
    with pytest.raises(DecodeError, match=name):
        decode_chunk(stored, encoding(values, Codec(name)))


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compressors_of_cut_streams(name):
    values = image_like((40, 30), "f4")
    stored = bytes(COMPRESSORS[name](values.tobytes()))
    for size in (0, 1, 5, 15, 16, 20, len(stored) // 2, len(stored) - 1):
        with pytest.raises(DecodeError, match=name):
            decode_chunk(stored[:size], encoding(values, Codec(name)))


def test_bombs_are_not_decoded():
    values = np.zeros((10, 10), "f4")
    for name, compress in COMPRESSORS.items():
        bomb = bytes(compress(bytes(2_000_000)))
        with pytest.raises(DecodeError, match=name):
            decode_chunk(bomb, encoding(values, Codec(name)))


@pytest.mark.parametrize("cname", ["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
@pytest.mark.parametrize(("shuffle", "dtype"), [(0, "u1"), (1, "i2"), (1, "f8"), (2, "f8")])
def test_blosc(cname, shuffle, dtype):
    values = image_like((33, 7), dtype)
    stored = numcodecs.Blosc(cname, 5, shuffle).encode(values)
    np.testing.assert_array_equal(decode_chunk(stored, encoding(values, Codec("blosc"))), values)


def test_blosc_of_nothing():
    values = np.zeros((0, 3), "f4")
    stored = bytes(numcodecs.Blosc().encode(values))
    decoded = decode_chunk(stored, encoding(np.zeros((1, 3), "f4"), Codec("blosc")), (0, 3))
    assert decoded.shape == (0, 3)


def test_gzip_of_several_members():
    values = image_like((40, 30), "f4")
    data = values.tobytes()
    stored = gzip.compress(data[:1000]) + gzip.compress(data[1000:])
    np.testing.assert_array_equal(decode_chunk(stored, encoding(values, Codec("gzip"))), values)
    with pytest.raises(DecodeError):
        decode_chunk(stored + gzip.compress(data), encoding(values, Codec("gzip")))


def test_crc32c():
    values = image_like((4, 3), "f4")
    data = values.tobytes()
    stored = data + google_crc32c.value(data).to_bytes(4, "little")
    np.testing.assert_array_equal(decode_chunk(stored, encoding(values, Codec("crc32c"))), values)
    for bad in (stored[:-1], b"", b"\x01" + stored[1:]):
        with pytest.raises(DecodeError, match="crc32c"):
            decode_chunk(bad, encoding(values, Codec("crc32c")))
