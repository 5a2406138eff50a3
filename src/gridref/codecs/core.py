"""Codecs of the Zarr v3 core and registry: axes, strings, numbers, compression, shuffle, checksums.

Codecs of axes: ``reshape`` is the codec of zarr-extensions
(https://github.com/zarr-developers/zarr-extensions, ``codecs/reshape``), in the forms that gridref
writes. ``gridref.select`` is gridref's own: it decodes to one index along an axis of its input.

Strings and bytes of variable length are stored as a little-endian uint32 with the number of items,
then for each item its size in bytes as a little-endian uint32, and its bytes.
Source: https://github.com/zarr-developers/zarr-extensions (``codecs/vlen-utf8``, ``vlen-bytes``).

Sources for the others: Zarr v3 core specification and
https://github.com/zarr-developers/zarr-extensions (``codecs/``); RFC 1950 to 1952 (zlib, deflate,
gzip); RFC 8878 (zstd); RFC 3720, section 12.1 (crc32c); c-blosc, ``README_CHUNK_FORMAT.rst``; HDF5
file format specification, version 3.0, IV.A.2.l "Filter Pipeline Message" (shuffle and
Fletcher-32), and the HDF5 library's documentation of H5Pset_shuffle and H5Pset_fletcher32.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.arithmetic import renumber
from gridref.codecs.stage import (
    AnyCodec,
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
    Together,
    as_bytes,
    as_u1,
    decompressed,
    four_more_bytes,
    need,
    same_bytes,
    stated_size,
)
from gridref.errors import number_of
from gridref.limits import beyond, limits

# Shuffle and Fletcher-32 as HDF5 and numcodecs store them


_BLOCK_BYTES = 256 * 2**10
"""Bytes that are put in order at a time: few enough to stay in the cache of a processor."""
_FEW_BYTES = 32
"""Elements of at most so many bytes are copied byte by byte, larger ones element by element."""


def unshuffle(raw: Raw, element_bytes: int, out: NDArray[np.uint8] | None = None) -> Raw:
    """Put the bytes of each element side by side again, in `out` where that is given.

    The bytes after the last whole element were not shuffled, and stay where they are.
    """
    planes = as_u1(raw)
    if out is None:
        if element_bytes == 1 or len(planes) < 2 * element_bytes:
            return raw
        out = np.empty(len(planes), np.uint8)
    n_elements, rest = divmod(len(planes), element_bytes)
    whole = len(planes) - rest
    shuffled = planes[:whole].reshape(element_bytes, n_elements)
    step = max(1, _BLOCK_BYTES // element_bytes)
    for start in range(0, n_elements, step):
        part = shuffled[:, start : start + step]
        first = start * element_bytes
        _transpose(part, out[first : first + part.size])
    out[whole:] = planes[whole:]
    return out


def unshuffle_together(chunks: NDArray[np.uint8], element_bytes: int) -> NDArray[np.uint8]:
    """The same for many chunks of one size, (chunks, bytes)."""
    n_chunks, n_bytes = chunks.shape
    whole = n_bytes - n_bytes % element_bytes
    planes = chunks[:, :whole].reshape(n_chunks, element_bytes, -1)
    elements = planes.transpose(0, 2, 1).reshape(n_chunks, whole)
    return np.concatenate((elements, chunks[:, whole:]), 1) if whole < n_bytes else elements


def _transpose(planes: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Byte `k` of each element out of plane `k`.

    Whole words are put together for elements of 2 and 4 bytes: numpy copies single bytes more
    slowly than it shifts them.
    """
    element_bytes, n_elements = planes.shape
    if element_bytes in (2, 4):
        words = out.view(f"<u{element_bytes}")
        words[...] = planes[-1]
        for plane in planes[-2::-1]:
            words <<= 8
            words |= plane
        return
    elements = out.reshape(n_elements, element_bytes)
    if element_bytes > _FEW_BYTES:
        elements[...] = planes.T
        return
    for k, plane in enumerate(planes):
        elements[:, k] = plane


def _shuffle_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    element_bytes = int(config.get("elementsize", 4))
    return lambda raw: unshuffle(raw, element_bytes)


def _shuffle_filler(config: Config, spec: ArraySpec) -> Fill:
    element_bytes = int(config.get("elementsize", 4))
    return lambda raw, out: unshuffle(raw, element_bytes, np.frombuffer(out, np.uint8))


def _shuffle_together(config: Config) -> Together:
    element_bytes = int(config.get("elementsize", 4))
    return lambda chunks: unshuffle_together(chunks, element_bytes)


def _shuffle_problem(config: Config) -> str | None:
    size = config.get("elementsize", 4)
    return None if isinstance(size, int) and size >= 1 else f"elementsize must be >= 1, got {size}"


def _check_fletcher32(raw: Raw) -> Raw:
    need(raw, 4, "a checksum")
    data, tail = raw[:-4], bytes(raw[-4:])
    computed = imagecodecs.h5checksum_fletcher32(data) if len(data) else 0
    stored = int.from_bytes(tail, "little")
    # Libraries before 1.6.3 stored each half of the sum the other way round on little-endian
    # machines, and HDF5 accepts both.
    swapped = int.from_bytes(bytes((tail[1], tail[0], tail[3], tail[2])), "little")
    if computed not in (stored, swapped):
        raise ValueError(f"checksum is {computed:#010x}, stored is {stored:#010x}")
    return data


# Array -> array codecs that add or drop axes


def _reshape_stored(config: Config, spec: ArraySpec) -> ArraySpec:
    shape = tuple(
        length_or_axes
        if isinstance(length_or_axes, int)
        else math.prod(spec.shape[axis] for axis in length_or_axes)
        for length_or_axes in config["shape"]
    )
    if math.prod(shape) != spec.size:
        raise ValueError(f"shape {config['shape']} does not hold {spec.size} elements")
    return ArraySpec(shape, spec.dtype)


def _reshape_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    return lambda stored: stored.reshape(spec.shape)


def _reshape_problem(config: Config) -> str | None:
    return "a shape of -1 is not supported" if -1 in config["shape"] else None


def _select_stored(config: Config, spec: ArraySpec) -> ArraySpec:
    axis, index, length = config["axis"], config["index"], config["length"]
    if not (0 <= axis <= len(spec.shape) and 0 <= index < length):
        raise ValueError(f"place {index} of {length} along axis {axis} of {spec.shape}")
    return ArraySpec((*spec.shape[:axis], length, *spec.shape[axis:]), spec.dtype)


def _select_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    index = (*(slice(None),) * config["axis"], config["index"])
    return lambda stored: np.asarray(stored[index])


# Variable-length strings and bytes: the ``vlen-utf8`` and ``vlen-bytes`` codecs

_SIZE = struct.Struct("<I")


def _items(data: bytes, n_items: int) -> Iterator[bytes]:
    """The items, checked against the size of `data`."""
    if len(data) < 4 or _SIZE.unpack_from(data)[0] != n_items:
        held = _SIZE.unpack_from(data)[0] if len(data) >= 4 else "no"
        raise ValueError(f"holds {held} items, expected {n_items}")
    position = 4
    for _ in range(n_items):
        if position + 4 > len(data):
            raise ValueError("items end behind the data")
        start = position + 4
        position = start + _SIZE.unpack_from(data, position)[0]
        if position > len(data):
            raise ValueError("items end behind the data")
        yield data[start:position]
    if position != len(data):
        raise ValueError(f"{number_of(len(data) - position, 'byte')} left over behind the items")


def _utf8_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    dtype: Any = spec.dtype if spec.dtype.kind in "TO" else np.dtypes.StringDType()

    def decode(raw: Raw) -> NDArray[Any]:
        texts = [item.decode() for item in _items(as_bytes(raw), spec.size)]
        return np.array(texts, dtype=dtype).reshape(spec.shape)

    return decode


def _byte_strings_decoder(config: Config, spec: ArraySpec) -> SerialDecode:
    def decode(raw: Raw) -> NDArray[Any]:
        values = np.empty(spec.size, object)
        values[:] = list(_items(as_bytes(raw), spec.size))
        return values.reshape(spec.shape)

    return decode


# Numbers, compression and checksums

_FIRST_GUESS_BYTES = 1 << 18
"""Size of the first buffer that is tried if the size of the decoded bytes is unknown."""
_GROWTH = 4
"""The factor by which each further buffer is larger."""


def _bytes_dtype(config: Config, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Dtype of the stored elements; without ``endian`` it stays unchanged."""
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
        raise ValueError(f"order {order} does not fit {number_of(len(spec.shape), 'dimension')}")
    return ArraySpec(tuple(spec.shape[axis] for axis in order), spec.dtype)


def _transpose_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    inverse = tuple(int(axis) for axis in np.argsort(config["order"]))
    return lambda stored: stored.transpose(inverse)


def _reverse_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    axes = tuple(config["axes"])
    return lambda stored: np.flip(stored, axes)


def _renumber_decoder(config: Config, spec: ArraySpec) -> ArrayDecode:
    return lambda stored: renumber(stored, config["pairs"])


def _renumber_problem(config: Config) -> str | None:
    pairs = config["pairs"]
    plain = isinstance(pairs, list) and all(
        isinstance(pair, list) and [type(number) for number in pair] == [int, int] for pair in pairs
    )
    return None if plain else "pairs are not pairs of integers"


def inflate(raw: Raw, wbits: int, max_bytes: int) -> bytes:
    """Decompress all members of a zlib (``wbits=15``) or gzip (``wbits=31``) stream."""
    # gzip members may be padded with zeros; what follows a zlib stream is not part of it.
    return decompressed(
        lambda: zlib.decompressobj(wbits), raw, max_bytes, lambda rest: wbits != 15 and any(rest)
    )


def _zlib_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    if decoded_bytes is None:
        return lambda raw: inflate(raw, 15, limits().decoded_bytes)
    size = decoded_bytes
    # libdeflate checks the Adler-32 and refuses to write beyond the size that is asked for.
    return lambda raw: imagecodecs.deflate_decode(raw, out=size)


def _gzip_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    if decoded_bytes is None:
        return lambda raw: inflate(raw, 31, limits().decoded_bytes)
    size = decoded_bytes

    def decode(raw: Raw) -> Raw:
        try:
            decoded = imagecodecs.gzip_decode(raw, out=size)
        except imagecodecs.GzipError:
            decoded = b""
        # libdeflate reads one member only, and does not report what follows it.
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
        declared, most = _zstd_content_bytes(raw), limits().decoded_bytes
        if declared is not None and declared > most:
            raise ValueError(beyond("decoded_bytes", f"decompresses to {declared} bytes"))
        # Several frames, or no declared size: try ever larger buffers.
        size = max(declared or 0, _FIRST_GUESS_BYTES)
        while True:
            try:
                return imagecodecs.zstd_decode(raw, out=size)
            except imagecodecs.ZstdError as error:
                if "too small" not in str(error) or size >= most:
                    raise
            size = min(_GROWTH * size, most)

    return decode


def _blosc_bytes(raw: Raw, decoded_bytes: int | None) -> int:
    """Decoded size of a C-Blosc 1 buffer, whose header has ``nbytes`` at 4 and ``cbytes`` at 12."""
    need(raw, 16)
    stored = int.from_bytes(raw[12:16], "little")
    # The library trusts the header's size of the source, so it has to be right.
    if stored != len(raw):
        raise ValueError(f"header says {stored} bytes are stored, got {len(raw)}")
    return stated_size(int.from_bytes(raw[4:8], "little"), decoded_bytes)


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
        need(raw, 4, "a checksum")
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


CODECS: dict[str, AnyCodec] = {
    "reshape": ArrayCodec(
        _reshape_decoder, _reshape_stored, required=("shape",), problem=_reshape_problem
    ),
    "gridref.select": ArrayCodec(
        _select_decoder, _select_stored, required=("axis", "index", "length")
    ),
    "vlen-utf8": SerialCodec(_utf8_decoder),
    "vlen-bytes": SerialCodec(_byte_strings_decoder),
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
    "bytes": SerialCodec(_bytes_decoder, lambda config, spec: spec.n_bytes, problem=_bytes_problem),
    "transpose": ArrayCodec(_transpose_decoder, _transpose_stored, required=("order",)),
    "gridref.reverse": ArrayCodec(_reverse_decoder, required=("axes",)),
    "gridref.renumber": ArrayCodec(
        _renumber_decoder, required=("pairs",), problem=_renumber_problem
    ),
    "numcodecs.shuffle": BytesCodec(
        _shuffle_decoder,
        same_bytes,
        problem=_shuffle_problem,
        filler=_shuffle_filler,
        together=_shuffle_together,
    ),
    "numcodecs.fletcher32": BytesCodec(
        lambda config, decoded_bytes, spec: _check_fletcher32, four_more_bytes
    ),
}
