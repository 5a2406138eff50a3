"""Scanning TIFF files: gridref beside virtual-tiff (for virtualizarr) and tifffile's fsspec export.

Run with ``python -m benchmarks.tiff_scan [--files N] [--size PIXELS] [--tiles N]``. The files are
Cloud Optimized GeoTIFFs that GDAL writes: tiles of 256 by 256 pixels, overviews down to one tile.
All three describe every resolution of every file; gridref adds coordinates and the reference
system. Runs alternate between the tools, and the best of each counts. The second part scans one
BigTIFF of very many tiles, made without pixels. virtual-tiff is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import io
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from benchmarks._peers import parsed_by
from gridref.formats import scan

Scan = Callable[[Path], Any]


def write_cogs(folder: Path, n_files: int, size: int) -> list[Path]:
    """Write ten files with GDAL, and copies of them."""
    import rasterio

    paths = [folder / f"scene_{number:04d}.tif" for number in range(n_files)]
    for number, path in enumerate(paths):
        if number >= 10:
            shutil.copyfile(paths[number % 10], path)
            continue
        transform = rasterio.Affine(20, 0, 600000 + 1000 * number, 0, -20, 5000040)
        with rasterio.open(
            path,
            "w",
            driver="COG",
            width=size,
            height=size,
            count=1,
            dtype="uint16",
            crs="EPSG:32632",
            nodata=0,
            transform=transform,
            compress="deflate",
            blocksize=256,
        ) as file:
            file.write(np.full((1, size, size), number + 1, np.uint16))
    return paths


def write_bigtiff(path: Path, n_tiles: int) -> None:
    """Write the directory of a BigTIFF whose tiles are of 16 by 16 bytes, all in one place."""
    columns = round(n_tiles**0.5)
    rows = -(-n_tiles // columns)
    n_tiles = rows * columns
    first = 16 + 8 + 10 * 20 + 8
    offsets = first + 16 * n_tiles + np.zeros(n_tiles, "<u8")
    counts = np.full(n_tiles, 256, "<u8")
    tags = [
        (256, 4, 1, columns * 16),
        (257, 4, 1, rows * 16),
        (258, 3, 1, 8),
        (259, 3, 1, 8),
        (262, 3, 1, 1),
        (277, 3, 1, 1),
        (322, 3, 1, 16),
        (323, 3, 1, 16),
        (324, 16, n_tiles, first),
        (325, 16, n_tiles, first + 8 * n_tiles),
    ]
    with path.open("wb") as file:
        file.write(b"II" + struct.pack("<HHHQ", 43, 8, 0, 16))
        file.write(struct.pack("<Q", len(tags)))
        for tag in tags:
            file.write(struct.pack("<HHQQ", *tag))
        file.write(struct.pack("<Q", 0))
        file.write(offsets.tobytes() + counts.tobytes() + bytes(256))


def by_gridref(path: Path) -> None:
    scan(str(path))


def by_tifffile(path: Path) -> None:
    with tifffile.TiffFile(path) as file, file.series[0].aszarr() as store:
        store.write_fsspec(io.StringIO(), url=path.parent.as_uri())


def by_virtual_tiff() -> Scan | None:
    try:
        from virtual_tiff import VirtualTIFF
    except ImportError:
        return None
    return parsed_by(VirtualTIFF())


def compare(paths: list[Path], n_rounds: int) -> None:
    scans: dict[str, Scan] = {"gridref": by_gridref, "tifffile": by_tifffile}
    virtual_tiff = by_virtual_tiff()
    if virtual_tiff is None:
        print("virtual-tiff is not installed")
    else:
        scans["virtual-tiff"] = virtual_tiff
    best = dict.fromkeys(scans, float("inf"))
    for name, timed in scans.items():
        timed(paths[0])
        print(f"  warmed up {name}")
    for _ in range(n_rounds):
        for name, timed in scans.items():
            start = time.perf_counter()
            for path in paths:
                timed(path)
            best[name] = min(best[name], time.perf_counter() - start)
    for name, seconds in best.items():
        ratio = seconds / best["gridref"]
        each = 1e3 * seconds / len(paths)
        print(f"{name:14s} {seconds:8.3f} s  {each:7.3f} ms a file  {ratio:5.1f}x")


def one_large(path: Path) -> None:
    start = time.perf_counter()
    group = scan(str(path))
    seconds = time.perf_counter() - start
    n_rows = group.arrays["image"].manifests[0].n_rows
    tracemalloc.start()
    scan(str(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    report = group.report
    print(
        f"BigTIFF of {n_rows:,} tiles: {seconds:.3f} s, peak {peak / 2**20:.0f} MiB,"
        f" {report.n_requests} reads of {report.n_bytes / 2**20:.1f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--size", type=int, default=5490)
    parser.add_argument("--tiles", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{options.files} COGs of {options.size} by {options.size} pixels")
        compare(write_cogs(folder, options.files, options.size), options.rounds)
        large = folder / "large.tif"
        write_bigtiff(large, options.tiles)
        one_large(large)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {sys.platform}")
    print(f"tifffile {tifffile.__version__}, commit {commit.stdout.strip() or 'unknown'}")


if __name__ == "__main__":
    main()
