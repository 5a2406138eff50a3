"""What appending costs: ``python -m benchmarks.append [n_commits [n_arrays [n_files]]]``.

A catalog of `n_files` files and `n_arrays` arrays, to which files are added one by one. Said are
times of the commits, requests, bytes written by a commit, and memory.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

import gridref


def write_file(path: Path, number: int, n_arrays: int) -> Path:
    """A file of one step of many variables."""
    with h5py.File(path, "w", libver="latest") as file:
        file["time"] = np.array([float(number)])
        file["time"].make_scale("time")
        for i in range(n_arrays - 1):
            data = file.create_dataset(f"v{i}", data=np.zeros((1, 8), "f4"), chunks=(1, 8))
            data.dims[0].attach_scale(file["time"])
    return path


def main(n_commits: int = 100, n_arrays: int = 150) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        catalog = folder / "cube.gridref"
        gridref.build([write_file(folder / "0.h5", 0, n_arrays)], catalog, "time")
        opened = gridref.open_catalog(catalog)
        seconds = []
        for number in range(1, n_commits + 1):
            path = write_file(folder / f"{number}.h5", number, n_arrays)
            before = sum(file.stat().st_size for file in catalog.iterdir())
            began = time.perf_counter()
            opened = opened.append(path)
            seconds.append(time.perf_counter() - began)
            written = sum(file.stat().st_size for file in catalog.iterdir()) - before
            if number % max(1, n_commits // 10) == 0:
                last = seconds[-max(1, n_commits // 10) :]
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                print(
                    f"{number:6} commits: p50 {np.median(last):.3f} s, {len(opened.parts)} parts,"
                    f" {written} bytes more, {memory:.0f} MB"
                )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
