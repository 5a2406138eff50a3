"""The scanner of N5 containers: it recognises them and starts the scan."""

from __future__ import annotations

import os

from gridref.formats.damage import refusing_damage
from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, OwnScanner, Reach
from gridref.io import is_local, read_file
from gridref.model.array import VirtualGroup


class N5Scanner(OwnScanner):
    """Scans N5 containers, and single groups and datasets of them.

    A local folder that is not named ``*.n5`` is one if its attributes are those of a container or a
    dataset, or a folder in it has attributes, too. A remote one that is not named ``*.n5`` is named
    by its ``attributes.json``.
    """

    name = "N5 (folders)"
    markers = ("attributes.json",)
    folder_suffixes = (".n5",)
    reach: Reach = "folder"
    about = About(
        read="datasets of numbers in blocks of mode default, groups, pyramids",
        refused="blocks of mode varlength and object, JPEG",
        codecs="gzip, zlib, bzip2, xz, Blosc, Zstandard, LZ4",
        oracle="tensorstore",
        native="Zarr v3 readers with zarr-n5",
    )

    def recognises(self, location: Location) -> bool:
        """Whether this is a folder with attributes, one named ``*.n5``, or the attributes."""
        if not location.is_folder:
            return location.name == self.markers[0] and location.head.lstrip()[:1] == b"{"
        if location.name.endswith(self.folder_suffixes):
            return True
        return self.names(location) and (not is_local(location.url) or _is_n5(location.url))

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe a container, or a part; a single dataset becomes a group with that array."""
        from gridref.formats.chunk_files import StoreFiles
        from gridref.formats.n5.hierarchy import scan_container

        with refusing_damage(location.url):
            files = StoreFiles(location.folder, options.storage_options, options.allow)
            return scan_container(files, options)


def _is_n5(folder: str) -> bool:
    """Whether attributes are there because this is N5: other programs write such files, too."""
    name = N5Scanner.markers[0]
    head = read_file(os.path.join(folder, name)).lstrip()
    if head[:1] != b"{":
        return False
    if any(key in head for key in (b'"n5"', b'"dimensions"', b'"multiscales"', b'"scales"')):
        return True
    return any(os.path.isfile(os.path.join(folder, below, name)) for below in os.listdir(folder))
