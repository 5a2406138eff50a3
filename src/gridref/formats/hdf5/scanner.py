"""The scanner of HDF5 and NetCDF4 files: it recognises them and starts the scan."""

from __future__ import annotations

from gridref.formats.hdf5.bytes import SIGNATURE
from gridref.formats.location import Location
from gridref.formats.options import ScanOptions
from gridref.formats.scanner import About, MetadataPieces, Organisation, OwnScanner, Reach
from gridref.model.array import VirtualGroup


class HDF5Scanner(OwnScanner):
    """Scans HDF5 files, and NetCDF4 files, which are HDF5 files."""

    name = "HDF5/NetCDF4"
    suffixes = (".nc", ".nc4", ".h5", ".hdf5", ".he5", ".hdf")
    first_bytes = 256 << 10
    """Metadata is all over a file, and reading so many bytes takes as long as another request."""
    reach: Reach = "anywhere"  # external links, external raw data and virtual datasets
    about = About(
        read="chunked, contiguous, compact and external storage, virtual datasets, links",
        refused="by object: filters without a codec, types without a dtype",
        codecs="deflate, shuffle, fletcher32, szip, LZF, Blosc, Zstandard, ZFP and others",
        oracle="h5py",
        native="depends on the filters",
    )

    def recognises(self, location: Location) -> bool:
        """Whether the signature is at byte 0, 512, 1024 or any further power of two."""
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
        from gridref.formats.hdf5.groups import hdf5_organisation

        return hdf5_organisation(location.opened, options, metadata)
