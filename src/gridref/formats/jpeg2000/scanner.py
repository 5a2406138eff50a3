"""The scanners of JPEG 2000 files and Sentinel-2 products: they recognise both and start scans."""

from __future__ import annotations

import os
import re

from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, OwnScanner, Reach
from gridref.io import open_for_scan
from gridref.model.array import VirtualGroup

_BEGINNINGS = (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51")
"""The signature box of JP2 (ITU-T T.800, I.5.1), and SOC and SIZ of a codestream (A.4.1, A.5.1)."""
_PRODUCT = re.compile(rb"<(\w+:)?Level-(1C|2A)_User_Product")


class JPEG2000Scanner(OwnScanner):
    """Scans JP2 files and JPEG 2000 codestreams."""

    name = "JPEG 2000"
    suffixes = (".jp2", ".j2k", ".j2c", ".jpc", ".jpx")
    first_bytes = 64 << 10
    reach: Reach = "itself"
    about = About(
        read="JP2 and codestreams: tiles as chunks, resolutions as overviews, GeoJP2, GMLJP2",
        refused="subsampled components, and components of differing types",
        codecs="gridref.jpeg2000, by OpenJPEG",
        oracle="rasterio",
        native="Zarr v3 readers where gridref is installed",
    )

    def recognises(self, location: Location) -> bool:
        """Whether a file begins like JP2 or a codestream."""
        return location.head.startswith(_BEGINNINGS)

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe a file."""
        from gridref.formats.jpeg2000.arrays import scan_jpeg2000

        return scan_jpeg2000(location.opened, options)


class SAFEScanner(OwnScanner):
    """Scans Sentinel-2 products: folders (SAFE), or the metadata in them."""

    name = "Sentinel-2 (SAFE)"
    markers = ("MTD_MSIL1C.xml", "MTD_MSIL2A.xml")
    folder_suffixes = (".safe",)
    reach: Reach = "folder"
    about = About(
        read="products of levels 1C and 2A: a group for each resolution, bands as variables",
        refused="by image: as of JPEG 2000; images of one resolution on several grids",
        codecs="gridref.jpeg2000, by OpenJPEG",
        oracle="rasterio",
        native="Zarr v3 readers where gridref is installed",
    )

    def recognises(self, location: Location) -> bool:
        """Whether this is a product's metadata, or a folder that holds it."""
        if location.is_folder:
            return self.names(location)
        return location.head.lstrip(b"\\xef\\xbb\\xbf").startswith(b"<?xml") and bool(
            _PRODUCT.search(location.head[:4096])
        )

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe a product."""
        from gridref.formats.jpeg2000.safe import scan_safe

        if location.file is not None:
            return scan_safe(location.file, options)
        with open_for_scan(self._metadata(location), options.storage_options) as file:
            return scan_safe(file, options)

    def _metadata(self, location: Location) -> str:
        """Address of the metadata in a folder; the name of a remote one tells the level."""
        level = re.search("MSIL(1C|2A)", location.name)
        names = [f"MTD_MSIL{level[1]}.xml"] if level else self.markers
        there = [f"{location.url}/{name}" for name in names]
        return next((path for path in there if os.path.isfile(path)), there[-1])
