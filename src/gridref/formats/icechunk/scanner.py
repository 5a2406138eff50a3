"""The scanner of Icechunk repositories: it recognises them and starts the scan."""

from __future__ import annotations

import os

from gridref.extras import missing_package
from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, OwnScanner, Reach
from gridref.io import is_local
from gridref.model.array import VirtualGroup


class IcechunkScanner(OwnScanner):
    """Scans the branch ``main`` of Icechunk repositories: native, virtual and inline chunks."""

    name = "Icechunk (repositories)"
    markers = ("repo",)
    folder_suffixes = (".icechunk",)
    reach: Reach = "anywhere"
    about = About(
        read="virtual and stored chunks",
        refused="codecs that are not known",
        codecs="those of Zarr v3 and numcodecs",
        oracle="icechunk, zarr",
        native="readers that know the codecs",
    )

    def recognises(self, location: Location) -> bool:
        """Whether this is a folder with a repository in it, or a remote one with such a name."""
        if not location.is_folder:
            return False
        if is_local(location.url):
            return os.path.isdir(os.path.join(location.url, "snapshots"))
        return self.names(location)

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe the newest snapshot.

        Raises
        ------
        SourceFormatError
            If the repository is damaged, or holds nothing.
        SourceChangedError
            If a file changed since it was referenced.
        SourceNotAllowedError
            If references name files that they may not read.
        UnsupportedFeatureError
            As for Zarr stores.
        """
        try:
            from gridref.formats.icechunk.session import open_session, scan_session
        except ImportError as error:
            raise missing_package("reading Icechunk repositories", error) from error
        session = open_session(location.url, storage_options=options.storage_options)
        return scan_session(session, location.url, options)
