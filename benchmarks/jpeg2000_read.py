"""Opening and reading a JPEG 2000 image like those of Sentinel-2: gridref beside rasterio.

Run with ``python -m benchmarks.jpeg2000_read [--pixels N]``. The image has one band of 16 bits in
tiles of 1024, and its lengths are in TLM. Runs alternate between the tools, and the best of each
counts. Every run opens the file anew; gridref keeps no decoded chunk between runs.
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
import rasterio
import rioxarray
from rasterio.transform import from_origin

import gridref
from benchmarks._timing import best_of
from gridref.io import SourcePool
from gridref.learned import FORMS
from gridref.model.array import VirtualGroup
from gridref.serve.reader import Reader
from tests.jp2_files import image_of, write_jp2

type Window = tuple[slice, slice]

TILE = 1024
PLACE = {"crs": "EPSG:32631", "transform": from_origin(6e5, 5e6, 10, 10)}


def write(path: Path, n_pixels: int) -> Path:
    """An image of equal tiles, which take a second to make."""
    tile = image_of((1, TILE, TILE))
    n_tiles = -(-n_pixels // TILE)
    image = np.tile(tile, (1, n_tiles, n_tiles))[:, :n_pixels, :n_pixels]
    return write_jp2(path, image, TILE, RESOLUTIONS=6, TLM="YES", **PLACE)


def values_of(group: VirtualGroup, path: str, window: Window | None = None) -> Any:
    """Read a window of an array, or all of it, with a reader of its own."""
    with SourcePool() as pool:
        key = (...,) if window is None else (0, *window)
        return Reader(pool).read(group[path], key)


def by_rasterio(path: Path, window: Window | None = None, **options: Any) -> Any:
    """The same by rasterio."""
    with rasterio.open(path, **options) as file:
        if window is None:
            return file.read()
        return file.read(1, window=tuple((along.start, along.stop) for along in window))


def scanned(path: Path) -> VirtualGroup:
    """Scan as if no such file had been scanned before."""
    FORMS.clear()
    return gridref.scan(path)


def runs(path: Path) -> dict[str, dict[str, Callable[[], Any]]]:
    """What is timed, by tool."""
    group = gridref.scan(path)
    tile = slice(TILE, 2 * TILE), slice(TILE, 2 * TILE)
    four = slice(TILE - 256, TILE + 256), slice(TILE - 256, TILE + 256)
    coarse = list(group.groups)[-1]
    level = int(coarse.removeprefix("overview_")) - 1
    return {
        "open": {
            "gridref": lambda: scanned(path),
            "rasterio": lambda: rasterio.open(path).close(),
            "rioxarray": lambda: rioxarray.open_rasterio(path).close(),  # type: ignore[union-attr]
        },
        "open and read a tile": {
            "gridref": lambda: values_of(gridref.scan(path), "band_data", tile),
            "rasterio": lambda: by_rasterio(path, tile),
        },
        "read 512 x 512 across four tiles": {
            "gridref": lambda: values_of(group, "band_data", four),
            "rasterio": lambda: by_rasterio(path, four),
        },
        f"read all of {coarse}": {
            "gridref": lambda: values_of(group, f"{coarse}/band_data"),
            "rasterio": lambda: by_rasterio(path, overview_level=level),
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pixels", type=int, default=10980)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, gridref {gridref.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "a.jp2", options.pixels)
        print(f"{options.pixels} x {options.pixels}, {path.stat().st_size / 2**20:.0f} MiB; ms")
        for what, calls in runs(path).items():
            times = best_of(calls, options.rounds)
            print(f"  {what:34}", *(f"{tool} {s * 1e3:.1f}" for tool, s in times.items()), sep="  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
