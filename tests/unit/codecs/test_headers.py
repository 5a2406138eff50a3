"""Headers byte by byte: what they say is believed where it can be, and nothing else."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Any

import imagecodecs
import numcodecs
import numpy as np
import pytest

from gridref.codecs import decode_chunk, encode_chunk, why_not
from gridref.codecs.blosc2 import Blosc2Frame, one_chunk
from gridref.codecs.core import _BLOCK_BYTES, unshuffle
from gridref.codecs.hdf5 import _scaling, _without_leading_ones
from gridref.codecs.numcodecs_codecs import ZfpHeader
from gridref.codecs.stage import ArraySpec, decompressed, without_unit_axes
from gridref.codecs.tiff import (
    _complex_stored_bytes,
    _float24_stored_bytes,
    _jpegxr_bytes,
    _packints_stored_bytes,
    _rgb_bits_stored_bytes,
    _segment,
    split_jpeg_tables,
)
from gridref.errors import DecodeError
from gridref.model.encoding import Codec, Encoding
from tests.unit.codecs.support import encoding, image_like

U1 = np.dtype("u1")


# JPEG tables and JPEG XR directories


SOI, EOI, SCAN = b"\xff\xd8", b"\xff\xd9", b"\xff\xda"


def marker(n_bytes: int, kind: int = 0xDB) -> bytes:
    return (
        bytes([0xFF, kind])
        + (n_bytes + 2).to_bytes(2, "big")
        + b"\xff\xd9"[:n_bytes].ljust(n_bytes, b"\0")
    )


@pytest.mark.parametrize(
    "segments", [b"", marker(5), marker(2), marker(300) + marker(0, 0xC4)], ids=range(4)
)
@pytest.mark.parametrize("image", [SOI + marker(3) + SCAN + b"..." + EOI, SOI])
def test_tables_end_at_their_end_of_image(segments: bytes, image: bytes) -> None:
    tables = SOI + segments + EOI
    assert split_jpeg_tables(tables + image) == (tables, image)


@pytest.mark.parametrize(
    "stream",
    [
        SOI + marker(5) + SCAN + b"\0\2" + EOI + SOI,
        marker(5) + EOI + SOI,
        SOI + b"\0" + EOI,
        SOI + marker(5),
        b"",
    ],
)
def test_a_stream_without_tables_is_an_image(stream: bytes) -> None:
    assert split_jpeg_tables(stream) == (None, stream)


def jpegxr(entries: dict[int, int], start: int = 8, magic: bytes = b"II\xbc\x01") -> bytes:
    listed = b"".join(struct.pack("<HHII", tag, 4, 1, at) for tag, at in entries.items())
    head = magic + struct.pack("<I", start) + bytes(start - 8)
    return head + struct.pack("<H", len(entries)) + listed


@pytest.mark.parametrize(
    ("entries", "size"),
    [
        ({0xBCC0: 100, 0xBCC1: 50}, 150),
        ({0xBCC0: 100, 0xBCC1: 50, 0xBCC2: 120, 0xBCC3: 140}, 150),
        ({0xBCC0: 100, 0xBCC1: 50, 0xBCC2: 150, 0xBCC3: 170}, 170),
        ({0xBCC0: 100, 0xBCC1: 50, 0xBCC2: 190, 0xBCC3: 170}, 190),
        ({0xBC01: 7}, 0),
    ],
)
def test_how_many_bytes_a_jpeg_xr_file_has(entries: dict[int, int], size: int) -> None:
    for start in (8, 20):
        assert _jpegxr_bytes(jpegxr(entries, start)) == size
        assert _jpegxr_bytes(jpegxr(entries, start) + b"more") == size


@pytest.mark.parametrize(
    "data",
    [
        jpegxr({}),
        jpegxr({0xBCC0: 1}, magic=b"II\xbb\x01"),
        jpegxr({0xBCC0: 1})[:-1],
        b"",
        b"II\xbc\x01",
    ],
)
def test_what_is_no_jpeg_xr_file(data: bytes) -> None:
    with pytest.raises(ValueError, match="is no JPEG XR file"):
        _jpegxr_bytes(data)


@pytest.mark.parametrize(
    ("shape", "of_jpeg", "of_jpegls"),
    [
        ((1, 4, 5), (4, 5), (4, 5)),
        ((1, 1, 5), (5,), (1, 5)),
        ((3, 4, 5), (3, 4, 5), (3, 4, 5)),
        ((1, 3, 4, 5), (3, 4, 5), (3, 4, 5)),
        ((4, 5, 1), (4, 5), (4, 5, 1)),
        ((1, 1), (), (1, 1)),
    ],
)
def test_which_axes_are_those_of_an_image(
    shape: tuple[int, ...], of_jpeg: tuple[int, ...], of_jpegls: tuple[int, ...]
) -> None:
    assert without_unit_axes(shape) == of_jpeg
    assert _without_leading_ones(shape) == of_jpegls


@pytest.mark.parametrize("dtype", ["u1", "<u2"])
def test_rows_of_a_segment_follow_from_its_bytes(dtype: str) -> None:
    config = {"width": 4, "samples": 3}
    item = np.dtype(dtype).itemsize
    assert _segment(config, 24 * item, ArraySpec((9, 9), np.dtype(dtype))) == (2, 4, 3)
    assert _segment(config, None, ArraySpec((5, 4, 3), np.dtype(dtype))) == (5, 4, 3)
    with pytest.raises(ValueError, match="are no rows of 4 pixels of 3 samples"):
        _segment(config, 24 * item + 1, ArraySpec((9, 9), np.dtype(dtype)))


# Blosc and Blosc2


@pytest.mark.parametrize(
    ("size", "n_bytes", "fits"),
    [
        (16, 16, True),
        (16, 20, True),
        (20, 20, True),
        (21, 20, False),
        (15, 20, False),
        (0, 20, False),
    ],
)
def test_chunks_of_a_frame_lie_inside_of_it(size: int, n_bytes: int, fits: bool) -> None:
    data = bytes(12) + size.to_bytes(4, "little") + bytes(range(100, 100 + n_bytes - 16))
    if fits:
        assert one_chunk(data) == data[:size]
    else:
        with pytest.raises(ValueError, match=f"a chunk of {size} bytes"):
            one_chunk(data)


def frame(chunk_bytes: int = 8, stored: int = 0, n_bytes: int = 100) -> bytes:
    """The head of a frame: its sizes at their places."""
    data = bytearray(n_bytes)
    data[1:10] = b"\xa8b2frame\0"
    data[11:15] = (87).to_bytes(4, "big")
    data[16:24] = (n_bytes + stored).to_bytes(8, "big")
    data[30:38] = (16).to_bytes(8, "big")
    data[48:52] = (4).to_bytes(4, "big")
    data[58:62] = chunk_bytes.to_bytes(4, "big", signed=True)
    return bytes(data)


def test_frames_say_their_sizes() -> None:
    assert Blosc2Frame(frame()).decoded_bytes == 16
    assert Blosc2Frame(frame(n_bytes=87)).decoded_bytes == 16
    for wrong in (frame(stored=1), frame(stored=-1)):
        with pytest.raises(ValueError, match="bytes are stored, got 100"):
            Blosc2Frame(wrong)
    for wrong in (frame()[:86], b"", b"\0" + frame()[1:5] + b"x" + frame()[6:]):
        with pytest.raises(ValueError, match="is no Blosc2 frame"):
            Blosc2Frame(wrong)
    for chunk_bytes in (0, -1):
        with pytest.raises(ValueError, match="chunks have"):
            Blosc2Frame(frame(chunk_bytes)).decode()


# Bitshuffle


@pytest.mark.parametrize(
    ("compression", "encode"), [(2, imagecodecs.lz4_encode), (3, imagecodecs.zstd_encode)]
)
@pytest.mark.parametrize("more", [-4, 0, 4])
def test_blocks_decode_to_what_they_are_to_hold(compression: int, encode: Any, more: int) -> None:
    """Blocks of 8 elements of 4 bytes, whose transposed bits are the same as bytes of 0."""
    codec = Codec.of("gridref.hdf5_bitshuffle", cd_values=[0, 3, 4, 8, compression])
    form = Encoding((19,), np.dtype("<i4"), (Codec.of("bytes", endian="little"), codec))
    blocks = [bytes(encode(bytes(32))), bytes(encode(bytes(32 + more)))]
    raw = (76).to_bytes(8, "big") + (32).to_bytes(4, "big")
    raw += b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    raw += np.arange(3, dtype="<i4").tobytes()
    if more == 0:
        assert decode_chunk(raw, form).tolist() == [0] * 16 + [0, 1, 2]
        for size in (28, 0, 36, 32 | 1 << 24):  # of blocks of 7, no, 9 and very many elements
            wrong = raw[:8] + size.to_bytes(4, "big") + raw[12:]
            with pytest.raises(DecodeError, match=f"blocks of {size} bytes|expected 64"):
                decode_chunk(wrong, form)
    else:
        with pytest.raises(DecodeError):
            decode_chunk(raw, form)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_streams_of_zfp_are_never_longer_than_what_is_kept_for_them(dtype: str, rank: int) -> None:
    """Noise of all bits, which no stream can hold in fewer."""
    noise = np.random.default_rng(0).integers(0, 256, (4**rank * 8, 8), np.uint8)
    values = np.nan_to_num(noise.view(dtype).reshape(-1)[: 8 * 4**rank], posinf=1, neginf=1)
    values = values.reshape((32, *[4] * (rank - 1)))
    stream = imagecodecs.zfp_encode(np.ascontiguousarray(values))
    header = ZfpHeader.from_bytes(stream)
    assert len(stream) <= header._max_stream_bytes  # noqa: SLF001
    for behind in (b"", bytes(4096)):
        found = header.decode(stream + behind)
        np.testing.assert_array_equal(found.reshape(values.shape), values)


@pytest.mark.parametrize(
    ("name", "compress", "behind", "fits"),
    [
        ("numcodecs.zlib", zlib.compress, b"", True),
        ("numcodecs.zlib", zlib.compress, b"junk", True),
        ("gzip", gzip.compress, b"", True),
        ("gzip", gzip.compress, bytes(5), True),
        ("gzip", gzip.compress, gzip.compress(b"more"), True),
        ("gzip", gzip.compress, b"junk", False),
    ],
    ids=range(6),
)
def test_what_lies_behind_a_stream_of_unknown_size(
    name: str, compress: Any, behind: bytes, fits: bool
) -> None:
    values = image_like((9,), "i4")
    stored = compress(zlib.compress(values.tobytes())) + behind
    form = encoding(values, Codec("numcodecs.zlib"), Codec(name))
    if fits:
        np.testing.assert_array_equal(decode_chunk(stored, form), values)
    else:
        with pytest.raises(DecodeError):
            decode_chunk(stored, form)


@pytest.mark.parametrize("n_bytes", [1000, 300_000, 3_000_000])
def test_frames_of_zstd_that_hold_more_than_the_first_says(n_bytes: int) -> None:
    """Behind another codec, nothing says how large what they hold is."""
    values = np.zeros(n_bytes, "u1")
    inner = zlib.compress(values.tobytes(), 0)
    frames = [numcodecs.Zstd().encode(part) for part in (inner[:9], inner[9:])]
    form = encoding(values, Codec("numcodecs.zlib"), Codec("zstd"))
    np.testing.assert_array_equal(decode_chunk(b"".join(frames), form), values)
    with pytest.raises(DecodeError):
        decode_chunk(b"".join(frames)[:-3], form)


# N-Bit and Scale-Offset


@pytest.mark.parametrize(("offset", "fits"), [(0, True), (4, True), (5, False), (8, False)])
def test_members_lie_inside_of_their_compound(offset: int, fits: bool) -> None:
    member = [offset, 1, 4, 0, 32, 0]
    codec = Codec.of("gridref.hdf5_nbit", cd_values=[12, 0, 1, 3, 8, 1, *member])
    assert (why_not(codec) is None) == fits


@pytest.mark.parametrize("offset", [0, 2, 4])
def test_one_number_in_a_larger_compound(offset: int) -> None:
    member = [offset, 1, 4, 0, 31, 0]
    codec = Codec.of("gridref.hdf5_nbit", cd_values=[12, 0, 2, 3, 8, 1, *member])
    form = Encoding((2, 8), U1, (Codec("bytes"), codec))
    raw = (5 << 33 | 7 << 2).to_bytes(8, "big")  # two numbers of 31 bits
    found = decode_chunk(raw, form)[:, offset : offset + 4].tobytes()
    assert np.frombuffer(found, "<u4").tolist() == [5, 7]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 12])
def test_numbers_of_any_size_lose_no_bits(size: int) -> None:
    """Little-endian, all bits but the highest kept."""
    numbers = [0, 1, (1 << 8 * size - 1) - 1, 3 << 8 * size - 3]
    bits = "".join(f"{n:0{8 * size - 1}b}" for n in numbers)
    raw = int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8), "big")
    values = [8, 0, 4, 1, size, 0, 8 * size - 1, 0]
    codec = Codec.of("gridref.hdf5_nbit", cd_values=values)
    form = Encoding((4, size), U1, (Codec("bytes"), codec))
    found = decode_chunk(raw, form)
    assert found.tobytes() == b"".join(n.to_bytes(size, "little") for n in numbers)


@pytest.mark.parametrize(
    ("factor", "decimals"),
    [(0, 0), (7, 7), ((1 << 31) - 1, (1 << 31) - 1), (1 << 31, -(1 << 31)), ((1 << 32) - 2, -2)],
)
def test_scale_factors_have_a_sign(factor: int, decimals: int) -> None:
    assert _scaling([0, factor, 6, 1, 4, 0, 0, 0]).decimals == decimals
    assert _scaling([2, factor, 6, 0, 4, 0, 0, 0]).width == decimals


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_differences_are_taken_along_any_axis(axis: int) -> None:
    values = image_like((4, 5, 3), "i2")
    stored = np.diff(values, axis=axis, prepend=0 * np.take(values, [0], axis))
    form = encoding(values, before=(Codec.of("gridref.tiff_predictor", predictor=2, axis=axis),))
    np.testing.assert_array_equal(decode_chunk(stored.astype("i2").tobytes(), form), values)


# Shuffle


@pytest.mark.parametrize("element_bytes", [1, 2, 3, 4, 8, 255, 256])
@pytest.mark.parametrize("n_behind", [0, 1])
def test_shuffled_bytes_of_every_number_of_elements(element_bytes: int, n_behind: int) -> None:
    step = _BLOCK_BYTES // element_bytes
    for n in (0, 1, 2, 9, step - 1, step, step + 1):
        values = np.arange(n * element_bytes + n_behind * (element_bytes > 1)).astype("u1")
        whole = values[: n * element_bytes].reshape(n, element_bytes).T.reshape(-1)
        stored = np.concatenate([whole, values[n * element_bytes :]])
        found = np.frombuffer(unshuffle(stored, element_bytes), "u1")
        assert np.array_equal(found, values)
        out = np.full(len(values), 9, "u1")
        assert unshuffle(stored, element_bytes, out) is out
        assert np.array_equal(out, values)


@pytest.mark.parametrize(
    ("name", "values", "n_header"),
    [
        ("szip", [141, 4, 32, 10], 4),
        ("lz4", [], 12),
        ("bitshuffle", [0, 3, 4, 0, 2], 12),
        ("bitshuffle", [0, 3, 4, 0, 3], 12),
    ],
)
def test_headers_are_whole(name: str, values: list[int], n_header: int) -> None:
    codec = Codec.of(f"gridref.hdf5_{name}", cd_values=values)
    for n_bytes in range(14):
        with pytest.raises(DecodeError) as caught:
            decode_chunk(b"\1" * n_bytes, encoding(np.zeros(9, "i4"), codec))
        assert ("too few for a header" in str(caught.value)) == (n_bytes < n_header), n_bytes


@pytest.mark.parametrize(
    ("name", "values", "order", "n_size"),
    [
        ("szip", [141, 4, 32, 10], "little", 4),
        ("lz4", [], "big", 8),
        ("bitshuffle", [0, 3, 4, 0, 2], "big", 8),
    ],
)
def test_every_byte_of_a_size_counts(name: str, values: list[int], order: Any, n_size: int) -> None:
    codec = Codec.of(f"gridref.hdf5_{name}", cd_values=values)
    form = encoding(np.zeros(100, "i4"), codec)
    for size in (*(400 ^ 1 << 8 * byte for byte in range(n_size)), (1 << 8 * n_size) - 1):
        raw = size.to_bytes(n_size, order) + (32).to_bytes(4, "big") + bytes(500)
        with pytest.raises(DecodeError, match=f"header says {size} bytes are decoded"):
            decode_chunk(raw, form)


@pytest.mark.parametrize("name", ["crc32", "adler32", "jenkins_lookup3", "fletcher32"])
def test_checksums_of_nothing(name: str) -> None:
    codec = numcodecs.get_codec({"id": name})
    form = encoding(np.zeros(1, "u1"), Codec(f"numcodecs.{name}"))
    stored = bytes(4) if name == "fletcher32" else bytes(codec.encode(b""))
    assert decode_chunk(stored, form, (0,)).shape == (0,)
    with pytest.raises(DecodeError):
        decode_chunk(stored[:3], form, (0,))


@pytest.mark.parametrize("dtype", ["S0", "U0", "V0"])
def test_elements_without_bytes(dtype: str) -> None:
    form = Encoding((2, 3), np.dtype(dtype), (Codec("bytes"),))
    found = decode_chunk(b"", form)
    assert (found.shape, found.dtype) == ((2, 3), np.dtype(dtype))
    with pytest.raises(DecodeError, match="has 1 byte, expected 0"):
        decode_chunk(b"x", form)


@pytest.mark.parametrize(
    ("stored_bytes", "config", "dtype", "decoded", "stored"),
    [
        (_float24_stored_bytes, {}, "f4", 8, 6),
        (_complex_stored_bytes, {"bits": 8}, "c8", 16, 4),
        (_complex_stored_bytes, {"bits": 16}, "c8", 16, 8),
        (_rgb_bits_stored_bytes, {"bits": [5, 6, 5], "dtype": "u1"}, "u1", 12, 8),
        (_packints_stored_bytes, {"bits": 4, "dtype": "u1", "run_length": 3}, "u1", 9, 6),
        (_packints_stored_bytes, {"bits": 12, "dtype": "u2", "run_length": 2}, "u2", 8, 6),
    ],
    ids=range(6),
)
def test_how_many_bytes_packed_elements_take(
    stored_bytes: Any, config: dict[str, Any], dtype: str, decoded: int, stored: int
) -> None:
    spec = ArraySpec((9,), np.dtype(dtype))
    assert stored_bytes(config, decoded, spec) == stored
    assert stored_bytes(config, None, spec) is None


def test_the_smallest_block_of_lz4() -> None:
    form = encoding(np.zeros(1, "u1"), Codec("numcodecs.lz4"))
    assert decode_chunk(bytes(5), form, (0,)).shape == (0,)


def test_crc32c_of_nothing() -> None:
    form = encoding(np.zeros(1, "u1"), Codec("crc32c"))
    assert decode_chunk(bytes(4), form, (0,)).shape == (0,)
    for wrong in (bytes(3), b"\1\0\0\0"):
        with pytest.raises(DecodeError, match="crc32c"):
            decode_chunk(wrong, form, (0,))


# Bounded decompression


class Stream:
    """Gives what it is given, two bytes to a stream."""

    def __init__(self) -> None:
        self.eof, self.unused_data = False, b""

    def decompress(self, data: Any, max_length: int = -1) -> bytes:
        data = bytes(data)
        self.eof, self.unused_data = len(data) >= 2, data[2:]
        return data[:2][:max_length]


def test_streams_one_behind_the_other() -> None:
    assert decompressed(Stream, b"abcd", 4) == b"abcd"
    assert decompressed(Stream, b"abcd", 5) == b"abcd"
    assert decompressed(Stream, b"abcd", 9, lambda rest: False) == b"ab"
    with pytest.raises(ValueError, match="more than 3 bytes"):
        decompressed(Stream, b"abcd", 3)
    for cut in (b"abc", b"", b"a"):
        with pytest.raises(ValueError, match="cut short"):
            decompressed(Stream, cut, 9)


# Texts


def items(*texts: bytes, n: int | None = None) -> bytes:
    parts = [struct.pack("<I", len(texts) if n is None else n)]
    return b"".join([*parts, *(struct.pack("<I", len(text)) + text for text in texts)])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (items(b"a"), "holds 1 items, expected 2"),
        (b"", "holds no items"),
        (b"\2\0\0", "holds no items"),
        (items(b"a", n=2), "end behind the data"),
        (items(b"a", b"bc")[:-1], "end behind the data"),
        (items(b"a").replace(b"\1", b"\2", 1) + b"\1\0\0", "end behind the data"),
        (items(b"a", b"bc") + b"x", "1 byte left over"),
    ],
)
@pytest.mark.parametrize("name", ["vlen-utf8", "vlen-bytes"])
def test_items_that_do_not_fit(data: bytes, message: str, name: str) -> None:
    dtype = np.dtype(object) if name == "vlen-bytes" else np.dtype(np.dtypes.StringDType())
    with pytest.raises(DecodeError, match=message):
        decode_chunk(data, Encoding((2,), dtype, (Codec(name),)))


# Chains


PNG = Codec.of("gridref.tiff_png", width=3, samples=1)
CCITT = Codec.of("gridref.tiff_ccitt", scheme="rle", width=8, samples=1)
MISFITS: list[tuple[str, tuple[Codec, ...], tuple[Codec, ...], str]] = [
    ("?", (Codec.of("scale_offset", scale=1, offset=0),), (), "does not apply to dtype bool"),
    ("S2", (Codec("packbits"),), (), "does not apply"),
    ("i4", (Codec.of("reshape", shape=[5]),), (), "does not hold 4 elements"),
    ("i4", (Codec.of("gridref.tiff_predictor", predictor=3, axis=0),), (), "predictor 3 does not"),
    ("f4", (), (Codec.of("gridref.tiff_complex_integers", bits=8),), "decodes to complex numbers"),
    (
        "u1",
        (),
        (Codec.of("gridref.tiff_packints", bits=4, dtype="u1", run_length=3),),
        "4 values are no rows of 3",
    ),
    ("u1", (), (PNG,), "are no rows of 3 pixels"),
    ("u1", (), (CCITT,), "are no rows of 8 pixels"),
    ("O", (), (), "have no fixed size"),
]


@pytest.mark.parametrize(("dtype", "before", "behind", "message"), MISFITS, ids=range(len(MISFITS)))
def test_settings_that_do_not_fit_the_array(
    dtype: str, before: tuple[Codec, ...], behind: tuple[Codec, ...], message: str
) -> None:
    serial = (
        () if before and before[0].name == "packbits" else (Codec.of("bytes", endian="little"),)
    )
    form = Encoding((4,), np.dtype(dtype), (*before, *serial, *behind))
    with pytest.raises(DecodeError, match=message):
        decode_chunk(bytes(64), form)


def test_black_and_white_images_are_of_bools() -> None:
    form = Encoding((1, 8), U1, (Codec("bytes"), CCITT))
    with pytest.raises(DecodeError, match="decodes to bool, not uint8"):
        decode_chunk(b"\x35", form)


@pytest.mark.parametrize("level", [1, 9])
def test_levels_are_those_asked_for(level: int) -> None:
    values = image_like((3000,), "f4")
    for name in ("gzip", "zstd"):
        sizes = {
            n: len(encode_chunk(values, (Codec("bytes"), Codec.of(name, level=n))))
            for n in (1, level)
        }
        assert (sizes[level] < sizes[1]) == (level > 1)
    deflated = imagecodecs.deflate_encode(values.tobytes(), level=5, raw=True)
    assert deflated in encode_chunk(values, (Codec("bytes"), Codec("gzip")))
