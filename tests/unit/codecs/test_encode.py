from __future__ import annotations

import gzip
import zlib

import numcodecs
import numpy as np
import pytest
import zarr

from gridref.codecs import decode_chunk, encode_bytes_codecs, encode_chunk
from gridref.errors import InvalidRequestError
from gridref.model.encoding import Codec, Encoding, bytes_codec
from tests.unit.codecs.support import image_like

CHAINS = [
    (),
    (Codec.of("zstd", level=3, checksum=False),),
    (Codec.of("zstd", level=3, checksum=True),),
    (Codec.of("gzip", level=5),),
    (Codec("crc32c"),),
    (Codec.of("gzip", level=1), Codec("crc32c")),
]


@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize(("dtype", "endian"), [("f8", "little"), (">f4", "big")])
def test_what_is_encoded_is_decoded(chain, dtype, endian):
    values = image_like((4, 3), dtype)
    codecs = (Codec.of("bytes", endian=endian), *chain)
    native = values.dtype.newbyteorder("=")
    for layout in (values, np.asfortranarray(values)):
        stored = encode_chunk(layout, codecs)
        assert stored == encode_chunk(values.copy(), codecs)
        np.testing.assert_array_equal(
            decode_chunk(stored, Encoding((4, 3), native, codecs)), values
        )


@pytest.mark.parametrize("dtype", [np.dtypes.StringDType(), np.dtype(object)], ids=str)
def test_texts(dtype):
    values = np.array([["a", "bé"], ["", "日本"]], dtype)
    codecs = (Codec("vlen-utf8"), Codec.of("zstd", level=1, checksum=False))
    decoded = decode_chunk(encode_chunk(values, codecs), Encoding((2, 2), dtype, codecs))
    assert decoded.tolist() == values.tolist()
    items = np.array([b"a", b"\xff"], object)
    codecs = (Codec("vlen-bytes"),)
    decoded = decode_chunk(encode_chunk(items, codecs), Encoding((2,), np.dtype(object), codecs))
    assert decoded.tolist() == items.tolist()


@pytest.mark.parametrize("name", ["zstd", "lz4", "blosclz", "zlib"])
@pytest.mark.parametrize("shuffle", ["noshuffle", "shuffle", "bitshuffle"])
def test_numcodecs_decodes_blosc(name, shuffle):
    values = image_like((40, 30), "f4")
    blosc = Codec.of("blosc", cname=name, clevel=1, shuffle=shuffle, typesize=4, blocksize=0)
    stored = encode_chunk(values, (bytes_codec(values.dtype), blosc))
    assert numcodecs.Blosc().decode(stored) == values.tobytes()
    assert encode_bytes_codecs(b"", (blosc,)) == encode_bytes_codecs(b"", (blosc,))
    written_by = numcodecs.blosc.cbuffer_complib(stored)
    assert written_by == {"zstd": "Zstd", "zlib": "Zlib", "lz4": "LZ4", "blosclz": "BloscLZ"}[name]


@pytest.mark.parametrize("element_bytes", [1, 2, 3, 4, 6, 8, 16])
def test_numcodecs_shuffles_alike(element_bytes):
    data = np.random.default_rng(0).bytes(48 * 7)
    stored = encode_bytes_codecs(data, (Codec.of("numcodecs.shuffle", elementsize=element_bytes),))
    assert stored == bytes(numcodecs.Shuffle(element_bytes).encode(data))


def test_what_shuffle_and_blosc_do_not_take():
    with pytest.raises(InvalidRequestError, match="7 bytes are no whole elements of 4"):
        encode_bytes_codecs(bytes(7), (Codec.of("numcodecs.shuffle", elementsize=4),))
    blosc = Codec.of("blosc", cname="lz4", clevel=1, shuffle="noshuffle", typesize=1, blocksize=0)
    with pytest.raises(InvalidRequestError, match="write smaller chunks"):
        encode_bytes_codecs(_Long(), (blosc,))


class _Long(bytes):
    """Bytes that say that they are too many."""

    def __len__(self):
        return 2**31


def test_gzip_is_gzip_and_carries_no_time():
    for data in (b"\1", b"\1\2", bytes(range(11)), bytes(range(256)) * 10):
        stored = encode_bytes_codecs(data, (Codec.of("gzip", level=6),))
        assert gzip.decompress(stored) == data
        assert stored[4:8] == bytes(4)
        assert zlib.decompress(stored, 31) == data


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_zarr_reads_what_is_encoded(tmp_path, chain):
    values = image_like((4, 3), "f4")
    array = zarr.create_array(
        tmp_path,
        shape=(4, 3),
        chunks=(4, 3),
        dtype="f4",
        compressors=[codec.to_json() for codec in chain] or None,
    )
    (tmp_path / "c/0").mkdir(parents=True)
    (tmp_path / "c/0/0").write_bytes(encode_chunk(values, (bytes_codec(values.dtype), *chain)))
    np.testing.assert_array_equal(array[...], values)


def test_other_codecs_are_refused():
    values = image_like((4, 3), "f4")
    with pytest.raises(InvalidRequestError, match="bz2"):
        encode_bytes_codecs(b"", (Codec("numcodecs.bz2"),))
    with pytest.raises(InvalidRequestError, match="transpose"):
        encode_chunk(values, (Codec.of("transpose", order=[1, 0]), Codec("bytes")))
    with pytest.raises(InvalidRequestError, match="object"):
        encode_chunk(np.array([1, None]), (Codec("bytes"),))
    with pytest.raises(InvalidRequestError, match="empty"):
        encode_chunk(values, ())
    for codecs in ((Codec("numcodecs.delta"),), (Codec("bytes"), Codec("blosc"))):
        with pytest.raises(InvalidRequestError):
            encode_chunk(values, codecs)
