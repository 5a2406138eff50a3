"""Split GRIB messages of both editions into sections, and decode them.

``gridref.grib`` decodes the last field of the bytes it gets: those of a whole message, or of one
that is cut after the field. The result is float32, NaN where the bitmap has holes, rows in the
order of scanning. ``gridref.grib_places`` makes latitudes or longitudes out of a grid section.

IEEE floats are decoded by numpy, JPEG 2000 and CCSDS by imagecodecs, and all other packings by
gribberish. It gets a message of ours for each field: the packed data as they are, on a plain grid
of as many points. So its memory is bounded by the shape of the chunk, and it sees no grid or
product of strangers.

Sources: WMO Manual on Codes I.2, FM 92 GRIB, edition 1 and edition 2.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.grib_grids import GridError, ibm_float, read_grid, signed
from gridref.codecs.jpeg2000 import CodestreamError, UnsupportedCodestreamError, read_header
from gridref.codecs.stage import ArraySpec, Config, Raw, SerialCodec, SerialDecode, as_bytes
from gridref.errors import number_of
from gridref.extras import needed_for
from gridref.limits import beyond, limits

VALUES, PLACES = "gridref.grib", "gridref.grib_places"
"""Names of the codecs."""
PACKINGS = {0, 2, 3, 4, 40, 41, 42}
"""Templates 5.N that are decoded: simple, complex, differences, IEEE, JPEG 2000, PNG, CCSDS."""
_IEEE, _JPEG2000, _PNG, _CCSDS, _MOST_BITS = 4, 40, 41, 42, 32
_END = b"7777"
_SAME_BITMAP, _NO_BITMAP = 254, 255


class MessageError(ValueError):
    """A message that is damaged, or has what is not decoded."""


@dataclass(frozen=True)
class PackedField:
    """The sections of a field that its values follow from.

    Attributes
    ----------
    edition
        1 or 2.
    packing
        Section 5 of edition 2.
    bitmap
        A bit for each point, from the first one; empty if all are there.
    """

    edition: int
    grid: bytes
    packing: bytes
    bitmap: bytes | memoryview
    data: bytes | memoryview


def total_length(head: bytes) -> int:
    """Length in bytes that a message states in its first 16 bytes.

    In edition 1, the scanner works out lengths beyond 8 MB, which section 4 takes part in.
    """
    if len(head) < 16:
        raise MessageError("it is cut off")
    if head[7] == 2:
        return int.from_bytes(head[8:16], "big")
    if head[7] == 1:
        return int.from_bytes(head[4:7], "big")
    raise MessageError(f"it is of edition {head[7]}, which is not read")


def sections(
    take: Callable[[int, int], bytes | memoryview], at: int, stop: int
) -> Iterator[tuple[int, int, int]]:
    """Number, first byte and length of each section of edition 2 from a byte on, up to the end."""
    while at + 5 <= stop and (head := take(at, 5))[:4] != _END:
        length, number = int.from_bytes(head[:4], "big"), head[4]
        if length < 5 or at + length > stop or not 1 <= number <= 7:
            raise MessageError(f"its section at byte {at} has {length} bytes and number {number}")
        yield number, at, length
        at += length


def section_1[Bytes: (bytes, memoryview)](
    take: Callable[[int, int], Bytes], at: int, stop: int
) -> tuple[Bytes, int]:
    """A section of edition 1, and where the next one begins."""
    length = int.from_bytes(take(at, 3), "big")
    if length < 3 or at + length > stop:
        raise MessageError(f"its section at byte {at} has {length} bytes")
    return take(at, length), at + length


# Decoding a field


def _sections(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    for number, at, length in sections(_taker(message), 16, len(message)):
        yield number, message[at : at + length]


def _taker(message: memoryview) -> Callable[[int, int], memoryview]:
    return lambda at, n_bytes: message[at : at + n_bytes]


def packed_field(message: bytes) -> PackedField:
    """The last field of a message, which may be cut off after it."""
    if message[:4] != b"GRIB":
        raise MessageError("the bytes are no GRIB message")
    total_length(message[:16])
    view = memoryview(message)  # the data are copied once, when they are put together
    return _field_1(view) if message[7] == 1 else _field_2(view)


def _field_2(message: memoryview) -> PackedField:
    held: dict[int, memoryview] = {}
    bitmap: bytes | memoryview = b""
    for number, section in _sections(message):
        held[number] = section
        if number == 6:
            bitmap = _bitmap_2(section, bitmap)
    if any(number not in held for number in (3, 5, 6, 7)):
        raise MessageError("a section of its field is missing")
    packing = bytes(held[5])
    if len(packing) < 11 or int.from_bytes(packing[9:11], "big") not in PACKINGS:
        raise MessageError("its packing is not decoded")
    used = b"" if held[6][5] == _NO_BITMAP else bitmap
    return PackedField(2, bytes(held[3]), packing, used, held[7][5:])


def _bitmap_2(section: memoryview, before: bytes | memoryview) -> bytes | memoryview:
    """The bitmap of a section, or the last one that was stated."""
    indicator = section[5] if len(section) > 5 else 0
    if indicator == 0:
        return section[6:]
    if indicator == _SAME_BITMAP and not before:
        raise MessageError("it refers to an earlier bitmap, and there is none")
    if indicator not in (_SAME_BITMAP, _NO_BITMAP):
        raise MessageError(f"it refers to the bitmap {indicator} of its centre")
    return before


def _field_1(message: memoryview) -> PackedField:
    take, stop = _taker(message), len(message)
    product, at = section_1(take, 8, stop)
    bitmap: bytes | memoryview = b""
    if len(product) < 28 or not product[7] & 0x80:
        raise MessageError("it does not state its grid")
    grid, at = section_1(take, at, stop)
    if product[7] & 0x40:
        section, at = section_1(take, at, stop)
        if len(section) < 6 or bytes(section[4:6]) != b"\0\0":
            raise MessageError("it refers to a bitmap of its centre")
        bitmap = section[6:]
    length = int.from_bytes(message[at : at + 3], "big")
    if length < 120 and len(message) > 1 << 23:  # the length of section 4 was needed elsewhere
        length = len(message) - 4 - at
    section = message[at : at + length]
    if len(section) < max(length, 11):
        raise MessageError("its data are cut off")
    if section[3] & 0xF0:
        raise MessageError("its packing is not decoded")
    packing = _simple_packing(bytes(product), bytes(section[:11]), length)
    return PackedField(1, bytes(grid), packing, bitmap, section[11:])


def _simple_packing(product: bytes, data: bytes, n_bytes: int) -> bytes:
    """Section 5 of edition 2 that says what edition 1 does."""
    reference = ibm_float(data[6:10])
    with np.errstate(over="ignore"):
        is_float = float(np.float32(reference)) == reference
    if not is_float:
        raise MessageError(f"its reference value {reference} is no 32-bit float")
    bits = data[10]
    n_values = (8 * (n_bytes - 11) - (data[3] & 0x0F)) // bits if bits else 0
    return struct.pack(
        ">IBIHf2s2sBB", 21, 5, n_values, 0, reference, data[4:6], product[26:28], bits, 0
    )


def _plain_message(field: PackedField, n_points: int, n_values: int) -> bytes:
    """A message of edition 2 with the values of a field on a single row of points."""
    grid = struct.pack(
        ">IBBIBBH B BI BI BI II II iiBiiII B",
        *(72, 3, 0, n_points, 0, 0, 0),
        *(6, 255, 0xFFFFFFFF, 255, 0xFFFFFFFF, 255, 0xFFFFFFFF),
        *(n_points, 1, 0, 0xFFFFFFFF),
        *(0, 0, 48, 0, 1, 1, 1, 0),
    )
    packing = field.packing[:5] + struct.pack(">I", n_values) + field.packing[9:]
    indicator = 0 if field.bitmap else _NO_BITMAP
    bitmap = struct.pack(">IBB", 6 + len(field.bitmap), 6, indicator)
    data = struct.pack(">IB", 5 + len(field.data), 7)
    parts = [grid, _PRODUCT, packing, bitmap, field.bitmap, data, field.data, _END]
    n_bytes = 16 + len(_IDENTIFICATION) + sum(map(len, parts))
    start = b"GRIB\xff\xff\x00\x02" + struct.pack(">Q", n_bytes) + _IDENTIFICATION
    return b"".join([start, *parts])


_IDENTIFICATION = struct.pack(">IBHHBBBHBBBBBBB", 21, 1, 0, 0, 2, 0, 1, 2000, 1, 1, 0, 0, 0, 0, 1)
_PRODUCT = struct.pack(
    ">IBHHBBBBBHBBIBBIBBI",
    *(34, 4, 0, 0, 0, 0, 0, 255, 255, 0, 0, 1, 0, 1, 0, 0, 255, 255, 0xFFFFFFFF),
)


def decode_field(message: bytes, n_points: int) -> NDArray[np.float64]:
    """The values of the last field of a message in the order of the file, NaN where it has none."""
    return _decoded(packed_field(message), n_points)


def _decoded(field: PackedField, n_points: int) -> NDArray[np.float64]:
    with needed_for("decoding GRIB"):
        import gribberish
    there = _bits(field, n_points)
    n_values = n_points if there is None else int(np.count_nonzero(there))
    if field.edition == 2 and int.from_bytes(field.packing[5:9], "big") != n_values:
        raise MessageError(f"it does not pack {n_values} values, as its bitmap or grid says")
    if not n_values:
        return np.full(n_points, np.nan)
    _check_data(field, n_values)
    _check_image(field, n_values)
    template = int.from_bytes(field.packing[9:11], "big")
    if template == _IEEE:
        return _with_holes(_floats(field, n_values), there)
    if template in _IMAGES and not field.packing[19]:  # whatever image is there
        return _with_holes(np.full(n_values, _reference(field)), there)
    if template in _INTEGERS:
        return _with_holes(_scaled(_INTEGERS[template](field, n_values), field), there)
    try:
        values = gribberish.parse_grib_array(_plain_message(field, n_points, n_values), 0)
    except BaseException as error:  # a panic of Rust is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise MessageError(f"its data cannot be decoded: {error}") from error
    if values.size != n_points:
        raise MessageError(f"it decodes to {number_of(values.size, 'value')}, expected {n_points}")
    return np.asarray(values, np.float64).reshape(-1)


def _floats(field: PackedField, n_values: int) -> NDArray[np.float64]:
    """Values of IEEE floats, which gribberish does not decode."""
    dtype = {1: ">f4", 2: ">f8"}.get(field.packing[11] if len(field.packing) > 11 else 0)
    if dtype is None:
        raise MessageError("its floats have an unknown size")
    return np.frombuffer(field.data, dtype, n_values).astype(np.float64)


def _reference(field: PackedField) -> float:
    (reference,) = struct.unpack(">f", field.packing[11:15])
    return float(reference)


def _scaled(packed: NDArray[Any], field: PackedField) -> NDArray[np.float64]:
    """Values of packed integers."""
    scale = 2.0 ** signed(field.packing[15:17])
    values: NDArray[np.float64] = packed * scale + _reference(field)
    return values * 10.0 ** -signed(field.packing[17:19])


def _pixels(field: PackedField, n_values: int) -> NDArray[Any]:
    """Integers of a JPEG 2000 image. On damaged ones, the decoder of gribberish may not end."""
    try:
        pixels = imagecodecs.jpeg2k_decode(bytes(field.data), numthreads=1)
    except Exception as error:  # whatever it raises of a damaged one
        raise MessageError(f"its JPEG 2000 image cannot be decoded: {error}") from error
    if pixels.size != n_values:
        raise MessageError(f"its image has {pixels.size} pixels, expected {n_values}")
    return np.asarray(pixels.reshape(-1))


def _samples(field: PackedField, n_values: int) -> NDArray[Any]:
    """Integers of CCSDS (template 5.42): gribberish computes in 32 bits, and refuses 1 bit."""
    if len(field.packing) < 25:
        raise MessageError("its packing is cut off")
    bits, _, flags, block, *rsi = field.packing[19:25]
    width = 1 << (bits > 8) << (bits > 16)  # bytes of a sample, never 3 of them
    n_bytes = -(-n_values // max(block, 1)) * block * width
    try:
        raw = imagecodecs.aec_decode(
            bytes(field.data),
            bitspersample=bits,
            flags=flags & ~_THREE_BYTES | _BIG_ENDIAN,
            blocksize=block,
            rsi=int.from_bytes(bytes(rsi), "big"),
            out=n_bytes,
        )
    except Exception as error:  # whatever it raises of damaged data
        raise MessageError(f"its CCSDS data cannot be decoded: {error}") from error
    if len(raw) < n_values * width:
        raise MessageError(f"its CCSDS data end after {len(raw)} bytes")
    return np.frombuffer(raw, f">u{width}", n_values)


_THREE_BYTES, _BIG_ENDIAN = 2, 4
"""Flags of libaec: AEC_DATA_3BYTE, AEC_DATA_MSB."""
_INTEGERS = {_JPEG2000: _pixels, _CCSDS: _samples}
_IMAGES = {_PNG, *_INTEGERS}
"""Packings whose values are all the reference value if they have 0 bits."""


def _bits(field: PackedField, n_points: int) -> NDArray[np.bool_] | None:
    """Whether each point has a value; None if all have."""
    if not field.bitmap:
        return None
    if 8 * len(field.bitmap) < n_points:
        raise MessageError("its bitmap is cut off")
    return np.unpackbits(np.frombuffer(field.bitmap, np.uint8), count=n_points).view(np.bool_)


def _with_holes(
    packed: NDArray[np.float64], there: NDArray[np.bool_] | None
) -> NDArray[np.float64]:
    """Packed values at the points that have one; NaN at the others."""
    if there is None:
        return packed
    values = np.full(len(there), np.nan)
    values[there] = packed
    return values


def _check_data(field: PackedField, n_values: int) -> None:
    """Refuse values of simple packing or IEEE floats that are cut off."""
    template = int.from_bytes(field.packing[9:11], "big")
    bits = 0
    if template != _IEEE:
        if len(field.packing) < 21:
            raise MessageError("its packing is cut off")
        if field.packing[19] > _MOST_BITS:
            raise MessageError(f"it packs {field.packing[19]} bits a value")
        bits = field.packing[19] if template == 0 else 0
    elif len(field.packing) >= 12:
        bits = {1: 32, 2: 64}.get(field.packing[11], 0)
    if math.ceil(n_values * bits / 8) > len(field.data):
        raise MessageError(f"its data are cut off: {len(field.data)} bytes of {n_values} values")


def _check_image(field: PackedField, n_values: int) -> None:
    """Refuse images whose own header states another size, or many tiles or layers.

    Sources: ITU-T T.800, A.5.1 (SIZ) and A.6.1 (COD); PNG specification, 11.2.2 (IHDR).
    """
    template, head = int.from_bytes(field.packing[9:11], "big"), bytes(field.data[:256])
    if template not in (_JPEG2000, _PNG) or not field.packing[19]:
        return
    if template == _PNG:
        width, height = struct.unpack(">II", head[16:24].ljust(8, b"\0"))
        n_pixels, n_parts = width * height, 1
    else:
        n_pixels, n_parts = _jpeg2000_size(field.data)
    if n_pixels != n_values:
        raise MessageError(f"its image has {n_pixels} pixels, expected {n_values}")
    if n_parts > limits().image_parts:
        raise MessageError(beyond("image_parts", f"its image has {n_parts} tiles and layers"))


def _jpeg2000_size(data: bytes | memoryview) -> tuple[int, int]:
    """Pixels of a JPEG 2000 image, and its tiles times layers, as its main header says."""
    try:
        header = read_header(lambda at, n_bytes: bytes(data[at : at + n_bytes]), 0)
        size = header.size
        n_layers, _ = header.coding(len(size.components))
    except (CodestreamError, UnsupportedCodestreamError) as error:
        raise MessageError(f"its JPEG 2000 image is not decoded: {error}") from error
    if not n_layers:
        raise MessageError("its JPEG 2000 image does not say how it is coded")
    left, top, right, bottom = size.image
    return (right - left) * (bottom - top), math.prod(size.n_tiles) * n_layers


# Claims about messages that were never read


def claim_of(discipline: int, identification: bytes, grid: bytes, product: bytes) -> int:
    """A number for what a field is, by sections 0, 1, 3 and 4 of edition 2; never 0.

    Catalogs keep it for messages that an index file describes. Two fields have the same number by
    chance in one of 4 billion cases.
    """
    return zlib.crc32(b"".join([bytes([discipline]), identification, grid, product])) or 1


def _check_claim(raw: Raw, claim: int) -> None:
    message = memoryview(as_bytes(raw))
    if bytes(message[:4]) == b"GRIB" and len(message) > 16 and message[7] == 2:
        held = {number: bytes(section) for number, section in _sections(message)}
        parts = [held.get(section, b"") for section in (1, 3, 4)]
        is_whole = total_length(bytes(message[:16])) == len(message)
        if is_whole and claim_of(message[6], *parts) == claim:
            return
    raise MessageError(
        "the message is not the one that the index file beside it lists here: scan the file again"
        " with index_files='offsets'"
    )


def _values_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    shape = spec.shape

    def decode(raw: Raw) -> NDArray[Any]:
        field = packed_field(as_bytes(raw))
        grid = read_grid(field.grid, field.edition)
        if grid.n_points != spec.size or shape[len(shape) - len(grid.shape) :] != grid.shape:
            raise MessageError(f"its grid has the shape {grid.shape}, expected {shape}")
        values = grid.in_rows(_decoded(field, spec.size))
        return values.astype(spec.dtype, order="C").reshape(shape)

    return decode


def _places_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    which = 0 if config["coordinate"] == "latitude" else 1

    def decode(raw: Raw) -> NDArray[Any]:
        grid = read_grid(as_bytes(raw), config["edition"])
        if grid.n_points != spec.size:
            raise GridError(f"its grid has the shape {grid.shape}, expected {spec.shape}")
        return grid.latitudes_longitudes()[which].astype(spec.dtype).reshape(spec.shape)

    return decode


def _places_problem(config: Config) -> str | None:
    if config["coordinate"] not in ("latitude", "longitude") or config["edition"] not in (1, 2):
        return f"configuration {dict(config)} names no coordinate of an edition"
    return None


CODECS = {
    VALUES: SerialCodec(_values_decoder, check=_check_claim),
    PLACES: SerialCodec(
        _places_decoder, required=("coordinate", "edition"), problem=_places_problem
    ),
}
