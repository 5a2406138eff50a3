"""What is compared of a mutated NetCDF3 file: all that a scan takes, with netCDF4."""

from __future__ import annotations

import math
from pathlib import Path

import netCDF4
import numpy as np

from gridref.io import SourcePool
from gridref.model.scan_report import Fate
from gridref.serve.reader import Reader
from tools.fuzz.timed_scan import WrongDataError, scan_in_time

__all__ = ["check"]

_SECONDS = 20
_MOST_ELEMENTS = 1 << 14


def check(path: Path) -> None:
    """Scan a file, and compare dimensions, attributes and values with those of netCDF4.

    Raises
    ------
    WrongDataError
        If anything differs, or the file is none for netCDF4.
    """
    group = scan_in_time(path, _SECONDS)
    data = path.read_bytes()
    if group is None or not group.arrays or not data.startswith(b"CDF"):
        return
    if set(data[4 : 12 if data[3] == 5 else 8]) == {0xFF}:
        return  # netCDF4 does not count the records of such files
    try:
        file = netCDF4.Dataset(path)
    except (OSError, RuntimeError, ValueError, UnicodeDecodeError) as error:
        if any(finding.fate is Fate.SKIPPED for finding in group.report):
            return  # it is refused unless what is damaged is left out
        raise WrongDataError(f"netCDF4 opens it not: {error}") from error
    renamed = any(finding.fate is Fate.RENAMED for finding in group.report)
    with file, SourcePool() as pool:
        reader = Reader(pool)
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        _require(list(group.attrs) == file.ncattrs(), "attributes")
        for name, array in group.arrays.items():
            variable = file.variables[name]
            _require(array.shape == variable.shape, f"shape of {name}")
            own = array.dims == variable.dimensions or renamed
            _require(own, f"dimensions of {name}")
            _require(list(array.attrs) == variable.ncattrs(), f"attributes of {name}")
            if math.prod(array.shape) > _MOST_ELEMENTS:
                continue
            expected = np.asarray(variable[...])
            expected = expected.astype(expected.dtype.newbyteorder("="))
            values = reader.read(array, (...,))
            _require(values.tobytes() == expected.tobytes(), f"values of {name}")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise WrongDataError(f"netCDF4 has other {what}")
