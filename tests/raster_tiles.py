"""GeoTIFF tiles on the pixels of one map, as rasterio writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest


def write_tile(
    path: Path,
    row: float,
    column: float,
    shape: tuple[int, int],
    *,
    step: float = 30,
    scale: float | None = None,
    overviews: bool = False,
    **profile: Any,
) -> Path:
    """A tile of random numbers, so many pixels of `step` metres below and right of the corner."""
    rasterio = pytest.importorskip("rasterio")
    rng = np.random.default_rng(sum(map(ord, path.name)))
    corner = 5e5 + step * column, 6e6 - step * row
    chosen = {
        "dtype": "uint16",
        "crs": "EPSG:32632",
        "compress": "deflate",
        "tiled": True,
        "blockxsize": 16,
        "blockysize": 16,
        **profile,
    }
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        height=shape[0],
        width=shape[1],
        count=1,
        transform=rasterio.transform.from_origin(*corner, step, step),
        **chosen,
    ) as file:
        file.write(rng.integers(1, 30_000, (1, *shape)).astype(chosen["dtype"]))
        if scale is not None:
            file.scales = (scale,)
        if overviews:
            file.build_overviews([2])
    return path
