"""A file -> a virtual group: one folder for each format."""

from __future__ import annotations

from gridref.formats.options import ScanOptions
from gridref.formats.registry import FormatScanner, scan

__all__ = ["FormatScanner", "ScanOptions", "scan"]
