"""Blocks of N5: the codec ``n5_default`` of zarr-extensions, and the compression of lz4-java.

A block begins with big-endian numbers: its mode (uint16; 0 is "default"), the number of dimensions
(uint16) and the length of each (uint32). Its elements follow, big-endian and with the first
dimension fastest, compressed or not. Writers cut the blocks at the end of an array, or pad them:
the header says which. What a block does not hold is zero.

An LZ4 stream of lz4-java has parts. Each begins with ``LZ4Block``, a byte of flags, and three
little-endian int32: stored size, decoded size, XXH32. The last part holds nothing. Checksums are
not verified.

Sources: https://github.com/saalfeldlab/n5 (file-system specification),
https://github.com/zarr-developers/zarr-extensions (``codecs/n5_default``),
https://github.com/lz4/lz4-java (``LZ4BlockOutputStream``).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.codecs import core, numcodecs_codecs
from gridref.codecs.stage import (
    AnyCodec,
    ArraySpec,
    BytesCodec,
    BytesDecode,
    Config,
    Raw,
    SerialCodec,
    SerialDecode,
    as_bytes,
    most_bytes,
    need,
    too_large,
)
from gridref.errors import number_of
from gridref.model.encoding import Codec

# The LZ4 streams of lz4-java

_PART = struct.Struct("<8sB3i")
_STORED, _COMPRESSED = 0x10, 0x20


def _lz4_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    limit = most_bytes(decoded_bytes)

    def decode(raw: Raw) -> Raw:
        parts: list[Raw] = []
        left = limit
        for method, stored, n_bytes in _parts(as_bytes(raw)):
            left -= n_bytes
            if left < 0:
                raise too_large(f"decompresses to more than {limit} bytes", limit)
            part = imagecodecs.lz4_decode(stored, out=n_bytes) if method == _COMPRESSED else stored
            if len(part) != n_bytes:
                raise ValueError(f"a part decodes to {len(part)} bytes, expected {n_bytes}")
            parts.append(part)
        return b"".join(parts)

    return decode


def _parts(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Method, stored bytes and decoded size of each part but the last."""
    at = 0
    while at < len(data):
        start = at + _PART.size
        if start > len(data):
            raise ValueError("it ends inside of the header of a part")
        magic, flags, n_stored, n_decoded, _ = _PART.unpack_from(data, at)
        method, at = flags & 0xF0, start + n_stored
        known = magic == b"LZ4Block" and method in (_STORED, _COMPRESSED)
        if not known or min(n_stored, n_decoded) < 0 or (n_stored == 0) != (n_decoded == 0):
            raise ValueError("it is no LZ4 stream of lz4-java")
        if at > len(data):
            raise ValueError("it ends inside of a part")
        if n_decoded == 0:
            break
        yield method, data[start:at], n_decoded
    if at != len(data):
        raise ValueError(f"{number_of(len(data) - at, 'byte')} left over after the last part")


# Blocks

_COMPRESSORS: dict[str, AnyCodec] = {
    **{name: core.CODECS[name] for name in ("gzip", "zstd", "blosc", "numcodecs.zlib")},
    **{name: numcodecs_codecs.CODECS[name] for name in ("numcodecs.bz2", "numcodecs.lzma")},
    "gridref.n5_lz4": BytesCodec(_lz4_decoder),
}


def _chain(config: Config) -> list[Codec]:
    return [Codec.from_json(document) for document in config["codecs"]]


def _problem(config: Config) -> str | None:
    try:
        first, second, *others = _chain(config)
        order = first.configuration["order"] if first.name == "transpose" else None
        endian = second.configuration.get("endian", "big")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return f"its codecs are no chain: {error!r}"
    if order is None or list(order) != list(range(len(order)))[::-1]:
        return "its first codec does not reverse the axes"
    if (second.name, endian) != ("bytes", "big"):
        return "its second codec is not bytes, big-endian"
    unknown = [codec.name for codec in others if codec.name not in _COMPRESSORS]
    return f"it cannot decode {others[-1].name}" if unknown or len(others) > 1 else None


def _decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    shape, dtype = spec.shape, spec.dtype
    header = struct.Struct(f">HH{len(shape)}I")
    compressors = _chain(config)[2:]

    def elements(raw: Raw, held: tuple[int, ...]) -> NDArray[Any]:
        """The elements of a block that holds such a shape."""
        n_bytes = math.prod(held) * dtype.itemsize
        for codec in compressors if n_bytes else ():
            kind = _COMPRESSORS[codec.name]
            assert isinstance(kind, BytesCodec)
            raw = kind.decoder(codec.configuration, n_bytes, spec)(raw)
        if n_bytes and len(raw) != n_bytes:
            raise ValueError(f"a block of shape {held} has {len(raw)} bytes, expected {n_bytes}")
        stored = np.frombuffer(raw, dtype.newbyteorder(">"), math.prod(held))
        return stored.reshape(held[::-1]).transpose()

    def decode(raw: Raw) -> NDArray[Any]:
        need(raw, header.size, "the header of a block")
        mode, n_dims, *held = header.unpack_from(raw)
        if mode:
            named = {1: "varlength", 2: "object"}.get(mode, str(mode))
            raise ValueError(f"the block is in the mode {named}; only default is read")
        if n_dims != len(shape):
            raise ValueError(f"the block has rank {n_dims}, expected {len(shape)}")
        if any(length > most for length, most in zip(held, shape, strict=True)):
            raise ValueError(f"the block has the shape {tuple(held)}, larger than {shape}")
        values = elements(raw[header.size :], tuple(held))
        if values.shape == shape:
            return values.astype(dtype, copy=False)
        whole = np.zeros(shape, dtype)
        whole[tuple(slice(length) for length in held)] = values
        return whole

    return decode


CODECS: dict[str, AnyCodec] = {
    "n5_default": SerialCodec(_decoder, required=("codecs",), problem=_problem),
    "gridref.n5_lz4": _COMPRESSORS["gridref.n5_lz4"],
}
