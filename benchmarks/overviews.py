"""Overviews of a large image: writing them, and a first picture, beside GDAL.

Run with ``python -m benchmarks.overviews [--side N] [--memory SIZE]``. The image is a GeoTIFF of
uint16 in tiles of 512 (deflate) without overviews. gridref writes its levels beside it, GDAL writes
its own (averages) into a copy. Each writes in a process of its own. A picture opens everything anew
and reads the level whose sides are at most 1250; the files are in the page cache. The last row is a
picture without overviews, every so many elements of the image.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import rasterio
from rasterio.transform import from_origin
from rasterio.windows import Window

import gridref
from benchmarks._figures import Figure
from benchmarks._timing import Run, run_script

SIDE_OF_PICTURE = 1250
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


def picture_seconds(picture: Callable[[], np.ndarray]) -> tuple[float, tuple[int, ...]]:
    """The median of seven, after one that warms the page cache; and the picture's shape."""
    shape, seconds = picture().shape, []
    for _ in range(7):
        started = time.perf_counter()
        picture()
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds)), shape


@dataclass(frozen=True)
class Levels:
    """Overviews of an image by gridref and GDAL.

    Attributes
    ----------
    n_levels
        Number of levels.
    writing
        What writing them took, by tool.
    pictures
        Seconds and shape of a first picture, by tool, and without overviews.
    """

    n_levels: int
    writing: Mapping[str, Run]
    pictures: Mapping[str, tuple[float, tuple[int, ...]]]


def levels_of(side: int, memory: str) -> Levels:
    """Write an image, and overviews of it by both tools; draw pictures."""
    n_levels = max(1, int(np.ceil(np.log2(side / SIDE_OF_PICTURE))))
    step = 2**n_levels
    with tempfile.TemporaryDirectory() as made_folder:
        folder = Path(made_folder)
        image, copy, cube = folder / "image.tif", folder / "gdal.tif", folder / "image.gridref"
        write_image(image, side)
        shutil.copy(image, copy)
        gridref.build(image, cube)
        writing = {
            name: run_script(code, at, n_levels, memory)
            for name, code, at in (("gridref", GRIDREF, cube), ("GDAL", GDAL, copy))
        }

        def by_gdal() -> np.ndarray:
            with rasterio.open(copy) as file:
                return file.read(1, out_shape=(-(-side // step), -(-side // step)))

        pictures = {
            "gridref": lambda: gridref.open_catalog(cube)[f"overview_{n_levels}/band_data"][:],
            "GDAL": by_gdal,
            "none": lambda: gridref.open_catalog(cube)["band_data"][0, ::step, ::step],
        }
        drawn = {name: picture_seconds(picture) for name, picture in pictures.items()}
        return Levels(n_levels, writing, drawn)


def figures(side: int = 20_000, memory: str = "1GB") -> Iterator[Figure]:
    found = levels_of(side, memory)
    ours, theirs = (found.writing[name] for name in ("gridref", "GDAL"))
    what, image = "times as fast", f"{side:,} x {side:,}"
    own = f"{ours.seconds:.1f} s"
    yield Figure(f"write overviews of {image}", theirs.seconds / ours.seconds, "", what, own)
    yield Figure(f"write overviews of {image}: memory", ours.peak * 1e3, "<= 1,000 MB", "MB")
    seconds = found.pictures["gridref"][0]
    yield Figure(f"first picture of {image} with overviews", seconds, "<= 0.5 s", "s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=20_000)
    parser.add_argument("--memory", default="1GB")
    asked = parser.parse_args()
    found = levels_of(asked.side, asked.memory)
    print(f"{asked.side} x {asked.side} uint16, {found.n_levels} levels")
    for name, run in found.writing.items():
        told = run.failure or f"most memory {run.peak * 1e3:5.0f} MB"
        print(f"  {name:8} writes levels in {run.seconds:6.1f} s, {told}")
    for name, (seconds, shape) in found.pictures.items():
        print(f"  {name:8} picture of {shape} in {seconds * 1e3:7.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
