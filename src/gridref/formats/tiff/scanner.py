"""The scanner of TIFF files: it recognises them and starts the scan."""

from __future__ import annotations

from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, MetadataPieces, Organisation, OwnScanner, Reach
from gridref.model.array import VirtualGroup

_MAGIC = (b"II*\0", b"MM\0*", b"II+\0\x08\0\0\0", b"MM\0+\0\x08\0\0")
_XML = (b"<?xml", b"<OME")


class TIFFScanner(OwnScanner):
    """Scans TIFF, BigTIFF and formats that are built on them."""

    name = "TIFF"
    suffixes = (".tif", ".tiff")
    reach: Reach = "folder"  # the files of an OME-TIFF set
    about = About(
        read="TIFF, BigTIFF, GeoTIFF, COG, OME-TIFF and others",
        refused="by image: compressions without a codec",
        codecs="Deflate, LZW, PackBits, JPEG, JPEG 2000, Zstandard, LERC, WebP and others",
        oracle="tifffile",
        native="depends on the compression",
    )

    def recognises(self, location: Location) -> bool:
        """Whether a file begins as in TIFF 6.0, Section 2 or the BigTIFF design.

        Companion files of OME-TIFF are recognised, too.
        """
        head = location.head
        return head.startswith(_MAGIC) or (head.startswith(_XML) and b"<OME" in head)

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe a file, or the set of files that a companion file names."""
        from gridref.formats.tiff.structure import scan_tiff

        return scan_tiff(location, options)

    def organisation(
        self, location: Location, options: ScanOptions, metadata: MetadataPieces
    ) -> Organisation:
        """Describe how a file is organised."""
        from gridref.formats.tiff.structure import tiff_organisation

        return tiff_organisation(location.opened, options, metadata)
