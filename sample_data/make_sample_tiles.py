"""Write the sample tiles: two GeoTIFF tiles of different size that lie side by side.

Usage: ``python make_sample_tiles.py [FOLDER]`` (default: beside this script). The hills are made
up. The width of the western tile is no multiple of its internal tiles, so padding lies inside the
mosaic.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray

PIXEL_METRES = 30.0
WEST, NORTH = 399_960.0, 5_300_040.0  # UTM zone 33N
HEIGHT = 90
TILES = {"hills_west.tif": (0, 70), "hills_east.tif": (70, 124)}
INTERNAL_TILE = 32
NODATA = -32768


def hills(columns: NDArray[np.int64]) -> NDArray[np.int16]:
    """Heights in metres; a lake without data lies across the border of the tiles."""
    y, x = np.meshgrid(np.arange(HEIGHT), columns, indexing="ij")
    heights = 600 + 180 * np.sin(x / 17) * np.cos(y / 13) + 60 * np.sin((x + 2 * y) / 7)
    lake = (x - 70) ** 2 + (y - 40) ** 2 < 12**2
    return np.where(lake, NODATA, heights.round()).astype(np.int16)


def geo_tags(first_column: int) -> list[tuple[int, str, int, object, bool]]:
    """Pixel scale, tie point, geokeys (projected, EPSG 32633, pixel is area) and nodata value."""
    keys = (1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32633)
    tie_point = (0.0, 0.0, 0.0, WEST + first_column * PIXEL_METRES, NORTH, 0.0)
    return [
        (33550, "d", 3, (PIXEL_METRES, PIXEL_METRES, 0.0), True),
        (33922, "d", 6, tie_point, True),
        (34735, "H", len(keys), keys, True),
        (42113, "s", 0, str(NODATA), True),
    ]


def write_all(folder: Path) -> list[Path]:
    """Write both tiles into `folder` and return their paths."""
    paths = []
    for name, (first, stop) in TILES.items():
        path = folder / name
        tifffile.imwrite(
            path,
            hills(np.arange(first, stop)),
            tile=(INTERNAL_TILE, INTERNAL_TILE),
            compression="zlib",
            predictor=True,
            metadata=None,
            software=False,
            extratags=geo_tags(first),
        )
        paths.append(path)
    return paths


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for written in write_all(target):
        print(written)
