"""HDF5 filters -> codecs.

Source: HDF5 filter registry, https://github.com/HDFGroup/hdf5_plugins/blob/master/docs/RegisteredFilterPlugins.md
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from h5py import h5z

from gridref.codecs import why_not
from gridref.errors import UnsupportedFeatureError
from gridref.model.encoding import Codec

__all__ = ["FILTERS", "filter_codecs", "refuse_unreadable"]

Parameters = tuple[int, ...]
"""The filter's client data values."""


def _deflate(values: Parameters) -> Codec:
    return Codec.of("numcodecs.zlib", level=values[0] if values else 1)


def _shuffle(values: Parameters) -> Codec:
    return Codec.of("numcodecs.shuffle", elementsize=values[0] if values else 1)


def _zstd(values: Parameters) -> Codec:
    return Codec.of("zstd", level=values[0] if values else 3, checksum=False)


_BLOSC_COMPRESSORS = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
_BLOSC_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")


def _blosc(values: Parameters) -> Codec:
    padded = (*values, *(0,) * 7)
    compressor, shuffle = padded[6], padded[5]
    if len(values) < 7 or compressor >= len(_BLOSC_COMPRESSORS) or shuffle > 2:
        # The buffers say for themselves how they are to be decoded.
        compressor, shuffle = 0, min(shuffle, 2)
    return Codec.of(
        "blosc",
        cname=_BLOSC_COMPRESSORS[compressor],
        clevel=min(padded[4], 9),
        shuffle=_BLOSC_SHUFFLES[shuffle],
        typesize=max(1, padded[2]),
        blocksize=0,
    )


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


def filter_codecs(creation: Any) -> tuple[Codec, ...]:
    """The bytes -> bytes codecs of a dataset's filters, in the order in which they were applied.

    Parameters
    ----------
    creation
        The dataset's creation properties.

    Raises
    ------
    UnsupportedFeatureError
        For a filter that nothing here can decode, by number and name.
    """
    return tuple(
        _codec(*_identify(creation.get_filter(index))) for index in range(creation.get_nfilters())
    )


def refuse_unreadable(creation: Any) -> None:
    """Raise if the HDF5 library here cannot undo all filters of a dataset.

    Raises
    ------
    UnsupportedFeatureError
        For a filter that would need a plugin.
    """
    for index in range(creation.get_nfilters()):
        number, _, name = _identify(creation.get_filter(index))
        if not h5z.filter_avail(number):
            raise UnsupportedFeatureError(
                f"values have to be read with the HDF5 library, which lacks filter {number}"
                f" ({_name(number, name)}): install hdf5plugin and import it before the scan"
            )


def _name(number: int, stored_name: str) -> str:
    known = FILTERS.get(number)
    return known[0] if known else _KNOWN_NAMES.get(number, stored_name) or "without a name"


def _identify(entry: Sequence[Any]) -> tuple[int, Parameters, str]:
    number, _, values, name = entry
    return int(number), tuple(int(value) for value in values), name.decode("utf-8", "replace")


def _codec(number: int, values: Parameters, stored_name: str) -> Codec:
    known = FILTERS.get(number)
    name = _name(number, stored_name)
    if known is None:
        raise UnsupportedFeatureError(f"filter {number} ({name}) cannot be decoded")
    codec = known[1](values)
    problem = why_not(codec)
    if problem is not None:
        raise UnsupportedFeatureError(f"filter {number} ({name}) cannot be decoded: {problem}")
    return codec
