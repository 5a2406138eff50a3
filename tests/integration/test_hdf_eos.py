"""Grids and swaths of HDF-EOS2: groups, coordinates, reference systems, and archives of tiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import pytest
import rioxarray  # noqa: F401 - gives datasets .rio
import xarray as xr
from numpy.typing import NDArray

import gridref
from tests.hdf4_files import TILE_METRES, modis_tile, write_datasets, write_structures

MODIS = "+proj=sinu +lon_0=0 +x_0=0 +y_0=0 +R=6371007.181 +units=m +no_defs"
N_PIXELS = 12


def pixels(seed: int = 0, shape: tuple[int, ...] = (N_PIXELS, N_PIXELS)) -> NDArray[Any]:
    return np.random.default_rng(seed).integers(-2000, 10000, shape).astype("i2")


def tile(path: Path, seed: int, horizontal: int = 18, vertical: int = 4, **options: Any) -> Path:
    """A file like those of MOD13: one grid with two fields."""
    plane = ("YDim", "XDim")
    fields = {"NDVI": (plane, pixels(seed)), "EVI": (plane, pixels(seed + 1000))}
    grid = {"fields": fields, **modis_tile(horizontal, vertical)}
    return write_structures(path, {"MODIS_Grid_16DAY_1km_VI": grid}, **options)


def opened(path: Path, **options: Any) -> xr.Dataset:
    """A file or files as a dataset."""
    gridref.build([path], path.with_suffix(".gridref"), **options)
    return xr.open_dataset(path.with_suffix(".gridref"), engine="gridref")


# ---- grids ------------------------------------------------------------------------------


def test_the_only_grid_is_the_root_with_coordinates_of_pixel_centres(tmp_path: Path) -> None:
    dataset = opened(tile(tmp_path / "a.hdf", 1))
    assert dataset["NDVI"].dims == ("y", "x")
    np.testing.assert_array_equal(dataset["NDVI"], pixels(1))
    step = TILE_METRES / N_PIXELS
    np.testing.assert_allclose(dataset["x"], (np.arange(N_PIXELS) + 0.5) * step)
    np.testing.assert_allclose(dataset["y"], 5 * TILE_METRES - (np.arange(N_PIXELS) + 0.5) * step)
    assert_is_of_modis(dataset["NDVI"])
    left, bottom, right, top = dataset["NDVI"].rio.bounds()
    np.testing.assert_allclose(
        [left, bottom, right, top], [0, 4 * TILE_METRES, TILE_METRES, 5 * TILE_METRES]
    )
    longitude, latitude = pyproj.Proj(MODIS)(left, top, inverse=True)
    np.testing.assert_allclose([longitude, latitude], [0, 50], atol=1e-6)


def assert_is_of_modis(values: xr.DataArray) -> None:
    found = pyproj.CRS.from_wkt(values.rio.crs.to_wkt())
    assert found.to_dict() == pyproj.CRS.from_proj4(MODIS).to_dict()


SYSTEMS = [
    ("GCTP_SNSOID", {}, -1, "+proj=sinu +lon_0=0 +R=6371007.181"),
    (
        "GCTP_SNSOID",
        {4: -60030000.0, 6: 5.0, 7: 7.0},
        19,
        "+proj=sinu +lon_0=-60.5 +x_0=5 +y_0=7 +R=6370997",
    ),
    ("GCTP_LAMAZ", {0: 6371228.0, 5: 90000000.0}, -1, "+proj=laea +lat_0=90 +lon_0=0 +R=6371228"),
    (
        "GCTP_PS",
        {0: 6378273.0, 1: 6356889.449, 4: -45000000.0, 5: 70000000.0},
        -1,
        "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +a=6378273 +b=6356889.449",
    ),
    (  # as NSIDC writes it: minus the square of the eccentricity
        "GCTP_PS",
        {0: 6378273.0, 1: -0.006694, 4: -45000000.0, 5: 70000000.0},
        -1,
        "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +a=6378273 +es=0.006694",
    ),
    (
        "GCTP_PS",
        {0: 0.0, 5: -71000000.0},
        12,
        "+proj=stere +lat_0=-90 +lat_ts=-71 +lon_0=0 +datum=WGS84",
    ),
    (
        "GCTP_ALBERS",
        {2: 29030000.0, 3: 45030000.0, 4: -96000000.0, 5: 23000000.0},
        8,
        "+proj=aea +lat_1=29.5 +lat_2=45.5 +lat_0=23 +lon_0=-96 +ellps=GRS80",
    ),
    (
        "GCTP_LAMCC",
        {2: 33000000.0, 3: 45000000.0, 4: -97000000.0, 5: 40000000.0},
        0,
        "+proj=lcc +lat_1=33 +lat_2=45 +lat_0=40 +lon_0=-97 +ellps=clrk66",
    ),
    (
        "GCTP_TM",
        {2: 0.9996, 4: 9000000.0},
        12,
        "+proj=tmerc +k_0=0.9996 +lon_0=9 +lat_0=0 +datum=WGS84",
    ),
    ("GCTP_CEA", {0: 6371228.0, 5: 30000000.0}, -1, "+proj=cea +lat_ts=30 +lon_0=0 +R=6371228"),
    ("GCTP_MERCAT", {5: 10030036.0}, 12, "+proj=merc +lat_ts=10.51 +lon_0=0 +datum=WGS84"),
    ("GCTP_GEO", {0: 0.0}, -1, "+proj=longlat +datum=WGS84"),
]


@pytest.mark.parametrize(("projection", "numbers", "code", "expected"), SYSTEMS)
def test_reference_systems(
    tmp_path: Path, projection: str, numbers: dict[int, float], code: int, expected: str
) -> None:
    parameters = [{0: 6371007.181, **numbers}.get(place, 0.0) for place in range(13)]
    entries = {
        **modis_tile(18, 4),
        "Projection": projection,
        "ProjParams": f"({','.join(f'{number:.6f}' for number in parameters)})",
        "SphereCode": str(code),
    }
    if projection == "GCTP_GEO":
        entries |= {"UpperLeftPointMtrs": "(0,10)", "LowerRightMtrs": "(10,0)"}
    grid = {"fields": {"v": (("YDim", "XDim"), pixels())}, **entries}
    group = gridref.scan(write_structures(tmp_path / "a.hdf", {"g": grid}))
    found = pyproj.CRS.from_wkt(group.arrays["spatial_ref"].attrs["crs_wkt"])
    assert found.equals(pyproj.CRS.from_proj4(expected), ignore_axis_order=True)


@pytest.mark.parametrize(("zone", "epsg"), [(33, 32633), (-19, 32719)])
def test_zones_of_utm(tmp_path: Path, zone: int, epsg: int) -> None:
    entries = {**modis_tile(18, 4), "Projection": "GCTP_UTM", "ZoneCode": zone, "SphereCode": 12}
    grid = {"fields": {"v": (("YDim", "XDim"), pixels())}, **entries}
    group = gridref.scan(write_structures(tmp_path / "a.hdf", {"g": grid}))
    found = pyproj.CRS.from_wkt(group.arrays["spatial_ref"].attrs["crs_wkt"])
    assert found.to_epsg() == epsg


def test_corners_in_degrees_are_packed(tmp_path: Path) -> None:
    entries = {
        "UpperLeftPointMtrs": "(-180000000.000000,90000000.000000)",
        "LowerRightMtrs": "(180000000.000000,-90000000.000000)",
        "Projection": "GCTP_GEO",
    }
    grid = {"fields": {"v": (("YDim", "XDim"), pixels(0, (180, 360)))}, **entries}
    dataset = opened(write_structures(tmp_path / "a.hdf", {"MOD_CMG": grid}))
    np.testing.assert_allclose(dataset["y"], 89.5 - np.arange(180))
    np.testing.assert_allclose(dataset["x"], np.arange(360) - 179.5)
    assert dataset["x"].attrs["standard_name"] == "longitude"
    assert dataset["v"].rio.crs.to_epsg() == 4326


@pytest.mark.parametrize(
    ("origin", "x", "y"),
    [("UL", 1, -1), ("UR", -1, -1), ("LL", 1, 1), ("LR", -1, 1)],
)
def test_grids_may_begin_at_any_corner(tmp_path: Path, origin: str, x: int, y: int) -> None:
    entries = {**modis_tile(18, 4), "GridOrigin": f"HDFE_GD_{origin}"}
    grid = {"fields": {"v": (("YDim", "XDim"), pixels())}, **entries}
    group = gridref.scan(write_structures(tmp_path / "a.hdf", {"g": grid}))
    for name, direction in (("x", x), ("y", y)):
        assert (np.sign(np.diff(group.arrays[name][...])) == direction).all()


@pytest.mark.parametrize("projection", ["GCTP_ISINUS", "GCTP_BCEA", "nonsense"])
def test_an_unknown_projection_gives_no_reference_system(tmp_path: Path, projection: str) -> None:
    entries = {**modis_tile(18, 4), "Projection": projection}
    grid = {"fields": {"v": (("YDim", "XDim"), pixels())}, **entries}
    group = gridref.scan(write_structures(tmp_path / "a.hdf", {"g": grid}))
    np.testing.assert_array_equal(group.arrays["v"][...], pixels())
    mapping = group.arrays.get("spatial_ref")
    assert mapping is None or "crs_wkt" not in mapping.attrs


def test_several_grids_are_groups_that_may_share_names(tmp_path: Path) -> None:
    plane = ("YDim", "XDim")
    coarse, fine = pixels(1, (6, 6)), pixels(2, (12, 12))
    path = write_structures(
        tmp_path / "a.hdf",
        {
            "Grid_1km": {"fields": {"state": (plane, coarse)}, **modis_tile(18, 4)},
            "Grid_500m": {
                "fields": {"state": (plane, fine), "bands": (("Band", *plane), fine[np.newaxis])},
                **modis_tile(18, 4),
            },
        },
    )
    group = gridref.scan(path)
    assert list(group.groups) == ["Grid_1km", "Grid_500m"]
    np.testing.assert_array_equal(group.groups["Grid_1km"].arrays["state"][...], coarse)
    np.testing.assert_array_equal(group.groups["Grid_500m"].arrays["state"][...], fine)
    assert group.groups["Grid_500m"].arrays["bands"].dims == ("Band", "y", "x")
    gridref.build([path], tmp_path / "a.gridref")
    tree = xr.open_datatree(tmp_path / "a.gridref", engine="gridref")
    assert tree["Grid_1km"].sizes == {"y": 6, "x": 6}
    assert tree["Grid_500m"].sizes == {"Band": 1, "y": 12, "x": 12}


# ---- swaths -----------------------------------------------------------------------------


def test_a_swath_has_its_latitudes_and_longitudes_as_coordinates(tmp_path: Path) -> None:
    track, values = ("along", "across"), pixels(3, (5, 7))
    fields = {
        "Latitude": (track, np.linspace(40, 41, 35, dtype="f4").reshape(5, 7)),
        "Longitude": (track, np.linspace(7, 9, 35, dtype="f4").reshape(5, 7)),
        "temperature": (track, values),
        "quality": (("Band", *track), values[np.newaxis]),
        "coarse": (("along_5", "across_5"), pixels(4, (1, 1))),
        "Time": (("along",), np.linspace(0, 1, 5)),
    }
    dataset = opened(write_structures(tmp_path / "a.hdf", {"mod07": {"fields": fields}}))
    assert dataset["temperature"].dims == track
    assert set(dataset["temperature"].coords) == {"Latitude", "Longitude"}
    assert set(dataset["quality"].coords) == {"Latitude", "Longitude"}
    assert not dataset["coarse"].coords
    np.testing.assert_array_equal(dataset["Latitude"], fields["Latitude"][1])
    np.testing.assert_array_equal(dataset["temperature"], values)
    assert dataset["Time"].dims == ("along",)
    np.testing.assert_array_equal(dataset["Time"], fields["Time"][1])


# ---- archives ---------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [{"deflate": 6}, {"deflate": 6, "chunks": (5, 5)}, {}])
def test_tiles_of_many_days_are_one_cube(tmp_path: Path, stored: dict[str, Any]) -> None:
    paths = [
        tile(tmp_path / f"MOD13A2.A{2020001 + 16 * day}.h18v04.061.hdf", day, **stored)
        for day in range(4)
    ]
    layout = gridref.Labels("A{time:%Y%j}.h")
    gridref.build(paths[:3], tmp_path / "a.gridref", layout=layout)
    gridref.open_catalog(tmp_path / "a.gridref").append(paths[3:])
    cube = xr.open_dataset(tmp_path / "a.gridref", engine="gridref")
    expected = np.array(["2020-01-01", "2020-01-17", "2020-02-02", "2020-02-18"], "M8[ns]")
    np.testing.assert_array_equal(cube["time"], expected)
    for day in range(4):
        np.testing.assert_array_equal(cube["NDVI"][day], pixels(day))
    assert_is_of_modis(cube["NDVI"])
    result = gridref.open_catalog(tmp_path / "a.gridref").verify()
    assert result.differences == ()
    assert not {"NDVI", "EVI"} & {path for path, _ in result.not_compared}


def test_tiles_side_by_side_are_a_mosaic_over_time(tmp_path: Path) -> None:
    paths = [
        tile(tmp_path / f"M.A{2020001 + day}.h{h}v04.hdf", 10 * day + h, h)
        for day in range(2)
        for h in (18, 19)
    ]
    layout = gridref.Mosaic(labels=gridref.Labels("A{time:%Y%j}.h"))
    gridref.build(paths, tmp_path / "a.gridref", layout=layout)
    cube = xr.open_dataset(tmp_path / "a.gridref", engine="gridref")
    assert cube["NDVI"].sizes == {"time": 2, "y": N_PIXELS, "x": 2 * N_PIXELS}
    for day in range(2):
        expected = np.concatenate([pixels(10 * day + h) for h in (18, 19)], axis=1)
        np.testing.assert_array_equal(cube["NDVI"][day], expected)


def test_a_file_of_hdf4_beside_one_of_netcdf4(tmp_path: Path) -> None:
    write_datasets(tmp_path / "day1.hdf", {"v": pixels(1)}, ("y", "x"))
    data = xr.Dataset({"v": (("y", "x"), pixels(2))})
    data.to_netcdf(tmp_path / "day2.nc", engine="netcdf4")
    layout = gridref.Labels("day{day:d}")
    paths = [tmp_path / "day1.hdf", tmp_path / "day2.nc"]
    gridref.build(paths, tmp_path / "a.gridref", layout=layout)
    cube = xr.open_dataset(tmp_path / "a.gridref", engine="gridref")
    np.testing.assert_array_equal(cube["v"], [pixels(1), pixels(2)])
    assert gridref.open_catalog(tmp_path / "a.gridref").verify().differences == ()
