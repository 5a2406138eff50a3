"""Filters that only HDF5 has or frames in its own way, and elements that it stores in bits.

Filters: the registry of filters, https://github.com/HDFGroup/hdf5_plugins (``docs``); for SZIP the
HDF5 documentation of ``H5Pset_szip``; for Bitshuffle https://github.com/kiyo-masui/bitshuffle
(README, "HDF5 filter"); for zfp https://h5z-zfp.readthedocs.io ("cd_values").

N-Bit: the client data are the number of values, whether nothing was packed, the number of elements,
then the datatype as a tree. The bits of all elements follow each other, the most significant bit of
each field first, whatever the byte order of the elements is.
Source: "Using the N-Bit Filter" in the HDF5 documentation (``H5Pset_nbit``).

Scale-Offset: the output begins with a little-endian header: the number of bits of a distance
(uint32), the number of bytes of the minimum that count (1 byte), the minimum (8 bytes), 8 unused
bytes. The distances follow bit by bit, the most significant bit first.
Sources: "Scale-Offset Filter" in the HDF5 documentation (``H5Pset_scaleoffset``, with the meaning
of the client data values), and the filter's output as the library writes it.

Odd integers and floats, padded strings: HDF5 file format specification, version 3.0, IV.A.2.d
"Datatype Message" (classes 0, 1 and 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.blosc2 import Blosc2Frame
from gridref.codecs.numcodecs_codecs import ZfpHeader, bz2_decoder
from gridref.codecs.stage import (
    AnyCodec,
    ArrayCodec,
    ArrayDecode,
    ArraySpec,
    BytesCodec,
    BytesDecode,
    Config,
    Raw,
    as_bytes,
    as_u1,
    most_bytes,
    need,
    same_bytes,
    stated_size,
    without_unit_axes,
)
from gridref.errors import number_of
from gridref.limits import beyond, limits

# Compression filters


def _szip_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """The decoded size (little-endian uint32), then the output of szlib."""
    options, block, bits, scanline = config["cd_values"][:4]

    def decode(raw: Raw) -> Raw:
        need(raw, 4)
        size = stated_size(int.from_bytes(as_bytes(raw[:4]), "little"), decoded_bytes)
        return szip_decoded(as_bytes(raw[4:]), size, options, block, bits, scanline)

    return decode


def szip_decoded(data: bytes, size: int, options: int, block: int, bits: int, scanline: int) -> Raw:
    """What szlib encoded, of so many bytes; the parameters are those of its encoder."""
    if block and scanline % block:
        return _padded_szip(data, size, options, block, bits, scanline)
    decoded: Raw = imagecodecs.szip_decode(data, options, block, bits, scanline, out=size)
    return decoded


def _padded_szip(
    data: bytes, size: int, options: int, block: int, bits: int, scanline: int
) -> NDArray[np.uint8]:
    """Scanlines that are not a whole number of blocks: szlib's encoder stores them padded.

    Its decoder removes the padding itself. But for truncated data it silently returns the former
    content of memory. Given scanlines of whole blocks, it reports how much data there is.
    """
    is_interleaved = bits in (32, 64)  # the first bytes of all pixels, then the second ones
    stored_bits = 8 if is_interleaved else bits
    pixel_bytes = 1 if stored_bits <= 8 else 2 if stored_bits <= 16 else 4
    whole = -(-scanline // block) * block
    row_bytes, stored_bytes = scanline * pixel_bytes, whole * pixel_bytes
    n_rows, rest = divmod(size, row_bytes)
    padded = np.zeros((n_rows + bool(rest), stored_bytes), np.uint8)
    decoded = imagecodecs.szip_decode(data, options, block, stored_bits, whole, out=padded.size)
    needed = n_rows * stored_bytes + rest
    if len(decoded) < needed:
        raise ValueError(f"{len(decoded)} bytes with their padding, expected {needed}")
    padded.reshape(-1)[: len(decoded)] = as_u1(decoded)
    pixels = padded[:, :row_bytes].reshape(-1)[:size]
    return pixels.reshape(bits // 8, -1).T.reshape(-1) if is_interleaved else pixels


def _lzf_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    values = config["cd_values"]
    size = values[2] if decoded_bytes is None and len(values) > 2 else most_bytes(decoded_bytes)
    return lambda raw: imagecodecs.lzf_decode(raw, header=False, out=size)


def _lz4_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """The decoded size (big-endian uint64), the size of a block, then the blocks."""

    def decode(raw: Raw) -> Raw:
        need(raw, 12)
        size = stated_size(int.from_bytes(as_bytes(raw[:8]), "big"), decoded_bytes)
        decoded: Raw = imagecodecs.lz4h5_decode(raw, out=size) if size else b""
        return decoded

    return decode


_BITSHUFFLE_NONE, _BITSHUFFLE_LZ4, _BITSHUFFLE_ZSTD = 0, 2, 3


def _bitshuffle_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """Blocks of elements whose bits are transposed, each of them compressed or not."""
    values: Sequence[int] = config["cd_values"]
    item_bytes = values[2]
    block = values[3] if len(values) > 3 else 0
    compression = values[4] if len(values) > 4 else _BITSHUFFLE_NONE
    if compression == _BITSHUFFLE_NONE:
        return lambda raw: _unshuffle_bits(raw, item_bytes, block)
    inner = imagecodecs.lz4_decode if compression == _BITSHUFFLE_LZ4 else imagecodecs.zstd_decode
    return partial(_decode_bitshuffle, item_bytes, inner, decoded_bytes)


def _unshuffle_bits(raw: Raw, item_bytes: int, block_items: int) -> Raw:
    """Undo the transposition; the last elements beyond a multiple of 8 are not transposed."""
    n_items = len(raw) // item_bytes // 8 * 8
    whole = n_items * item_bytes
    if whole == 0:
        return raw
    data = as_u1(raw)
    decoded = np.empty(len(raw), np.uint8)
    # As a memoryview the data are bytes, and as an array they would be elements of one byte.
    imagecodecs.bitshuffle_decode(
        memoryview(data)[:whole],
        itemsize=item_bytes,
        blocksize=block_items,
        out=memoryview(decoded)[:whole],
    )
    decoded[whole:] = data[whole:]
    return decoded


def _decode_bitshuffle(
    item_bytes: int, inner: Callable[..., Any], decoded_bytes: int | None, raw: Raw
) -> Raw:
    """The decoded size (big-endian uint64) and the size of a block (uint32), then the blocks."""
    need(raw, 12)
    size = stated_size(int.from_bytes(as_bytes(raw[:8]), "big"), decoded_bytes)
    block_bytes = int.from_bytes(as_bytes(raw[8:12]), "big")
    block_items, rest = divmod(block_bytes, item_bytes)
    if rest or block_items % 8 or block_items == 0:
        raise ValueError(f"blocks of {block_bytes} bytes of elements of {item_bytes} bytes")
    compressed = size // (8 * item_bytes) * (8 * item_bytes)
    shuffled = np.empty(size, np.uint8)
    data = memoryview(as_u1(raw))
    position = 12
    for start in range(0, compressed, block_bytes):
        stop = min(start + block_bytes, compressed)
        n_bytes = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if position + n_bytes > len(data):
            raise ValueError("blocks end behind the data")
        part = inner(data[position : position + n_bytes], out=shuffled[start:stop])
        if len(part) != stop - start:
            raise ValueError(f"a block decodes to {len(part)} bytes, expected {stop - start}")
        position += n_bytes
    if len(data) - position != size - compressed:
        raise ValueError(f"{number_of(len(data) - position, 'byte')} left over behind the blocks")
    shuffled[compressed:] = as_u1(raw)[position:]
    return _unshuffle_bits(shuffled, item_bytes, block_items)


def _bitshuffle_problem(config: Config) -> str | None:
    values = config["cd_values"]
    if len(values) < 3 or values[2] < 1:
        return f"client data values {values} lack the size of an element"
    compression = values[4] if len(values) > 4 else _BITSHUFFLE_NONE
    if compression not in (_BITSHUFFLE_NONE, _BITSHUFFLE_LZ4, _BITSHUFFLE_ZSTD):
        return f"compression {compression} is unknown"
    return None


def _blosc2_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    def decode(raw: Raw) -> Raw:
        frame = Blosc2Frame(as_bytes(raw))
        stated_size(frame.decoded_bytes, decoded_bytes)
        return frame.decode()

    return decode


def _zfp_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """A zfp stream without its header, which is in the client data values."""
    header = ZfpHeader.from_words(config["cd_values"][1:])
    stated_size(header.decoded_bytes, decoded_bytes)

    def decode(raw: Raw) -> Raw:
        values = header.decode_behind(raw)
        decoded: NDArray[np.uint8] = values.reshape(-1).view(np.uint8)
        return decoded

    return decode


def _zfp_problem(config: Config) -> str | None:
    try:
        ZfpHeader.from_words(config["cd_values"][1:])
    except ValueError as error:
        return str(error)
    return None


def _without_leading_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Perhaps components, rows and columns: FCIDECOMP takes the last three dimensions for these."""
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    return shape


def _image_decoder(
    decode_image: Callable[..., NDArray[Any]],
    image_shape: Callable[[tuple[int, ...]], tuple[int, ...]],
    config: Config,
    decoded_bytes: int | None,
    spec: ArraySpec,
) -> BytesDecode:
    """JPEG and JPEG-LS streams: a chunk is an image."""
    shape = image_shape(spec.shape)
    dtype = np.dtype(f"u{spec.dtype.itemsize}")

    def decode(raw: Raw) -> Raw:
        # JPEG decoders invent a missing end, and JPEG-LS decoders may search for it for seconds.
        if as_bytes(raw[-2:]) != b"\xff\xd9":
            raise ValueError("stream has no end of image")
        # The decoders compare the size of the image with the output before they decode it.
        # What they return shows the planes of JPEG-LS as pixels; what they fill is as in the chunk.
        values = np.empty(shape, dtype)
        decode_image(as_bytes(raw), out=values)
        decoded: NDArray[np.uint8] = values.reshape(-1).view(np.uint8)
        return decoded

    return decode


def _too_few(n_values: int, config: Config) -> str | None:
    n_given = len(config["cd_values"])
    return None if n_given >= n_values else f"{n_given} client data values are too few"


_CD = ("cd_values",)
_NOTHING_TO_UNDO = BytesCodec(lambda config, decoded_bytes, spec: lambda raw: raw, same_bytes)


# Packed integers, the most significant bit first


def unpack_integers(packed: Raw, width: int, count: int, item_bytes: int) -> NDArray[Any]:
    """Unpack unsigned integers that follow each other without a gap.

    Parameters
    ----------
    packed
        The bits; anything after the last integer is ignored.
    width
        Number of bits of an integer, 1 to ``8 * item_bytes``.
    count
        Number of integers.
    item_bytes
        Size of an unpacked integer: 1, 2, 4 or 8.

    Returns
    -------
    numpy.ndarray
        Native unsigned integers of `item_bytes`, of shape ``(count,)``.
    """
    n_bytes = -(-width * count // 8)
    if len(packed) < n_bytes:
        raise ValueError(f"{len(packed)} bytes hold fewer than {count} integers of {width} bits")
    dtype = np.dtype(f"u{item_bytes}")
    if width in (8, 16, 32, 64):
        whole = np.frombuffer(packed, f">u{width // 8}", count)
        return whole.astype(dtype)
    if width < 32 and count:
        narrow = np.dtype(f"u{1 if width < 8 else 2 if width < 16 else 4}")
        values: NDArray[Any] = imagecodecs.packints_decode(
            as_bytes(packed[:n_bytes]), narrow, width
        )
        return values[:count].astype(dtype, copy=False)
    bits = np.zeros((count, 8 * item_bytes), np.uint8)
    bits[:, -width:] = np.unpackbits(as_u1(packed), count=width * count).reshape(count, width)
    return np.packbits(bits).view(f">u{item_bytes}").astype(dtype)


# The N-Bit filter: only the significant bits of each element

_ATOMIC, _ARRAY, _COMPOUND, _UNPACKED = 1, 2, 3, 4
"""Classes of datatypes in the client data values."""


@dataclass(frozen=True)
class _Field:
    """Some bits of an element.

    Attributes
    ----------
    start_byte
        First byte, in the element, of the number that the bits belong to.
    precision, offset
        Number of bits, and place of the lowest one inside the number.
    """

    start_byte: int
    size_bytes: int
    big_endian: bool
    precision: int
    offset: int


@dataclass(frozen=True)
class _Layout:
    """Size of an element in bytes, and its fields in the order in which they are stored."""

    size_bytes: int
    fields: tuple[_Field, ...]


def _layout(values: list[int], start_byte: int, budget: int) -> tuple[_Layout, list[int]]:
    """Read one datatype from the front of the client data values; return it and the rest."""
    kind, size, *rest = values
    if kind == _ATOMIC:
        order, precision, offset, *rest = rest
        if not (size >= 1 and precision >= 1 and precision + offset <= 8 * size):
            raise ValueError(f"bits {offset} to {offset + precision} of {size} bytes")
        return _Layout(size, (_Field(start_byte, size, order == 1, precision, offset),)), rest
    if kind == _UNPACKED:
        return _Layout(size, (_Field(start_byte, size, True, 8 * size, 0),)), rest
    if kind == _ARRAY:
        return _array_layout(size, rest, start_byte, budget)
    if kind == _COMPOUND:
        return _compound_layout(size, rest, start_byte, budget)
    raise ValueError(f"datatype of class {kind} is unknown")


def _array_layout(
    size: int, values: list[int], start_byte: int, budget: int
) -> tuple[_Layout, list[int]]:
    base, rest = _layout(values, start_byte, budget)
    count, remainder = divmod(size, base.size_bytes)
    if remainder:
        raise ValueError(f"array of {size} bytes of elements of {base.size_bytes} bytes")
    if (n_fields := count * len(base.fields)) > budget:
        raise ValueError(beyond("nbit_fields", f"{n_fields} more packed fields"))
    fields = tuple(
        replace(field, start_byte=field.start_byte + index * base.size_bytes)
        for index in range(count)
        for field in base.fields
    )
    return _Layout(size, fields), rest


def _compound_layout(
    size: int, values: list[int], start_byte: int, budget: int
) -> tuple[_Layout, list[int]]:
    n_members, *rest = values
    fields: tuple[_Field, ...] = ()
    for _ in range(n_members):
        offset, *rest = rest
        member, rest = _layout(rest, start_byte + offset, budget - len(fields))
        if offset + member.size_bytes > size:
            raise ValueError(f"member at byte {offset} does not fit into {size} bytes")
        fields += member.fields
    return _Layout(size, fields), rest


def _unpack_one(packed: Raw, field: _Field, count: int) -> NDArray[np.uint8]:
    """Elements that are one number of up to 8 bytes: their bits need no gathering."""
    numbers = unpack_integers(packed, field.precision, count, field.size_bytes)
    if field.offset:
        numbers <<= field.offset
    ordered = numbers.astype(numbers.dtype.newbyteorder(">" if field.big_endian else "<"))
    unpacked: NDArray[np.uint8] = ordered.view(np.uint8)
    return unpacked


def _unpack_fields(packed: Raw, layout: _Layout, count: int) -> NDArray[np.uint8]:
    """Elements of any layout, bit by bit."""
    width = sum(field.precision for field in layout.fields)
    if len(packed) * 8 < width * count:
        raise ValueError(f"{len(packed)} bytes hold fewer than {count} elements of {width} bits")
    stored = np.unpackbits(as_u1(packed), count=width * count).reshape(count, width)
    # One bit in each byte, the highest bit of each byte first, as `numpy.packbits` needs them.
    bits = np.zeros((count, layout.size_bytes * 8), np.uint8)
    start = 0
    for field in layout.fields:
        bits[:, _places(field)] = stored[:, start : start + field.precision]
        start += field.precision
    return np.packbits(bits)


def _places(field: _Field) -> NDArray[np.int64]:
    """The places of the bits of a field in an element, from its most significant bit on."""
    significance = np.arange(field.offset + field.precision - 1, field.offset - 1, -1)
    byte = significance // 8
    if field.big_endian:
        byte = field.size_bytes - 1 - byte
    return (field.start_byte + byte) * 8 + 7 - significance % 8


def _nbit_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    n_values, unpacked, count, *values = config["cd_values"]
    if unpacked:
        return lambda raw: raw
    layout, _ = _layout(values[: n_values - 3], 0, limits().nbit_fields)
    if decoded_bytes is not None and decoded_bytes != count * layout.size_bytes:
        raise ValueError(f"{count} elements of {layout.size_bytes} bytes are not {decoded_bytes}")
    first = layout.fields[0] if layout.fields else None
    is_number = len(layout.fields) == 1 and layout.size_bytes in (1, 2, 4, 8)
    if first is not None and is_number and first.size_bytes == layout.size_bytes:
        return lambda raw: _unpack_one(raw, first, count)
    return lambda raw: _unpack_fields(raw, layout, count)


def _nbit_problem(config: Config) -> str | None:
    values = config["cd_values"]
    if len(values) < 3 or (not values[1] and len(values) < 5):
        return f"{len(values)} client data values are too few"
    try:
        if not values[1]:
            _layout(values[3 : values[0]], 0, limits().nbit_fields)
    except (ValueError, ZeroDivisionError, RecursionError) as error:
        return f"client data values are wrong: {error}"
    return None


# The Scale-Offset filter: small distances from the minimum

_HEADER_BYTES = 21
_FILL_DEFINED = 1
"""Any other number means, like 0, that there is no fill value."""
_D_SCALE, _INTEGER = 0, 2
"""Scale types: floats times a power of 10, integers."""


@dataclass(frozen=True)
class _Scaling:
    """Client data values of the filter.

    Attributes
    ----------
    dtype
        Of the elements, native byte order.
    big_endian
        Byte order of the decoded elements.
    decimals
        Power of ten that floats were multiplied with.
    width
        Bits of a distance, as the writer requested; 0 for floats, or if the filter chooses.
    fill
        Element that means "no data", stored as the largest distance; None if there is none.
    """

    dtype: np.dtype[Any]
    big_endian: bool
    count: int
    decimals: int
    width: int
    fill: Any


def _scaling(values: list[int]) -> _Scaling:
    scale_type, factor, count, kind, size, signed, order, has_fill, *fill_words = values
    wanted = _INTEGER if kind == 0 else _D_SCALE
    if kind not in (0, 1) or scale_type != wanted or size not in (1, 2, 4, 8):
        raise ValueError(f"scale type {scale_type} for class {kind} of {size} bytes is not known")
    if kind == 1 and size < 4:
        raise ValueError(f"floats of {size} bytes are not known")
    if kind == 0 and signed not in (0, 1):
        raise ValueError(f"integers of sign {signed} are not known")
    dtype = np.dtype(f"{'f' if kind == 1 else 'i' if signed else 'u'}{size}")
    fill = None
    if has_fill == _FILL_DEFINED:
        fill = np.array(fill_words[:2], "<u4").tobytes()[:size]
        fill = np.frombuffer(fill, dtype.newbyteorder("<"))[0].astype(dtype)
    factor -= (1 << 32) if factor >= 1 << 31 else 0
    decimals, width = (factor, 0) if kind == 1 else (0, factor)
    return _Scaling(dtype, order == 1, count, decimals, width, fill)


def _in_file_order(values: NDArray[Any], big_endian: bool) -> NDArray[np.uint8]:
    ordered = values.astype(values.dtype.newbyteorder(">" if big_endian else "<"), copy=False)
    unpacked: NDArray[np.uint8] = ordered.view(np.uint8)
    return unpacked


def _integers(
    distances: NDArray[Any], minimum: bytes, is_fill: NDArray[np.bool_] | None, scaling: _Scaling
) -> NDArray[Any]:
    """Minimum plus distance, wrapping like unsigned integers."""
    size = scaling.dtype.itemsize
    start = np.frombuffer(minimum[:size], f"<u{size}")[0].astype(distances.dtype)
    with np.errstate(over="ignore"):
        values: NDArray[Any] = (distances + start).view(scaling.dtype)
    if is_fill is not None:
        values[is_fill] = scaling.fill
    return values


def _floats(
    distances: NDArray[Any], minimum: bytes, is_fill: NDArray[np.bool_] | None, scaling: _Scaling
) -> NDArray[Any]:
    """Distance divided by the power of ten, plus minimum, in the precision of the elements."""
    dtype = scaling.dtype
    start = np.frombuffer(minimum[: dtype.itemsize], dtype.newbyteorder("<"))[0].astype(dtype)
    with np.errstate(all="ignore"):
        values = distances.view(f"i{dtype.itemsize}").astype(dtype)
        values /= np.power(dtype.type(10), dtype.type(scaling.decimals))
        values += start
    if is_fill is not None:
        values[is_fill] = scaling.fill
    return values


def _decode(raw: Raw, scaling: _Scaling) -> Raw:
    need(raw, _HEADER_BYTES)
    header = as_bytes(raw[:_HEADER_BYTES])
    width = int.from_bytes(header[:4], "little")
    minimum = header[5 : 5 + min(8, header[4])].ljust(8, b"\0")
    size, count = scaling.dtype.itemsize, scaling.count
    if width > 8 * size:
        raise ValueError(f"header states {width} bits for each element of {8 * size} bits")
    if width == 8 * size:
        # All bits were needed: the elements themselves are stored, in the writer's byte order.
        whole = as_u1(raw)[_HEADER_BYTES : _HEADER_BYTES + count * size]
        return _in_file_order(whole.view(f"<u{size}"), scaling.big_endian)
    if width == 0:
        distances: NDArray[Any] = np.zeros(count, f"u{size}")
    else:
        distances = unpack_integers(raw[_HEADER_BYTES:], width, count, size)
    is_fill = None
    if scaling.fill is not None:
        is_fill = distances == (1 << width) - 1
    restore = _floats if scaling.dtype.kind == "f" else _integers
    return _in_file_order(restore(distances, minimum, is_fill, scaling), scaling.big_endian)


def _stored_whole(scaling: _Scaling, raw: Raw) -> Raw:
    """A dataset whose distances would need all bits: its elements are stored unchanged."""
    if scaling.width > scaling.dtype.itemsize * 8:
        raise ValueError(f"{scaling.width} bits are more than {scaling.dtype} has")
    return raw


def _scaleoffset_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    scaling = _scaling(config["cd_values"])
    if scaling.width >= scaling.dtype.itemsize * 8:
        return partial(_stored_whole, scaling)
    if decoded_bytes not in (None, scaling.count * scaling.dtype.itemsize):
        raise ValueError(f"{scaling.count} elements of {scaling.dtype} are not {decoded_bytes}")
    return lambda raw: _decode(raw, scaling)


def _scaleoffset_problem(config: Config) -> str | None:
    values = config["cd_values"]
    if len(values) < 8:
        return f"{len(values)} client data values are too few"
    try:
        _scaling(values)
    except ValueError as error:
        return str(error)
    return None


# Integers and floats without a numpy dtype


def _integer_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    n_bits = spec.dtype.itemsize * 8
    precision, offset = config["precision"], config["offset"]
    if spec.dtype.kind not in "iu" or not 1 <= precision <= n_bits - offset <= n_bits:
        raise ValueError(f"bits {offset} to {offset + precision} of {spec.dtype}")
    # Shifting to the left end and back drops the other bits and, for signed ones, extends the sign.
    left, right = n_bits - offset - precision, n_bits - precision
    return lambda stored: np.right_shift(np.left_shift(stored, left), right)


def _float_stored(config: Config, spec: ArraySpec) -> ArraySpec:
    return ArraySpec(spec.shape, np.dtype(f"u{config['size']}"))


def _float_problem(config: Config) -> str | None:
    n_bits = 8 * config["size"]
    if config["size"] not in (1, 2, 4, 8):
        return f"floats of {config['size']} bytes are not supported"
    if config["normalization"] not in {"implied", "set"}:
        return f"normalization {config['normalization']} is not supported"
    if config["mantissa_bits"] > 52 or config["exponent_bits"] > 11:
        return "the mantissa or exponent has more bits than float64 has"
    ends = [
        config["sign_position"] + 1,
        config["exponent_position"] + config["exponent_bits"],
        config["mantissa_position"] + config["mantissa_bits"],
    ]
    return None if max(ends) <= n_bits else f"fields do not lie in {n_bits} bits"


_NAN = np.uint64((1 << 63) - 1).view(np.float64)
"""What HDF5 makes of each NaN that it converts: all bits of the mantissa are ones."""


def _float_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    exponent_bits, mantissa_bits = config["exponent_bits"], config["mantissa_bits"]
    bias = config["exponent_bias"]
    implied = config["normalization"] == "implied"

    def field(stored: NDArray[Any], name: str, n_bits: int) -> NDArray[np.int64]:
        mask = (1 << n_bits) - 1
        values: NDArray[np.int64] = (stored >> config[f"{name}_position"] & mask).astype(np.int64)
        return values

    def decode(stored: NDArray[Any]) -> NDArray[Any]:
        sign = field(stored, "sign", 1)
        exponent = field(stored, "exponent", exponent_bits)
        mantissa = field(stored, "mantissa", mantissa_bits)
        special = exponent == (1 << exponent_bits) - 1
        if implied:
            # The leading one is not stored; exponent 0 means that there is none.
            mantissa = np.where(exponent > 0, mantissa + (1 << mantissa_bits), mantissa)
            power = np.maximum(exponent, 1) - bias - mantissa_bits
            infinite = mantissa == 1 << mantissa_bits
        else:
            power = exponent - bias - (mantissa_bits - 1)
            infinite = mantissa == 0
        with np.errstate(all="ignore"):
            values = np.asarray(np.ldexp(mantissa.astype(np.float64), power))
            values[special] = np.where(infinite[special], np.inf, _NAN)
            signed: NDArray[Any] = np.copysign(values, np.where(sign, -1.0, 1.0))
            return signed.astype(spec.dtype)

    return decode


# Strings of fixed length with other padding than numpy's

_PADDINGS = ("terminated", "spaces")


def _string_problem(config: Config) -> str | None:
    if config["padding"] in _PADDINGS:
        return None
    return f"padding {config['padding']} is not supported"


def _string_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    is_terminated = config["padding"] == "terminated"
    dtype = spec.dtype
    if dtype.kind != "S":
        raise ValueError(f"strings of {dtype}")

    def decode(stored: NDArray[Any]) -> NDArray[Any]:
        raw = np.ascontiguousarray(stored).reshape(-1).view(np.uint8).reshape(-1, dtype.itemsize)
        if is_terminated:
            kept = np.logical_and.accumulate(raw != 0, axis=1)
        else:
            kept = np.logical_or.accumulate((raw != ord(" "))[:, ::-1], axis=1)[:, ::-1]
        return (raw * kept).reshape(-1).view(dtype).reshape(stored.shape)

    return decode


CODECS: dict[str, AnyCodec] = {
    "gridref.hdf5_szip": BytesCodec(_szip_decoder, required=_CD, problem=partial(_too_few, 4)),
    "gridref.hdf5_lzf": BytesCodec(_lzf_decoder, required=_CD),
    "gridref.hdf5_lz4": BytesCodec(_lz4_decoder),
    "gridref.hdf5_bzip2": BytesCodec(bz2_decoder),
    "gridref.hdf5_bitshuffle": BytesCodec(
        _bitshuffle_decoder, required=_CD, problem=_bitshuffle_problem
    ),
    "gridref.hdf5_blosc2": BytesCodec(_blosc2_decoder),
    "gridref.hdf5_zfp": BytesCodec(_zfp_decoder, required=_CD, problem=_zfp_problem),
    "gridref.hdf5_jpegls": BytesCodec(
        partial(_image_decoder, imagecodecs.jpegls_decode, _without_leading_ones)
    ),
    "gridref.hdf5_jpeg": BytesCodec(
        partial(_image_decoder, imagecodecs.jpeg8_decode, without_unit_axes)
    ),
    # These two round on writing only.
    "gridref.hdf5_bitgroom": _NOTHING_TO_UNDO,
    "gridref.hdf5_granularbr": _NOTHING_TO_UNDO,
    "gridref.hdf5_nbit": BytesCodec(_nbit_decoder, required=("cd_values",), problem=_nbit_problem),
    "gridref.hdf5_scaleoffset": BytesCodec(
        _scaleoffset_decoder, required=("cd_values",), problem=_scaleoffset_problem
    ),
    "gridref.hdf5_integer": ArrayCodec(_integer_decoder, required=("precision", "offset")),
    "gridref.hdf5_float": ArrayCodec(
        _float_decoder,
        _float_stored,
        required=(
            "size",
            "sign_position",
            "exponent_position",
            "exponent_bits",
            "exponent_bias",
            "mantissa_position",
            "mantissa_bits",
            "normalization",
        ),
        problem=_float_problem,
    ),
    "gridref.hdf5_string": ArrayCodec(
        _string_decoder, required=("padding",), problem=_string_problem
    ),
}
