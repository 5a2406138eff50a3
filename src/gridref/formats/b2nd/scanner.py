"""The scanner of Blosc2 arrays: it recognises them and starts the scan."""

from __future__ import annotations

from gridref.formats.damage import refusing_damage
from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, OwnScanner, Reach
from gridref.model.array import VirtualGroup


class B2NDScanner(OwnScanner):
    """Scans Blosc2 arrays in contiguous frames, and in sparse ones, which are folders.

    A remote sparse frame is named by its ``chunks.b2frame``.
    """

    name = "Blosc2 (b2nd)"
    suffixes = (".b2nd",)
    markers = ("chunks.b2frame",)
    reach: Reach = "folder"
    about = About(
        read="arrays of numbers and texts, repeated values, vlmeta",
        refused="frames without dimensions, dates, structured types, the filter delta",
        codecs="all of Blosc2",
        oracle="blosc2",
        native="none: chunks are shown decoded",
    )

    def recognises(self, location: Location) -> bool:
        """Whether a file begins as a frame, or a folder holds one."""
        if location.is_folder:
            return self.names(location)
        return location.head[1:10] == b"\xa8b2frame\x00"

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe an array; it gets the name of the file."""
        from gridref.formats.b2nd.arrays import scan_file, scan_folder
        from gridref.formats.chunk_files import StoreFiles

        url, is_folder = location.url, location.is_folder
        if location.name == self.markers[0]:
            url, is_folder = url.rpartition("/")[0], True
        name = url.partition("?")[0].rpartition("/")[2].partition(".")[0] or "array"
        with refusing_damage(location.url):
            if is_folder:
                files = StoreFiles(url, options.storage_options, options.allow)
                return scan_folder(files, name, options)
            return scan_file(location.opened, location.head, name, options)
