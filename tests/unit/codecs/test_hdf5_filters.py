from __future__ import annotations

import hdf5plugin
import imagecodecs
import numpy as np
import pytest

from gridref.codecs import decode_chunk
from gridref.errors import DecodeError
from gridref.model.encoding import Codec
from tests.unit.codecs.support import (
    dataset_encoding,
    dataset_filters,
    encoding,
    image_like,
    same_bits,
    stored_chunks,
)


def check(dataset):
    """Compare with h5py; how many chunks the filters were applied to."""
    encoded = dataset_encoding(dataset)
    assert encoded is not None
    values = dataset[...]
    n_filtered = 0
    for raw, mask, place in stored_chunks(dataset):
        decoded = decode_chunk(raw, encoded, filter_mask=mask)
        cut = tuple(slice(0, part.stop - part.start) for part in place)
        assert same_bits(decoded[cut], values[place])
        n_filtered += mask == 0
        for size in (0, 3, 11, 14):
            if mask == 0 and size < len(raw) and dataset_filters(dataset)[-1][0] != 32013:
                with pytest.raises(DecodeError):
                    decode_chunk(raw[:size], encoded, filter_mask=mask)
    return n_filtered


DTYPES = ["<i2", ">i2", "<u1", "<i4", ">f4", "<f8", "<i8", "S3"]


def sample(dtype, shape=(61, 47)):
    if dtype == "S3":
        return np.array([b"ab%d" % (n // 7 % 3) for n in range(61 * 47)], "S3").reshape(shape)
    return image_like(shape, dtype)


FILTERS = {
    "lzf": {"compression": "lzf"},
    "gzip": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "bzip2": hdf5plugin.BZip2(),
    "lz4": hdf5plugin.LZ4(),
    "lz4 of small blocks": hdf5plugin.LZ4(nbytes=256),
    "zstd": hdf5plugin.Zstd(),
    "blosc": hdf5plugin.Blosc("lz4", shuffle=hdf5plugin.Blosc.BITSHUFFLE),
    "blosc2": hdf5plugin.Blosc2("zstd"),
    "blosc2 of filters": hdf5plugin.Blosc2("lz4", filters=hdf5plugin.Blosc2.BITSHUFFLE),
    "bitshuffle lz4": hdf5plugin.Bitshuffle(),
    "bitshuffle zstd": hdf5plugin.Bitshuffle(cname="zstd"),
    "bitshuffle": hdf5plugin.Bitshuffle(cname="none"),
    "bitshuffle of small blocks": hdf5plugin.Bitshuffle(nelems=64),
    "bitshuffle of small blocks, not compressed": hdf5plugin.Bitshuffle(nelems=64, cname="none"),
}


@pytest.mark.long(but=40)
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunks", [(61, 47), (16, 32), (7, 5), (1, 3)], ids=str)
def test_filters(file, name, dtype, chunks):
    data = sample(dtype)[: 2 * chunks[0] + 1, : 2 * chunks[1] + 1]
    n_filtered = check(file.create_dataset("v", data=data, chunks=chunks, **FILTERS[name]))
    # Some filters leave chunks as they are if nothing is gained.
    assert n_filtered or dtype != "S3" or chunks != (61, 47)


@pytest.mark.long(but=8)
@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<i4", "<i8"])
@pytest.mark.parametrize("chunks", [(61, 47), (16, 32), (1, 32)], ids=str)
@pytest.mark.parametrize(
    "options", [{"rate": 10}, {"precision": 14}, {"accuracy": 0.01}, {"reversible": True}], ids=str
)
def test_zfp(file, dtype, chunks, options):
    if "accuracy" in options and dtype[1] == "i":
        options = {"rate": 8}
    dataset = file.create_dataset(
        "v", data=sample(dtype), chunks=chunks, **hdf5plugin.Zfp(**options)
    )
    assert check(dataset)


def test_zfp_of_four_dimensions(file):
    values = image_like((5, 6, 7, 8), "f4")
    dataset = file.create_dataset("v", data=values, chunks=values.shape, **hdf5plugin.Zfp(rate=12))
    assert check(dataset)


def test_chunks_of_one_dimension(file):
    values = image_like((1000,), "i4")
    for name, options in FILTERS.items():
        check(file.create_dataset(name, data=values, chunks=(300,), **options))


def test_nothing_to_gain(file):
    """Filters switch themselves off, or store what they cannot compress."""
    values = np.random.default_rng(0).integers(0, 256, (40, 50), "u1")
    for name, options in FILTERS.items():
        check(file.create_dataset(name, data=values, chunks=(20, 25), **options))


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize(("block", "scanline"), [(8, 41), (4, 7), (32, 33), (10, 99), (16, 100)])
@pytest.mark.parametrize("options", [141, 169])
def test_szip_of_scanlines_with_padding(bits, block, scanline, options):
    values = image_like((60, 40), "f8")
    stored = imagecodecs.szip_encode(values.tobytes(), options, block, bits, scanline)
    codec = Codec.of("gridref.hdf5_szip", cd_values=[options, block, bits, scanline])
    size = values.nbytes.to_bytes(4, "little")
    np.testing.assert_array_equal(decode_chunk(size + stored, encoding(values, codec)), values)
    for n_kept in (0, len(stored) // 3, len(stored) // 2):  # what memory held came for the rest
        with pytest.raises(DecodeError, match="szip"):
            decode_chunk(size + stored[:n_kept], encoding(values, codec))


def test_quantized_floats_are_stored_as_they_are():
    values = image_like((10, 10), "f4")
    for name in ("bitgroom", "granularbr"):
        codec = Codec.of(f"gridref.hdf5_{name}", cd_values=[3, 4, 0, 0, 0])
        np.testing.assert_array_equal(
            decode_chunk(values.tobytes(), encoding(values, codec)), values
        )


def test_jpeg():
    values = np.clip(image_like((1, 40, 30), "i4") + 100, 0, 255).astype("u1")
    codec = Codec.of("gridref.hdf5_jpeg", cd_values=[100, 30, 40, 0])
    stored = imagecodecs.jpeg8_encode(values[0], level=90)
    decoded = decode_chunk(stored, encoding(values, codec))
    np.testing.assert_array_equal(decoded[0], imagecodecs.jpeg8_decode(stored))
    with pytest.raises(DecodeError, match=r"out\.shape"):
        decode_chunk(stored, encoding(values, codec), (1, 30, 40))
    for name in ("jpeg", "jpegls"):
        with pytest.raises(DecodeError, match="no end of image"):
            decode_chunk(stored[:-2], encoding(values, Codec(f"gridref.hdf5_{name}")))


def test_blosc2_frames_without_dimensions(file):
    for name, values in {
        "numbers": image_like((1000,), "i4"),
        "zeros": np.zeros(1000, "f8"),
        "nan": np.full(1000, np.nan, "f4"),
        "text": np.array([b"ab", b"c"] * 500, "S5"),
    }.items():
        options = hdf5plugin.Blosc2("lz4", filters=hdf5plugin.Blosc2.SHUFFLE)
        assert check(file.create_dataset(name, data=values, chunks=(300,), **options))


@pytest.mark.parametrize("seed", range(16))
def test_blosc2_frames_with_dimensions(file, seed):
    """Blocks that are no part of their chunk are stored padded, as PyTables writes them."""
    numbers = np.random.default_rng(seed)
    chunk = numbers.integers(1, 12, numbers.integers(2, 5))
    block = numbers.integers(1, chunk + 1)
    values = image_like(tuple(2 * chunk - (chunk > 1)), DTYPES[seed % 7])
    cd_values = (1, 0, values.itemsize, values[tuple(map(slice, chunk))].nbytes, 5, 1, 1)
    dataset = file.create_dataset(
        "v", values.shape, values.dtype, chunks=tuple(chunk), compression=32026,
        compression_opts=(*cd_values, len(chunk), *chunk),
    )  # fmt: skip
    for place in np.ndindex(*[2] * len(chunk)):
        start = place * chunk
        window = tuple(slice(n, n + size) for n, size in zip(start, chunk, strict=True))
        part = values[window]
        padded = np.pad(part, [(0, size - n) for n, size in zip(part.shape, chunk, strict=True)])
        stored = imagecodecs.b2nd_encode(padded, chunkshape=tuple(chunk), blockshape=tuple(block))
        dataset.id.write_direct_chunk(tuple(start), stored)
    assert same_bits(dataset[...], values)
    check(dataset)
