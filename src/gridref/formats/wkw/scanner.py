"""The scanner of WKW datasets: it recognises them and starts the scan."""

from __future__ import annotations

from gridref.formats.damage import refusing_damage
from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, OwnScanner, Reach
from gridref.model.array import VirtualGroup


class WKWScanner(OwnScanner):
    """Scans WEBKNOSSOS datasets, and single magnifications of them.

    A remote one is named by its ``header.wkw`` or ``datasource-properties.json``.
    """

    name = "WKW (folders)"
    markers = ("header.wkw", "datasource-properties.json")
    reach: Reach = "folder"
    about = About(
        read="magnifications with any number of channels, layers with their voxel sizes",
        refused="layers in other formats",
        codecs="none, LZ4, LZ4HC",
        oracle="wkw",
        native="every Zarr v3 reader, if raw",
    )

    def recognises(self, location: Location) -> bool:
        """Whether this is a folder with a header, or the header itself."""
        if location.is_folder:
            return self.names(location)
        if location.name == self.markers[0]:
            return location.head.startswith(b"WKW")
        return location.name == self.markers[1] and b'"dataLayers"' in location.head

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe a dataset, or one magnification."""
        from gridref.formats.chunk_files import StoreFiles
        from gridref.formats.wkw.dataset import scan_dataset

        with refusing_damage(location.url):
            files = StoreFiles(location.folder, options.storage_options, options.allow)
            return scan_dataset(files, options)
