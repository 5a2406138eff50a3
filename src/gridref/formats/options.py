"""Settings of a scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gridref.errors import InvalidRequestError
from gridref.io import Allow
from gridref.options import Shown, check_choices, refuses_unknown

OnUnsupported = Literal["raise", "skip"]
PhonyDims = Literal["sort", "access"]
IndexFiles = Literal["labels", "offsets"]
Hints = Literal["none", "dmrpp"]
Parser = Callable[..., Any]
"""Called as ``parser(url, registry)``, VirtualiZarr's way, or as kerchunk's scanners are."""


@refuses_unknown
@dataclass(frozen=True, repr=False)
class ScanOptions(Shown):
    """How a file is scanned.

    Attributes
    ----------
    on_unsupported
        What to do with an object that cannot be served faithfully. ``"raise"``: stop with an error.
        ``"skip"``: leave it out and report it.
    storage_options
        Options for fsspec's filesystem of a remote file.
    allow
        Folders and URLs below which files may refer to other files (kerchunk references, and the
        external links, external storage and virtual datasets of HDF5), besides their own folder;
        ``"*"`` allows everything.
    phony_dims
        How to number dimensions without a name: as netCDF4 does (``"sort"``) or as h5netcdf does in
        its ``"access"`` mode.
    max_chunk_bytes
        Maximum size of the chunks into which contiguous data is split.
    max_inline_bytes
        Maximum number of bytes of values that are read and kept in the references, for each array.
    max_objects
        Maximum number of groups, datasets and links that are followed in a file.
    index_files
        What to take from index files beside remote GRIB files (``.idx``, ``.index``).
        ``"labels"``: what each message is, which is compared with the message when it is read.
        ``"offsets"``: only where messages begin; all of their headers are read.
    hints
        What to ask for before remote HDF5 files are scanned. ``"dmrpp"``: the DMR++ document beside
        a file (``granule.h5.dmrpp``), which tells where metadata lie. They are then read at once.
        What is found does not depend on it; the report names documents that do not fit.
    parser
        A scanner to use in place of gridref's own: a parser of VirtualiZarr
        (``virtualizarr.parsers.NetCDF3Parser()``), a scanner of kerchunk
        (``kerchunk.grib2.GribToZarr``), or the name of one
        (``"virtualizarr.parsers:NetCDF3Parser"``).

    Raises
    ------
    InvalidRequestError
        For values that make no sense.
    """

    on_unsupported: OnUnsupported = "raise"
    storage_options: Mapping[str, Any] | None = field(default=None, hash=False, repr=False)
    allow: Allow = field(default=None, hash=False)
    phony_dims: PhonyDims = "sort"
    max_chunk_bytes: int = 4 << 20
    max_inline_bytes: int = 16 << 20
    max_objects: int = 1_000_000
    index_files: IndexFiles = "labels"
    hints: Hints = "none"
    parser: Parser | str | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        check_choices(self)
        for name, least in (("max_chunk_bytes", 1), ("max_inline_bytes", 0), ("max_objects", 1)):
            if getattr(self, name) < least:
                raise InvalidRequestError(f"{name} must be >= {least}, got {getattr(self, name)}")
