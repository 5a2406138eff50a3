"""What the decoders refuse, and forms that are rare: sizes 0 and 1, odd sizes, old checksums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import imagecodecs
import numcodecs
import numpy as np
import pytest

from gridref.codecs import decode_chunk, encode_chunk
from gridref.errors import GridrefError
from gridref.limits import limits
from gridref.model.encoding import Codec, Encoding
from tests.unit.codecs.support import encoding

BYTES = np.arange(1, 12, dtype="u1")


def text_of(error: GridrefError) -> str:
    return f"{error} {error.__cause__}"


def test_checksums_of_old_libraries_have_their_halves_swapped() -> None:
    form = encoding(BYTES, Codec("numcodecs.fletcher32"))
    data = BYTES.tobytes()
    tail = imagecodecs.h5checksum_fletcher32(data).to_bytes(4, "little")
    assert len(set(tail)) == 4
    swapped = bytes([tail[1], tail[0], tail[3], tail[2]])
    for end in (tail, swapped):
        np.testing.assert_array_equal(decode_chunk(data + end, form), BYTES)
    for places in ((1, 0, 2, 3), (0, 1, 3, 2), (3, 2, 1, 0), (1, 2, 3, 0), (1, 3, 3, 2)):
        with pytest.raises(GridrefError) as caught:
            decode_chunk(data + bytes(tail[place] for place in places), form)
        assert "checksum is" in text_of(caught.value)


def test_an_lz4_block_has_a_header_and_more() -> None:
    with pytest.raises(GridrefError) as caught:
        decode_chunk(b"\0\0\0\0", encoding(BYTES, Codec("numcodecs.lz4")))
    assert "too few for a header and a block" in text_of(caught.value)


@pytest.mark.parametrize("checksum", [False, True])
def test_zstd_frames_have_a_checksum_only_if_asked(checksum: bool) -> None:
    """Bit 2 of the frame header descriptor (RFC 8878, 3.1.1.1.1)."""
    form = encoding(BYTES, Codec.of("zstd", level=1, checksum=checksum))
    stored = encode_chunk(BYTES, form.codecs)
    assert bool(stored[4] & 4) == checksum
    np.testing.assert_array_equal(decode_chunk(stored, form), BYTES)


@pytest.mark.parametrize("width", [4, 8])
def test_zstd_frames_that_promise_too_much_are_not_begun(width: int) -> None:
    """Behind a checksum, nothing but the frame says how large what it holds is."""
    descriptor = {4: 0x80, 8: 0xC0}[width] | 0x20
    frame = b"\x28\xb5\x2f\xfd" + bytes([descriptor])
    frame += (limits().decoded_bytes + 1).to_bytes(width, "little") + b"\x01\0\0"
    form = encoding(BYTES, Codec.of("gzip", level=1), Codec("zstd"))
    with pytest.raises(GridrefError) as caught:
        decode_chunk(frame, form)
    assert "more than the limit decoded_bytes" in text_of(caught.value)


@pytest.mark.parametrize(
    ("codec", "limit", "number"),
    [
        ("bz2", "decoded_bytes", 99),
        ("lzma", "decoded_bytes", 99),
        ("lzma", "lzma_bytes", 100_000),
        ("lz4", "decoded_bytes", 99),
    ],
)
def test_errors_of_decoders_name_the_limit(
    codec: str, limit: str, number: int, limited: Callable[[str], None]
) -> None:
    """Below a checksum or another compression, nothing says how large what is decoded is."""
    stored = numcodecs.get_codec({"id": codec}).encode(bytes(1000))
    values = np.zeros(number, "u1")  # decoders are kept by encoding and shape, with their limits
    form = encoding(values, Codec.of("gzip", level=1), Codec(f"numcodecs.{codec}"))
    limited(f"{limit}={number}")
    with pytest.raises(GridrefError) as caught:
        decode_chunk(stored, form)
    assert f"more than the limit {limit} of {number}" in text_of(caught.value)


def selected(axis: int, index: int, length: int) -> Encoding:
    codec = Codec.of("gridref.select", axis=axis, index=index, length=length)
    return encoding(np.zeros((2, 3), "u1"), before=(codec,))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("index", [0, 1])
def test_one_place_along_an_axis_is_taken(axis: int, index: int) -> None:
    stored = np.arange(12, dtype="u1").reshape(np.insert([2, 3], axis, 2))
    found = decode_chunk(stored.tobytes(), selected(axis, index, 2))
    np.testing.assert_array_equal(found, np.take(stored, index, axis))


@pytest.mark.parametrize("place", [(-1, 0, 2), (3, 0, 2), (0, -1, 2), (0, 2, 2), (1, 5, 4)])
def test_places_that_are_none_are_refused(place: tuple[int, int, int]) -> None:
    with pytest.raises(GridrefError) as caught:
        decode_chunk(bytes(12), selected(*place))
    assert f"place {place[1]} of {place[2]}" in text_of(caught.value)


@pytest.mark.parametrize(
    "data", [b"", b"this is no image, but it is long", b"\xff\x4f\xff\x51", b"\xff\x4f\xff\x51" * 3]
)
def test_what_is_no_jpeg_2000(data: bytes) -> None:
    values = np.zeros((4, 5), "u1")
    form = encoding(values, Codec.of("gridref.tiff_jpeg2000", width=5, samples=1))
    with pytest.raises(GridrefError) as caught:
        decode_chunk(data, form)
    assert "is no JPEG 2000 codestream" in text_of(caught.value)


OUT_OF_RANGE: list[tuple[Any, str, str]] = [
    (np.float64(300), "f8", "u1"),
    (np.float64(-1), "f8", "u1"),
    (np.float64(2.0**63), "f8", "i8"),
    (np.int64(128), "i8", "i1"),
    (np.int64(-129), "i8", "i1"),
    (np.uint64(2**63), "u8", "i8"),
]


@pytest.mark.parametrize("shape", [(1,), ()])
@pytest.mark.parametrize(("value", "stored", "shown"), OUT_OF_RANGE)
def test_one_element_out_of_range_is_refused_or_clamped(
    shape: tuple[int, ...], value: Any, stored: str, shown: str
) -> None:
    def form(**more: str) -> Encoding:
        name = {"u1": "uint8", "i1": "int8", "i8": "int64", "u8": "uint64", "f8": "float64"}
        cast = Codec.of("cast_value", data_type=name[stored], **more)
        return Encoding(shape, np.dtype(shown), (cast, Codec.of("bytes", endian="little")))

    data = np.full(shape, value, stored).tobytes()
    with pytest.raises(GridrefError):
        decode_chunk(data, form())
    limits = np.iinfo(shown)
    clamped = decode_chunk(data, form(out_of_range="clamp"))
    assert clamped.item() == (limits.min if value < 0 else limits.max)
