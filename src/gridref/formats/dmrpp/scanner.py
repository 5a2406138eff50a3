"""The scanner of DMR++ documents: it recognises them and starts the scan."""

from __future__ import annotations

from gridref.formats.damage import refusing_damage
from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, OwnScanner, Reach
from gridref.model.array import VirtualGroup

_MARKS = (b"<Dataset", b"://xml.opendap.org/ns/DAP/4.0#")


class DMRppScanner(OwnScanner):
    """Scans DMR++ documents. The granules that they describe are not read.

    Documents mostly are beside their granules, so those in a directory are not taken by themselves.
    """

    name = "DMR++"
    reach: Reach = "anywhere"
    about = About(
        read="the places of chunks in HDF5 and HDF4 granules, compact and missing data, texts",
        refused="by variable: what the document does not say exactly",
        codecs="deflate, shuffle, fletcher32, Zstandard",
        oracle="our scan of the granule, h5py, pyhdf",
        native="every Zarr v3 reader with numcodecs",
    )

    def recognises(self, location: Location) -> bool:
        """Whether a file is XML that begins with a dataset of DAP4."""
        head = location.head.removeprefix(b"\xef\xbb\xbf").lstrip()
        return head.startswith(b"<") and all(mark in head for mark in _MARKS)

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe the arrays of the document; their chunks stay in the granule."""
        from gridref.formats.dmrpp.arrays import scan_dmrpp

        with refusing_damage(location.url):
            return scan_dmrpp(location.opened, options)
