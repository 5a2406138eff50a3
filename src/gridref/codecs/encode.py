"""Encode elements: chunks that the portable view sends, shard indexes, values kept inline."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.model.encoding import BLOSC_SHUFFLES, Codec

_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""RFC 1952: deflate, no flags, no modification time, unknown operating system."""
_HAS_NAME = 8
"""RFC 1952: the flag of a header that is followed by a file name and a zero byte."""
REWRAP_BYTES = 12
"""Extra bytes of a gzip member over a zlib stream: 18 around the data instead of 6."""


def encode_chunk(values: NDArray[Any], codecs: Sequence[Codec]) -> bytes:
    """Turn the elements of a chunk into bytes.

    The same values and codecs always give the same bytes.

    Parameters
    ----------
    values
        Elements of the chunk, of its full shape.
    codecs
        ``bytes``, ``vlen-utf8`` or ``vlen-bytes``, then what `encode_bytes_codecs` takes.

    Returns
    -------
    bytes
        What `gridref.codecs.decode_chunk` turns back into `values`.

    Raises
    ------
    InvalidRequestError
        For any other codec, or elements that the codec does not take.
    """
    if not codecs:
        raise InvalidRequestError("codec chain is empty")
    first, *rest = codecs
    if first.name == "bytes":
        data = _serialize(values, first.configuration.get("endian"))
    elif first.name in {"vlen-utf8", "vlen-bytes"}:
        data = _serialize_items(values)
    else:
        raise InvalidRequestError(f"codec {first.name}: encoding to it is not supported")
    return encode_bytes_codecs(data, rest)


def encode_bytes_codecs(data: bytes | memoryview, codecs: Sequence[Codec]) -> bytes:
    """Apply bytes -> bytes codecs, the first one first.

    Parameters
    ----------
    data
        Bytes to encode.
    codecs
        Any of ``gzip`` (``level``), ``zstd`` (``level``, ``checksum``), ``blosc``,
        ``numcodecs.shuffle`` (``elementsize``) and ``crc32c``.

    Returns
    -------
    bytes
        The encoded bytes; always the same for the same input.

    Raises
    ------
    InvalidRequestError
        For any other codec.
    """
    for codec in codecs:
        config = codec.configuration
        if codec.name == "gzip":
            data = _gzip(data, config.get("level", 5))
        elif codec.name == "zstd":
            data = _zstd(data, config.get("level", 0), config.get("checksum", False))
        elif codec.name == "blosc":
            data = _blosc(data, config)
        elif codec.name == "numcodecs.shuffle":
            data = _shuffled(data, config.get("elementsize", 4))
        elif codec.name == "crc32c":
            import google_crc32c

            raw = bytes(data)
            data = raw + struct.pack("<I", google_crc32c.value(raw))
        else:
            raise InvalidRequestError(f"codec {codec.name}: encoding to it is not supported")
    return bytes(data)


def gzip_from_zlib(stream: bytes | memoryview, decoded: NDArray[np.uint8]) -> bytes:
    """Make a gzip member of a zlib stream; nothing is compressed again.

    Parameters
    ----------
    stream
        A zlib stream that decodes to `decoded`. Bytes after its end become a file name of the same
        size, and the size of the member does not depend on them.
    decoded
        What it holds.

    Returns
    -------
    bytes
        `REWRAP_BYTES` more than `stream`.

    References
    ----------
    RFC 1950 (zlib) and 1952 (gzip), section 2 each.
    """
    n_behind = 0
    if bytes(stream[-4:]) != struct.pack(">I", imagecodecs.deflate_adler32(decoded)):
        inflater = zlib.decompressobj()
        inflater.decompress(stream)
        n_behind = len(inflater.unused_data)
    header = _GZIP_HEADER
    if n_behind:
        header = header[:3] + bytes([_HAS_NAME]) + header[4:] + b"-" * (n_behind - 1) + b"\0"
    deflated = stream[2 : len(stream) - n_behind - 4]
    trailer = struct.pack("<II", imagecodecs.deflate_crc32(decoded), decoded.size & 0xFFFFFFFF)
    return b"".join((header, deflated, trailer))


def _serialize(values: NDArray[Any], endian: Literal["little", "big"] | None) -> bytes:
    if values.dtype.hasobject:
        raise InvalidRequestError(f"codec bytes: elements of dtype {values.dtype} have no size")
    dtype = values.dtype
    if endian is not None:
        dtype = dtype.newbyteorder(endian)
    return values.astype(dtype, copy=False).tobytes()


def _serialize_items(values: NDArray[Any]) -> bytes:
    items = [
        item if isinstance(item, bytes) else item.encode() for item in values.reshape(-1).tolist()
    ]
    parts = [struct.pack("<I", len(items))]
    for item in items:
        parts += (struct.pack("<I", len(item)), item)
    return b"".join(parts)


def _gzip(data: bytes | memoryview, level: int) -> bytes:
    deflated = imagecodecs.deflate_encode(data, level=level, raw=True)
    return _GZIP_HEADER + deflated + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _zstd(data: bytes | memoryview, level: int, checksum: bool) -> bytes:
    if not checksum:
        return bytes(imagecodecs.zstd_encode(data, level=level))
    import numcodecs.zstd

    return bytes(numcodecs.zstd.compress(np.frombuffer(data, np.uint8), level, True))


def _blosc(data: bytes | memoryview, config: Mapping[str, Any]) -> bytes:
    """A C-Blosc 1 buffer. One thread makes it, so the same data always give the same bytes."""
    if len(data) > _MOST_BLOSC_BYTES:
        raise InvalidRequestError(
            f"codec blosc: a chunk of {len(data)} bytes is more than it takes"
            f" ({_MOST_BLOSC_BYTES}): write smaller chunks"
        )
    if not {"clevel", "cname", "shuffle", "typesize"} <= config.keys():
        raise InvalidRequestError("codec blosc: encoding takes clevel, cname, shuffle and typesize")
    encoded = imagecodecs.blosc_encode(
        data,
        level=config["clevel"],
        compressor=config["cname"],
        shuffle=BLOSC_SHUFFLES.index(config["shuffle"]),
        typesize=config["typesize"],
        blocksize=config.get("blocksize", 0),
        numthreads=1,
    )
    return bytes(encoded)


_MOST_BLOSC_BYTES = 2**31 - 1 - 16
"""C-Blosc 1, ``BLOSC_MAX_BUFFERSIZE``."""


def _shuffled(data: bytes | memoryview, element_bytes: int) -> bytes:
    """The first bytes of all elements, then the second ones, and so on."""
    if element_bytes < 2:
        return bytes(data)
    if len(data) % element_bytes:
        raise InvalidRequestError(
            f"codec numcodecs.shuffle: {len(data)} bytes are no whole elements of {element_bytes}"
        )
    return np.frombuffer(data, np.uint8).reshape(-1, element_bytes).T.tobytes()
