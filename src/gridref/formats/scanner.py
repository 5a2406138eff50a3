"""The contract of a format: the scanner, and the description of a file's organisation.

A package adds a format by an entry point in the group ``gridref.formats`` that names a class
without parameters. `gridref.testing.formats.ScannerTests` checks such a class.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, Protocol, runtime_checkable

from gridref.formats.findings import located, refusing_damage
from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.io import DataNames
from gridref.model.array import VirtualGroup

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
