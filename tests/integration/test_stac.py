"""STAC Items and Collections of catalogs: valid by pystac, opened by xpystac, as rasterio says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cftime
import h5py
import jsonschema
import numpy as np
import pystac
import pytest
import rasterio
import rasterio.warp
import xarray as xr
from pystac.extensions.datacube import DatacubeExtension
from pystac.extensions.projection import ProjectionExtension
from pystac.validation.stac_validator import JsonSchemaSTACValidator

import gridref
from gridref.errors import InvalidRequestError
from tests.command import run_command
from tests.http_server import Site, serving
from tests.shared_data import shared_files

SAMPLES = Path(__file__).parents[2] / "sample_data"
MONTHS = [SAMPLES / f"daily_2023-{month:02}.nc" for month in (1, 2, 3)]

_NUMBERS = {"type": "array", "items": {"type": "number"}}
_DIMENSION = {
    "type": "object",
    "required": ["type"],
    "oneOf": [
        {  # rows and columns
            "properties": {
                "type": {"const": "spatial"},
                "axis": {"enum": ["x", "y"]},
                "extent": {**_NUMBERS, "minItems": 2, "maxItems": 2},
                "values": {**_NUMBERS, "minItems": 1},
                "step": {"type": ["number", "null"]},
                "reference_system": {"type": ["integer", "string"]},
            },
            "required": ["axis", "extent"],
        },
        {
            "properties": {"type": {"const": "spatial"}, "axis": {"const": "z"}},
            "required": ["axis"],
            "anyOf": [{"required": ["extent"]}, {"required": ["values"]}],
        },
        {
            "properties": {
                "type": {"const": "temporal"},
                "extent": {"items": {"type": ["string", "null"], "format": "date-time"}},
            },
            "required": ["extent"],
        },
        {
            "properties": {"type": {"not": {"enum": ["spatial", "temporal"]}}},
            "anyOf": [{"required": ["extent"]}, {"required": ["values"]}],
        },
    ],
}
CUBE = {
    "type": "object",
    "required": ["cube:dimensions"],
    "properties": {
        "cube:dimensions": {"additionalProperties": _DIMENSION},
        "cube:variables": {
            "additionalProperties": {
                "required": ["dimensions", "type"],
                "properties": {
                    "dimensions": {"type": "array", "items": {"type": "string"}},
                    "type": {"enum": ["data", "auxiliary"]},
                    "unit": {"type": "string"},
                    "description": {"type": "string"},
                },
            }
        },
        "proj:code": {"type": ["string", "null"], "pattern": "^[A-Z]+:[0-9]+$"},
        "proj:shape": {"type": "array", "minItems": 2, "maxItems": 2},
        "proj:bbox": {**_NUMBERS, "minItems": 4, "maxItems": 4},
        "proj:transform": {**_NUMBERS, "minItems": 6, "maxItems": 6},
    },
}
"""What the schemas of the datacube (2.2.0) and projection (2.0.0) extensions ask for: they lie on a
server of their own, where tests do not go."""


def check(document: dict[str, Any]) -> pystac.Item | pystac.Collection:
    """Valid by pystac's schemas of STAC's core, and by those above."""
    document = json.loads(json.dumps(document, allow_nan=False))
    is_item = document["type"] == "Feature"
    kind: type[pystac.Item | pystac.Collection] = pystac.Item if is_item else pystac.Collection
    parsed = kind.from_dict(document)
    JsonSchemaSTACValidator().validate_core(document, parsed.STAC_OBJECT_TYPE, "1.1.0")
    fields = document["properties"] if is_item else document
    jsonschema.validate(fields, CUBE, format_checker=jsonschema.FormatChecker())
    for variable in fields["cube:variables"].values():
        assert set(variable["dimensions"]) <= fields["cube:dimensions"].keys()
    (store,) = [link for link in document["links"] if link["rel"] == "store"]
    assert store["href"] in {asset["href"] for asset in document["assets"].values()}
    return parsed


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stac") / "daily.gridref"
    gridref.build(MONTHS, path, "time")
    return path


def test_an_item_says_what_the_coordinates_say(catalog: Path, tmp_path: Path) -> None:
    document = gridref.interchange.to_stac(catalog, tmp_path / "item.json")
    assert json.loads((tmp_path / "item.json").read_text()) == document
    item = check(document)
    expected = xr.open_dataset(MONTHS[0], engine="netcdf4")
    assert isinstance(item, pystac.Item)
    assert item.id == "daily"
    assert item.common_metadata.start_datetime.strftime("%F %T") == "2023-01-01 12:00:00"
    assert item.common_metadata.end_datetime.strftime("%F %T") == "2023-03-31 12:00:00"
    assert item.bbox == [-180, -90, 180, 90]
    cube = DatacubeExtension.ext(item)
    lat = cube.dimensions["lat"]
    assert lat.extent == [float(expected["lat"].min()), float(expected["lat"].max())]
    assert len(cube.dimensions["time"].values) == 90
    assert cube.variables["tas"].dimensions == ["time", "lat", "lon"]
    assert cube.variables["lat_bnds"].var_type == "auxiliary"
    assert ProjectionExtension.ext(item).code == "EPSG:4326"
    bands = {band["name"]: band for band in document["assets"]["catalog"]["bands"]}
    packed = xr.open_dataset(MONTHS[0], engine="netcdf4")["pr"].encoding
    assert bands.keys() == {"tas", "pr"}
    assert bands["pr"]["raster:scale"] == packed["scale_factor"]
    assert bands["pr"]["raster:offset"] == packed["add_offset"]
    assert (bands["pr"]["data_type"], bands["pr"]["nodata"]) == ("int16", packed["_FillValue"])


def test_addresses_are_written_as_they_are(catalog: Path, tmp_path: Path) -> None:
    """With backslashes, which are no separators in paths and URLs."""
    odd = tmp_path / "a\\b c.gridref"
    shutil.copytree(catalog, odd)
    document = gridref.interchange.to_stac(odd)
    check(document)
    assert document["links"][0]["href"] == document["assets"]["catalog"]["href"] == str(odd)
    with xr.open_dataset(document["assets"]["catalog"]["href"], engine="gridref") as opened:
        assert opened.sizes["time"] == 90


def test_collections_are_valid(catalog: Path) -> None:
    collection = check(
        gridref.interchange.to_stac(catalog, kind="collection", id="ours", license="CC-BY-4.0")
    )
    assert isinstance(collection, pystac.Collection)
    assert (collection.id, collection.license) == ("ours", "CC-BY-4.0")
    assert collection.extent.spatial.bboxes == [[-180, -90, 180, 90]]


def test_uneven_chunks_are_told(tmp_path: Path) -> None:
    for length in (31, 28, 30):
        dataset = xr.Dataset(
            {"v": (("time", "x"), np.zeros((length, 4)))},
            {
                "time": np.datetime64("2020-01-01", "s")
                + np.timedelta64(1, "s") * np.arange(length)
                + np.timedelta64(length, "h")
            },
        )
        dataset.to_netcdf(
            tmp_path / f"{length}.nc",
            engine="h5netcdf",
            encoding={"v": {"chunksizes": (length, 4)}},
        )
    files = [tmp_path / f"{length}.nc" for length in (28, 30, 31)]
    gridref.build(files, tmp_path / "a.gridref", "time")
    document = gridref.interchange.to_stac(tmp_path / "a.gridref")
    check(document)
    grid = document["properties"]["cube:variables"]["v"]["chunk_grid"]
    assert grid["name"] == "rectilinear"
    assert grid["configuration"]["chunk_shapes"][0] == [28, 30, 31]
    assert document["geometry"] is None
    assert "bbox" not in document


@pytest.mark.parametrize("path", shared_files("families/lc8_bands_geotrellis/*.tif")[:2])
def test_rasters_lie_where_rasterio_says(path: Path, tmp_path: Path) -> None:
    gridref.build(path, tmp_path / "a.gridref")
    document = gridref.interchange.to_stac(tmp_path / "a.gridref", datetime="2019-05-06T10:11:12Z")
    check(document)
    properties = document["properties"]
    assert properties["datetime"] == "2019-05-06T10:11:12Z"
    with rasterio.open(path) as raster:
        expected = rasterio.warp.transform_bounds(raster.crs, 4326, *raster.bounds)
        np.testing.assert_allclose(document["bbox"], expected, rtol=1e-9)
        np.testing.assert_allclose(properties["proj:bbox"], raster.bounds, rtol=1e-12)
        np.testing.assert_allclose(properties["proj:transform"], list(raster.transform)[:6])
        assert properties["proj:shape"] == list(raster.shape)
        assert properties["proj:code"] == f"EPSG:{raster.crs.to_epsg()}"


@pytest.mark.parametrize(
    "path",
    shared_files(
        "netcdf4/realistic/*",
        "families/ascat_l2_subset_uneven/*084200*",
        "families/ecearth_tas_uneven/*196011*",
        "families/mooring_nrsrot_tz_uneven/*20181213*",
        "families/xclim_ensemble_contiguous_uneven/*CNRM*",
        "families/roms_his_4/*",
    ),
)
def test_real_files_give_valid_items(path: Path, tmp_path: Path) -> None:
    gridref.build(path, tmp_path / "a.gridref")
    document = gridref.interchange.to_stac(tmp_path / "a.gridref", datetime="2001-01-01/2001-12-31")
    check(document)
    expected = xr.open_dataset(path, engine="netcdf4")
    names = {str(name) for name in expected.variables} - set(map(str, expected.sizes))
    assert document["properties"]["cube:variables"].keys() == names


def test_what_has_no_time_is_asked_for_it(tmp_path: Path) -> None:
    xr.Dataset({"v": ("x", [1, 2])}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    gridref.build(tmp_path / "a.nc", tmp_path / "a.gridref")
    with pytest.raises(InvalidRequestError, match="datetime='2024-01-31'"):
        gridref.interchange.to_stac(tmp_path / "a.gridref")
    with pytest.raises(InvalidRequestError, match="must be a time"):
        gridref.interchange.to_stac(tmp_path / "a.gridref", datetime="yesterday")
    check(gridref.interchange.to_stac(tmp_path / "a.gridref", datetime="2024-01-31"))


def test_boxes_across_the_antimeridian_are_two_polygons(tmp_path: Path) -> None:
    dataset = xr.Dataset(
        {"v": (("lat", "lon"), np.zeros((3, 4)))},
        {
            "lat": ("lat", [-10.0, 0.0, 10.0], {"units": "degrees_north"}),
            "lon": ("lon", [170.0, 175.0, 180.0, 185.0], {"units": "degrees_east"}),
        },
    )
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    gridref.build(tmp_path / "a.nc", tmp_path / "a.gridref")
    document = gridref.interchange.to_stac(tmp_path / "a.gridref", datetime="2024-01-31")
    check(document)
    assert document["bbox"] == [167.5, -15.0, -172.5, 15.0]
    assert document["geometry"]["type"] == "MultiPolygon"


@pytest.mark.parametrize(("first", "west"), [(270.5, -90), (90.5, 90), (180.5, -180)])
def test_boxes_that_end_at_a_meridian(tmp_path: Path, first: float, west: float) -> None:
    """Of 90 degrees; and steps that are alike, though they lead off an even grid, are no step."""
    drifting = np.cumsum(np.linspace(0.0999, 0.1001, 1000)) - 50
    dataset = xr.Dataset(
        {"v": (("lat", "lon"), np.zeros((1000, 90)))},
        {
            "lat": ("lat", drifting, {"units": "degrees_north"}),
            "lon": ("lon", first + np.arange(90.0), {"units": "degrees_east"}),
        },
    )
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    gridref.build(tmp_path / "a.nc", tmp_path / "a.gridref")
    document = gridref.interchange.to_stac(tmp_path / "a.gridref", datetime="2024-01-31")
    check(document)
    assert document["bbox"][::2] == [west, west + 90]
    assert "proj:transform" not in document["properties"]
    assert "step" not in document["properties"]["cube:dimensions"]["lat"]


def test_days_of_other_calendars_become_days_of_the_month(tmp_path: Path) -> None:
    days = [cftime.Datetime360Day(2001, 2, day) for day in (1, 30)]
    dataset = xr.Dataset({"v": ("time", [1.0, 2.0])}, {"time": days})
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    gridref.build(tmp_path / "a.nc", tmp_path / "a.gridref")
    document = gridref.interchange.to_stac(tmp_path / "a.gridref")
    check(document)
    assert document["properties"]["end_datetime"] == "2001-02-28T00:00:00Z"


@pytest.fixture(scope="module")
def references(catalog: Path) -> Iterator[str]:
    """Kerchunk references of the catalog, served by HTTP: xpystac reads them by `requests`."""
    part = xr.open_dataset(catalog).isel(time=slice(0, 27))
    path = catalog.with_name("refs.json")
    part.gridref.to_kerchunk(path)
    with serving(Site({"/refs.json": path.read_bytes()})) as site:
        yield f"{site.url}/refs.json"


def test_xpystac_opens_the_assets(catalog: Path, references: str) -> None:
    item = check(gridref.interchange.to_stac(catalog, references=references))
    expected = xr.open_dataset(catalog).load()
    opened = xr.open_dataset(item.assets["catalog"], engine="stac")
    xr.testing.assert_identical(opened.load(), expected)
    by_references = xr.open_dataset(item.assets["references"], engine="stac").load()
    xr.testing.assert_equal(by_references["tas"], expected["tas"].isel(time=slice(0, 27)))


def test_all_groups_are_described(tmp_path: Path) -> None:
    labels = {"time": np.array(["2020-01-01", "2020-01-02"], "M8[ns]"), "x": [1.0, 2.0, 3.0]}
    root = xr.Dataset({"a": (("time",), [1.0, 2.0])}, labels)
    own = {"x": [5.0, 6.0], "time": np.array(["2021-03-01", "2021-03-05"], "M8[ns]")}
    groups = {
        "/": root,
        "/same/deep": xr.Dataset({"b": (("x",), np.arange(3.0))}, {"x": labels["x"]}),
        "/other": xr.Dataset({"c": (("time", "x"), np.ones((2, 2), "i2"), {"units": "K"})}, own),
    }
    for path, dataset in groups.items():
        mode = "w" if path == "/" else "a"
        dataset.to_netcdf(tmp_path / "a.nc", mode=mode, group=path, engine="h5netcdf")
    gridref.build([tmp_path / "a.nc"], tmp_path / "a.gridref")
    item = gridref.interchange.to_stac(tmp_path / "a.gridref")
    check(item)
    cube = item["properties"]
    assert cube["cube:dimensions"].keys() == {"time", "x", "other/time", "other/x"}
    shown = {name: each["dimensions"] for name, each in cube["cube:variables"].items()}
    assert shown == {"a": ["time"], "same/deep/b": ["x"], "other/c": ["other/time", "other/x"]}
    assert cube["end_datetime"] == "2021-03-05T00:00:00Z"
    assert item["assets"].keys() == {"catalog", "catalog:same/deep", "catalog:other"}
    asset = item["assets"]["catalog:other"]
    assert [band["name"] for band in asset["bands"]] == ["other/c"]
    with xr.open_dataset(asset["href"], **asset["xarray:open_kwargs"]) as opened:
        assert opened.c.values.tolist() == [[1, 1], [1, 1]]


def test_the_command_writes_and_prints(catalog: Path, tmp_path: Path) -> None:
    def run(*words: object) -> str:
        done = run_command("export", *words, "--to", "stac")
        assert done.returncode == 0, done.stderr
        return done.stdout

    out = run(catalog, tmp_path / "item.json", "--served", "https://example.org/daily")
    assert "item.json: Feature daily" in out
    item = json.loads((tmp_path / "item.json").read_text())
    check(item)
    assert item["assets"]["zarr"]["href"] == "https://example.org/daily"
    assert item["assets"]["zarr"]["type"] == "application/vnd.zarr; version=3"
    assert "virtual" in item["assets"]["zarr"]["roles"]
    printed = json.loads(run(catalog, "--collection", "--id", "mine"))
    assert (printed["type"], printed["id"]) == ("Collection", "mine")


@pytest.mark.parametrize("odd", ["", "-999", True, np.nan], ids=repr)
def test_attributes_that_are_no_numbers_are_left_out_of_bands(tmp_path: Path, odd: object) -> None:
    attributes = {"scale_factor": odd, "add_offset": odd, "missing_value": odd, "_FillValue": odd}
    if isinstance(odd, float):
        del attributes["_FillValue"]
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file["v"] = np.arange(4.0)
        file["v"].attrs.update(attributes)
    gridref.build(tmp_path / "a.nc", tmp_path / "cube")
    document = gridref.interchange.to_stac(tmp_path / "cube", datetime="2000-01-01")
    [band] = document["assets"]["catalog"]["bands"]
    assert band == {"name": "v", "data_type": "float64"}
    check(document)
