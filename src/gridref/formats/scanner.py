"""What a format is to gridref: the contract of a scanner.

A package adds a format by an entry point in the group ``gridref.formats`` that names a class
without parameters; `gridref.testing.formats.ScannerTests` proves it.
"""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.organisation import MetadataPieces, Organisation
from gridref.model.array import VirtualGroup

__all__ = ["GROUP", "Organised", "Reach", "Scanner"]

GROUP = "gridref.formats"
"""The entry-point group."""

type Reach = Literal["itself", "folder", "anywhere"]
"""Files that a scan may read: what it is pointed at, files beside it too, or any address that it
finds there."""


@runtime_checkable
class Scanner(Protocol):
    """Recognises one format, and describes files or folders of it.

    The module of a scanner is imported to find out about the format: whatever is slow to import it
    imports inside of `scan`.
    """

    @property
    def name(self) -> str:
        """Of the format, for messages."""
        ...

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes like ``".nc"`` of the files that are taken from a directory, in lower case."""
        ...

    @property
    def markers(self) -> tuple[str, ...]:
        """Names of files that make the local directory they lie in one piece of data."""
        ...

    @property
    def folder_suffixes(self) -> tuple[str, ...]:
        """Suffixes of remote directories that are one piece of data each."""
        ...

    @property
    def reach(self) -> Reach:
        """Which files a scan may read."""
        ...

    def recognises(self, location: Location) -> bool:
        """Whether a file or folder is of the format. It reads as little as it can."""
        ...

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe what is at a location that was recognised.

        Its report has a finding for each object. Requests are counted for the scanner, as long as
        it reads by the location's file or by `gridref.io`.

        Raises
        ------
        SourceFormatError
            If the file is truncated or corrupt.
        UnsupportedFeatureError
            If an object cannot be served faithfully and ``options.on_unsupported`` is ``"raise"``.
        SourceUnavailableError
            If something cannot be read.
        """
        ...


@runtime_checkable
class Organised(Protocol):
    """What a scanner may do besides: say how a file is organised, for `gridref.inspect`."""

    def organisation(
        self, location: Location, options: ScanOptions, metadata: MetadataPieces
    ) -> Organisation:
        """Describe the format's own structures, and what of them makes scans slow.

        Parameters
        ----------
        location, options
            As for `Scanner.scan`.
        metadata
            What a scan looked at.
        """
        ...
