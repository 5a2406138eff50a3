"""The scanner of FITS files: it recognises them and starts the scan."""

from __future__ import annotations

from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, OwnScanner, Reach
from gridref.model.array import VirtualGroup


class FITSScanner(OwnScanner):
    """Scans the images of FITS files."""

    name = "FITS"
    suffixes = (".fits", ".fit", ".fts", ".fz")
    reach: Reach = "itself"
    about = About(
        read="images of every BITPIX, tile-compressed images, headers as attributes",
        refused="by HDU: random groups, unknown compressions; tables are left out",
        codecs="RICE_1, GZIP_1, GZIP_2, PLIO_1, HCOMPRESS_1, quantised floats with dithering",
        oracle="astropy",
        native="every Zarr v3 reader, with imagecodecs for RICE_1 and HCOMPRESS_1; but for PLIO_1"
        " and quantised floats",
    )

    def recognises(self, location: Location) -> bool:
        """Whether a file begins with a primary header."""
        return location.head.startswith(b"SIMPLE  =")

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe a file."""
        from gridref.formats.fits.arrays import scan_fits

        return scan_fits(location.opened, location.head, options)
