"""Work in several processes: how much faster, and what the process that waits for them needs.

Run with ``python -m benchmarks.workers [--files N] [--client-files N]``. The first table scans
local files of 20 variables in one process and in two (times of the wall clock, best of three, the
start of the processes counted). The second builds a catalog of very many small files by a Dask
cluster of two processes, and shows the time and the most memory of the client.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import netCDF4
import numpy as np

import gridref
from benchmarks._figures import Figure
from benchmarks.hdf5_scan import build
from gridref.api.scan import scan_many

N_DIFFERENT = 50
"""The other files are further names of these."""


def many_names(folder: Path, distinct: list[Path], n_files: int) -> list[str]:
    """Give the files so many names in all, and say them."""
    names = []
    for number in range(n_files):
        name = folder / f"{number // 1000:04}" / f"{number:07}.nc"
        name.parent.mkdir(exist_ok=True)
        os.link(distinct[number % len(distinct)], name)
        names.append(str(name))
    return names


def small_file(path: Path, number: int) -> None:
    with netCDF4.Dataset(path, "w") as file:
        for dim, size in (("time", None), ("x", 10)):
            file.createDimension(dim, size)
        values = file.createVariable("v", "i2", ("time", "x"), chunksizes=(4, 10), zlib=True)
        values[:] = np.full((4, 10), number)


def figures(n_files: int = 3_000) -> Iterator[Figure]:
    seconds = processes(n_files)
    what = f"scan {n_files:,} local files in two processes, against one"
    own = f"{1e3 * seconds[2] / n_files:.2f} ms a file"
    yield Figure(what, seconds[1] / seconds[2], ">= 1.8", own=own)


def processes(n_files: int) -> dict[int, float]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        distinct = [folder / f"{number}.nc" for number in range(N_DIFFERENT)]
        for number, path in enumerate(distinct):
            build(path, number)
        names = many_names(folder, distinct, n_files)
        seconds = {}
        for n_processes in (1, 2):
            runs = []
            for _ in range(3):
                start = time.perf_counter()
                scan_many(names, executor=n_processes)
                runs.append(time.perf_counter() - start)
            seconds[n_processes] = min(runs)
            each = seconds[n_processes] / n_files * 1e3
            print(f"{n_files:,} files in {n_processes} processes: {each:.2f} ms a file")
    print(f"  two processes are {seconds[1] / seconds[2]:.2f} times as fast as one")
    return seconds


def client(n_files: int) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        distinct = [folder / f"{number}.nc" for number in range(N_DIFFERENT)]
        for number, path in enumerate(distinct):
            small_file(path, number)
        many_names(folder, distinct, n_files)
        command = [sys.executable, "-m", "benchmarks.workers", "--client", temporary]
        seconds, megabytes = map(
            float,
            subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(),
        )
    print(f"{n_files:,} files by a Dask cluster of 2 processes: {seconds:.1f} s")
    print(f"  the client's most memory: {megabytes:.0f} MB (target: 500)")


def as_client(folder: str) -> None:
    from distributed import Client, LocalCluster

    files = sorted(str(path) for path in Path(folder).glob("0*/*.nc"))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as scheduler,
    ):
        start = time.perf_counter()
        group = gridref.build(
            files,
            Path(folder) / "cube.gridref",
            "time",
            run=gridref.RunOptions(executor=scheduler),
        )
        seconds = time.perf_counter() - start
    assert group["v"].shape == (4 * len(files), 10)
    assert int(group["v"][-1, -1]) == (len(files) - 1) % N_DIFFERENT
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=3_000)
    parser.add_argument("--client-files", type=int, default=100_000)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.client:
        as_client(chosen.client)
        return
    processes(chosen.files)
    client(chosen.client_files)


if __name__ == "__main__":
    main()
