"""Small NetCDF3 files with something of everything, as seeds of mutations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

__all__ = ["netcdf3_files"]

_VERSIONS: tuple[Any, ...] = ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA")


def netcdf3_files(folder: Path) -> list[bytes]:
    """Files of each version: with fixed and record variables, and with a single record variable."""
    path = folder / "seed.nc"
    seeds = []
    for version in _VERSIONS:
        types = ["i1", "i2", "f8", *(["u2", "i8"] if version.endswith("DATA") else [])]
        for names in (types, types[1:2]):
            with netCDF4.Dataset(path, "w", format=version) as file:
                file.createDimension("x", 3)
                file.createDimension("time", None)
                file.title = "a title"
                file.createVariable("x", "f4", ("x",))[...] = [1, 2, 3]
                file.createVariable("scalar", "i4", ())[...] = 7
                for name in names:
                    variable = file.createVariable(f"v_{name}", name, ("time", "x"))
                    variable.setncattr("range", np.array([1, 9], name))
                    variable[...] = np.arange(60).reshape(20, 3)
                text = file.createVariable("text", "S1", ("x",))
                text[...] = np.array([b"a", b"b", b"c"])
            seeds.append(path.read_bytes())
    return seeds
