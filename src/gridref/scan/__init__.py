"""A file -> a virtual group: one folder for each format."""

from __future__ import annotations

from gridref.scan.options import ScanOptions
from gridref.scan.scanner import FormatScanner, scan

__all__ = ["FormatScanner", "ScanOptions", "scan"]
