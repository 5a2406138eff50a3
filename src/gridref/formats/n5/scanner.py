"""The scanner of N5 containers: it recognises them and starts the scan."""

from __future__ import annotations

from gridref.formats.damage import refusing_damage
from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, Reach
from gridref.io import DataNames
from gridref.model.array import VirtualGroup


class N5Scanner:
    """Scans N5 containers, and single groups and datasets of them.

    A remote one that is not named ``*.n5`` is named by its ``attributes.json``.
    """

    name = "N5 (folders)"
    suffixes: tuple[str, ...] = ()
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
        named = location.name.endswith(self.folder_suffixes)
        return named or location.is_named(DataNames((), self.markers, self.folder_suffixes))

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe a container, or a part; a single dataset becomes a group with that array."""
        from gridref.formats.chunk_files import StoreFiles
        from gridref.formats.n5.hierarchy import scan_container

        url = location.url if location.is_folder else location.url.rpartition("/")[0]
        with refusing_damage(location.url):
            files = StoreFiles(url, options.storage_options, options.allow)
            return scan_container(files, options)
