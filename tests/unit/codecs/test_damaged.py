"""Streams that are cut, and numbers in them that cannot be: refused, saying what is wrong."""

from __future__ import annotations

import bz2
import gzip
import itertools
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import imagecodecs
import numcodecs
import numpy as np
import pytest
import rasterio

import gridref
from gridref.codecs import decode_chunk, why_not
from gridref.codecs.blosc2 import Blosc2Frame
from gridref.codecs.core import _zstd_content_bytes
from gridref.codecs.encode import REWRAP_BYTES, gzip_from_zlib
from gridref.codecs.stage import decompressed
from gridref.errors import DecodeError
from gridref.limits import limits
from gridref.model.encoding import Codec
from tests.unit.codecs.support import dataset_encoding, encoding


def stored(values: Any, **filters: Any) -> tuple[bytes, Any]:
    """The one chunk of a dataset, and its encoding."""
    with h5py.File("a.h5", "w", driver="core", backing_store=False) as file:
        dataset = file.create_dataset("v", data=values, chunks=values.shape, **filters)
        _, raw = dataset.id.read_direct_chunk((0,) * values.ndim)
        return bytes(raw), dataset_encoding(dataset)


VALUES = np.repeat(np.arange(64, dtype="<i4"), 4)


@pytest.mark.parametrize("cname", ["lz4", "zstd"])
def test_bitshuffle_cut_anywhere(cname: str) -> None:
    raw, kind = stored(VALUES, **hdf5plugin.Bitshuffle(nelems=64, cname=cname))
    np.testing.assert_array_equal(decode_chunk(raw, kind, VALUES.shape), VALUES)
    n_first = int.from_bytes(raw[12:16], "big")
    for stop in (
        12,
        13,
        15,
        16,
        17,
        16 + n_first - 1,
        16 + n_first,
        16 + n_first + 3,
        len(raw) - 1,
    ):
        with pytest.raises(DecodeError, match="blocks end behind the data"):
            decode_chunk(raw[:stop], kind, VALUES.shape)
    for stop in range(12):
        with pytest.raises(DecodeError, match=r"bytes"):
            decode_chunk(raw[:stop], kind, VALUES.shape)
    with pytest.raises(DecodeError, match="1 byte left over behind the blocks"):
        decode_chunk(raw + b"x", kind, VALUES.shape)


@pytest.mark.parametrize("nelems", [0, 8, 64, 2048])
@pytest.mark.parametrize("dtype", ["u1", "<i2", "<f8", "S3", "S700"])
def test_bits_of_any_block_size(nelems: int, dtype: str) -> None:
    longest = 5003 if dtype != "S700" else 103
    for n, cname in itertools.product((1, 7, 8, 65, longest), ("none", "lz4")):
        values = (np.arange(n) % 251).astype("u1").astype(dtype)
        raw, kind = stored(values, **hdf5plugin.Bitshuffle(nelems=nelems, cname=cname))
        np.testing.assert_array_equal(decode_chunk(raw, kind, values.shape), values, str(n))


@pytest.mark.parametrize("bits", [1, 31, 32, 33, 35, 36, 40])
def test_scaleoffset_of_more_bits_than_there_are(bits: int) -> None:
    values = np.arange(8, dtype="<i4")
    codec = Codec.of("gridref.hdf5_scaleoffset", cd_values=[2, bits, 8, 0, 4, 1, 0, 0])
    if bits == 32:
        found = decode_chunk(values.tobytes(), encoding(values, codec), values.shape)
        np.testing.assert_array_equal(found, values)
        return
    with pytest.raises(DecodeError, match="bits are more than" if bits > 32 else "bytes"):
        decode_chunk(values.tobytes()[:20], encoding(values, codec), values.shape)


@pytest.mark.parametrize("n_bytes", [1, 255, 256, 65791, 65792, 70000])
def test_sizes_that_zstd_frames_say(n_bytes: int) -> None:
    frame = imagecodecs.zstd_encode(bytes(n_bytes))
    values = np.zeros(n_bytes, "u1")
    found = decode_chunk(frame, encoding(values, Codec("zstd")), values.shape)
    np.testing.assert_array_equal(found, values)
    # The size is not known before a codec that changes it.
    inner = imagecodecs.zstd_encode(imagecodecs.zlib_encode(bytes(n_bytes)))
    chain = encoding(values, Codec("numcodecs.zlib"), Codec("zstd"))
    np.testing.assert_array_equal(decode_chunk(inner, chain, values.shape), values)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("dictionary", range(4))
@pytest.mark.parametrize("code", range(4))
def test_where_zstd_frames_say_their_size(single: bool, dictionary: int, code: int) -> None:
    """RFC 8878, 3.1.1.1: window descriptor, dictionary and content size."""
    width = (int(single), 2, 4, 8)[code]
    size = (1 << 8 * width >> 1) + 7
    frame = b"\x28\xb5\x2f\xfd" + bytes([code << 6 | single << 5 | dictionary])
    frame += b"" if single else b"\x50"
    frame += b"\xee" * (0, 1, 2, 4)[dictionary]
    frame += (size - 256 if width == 2 else size).to_bytes(width, "little") if width else b""
    assert _zstd_content_bytes(frame + b"\xaa" * 9) == (size if width else None)
    assert _zstd_content_bytes(b"\x29" + frame[1:] + bytes(9)) is None
    assert _zstd_content_bytes(frame[:5]) is None


def test_zstd_frames_of_the_least_size() -> None:
    assert _zstd_content_bytes(b"\x28\xb5\x2f\xfd\x20\x07") == 7
    assert _zstd_content_bytes(b"\x28\xb5\x2f\xfd\x20") is None


def test_a_zlib_stream_becomes_a_gzip_member_of_its_size() -> None:
    data = np.arange(200, dtype="u1")
    for behind in (b"", b"x", b"12345"):
        stream = imagecodecs.zlib_encode(data) + behind
        member = gzip_from_zlib(stream, data)
        assert gzip.decompress(member) == data.tobytes()
        assert len(member) == len(stream) + REWRAP_BYTES


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("compression", ["CCITTRLE", "CCITTFAX3", "CCITTFAX4"])
def test_black_and_white_streams_cut_short(tmp_path: Path, compression: str) -> None:
    """GDAL writes them, and what is cut off, or zeros instead, would be white."""
    pixels = np.random.default_rng(2).integers(0, 2, (40, 64)).astype("u1")
    profile: dict[str, Any] = {"width": 64, "height": 40, "count": 1, "dtype": "uint8", "nbits": 1}
    profile |= {"driver": "GTiff", "compress": compression, "blockysize": 40}
    place = rasterio.Affine(1, 0, 0, 0, -1, 0)
    with rasterio.open(tmp_path / "a.tif", "w", transform=place, crs=4326, **profile) as file:
        file.write(pixels, 1)
    arrays = gridref.scan(tmp_path / "a.tif").all_arrays().values()
    array = next(array for array in arrays if array.dtype == bool)
    (manifest,), (kind,) = array.manifests, array.encodings
    start, length = int(manifest.offset[0]), int(manifest.length[0])
    raw = (tmp_path / "a.tif").read_bytes()[start : start + length]
    np.testing.assert_array_equal(decode_chunk(raw, kind).reshape(40, 64), pixels)
    for n_zeros in (0, 1, 2, 100):
        np.testing.assert_array_equal(
            decode_chunk(raw + bytes(n_zeros), kind).reshape(40, 64), pixels
        )
        for stop in (length // 4, length // 2, length - 12):
            with pytest.raises(DecodeError, match=r"cut short|Ccitt|decodes to"):
                decode_chunk(raw[:stop] + bytes(n_zeros), kind)


def test_blosc_buffers_are_right_about_both_sizes() -> None:
    values = (np.arange(1000) % 7).astype("u1")
    raw = bytes(numcodecs.Blosc("lz4").encode(values))
    kind = encoding(values, Codec("blosc"))
    np.testing.assert_array_equal(decode_chunk(raw, kind), values)

    def with_bits(place: int, bits: int) -> bytes:
        word = int.from_bytes(raw[place : place + 4], "little") ^ bits
        return raw[:place] + word.to_bytes(4, "little") + raw[place + 4 :]

    for bit in (0, 9, 18, 31):  # every byte of a size counts
        with pytest.raises(DecodeError, match=f"header says {1000 ^ 1 << bit} bytes are decoded"):
            decode_chunk(with_bits(4, 1 << bit), kind)
        with pytest.raises(DecodeError, match=f"bytes are stored, got {len(raw)}"):
            decode_chunk(with_bits(12, 1 << bit), kind)
    for other in (raw[:-1], raw + b"\0", raw[:16]):
        with pytest.raises(DecodeError, match=f"bytes are stored, got {len(other)}"):
            decode_chunk(other, kind)
    for n_bytes in (0, 15):
        with pytest.raises(DecodeError, match="too few for a header"):
            decode_chunk(raw[:n_bytes], kind)


def test_blosc_buffers_before_another_codec_say_how_large_they_are() -> None:
    values = (np.arange(1000) % 7).astype("u1")
    kind = encoding(values, Codec("numcodecs.zlib"), Codec("blosc"))
    raw = bytes(numcodecs.Blosc("lz4").encode(imagecodecs.zlib_encode(values)))
    np.testing.assert_array_equal(decode_chunk(raw, kind), values)
    huge = raw[:4] + (limits().decoded_bytes + 1).to_bytes(4, "little") + raw[8:]
    with pytest.raises(DecodeError, match="bytes are decoded"):
        decode_chunk(huge, kind)


@pytest.mark.parametrize("n_streams", [1, 2, 3])
@pytest.mark.parametrize("more", [-1, 0, 1, 1000])
def test_streams_hold_no_more_than_was_said(n_streams: int, more: int) -> None:
    parts = [bytes([number]) * (50 + number) for number in range(n_streams)]
    raw = b"".join(map(bz2.compress, parts))
    size = sum(map(len, parts))
    if more < 0:
        with pytest.raises(ValueError, match=f"decompresses to more than {size + more} bytes"):
            decompressed(bz2.BZ2Decompressor, raw, size + more)
    else:
        assert decompressed(bz2.BZ2Decompressor, raw, size + more) == b"".join(parts)
    for stop in (1, len(raw) // 2 // n_streams, len(raw) - 1):
        with pytest.raises(ValueError, match="cut short"):
            decompressed(bz2.BZ2Decompressor, raw[:stop], size + 1000)


def frame_of(parts: list[Any], size: int, chunk_bytes: int, item_bytes: int) -> bytes:
    """A Blosc2 frame; numbers stand for chunks of a repeated value (README_CFRAME_FORMAT)."""
    data, offsets = b"", []
    for part in parts:
        offsets.append(len(data) if isinstance(part, bytes) else -(1 << 63) | part << 56)
        data += part if isinstance(part, bytes) else b""
    index = imagecodecs.blosc2_encode(np.array(offsets, "<i8"))
    header = bytearray(96)
    header[:10] = b"\x9e\xa8b2frame\0"
    fields = {11: 96, 48: item_bytes, 58: chunk_bytes}
    wide = {16: 96 + len(data) + len(index), 30: size, 39: len(data)}
    for place, number in fields.items():
        header[place : place + 4] = number.to_bytes(4, "big")
    for place, number in wide.items():
        header[place : place + 8] = number.to_bytes(8, "big")
    return bytes(header) + data + index


@pytest.mark.parametrize("n", [1, 5, 10, 11, 25])
@pytest.mark.parametrize("code", ["<f4", "<f8", "<i2"])
def test_frames_of_several_chunks(n: int, code: str) -> None:
    values = np.arange(n).astype(code)
    parts = [imagecodecs.blosc2_encode(values[at : at + 10]) for at in range(0, n, 10)]
    item_bytes = values.itemsize
    frame = frame_of(parts, values.nbytes, 10 * item_bytes, item_bytes)
    np.testing.assert_array_equal(Blosc2Frame(frame).decode().view(code), values)


@pytest.mark.parametrize("code", ["<f4", "<f8", "<i2"])
def test_frames_of_repeated_values(code: str) -> None:
    first = np.arange(10).astype(code)
    n_bytes = first.nbytes
    encoded = imagecodecs.blosc2_encode(first)
    zeros = frame_of([encoded, 1], 2 * n_bytes, n_bytes, first.itemsize)
    expected = np.concatenate([first, np.zeros(10, code)])
    np.testing.assert_array_equal(Blosc2Frame(zeros).decode().view(code), expected)
    nans = Blosc2Frame(frame_of([2, encoded], 2 * n_bytes, n_bytes, first.itemsize))
    if code == "<i2":
        with pytest.raises(ValueError, match="kind 2 is not supported"):
            nans.decode()
    else:
        expected = np.concatenate([np.full(10, np.nan), first]).astype(code)
        np.testing.assert_array_equal(nans.decode().view(code), expected)
    other = Blosc2Frame(frame_of([4], n_bytes, n_bytes, first.itemsize))
    with pytest.raises(ValueError, match="kind 4 is not supported"):
        other.decode()


@pytest.mark.parametrize("values", [[0, 2, 4], [0, 2, 4, 0], [0, 2, 4, 64], [0, 2, 4, 0, 0]])
def test_bitshuffle_says_as_little_as_may_be(values: list[int]) -> None:
    """Block size and compression may be left out."""
    numbers = np.arange(4100, dtype="<i4")
    raw, _ = stored(
        numbers, **hdf5plugin.Bitshuffle(nelems=values[3] if values[3:] else 0, cname="none")
    )
    codec = Codec.of("gridref.hdf5_bitshuffle", cd_values=values)
    assert why_not(codec) is None
    np.testing.assert_array_equal(decode_chunk(raw, encoding(numbers, codec)), numbers)
