"""A file -> a virtual group: one module, folder or installed package for each format.

Whatever reads a file here raises `SourceFormatError` if bytes are missing, damaged or contradict
each other, `UnsupportedFeatureError` for what it does not know or cannot serve faithfully (a
version, a data type, a filter), and `SourceUnavailableError` if a file is not there or cannot be
read. Errors name the place in the file. A function says only what it raises beside these, or where
the reason is not plain.
"""

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
