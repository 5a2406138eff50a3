"""Time to a first dataset of a folder of files: gridref, xarray and VirtualiZarr.

Run with ``python -m benchmarks.first_dataset [--files N] [--rounds N]``. Each tool opens the same
NetCDF4 files of days along time, with labels; the datasets are compared. Runs alternate between the
tools, and the best of each counts. gridref keeps no scans.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import gridref
from benchmarks._figures import Figure
from benchmarks._peers import local_registry

N_VARIABLES = 5
DAYS = {"units": "days since 2001-01-01", "calendar": "standard"}


def write_file(path: Path, day: int) -> Path:
    """Write a day of hourly values on a small grid, with its coordinates."""
    shape = (24, 16, 32)
    values = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    names = [f"v{number}" for number in range(N_VARIABLES)]
    variables = dict.fromkeys(names, (("time", "lat", "lon"), values + day))
    coords = {
        "time": ("time", day + np.arange(24) / 24, DAYS),
        "lat": np.linspace(-75, 75, 16),
        "lon": np.arange(32) * 11.25,
    }
    ds = xr.Dataset(variables, coords)
    ds.to_netcdf(path, encoding={n: {"zlib": True, "chunksizes": shape} for n in names})
    return path


def tools(files: list[str]) -> dict[str, Callable[[], xr.Dataset]]:
    """What opens the files, by name."""
    from virtualizarr import open_virtual_mfdataset
    from virtualizarr.parsers import HDFParser

    registry = local_registry()
    same = {"data_vars": "minimal", "coords": "minimal", "compat": "override", "join": "exact"}
    times = {"loadable_variables": ["time", "lat", "lon"]}
    urls = [f"file://{file}" for file in files]
    return {
        "gridref.open_mfdataset": lambda: gridref.open_mfdataset(files, work=False, **same),
        "xarray.open_mfdataset": lambda: xr.open_mfdataset(files, **same),
        "xarray.open_mfdataset, parallel": lambda: xr.open_mfdataset(files, parallel=True, **same),
        "virtualizarr.open_virtual_mfdataset": lambda: open_virtual_mfdataset(
            urls, registry=registry, parser=HDFParser(), combine="by_coords", **same, **times
        ),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")
    best = least_times(arguments.files, arguments.rounds)
    ours = best["gridref.open_mfdataset"]
    for name, (seconds, processor) in best.items():
        more, busier = (seconds, processor) / ours
        print(
            f"{name:38} {seconds:7.2f} s {more:6.1f} times,"
            f" {processor:7.2f} s of the processor {busier:6.1f} times"
        )
    return 0


def figures(n_files: int = 200) -> Iterator[Figure]:
    best = least_times(n_files, n_rounds=2)
    ours = best["gridref.open_mfdataset"][0]
    for peer in ("xarray.open_mfdataset", "virtualizarr.open_virtual_mfdataset"):
        what = f"first lazy dataset of {n_files} NetCDF4 files, against `{peer}`"
        yield Figure(what, best[peer][0] / ours, ">= 10", own=f"{ours:.2f} s")


def least_times(n_files: int, n_rounds: int) -> dict[str, Any]:
    """Least seconds, by the clock and of the processor, of each tool."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made_folder:
        folder = Path(made_folder)
        files = [str(write_file(folder / f"{n:05}.nc", n)) for n in range(n_files)]
        every = tools(files)
        for open_files in tools(files[:2]).values():
            open_files()
        best = {name: np.full(2, np.inf) for name in every}
        shown: dict[str, xr.Dataset] = {}
        for _ in range(n_rounds):
            for name, open_files in list(every.items()):
                started = np.array([time.perf_counter(), time.process_time()])
                try:
                    shown[name] = open_files()
                except RuntimeError as error:  # netCDF4 in threads, with some of its builds
                    print(f"{name} fails: {error}")
                    del every[name], best[name]
                    shown.pop(name, None)
                    continue
                taken = np.array([time.perf_counter(), time.process_time()]) - started
                best[name] = np.minimum(best[name], taken)
        first, *others = shown.values()
        for other in others:
            assert other.sizes == first.sizes
            np.testing.assert_array_equal(other["time"].values, first["time"].values)
        last = {"time": slice(-24, None)}
        xr.testing.assert_equal(
            first.isel(last).compute(), shown["xarray.open_mfdataset"].isel(last).compute()
        )
    return best


if __name__ == "__main__":
    sys.exit(main())
