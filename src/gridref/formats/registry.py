"""The formats that gridref knows, and the scan of a file of any of them.

`scan` takes an address, finds the scanner that recognises it, and returns the virtual group that
the scanner made. The server must support byte ranges. A dimension that has several lengths gets
several names. `organisation` describes how a file keeps its metadata.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from importlib import import_module
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import numpy as np

from gridref.errors import Message, SourceFormatError
from gridref.formats.coordinates_ahead import keep_coordinates
from gridref.formats.location import Location, describe, open_location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import (
    GROUP,
    About,
    MetadataPieces,
    Organisation,
    Organised,
    Scanner,
)
from gridref.io import DataNames, ScanFile, absolute_url, counted_traffic, expand_urls, is_local
from gridref.io.remote import RemoteFiles
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import ChunkManifest, ChunkState, KnownSources, Manifest, Source
from gridref.model.scan_report import Fate, Finding
from gridref.plugins import Plugin, plugins

if TYPE_CHECKING:
    from gridref.formats.b2nd.scanner import B2NDScanner
    from gridref.formats.dmrpp.scanner import DMRppScanner
    from gridref.formats.fits.scanner import FITSScanner
    from gridref.formats.grib.scanner import GRIBScanner
    from gridref.formats.hdf4.scanner import HDF4Scanner
    from gridref.formats.hdf5.scanner import HDF5Scanner
    from gridref.formats.icechunk.scanner import IcechunkScanner
    from gridref.formats.jpeg2000.scanner import JPEG2000Scanner, SAFEScanner
    from gridref.formats.kerchunk.scanner import KerchunkScanner
    from gridref.formats.n5.scanner import N5Scanner
    from gridref.formats.netcdf3.scanner import NetCDF3Scanner
    from gridref.formats.precomputed.scanner import PrecomputedScanner
    from gridref.formats.tiff.scanner import TIFFScanner
    from gridref.formats.wkw.scanner import WKWScanner
    from gridref.formats.zarr.scanner import ZarrScanner

    _PROVEN: tuple[Scanner, ...] = (
        HDF5Scanner(),
        TIFFScanner(),
        KerchunkScanner(),
        IcechunkScanner(),
        ZarrScanner(),
        NetCDF3Scanner(),
        HDF4Scanner(),
        DMRppScanner(),
        GRIBScanner(),
        B2NDScanner(),
        N5Scanner(),
        JPEG2000Scanner(),
        PrecomputedScanner(),
        WKWScanner(),
        FITSScanner(),
        SAFEScanner(),
    )


# Servers that ignore byte ranges, refused at the scan


def require_byte_ranges(
    group: VirtualGroup, file: ScanFile | None, storage_options: Mapping[str, Any] | None
) -> None:
    """Request one byte of a file from each HTTP server, if chunks are parts of files there.

    Parameters
    ----------
    group
        The result of the scan.
    file
        The scanned file. If its server sent ranges of it, the server is not asked again.
    storage_options
        fsspec options.

    Raises
    ------
    SourceUnavailableError
        If a server ignores byte ranges.
    """
    known = {""} if file is None or file.came_whole else {"", _server(file.source)}
    for manifest in chain.from_iterable(array.manifests for array in group.all_arrays().values()):
        for source in _partial_sources(manifest, known):
            if _server(source) not in known:
                known.add(_server(source))
                files = RemoteFiles(storage_options)
                files.fetch(source.url, [1], [2], policy=source.policy)


def _partial_sources(manifest: Manifest, known: Collection[str]) -> Sequence[Source]:
    """The files with chunks as parts of them, if any may be on a server that is not known yet."""
    if not isinstance(manifest, ChunkManifest):
        return manifest.sources if isinstance(manifest, KnownSources) else ()
    if all(_server(source) in known for source in manifest.sources):
        return ()
    sizes = np.array([source.size_bytes or 0 for source in manifest.sources])
    in_files = manifest.state == ChunkState.RANGE
    numbers, lengths = manifest.source[in_files], manifest.length[in_files]
    partial_ones = np.unique(numbers[lengths < sizes[numbers]])
    return [manifest.sources[number] for number in partial_ones.tolist()]


def _server(source: Source) -> str:
    """The beginning of an HTTP address; empty for others."""
    protocol, _, rest = source.url.partition("://")
    return f"{protocol}://{rest.partition('/')[0]}" if protocol in ("http", "https") else ""


# Dimensions of several lengths, under several names


def with_dimensions_apart(group: VirtualGroup, url: str) -> VirtualGroup:
    """Rename dimensions that have several lengths in a group, or the name of a scalar variable.

    The length of the variable with this name keeps the name, else the first length.
    The others are numbered: ``y_1``, ``y_2``. The report lists them.
    """
    if all(_is_clear(part.arrays) for _, part in group.walk()):
        return group
    findings: list[Finding] = []
    apart = _apart(group, "", url, findings)
    return apart.with_changes(report=replace(group.report, findings=(*group.report, *findings)))


def _apart(group: VirtualGroup, path: str, url: str, findings: list[Finding]) -> VirtualGroup:
    groups = {name: _apart(g, f"{path}/{name}", url, findings) for name, g in group.groups.items()}
    renamed = _renamed(group.arrays)
    if not renamed:
        return group.with_changes(groups=groups) if groups else group
    for (dim, length), name in renamed.items():
        scalar = dim in group.arrays and group.arrays[dim].ndim == 0
        why = "a scalar has its name" if scalar else "it has another length elsewhere"
        reason = f"named {name!r} where its length is {length}, because {why}"
        findings.append(Finding(f"{path}/{dim}", Fate.RENAMED, reason, url))
    arrays = {}
    for name, array in group.arrays.items():
        axes = zip(array.dims, array.shape, strict=True)
        arrays[name] = array.with_changes(dims=tuple(renamed.get(axis, axis[0]) for axis in axes))
    new = {name for (dim, _), name in renamed.items() if dim in group.unlimited_dims}
    used = {dim for array in arrays.values() for dim in array.dims}
    unlimited = (group.unlimited_dims | new) & used
    return group.with_changes(arrays=arrays, groups=groups, unlimited_dims=unlimited)


def _is_clear(arrays: Mapping[str, VirtualArray]) -> bool:
    """Whether each dimension has one length, and not the name of a scalar."""
    lengths: dict[str, int] = {}
    for array in arrays.values():
        for dim, length in zip(array.dims, array.shape, strict=True):
            if lengths.setdefault(dim, length) != length:
                return False
    return all(arrays[dim].ndim for dim in lengths if dim in arrays)


def _renamed(arrays: Mapping[str, VirtualArray]) -> dict[tuple[str, int], str]:
    """New names by name and length."""
    if _is_clear(arrays):
        return {}
    axes = {axis: None for a in arrays.values() for axis in zip(a.dims, a.shape, strict=True)}
    dims = {dim: None for dim, _ in axes}
    taken = arrays.keys() | dims.keys()
    renamed: dict[tuple[str, int], str] = {}
    for dim in dims:
        found = [length for name, length in axes if name == dim]
        named = arrays.get(dim)
        if named is None or (named.ndim > 0 and dim not in named.dims):
            kept = found[0]
        else:
            kept = dict(zip(named.dims, named.shape, strict=True)).get(dim, -1)
        free = (name for n in count(1) if (name := f"{dim}_{n}") not in taken)
        renamed |= {(dim, length): next(free) for length in found if length != kept}
    return renamed


# The formats, the choice between them, and the scan

BUILT_IN = {
    "tiff": "gridref.formats.tiff.scanner:TIFFScanner",
    "kerchunk": "gridref.formats.kerchunk.scanner:KerchunkScanner",
    "icechunk": "gridref.formats.icechunk.scanner:IcechunkScanner",
    "zarr": "gridref.formats.zarr.scanner:ZarrScanner",
    "precomputed": "gridref.formats.precomputed.scanner:PrecomputedScanner",
    "netcdf3": "gridref.formats.netcdf3.scanner:NetCDF3Scanner",
    "hdf4": "gridref.formats.hdf4.scanner:HDF4Scanner",
    "dmrpp": "gridref.formats.dmrpp.scanner:DMRppScanner",
    "grib": "gridref.formats.grib.scanner:GRIBScanner",
    "b2nd": "gridref.formats.b2nd.scanner:B2NDScanner",
    "n5": "gridref.formats.n5.scanner:N5Scanner",
    "jpeg2000": "gridref.formats.jpeg2000.scanner:JPEG2000Scanner",
    "wkw": "gridref.formats.wkw.scanner:WKWScanner",
    "fits": "gridref.formats.fits.scanner:FITSScanner",
    "safe": "gridref.formats.jpeg2000.scanner:SAFEScanner",
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
    """All scanners in the order of trying; each is loaded when it is needed.

    Raises
    ------
    InvalidRequestError
        Naming the package, for a scanner of another package that cannot be used.
    """
    yield from map(_built_in, BUILT_IN.values())
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
    about
        What its scanner says about it.
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
        from gridref.formats.kerchunk.parsers import scan_with_parser

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
        if options.hints == "dmrpp" and scanner is _built_in(BUILT_IN["hdf5"]):
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
