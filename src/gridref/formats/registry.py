"""The formats that gridref knows, and the scan of a file of any of them.

`scan` takes an address, finds the scanner that recognises it, and returns the virtual group that
the scanner made. The server must support byte ranges. A dimension that has several lengths gets
several names. `organisation` describes how a file keeps its metadata.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any

from gridref.errors import Message, SourceFormatError
from gridref.extras import Plugin, plugins
from gridref.formats.built_in import BUILT_IN
from gridref.formats.finishing import keep_coordinates, require_byte_ranges, with_dimensions_apart
from gridref.formats.location import Location, describe, open_location
from gridref.formats.scanner import (
    GROUP,
    About,
    MetadataPieces,
    Organisation,
    Organised,
    Scanner,
    ScanOptions,
)
from gridref.io import DataNames, absolute_url, counted_traffic, expand_urls, is_local
from gridref.model.array import VirtualGroup


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
    """All scanners in the order of trying; each is loaded when it is needed.

    Raises
    ------
    InvalidRequestError
        Naming the package, for a scanner of another package that cannot be used.
    """
    yield from BUILT_IN.values()
    yield from map(_added, plugins(GROUP, frozenset(BUILT_IN)).values())


@dataclass(frozen=True)
class KnownFormat:
    """A format that can be scanned.

    Attributes
    ----------
    names
        Suffixes of its files and folders; others are found by content.
    package
        Name and version of the package that adds it; empty for gridref's own.
    """

    name: str
    names: tuple[str, ...]
    package: str
    about: About


def known_formats() -> list[KnownFormat]:
    """All formats that can be scanned, by name. Raises as `scanners` does."""
    added = plugins(GROUP, frozenset(BUILT_IN)).values()
    packages = {id(_added(plugin)): plugin.package for plugin in added}
    known = [
        KnownFormat(
            scanner.name,
            scanner.suffixes + scanner.folder_suffixes,
            packages.get(id(scanner), ""),
            getattr(scanner, "about", About()),
        )
        for scanner in scanners()
    ]
    return sorted(known, key=lambda each: each.name.lower())


def data_names() -> DataNames:
    """Names of the files and folders of all formats. Raises as `scanners` does."""
    return _names_of(tuple(scanners()))


@lru_cache(maxsize=4)
def _names_of(known: tuple[Scanner, ...]) -> DataNames:
    def recognised(url: str) -> bool:
        marking = (
            scanner
            for scanner in known
            if any(os.path.isfile(os.path.join(url, name)) for name in scanner.markers)
        )
        return any(scanner.recognises(Location(url)) for scanner in marking)

    def names(field: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for scanner in known for name in getattr(scanner, field)))

    return DataNames(names("suffixes"), names("markers"), names("folder_suffixes"), recognised)


def expand_files(
    files: Any, storage_options: Mapping[str, Any] | None = None, *, unique: bool = True
) -> list[str]:
    """Expand paths, URLs, globs and directories to files of all formats.

    See `gridref.io.expand_urls` for the rules and the errors.
    """
    return expand_urls(files, storage_options, data_names(), unique=unique)


def first_bytes(address: str) -> int:
    """Bytes that a scan of a file of this name probably needs first; 0 if it needs few."""
    name = address.partition("?")[0].lower()
    fitting = (scanner for scanner in scanners() if name.endswith(scanner.suffixes))
    return max((getattr(scanner, "first_bytes", 0) for scanner in fitting), default=0)


def scanner_of(location: Location) -> Scanner:
    """The first scanner that recognises a file or folder.

    Raises
    ------
    SourceFormatError
        If none does; the error says what the file looks like.
    """
    for scanner in scanners():
        if scanner.recognises(location):
            return scanner
    reason = describe(location)
    if location.is_folder or location.head:
        reason = Message(reason, "; `gridref formats` lists what gridref reads")
    raise SourceFormatError(reason, location.place)


def scan(
    url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None, **settings: Any
) -> VirtualGroup:
    """Describe a file, or a folder like a Zarr store, as `gridref.scan` does.

    CF aggregation variables stay as they are, and what is damaged is in the report only.

    Parameters
    ----------
    **settings
        The other fields of `ScanOptions`.
    """
    return scan_with(url, ScanOptions(storage_options=storage_options, **settings))


def scan_with(url: str | os.PathLike[str], options: ScanOptions) -> VirtualGroup:
    """Describe a file, as `scan` does, with options that are checked once for many files.

    Raises
    ------
    SourceFormatError
        If the file is of no known format, is truncated or corrupt.
    UnsupportedFeatureError
        If an object cannot be served faithfully.
    SourceUnavailableError
        If the file does not exist or cannot be read.
    InvalidRequestError
        If a format that another package adds cannot be used; the error names the package.
    """
    if options.parser is not None:
        from gridref.formats.parsers import scan_with_parser

        address = absolute_url(url)
        group = with_dimensions_apart(scan_with_parser(address, options), address)
        require_byte_ranges(group, None, options.storage_options)
        return group
    with (
        counted_traffic() as traffic,
        _opened(url, options) as location,
    ):
        scanner = scanner_of(location)
        scanned = partial(scanner.scan, location, options)
        if options.hints == "dmrpp" and scanner is BUILT_IN["hdf5"]:
            from gridref.formats.dmrpp.hints import scan_hinted

            group = scan_hinted(scanned, location.opened, options)
        else:
            group = scanned()
        group = with_dimensions_apart(group, location.url)
        if scanner.reach == "anywhere" or not is_local(location.url):
            require_byte_ranges(group, location.file, options.storage_options)
        if location.file is not None:
            keep_coordinates(group, location.file)
    report = replace(group.report, n_requests=traffic.n_requests, n_bytes=traffic.n_bytes)
    return group.with_changes(report=report)


def _opened(url: str | os.PathLike[str], options: ScanOptions) -> AbstractContextManager[Location]:
    """The location; a broken package must not block local files, so it is asked for others only."""
    address = absolute_url(url)
    if is_local(address):
        return open_location(address, options.storage_options)
    return open_location(address, options.storage_options, data_names(), first_bytes(address))


def organisation(
    url: str | os.PathLike[str], options: ScanOptions, metadata: MetadataPieces
) -> tuple[str, Organisation]:
    """The format of a file, and its organisation as far as the format's scanner describes it.

    Raises as `scan` does.
    """
    with _opened(url, options) as location:
        scanner = scanner_of(location)
        if isinstance(scanner, Organised):
            return scanner.name, scanner.organisation(location, options, metadata)
        return scanner.name, Organisation()
