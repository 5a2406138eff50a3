"""Mosaics beside rasterio's merging: of tiles, many dates, bands and grids, and by coordinates."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import rasterio
import rasterio.merge as merging
import xarray as xr

import gridref
from gridref.errors import CombineError, InvalidRequestError
from tests.by_name import by_name
from tests.command import run_command
from tests.integration.archives import write_tile

write_small_tile = partial(write_tile, dtype="int16")

PLACES = [(0, 0, (40, 50)), (0, 50, (40, 33)), (40, 0, (17, 50)), (30, 60, (40, 40))]


@pytest.fixture
def tiles(tmp_path: Path) -> list[Path]:
    return [
        write_small_tile(tmp_path / f"{n}.tif", row, column, shape, nodata=0)
        for n, (row, column, shape) in enumerate(PLACES)
    ]


@pytest.mark.parametrize(("overlap", "batch"), [("first", 1024), ("last", 1024), ("first", 2)])
def test_mosaics_equal_those_of_rasterio(
    tiles: list[Path], overlap: str, batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", batch)
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


def test_tiles_with_other_nodata_and_dtype_equal_rasterio_masked(tmp_path: Path) -> None:
    one = write_small_tile(tmp_path / "a.tif", 0, 0, (20, 30), nodata=7)
    two = write_small_tile(tmp_path / "b.tif", 0, 30, (20, 10), nodata=-1, dtype="int32")
    gridref.build([one, two], tmp_path / "map.gridref", layout=gridref.Mosaic())
    parts = []
    for path in (one, two):
        with rasterio.open(path) as file:
            parts.append(file.read(1, masked=True).astype("f8").filled(np.nan))
    with xr.open_dataset(tmp_path / "map.gridref", engine="gridref") as opened:
        np.testing.assert_array_equal(opened.band_data.values[0], np.concatenate(parts, axis=1))


def test_tiles_scaled_differently_are_each_shown_with_their_own_scale(tmp_path: Path) -> None:
    one = write_small_tile(tmp_path / "a.tif", 0, 0, (20, 30), scale=0.1)
    two = write_small_tile(tmp_path / "b.tif", 0, 30, (20, 10), scale=0.5)
    gridref.build([one, two], tmp_path / "map.gridref", layout=gridref.Mosaic())
    parts = []
    for path in (one, two):
        with rasterio.open(path) as file:
            parts.append(file.read(1) * file.scales[0])
    with xr.open_dataset(tmp_path / "map.gridref", engine="gridref") as opened:
        shown = opened.band_data.values[0]
    np.testing.assert_allclose(shown, np.concatenate(parts, axis=1), rtol=1e-6)


TILES = {"T01": (0, 0, (40, 48)), "T02": (0, 48, (40, 32)), "T03": (40, 0, (24, 48))}
DATES = {"20230105": ["T01", "T02"], "20230110": ["T01", "T02", "T03"], "20230115": ["T03"]}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "tiles"
    folder.mkdir()
    for date, tiles in DATES.items():
        for tile in tiles:
            row, column, shape = TILES[tile]
            write_tile(folder / f"{tile}_{date}_red.tif", row, column, shape, nodata=0)
    return folder


PATTERN = "_{time:%Y%m%d}_"
OPTIONS: dict[str, Any] = {"mosaic": True, "stack": "time", "pattern": PATTERN}
BOUNDS = (5e5, 6e6 - 64 * 30, 5e5 + 80 * 30, 6e6)


def merged(folder: Path, date: str) -> np.ndarray[Any, Any]:
    """What rasterio makes of the tiles of a date."""
    return merging.merge(sorted(folder.glob(f"*_{date}_*.tif")), bounds=BOUNDS)[0]


def opened(catalog: Path, **options: Any) -> xr.Dataset:
    return xr.open_dataset(catalog, engine="gridref", mask_and_scale=False, **options)


@pytest.mark.parametrize("batch", [1, 4, 1024])
def test_tiles_missing_on_some_dates(
    archive: Path, tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", batch)
    gridref.build(archive, tmp_path / "cube.gridref", **by_name(**OPTIONS))
    with opened(tmp_path / "cube.gridref") as shown:
        assert shown.band_data.dims == ("time", "band", "y", "x")
        np.testing.assert_array_equal(
            shown.time, np.array(["2023-01-05", "2023-01-10", "2023-01-15"], "M8[ns]")
        )
        for number, date in enumerate(DATES):
            np.testing.assert_array_equal(shown.band_data[number], merged(archive, date))
        np.testing.assert_array_equal(shown.x, 5e5 + 30 * (np.arange(80) + 0.5))
        np.testing.assert_array_equal(shown.y, 6e6 - 30 * (np.arange(64) + 0.5))
    assert gridref.verify(tmp_path / "cube.gridref").ok


@pytest.mark.long
def test_installed_command(archive: Path, tmp_path: Path) -> None:
    files = sorted(map(str, archive.glob("*.tif")))
    for command, more in (("plan", []), ("build", ["-o", str(tmp_path / "cube.gridref")])):
        arguments = [command, *files, "--mosaic", "--stack", "time", "--pattern", PATTERN, *more]
        done = run_command(*arguments)
        assert done.returncode == 0, done.stderr
    with opened(tmp_path / "cube.gridref") as shown:
        np.testing.assert_array_equal(shown.band_data[1], merged(archive, "20230110"))


def test_overviews_of_all_tiles_and_dates(tmp_path: Path) -> None:
    folder = tmp_path / "tiles"
    folder.mkdir()
    for date, tiles in DATES.items():
        for tile in tiles:
            row, column, shape = TILES[tile]
            name = folder / f"{tile}_{date}_red.tif"
            write_tile(name, row, column, shape, overviews=True)
    gridref.build(folder, tmp_path / "cube.gridref", **by_name(**OPTIONS))
    with opened(tmp_path / "cube.gridref", group="overview_1") as shown:
        assert shown.band_data.dims == ("time", "band", "y_1", "x_1")
        for number, date in enumerate(DATES):
            for path in folder.glob(f"*_{date}_*.tif"):
                row, column, (rows, columns) = TILES[path.name[:3]]
                with rasterio.open(path, overview_level=0) as file:
                    tile = file.read()
                at = {
                    "y_1": slice(row // 2, (row + rows) // 2),
                    "x_1": slice(column // 2, (column + columns) // 2),
                }
                np.testing.assert_array_equal(shown.band_data[number].isel(at), tile)
    attrs = gridref.open_catalog(tmp_path / "cube.gridref").attrs
    (_, level) = attrs["multiscales"]["layout"]
    assert level["transform"]["scale"] == [1.0, 1.0, 2.0, 2.0]


def test_a_series_grows_between_and_behind_its_dates(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "later").mkdir()
    for date in ("20230110", "20230115"):
        for path in archive.glob(f"*_{date}_*.tif"):
            path.rename(tmp_path / "later" / path.name)
    row, column, shape = TILES["T02"]
    write_tile(tmp_path / "later" / "T02_20230120_red.tif", row, column, shape, nodata=0)
    middle = [path for path in (tmp_path / "later").iterdir() if "20230110" in path.name]
    behind = [path for path in (tmp_path / "later").iterdir() if "20230110" not in path.name]
    gridref.build(archive, tmp_path / "cube.gridref", **by_name(**OPTIONS))
    gridref.open_catalog(tmp_path / "cube.gridref").append([*map(str, behind)])
    gridref.open_catalog(tmp_path / "cube.gridref").append([*map(str, middle)])
    for path in (tmp_path / "later").iterdir():
        (archive / path.name).hardlink_to(path)
    with opened(tmp_path / "cube.gridref") as shown:
        assert len(shown.time) == 4
        for number, date in enumerate([*DATES, "20230120"]):
            np.testing.assert_array_equal(shown.band_data[number], merged(archive, date))
    gridref.open_catalog(tmp_path / "cube.gridref").remove(str(middle[0]))
    (archive / middle[0].name).unlink()
    with opened(tmp_path / "cube.gridref") as shown:
        for number, date in enumerate([*DATES, "20230120"]):
            np.testing.assert_array_equal(shown.band_data[number], merged(archive, date))


def test_groups_in_memory(archive: Path) -> None:
    files = sorted(archive.glob("*_20230110_*.tif")) + sorted(archive.glob("*_20230105_*.tif"))
    labels = [np.datetime64(f"2023-01-{path.name[10:12]}") for path in files]
    cube = gridref.mosaic(map(gridref.scan, files), stack="time", labels=labels)
    for number, date in enumerate(["20230105", "20230110"]):
        np.testing.assert_array_equal(cube["band_data"][number], merged(archive, date))
    with pytest.raises(InvalidRequestError, match="it has no label along 'time'"):
        gridref.mosaic(map(gridref.scan, files), stack="time")
    with pytest.raises(InvalidRequestError, match="labels were given, but no dimension"):
        gridref.mosaic(map(gridref.scan, files), labels=labels)


def test_the_same_tile_twice_on_a_date_is_a_problem(archive: Path, tmp_path: Path) -> None:
    row, column, shape = TILES["T01"]
    twice = write_tile(archive / "T01b_20230110_red.tif", row, column, shape, nodata=0)
    with pytest.raises(CombineError, match=r"40 by 48 pixels .*T01_20230110_red\.tif"):
        gridref.build(archive, tmp_path / "cube.gridref", **by_name(**OPTIONS))
    gridref.build(archive, tmp_path / "cube.gridref", **by_name(**OPTIONS, overlap="last"))
    with opened(tmp_path / "cube.gridref") as shown, rasterio.open(twice) as file:
        np.testing.assert_array_equal(shown.band_data[1, :, :40, :48], file.read())


def test_tiles_off_the_grid_are_told_by_how_much(archive: Path, tmp_path: Path) -> None:
    write_tile(archive / "T09_20230110_red.tif", 64.25, 0, (8, 8))
    with pytest.raises(CombineError, match=r"0 columns and 0.25 rows off the pixels of"):
        gridref.build(archive, tmp_path / "cube.gridref", **by_name(**OPTIONS))


def test_zones_and_resolutions_become_groups(tmp_path: Path) -> None:
    folder = tmp_path / "tiles"
    folder.mkdir()
    kinds = {
        "epsg_32632_30": {},
        "epsg_32633_30": {"crs": "EPSG:32633"},
        "epsg_32632_60": {"step": 60},
        "epsg_32632_30_2": {"shift": 0.5},
    }
    for number, (kind, options) in enumerate(kinds.items()):
        shift = options.get("shift", 0)
        profile = {name: value for name, value in options.items() if name != "shift"}
        for date in ("20230105", "20230110"):
            for place, (row, column) in {"a": (0, 0), "b": (0, 16), "c": (16, 16)}.items():
                if (date, place) != ("20230105", "b"):
                    name = folder / f"{number}_{kind}_{place}_{date}_.tif"
                    write_tile(name, row + shift, column, (16, 16), nodata=0, **profile)
    with pytest.raises(CombineError) as caught:
        gridref.build(folder, tmp_path / "cube.gridref", **by_name(**OPTIONS))
    text = str(caught.value)
    assert "'WGS 84 / UTM zone 32N'" in text
    assert "'WGS 84 / UTM zone 33N'" in text
    assert "0.5 rows off the pixels" in text
    assert text.count("grids='groups'") >= 3
    gridref.build(folder, tmp_path / "cube.gridref", **by_name(**OPTIONS, grids="groups"))
    for kind in kinds:
        with opened(tmp_path / "cube.gridref", group=kind) as shown:
            assert shown.band_data.shape == (2, 1, 32, 32)
            for number, date in enumerate(("20230105", "20230110")):
                expected = merging.merge(sorted(folder.glob(f"?_{kind}_[abc]_{date}_.tif")))[0]
                np.testing.assert_array_equal(shown.band_data[number], expected)
    tree = xr.open_datatree(tmp_path / "cube.gridref", engine="gridref")
    assert set(tree.children) == set(kinds)
    later = write_tile(folder / "0_epsg_32632_30_a_20230115_.tif", 0, 0, (16, 16), nodata=0)
    grown = gridref.open_catalog(tmp_path / "cube.gridref").append(str(later))
    gridref.build(folder, tmp_path / "whole.gridref", **by_name(**OPTIONS, grids="groups"))
    assert grown.info.digest == gridref.open_catalog(tmp_path / "whole.gridref").info.digest
    with rasterio.open(later) as tile:
        values = grown["epsg_32632_30"]["band_data"][-1]
        np.testing.assert_array_equal(values[:, :16, :16], tile.read())


def test_one_grid_needs_no_group(archive: Path, tmp_path: Path) -> None:
    gridref.build(archive, tmp_path / "cube.gridref", **by_name(**OPTIONS, grids="groups"))
    with opened(tmp_path / "cube.gridref") as shown:
        np.testing.assert_array_equal(shown.band_data[1], merged(archive, "20230110"))


BANDS = ["B02", "B03", "B8A"]


@pytest.fixture(scope="module")
def bands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file for each band of each tile and date, one band of which is missing once."""
    folder = tmp_path_factory.mktemp("bands")
    for date, tiles in DATES.items():
        for tile in tiles:
            row, column, shape = TILES[tile]
            for band in BANDS:
                if (date, tile, band) != ("20230110", "T02", "B03"):
                    name = folder / f"{tile}_{date}_{band}.tif"
                    write_tile(name, row, column, shape, nodata=0, overviews=True)
    return folder


def of_band(folder: Path, date: str, band: str) -> np.ndarray[Any, Any]:
    return merging.merge(sorted(folder.glob(f"*_{date}_{band}.tif")), bounds=BOUNDS)[0][0]


@pytest.mark.parametrize("batch", [3, 1024])
def test_bands_in_files_as_a_dimension(
    bands: Path, tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", batch)
    pattern = "_{time:%Y%m%d}_{band}.tif"
    gridref.build(bands, tmp_path / "cube.gridref", layout=gridref.Mosaic(pattern))
    with opened(tmp_path / "cube.gridref") as shown:
        assert shown.band_data.dims == ("time", "band", "y", "x")
        assert shown.band.values.tolist() == BANDS
        for number, date in enumerate(DATES):
            for band in BANDS:
                mine = shown.band_data.sel(band=band)[number]
                np.testing.assert_array_equal(mine, of_band(bands, date, band))


@pytest.mark.parametrize("batch", [3, 1024])
def test_bands_in_files_as_variables(
    bands: Path, tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.combine.combining.BATCH_GROUPS", batch)
    options = {"mosaic": True, "stack": "time", "pattern": "_{time:%Y%m%d}_{variable}.tif"}
    gridref.build(bands, tmp_path / "cube.gridref", **by_name(**options))
    with opened(tmp_path / "cube.gridref") as shown:
        assert set(shown.data_vars) == set(BANDS)
        for number, date in enumerate(DATES):
            for band in BANDS:
                assert shown[band].dims == ("time", "y", "x")
                np.testing.assert_array_equal(shown[band][number], of_band(bands, date, band))
    tile = rasterio.open(bands / "T03_20230115_B8A.tif", overview_level=0)
    with opened(tmp_path / "cube.gridref", group="overview_1") as shown, tile as file:
        np.testing.assert_array_equal(shown.B8A[2, 20:, :24], file.read(1))
    (_, level) = gridref.open_catalog(tmp_path / "cube.gridref").attrs["multiscales"]["layout"]
    assert level["asset"] == "overview_1/B02"
    assert level["transform"]["scale"] == [1.0, 2.0, 2.0]
    assert gridref.verify(tmp_path / "cube.gridref").ok


def test_bands_of_several_resolutions(tmp_path: Path) -> None:
    folder = tmp_path / "bands"
    folder.mkdir()
    for band, step in (("red", 30), ("nir", 30), ("swir", 60)):
        for column in (0, 16):
            write_tile(folder / f"{column}_{band}.tif", 0, column, (16, 16), step=step)
    options = {"mosaic": True, "pattern": "_{variable}.tif", "grids": "groups"}
    gridref.build(folder, tmp_path / "cube.gridref", **by_name(**options))
    for group, names in {"30": ["nir", "red"], "60": ["swir"]}.items():
        with opened(tmp_path / "cube.gridref", group=group) as shown:
            assert sorted(shown.data_vars) == names
            for name in names:
                expected = merging.merge(sorted(folder.glob(f"*_{name}.tif")))[0][0]
                np.testing.assert_array_equal(shown[name], expected)


@pytest.mark.parametrize("field", ["band", "variable"])
def test_virtual_datasets_equal_the_catalog(bands: Path, tmp_path: Path, field: str) -> None:
    layout = gridref.Mosaic(f"_{{time:%Y%m%d}}_{{{field}}}.tif")
    gridref.build(bands, tmp_path / "cube.gridref", layout=layout)
    virtual = gridref.open_virtual_mfdataset(str(bands), layout=layout)
    virtual.gridref.save(tmp_path / "virtual.gridref")
    again = opened(tmp_path / "virtual.gridref")
    with opened(tmp_path / "cube.gridref") as shown, again:
        for name in ["band_data"] if field == "band" else BANDS:
            assert virtual[name].dims == shown[name].dims
            np.testing.assert_array_equal(again[name], shown[name])
        np.testing.assert_array_equal(again.x, shown.x)
        np.testing.assert_array_equal(again.time, shown.time)


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


@pytest.mark.parametrize(("dtype", "no_data"), [("f4", None), ("f8", -999.0), ("i2", -999)])
def test_pixels_that_no_tile_holds_are_missing(
    tmp_path: Path, dtype: str, no_data: float | None
) -> None:
    """Also where HDF5's own fill value is another, as in files of h5py."""
    tiles = []
    for number in range(2):
        tiles.append(tmp_path / f"{number}.nc")
        with h5py.File(tiles[-1], "w") as file:
            for name in "yx":
                file[name] = 30.0 * (np.arange(3) + 3 * number)
                file[name].make_scale(name)
            file["v"] = np.arange(9, dtype=dtype).reshape(3, 3)
            for axis, name in enumerate("yx"):
                file["v"].dims[axis].attach_scale(file[name])
            if no_data is not None:
                file["v"].attrs["_FillValue"] = np.dtype(dtype).type(no_data)
    gridref.build(tiles, tmp_path / "map.gridref", layout=gridref.Mosaic())
    with (
        xr.open_dataset(tmp_path / "map.gridref", engine="gridref") as opened,
        xr.open_mfdataset(tiles, join="outer") as expected,
    ):
        np.testing.assert_array_equal(opened.v, expected.v)
        assert np.isnan(opened.v).sum() == 18


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
