"""The ``numcodecs.*`` codecs of zarr-python that `core` leaves, and zfp streams.

zlib, gzip, zstd, Blosc, shuffle and Fletcher-32 are in `core`.

A zfp stream begins with 32 bits of magic, 52 of type and shape, then 12 of mode, or 12 ones and 52
more of mode. The lowest bit of each byte comes first. The zfp library trusts its input, and reads
beyond the end of a truncated stream. Each stream is therefore followed by as many zeros as the
library could ever read.
Source: https://zfp.readthedocs.io, "High-level C API", ``zfp_write_header``.

Compressors and checksums are decoded by gridref's own bounded decoders. Codecs that do arithmetic
on arrays are numcodecs' own classes, so they round in the same way as zarr-python.
Source: https://numcodecs.readthedocs.io, and ``zarr.codecs.numcodecs`` for the shapes and dtypes
that follow from their configurations.
"""

from __future__ import annotations

import bz2
import lzma
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import imagecodecs
import numcodecs
import numcodecs.registry
import numpy as np
from numpy.typing import NDArray

from gridref.codecs.stage import (
    AnyCodec,
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
    need,
    too_large,
)
from gridref.limits import beyond, limits

# Streams of the zfp compressor

_MAGIC_BITS, _META_BITS, _MODE_BITS, _LONG_MODE_BITS = 32, 52, 12, 64
_SHORT_BITS = _MAGIC_BITS + _META_BITS + _MODE_BITS


@dataclass(frozen=True)
class ZfpHeader:
    """The full header of a stream.

    Attributes
    ----------
    data
        Its bytes; the last one may hold other bits too.
    n_bits
        Its size in bits.
    big_endian
        Whether it was found in big-endian words; the elements are then big-endian, too.
    """

    data: bytes
    n_bits: int
    big_endian: bool = False

    @classmethod
    def from_bytes(cls, data: bytes, *, big_endian: bool = False) -> Self:
        """Read the header at the start of a stream."""
        mode = int.from_bytes(data, "little") >> (_SHORT_BITS - _MODE_BITS) & 0xFFF
        n_bits = _SHORT_BITS + (_LONG_MODE_BITS - _MODE_BITS if mode == 0xFFF else 0)
        if data[:3] != b"zfp" or len(data) * 8 < n_bits:
            raise ValueError("is no zfp stream")
        return cls(data[: -(-n_bits // 8)], n_bits, big_endian)

    @classmethod
    def from_words(cls, words: Sequence[int]) -> Self:
        """Read the header from 32-bit words in the byte order of their writer."""
        little = np.array(words, "<u4").tobytes()
        if little[:3] == b"zfp":
            return cls.from_bytes(little)
        return cls.from_bytes(np.array(words, ">u4").tobytes(), big_endian=True)

    @property
    def _meta(self) -> int:
        return int.from_bytes(self.data, "little") >> _MAGIC_BITS & ((1 << _META_BITS) - 1)

    @property
    def _item_bytes(self) -> int:
        return (4, 8, 4, 8)[self._meta & 3]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of the axes, the fastest one first."""
        n_dims = (self._meta >> 2 & 3) + 1
        width = 48 // n_dims
        mask = (1 << width) - 1
        return tuple((self._meta >> 4 + width * axis & mask) + 1 for axis in range(n_dims))

    @property
    def decoded_bytes(self) -> int:
        """Size of the decoded elements."""
        return math.prod(self.lengths) * self._item_bytes

    @property
    def _max_stream_bytes(self) -> int:
        """Upper bound of bytes read by the library: every bit of a block, tested and stored."""
        block_bits: int = 4 ** len(self.lengths) * (8 * self._item_bytes + 1) + 128
        n_blocks: int = math.prod(-(-length // 4) for length in self.lengths)
        return n_blocks * block_bits // 8 + 64

    def decode_behind(self, raw: Raw) -> NDArray[Any]:
        """Decode a stream from which this header was removed."""
        n_whole, n_bits = divmod(self.n_bits, 8)
        if n_bits:
            # The header ends in the middle of a byte, so everything after it is shifted.
            last = np.unpackbits(as_u1(self.data[n_whole:]), count=n_bits, bitorder="little")
            rest = np.unpackbits(as_u1(raw), bitorder="little")
            raw = np.packbits(np.concatenate([last, rest]), bitorder="little")
        return self.decode(self.data[:n_whole] + as_bytes(raw))

    def decode(self, stream: bytes, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Decode a stream with this header in it."""
        padding = bytes(max(0, self._max_stream_bytes - len(stream)))
        values: NDArray[Any] = imagecodecs.zfp_decode(stream + padding, out=out)
        return values.byteswap() if self.big_endian else values


# The ``numcodecs.*`` codecs of zarr-python


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
        start = partial(lzma.LZMADecompressor, form, memlimit=limits().lzma_bytes)

    def decode(raw: Raw) -> Raw:
        try:
            return decompressed(start, raw, limit)
        except lzma.LZMAError as error:
            if "Memory usage limit" not in str(error):
                raise
            what = "the stream asks for more memory for its dictionary"
            raise ValueError(beyond("lzma_bytes", what)) from error

    return decode


def _lz4_decoder(config: Config, decoded_bytes: int | None, spec: ArraySpec) -> BytesDecode:
    """One LZ4 block after its decoded size, a little-endian uint32."""
    limit = most_bytes(decoded_bytes)

    def decode(raw: Raw) -> Raw:
        need(raw, 5, "a header and a block")
        size = int.from_bytes(as_bytes(raw[:4]), "little")
        if size > limit:
            raise too_large(
                f"header says {size} bytes are decoded, expected at most {limit}", limit
            )
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
        need(raw, 4, "a checksum")
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
    """The stored dtype is the first of the given configuration keys that exists."""

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
"""Codecs of numcodecs' registry that make objects, some by running code in the bytes."""


def fallback(name: str) -> BytesCodec | None:
    """Any other bytes -> bytes codec that is registered with numcodecs."""
    key = name.removeprefix("numcodecs.")
    if not name.startswith("numcodecs.") or key in _NOT_BYTES:
        return None
    if key not in numcodecs.registry.codec_registry and key not in numcodecs.registry.entries:
        return None
    return BytesCodec(partial(_fallback_decoder, name), problem=partial(_numcodecs_problem, name))


CODECS: dict[str, AnyCodec] = {
    "numcodecs.bz2": BytesCodec(bz2_decoder),
    "numcodecs.lzma": BytesCodec(_lzma_decoder),
    "numcodecs.lz4": BytesCodec(_lz4_decoder),
    "numcodecs.zfpy": SerialCodec(_zfpy_decoder),
    "numcodecs.pcodec": SerialCodec(_pcodec_decoder),
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
    **{
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
    },
}
