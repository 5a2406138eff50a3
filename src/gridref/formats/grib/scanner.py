"""The scanner of GRIB files: it recognises them and starts the scan."""

from __future__ import annotations

from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, OwnScanner, Reach
from gridref.model.array import VirtualGroup


class GRIBScanner(OwnScanner):
    """Scans GRIB files of edition 1 and edition 2, with the index files beside remote ones."""

    name = "GRIB"
    suffixes = (".grib", ".grib2", ".grib1", ".grb", ".grb2", ".grb1", ".grib_api")
    reach: Reach = "folder"
    about = About(
        read="editions 1 and 2: all packings but second order, all grids but spectral",
        refused="spherical harmonics, fields of unknown kinds",
        codecs="gridref.grib, with the extra grib",
        oracle="eccodes",
        native="Zarr v3 readers where gridref is installed",
    )

    def recognises(self, location: Location) -> bool:
        """Whether a message begins in the first bytes; bulletins have some before it."""
        at = location.head.find(b"GRIB", 0, 512)
        return at >= 0 and location.head[at + 7 : at + 8] in (b"\x01", b"\x02")

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe a file."""
        from gridref.formats.grib.arrays import group_of_fields
        from gridref.formats.grib.index_files import fields_of

        file = location.opened
        fields, unfit = fields_of(file, location.head, options)
        return group_of_fields(fields, file.source, options, unfit)
