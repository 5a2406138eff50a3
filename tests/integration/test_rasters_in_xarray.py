"""Images in rioxarray: clipped, reprojected and read by windows, as rasterio does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rasterio
import rioxarray
import xarray as xr
from rasterio.transform import from_origin
from rasterio.windows import from_bounds

BOX = (600_100.0, 5_299_500.0, 600_400.0, 5_299_900.0)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = []
    for day in (1, 2, 3):
        paths.append(tmp_path / f"image_2024030{day}.tif")
        values = np.arange(1, 64 * 80 + 1, dtype="u2").reshape(64, 80) * day
        with rasterio.open(
            paths[-1],
            "w",
            driver="GTiff",
            width=80,
            height=64,
            count=1,
            dtype="uint16",
            crs="EPSG:32632",
            transform=from_origin(600_000, 5_300_000, 10, 10),
            tiled=True,
            blockxsize=16,
            blockysize=16,
            compress="deflate",
        ) as file:
            file.write(values, 1)
    return paths


@pytest.fixture
def cube(files: list[Path]) -> xr.DataArray:
    ds = xr.open_dataset([str(file) for file in files], engine="gridref")
    return ds["band_data"].isel(band=0)


def test_clipped_to_a_box(files: list[Path], cube: xr.DataArray) -> None:
    clipped = cube.rio.clip_box(*BOX)
    for number, path in enumerate(files):
        with rioxarray.open_rasterio(path) as image:
            expected = image.isel(band=0).rio.clip_box(*BOX)
            np.testing.assert_array_equal(clipped.isel(time=number), expected)
            np.testing.assert_allclose(clipped["x"], expected["x"], rtol=1e-12)
            np.testing.assert_allclose(clipped["y"], expected["y"], rtol=1e-12)


def test_reprojected(files: list[Path], cube: xr.DataArray) -> None:
    for number, path in enumerate(files):
        found = cube.isel(time=number).rio.reproject("EPSG:4326", nodata=0)
        with rioxarray.open_rasterio(path) as image:
            expected = image.isel(band=0).rio.reproject("EPSG:4326", nodata=0)
        np.testing.assert_array_equal(found.values, expected.values)
        np.testing.assert_allclose(found["x"], expected["x"], rtol=1e-12)


def test_windows_read_the_tiles_that_they_touch(files: list[Path], cube: xr.DataArray) -> None:
    window = cube.sel(x=slice(BOX[0], BOX[2]), y=slice(BOX[3], BOX[1])).isel(time=1)
    costs = window.to_dataset(name="t").gridref.plan().loc["t"]
    assert costs["n_files"] == 1
    assert costs["n_chunks"] < 20
    with rasterio.open(files[1]) as file:
        place = from_bounds(*BOX, transform=file.transform).round_offsets().round_lengths()
        expected = file.read(1, window=place)
    np.testing.assert_array_equal(window.values, expected)
    assert expected.shape == (40, 30)
