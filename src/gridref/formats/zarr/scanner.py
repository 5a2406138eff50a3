"""The scanner of Zarr stores: it recognises them and starts the scan."""

from __future__ import annotations

from gridref.formats.damage import refusing_damage
from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, OwnScanner, Reach
from gridref.model.array import VirtualGroup


class ZarrScanner(OwnScanner):
    """Scans Zarr v3 and v2 stores, shards too."""

    name = "Zarr (folders)"
    markers = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
    folder_suffixes = (".zarr",)
    reach: Reach = "itself"
    about = About(
        read="v2 and v3, shards",
        refused="codecs that are not known",
        codecs="those of Zarr v3 and numcodecs",
        oracle="zarr",
        native="readers that know the codecs",
    )

    def recognises(self, location: Location) -> bool:
        """Whether this is a folder with metadata, or a remote one named ``*.zarr``."""
        return self.names(location)

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe a store; one that is one array becomes a group with that array."""
        from gridref.formats.chunk_files import StoreFiles
        from gridref.formats.zarr.hierarchy import scan_files

        with refusing_damage(location.url):
            files = StoreFiles(location.url, options.storage_options, options.allow)
            return scan_files(files, options)
