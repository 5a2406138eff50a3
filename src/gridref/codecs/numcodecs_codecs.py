"""The ``numcodecs.*`` codecs of zarr-python.

The compressors and checksums are decoded by bounded decoders of our own; the codecs that do
arithmetic on arrays are numcodecs' own classes, so that they round as zarr-python does.

Source: https://numcodecs.readthedocs.io, and ``zarr.codecs.numcodecs`` for how their configurations
become shapes and dtypes.
"""

from __future__ import annotations

import bz2
import lzma
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import imagecodecs
import numcodecs
import numcodecs.registry
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import (
    ArrayCodec,
    ArrayDecode,
    ArraySpec,
    BytesCodec,
    BytesDecode,
    Config,
    Raw,
    SerialCodec,
    SerialDecode,
    as_bytes,
    as_u1,
    decompressed,
    four_more_bytes,
    most_bytes,
)
from gridref.codecs.zfp import ZfpHeader

__all__ = ["ARRAY_CODECS", "BYTES_CODECS", "SERIAL_CODECS", "bz2_decoder", "fallback"]

_LZMA_MEMORY_BYTES = 1 << 30
"""Most memory that an LZMA stream may ask for its dictionary."""


def bz2_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """Decoder of bzip2 streams."""
    limit = most_bytes(decoded_bytes)
    return lambda raw: decompressed(bz2.BZ2Decompressor, raw, limit)


def _lzma_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    limit = most_bytes(decoded_bytes)
    form = config.get("format", lzma.FORMAT_XZ)
    filters = config.get("filters")
    if form == lzma.FORMAT_RAW:
        start = partial(lzma.LZMADecompressor, form, filters=filters)
    else:
        start = partial(lzma.LZMADecompressor, form, memlimit=_LZMA_MEMORY_BYTES)
    return lambda raw: decompressed(start, raw, limit)


def _lz4_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """One LZ4 block behind its decoded size, a little-endian uint32."""
    limit = most_bytes(decoded_bytes)

    def decode(raw: Raw) -> Raw:
        if len(raw) < 5:
            raise ValueError(f"{len(raw)} bytes are too few for a header and a block")
        size = int.from_bytes(as_bytes(raw[:4]), "little")
        if size > limit:
            raise ValueError(f"header says {size} bytes are decoded, expected {decoded_bytes}")
        decoded: Raw = imagecodecs.lz4_decode(raw[4:], out=size)
        if len(decoded) != size:
            raise ValueError(f"header says {size} bytes are decoded, got {len(decoded)}")
        return decoded

    return decode


def _numcodec(name: str, config: Config) -> Any:
    """The numcodecs codec, its dtypes in native byte order: arrays come in native order here."""
    native = dict(config)
    for key in ("dtype", "astype", "encode_dtype", "decode_dtype"):
        if isinstance(native.get(key), str):
            native[key] = np.dtype(native[key]).newbyteorder("=").str
    return numcodecs.registry.get_codec({**native, "id": name.removeprefix("numcodecs.")})


def _checksum_decoder(
    name: str, config: Config, decoded_bytes: int | None, spec: ArraySpec
) -> BytesDecode:
    codec = _numcodec(name, config)

    def decode(raw: Raw) -> Raw:
        if len(raw) < 4:
            raise ValueError(f"{len(raw)} bytes are too few for a checksum")
        return as_u1(codec.decode(as_bytes(raw)))

    return decode


def _array_decoder(name: str, config: Config, spec: ArraySpec) -> ArrayDecode:
    codec = _numcodec(name, config)

    def decode(stored: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(all="ignore"):
            values: NDArray[Any] = codec.decode(np.ascontiguousarray(stored))
        return values.reshape(spec.shape)

    return decode


def _stored_as(*keys: str) -> Callable[[Config, ArraySpec], ArraySpec]:
    """The stored dtype is the first of the given configuration keys that is there."""

    def stored(config: Config, spec: ArraySpec) -> ArraySpec:
        named = next((config[key] for key in keys if config.get(key) is not None), None)
        dtype = spec.dtype if named is None else np.dtype(named).newbyteorder("=")
        return ArraySpec(spec.shape, dtype)

    return stored


def _packbits_stored(config: Config, spec: ArraySpec) -> ArraySpec:
    return ArraySpec((1 + math.ceil(spec.size / 8),), np.dtype(np.uint8))


def _packbits_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    """One byte with the number of unused bits at the end, then 8 elements in each byte."""
    padding = -spec.size % 8

    def decode(stored: NDArray[Any]) -> NDArray[Any]:
        if int(stored[0]) != padding:
            raise ValueError(f"{int(stored[0])} bits are said to be unused, expected {padding}")
        bits = np.unpackbits(stored[1:], count=spec.size)
        return bits.view(np.bool_).reshape(spec.shape)

    return decode


def _arithmetic(name: str, required: tuple[str, ...], *stored_keys: str) -> ArrayCodec:
    return ArrayCodec(
        partial(_array_decoder, name),
        _stored_as(*stored_keys),
        required,
        partial(_numcodecs_problem, name),
    )


def _numcodecs_problem(name: str, config: Config) -> str | None:
    try:
        _numcodec(name, config)
    except (ImportError, TypeError, ValueError, KeyError) as error:
        return f"numcodecs cannot make it: {error}"
    return None


def _zfpy_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    """A zfp stream with its full header, as ``zfpy.compress_numpy`` writes it."""

    def decode(raw: Raw) -> NDArray[Any]:
        stream = as_bytes(raw)
        header = ZfpHeader.from_bytes(stream[:32])
        if header.decoded_bytes != spec.n_bytes:
            raise ValueError(f"decodes to {header.decoded_bytes} bytes, expected {spec.n_bytes}")
        return header.decode(stream, np.empty(spec.shape, spec.dtype))

    return decode


def _pcodec_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    """The standalone format of Pcodec."""
    return lambda raw: imagecodecs.pcodec_decode(as_bytes(raw), shape=spec.shape, dtype=spec.dtype)


def _fallback_decoder(
    name: str, config: Config, decoded_bytes: int | None, spec: ArraySpec
) -> BytesDecode:
    codec = _numcodec(name, config)
    return lambda raw: as_u1(
        np.ascontiguousarray(codec.decode(as_bytes(raw))).reshape(-1).view(np.uint8)
    )


_NOT_BYTES = frozenset({"pickle", "json2", "msgpack2", "vlen-array", "vlen-bytes", "vlen-utf8"})
"""Codecs of numcodecs' registry that make objects, some by running what the bytes say."""


def fallback(name: str) -> BytesCodec | None:
    """Any other bytes -> bytes codec that is registered with numcodecs."""
    key = name.removeprefix("numcodecs.")
    if not name.startswith("numcodecs.") or key in _NOT_BYTES:
        return None
    if key not in numcodecs.registry.codec_registry and key not in numcodecs.registry.entries:
        return None
    return BytesCodec(partial(_fallback_decoder, name), problem=partial(_numcodecs_problem, name))


BYTES_CODECS = {
    "numcodecs.bz2": BytesCodec(bz2_decoder),
    "numcodecs.lzma": BytesCodec(_lzma_decoder),
    "numcodecs.lz4": BytesCodec(_lz4_decoder),
} | {
    name: BytesCodec(
        partial(_checksum_decoder, name),
        four_more_bytes,
        problem=partial(_numcodecs_problem, name),
    )
    for name in (
        "numcodecs.crc32",
        "numcodecs.crc32c",
        "numcodecs.adler32",
        "numcodecs.jenkins_lookup3",
    )
}

SERIAL_CODECS = {
    "numcodecs.zfpy": SerialCodec(_zfpy_decoder),
    "numcodecs.pcodec": SerialCodec(_pcodec_decoder),
}

ARRAY_CODECS = {
    "numcodecs.delta": _arithmetic("numcodecs.delta", ("dtype",), "astype", "dtype"),
    "numcodecs.fixedscaleoffset": _arithmetic(
        "numcodecs.fixedscaleoffset", ("scale", "offset", "dtype"), "astype", "dtype"
    ),
    "numcodecs.quantize": _arithmetic("numcodecs.quantize", ("digits", "dtype"), "astype", "dtype"),
    "numcodecs.astype": _arithmetic(
        "numcodecs.astype", ("encode_dtype", "decode_dtype"), "encode_dtype"
    ),
    # Rounding loses bits on writing only.
    "numcodecs.bitround": ArrayCodec(lambda config, spec: lambda stored: stored),
    "numcodecs.packbits": ArrayCodec(_packbits_decoder, _packbits_stored),
}
