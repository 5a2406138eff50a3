"""Turn the filter pipelines of HDF5 datasets into codec chains.

`read_filters` takes the bytes of a filter pipeline message and returns its filters.
`filter_codecs` returns the codecs that decode what these filters stored.

Sources: HDF5 File Format Specification v3, IV.A.2.l "The Data Storage - Filter Pipeline Message";
HDF5 filter registry, https://github.com/HDFGroup/hdf5_plugins/blob/master/docs/RegisteredFilterPlugins.md
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gridref.codecs import decode_chunk, why_not
from gridref.errors import DecodeError, Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.bytes import FieldCursor
from gridref.learned import FORMS
from gridref.model.encoding import Codec, Encoding, blosc_codec

_MAX_FILTERS = 32
_FIRST_NAMED = 256

Parameters = tuple[int, ...]
"""The filter's client data values."""


def _deflate(values: Parameters) -> Codec:
    return Codec.of("numcodecs.zlib", level=values[0] if values else 1)


def _shuffle(values: Parameters) -> Codec:
    return Codec.of("numcodecs.shuffle", elementsize=values[0] if values else 1)


def _zstd(values: Parameters) -> Codec:
    return Codec.of("zstd", level=values[0] if values else 3, checksum=False)


_BLOSC_COMPRESSORS = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")


def _blosc(values: Parameters) -> Codec:
    padded = (*values, *(0,) * 7)
    compressor, shuffle = padded[6], padded[5]
    if len(values) < 7 or compressor >= len(_BLOSC_COMPRESSORS) or shuffle > 2:
        # The buffers state themselves how to decode them.
        compressor, shuffle = 0, min(shuffle, 2)
    return blosc_codec(_BLOSC_COMPRESSORS[compressor], min(padded[4], 9), shuffle, padded[2])


def _own(name: str) -> Callable[[Parameters], Codec]:
    return lambda values: Codec.of(f"gridref.hdf5_{name}", cd_values=list(values))


FILTERS: dict[int, tuple[str, Callable[[Parameters], Codec]]] = {
    1: ("deflate", _deflate),
    2: ("shuffle", _shuffle),
    3: ("fletcher32", lambda values: Codec("numcodecs.fletcher32")),
    4: ("szip", _own("szip")),
    5: ("nbit", _own("nbit")),
    6: ("scaleoffset", _own("scaleoffset")),
    307: ("bzip2", _own("bzip2")),
    32000: ("lzf", _own("lzf")),
    32001: ("blosc", _blosc),
    32004: ("lz4", _own("lz4")),
    32008: ("bitshuffle", _own("bitshuffle")),
    32013: ("zfp", _own("zfp")),
    32015: ("zstd", _zstd),
    32018: ("FCIDECOMP", _own("jpegls")),
    32019: ("JPEG", _own("jpeg")),
    32022: ("BitGroom", _own("bitgroom")),
    32023: ("Granular BitRound", _own("granularbr")),
    32026: ("blosc2", _own("blosc2")),
}
"""Name and codec of the filters that may be decoded, by registered number."""

_KNOWN_NAMES = {
    257: "HDF5's test filter",
    305: "LZO",
    32002: "MAFISC",
    32005: "APAX",
    32006: "CBF",
    32009: "SPDP",
    32010: "LPC-Rice",
    32011: "CCSDS-123",
    32012: "JPEG-LS",
    32014: "FPZIP",
    32016: "B3D",
    32017: "SZ",
    32020: "VBZ",
    32024: "SZ3",
    32025: "Delta-Rice",
    32028: "SPERR",
    32040: "JPEG 2000 (Grok)",
}


class Filter(NamedTuple):
    """A filter of a dataset.

    Attributes
    ----------
    number
        As registered.
    name
        As the file has it; often empty.
    """

    number: int
    name: str
    values: Parameters


def filter_codecs(filters: tuple[Filter, ...]) -> tuple[Codec, ...]:
    """The bytes -> bytes codecs of filters."""
    return tuple(map(_decoder, filters))


@FORMS.remembers
def read_filters(message: bytes) -> tuple[Filter, ...]:
    """The filters that a pipeline message lists, in the order in which they were applied."""
    cursor = FieldCursor(message, "the filter pipeline message", Place())
    version, n_filters = cursor.take(1), cursor.take(1)
    if version not in (1, 2):
        raise cursor.error(f"has the unknown version {version}")
    if n_filters > _MAX_FILTERS:
        raise cursor.error(f"declares {n_filters} filters")
    if version == 1:
        cursor.take_bytes(6)
    return tuple(_filter(cursor, is_padded=version == 1) for _ in range(n_filters))


def unfiltered(data: bytes, filters: tuple[Filter, ...], mask: int, n_bytes: int) -> bytes:
    """The `n_bytes` bytes that filters were applied to; bits of `mask` mark filters left out."""
    codecs = (Codec("bytes"), *filter_codecs(filters))
    try:
        decoded = decode_chunk(data, Encoding((n_bytes,), np.dtype("u1"), codecs), (n_bytes,), mask)
    except DecodeError as error:
        raise SourceFormatError(f"metadata cannot be decoded: {error.reason}") from error
    return decoded.tobytes()


def _filter(cursor: FieldCursor, *, is_padded: bool) -> Filter:
    number = cursor.take(2)
    name_bytes = cursor.take(2) if is_padded or number >= _FIRST_NAMED else 0
    cursor.take(2)  # whether the filter may be skipped on writing
    n_values = cursor.take(2)
    name = cursor.take_bytes(-(-name_bytes // 8) * 8 if is_padded else name_bytes)
    values = struct.unpack(f"<{n_values}I", cursor.take_bytes(4 * n_values))
    if is_padded and n_values % 2:
        cursor.take_bytes(4)
    return Filter(number, name.partition(b"\0")[0].decode("utf-8", "replace"), values)


def _decoder(stage: Filter) -> Codec:
    number = stage.number
    if number not in FILTERS:
        name = _KNOWN_NAMES.get(number, stage.name) or "without a name"
        raise UnsupportedFeatureError(f"filter {number} ({name}) cannot be decoded")
    return _codec(stage.values, number)


@FORMS.remembers
def _codec(values: Parameters, number: int) -> Codec:
    name, make = FILTERS[number]
    codec = make(values)
    problem = why_not(codec)
    if problem is not None:
        raise UnsupportedFeatureError(f"filter {number} ({name}) cannot be decoded: {problem}")
    return codec
