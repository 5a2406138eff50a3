"""Compression filters of HDF5.

The codecs decode filters that only HDF5 has, or that it frames in its own way.
Sources: the registry of filters, https://github.com/HDFGroup/hdf5_plugins (``docs``); for SZIP the
HDF5 documentation of ``H5Pset_szip``; for Bitshuffle https://github.com/kiyo-masui/bitshuffle
(README, "HDF5 filter"); for zfp https://h5z-zfp.readthedocs.io ("cd_values").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.blosc2 import Blosc2Frame
from gridref.codecs.numcodecs_codecs import ZfpHeader, bz2_decoder
from gridref.codecs.stage import (
    AnyCodec,
    ArraySpec,
    BytesCodec,
    BytesDecode,
    Config,
    Raw,
    as_bytes,
    as_u1,
    most_bytes,
    same_bytes,
)
from gridref.limits import beyond, limits

# Compression filters


def _check_size(said: int, decoded_bytes: int | None) -> int:
    """Refuse a header with another size than the array's."""
    what = f"header says {said} bytes are decoded"
    if decoded_bytes not in (None, said):
        raise ValueError(f"{what}, expected {decoded_bytes}")
    if said > limits().decoded_bytes:
        raise ValueError(beyond("decoded_bytes", what))
    return said


def _need(raw: Raw, n_bytes: int) -> None:
    if len(raw) < n_bytes:
        raise ValueError(f"{len(raw)} bytes are too few for a header")


def _szip_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """The decoded size (little-endian uint32), then the output of szlib."""
    options, block, bits, scanline = config["cd_values"][:4]

    def decode(raw: Raw) -> Raw:
        _need(raw, 4)
        size = _check_size(int.from_bytes(as_bytes(raw[:4]), "little"), decoded_bytes)
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
        _need(raw, 12)
        size = _check_size(int.from_bytes(as_bytes(raw[:8]), "big"), decoded_bytes)
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
    _need(raw, 12)
    size = _check_size(int.from_bytes(as_bytes(raw[:8]), "big"), decoded_bytes)
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
        raise ValueError(f"{len(data) - position} bytes are left over behind the blocks")
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
        _check_size(frame.decoded_bytes, decoded_bytes)
        return frame.decode()

    return decode


def _zfp_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """A zfp stream without its header, which is in the client data values."""
    header = ZfpHeader.from_words(config["cd_values"][1:])
    _check_size(header.decoded_bytes, decoded_bytes)

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


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Rows, columns and perhaps samples of a JPEG image."""
    return tuple(length for length in shape if length != 1)


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
        partial(_image_decoder, imagecodecs.jpeg8_decode, _without_ones)
    ),
    # These two round on writing only.
    "gridref.hdf5_bitgroom": _NOTHING_TO_UNDO,
    "gridref.hdf5_granularbr": _NOTHING_TO_UNDO,
}
