"""Scanning NetCDF3 files: gridref beside kerchunk's NetCDF3ToZarr and VirtualiZarr's NetCDF3Parser.

Run with ``python -m benchmarks.netcdf3_scan [--files N] [--records N]``. The first part scans many
files of 12 records; the second one file of 20 record variables and many records, a reference for
each; the last makes a catalog of that file and reads one of its variables. Runs alternate between
the tools, and the best of each counts.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

import gridref
from benchmarks._peers import parsed_by
from benchmarks._timing import best_of

N_VARIABLES = 20


def write_file(path: Path, n_records: int, n_points: int) -> Path:
    """Write model output: `N_VARIABLES` record variables, with attributes as models give them."""
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
        file.createDimension("time", None)
        file.createDimension("x", n_points)
        for number in range(N_VARIABLES):
            variable = file.createVariable(f"v{number}", "f4", ("time", "x"))
            variable.setncatts({"units": "m", "long_name": f"variable {number}"})
        for number in range(N_VARIABLES):
            file[f"v{number}"][...] = np.arange(n_records * n_points).reshape(-1, n_points)
    return path


def scans() -> dict[str, Callable[[Path], Any]]:
    """The tools, by name."""
    from kerchunk.netCDF3 import NetCDF3ToZarr
    from virtualizarr.parsers import NetCDF3Parser

    return {
        "gridref": gridref.scan,
        "kerchunk": lambda path: NetCDF3ToZarr(str(path)).translate(),
        "virtualizarr": parsed_by(NetCDF3Parser()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--records", type=int, default=4000)
    arguments = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}")
    with tempfile.TemporaryDirectory() as made_folder:
        folder = Path(made_folder)
        files = [write_file(folder / f"{n}.nc", 12, 100) for n in range(arguments.files)]
        large = write_file(folder / "large.nc", arguments.records, 1)
        tools = scans()
        for scan in tools.values():
            scan(files[0])
        many = {name: lambda scan=scan: list(map(scan, files)) for name, scan in tools.items()}
        one = {name: lambda scan=scan: scan(large) for name, scan in tools.items()}
        print(f"{arguments.files} files of {N_VARIABLES} variables and 12 records, ms a file")
        for name, seconds in best_of(many, 2).items():
            print(f"  {name:14} {seconds / len(files) * 1e3:10.2f}")
        n_references = arguments.records * N_VARIABLES
        print(f"a file of {n_references} references, ms")
        for name, seconds in best_of(one, 3).items():
            print(f"  {name:14} {seconds * 1e3:10.2f}")
        catalog = folder / "a.gridref"
        made = best_of({"build": lambda: gridref.build([large], catalog)}, 1)["build"]
        n_bytes = sum(path.stat().st_size for path in catalog.rglob("*"))
        array = gridref.open_catalog(catalog)["v1"]
        read = best_of({"read": lambda: array[...]}, 3)["read"]
        print(f"its catalog: {made * 1e3:.0f} ms, {n_bytes / 1000:.0f} kB; one variable is read")
        print(f"in {read * 1e3:.0f} ms, {read / arguments.records * 1e6:.1f} us a record")
    return 0


if __name__ == "__main__":
    sys.exit(main())
