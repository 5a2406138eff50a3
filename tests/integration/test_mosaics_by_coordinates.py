"""NetCDF tiles laid out by their coordinates, beside the dataset that they were cut out of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.errors import CombineError

rasterio = pytest.importorskip("rasterio")

CUTS = {"a": (0, 0), "b": (0, 1), "c": (1, 1)}
"""Tiles of a dataset by row and column; one is missing."""


def write_tiles(folder: Path, whole: xr.Dataset, y: str, x: str, **encoding: Any) -> list[Path]:
    rows, columns = whole.sizes[y] // 2, whole.sizes[x] // 2
    files = []
    for name, (row, column) in CUTS.items():
        at = {
            y: slice(row * rows, None if row else rows),
            x: slice(column * columns, None if column else columns),
        }
        files.append(folder / f"{name}.nc")
        whole.isel(at).to_netcdf(files[-1], encoding=encoding)
    return files


def with_hole(whole: xr.Dataset, y: str, x: str) -> xr.Dataset:
    """The dataset without what no tile holds."""
    hole = {y: slice(whole.sizes[y] // 2, None), x: slice(None, whole.sizes[x] // 2)}
    shown = whole.copy(deep=True)
    shown.sst[{"time": slice(None), **hole}] = np.nan
    return shown


def field(y: str, x: str, rows: np.ndarray, columns: np.ndarray) -> xr.Dataset:
    rng = np.random.default_rng(0)
    shape = (3, len(rows), len(columns))
    whole = xr.Dataset(
        {"sst": (("time", y, x), rng.integers(-300, 3000, shape) / 100)},
        {"time": [0, 6, 12], y: rows, x: columns},
    )
    whole.time.attrs["units"] = "hours since 2020-01-01"
    return whole


@pytest.mark.parametrize(
    ("dtype", "attribute", "said"),
    [
        ("f4", "standard_name", ("latitude", "longitude")),
        ("f8", "axis", ("Y", "X")),
        ("f8", "units", ("degrees_north", "degrees_east")),
    ],
)
def test_latitudes_and_longitudes(
    tmp_path: Path, dtype: str, attribute: str, said: tuple[str, str]
) -> None:
    rows, columns = np.linspace(80, 10, 15).astype(dtype), np.arange(-20, 22, 0.25).astype(dtype)
    whole = field("lat", "lon", rows, columns)
    whole.lat.attrs[attribute], whole.lon.attrs[attribute] = said
    files = write_tiles(tmp_path, whole, "lat", "lon", sst={"_FillValue": -999.0, "zlib": True})
    gridref.build(files, tmp_path / "map.gridref", layout=gridref.Mosaic())
    with xr.open_dataset(tmp_path / "map.gridref", engine="gridref", decode_times=False) as shown:
        xr.testing.assert_identical(shown.load(), with_hole(whole, "lat", "lon"))
        assert shown.lat.dtype == dtype


def test_rows_from_south_to_north_under_a_transform_from_north_to_south(tmp_path: Path) -> None:
    """As GDAL writes NetCDF files."""
    rows, columns = 6e6 + 30 * (np.arange(20) + 0.5), 5e5 + 30 * (np.arange(30) + 0.5)
    whole = field("y", "x", rows, columns)
    whole["crs"] = 0
    whole.crs.attrs = {
        "crs_wkt": rasterio.crs.CRS.from_epsg(32632).to_wkt(),
        "grid_mapping_name": "transverse_mercator",
    }
    whole.sst.attrs["grid_mapping"] = "crs"
    files = []
    for name, (row, column) in CUTS.items():
        part = whole.isel(y=slice(row * 10, row * 10 + 10), x=slice(column * 15, column * 15 + 15))
        top, left = float(part.y[-1]) + 15, float(part.x[0]) - 15
        part.crs.attrs = {**whole.crs.attrs, "GeoTransform": f"{left} 30 0 {top} 0 -30"}
        files.append(tmp_path / f"{name}.nc")
        part.to_netcdf(files[-1], encoding={"sst": {"_FillValue": -999.0}})
    gridref.build(files, tmp_path / "map.gridref", layout=gridref.Mosaic())
    expected = with_hole(whole, "y", "x")
    with xr.open_dataset(tmp_path / "map.gridref", engine="gridref", decode_times=False) as shown:
        np.testing.assert_array_equal(shown.sst, expected.sst)
        np.testing.assert_array_equal(shown.y, rows)
        np.testing.assert_array_equal(shown.x, columns)
        numbers = [float(word) for word in shown.crs.attrs["GeoTransform"].split()]
        assert numbers == [5e5, 30, 0, 6e6, 0, 30]
        assert tuple(shown.rio.transform())[:6] == (30, 0, 5e5, 0, 30, 6e6)


def test_a_series_of_netcdf_tiles(tmp_path: Path) -> None:
    whole = field("y", "x", 10.0 * np.arange(8), 10.0 * np.arange(12))
    for number, moment in enumerate((0, 6, 12)):
        folder = tmp_path / "tiles"
        folder.mkdir(exist_ok=True)
        day = whole.sel(time=moment).drop_vars("time")
        for name, (row, column) in CUTS.items():
            part = day.isel(y=slice(row * 4, row * 4 + 4), x=slice(column * 6, column * 6 + 6))
            part.to_netcdf(folder / f"{name}_{number}.nc", encoding={"sst": {"_FillValue": -999.0}})
    gridref.build(tmp_path / "tiles", tmp_path / "map.gridref", layout=gridref.Mosaic("_{time}.nc"))
    with xr.open_dataset(tmp_path / "map.gridref", engine="gridref") as shown:
        np.testing.assert_array_equal(shown.sst, with_hole(whole, "y", "x").sst)


def test_tiles_that_do_not_fit(tmp_path: Path) -> None:
    files = []
    for name, rows in (("a", [0, 1, 2, 3]), ("off", [4.3, 5.3, 6.3]), ("uneven", [8, 9, 11.5])):
        part = field("y", "x", np.array(rows, "f8"), np.arange(6.0))
        files.append(tmp_path / f"{name}.nc")
        part.to_netcdf(files[-1])
    with pytest.raises(CombineError) as caught:
        gridref.build(files, tmp_path / "map.gridref", layout=gridref.Mosaic())
    text = str(caught.value)
    assert "0.3 rows off the pixels of" in text
    assert "its labels along 'y' are not evenly spaced" in text
    assert "concat_dim=['y', 'x']" in text
