"""Settings of a scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gridref.errors import InvalidRequestError
from gridref.io import Allow
from gridref.options import check_choices, refuses_unknown

__all__ = ["OnUnsupported", "Parser", "PhonyDims", "ScanOptions"]

OnUnsupported = Literal["raise", "skip"]
PhonyDims = Literal["sort", "access"]
Parser = Callable[..., Any]
"""Called as ``parser(url, registry)``, VirtualiZarr's way, or as kerchunk's scanners are."""


@refuses_unknown
@dataclass(frozen=True)
class ScanOptions:
    """How a file is scanned.

    Attributes
    ----------
    on_unsupported
        What to do with an object that cannot be served faithfully: ``"raise"``, or ``"skip"``:
        leave it out, and say so in the report.
    storage_options
        Options for fsspec's filesystem of a remote file.
    allow
        Folders and URLs below which files may name others (kerchunk references, and the external
        links, external storage and virtual datasets of HDF5), beside those in their own folder;
        ``"*"`` is everything.
    phony_dims
        How dimensions without a name are numbered: as netCDF4 does (``"sort"``) or as h5netcdf does
        in its ``"access"`` mode.
    max_chunk_bytes
        Contiguous data is split into chunks of at most so many bytes.
    max_inline_bytes
        Most bytes of values that are read and kept in the references, for each array.
    max_objects
        Most groups, datasets and links that are followed in a file.
    parser
        What scans files in place of gridref's own scanners: a parser of VirtualiZarr
        (``virtualizarr.parsers.NetCDF3Parser()``), a scanner of kerchunk
        (``kerchunk.grib2.GribToZarr``), or the name of one
        (``"virtualizarr.parsers:NetCDF3Parser"``).

    Raises
    ------
    InvalidRequestError
        For values that cannot be meant.
    """

    on_unsupported: OnUnsupported = "raise"
    storage_options: Mapping[str, Any] | None = field(default=None, hash=False, repr=False)
    allow: Allow = field(default=None, hash=False)
    phony_dims: PhonyDims = "sort"
    max_chunk_bytes: int = 4 << 20
    max_inline_bytes: int = 16 << 20
    max_objects: int = 1_000_000
    parser: Parser | str | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        check_choices(self)
        for name, least in (("max_chunk_bytes", 1), ("max_inline_bytes", 0), ("max_objects", 1)):
            if getattr(self, name) < least:
                raise InvalidRequestError(f"{name} must be >= {least}, got {getattr(self, name)}")
