"""Which format a file has, and who scans it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

from gridref.errors import SourceFormatError
from gridref.formats.hdf5.scanner import HDF5Scanner
from gridref.formats.kerchunk.scanner import KerchunkScanner, scan_reference_folder
from gridref.formats.options import OnUnsupported, ScanOptions
from gridref.formats.sniff import Head, describe, read_head
from gridref.formats.tiff.scanner import TIFFScanner
from gridref.formats.zarr.scanner import is_zarr_store, scan_zarr
from gridref.io import ScanFile, open_for_scan
from gridref.model.array import VirtualGroup

__all__ = ["SCANNERS", "FormatScanner", "scan"]


class FormatScanner(Protocol):
    """What reads one format."""

    name: str
    """Of the format, for messages."""

    def recognises(self, head: Head) -> bool:
        """Whether a file that begins like this is of the format."""
        ...

    def scan(self, file: ScanFile, options: ScanOptions) -> VirtualGroup:
        """Describe an open file; what was read of it to recognise it need not be read again."""
        ...


SCANNERS: tuple[FormatScanner, ...] = (HDF5Scanner(), TIFFScanner(), KerchunkScanner())
"""All formats, in the order in which they are tried."""


def scan(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    on_unsupported: OnUnsupported = "raise",
    **settings: Any,
) -> VirtualGroup:
    """Describe a file: where its arrays' chunks lie, without copying them.

    Parameters
    ----------
    url
        A local path or any URL that fsspec opens.
    storage_options
        Options for fsspec's filesystem of a remote file.
    on_unsupported
        What to do with an object that cannot be served faithfully: ``"raise"``, or ``"skip"``:
        leave it out, and say so in the report.
    **settings
        The other fields of `ScanOptions`.

    Returns
    -------
    VirtualGroup
        With a ``report`` of every object found: taken, inlined, or skipped and why.

    Raises
    ------
    SourceFormatError
        If the file is of no known format, is truncated or corrupt.
    UnsupportedFeatureError
        If an object cannot be served faithfully.
    SourceUnavailableError
        If the file is not there or cannot be read.
    """
    options = ScanOptions(
        on_unsupported=on_unsupported, storage_options=storage_options, **settings
    )
    references = scan_reference_folder(url, options)
    if references is not None:
        return references
    if is_zarr_store(url):
        return scan_zarr(os.fspath(url), options)
    with open_for_scan(url, options.storage_options) as file:
        head = read_head(file)
        for scanner in SCANNERS:
            if scanner.recognises(head):
                return scanner.scan(file, options)
    known = ", ".join(
        [*(scanner.name for scanner in SCANNERS), "Zarr and Parquet references (folders)"]
    )
    raise SourceFormatError(f"{describe(head)}; gridref scans {known}", head.place)
