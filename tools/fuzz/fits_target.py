"""What is compared of a mutated FITS file: all pixels that a scan takes, with astropy."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from gridref.errors import GridrefError
from gridref.formats.fits import OriginalImages
from gridref.io import SourcePool, open_for_scan
from gridref.serve.reader import Reader
from tools.fuzz.timed_scan import WrongDataError, scan_in_time

__all__ = ["check", "read_all"]

_SECONDS = 20
_MOST_ELEMENTS = 1 << 14


def read_all(path: Path) -> None:
    """Scan a file and decode what is small: a description, or errors of ours."""
    group = scan_in_time(path, _SECONDS)
    with SourcePool() as pool:
        for array in group.arrays.values() if group is not None else ():
            if array.size <= _MOST_ELEMENTS:
                try:
                    Reader(pool).read(array, (...,))
                except GridrefError:
                    continue


def check(path: Path) -> None:
    """Scan a file, and compare stored values with those of astropy where both read them.

    Raises
    ------
    WrongDataError
        If any differ.
    """
    group = scan_in_time(path, _SECONDS)
    if group is None or not group.arrays:
        return
    try:
        original = OriginalImages(open_for_scan(path))
    except GridrefError:
        return
    with SourcePool() as pool:
        reader = Reader(pool)
        for name, array in group.arrays.items():
            if math.prod(array.shape) > _MOST_ELEMENTS:
                continue
            (manifest,) = array.manifests
            offset = int(manifest.take(np.arange(1)).offset[0])
            whole = tuple(slice(0, length) for length in array.shape)
            try:
                values = reader.read(array, (...,))
                expected = original.read(original.number_at(offset), whole)
            except GridrefError:
                continue
            if values.tobytes() != expected.astype(array.dtype).tobytes():
                raise WrongDataError(f"astropy has other values of {name}")
    original.close()
