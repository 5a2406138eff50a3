"""How HDF5 and NetCDF4 files are recognised."""

from __future__ import annotations

from gridref.formats.hdf5.format.superblock import SIGNATURE
from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.organisation import MetadataPieces, Organisation
from gridref.formats.scanner import Reach
from gridref.model.array import VirtualGroup

__all__ = ["HDF5Scanner"]


class HDF5Scanner:
    """Scans HDF5 files, and NetCDF4 files, which are HDF5 files."""

    name = "HDF5/NetCDF4"
    suffixes = (".nc", ".nc4", ".h5", ".hdf5", ".he5", ".hdf")
    markers: tuple[str, ...] = ()
    folder_suffixes: tuple[str, ...] = ()
    first_bytes = 256 << 10
    """Metadata lie all over a file, and one request more takes as long as so many bytes."""
    reach: Reach = "anywhere"  # external links, external raw data and virtual datasets

    def recognises(self, location: Location) -> bool:
        """Whether the signature stands at byte 0, 512, 1024 or any other power of two."""
        near = (location.head[start : start + 8] for start in (0, 512, 1024, 2048))
        return SIGNATURE in near or SIGNATURE in location.later

    def scan(self, location: Location, options: ScanOptions) -> VirtualGroup:
        """Describe a file."""
        from gridref.formats.hdf5.groups import scan_hdf5

        return scan_hdf5(location.opened, options)

    def organisation(
        self, location: Location, options: ScanOptions, metadata: MetadataPieces
    ) -> Organisation:
        """Say how a file is organised."""
        from gridref.formats.hdf5.organisation import hdf5_organisation

        return hdf5_organisation(location.opened, options, metadata)
