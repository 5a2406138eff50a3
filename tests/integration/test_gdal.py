"""Served catalogs and kerchunk exports in GDAL, through rasterio: against netCDF4 and rasterio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray
from rasterio.errors import RasterioIOError

import gridref
from gridref.faces.exports.kerchunk import to_kerchunk
from gridref.faces.http.app import create_app
from tests.command import run_code
from tests.shared_data import shared_files
from tests.uvicorn_server import running

SAMPLES = Path(__file__).parents[2] / "sample_data"
MONTH = SAMPLES / "daily_2023-01.nc"

pytestmark = [
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
    pytest.mark.skipif(
        tuple(map(int, rasterio.__gdal_version__.split(".")[:2])) < (3, 12),
        reason="GDAL 3.12 is the first that is told of in the documentation",
    ),
]


def read(store: str, array: str) -> NDArray[Any]:
    """All of an array, as QGIS and other users of GDAL open it."""
    with rasterio.open(f'ZARR:"{store}":/{array}') as opened:
        return np.asarray(opened.read())


def stored(path: Path, name: str) -> NDArray[Any]:
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        return np.asarray(file[name][...])


def test_kerchunk_exports_open(tmp_path: Path) -> None:
    to_kerchunk(gridref.scan(MONTH), tmp_path / "refs.json")
    for name in ("tas", "pr"):
        values = read(str(tmp_path / "refs.json"), name)
        np.testing.assert_array_equal(values, stored(MONTH, name))


def test_references_in_parquet_need_a_gdal_with_parquet(tmp_path: Path) -> None:
    to_kerchunk(gridref.scan(MONTH), tmp_path / "refs.parq")
    store = f"/vsikerchunk_parquet_ref/{{{tmp_path}/refs.parq}}"
    with rasterio.Env() as env:
        has_parquet = "Parquet" in env.drivers()
    if has_parquet:
        np.testing.assert_array_equal(read(store, "tas"), stored(MONTH, "tas"))
    else:
        with pytest.raises(RasterioIOError):
            read(store, "tas")


@pytest.mark.parametrize("path", shared_files("netcdf4/realistic/*CERES*"))
def test_kerchunk_exports_of_real_files_open(path: Path, tmp_path: Path) -> None:
    to_kerchunk(gridref.scan(path), tmp_path / "refs.json")
    np.testing.assert_array_equal(read(str(tmp_path / "refs.json"), "rlut"), stored(path, "rlut"))


@pytest.mark.parametrize("path", shared_files("families/lc8_bands_geotrellis/*.tif")[:2])
def test_georeferenced_exports_lie_where_they_lie(path: Path, tmp_path: Path) -> None:
    to_kerchunk(gridref.scan(path), tmp_path / "refs.json")
    with (
        rasterio.open(f'ZARR:"{tmp_path}/refs.json":/band_data') as ours,
        rasterio.open(path) as theirs,
    ):
        assert (ours.crs, ours.shape) == (theirs.crs, theirs.shape)
        np.testing.assert_allclose(list(ours.transform), list(theirs.transform))
        np.testing.assert_array_equal(ours.read(), theirs.read())


def test_what_gdal_cannot_decode_it_refuses(tmp_path: Path) -> None:
    """Codecs of numcodecs have names in Zarr v2 that GDAL knows, and in v3 others."""
    expected = np.arange(60, dtype="f4").reshape(3, 4, 5)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=expected, chunks=(1, 4, 5), compression="gzip", shuffle=True)
    group = gridref.scan(tmp_path / "a.h5")
    to_kerchunk(group, tmp_path / "v2.json", inline_limit=0)
    np.testing.assert_array_equal(read(str(tmp_path / "v2.json"), "v"), expected)
    to_kerchunk(group, tmp_path / "v3.json", zarr_format=3, inline_limit=0)
    with pytest.raises(RasterioIOError, match="codec"):
        read(str(tmp_path / "v3.json"), "v")


_READ = """
import sys
import numpy, rasterio
with rasterio.open(sys.argv[1]) as opened:
    crs = "" if opened.crs is None else opened.crs.to_wkt()
    numpy.savez(sys.argv[2], values=opened.read(), crs=crs, transform=list(opened.transform))
"""


def read_served(url: str, array: str, folder: Path) -> Any:
    """Values, CRS and transform, read by another process: rasterio holds the GIL while it waits."""
    store = f'ZARR:"/vsicurl/{url}":/{array}'
    done = run_code(_READ, store, folder / "read.npz")
    assert done.returncode == 0, done.stdout
    return np.load(folder / "read.npz")


def test_served_catalogs_open(tmp_path: Path) -> None:
    months = sorted(SAMPLES.glob("daily_2023-0[123].nc"))
    gridref.build(months, tmp_path / "cube.gridref", "time")
    with running(create_app([str(tmp_path / "cube.gridref")])) as url:
        tas = read_served(f"{url}/cube/portable", "tas", tmp_path)["values"]
    np.testing.assert_array_equal(tas, np.concatenate([stored(month, "tas") for month in months]))


@pytest.mark.parametrize("path", shared_files("families/lc8_bands_geotrellis/*.tif")[:2])
def test_served_rasters_lie_where_they_lie(path: Path, tmp_path: Path) -> None:
    gridref.build(path, tmp_path / "hills.gridref")
    with running(create_app([str(tmp_path / "hills.gridref")])) as url:
        ours = read_served(f"{url}/hills/portable", "band_data", tmp_path)
    with rasterio.open(path) as theirs:
        assert rasterio.CRS.from_wkt(str(ours["crs"])) == theirs.crs
        np.testing.assert_allclose(ours["transform"], list(theirs.transform))
        np.testing.assert_array_equal(ours["values"], theirs.read())
