"""Files of a part of an array: NetCDF compared with xarray, GeoTIFF with rasterio."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyproj
import pytest
import rasterio
import xarray as xr

import gridref
from gridref.faces.http import create_app
from gridref.model.array import VirtualArray, VirtualGroup
from tests.slow_reads import holes
from tests.uvicorn_server import running

LAT, LON = np.arange(-29.5, 30), np.arange(0.25, 40, 0.5)
LCC = pyproj.CRS.from_cf(
    {
        "grid_mapping_name": "lambert_conformal_conic",
        "standard_parallel": [25.0, 25.0],
        "longitude_of_central_meridian": 265.0,
        "latitude_of_projection_origin": 25.0,
        "earth_radius": 6371229.0,
    }
)


def model() -> xr.Dataset:
    """Packed numbers on ascending latitudes, with bounds, texts, and coordinates of all kinds."""
    stored = np.random.default_rng(1).integers(-3000, 3000, (5, len(LAT), len(LON)), "i2")
    stored[:, :3] = -9999
    dims = ("time", "lat", "lon")
    packing = {"scale_factor": 0.01, "add_offset": 273.15, "_FillValue": np.int16(-9999)}
    told = {"units": "K", "long_name": "air temperature", "grid_mapping": "crs"}
    edges = np.stack([LAT - 0.5, LAT + 0.5], 1)
    north = {"units": "degrees_north", "standard_name": "latitude", "bounds": "lat_bnds"}
    bands = xr.DataArray(np.arange(5 * 6 * 4.0).reshape(5, 6, 4), dims=("band", "lat", "x"))
    return xr.Dataset(
        {
            "tas": (dims, stored, {**told, **packing, "coordinates": "height name area"}),
            "crs": ((), 0, {"crs_wkt": pyproj.CRS.from_epsg(4258).to_wkt()}),
            "lat_bnds": (("lat", "b"), edges),
            "height": ((), 2.0, {"units": "m"}),
            "area": (("lat", "lon"), np.outer(np.cos(np.radians(LAT)), np.ones(len(LON)))),
            "name": ("time", np.array(["a", "bcd", "ü", "", "e"], object)),
            "wet": (("lat", "lon"), stored[0] > 0),
            "halved": (("lat", "lon"), stored[0].astype("f2")),
            "alone": bands[:, 0],
        },
        {
            "time": ("time", [0, 31, 59, 90, 120], {"units": "days since 2023-01-01"}),
            "lat": ("lat", LAT, north),
            "lon": ("lon", LON.astype("f4"), {"units": "degrees_east"}),
        },
        {"title": "a test", "levels": [1, 2], "Conventions": "CF-1.11"},
    )


def projected() -> xr.Dataset:
    """Kilometres of a Lambert projection without a code; rows run north."""
    attrs = {"grid_mapping": "lcc", "units": "mm", "_FillValue": np.float32(-1)}
    rain = np.arange(3 * 300 * 400, dtype="f4")
    return xr.Dataset(
        {
            "rain": (("member", "y", "x"), rain.reshape(3, 300, 400), attrs),
            "lcc": ((), 0, LCC.to_cf()),
        },
        {
            name: (name, 3.0 * np.arange(n), {"units": "km", "standard_name": known})
            for name, n, known in (
                ("y", 300, "projection_y_coordinate"),
                ("x", 400, "projection_x_coordinate"),
            )
        },
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("files")
    options = {"zlib": True, "chunksizes": (1, 20, 30)}
    own = {"engine": "h5netcdf", "invalid_netcdf": True}  # numbers of two bytes
    model().to_netcdf(folder / "model.nc", encoding={"tas": options}, **own)
    options = {"zlib": True, "chunksizes": (1, 90, 90)}
    projected().to_netcdf(folder / "projected.nc", encoding={"rain": options})
    group = VirtualGroup(
        {
            "large": holes((2**20, 2**20), (2**12, 2**12)),
            "spin": VirtualArray.from_numpy(np.zeros((3, 3), "c8"), ("y", "x")),
            "one": VirtualArray.from_numpy(np.float32(3), ()),
        },
        attrs={"nested": {"a": [1, None]}, "flag": True},
    )
    scanned = {name: gridref.scan(folder / f"{name}.nc") for name in ("model", "projected")}
    with running(create_app({**scanned, "m": group}, access_log=False)) as url:
        yield url


def asked(url: str, **query: str) -> bytes:
    response = httpx.get(url, params=query)
    assert response.status_code == 200, response.text
    assert int(response.headers["content-length"]) == len(response.content)
    return response.content


@pytest.mark.parametrize(
    ("name", "at", "part"),
    [
        ("tas", "1:4,10:50:3,7", {"time": slice(1, 4), "lat": slice(10, 50, 3), "lon": 7}),
        ("tas", "2,:,5:6", {"time": 2, "lon": slice(5, 6)}),
        ("wet", "0:9,:", {"lat": slice(0, 9)}),
        ("halved", ":,:", {}),
        ("name", "1:", {"time": slice(1, None)}),
        ("lat_bnds", "4,:", {"lat": 4}),
        ("crs", None, {}),
    ],
)
@pytest.mark.parametrize("is_decoded", [True, False])
def test_netcdf_is_the_selection(
    served: str, name: str, at: str | None, part: Any, is_decoded: bool
) -> None:
    body = asked(f"{served}/model/download/{name}", **({} if at is None else {"at": at}))
    cube = xr.open_zarr(f"{served}/model/portable", consolidated=False, decode_cf=is_decoded)
    for engine in ("h5netcdf", "netcdf4"):
        with tempfile.NamedTemporaryFile(suffix=".nc") as kept:
            kept.write(body)
            kept.flush()
            with xr.open_dataset(kept.name, engine=engine, decode_cf=is_decoded) as file:
                found = file.load()
        names = [each for each in found.variables if each in cube.variables]
        assert set(names) == set(found.variables)
        expected = cube[[*names]].isel(part).load()
        if not is_decoded:  # the file lists all coordinates, among them those of one element
            for each in (found, expected):
                each[name].attrs.pop("coordinates", None)
                each[name].attrs.pop("dtype", None)
            expected = expected.reset_coords(drop=False)
            found = found.reset_coords(drop=False)
            np.testing.assert_array_equal(found[name], expected[name])
            continue
        if name in set(expected.coords) - set(expected.dims):
            expected = expected.reset_coords(name)
        for text in [each for each in found.variables if found[each].dtype.kind == "U"]:
            expected[text] = expected[text].astype(found[text].dtype)
        xr.testing.assert_identical(found, expected)
        if name == "tas":
            assert set(names) >= {"time", "lat", "lon", "height", "name", "area", "lat_bnds", "crs"}


def raster(url: str, **query: str) -> Any:
    """The GeoTIFF file that the server sends, as rasterio opens it."""
    return rasterio.MemoryFile(asked(url, format="geotiff", **query)).open()


def test_geotiff_is_the_window_with_north_up(served: str) -> None:
    with raster(f"{served}/projected/download/rain", at="0:3:2,10:290,20:390") as file:
        expected = projected()["rain"][::2, 10:290, 20:390]
        np.testing.assert_array_equal(file.read(), expected[:, ::-1])
        # Edges are half a cell of three kilometres beyond the first column, and the last row.
        assert np.allclose(
            file.transform.to_gdal(), (58_500, 3000, 0, 868_500, 0, -3000), atol=1e-6
        )
        kept = pyproj.CRS.from_wkt(file.crs.to_wkt())
        there = pyproj.Transformer.from_crs(kept, LCC, always_xy=True)
        assert np.allclose(there.transform(60_000, 867_000), (60_000, 867_000), atol=1)
        assert (file.nodata, file.descriptions) == (-1, ("member 0", "member 2"))
        assert set(file.units) == {"mm"}


def test_geotiff_of_packed_numbers_on_latitudes(served: str) -> None:
    with raster(f"{served}/model/download/tas", at="1,:,4:60") as file:
        with xr.open_zarr(f"{served}/model/portable", consolidated=False) as cube:
            expected = cube["tas"][1, ::-1, 4:60].load()
        read = file.read(1, masked=True)
        values = read * file.scales[0] + file.offsets[0]
        np.testing.assert_array_equal(read.mask, expected.isnull())
        np.testing.assert_allclose(values.filled(np.nan), expected, rtol=1e-5)
        assert file.crs.to_epsg() == 4258
        assert np.allclose(file.transform.to_gdal(), (2, 0.5, 0, 30, 0, -1))
        assert file.tags()["long_name"] == "air temperature"


@pytest.mark.parametrize(
    ("path", "query", "status", "said"),
    [
        ("m/download/large", {}, 413, "ask for a smaller part"),
        ("m/download/spin", {}, 400, "NetCDF has no type for values that are complex64"),
        ("m/download/spin", {"format": "geotiff"}, 400, "values are complex64"),
        ("m/download/one", {"format": "geotiff"}, 400, "it has no rows and columns"),
        ("m/download/one", {"format": "grib"}, 400, "format is one of netcdf, geotiff"),
        ("m/download/none", {}, 404, "nothing is here"),
        ("model/download/alone", {"format": "geotiff"}, 400, "NetCDF holds any array"),
        ("model/download/tas", {"format": "geotiff", "at": "1,2,:"}, 400, "it needs a range"),
        ("model/download/tas", {"at": "9,:,:"}, 400, "9"),
    ],
)
def test_what_is_no_such_file_is_told(
    served: str, path: str, query: dict[str, str], status: int, said: str
) -> None:
    response = httpx.get(f"{served}/{path}", params=query)
    assert (response.status_code, said in response.text) == (status, True), response.text


def test_browsers_keep_the_file_under_the_name_of_the_array(served: str) -> None:
    head = httpx.head(f"{served}/model/download/tas", params={"format": "geotiff", "at": "1,:,:"})
    assert (head.status_code, head.headers["content-type"]) == (200, "image/tiff")
    assert head.headers["content-disposition"] == "attachment; filename*=UTF-8''tas.tif"


def test_nothing_is_left_of_files_that_nobody_fetches(
    served: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with httpx.stream("GET", f"{served}/projected/download/rain") as response:
        assert next(response.iter_raw(1000))
    for _ in range(100):
        if not [*tmp_path.iterdir()]:
            break
        time.sleep(0.05)
    assert not [*tmp_path.iterdir()]
