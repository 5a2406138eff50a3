"""Mosaics of GeoTIFF files beside rasterio's own merging."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import gridref
from tests import raster_tiles

rasterio = pytest.importorskip("rasterio")
merging = pytest.importorskip("rasterio.merge")


write_tile = partial(raster_tiles.write_tile, dtype="int16")

PLACES = [(0, 0, (40, 50)), (0, 50, (40, 33)), (40, 0, (17, 50)), (30, 60, (40, 40))]


@pytest.fixture
def tiles(tmp_path: Path) -> list[Path]:
    return [
        write_tile(tmp_path / f"{n}.tif", row, column, shape, nodata=0)
        for n, (row, column, shape) in enumerate(PLACES)
    ]


@pytest.mark.parametrize("overlap", ["first", "last"])
def test_mosaics_equal_those_of_rasterio(tiles: list[Path], overlap: str, tmp_path: Path) -> None:
    gridref.build(
        tiles,
        tmp_path / "map.gridref",
        layout=gridref.Mosaic(),
        combine=gridref.CombineOptions(overlap=overlap),
    )
    with xr.open_dataset(
        tmp_path / "map.gridref", engine="gridref", mask_and_scale=False
    ) as opened:
        shown = opened.band_data.values
        x, y = opened.x.values, opened.y.values
    expected, transform = merging.merge(tiles, method=overlap)
    np.testing.assert_array_equal(shown, expected)
    np.testing.assert_array_equal(x, transform.c + (np.arange(len(x)) + 0.5) * transform.a)
    np.testing.assert_array_equal(y, transform.f + (np.arange(len(y)) + 0.5) * transform.e)


def test_batches_of_files_equal_rasterio(
    tiles: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", 2)
    gridref.build(
        tiles,
        tmp_path / "map.gridref",
        layout=gridref.Mosaic(),
        combine=gridref.CombineOptions(overlap="first"),
    )
    with xr.open_dataset(
        tmp_path / "map.gridref", engine="gridref", mask_and_scale=False
    ) as opened:
        np.testing.assert_array_equal(opened.band_data.values, merging.merge(tiles)[0])


def test_tiles_with_other_nodata_and_dtype_equal_rasterio_masked(tmp_path: Path) -> None:
    one = write_tile(tmp_path / "a.tif", 0, 0, (20, 30), nodata=7)
    two = write_tile(tmp_path / "b.tif", 0, 30, (20, 10), nodata=-1, dtype="int32")
    gridref.build([one, two], tmp_path / "map.gridref", layout=gridref.Mosaic())
    parts = []
    for path in (one, two):
        with rasterio.open(path) as file:
            parts.append(file.read(1, masked=True).astype("f8").filled(np.nan))
    with xr.open_dataset(tmp_path / "map.gridref", engine="gridref") as opened:
        np.testing.assert_array_equal(opened.band_data.values[0], np.concatenate(parts, axis=1))


def test_tiles_scaled_differently_are_each_shown_with_their_own_scale(tmp_path: Path) -> None:
    one = write_tile(tmp_path / "a.tif", 0, 0, (20, 30), scale=0.1)
    two = write_tile(tmp_path / "b.tif", 0, 30, (20, 10), scale=0.5)
    gridref.build([one, two], tmp_path / "map.gridref", layout=gridref.Mosaic())
    parts = []
    for path in (one, two):
        with rasterio.open(path) as file:
            parts.append(file.read(1) * file.scales[0])
    with xr.open_dataset(tmp_path / "map.gridref", engine="gridref") as opened:
        shown = opened.band_data.values[0]
    np.testing.assert_allclose(shown, np.concatenate(parts, axis=1), rtol=1e-6)
