"""The scanner of NetCDF3 files: it recognises them and starts the scan."""

from __future__ import annotations

from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, OwnScanner, Reach
from gridref.model.array import VirtualGroup

_MAGIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")


class NetCDF3Scanner(OwnScanner):
    """Scans NetCDF3 files; those named ``.nc`` may as well be NetCDF4, which is HDF5."""

    name = "NetCDF3"
    suffixes = (".nc", ".cdf", ".nc3")
    first_bytes = 64 << 10
    """Most headers are shorter."""
    reach: Reach = "itself"
    about = About(
        read="CDF-1, CDF-2, CDF-5",
        refused="files that are cut off, compressed files",
        codecs="none: values are stored as they are",
        oracle="netCDF4",
        native="every Zarr v3 reader",
    )

    def recognises(self, location: Location) -> bool:
        """Whether a file begins as CDF-1, CDF-2 or CDF-5."""
        return location.head.startswith(_MAGIC)

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe a file."""
        from gridref.formats.netcdf3.arrays import scan_netcdf3

        return scan_netcdf3(location.opened, location.head, options)
