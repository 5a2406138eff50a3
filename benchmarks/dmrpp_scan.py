"""Scanning DMR++ documents: gridref beside VirtualiZarr's DMRPPParser, and beside the granules.

Run with ``python -m benchmarks.dmrpp_scan [--variables N] [--chunks N] [--delay SECONDS]``. The
first part scans a document of many chunks. Runs alternate between the tools, and the best of each
counts. The second part scans granules on a server whose answers take a while, without and with
their documents as hints, and documents: one file, and each further one of a series, of two kinds:
as netCDF4 writes them, and with datasets of differing sizes and their descriptions all over the
file.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np

import gridref
from benchmarks._peers import parsed_by
from tests.cold_scans import all_caches
from tests.dmrpp_files import write_dmrpp
from tests.http_server import Site, serving

N_FILES = 16


def write_netcdf4(path: Path, n_variables: int, n_times: int, n_points: int) -> Path:
    """Write variables with chunks of one time and a quarter of the points each."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", n_times)
        file.createDimension("y", n_points)
        file.createDimension("x", n_points)
        for number in range(n_variables):
            variable = file.createVariable(
                f"v{number}",
                "f4",
                ("time", "y", "x"),
                chunksizes=(1, n_points // 2, n_points // 2),
            )
            variable.setncatts({"units": "m", "long_name": f"variable {number}"})
            variable[...] = number
    return path


def write_scattered(path: Path, number: int) -> Path:
    """Write 120 datasets in groups, one after the other with its description."""
    random = np.random.default_rng(number)
    with h5py.File(path, "w") as file:
        for each in range(120):
            n_rows = 64 + 8 * int(random.integers(0, 9))
            values = np.zeros((n_rows, 2048), "i4")
            dataset = file.create_dataset(f"g{each % 15}/v{each}", data=values, chunks=(16, 512))
            dataset.attrs["units"] = "m"
    return path


def parsers() -> dict[str, Callable[[Path], Any]]:
    """The tools, by name."""
    from virtualizarr.parsers import DMRPPParser

    return {
        "gridref": gridref.scan,
        "virtualizarr": parsed_by(DMRPPParser()),
    }


def seconds_of(addresses: list[str], hints: str) -> float:
    """How long planning an archive takes that nothing is known of."""
    for clear in all_caches():
        clear()
    started = time.perf_counter()
    gridref.plan(
        addresses, layout=gridref.Stack("n"), order="given", scan=gridref.ScanOptions(hints=hints)
    )
    return time.perf_counter() - started


def on_a_server(kind: str, granules: list[Path], delay: float) -> None:
    """Print requests and times of granules and of their documents."""
    documents = [write_dmrpp(path) for path in granules]
    files: dict[str, bytes] = {}
    for number in range(N_FILES):
        at = number % len(granules)
        files[f"/{number}.h5"] = granules[at].read_bytes()
        files[f"/{number}.h5.dmrpp"] = documents[at].read_bytes()
    n_bytes = granules[0].stat().st_size / 1e6, documents[0].stat().st_size / 1e3
    print(f"{kind}, {n_bytes[0]:.0f} MB, document of {n_bytes[1]:.0f} kB")
    with serving(Site(files, delay_seconds=delay)) as site:
        for suffix, hints in (("h5", "none"), ("h5", "dmrpp"), ("h5.dmrpp", "none")):
            addresses = [f"{site.url}/{number}.{suffix}" for number in range(N_FILES)]
            seconds_of(addresses[:1], hints)
            site.requests.clear()
            one = seconds_of(addresses[:1], hints)
            n_requests = len(site.requests)
            all_of_them = seconds_of(addresses, hints)
            each = (all_of_them - one) / (N_FILES - 1)
            print(
                f"  {suffix:10} hints {hints:5} one file {n_requests:4} requests,"
                f" {one * 1e3:6.0f} ms;"
                f" {N_FILES} files {all_of_them * 1e3:6.0f} ms: {each * 1e3:5.0f} ms more for each"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variables", type=int, default=20)
    parser.add_argument("--chunks", type=int, default=4000)
    parser.add_argument("--delay", type=float, default=0.05)
    arguments = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}")
    with tempfile.TemporaryDirectory() as made_folder:
        folder = Path(made_folder)
        many = write_netcdf4(folder / "many.h5", arguments.variables, arguments.chunks // 4, 4)
        document = write_dmrpp(many)
        n_chunks = 4 * (arguments.chunks // 4) * arguments.variables
        print(f"a document of {n_chunks} chunks, {document.stat().st_size / 1e6:.1f} MB, ms")
        best = dict.fromkeys(tools := parsers(), np.inf)
        for _ in range(5):
            for name, scan in tools.items():
                started = time.perf_counter()
                scan(document)
                best[name] = min(best[name], time.perf_counter() - started)
        for name, seconds in best.items():
            print(f"  {name:14} {seconds * 1e3:10.1f}")
        usual = write_netcdf4(folder / "usual.h5", 15, 4, 700)
        on_a_server("NetCDF4", [usual], arguments.delay)
        scattered = [write_scattered(folder / f"s{number}.h5", number) for number in range(4)]
        on_a_server("scattered", scattered, arguments.delay)
    return 0


if __name__ == "__main__":
    sys.exit(main())
