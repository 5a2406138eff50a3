"""The scanner of HDF4 files: it recognises them and starts the scan."""

from __future__ import annotations

from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, OwnScanner, Reach
from gridref.model.array import VirtualGroup


class HDF4Scanner(OwnScanner):
    """Scans HDF4 files; those named ``.hdf`` may as well be HDF5."""

    name = "HDF4"
    suffixes = (".hdf", ".hdf4", ".h4")
    first_bytes = 64 << 10
    reach: Reach = "anywhere"
    """Data may be in an external file."""
    about = About(
        read="scientific data sets in every layout, grids and swaths of HDF-EOS2",
        refused="by variable: JPEG compression, much skipping Huffman; raster images",
        codecs="deflate, szip, run lengths, n-bit, skipping Huffman",
        oracle="pyhdf",
        native="every Zarr v3 reader with numcodecs, if deflated",
    )

    def recognises(self, location: Location) -> bool:
        """Whether a file begins with the four control characters of HDF4."""
        return location.head.startswith(b"\x0e\x03\x13\x01")

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe a file."""
        from gridref.formats.hdf4.arrays import scan_hdf4

        return scan_hdf4(location.opened, location.head, options)
