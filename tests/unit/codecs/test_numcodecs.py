from __future__ import annotations

import bz2
import lzma

import numcodecs
import numpy as np
import pytest
import zarr

from gridref.codecs import decode_chunk
from gridref.errors import DecodeError
from gridref.model.encoding import Codec, Encoding, bytes_codec
from tests.unit.codecs.support import encoding, image_like

RAW_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 3}]


@pytest.mark.parametrize(
    ("codec", "encode"),
    [
        (Codec("numcodecs.bz2"), bz2.compress),
        (Codec("numcodecs.lzma"), lzma.compress),
        (
            Codec.of("numcodecs.lzma", format=lzma.FORMAT_ALONE),
            lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
        ),
        (
            Codec.of("numcodecs.lzma", format=lzma.FORMAT_RAW, filters=RAW_FILTERS),
            lambda data: lzma.compress(data, lzma.FORMAT_RAW, filters=RAW_FILTERS),
        ),
        (Codec("numcodecs.lz4"), numcodecs.LZ4().encode),
        (Codec("numcodecs.crc32"), numcodecs.CRC32().encode),
        (Codec.of("numcodecs.crc32", location="end"), numcodecs.CRC32(location="end").encode),
        (Codec("numcodecs.adler32"), numcodecs.Adler32().encode),
        (Codec("numcodecs.jenkins_lookup3"), numcodecs.JenkinsLookup3().encode),
        (Codec("numcodecs.fletcher32"), numcodecs.Fletcher32().encode),
        (Codec("numcodecs.base64"), numcodecs.Base64().encode),
    ],
    ids=lambda value: str(value) if isinstance(value, Codec) else "",
)
def test_bytes_to_bytes(codec, encode):
    values = image_like((30, 20), "i4")
    stored = bytes(encode(values.tobytes()))
    np.testing.assert_array_equal(decode_chunk(stored, encoding(values, codec)), values)
    for size in (0, 3, 4, len(stored) // 2):
        with pytest.raises(DecodeError, match=codec.name):
            decode_chunk(stored[:size], encoding(values, codec))


def test_streams_of_several_parts_and_bombs():
    values = image_like((30, 20), "i4")
    data = values.tobytes()
    for name, compress in (("numcodecs.bz2", bz2.compress), ("numcodecs.lzma", lzma.compress)):
        stored = compress(data[:500]) + compress(data[500:])
        np.testing.assert_array_equal(decode_chunk(stored, encoding(values, Codec(name))), values)
        with pytest.raises(DecodeError, match="decompresses to more than 2400 bytes"):
            decode_chunk(compress(bytes(500_000)), encoding(values, Codec(name)))
    stored = bytes(numcodecs.LZ4().encode(bytes(500_000)))
    with pytest.raises(DecodeError, match="header says 500000 bytes"):
        decode_chunk(stored, encoding(values, Codec("numcodecs.lz4")))


ARRAY_CODECS = [
    ("delta", "i4", {"dtype": "<i4"}),
    ("delta", "i8", {"dtype": "<i8", "astype": "<i2"}),
    ("delta", "f4", {"dtype": "<f4"}),
    ("fixedscaleoffset", "f8", {"scale": 10, "offset": 3.5, "dtype": "<f8", "astype": "<i4"}),
    ("fixedscaleoffset", "f4", {"scale": 4, "offset": 1, "dtype": "<f4"}),
    ("quantize", "f8", {"digits": 1, "dtype": "<f8"}),
    ("astype", "f8", {"encode_dtype": "<f4", "decode_dtype": "<f8"}),
    ("astype", "i8", {"encode_dtype": "<i2", "decode_dtype": "<i8"}),
    ("bitround", "f4", {"keepbits": 5}),
    ("packbits", "b1", {}),
]


@pytest.mark.parametrize(("name", "dtype", "config"), ARRAY_CODECS, ids=str)
@pytest.mark.parametrize("shape", [(7, 5), (8, 8), (1,)], ids=str)
def test_array_to_array(name, dtype, config, shape):
    values = image_like(shape, dtype)
    codec = numcodecs.get_codec({"id": name, **config})
    packed = np.ascontiguousarray(codec.encode(values))
    wanted = codec.decode(packed).reshape(shape)
    chain = (Codec.of(f"numcodecs.{name}", **config), bytes_codec(packed.dtype))
    decoded = decode_chunk(packed.tobytes(), Encoding(shape, values.dtype, chain))
    assert decoded.tobytes() == np.ascontiguousarray(wanted).tobytes()


def test_array_to_array_of_big_endian_elements():
    values = image_like((7, 5), "i4")
    packed = numcodecs.Delta("<i4").encode(values)
    chain = (
        Codec.of("numcodecs.delta", dtype=">i4"),
        Codec.of("bytes", endian="big"),
    )
    decoded = decode_chunk(
        packed.astype(">i4").tobytes(), Encoding(values.shape, values.dtype, chain)
    )
    np.testing.assert_array_equal(decoded, values)


@pytest.mark.parametrize(
    ("name", "dtype", "config"),
    [
        ("delta", "i4", {"dtype": "int32"}),
        ("delta", "f4", {"dtype": "float32"}),
        ("fixedscaleoffset", "f4", {"scale": 4, "offset": 1, "dtype": "float32"}),
    ],
)
def test_array_to_array_as_zarr_stores_it(tmp_path, name, dtype, config):
    values = image_like((6, 8), dtype)
    array = zarr.create_array(
        tmp_path,
        shape=values.shape,
        chunks=(6, 4),
        dtype=values.dtype,
        filters=[{"name": f"numcodecs.{name}", "configuration": config}],
        compressors=None,
    )
    array[...] = values
    chain = (Codec.of(f"numcodecs.{name}", **config), bytes_codec(values.dtype))
    for column in (0, 1):
        stored = (tmp_path / f"c/0/{column}").read_bytes()
        decoded = decode_chunk(stored, Encoding((6, 4), values.dtype, chain))
        np.testing.assert_array_equal(decoded, array[:, 4 * column : 4 * column + 4])


def test_packbits_of_another_padding():
    chain = (Codec("numcodecs.packbits"), Codec("bytes"))
    with pytest.raises(DecodeError, match="3 bits are said to be unused, expected 5"):
        decode_chunk(b"\x03\xff", Encoding((3,), np.dtype(bool), chain))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
@pytest.mark.parametrize("shape", [(50,), (12, 13), (5, 6, 7), (2, 3, 4, 5)], ids=str)
def test_zfpy(dtype, shape):
    imagecodecs = pytest.importorskip("imagecodecs")
    values = image_like(shape, dtype)
    stored = imagecodecs.zfp_encode(values)
    encoded = Encoding(shape, values.dtype, (Codec("numcodecs.zfpy"),))
    np.testing.assert_array_equal(
        decode_chunk(stored, encoded), imagecodecs.zfp_decode(stored).reshape(shape)
    )
    with pytest.raises(DecodeError, match="decodes to"):
        decode_chunk(stored, encoded, (shape[0] - 1, *shape[1:]))
    with pytest.raises(DecodeError, match="is no zfp stream"):
        decode_chunk(b"nonsense", encoded)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u2", "u4"])
def test_pcodec(dtype):
    imagecodecs = pytest.importorskip("imagecodecs")
    values = image_like((12, 13), dtype)
    stored = imagecodecs.pcodec_encode(values)
    encoded = Encoding(values.shape, values.dtype, (Codec("numcodecs.pcodec"),))
    np.testing.assert_array_equal(decode_chunk(stored, encoded), values)
    for shape in ((11, 13), (13, 13)):
        with pytest.raises(DecodeError, match=r"numcodecs\.pcodec"):
            decode_chunk(stored, encoded, shape)
