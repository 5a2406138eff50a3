"""The contract of a format: options of a scan, what it finds, and the scanner.

A package adds a format by an entry point in the group ``gridref.formats`` that names a class
without parameters. `gridref.testing.formats.ScannerTests` checks such a class.

A format that can describe a file without one of its objects goes on with the others. One error then
names all that are refused, unless the caller leaves them out (`Findings`).

`refusing_damage` turns the errors that damaged or hostile metadata cause in Python and in other
packages into a `SourceFormatError`. `check_element_size` refuses elements of absurd size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from gridref.errors import (
    GridrefError,
    InvalidRequestError,
    Message,
    Option,
    Place,
    ScanError,
    SourceFormatError,
    UnsupportedFeatureError,
    some_of,
)
from gridref.formats.location import Location
from gridref.io import Allow, DataNames
from gridref.limits import MAX_GROUP_DEPTH, beyond, limits
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.options import Shown, check_choices, refuses_unknown
from gridref.secrets import without_secrets

# Options of a scan

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
        a file (``granule.h5.dmrpp``), which lists where metadata are. They are then read at once.
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
            value = getattr(self, name)
            if value < least:
                raise InvalidRequestError(Message(Option(name, value), f" must be >= {least}"))


# What is described, left out or refused, and damaged metadata

_MOST_NAMES = 10


class Findings:
    """The objects of a file by path, like ``/model/tas``, and what became of each."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.found: list[Finding] = []
        self._refused: list[GridrefError] = []

    def note(self, path: str, fate: Fate, reason: str = "") -> None:
        """Remember what became of an object."""
        self.found.append(Finding(path, fate, reason, self.url))

    def refuse(self, path: str, error: GridrefError) -> None:
        """Remember an object that cannot be described faithfully."""
        error.located(Place(source=self.url, variable=path))
        self._refused.append(error)
        self.note(path, Fate.SKIPPED, error.reason)

    @contextmanager
    def refusing(self, path: str) -> Iterator[None]:
        """Refuse an object if describing it ends in a `ScanError`."""
        try:
            yield
        except ScanError as error:
            self.refuse(path, error)

    @contextmanager
    def taking(self, path: str) -> Iterator[None]:
        """Describe an object as `refusing` does, and note that it is taken if that ends well."""
        with self.refusing(path):
            yield
            self.note(path, Fate.TAKEN)

    def is_too_deep(self, path: str) -> bool:
        """Whether a group is nested too deep, and therefore refused."""
        if path.count("/") < MAX_GROUP_DEPTH:
            return False
        reason = f"groups are nested more than {MAX_GROUP_DEPTH} deep"
        self.refuse(f"/{path}", UnsupportedFeatureError(reason))
        return True

    def report(self, options: ScanOptions) -> ScanReport:
        """All findings.

        Raises
        ------
        ScanError
            If objects were refused and are not to be left out. It is the error of one of them, and
            names the others.
        """
        if self._refused and options.on_unsupported == "raise":
            raise self._one_error()
        return ScanReport(tuple(self.found))

    def _one_error(self) -> GridrefError:
        # A damaged file is worse than one with an unusual object.
        first = min(self._refused, key=lambda error: isinstance(error, UnsupportedFeatureError))
        others = [error for error in self._refused if error is not first]
        if others:
            named = some_of(others, _MOST_NAMES, lambda error: str(error.place.variable))
            objects = "object is" if len(others) == 1 else "objects are"
            first.reason += f"; {len(others)} other {objects} refused too: {named}"
        first.reason += Message(
            "; ", Option("on_unsupported", "skip"), " leaves out what is refused"
        )
        return first


@contextmanager
def located(place: Place) -> Iterator[None]:
    """Add a place to errors of gridref's, as far as they do not state one."""
    try:
        yield
    except GridrefError as error:
        raise error.located(place) from error.__cause__


@contextmanager
def refusing_damage(url: str, what: str = "the metadata is damaged") -> Iterator[None]:
    """Turn any error that is not gridref's own into a `SourceFormatError`.

    Damaged metadata may be of any type, depth and size, and the errors that Python raises for it
    (`RecursionError`, `OverflowError`, `UnicodeEncodeError`, ...) do not describe the file.
    """
    try:
        yield
    except GridrefError:
        raise
    except Exception as error:
        shown = without_secrets(f"{type(error).__name__}: {error}")[:500]
        raise SourceFormatError(f"{what} ({shown})", Place(source=url)) from error


def check_element_size(dtype: np.dtype[Any]) -> None:
    """Refuse elements so large that a few of them exceed the memory."""
    if dtype.itemsize > limits().element_bytes:
        raise UnsupportedFeatureError(
            beyond("element_bytes", f"elements of {dtype.itemsize} bytes")
        )


# The organisation of a file: how it keeps its metadata


@dataclass(frozen=True)
class MetadataPieces:
    """The places in a file that a scan reads.

    Attributes
    ----------
    pieces
        Half-open byte ranges, ascending, that do not touch.
    n_requests
        Requests of a scan of such a file, after others were scanned.
    """

    pieces: tuple[tuple[int, int], ...]
    file_bytes: int
    n_requests: int

    @property
    def n_bytes(self) -> int:
        return sum(stop - start for start, stop in self.pieces)


@dataclass(frozen=True)
class Advice:
    """A reason why a file is slow to read, and the remedy.

    Attributes
    ----------
    reason
        The slow part, with numbers.
    command
        A command that rewrites the file without it, from ``IN`` to ``OUT``; empty if there is
        none.
    gain
        The gain of rewriting the file.
    """

    reason: str
    command: str = ""
    gain: str = ""


@dataclass(frozen=True)
class Organisation:
    """The organisation of a file.

    Attributes
    ----------
    facts
        Facts about the file in terms of its format, by name.
    indexes
        How the chunks of each array are indexed, by its path.
    advice
        The parts that make scans slow.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    indexes: Mapping[str, str] = field(default_factory=dict)
    advice: tuple[Advice, ...] = ()


# What people should know about a format


@dataclass(frozen=True)
class About:
    """What a format's scanner reads, in words: an entry of ``gridref formats``.

    Attributes
    ----------
    read, refused
        The parts of the format that are read, and those that are not.
    codecs
        The ways of storing values that are decoded.
    oracle
        The programs that values are compared with.
    native
        Other Zarr readers that can read the native view.
    """

    read: str = ""
    refused: str = ""
    codecs: str = ""
    oracle: str = ""
    native: str = ""


# The contract of a scanner

GROUP = "gridref.formats"
"""The entry-point group."""

type Reach = Literal["itself", "folder", "anywhere"]
"""Files that a scan may read: only its target, files beside it too, or any address in it."""


@runtime_checkable
class Scanner(Protocol):
    """Recognises one format, and describes files or folders of it.

    The module of a scanner is imported to find out about the format. It should import slow modules
    only inside `scan`. A scanner may also have ``first_bytes``, the bytes that a scan of most files
    reads first, and ``about``, an `About` for ``gridref formats``.
    """

    @property
    def name(self) -> str:
        """Name of the format, for messages."""
        ...

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes like ``".nc"`` of the files that are taken from a directory, in lower case."""
        ...

    @property
    def markers(self) -> tuple[str, ...]:
        """Names of files that mark their local directory as one piece of data."""
        ...

    @property
    def folder_suffixes(self) -> tuple[str, ...]:
        """Suffixes of remote directories that are one piece of data each, in lower case."""
        ...

    @property
    def reach(self) -> Reach:
        """The files that a scan may read."""
        ...

    def recognises(self, location: Location) -> bool:
        """Whether a file or folder is of the format. It reads as little as it can."""
        ...

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe the file or folder at a location that was recognised.

        Its report has a finding for each object. Requests are counted for the scanner, as long as
        it reads by the location's file or by `gridref.io`.

        Raises
        ------
        SourceFormatError
            If the file is truncated or corrupt.
        UnsupportedFeatureError
            If an object cannot be served faithfully and ``options.on_unsupported`` is ``"raise"``.
        SourceUnavailableError
            If anything cannot be read.
        """
        ...


class OwnScanner(Scanner):
    """A scanner of ours, whose format is in a module that is imported for a scan.

    Attributes
    ----------
    module
        The module in `gridref.formats`; its function ``scan`` takes a location and options.
    magic
        How files begin.
    any_error_is_damage
        Whether metadata may be of any type, depth and size, like JSON of strangers: an error of
        Python's while it is read means that it is damaged.
    """

    module: str
    suffixes: tuple[str, ...] = ()
    magic: tuple[bytes, ...] = ()
    markers: tuple[str, ...] = ()
    folder_suffixes: tuple[str, ...] = ()
    reach: Reach = "itself"
    any_error_is_damage = False

    def recognises(self, location: Location) -> bool:
        """Whether a file begins as the format, or a folder has its marker or a remote one's name.

        No request finds out what is in a remote folder.
        """
        if location.is_folder:
            return DataNames((), self.markers, self.folder_suffixes).is_folder(location.url)
        return location.head.startswith(self.magic)

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe the file or folder at a location; raises as `Scanner.scan` does."""
        guard = refusing_damage(location.url) if self.any_error_is_damage else nullcontext()
        with located(location.place), guard:
            group: VirtualGroup = self._imported().scan(location, options)
            return group

    def _imported(self) -> Any:
        return import_module(f"gridref.formats.{self.module}")


@runtime_checkable
class Organised(Protocol):
    """Optional for a scanner: describe how a file is organised, for ``gridref info FILE``."""

    def organisation(
        self, location: Location, options: ScanOptions, metadata: MetadataPieces
    ) -> Organisation:
        """Describe the format's own structures, and those that make scans slow.

        Parameters
        ----------
        location, options
            As for `Scanner.scan`.
        metadata
            The places that a scan read.
        """
        ...


class OrganisedScanner(OwnScanner):
    """A scanner of ours whose module also has a function ``organisation``."""

    def organisation(
        self, location: Location, options: ScanOptions, metadata: MetadataPieces
    ) -> Organisation:
        """Describe how a file is organised, as `Organised.organisation` does."""
        described: Organisation = self._imported().organisation(location, options, metadata)
        return described
