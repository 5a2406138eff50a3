"""Compression of a source, in the words in which xarray's ``to_zarr`` takes it.

Sources: Zarr v3 codecs ``blosc``, ``gzip`` and ``zstd``; numcodecs' configurations of the same, for
Zarr v2.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

import numcodecs

__all__ = ["zarr_compressors"]

_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
_MOST_BLOSC_LEVEL = 9


class _Compressor(dict[str, Any]):
    """A codec as Zarr v3 writes it, which Zarr v2 takes for one of numcodecs.

    Which format a dataset will be written to is not known, and `encoding` has one place for both.
    """

    codec_id: ClassVar[str]

    @classmethod
    def of(cls, **configuration: Any) -> Self:
        """The codec with these settings."""
        return cls(name=cls.codec_id, configuration=configuration)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The codec of a configuration as numcodecs writes it."""
        return cls.of(**{key: value for key, value in config.items() if key != "id"})

    def get_config(self) -> dict[str, Any]:
        """Its settings as numcodecs writes them."""
        return {"id": self.codec_id, **self["configuration"]}

    @cached_property
    def _codec(self) -> Any:
        return numcodecs.get_codec(self.get_config())

    def encode(self, buf: Any) -> Any:
        """Compress a buffer."""
        return self._codec.encode(buf)

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Decompress a buffer."""
        return self._codec.decode(buf, out)


class _Gzip(_Compressor):
    codec_id = "gzip"


class _Zstd(_Compressor):
    codec_id = "zstd"


class _Blosc(_Compressor):
    codec_id = "blosc"

    def get_config(self) -> dict[str, Any]:
        settings = super().get_config()
        return {**settings, "shuffle": _SHUFFLES.index(settings["shuffle"])}


def zarr_compressors(encoding: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """What compresses a Zarr array as a variable of netCDF4 is; nothing where Zarr has no codec.

    Deflate is ``gzip`` in Zarr, and compression after a byte shuffle ``blosc``, which shuffles
    itself: Zarr readers know these codecs, and few know those of numcodecs' own names.

    Parameters
    ----------
    encoding
        netCDF4's words: ``zlib``, ``zstd``, ``blosc``, ``shuffle`` and ``complevel``.
    """
    level = encoding.get("complevel", 4)
    blosc = encoding.get("blosc")
    if blosc:
        name = blosc["compressor"].removeprefix("blosc_")
        return (_blosc("blosclz" if name == "lz" else name, level, blosc["shuffle"]),)
    for name, compressor in (
        ("zlib", _Gzip.of(level=level)),
        ("zstd", _Zstd.of(level=level, checksum=False)),
    ):
        if encoding.get(name):
            return (_blosc(name, level, 1) if encoding.get("shuffle") else compressor,)
    return ()


def _blosc(name: str, level: int, shuffle: int) -> _Compressor:
    clevel = min(level, _MOST_BLOSC_LEVEL)
    return _Blosc.of(cname=name, clevel=clevel, shuffle=_SHUFFLES[shuffle], blocksize=0)
