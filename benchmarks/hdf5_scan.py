"""Scanning very many small NetCDF4 files: gridref beside virtualizarr and kerchunk.

Run with ``python -m benchmarks.hdf5_scan [--files N]``. Each file holds 20 variables of a few
chunks and of as many attributes as archives give them. Times are processor time a file, on one
core, the best of three rounds over all files.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

from benchmarks._figures import Figure
from benchmarks._peers import parsed_by
from gridref.formats.registry import scan

N_VARIABLES = 17  # beside three coordinates


def build(path: Path, seed: int) -> None:
    """Write one file."""
    random = np.random.default_rng(seed)
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"title": "benchmark", "Conventions": "CF-1.11", "institution": "none"})
        for name, size in (("time", None), ("lat", 20), ("lon", 30)):
            file.createDimension(name, size)
            axis = file.createVariable(name, "f8", (name,))
            axis.setncatts({"standard_name": name, "units": "days since 2000-01-01"})
            axis[:] = np.arange(size or 10)
        for number in range(N_VARIABLES):
            variable = file.createVariable(
                f"variable{number}",
                "i2",
                ("time", "lat", "lon"),
                zlib=True,
                chunksizes=(5, 20, 30),
                fill_value=-32767,
            )
            variable.set_auto_maskandscale(False)
            variable.setncatts(
                {
                    "units": "K",
                    "long_name": f"variable number {number}",
                    "scale_factor": 0.01,
                    "add_offset": 273.15,
                    "coordinates": "lat lon",
                }
            )
            variable[:] = random.integers(0, 1000, (10, 20, 30))


def by_virtualizarr() -> Callable[[Path], Any]:
    from virtualizarr.parsers import HDFParser

    return parsed_by(HDFParser())


def by_kerchunk() -> Callable[[Path], Any]:
    from kerchunk.hdf import SingleHdf5ToZarr

    return lambda path: SingleHdf5ToZarr(str(path), inline_threshold=0).translate()


def milliseconds_a_file(run: Callable[[Path], Any], paths: list[Path], n_rounds: int = 3) -> float:
    run(paths[0])
    best = float("inf")
    for _ in range(n_rounds):
        started = time.process_time()
        for path in paths:
            run(path)
        best = min(best, time.process_time() - started)
    return 1000 * best / len(paths)


def all_times(n_files: int) -> dict[str, float]:
    runs = {"gridref": scan, "virtualizarr": by_virtualizarr(), "kerchunk": by_kerchunk()}
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number:04}.nc" for number in range(n_files)]
        for seed, path in enumerate(paths):
            build(path, seed)
        return {name: milliseconds_a_file(run, paths) for name, run in runs.items()}


def figures(n_files: int = 150) -> Iterator[Figure]:
    times = all_times(n_files)
    what = "scan local NetCDF4 files of 20 variables"
    own = f"{times['gridref']:.2f} ms a file"
    for peer, target in (("virtualizarr", ">= 20"), ("kerchunk", "")):
        yield Figure(f"{what}, against {peer}", times[peer] / times["gridref"], target, own=own)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    n_files = parser.parse_args().files
    print(f"{platform.platform()}, Python {platform.python_version()}")
    print(f"{n_files} files of {N_VARIABLES + 3} variables")
    times = all_times(n_files)
    for name, spent in times.items():
        print(f"{name:14} {spent:7.2f} ms a file   {spent / times['gridref']:5.2f} x")


if __name__ == "__main__":
    main()
