"""A file -> a virtual group: one module, folder or installed package for each format."""

from __future__ import annotations

from gridref.formats.finishing import kept_elements
from gridref.formats.location import Location
from gridref.formats.registry import data_names, expand_files, first_bytes, scan, scan_with
from gridref.formats.scanner import Scanner, ScanOptions

__all__ = [
    "Location",
    "ScanOptions",
    "Scanner",
    "data_names",
    "expand_files",
    "first_bytes",
    "kept_elements",
    "scan",
    "scan_with",
]
