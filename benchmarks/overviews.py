"""Overviews of a large image: writing them, and a first picture, beside GDAL.

Run with ``python -m benchmarks.overviews [--side N] [--memory SIZE]``. The image is a GeoTIFF of
uint16 in tiles of 512 (deflate) without overviews. gridref writes its levels beside it, GDAL writes
its own (averages) into a copy. Each writes in a process of its own. A picture opens everything anew
and reads the level whose sides are at most 1250; the files are in the page cache. The last row is a
picture without overviews, every so many elements of the image.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import rasterio
from rasterio.transform import from_origin
from rasterio.windows import Window

import gridref

SIDE_OF_PICTURE = 1250
PEAK = """
import re
from pathlib import Path
print("peak", re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
"""
GRIDREF = """
import sys, gridref
path, levels, memory = sys.argv[1:]
gridref.open_catalog(path).overviews("band_data", levels=int(levels), memory=memory)
"""
GDAL = """
import sys, rasterio
from rasterio.enums import Resampling
with rasterio.open(sys.argv[1], "r+") as file:
    file.build_overviews([2 ** n for n in range(1, int(sys.argv[2]) + 1)], Resampling.average)
"""


def write_image(path: Path, side: int) -> None:
    """Write hills with noise, tile row by tile row."""
    random, across = np.random.default_rng(1), np.sin(np.arange(side) / 700)
    about = {"driver": "GTiff", "width": side, "height": side, "count": 1, "dtype": "uint16"}
    layout = {"tiled": True, "blockxsize": 512, "blockysize": 512, "compress": "deflate"}
    place = {"crs": "EPSG:32633", "transform": from_origin(500000, 5000000, 10, 10)}
    with rasterio.open(path, "w", **about, **layout, **place, zlevel=1, predictor=2) as file:
        for start in range(0, side, 512):
            n = min(512, side - start)
            hills = 3000 + 1000 * np.sin(np.arange(start, start + n) / 500)[:, None] * across
            values = (hills + random.integers(0, 20, (n, side))).astype("u2")
            file.write(values, 1, window=Window(0, start, side, n))


def in_a_process(code: str, *arguments: object) -> tuple[float, float]:
    """Seconds of a new process, and most memory in MB."""
    started = time.perf_counter()
    command = [sys.executable, "-c", code + PEAK, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - started
    peak = re.search(r"peak (\d+)", done.stdout)
    assert peak is not None
    return seconds, int(peak[1]) / 1e3


def picture_seconds(picture: Callable[[], np.ndarray]) -> tuple[float, tuple[int, ...]]:
    """The median of seven, after one that warms the page cache; and the picture's shape."""
    shape, seconds = picture().shape, []
    for _ in range(7):
        started = time.perf_counter()
        picture()
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds)), shape


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=20_000)
    parser.add_argument("--memory", default="1GB")
    arguments = parser.parse_args()
    n_levels = max(1, int(np.ceil(np.log2(arguments.side / SIDE_OF_PICTURE))))
    with tempfile.TemporaryDirectory() as made_folder:
        folder = Path(made_folder)
        image, copy, cube = folder / "image.tif", folder / "gdal.tif", folder / "image.gridref"
        write_image(image, arguments.side)
        shutil.copy(image, copy)
        gridref.build(image, cube)
        n_bytes = image.stat().st_size
        print(
            f"{arguments.side} x {arguments.side} uint16, {n_bytes / 1e6:.0f} MB, {n_levels} levels"
        )
        for name, code, at in (("gridref", GRIDREF, cube), ("GDAL", GDAL, copy)):
            seconds, peak = in_a_process(code, at, n_levels, arguments.memory)
            print(f"  {name:8} writes levels in {seconds:6.1f} s, most memory {peak:5.0f} MB")

        def by_level() -> np.ndarray:
            return gridref.open_catalog(cube)[f"overview_{n_levels}/band_data"][:]

        def by_gdal() -> np.ndarray:
            with rasterio.open(copy) as file:
                side = -(-arguments.side // 2**n_levels)
                return file.read(1, out_shape=(side, side))

        def without() -> np.ndarray:
            step = 2**n_levels
            return gridref.open_catalog(cube)["band_data"][0, ::step, ::step]

        for name, picture in (("gridref", by_level), ("GDAL", by_gdal), ("none", without)):
            seconds, shape = picture_seconds(picture)
            print(f"  {name:8} picture of {shape} in {seconds * 1e3:7.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
