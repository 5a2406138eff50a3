"""Which formats there are, and which of them a file or folder has."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gridref.errors import SourceFormatError
from gridref.formats.coordinates_ahead import keep_coordinates
from gridref.formats.location import Location, describe, open_location
from gridref.formats.options import OnUnsupported, ScanOptions
from gridref.formats.organisation import MetadataPieces, Organisation
from gridref.formats.scanner import GROUP, Organised, Scanner
from gridref.io import DataNames, absolute_url, counted_traffic, expand_urls, is_local
from gridref.model.array import VirtualGroup
from gridref.plugins import Plugin, plugins

if TYPE_CHECKING:
    from gridref.formats.hdf5.scanner import HDF5Scanner
    from gridref.formats.icechunk.scanner import IcechunkScanner
    from gridref.formats.kerchunk.scanner import KerchunkScanner
    from gridref.formats.tiff.scanner import TIFFScanner
    from gridref.formats.zarr.scanner import ZarrScanner

    # They are imported by name below; here the type checker proves that they keep the contract.
    _PROVEN: tuple[Scanner, ...] = (
        HDF5Scanner(),
        TIFFScanner(),
        KerchunkScanner(),
        IcechunkScanner(),
        ZarrScanner(),
    )

__all__ = [
    "BUILT_IN",
    "data_names",
    "expand_files",
    "first_bytes",
    "organisation",
    "scan",
    "scan_with",
    "scanner_of",
    "scanners",
]

BUILT_IN = {
    "tiff": "gridref.formats.tiff.scanner:TIFFScanner",
    "kerchunk": "gridref.formats.kerchunk.scanner:KerchunkScanner",
    "icechunk": "gridref.formats.icechunk.scanner:IcechunkScanner",
    "zarr": "gridref.formats.zarr.scanner:ZarrScanner",
    "hdf5": "gridref.formats.hdf5.scanner:HDF5Scanner",
}
"""gridref's own formats, in the order in which they are tried, before those of other packages.

HDF5 comes last: to exclude a signature behind a user's block takes reading more of a file.

Its package metadata lists the same ones; they stand here so that they are found without it.
"""


@cache
def _built_in(reference: str) -> Scanner:
    module, _, name = reference.partition(":")
    scanner: Scanner = getattr(import_module(module), name)()
    return scanner


@cache
def _added(plugin: Plugin) -> Scanner:
    """The scanner of another package, checked to be one."""
    try:
        scanner = plugin.load()()
    except TypeError as error:
        raise plugin.broken(f"it cannot be called without arguments: {error}") from error
    if not isinstance(scanner, Scanner):
        raise plugin.broken("it is no gridref.formats.Scanner")
    for field in ("suffixes", "markers", "folder_suffixes"):
        value = getattr(scanner, field)
        if not isinstance(value, tuple) or not all(isinstance(name, str) for name in value):
            raise plugin.broken(f"{field} must be a tuple of strings, got {value!r}")
    return scanner


def scanners() -> Iterator[Scanner]:
    """All scanners in the order in which they are tried; each is loaded when it is reached.

    Raises
    ------
    InvalidRequestError
        Naming the package, for a scanner of another package that cannot be used.
    """
    yield from map(_built_in, BUILT_IN.values())
    yield from map(_added, plugins(GROUP, frozenset(BUILT_IN)).values())


def data_names() -> DataNames:
    """What files and folders of all formats are called. Raises as `scanners` does."""
    return _names_of(tuple(scanners()))


@lru_cache(maxsize=4)
def _names_of(known: tuple[Scanner, ...]) -> DataNames:
    return DataNames(
        *(
            tuple(dict.fromkeys(name for scanner in known for name in getattr(scanner, field)))
            for field in ("suffixes", "markers", "folder_suffixes")
        )
    )


def expand_files(files: Any, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """The files that paths, URLs, globs and directories stand for, of all formats.

    See `gridref.io.expand_urls` for the rules and the errors.
    """
    return expand_urls(files, storage_options, data_names())


def first_bytes(address: str) -> int:
    """Bytes that a scan of a file of such a name probably needs at once; 0 where few do."""
    name = address.partition("?")[0].lower()
    fitting = (scanner for scanner in scanners() if name.endswith(scanner.suffixes))
    return max((getattr(scanner, "first_bytes", 0) for scanner in fitting), default=0)


def scanner_of(location: Location) -> Scanner:
    """The first scanner that recognises what is there.

    Raises
    ------
    SourceFormatError
        If none does: says what it looks like instead, and names all formats.
    """
    for scanner in scanners():
        if scanner.recognises(location):
            return scanner
    known = ", ".join(scanner.name for scanner in scanners())
    raise SourceFormatError(f"{describe(location)}; gridref scans {known}", location.place)


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
        A local path or any URL that fsspec opens: of a file, or of a folder like a Zarr store.
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
        With a ``report`` of every object found: taken, inlined, or skipped and why; and of all
        requests that the scan sent.

    Raises
    ------
    SourceFormatError
        If the file is of no known format, is truncated or corrupt.
    UnsupportedFeatureError
        If an object cannot be served faithfully.
    SourceUnavailableError
        If the file is not there or cannot be read.
    InvalidRequestError
        If a format that another package adds cannot be used: names the package.
    """
    options = ScanOptions(
        on_unsupported=on_unsupported, storage_options=storage_options, **settings
    )
    return scan_with(url, options)


def scan_with(url: str | os.PathLike[str], options: ScanOptions) -> VirtualGroup:
    """Describe a file by options that are checked once for very many files; as `scan` does."""
    if options.parser is not None:
        from gridref.formats.kerchunk.parsers import scan_with_parser

        return scan_with_parser(absolute_url(url), options)
    with (
        counted_traffic() as traffic,
        open_location(url, options.storage_options, _folder_names(url)) as location,
    ):
        group = scanner_of(location).scan(location, options)
        if location.file is not None:
            keep_coordinates(group, location.file)
    report = replace(group.report, n_requests=traffic.n_requests, n_bytes=traffic.n_bytes)
    return group.replace(report=report)


def _folder_names(url: str | os.PathLike[str]) -> DataNames | None:
    """What remote folders are called: a broken package does not keep local files closed."""
    return None if is_local(absolute_url(url)) else data_names()


def organisation(
    url: str | os.PathLike[str], options: ScanOptions, metadata: MetadataPieces
) -> tuple[str, Organisation]:
    """The format of a file, and how it is organised, as far as the format tells that.

    Raises as `scan` does.
    """
    with open_location(url, options.storage_options, _folder_names(url)) as location:
        scanner = scanner_of(location)
        if isinstance(scanner, Organised):
            return scanner.name, scanner.organisation(location, options, metadata)
        return scanner.name, Organisation()
