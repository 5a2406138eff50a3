"""HDF5 and NetCDF4."""

from __future__ import annotations

from gridref.formats.hdf5.original import OriginalFile, read_original
from gridref.formats.hdf5.scanner import HDF5Scanner

__all__ = ["HDF5Scanner", "OriginalFile", "read_original"]
