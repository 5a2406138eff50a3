"""Scanning a mutated file, whatever it holds, in bounded time."""

from __future__ import annotations

import time
from pathlib import Path

from gridref.errors import GridrefError
from gridref.formats import ScanOptions
from gridref.formats.registry import scan_with
from gridref.model.array import VirtualGroup

__all__ = ["WrongDataError", "scan_in_time"]


_OPTIONS = ScanOptions(on_unsupported="skip", max_objects=2000)


class WrongDataError(AssertionError):
    """What a file holds reads otherwise than with its original reader, or the scan took long."""


def scan_in_time(path: Path, max_seconds: float) -> VirtualGroup | None:
    """Scan a file; None if that ends in an error of ours.

    Raises
    ------
    WrongDataError
        If the scan took longer than `max_seconds`.
    """
    started = time.monotonic()
    try:
        group = scan_with(path, _OPTIONS)
    except GridrefError:
        group = None
    spent = time.monotonic() - started
    if spent > max_seconds:
        raise WrongDataError(f"the scan took {spent:.0f} s")
    return group
