"""Codecs of the Zarr v3 core and registry.

Sources: Zarr v3 core specification and https://github.com/zarr-developers/zarr-extensions
(``codecs/``); RFC 1950 to 1952 (zlib, deflate, gzip); RFC 8878 (zstd); RFC 3720, section 12.1
(crc32c); c-blosc, ``README_CHUNK_FORMAT.rst``.
"""

from __future__ import annotations

import zlib
from typing import Any

import imagecodecs
import numpy as np

from gridref.codecs.stage import (
    MAX_UNKNOWN_BYTES,
    ArrayCodec,
    ArrayDecode,
    ArraySpec,
    BytesCodec,
    BytesDecode,
    Config,
    Fill,
    Raw,
    SerialCodec,
    SerialDecode,
    as_bytes,
    decompressed,
    four_more_bytes,
    most_bytes,
)

__all__ = ["ARRAY_CODECS", "BYTES_CODECS", "SERIAL_CODECS", "inflate"]

_FIRST_GUESS_BYTES = 1 << 18
"""Size of the first buffer that is tried where nothing says how large the decoded bytes are."""
_GROWTH = 4
"""How much larger the next one is."""


def _bytes_dtype(config: Config, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Dtype of the stored elements; without ``endian`` it is taken as it stands."""
    endian = config.get("endian")
    if endian is None:
        return dtype
    return dtype.newbyteorder("<" if endian == "little" else ">")


def _bytes_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    dtype, shape = spec.dtype, spec.shape
    if dtype.hasobject:
        raise ValueError(f"elements of dtype {dtype} have no fixed size")
    stored = _bytes_dtype(config, dtype)
    if dtype.itemsize == 0:
        return lambda raw: np.ndarray(shape, dtype)  # numpy.zeros gives such text a byte
    if stored == dtype:
        return lambda raw: np.frombuffer(raw, dtype).reshape(shape)
    return lambda raw: np.frombuffer(raw, stored).reshape(shape).astype(dtype)


def _bytes_problem(config: Config) -> str | None:
    endian = config.get("endian")
    if endian in (None, "little", "big"):
        return None
    return f"endian {endian!r} is neither big nor little"


def _transpose_stored(config: Config, spec: ArraySpec) -> ArraySpec:
    order = config["order"]
    if sorted(order) != list(range(len(spec.shape))):
        raise ValueError(f"order {order} does not fit {len(spec.shape)} dimensions")
    return ArraySpec(tuple(spec.shape[axis] for axis in order), spec.dtype)


def _transpose_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    inverse = tuple(int(axis) for axis in np.argsort(config["order"]))
    return lambda stored: stored.transpose(inverse)


def _reverse_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    axes = tuple(config["axes"])
    return lambda stored: np.flip(stored, axes)


def inflate(raw: Raw, wbits: int, max_bytes: int) -> bytes:
    """Decompress all members of a zlib (``wbits=15``) or gzip (``wbits=31``) stream.

    Raises
    ------
    ValueError
        If the stream is cut, or holds more than `max_bytes`.
    zlib.error
        If it is corrupt.
    """
    # gzip members may be padded with zeros; what lies behind a zlib stream is not part of it.
    return decompressed(
        lambda: zlib.decompressobj(wbits), raw, max_bytes, lambda rest: wbits != 15 and any(rest)
    )


def _zlib_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    if decoded_bytes is None:
        return lambda raw: inflate(raw, 15, MAX_UNKNOWN_BYTES)
    size = decoded_bytes
    # libdeflate checks the Adler-32 and refuses to write beyond the size that is asked for.
    return lambda raw: imagecodecs.deflate_decode(raw, out=size)


def _gzip_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    if decoded_bytes is None:
        return lambda raw: inflate(raw, 31, MAX_UNKNOWN_BYTES)
    size = decoded_bytes

    def decode(raw: Raw) -> Raw:
        try:
            decoded = imagecodecs.gzip_decode(raw, out=size)
        except imagecodecs.GzipError:
            decoded = b""
        # libdeflate reads one member only, and never tells what lies behind it.
        return decoded if len(decoded) == size and size else inflate(raw, 31, size)

    return decode


def _zstd_content_bytes(raw: Raw) -> int | None:
    """Content size out of a zstd frame header (RFC 8878, 3.1.1.1); None if it is not there."""
    if len(raw) < 6 or bytes(raw[:4]) != b"\x28\xb5\x2f\xfd":
        return None
    descriptor = int(raw[4])
    single_segment = bool(descriptor & 0x20)
    width = (int(single_segment), 2, 4, 8)[descriptor >> 6]
    if width == 0:
        return None
    start = 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(bytes(raw[start : start + width]), "little")
    return size + 256 if width == 2 else size


def _zstd_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    if decoded_bytes is not None:
        size = decoded_bytes
        return lambda raw: imagecodecs.zstd_decode(raw, out=size)

    def decode(raw: Raw) -> Raw:
        declared = _zstd_content_bytes(raw)
        if declared is not None and declared > MAX_UNKNOWN_BYTES:
            raise ValueError(f"decompresses to more than {MAX_UNKNOWN_BYTES} bytes")
        # Several frames, or no declared size: try ever larger buffers.
        size = max(declared or 0, _FIRST_GUESS_BYTES)
        while True:
            try:
                return imagecodecs.zstd_decode(raw, out=size)
            except imagecodecs.ZstdError as error:
                if "too small" not in str(error) or size >= MAX_UNKNOWN_BYTES:
                    raise
            size = min(_GROWTH * size, MAX_UNKNOWN_BYTES)

    return decode


def _blosc_bytes(raw: Raw, decoded_bytes: int | None) -> int:
    """Decoded size of a C-Blosc 1 buffer, whose header has ``nbytes`` at 4 and ``cbytes`` at 12."""
    if len(raw) < 16:
        raise ValueError(f"{len(raw)} bytes are too few for a header")
    n_bytes = int.from_bytes(raw[4:8], "little")
    stored = int.from_bytes(raw[12:16], "little")
    # The library trusts the header's size of the source, so it has to be right.
    if stored != len(raw):
        raise ValueError(f"header says {stored} bytes are stored, got {len(raw)}")
    if n_bytes > most_bytes(decoded_bytes) or (
        decoded_bytes is not None and n_bytes != decoded_bytes
    ):
        raise ValueError(f"header says {n_bytes} bytes are decoded, expected {decoded_bytes}")
    return n_bytes


def _blosc_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    def decode(raw: Raw) -> Raw:
        n_bytes = _blosc_bytes(raw, decoded_bytes)
        return b"" if n_bytes == 0 else imagecodecs.blosc_decode(raw, numthreads=1, out=n_bytes)

    return decode


def _blosc_filler(config: Config, spec: ArraySpec) -> Fill:
    def fill(raw: Raw, out: memoryview) -> Raw:
        n_bytes = _blosc_bytes(raw, len(out))
        return out if n_bytes == 0 else imagecodecs.blosc_decode(raw, numthreads=1, out=out)

    return fill


def _crc32c_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    import google_crc32c

    def decode(raw: Raw) -> Raw:
        if len(raw) < 4:
            raise ValueError(f"{len(raw)} bytes are too few for a checksum")
        data = as_bytes(raw[:-4])
        stored = int.from_bytes(raw[-4:], "little")
        computed = google_crc32c.value(data)
        if computed != stored:
            raise ValueError(f"checksum is {computed:#010x}, stored is {stored:#010x}")
        return data

    return decode


def _crc32c_problem(config: Config) -> str | None:
    try:
        import google_crc32c  # noqa: F401
    except ImportError:
        return "needs the google-crc32c package"
    return None


_GZIP = BytesCodec(_gzip_decoder)
_ZSTD = BytesCodec(
    _zstd_decoder,
    filler=lambda config, spec: lambda raw, out: imagecodecs.zstd_decode(raw, out=out),
)
_BLOSC = BytesCodec(_blosc_decoder, filler=_blosc_filler)

BYTES_CODECS = {
    "gzip": _GZIP,
    "zstd": _ZSTD,
    "blosc": _BLOSC,
    "crc32c": BytesCodec(_crc32c_decoder, four_more_bytes, problem=_crc32c_problem),
    "numcodecs.zlib": BytesCodec(
        _zlib_decoder,
        filler=lambda config, spec: lambda raw, out: imagecodecs.deflate_decode(raw, out=out),
    ),
    "numcodecs.gzip": _GZIP,
    "numcodecs.zstd": _ZSTD,
    "numcodecs.blosc": _BLOSC,
}

SERIAL_CODECS = {
    "bytes": SerialCodec(_bytes_decoder, lambda config, spec: spec.n_bytes, problem=_bytes_problem),
}

ARRAY_CODECS = {
    "transpose": ArrayCodec(_transpose_decoder, _transpose_stored, required=("order",)),
    "gridref.reverse": ArrayCodec(_reverse_decoder, required=("axes",)),
}
