"""Served mosaics say where they lie: to GDAL, rioxarray and the validators of zarr-cm."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rasterio.merge as merging
import rasterio.shutil
import xarray as xr
import zarr

import gridref
from gridref.api.readable import reader_for
from gridref.faces.http import create_app
from gridref.model.array import VirtualGroup
from gridref.serve.conventions import with_conventions
from tests.by_name import by_name
from tests.integration.test_mosaics import OPTIONS, TILES, write_tile
from tests.uvicorn_server import running

zarr_cm = pytest.importorskip("zarr_cm")
READ = reader_for().read


@pytest.fixture
def tiles(tmp_path: Path) -> list[Path]:
    return [
        write_tile(tmp_path / f"{name}_20230105_red.tif", *TILES[name], overviews=True, nodata=0)
        for name in ("T01", "T02")
    ]


@pytest.fixture(params=[{"mosaic": True}, OPTIONS], ids=["one date", "series"])
def site(tiles: list[Path], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    gridref.build(tiles, tmp_path / "map.gridref", **by_name(**request.param))
    with running(create_app({"map": tmp_path / "map.gridref"})) as address:
        yield f"{address}/map/portable"


def document(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{address}/zarr.json") as answer:
        read: dict[str, Any] = json.loads(answer.read())
    read.pop("consolidated_metadata", None)
    return read


@pytest.mark.parametrize("level", ["", "/overview_1"])
def test_conventions_are_valid_and_true(site: str, tiles: list[Path], level: str) -> None:
    step = 60 if level else 30
    for path in (level, f"{level}/band_data"):
        node = document(site + path)
        zarr_cm.spatial.validate_node_metadata(node)
        zarr_cm.proj.validate_node_metadata(node)
        attrs = node["attributes"]
        assert attrs["spatial:dimensions"] == (["y_1", "x_1"] if level else ["y", "x"])
        assert attrs["spatial:shape"] == [40 * 30 // step, 80 * 30 // step]
        assert attrs["spatial:transform"] == [step, 0, 5e5, 0, -step, 6e6]
        assert attrs["spatial:bbox"] == [5e5, 6e6 - 1200, 5e5 + 2400, 6e6]
        assert attrs["proj:code"] == "EPSG:32632"
    root = document(site)
    zarr_cm.multiscales.validate_node_metadata(root)
    (finest, coarser) = root["attributes"]["multiscales"]["layout"]
    assert finest["spatial:transform"] == [30, 0, 5e5, 0, -30, 6e6]
    assert (coarser["asset"], coarser["spatial:shape"]) == ("overview_1/band_data", [20, 40])


def test_gdal_reads_what_it_reads_of_the_tiles(tiles: list[Path], tmp_path: Path) -> None:
    gridref.build(tiles, tmp_path / "map.gridref", layout=gridref.Mosaic())
    expected, transform = merging.merge(tiles)
    with running(create_app({"map": tmp_path / "map.gridref"})) as address:
        name = f'ZARR:"/vsicurl/{address}/map/portable":/band_data'
        with rasterio.open(name) as shown:
            assert shown.crs == rasterio.crs.CRS.from_epsg(32632)
            assert shown.transform == transform
            assert shown.nodata == 0
            np.testing.assert_array_equal(shown.read(), expected)


def test_rioxarray_needs_no_configuration(site: str) -> None:
    pytest.importorskip("rioxarray")
    with xr.open_dataset(site, engine="zarr", consolidated=False, chunks=None) as shown:
        assert shown.rio.crs.to_epsg() == 32632
        assert tuple(shown.rio.transform())[:6] == (30, 0, 5e5, 0, -30, 6e6)


def test_systems_without_a_code_are_spelled_out(tmp_path: Path) -> None:
    crs = "+proj=laea +lat_0=10 +lon_0=20 +datum=WGS84 +units=m"
    tile = write_tile(tmp_path / "a.tif", 0, 0, (16, 16), crs=crs)
    attrs = with_conventions(gridref.scan(tile), READ).attrs
    assert "proj:code" not in attrs
    assert rasterio.crs.CRS.from_wkt(attrs["proj:wkt2"]) == rasterio.crs.CRS.from_string(crs)


def test_groups_without_a_place_stay_as_they_are(sample_data: Path) -> None:
    group: VirtualGroup = gridref.scan(sample_data / "daily_2023-01.nc")
    assert with_conventions(group, READ) is group


def test_arrays_of_groups_without_a_place_are_not_made() -> None:
    """Catalogs make arrays when they are asked for: opening one of thousands is quick."""

    class Unmade(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            raise AssertionError(f"{name} was made")

        def values(self) -> Any:
            raise AssertionError("all were made")

        items = values

    group = VirtualGroup(Unmade(tas=None, lat=None))
    assert with_conventions(group, READ) is group


def check_places(group: Any) -> None:
    """Check that every pixel is where its labels are."""
    shown = zarr.open_group(gridref.open_store(group), mode="r")
    with xr.open_dataset(group, engine="gridref") as ds:
        name = next(str(name) for name in ds.data_vars if ds[name].ndim > 1)
        for attrs in (shown.attrs, shown[name].attrs):
            transform = rasterio.Affine(*attrs["spatial:transform"])
            rows, columns = np.indices(attrs["spatial:shape"]) + 0.5
            x, y = transform @ (columns, rows)
            np.testing.assert_allclose(x, np.broadcast_to(ds["x"], x.shape), rtol=1e-9)
            np.testing.assert_allclose(
                y, np.broadcast_to(ds["y"].values[:, None], y.shape), rtol=1e-9
            )


def test_what_is_joined_or_selected_is_where_its_labels_are(tmp_path: Path) -> None:
    rows = [write_tile(tmp_path / f"{n}.tif", 40 * n, 0, (40, 32), nodata=0) for n in range(2)]
    gridref.build(rows[::-1], tmp_path / "rows.gridref", "y")
    check_places(tmp_path / "rows.gridref")
    virtual = gridref.open_virtual_dataset(rows[0])
    part = virtual.isel(x=slice(3, None, 2), y=slice(None, 2, -1))
    part.gridref.save(tmp_path / "part.gridref")
    check_places(tmp_path / "part.gridref")


def gdal_transform(group: Any, path: Path) -> rasterio.Affine:
    """Where GDAL puts the first pixel of a NetCDF file that xarray writes of a group."""
    with xr.open_dataset(group, engine="gridref") as ds:
        ds.to_netcdf(path)
    with rasterio.open(path) as shown:
        return shown.transform


def test_gdal_puts_netcdf_of_what_is_joined_or_selected_there(tmp_path: Path) -> None:
    rows = [write_tile(tmp_path / f"{n}.tif", 40 * n, 0, (40, 32), nodata=0) for n in range(2)]
    _, whole = merging.merge(rows)
    gridref.build(rows[::-1], tmp_path / "rows.gridref", "y")
    assert gdal_transform(tmp_path / "rows.gridref", tmp_path / "rows.nc") == whole
    nested = gridref.open_virtual_mfdataset(rows[::-1], "y", combine="nested")
    assert "GeoTransform" not in nested["spatial_ref"].attrs  # rows are not in their order
    virtual = gridref.open_virtual_dataset(rows[1])
    part = {"x": slice(3, None, 2), "y": slice(6, None)}
    virtual.isel(part).gridref.save(tmp_path / "part.gridref")
    moved = whole @ rasterio.Affine.translation(2.5, 46) @ rasterio.Affine.scale(2, 1)
    assert gdal_transform(tmp_path / "part.gridref", tmp_path / "part.nc") == moved
    virtual.isel(y=slice(None, None, -1)).gridref.save(tmp_path / "turned.gridref")
    with rasterio.open(rows[1]) as tile:
        assert gdal_transform(tmp_path / "turned.gridref", tmp_path / "turned.nc") == tile.transform


def test_transposed_images_have_no_rows_and_columns(tmp_path: Path) -> None:
    tile = write_tile(tmp_path / "a.tif", 0, 0, (16, 24), nodata=0)
    gridref.open_virtual_dataset(tile).transpose("band", "x", "y").gridref.save(tmp_path / "turned")
    shown = zarr.open_group(gridref.open_store(tmp_path / "turned"), mode="r")
    assert not any(key.startswith("spatial:") for key in shown.attrs)


def test_rows_that_gdal_writes_from_south_to_north(tmp_path: Path) -> None:
    image = write_tile(tmp_path / "image.tif", 0, 0, (16, 24), nodata=0)
    rasterio.shutil.copy(image, tmp_path / "image.nc", driver="netCDF")
    with xr.open_dataset(tmp_path / "image.nc") as ds:
        assert ds["y"][0] < ds["y"][-1]
    check_places(gridref.scan(tmp_path / "image.nc"))
