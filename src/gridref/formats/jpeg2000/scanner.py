"""The scanner of JPEG 2000 files: it recognises them and starts the scan."""

from __future__ import annotations

from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, Reach
from gridref.model.array import VirtualGroup

_BEGINNINGS = (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51")
"""The signature box of JP2 (ITU-T T.800, I.5.1), and SOC and SIZ of a codestream (A.4.1, A.5.1)."""


class JPEG2000Scanner:
    """Scans JP2 files and JPEG 2000 codestreams."""

    name = "JPEG 2000"
    suffixes = (".jp2", ".j2k", ".j2c", ".jpc", ".jpx")
    markers: tuple[str, ...] = ()
    folder_suffixes: tuple[str, ...] = ()
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
