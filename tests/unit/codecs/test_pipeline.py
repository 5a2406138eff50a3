from __future__ import annotations

import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numcodecs
import numpy as np
import pytest

import gridref.codecs
from gridref.codecs import decode_chunk, why_not
from gridref.codecs.pipeline import own_codecs
from gridref.errors import DecodeError
from gridref.model.encoding import Codec, Encoding, bytes_codec
from tests.unit.codecs.support import encoding, image_like

SHUFFLE = Codec.of("numcodecs.shuffle", elementsize=4)
ZLIB = Codec("numcodecs.zlib")
FLETCHER = Codec("numcodecs.fletcher32")


def _filtered(values, mask=0):
    data = values.tobytes()
    if not mask & 1:
        data = bytes(numcodecs.Shuffle(values.dtype.itemsize).encode(data))
    if not mask & 2:
        data = zlib.compress(data)
    if not mask & 4:
        data = bytes(numcodecs.Fletcher32().encode(data))
    return data


@pytest.mark.parametrize("mask", range(8))
def test_filter_mask_switches_codecs_off(mask):
    values = image_like((20, 30), "f4")
    encoded = encoding(values, SHUFFLE, ZLIB, FLETCHER)
    for out in (None, np.empty_like(values)):
        decoded = decode_chunk(_filtered(values, mask), encoded, filter_mask=mask, out=out)
        np.testing.assert_array_equal(decoded, values)


def test_shape_of_a_truncated_chunk():
    values = image_like((20, 30), "f4")
    encoded = encoding(values, SHUFFLE, ZLIB)
    part = np.ascontiguousarray(values[:7])
    stored = _filtered(part, 4)
    np.testing.assert_array_equal(decode_chunk(stored, encoded, (7, 30)), part)
    for shape in (None, (8, 30), (6, 30)):
        with pytest.raises(DecodeError):
            decode_chunk(stored, encoded, shape)


@pytest.mark.parametrize(
    ("codecs", "before", "fills"),
    [
        ((SHUFFLE, ZLIB), (), True),
        ((ZLIB,), (), True),
        ((SHUFFLE, ZLIB, FLETCHER), (), True),
        ((FLETCHER,), (), False),
        ((), (), False),
        ((ZLIB,), (Codec.of("transpose", order=[1, 0]),), False),
    ],
)
def test_numbers_are_decoded_into_memory_where_they_lie_alike(codecs, before, fills):
    values = image_like((20, 30), "f4")
    stored = values.T.tobytes() if before else values.tobytes()
    for codec in codecs:
        stored = numcodecs.get_codec(
            {"id": codec.name.removeprefix("numcodecs."), **codec.configuration}
        ).encode(stored)
    memory = np.zeros_like(values)
    decoded = decode_chunk(bytes(stored), encoding(values, *codecs, before=before), out=memory)
    np.testing.assert_array_equal(decoded, values)
    assert (decoded is memory) == fills


def test_other_byte_orders_are_not_decoded_into_memory():
    values = image_like((20, 30), "f4")
    encoded = encoding(values, ZLIB, big_endian=True)
    stored = zlib.compress(values.astype(">f4").tobytes())
    np.testing.assert_array_equal(decode_chunk(stored, encoded, out=np.zeros_like(values)), values)


def test_prefix_comes_before_the_stored_bytes():
    values = image_like((20, 30), "f4")
    stored = _filtered(values, 4)
    encoded = replace(encoding(values, SHUFFLE, ZLIB), prefix=stored[:10])
    for rest in (stored[10:], memoryview(stored)[10:]):
        np.testing.assert_array_equal(decode_chunk(rest, encoded), values)


def test_memoryviews_of_other_formats():
    values = image_like((20, 30), "f4")
    decoded = decode_chunk(memoryview(values), encoding(values))
    np.testing.assert_array_equal(decoded, values)


@pytest.mark.parametrize("size", [0, 1, 2399, 2401, 4800])
def test_uncompressed_chunks_of_a_wrong_size(size):
    values = image_like((20, 30), "f4")
    with pytest.raises(DecodeError, match=f"codec bytes: has {size} bytes?, expected 2400"):
        decode_chunk(bytes(size), encoding(values))


def test_errors_name_the_codec():
    values = image_like((20, 30), "f4")
    encoded = encoding(values, SHUFFLE, ZLIB, FLETCHER)
    stored = bytearray(_filtered(values))
    stored[20] ^= 1
    with pytest.raises(DecodeError, match=r"codec numcodecs\.fletcher32: checksum is 0x"):
        decode_chunk(bytes(stored), encoded)
    bad = numcodecs.Fletcher32().encode(bytes(stored[:-4]))
    with pytest.raises(DecodeError, match=r"codec numcodecs\.zlib: "):
        decode_chunk(bytes(bad), encoded)


@pytest.mark.parametrize(
    ("codecs", "reason"),
    [
        ((Codec("bytes"), Codec("gridref.unheard")), "codec gridref.unheard: no decoder is known"),
        ((Codec("sharding_indexed"),), "codec sharding_indexed: no decoder is known"),
        ((Codec("bytes"), Codec("gridref.hdf5_nbit")), "configuration lacks cd_values"),
        ((Codec("transpose"), Codec("bytes")), "codec transpose: configuration lacks order"),
        ((Codec.of("bytes", endian="middle"),), "endian 'middle' is neither"),
        ((Codec("numcodecs.zlib"),), "has no array -> bytes codec"),
        ((Codec("numcodecs.zlib"), Codec("bytes")), "codec numcodecs.zlib is at the wrong"),
        ((Codec("bytes"), Codec("bytes")), "codec bytes is at the wrong place"),
        ((Codec.of("transpose", order=[0, 0]), Codec("bytes")), "order .* does not fit 2 dim"),
        ((Codec("bytes"), Codec.of("numcodecs.shuffle", elementsize=0)), "elementsize must be"),
        ((Codec("bytes"), Codec("numcodecs.pickle")), "no decoder is known"),
    ],
)
def test_chains_that_cannot_be_decoded(codecs, reason):
    with pytest.raises(DecodeError, match=reason):
        decode_chunk(bytes(6), Encoding((2, 3), np.dtype("u1"), codecs))


def test_objects_have_no_bytes():
    with pytest.raises(DecodeError, match="have no fixed size"):
        decode_chunk(bytes(16), Encoding((2,), np.dtype(object), (Codec("bytes"),)))


def test_a_chain_that_makes_another_dtype():
    chain = (Codec.of("numcodecs.delta", dtype="f8"), bytes_codec(np.dtype("f8")))
    with pytest.raises(DecodeError, match="decodes to dtype float64, expected float32"):
        decode_chunk(bytes(16), Encoding((2,), np.dtype("f4"), chain))


def test_why_not():
    assert why_not(ZLIB) is None
    assert why_not(Codec("gridref.unheard")) == "codec gridref.unheard: no decoder is known"


def test_the_table_lists_every_codec():
    listed = set()
    prefix = ""
    for name in re.findall(r"``([a-z0-9_.*-]+)``", gridref.codecs.__doc__ or ""):
        if name.startswith("."):
            listed.add(prefix + name)
        else:
            prefix = name.partition(".")[0] if "." in name else prefix
            listed.add(name)
    assert set(own_codecs()) <= listed


def test_threads_decode_at_the_same_time():
    chunks = [image_like((50, 40), "f4", seed) for seed in range(16)]
    encoded = encoding(chunks[0], SHUFFLE, ZLIB, FLETCHER)
    stored = [_filtered(values) for values in chunks]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            decoded = list(pool.map(lambda data: decode_chunk(data, encoded), stored))
            for found, wanted in zip(decoded, chunks, strict=True):
                np.testing.assert_array_equal(found, wanted)


COMPRESSORS = {
    "zlib": (Codec.of("numcodecs.zlib", level=1), numcodecs.Zlib(1).encode),
    "zstd": (Codec.of("zstd", level=1, checksum=False), numcodecs.Zstd(1).encode),
    "blosc": (Codec.of("numcodecs.blosc"), numcodecs.Blosc("lz4", shuffle=0).encode),
    "none": (None, bytes),
}


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("dtype", ["u1", "<i2", "<f4", ">f8", "S7", "S300"])
def test_shuffled_chunks_of_any_size_one_after_the_other(compressor: str, dtype: str) -> None:
    """What a chunk was decoded to stays when the thread decodes the next one."""
    codec, encode = COMPRESSORS[compressor]
    random = np.random.default_rng(0)
    size = np.dtype(dtype).itemsize
    expected, found = [], []
    for n in (1, 2, 5, 1000, 70_000 // size, 3, 2**20 // size + 3, 999):
        values = random.integers(0, 200, n * size, "u1").view(dtype)
        native = values.astype(values.dtype.newbyteorder("="))
        chain = [
            bytes_codec(native.dtype, big_endian=dtype[0] == ">"),
            Codec.of("numcodecs.shuffle", elementsize=size),
            *([] if codec is None else [codec]),
        ]
        encoding = Encoding((n,), native.dtype, tuple(chain))
        stored = encode(numcodecs.Shuffle(size).encode(values.tobytes()))
        for out in (None, np.empty(n, native.dtype)):
            expected.append(native.tobytes())
            found.append(decode_chunk(stored, encoding, out=out))
        cut = stored[: len(stored) // 2]
        with pytest.raises(DecodeError):
            decode_chunk(cut, encoding)
    assert [values.tobytes() for values in found] == expected


def test_chunks_that_are_shuffled_twice() -> None:
    values = np.random.default_rng(0).integers(0, 200, 4000).astype("<f4")
    chain = (bytes_codec(values.dtype), SHUFFLE, Codec.of("numcodecs.shuffle", elementsize=2), ZLIB)
    twice = numcodecs.Shuffle(2).encode(numcodecs.Shuffle(4).encode(values.tobytes()))
    stored = zlib.compress(bytes(twice))
    for out in (None, np.empty_like(values)):
        decoded = decode_chunk(stored, Encoding(values.shape, values.dtype, chain), out=out)
        assert np.array_equal(decoded, values)
