"""Scanning HDF4 files: gridref beside kerchunk's HDF4ToZarr.

Run with ``python -m benchmarks.hdf4_scan [--files N] [FILE ...]``. The first part scans tiles of
HDF-EOS2 as those of MODIS: fields that are deflated as a whole, then in many deflated chunks. The
others are files that are named. Runs alternate between the tools, and the best of each counts.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gridref
from benchmarks._timing import best_of
from tests.hdf4_files import modis_tile, write_structures

N_FIELDS = 12


def write_tile(path: Path, n_pixels: int, chunks: tuple[int, ...]) -> Path:
    """Write a grid of `N_FIELDS` fields."""
    values = np.arange(n_pixels * n_pixels, dtype="i2").reshape(n_pixels, n_pixels)
    fields = {f"field {n}": (("YDim", "XDim"), values + n) for n in range(N_FIELDS)}
    grid = {"fields": fields, **modis_tile(18, 4)}
    return write_structures(path, {"grid": grid}, deflate=1, chunks=chunks)


def tools() -> dict[str, Callable[[Path], Any]]:
    """The tools, by name."""
    from kerchunk.hdf4 import HDF4ToZarr

    return {
        "gridref": lambda path: gridref.scan(path, on_unsupported="skip"),
        "kerchunk": lambda path: HDF4ToZarr(str(path)).translate(),
    }


def report(title: str, paths: list[Path], n_rounds: int) -> None:
    """Print milliseconds a file, or the error of a tool that does not read the first file."""
    print(f"{title}, ms a file")
    runs: dict[str, Callable[[], Any]] = {}
    for name, scan in tools().items():
        try:
            scan(paths[0])
        except Exception as error:  # noqa: BLE001 - whatever another tool raises
            print(f"  {name:14} {type(error).__name__}: {str(error)[:80]}")
        else:
            runs[name] = lambda scan=scan: list(map(scan, paths))
    for name, seconds in best_of(runs, n_rounds).items():
        print(f"  {name:14} {seconds / len(paths) * 1e3:10.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("named", nargs="*", type=Path)
    arguments = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}")
    with tempfile.TemporaryDirectory() as made_folder:
        folder = Path(made_folder)
        whole = [write_tile(folder / f"{n}.hdf", 240, ()) for n in range(arguments.files)]
        report(f"{len(whole)} tiles of {N_FIELDS} fields", whole, 3)
        cut = [write_tile(folder / "chunks.hdf", 600, (12, 12))]
        report(f"a tile of {N_FIELDS * 2500} chunks", cut, 3)
    for path in arguments.named:
        report(path.name, [path], 5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
