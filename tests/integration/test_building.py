"""Mosaics and stacks, and files that agree in nothing but their variable, to `xr.open_zarr`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import tifffile
import xarray as xr

import gridref
from gridref.api.layout.labels import LabelPattern
from gridref.catalog.document import Root
from gridref.errors import CombineError, InvalidRequestError
from tests.by_name import by_name

RAW = {"mask_and_scale": False, "decode_times": True, "chunks": None}


def test_mosaic_of_uneven_tiles(sample_data: Path, tmp_path: Path) -> None:
    catalog = tmp_path / "hills.gridref"
    gridref.build(sample_data / "hills_*.tif", catalog, layout=gridref.Mosaic())
    shown = xr.open_zarr(f"gridref::file://{catalog}", **RAW)["band_data"]
    tiles = [tifffile.imread(sample_data / f"hills_{side}.tif") for side in ("west", "east")]
    assert np.array_equal(shown.values[0], np.concatenate(tiles, axis=1))
    assert shown.dtype == tiles[0].dtype
    assert gridref.verify(catalog, all=True).ok


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_built_is_the_catalog(sample_data: Path, tmp_path: Path, overwrite: bool) -> None:
    *first, last = sorted(sample_data.glob("*.nc"))[:3]
    address = tmp_path / "cube.gridref"
    if overwrite:
        gridref.build(last, address)
    built = gridref.build(first, address, "time", overwrite=overwrite)
    opened = gridref.open_catalog(address)
    assert isinstance(built, gridref.Catalog)
    assert built.info == opened.info
    assert built.report().equals(opened.report())
    assert built.history() == opened.history()
    assert len(built.history()) == 1 + overwrite
    xr.testing.assert_identical(built.to_xarray().load(), opened.to_xarray().load())
    assert built.verify(all=True).ok
    grown = built.append(last)
    assert len(grown.history()) == 2 + overwrite
    assert grown.info.digest == gridref.build([*first, last], tmp_path / "b", "time").info.digest


def test_what_is_built_is_opened_without_a_read(
    sample_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("gridref.json is read")

    *first, last = sorted(sample_data.glob("*.nc"))[:3]
    with monkeypatch.context() as unread:
        unread.setattr(Root, "from_bytes", refused)
        grown = gridref.build(first, tmp_path / "cube.gridref", "time").append(last)
    # Whether there is nothing to do is asked of the newest snapshot.
    assert grown.append(last).report.lines


def write_tile(path: Path, values: np.ndarray, column: int, factors: list[int]) -> None:
    """A tile of a map in UTM with overviews, beginning at a column of the map."""
    _, n_rows, n_columns = values.shape
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        width=n_columns,
        height=n_rows,
        count=len(values),
        dtype=values.dtype,
        crs="EPSG:32632",
        transform=rasterio.transform.from_origin(500000 + 10 * column, 5000000, 10, 10),
        tiled=True,
        blockxsize=64,
        blockysize=64,
        compress="deflate",
        nodata=0,
    ) as file:
        file.write(values)
        if factors:
            file.build_overviews(factors)


def test_mosaic_keeps_overviews_that_fit(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    # The third tile leaves a gap of 40 columns; its width is no multiple of 8.
    widths, starts = [160, 96, 100], [0, 160, 296]
    for number, (width, start) in enumerate(zip(widths, starts, strict=True)):
        values = random.integers(1, 9000, (2, 136, width)).astype(np.uint16)
        write_tile(tmp_path / f"tile_{number}.tif", values, start, [2, 4, 8])
    catalog = tmp_path / "map.gridref"
    group = gridref.build(tmp_path / "*.tif", catalog, layout=gridref.Mosaic())
    assert list(group.groups) == ["overview_1", "overview_2"]
    (left_out,) = group.report.skipped
    assert left_out.path == "/overview_3"
    assert "tile_2.tif" in left_out.source
    layout = group.attrs["multiscales"]["layout"]
    assert [entry["asset"] for entry in layout] == [
        "band_data",
        "overview_1/band_data",
        "overview_2/band_data",
    ]
    tree = xr.open_datatree(catalog, mask_and_scale=False)
    for level, factor in enumerate([1, 2, 4]):
        node = tree[f"overview_{level}"] if level else tree
        expected = np.zeros((2, 136 // factor, 396 // factor), np.uint16)
        for number, start in enumerate(starts):
            options = {"overview_level": level - 1} if level else {}
            with rasterio.open(tmp_path / f"tile_{number}.tif", **options) as file:
                part = file.read()
            first = start // factor
            expected[:, :, first : first + part.shape[2]] = part
        np.testing.assert_array_equal(node["band_data"].values, expected)
        x = node[f"x_{level}" if level else "x"].values
        np.testing.assert_allclose(x, 500000 + (np.arange(396 // factor) + 0.5) * 10 * factor)
        assert layout[level]["transform"]["scale"] == [1.0, factor, factor]
    assert gridref.verify(catalog, all=True).ok


def test_mosaic_of_tiles_some_without_overviews(tmp_path: Path) -> None:
    values = np.ones((1, 64, 64), np.uint8)
    write_tile(tmp_path / "tile_0.tif", values, 0, [2])
    write_tile(tmp_path / "tile_1.tif", values, 64, [])
    group = gridref.build(tmp_path / "*.tif", tmp_path / "map.gridref", layout=gridref.Mosaic())
    assert not group.groups
    assert "multiscales" not in group.attrs
    assert [finding.reason for finding in group.report.skipped] == ["some inputs lack it"]


def test_stack_of_dated_files(shared_data: Path, tmp_path: Path) -> None:
    catalog = tmp_path / "s2.gridref"
    files = sorted((shared_data / "families" / "openeo_s2_dates").iterdir())
    gridref.build(files[::-1], catalog, layout=gridref.Stack("time", "{time:%Y-%m-%d}"))
    cube = xr.open_zarr(f"gridref::file://{catalog}", **RAW)
    dates = ["2023-06-01", "2023-06-04", "2023-06-06"]
    assert cube["time"].values.tolist() == np.array(dates, "datetime64[ns]").tolist()
    for place, file in enumerate(files):
        image = tifffile.imread(file)
        expected = np.moveaxis(image, -1, 0) if image.shape[-1] == 3 else image
        assert np.array_equal(cube["band_data"].values[place], expected)


def test_stack_of_pyramids(shared_data: Path, tmp_path: Path) -> None:
    """What counts the axes of overviews counts the new one, too."""
    files = sorted((shared_data / "families" / "lcmap_cog_2years").iterdir())
    catalog = tmp_path / "lcmap.gridref"
    gridref.build(files, catalog, layout=gridref.Stack("time", "cog_{time:%Y}"))
    tree = xr.open_datatree(catalog, mask_and_scale=False)
    for level, entry in enumerate(tree.attrs["multiscales"]["layout"]):
        shown = tree[entry["asset"]]
        assert shown.dims[:2] == ("time", "band")
        assert shown["time"].dt.year.values.tolist() == [2019, 2020]
        assert entry["transform"]["scale"] == [1.0, 1.0, 2.0**level, 2.0**level]
        options = {"overview_level": level - 1} if level else {}
        for place, file in enumerate(files):
            with rasterio.open(file, **options) as original:
                np.testing.assert_array_equal(shown.values[place], original.read())


@pytest.mark.parametrize(
    ("pattern", "name", "expected", "unit"),
    [
        ("_{time:%Y%m%d}_", "/a/x_20230114_v2.tif", "2023-01-14T00:00:00", "seconds"),
        ("{time:%d%b%y-%H%M}", "s3://b/x.14Jan23-0530.nc", "2023-01-14T05:30:00", "seconds"),
        ("{time:%Y%jT%H%M%S.%f}", "2023014T000001.25", "2023-01-14T00:00:01.25", "microseconds"),
    ],
)
def test_times_in_names(pattern: str, name: str, expected: str, unit: str) -> None:
    parsed = LabelPattern.parse(pattern, "time")
    assert parsed.attrs("time")["units"] == f"{unit} since 1970-01-01"
    step = np.timedelta64(1, "us" if unit == "microseconds" else "s")
    (found,) = parsed.of_names([name])
    assert np.datetime64(0, "s") + found["time"] * step == np.datetime64(expected)


def test_numbers_in_names() -> None:
    parsed = LabelPattern.parse("a{member}", "member")
    assert parsed.of_names(["a7.nc", "b/a12.nc"]) == [{"member": 7}, {"member": 12}]
    assert parsed.attrs("member") == {}


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{day:%Y}", "one field named like the dimension"),
        ("nothing", "one field"),
        ("{time:%Y%m%d}-{time}", "one field"),
        ("{time:%Q}", "%Q is not known"),
        ("{time:%Y-%m}", r"x_20230114\.tif' does not match"),
        ("x_{time:%m%d%Y}", "is no time"),
    ],
)
def test_bad_patterns(pattern: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        LabelPattern.parse(pattern, "time").of_names(["/a/x_20230114.tif"])


def write_scene(path: Path, value: int, **tags: str) -> None:
    """A small GeoTIFF with metadata, as GDAL writes it."""
    profile = {"driver": "GTiff", "width": 4, "height": 3, "count": 1, "dtype": "int16"}
    place = rasterio.transform.from_origin(500000, 5000000, 10, 10)
    with rasterio.open(path, "w", crs="EPSG:32632", transform=place, **profile) as file:
        file.write(np.full((1, 3, 4), value, np.int16))
        file.update_tags(**tags)


@pytest.mark.parametrize(
    ("attribute", "pattern"),
    [
        ("TIFFTAG_DATETIME", "{time:%Y:%m:%d %H:%M:%S}"),
        ("TIFFTAG_IMAGEDESCRIPTION", "acquired {time:%d.%m.%Y, %H:%M:%S}"),
        ("SENSING_TIME", "{time:%Y-%m-%dT%H:%M:%S}"),
    ],
)
def test_stack_by_times_in_tags(tmp_path: Path, attribute: str, pattern: str) -> None:
    moments = ["2023-01-14T10:20:30", "2022-12-31T23:59:59", "2023-06-01T00:00:00"]
    for number, moment in enumerate(moments):
        day, _, hour = moment.partition("T")
        write_scene(
            tmp_path / f"scene_{number}.tif",
            number,
            TIFFTAG_DATETIME=f"{day.replace('-', ':')} {hour}",
            TIFFTAG_IMAGEDESCRIPTION=f"acquired {'.'.join(day.split('-')[::-1])}, {hour} UTC",
            SENSING_TIME=f"{moment}.123Z",
        )
    catalog = tmp_path / "scenes.gridref"
    gridref.build(
        tmp_path / "*.tif",
        catalog,
        layout=gridref.Stack("time", gridref.Labels(pattern, of=attribute)),
    )
    cube = xr.open_zarr(f"gridref::file://{catalog}", **RAW)
    assert cube["time"].values.tolist() == np.array(sorted(moments), "datetime64[ns]").tolist()
    assert cube["band_data"].dims == ("time", "band", "y", "x")
    assert cube["band_data"][:, 0, 0, 0].values.tolist() == [1, 0, 2]
    assert attribute not in cube.attrs
    result = gridref.verify(catalog, all=True)
    assert result.ok
    assert result.n_chunks == 3


def test_labels_of_a_netcdf_attribute(tmp_path: Path) -> None:
    for number in (2, 1):
        xr.Dataset({"a": ("x", [number])}, attrs={"member": np.int32(number)}).to_netcdf(
            tmp_path / f"run_{3 - number}.nc"
        )
    group = gridref.build(
        tmp_path / "*.nc",
        tmp_path / "runs.gridref",
        layout=gridref.Stack("member", gridref.Labels("{member}", of="member")),
    )
    assert xr.open_dataset(tmp_path / "runs.gridref").a.values.tolist() == [[1], [2]]
    assert group.arrays["member"].n_blocks == 1


def test_a_tag_that_is_not_there(tmp_path: Path) -> None:
    write_scene(tmp_path / "scene.tif", 1, TIFFTAG_SOFTWARE="camera 1.0", CLOUDS="12")
    options = {"stack": "time", "pattern": "{time:%Y}", "pattern_of": "TIFFTAG_DATETIME"}
    with pytest.raises(InvalidRequestError, match="it has TIFFTAG_SOFTWARE, CLOUDS") as caught:
        gridref.build(tmp_path / "scene.tif", tmp_path / "x.gridref", **by_name(**options))
    assert "scene.tif" in str(caught.value)
    options["pattern_of"] = "TIFFTAG_SOFTWARE"
    with pytest.raises(InvalidRequestError, match=r"= 'camera 1\.0' does not match"):
        gridref.build(tmp_path / "scene.tif", tmp_path / "x.gridref", **by_name(**options))


def test_two_files_of_one_label_are_a_problem(tmp_path: Path) -> None:
    for number in range(2):
        write_scene(tmp_path / f"{number}_20230114.tif", number)
    options = {"stack": "time", "pattern": "_{time:%Y%m%d}"}
    with pytest.raises(CombineError, match="labels occur more than once"):
        gridref.build(tmp_path / "*.tif", tmp_path / "x.gridref", **by_name(**options))
    gridref.build(tmp_path / "*.tif", tmp_path / "x.gridref", **by_name(overlap="last", **options))
    shown = xr.open_dataset(tmp_path / "x.gridref").band_data
    assert shown[:, 0, 0, 0].values.tolist() == [1]


def test_labels_need_a_new_dimension(tmp_path: Path) -> None:
    xr.Dataset({"a": (("time", "x"), np.zeros((3, 2)))}).to_netcdf(tmp_path / "x_2023.nc")
    with pytest.raises(InvalidRequestError, match="'time' of length 3"):
        gridref.build(
            tmp_path / "*.nc", tmp_path / "x.gridref", layout=gridref.Stack("time", "{time:%Y}")
        )


@pytest.mark.parametrize(
    "options",
    [
        {"concat_dim": "time", "mosaic": True},
        {"concat_dim": "time", "stack": "time"},
        {"pattern": "{time}", "concat_dim": "time", "combine": "nested"},
        {"stack": "time", "pattern_of": "TIFFTAG_DATETIME"},
        {"combine": "by_coords", "mosaic": True},
    ],
)
def test_one_way_to_lay_files_out(
    sample_data: Path, tmp_path: Path, options: dict[str, object]
) -> None:
    with pytest.raises(InvalidRequestError):
        gridref.build(sample_data / "hills_*.tif", tmp_path / "x.gridref", **by_name(**options))


@pytest.mark.parametrize(
    ("family", "options", "compared"),
    [
        ("openeo_s2_dates", {"stack": "time", "pattern": "{time:%Y-%m-%d}"}, 9),
        ("gdal_byte_chunk_mismatch", {"stack": "version"}, 14),
    ],
)
def test_stacks_are_verified_whole(
    shared_data: Path, tmp_path: Path, family: str, options: dict[str, str], compared: int
) -> None:
    """The axis that stacking adds is in no file; every stored chunk is compared all the same."""
    gridref.build(
        shared_data / "families" / family, tmp_path / "stack.gridref", **by_name(**options)
    )
    result = gridref.verify(tmp_path / "stack.gridref", all=True)
    assert result.ok
    assert result.n_chunks == compared
    assert not {path for path, _ in result.not_compared} & {"band_data", "Band1"}


def test_labels_that_are_the_same_in_each_file_can_all_be_kept(tmp_path: Path) -> None:
    for number in range(3):  # like NEMO's time_counter, beside which other times tell
        times = ("time_counter", [number * 30], {"units": "days since 2015-01-01"})
        values = ("time_counter", np.array([number], "f4"))
        xr.Dataset({"tos": values, "time_counter": [0.0]}, {"time_centered": times}).to_netcdf(
            tmp_path / f"tos_{number}.nc"
        )
    with pytest.raises(CombineError, match="All these files have the same labels"):
        gridref.build(tmp_path / "*.nc", tmp_path / "x.gridref")
    gridref.build(
        tmp_path / "*.nc", tmp_path / "x.gridref", combine=gridref.CombineOptions(overlap="keep")
    )
    shown = xr.open_dataset(tmp_path / "x.gridref")
    assert shown.tos.values.tolist() == [0, 1, 2]
    assert (np.diff(shown.time_centered) == np.timedelta64(30, "D")).all()


FILES: list[dict[str, Any]] = [
    {"n": 5, "chunks": (2, 3), "codec": {"zlib": True}, "units": "days since 2000-01-01",
     "packing": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -999}},
    {"n": 3, "chunks": (3, 4), "codec": {"zlib": True, "shuffle": True, "fletcher32": True},
     "units": "hours since 1999-12-31", "packing": {"dtype": "f8", "_FillValue": -1.0}},
    {"n": 7, "chunks": (4, 2), "codec": {"compression": "lzf"},
     "units": "seconds since 1970-01-01",
     "packing": {"dtype": "i4", "scale_factor": 0.5, "add_offset": 200.0, "_FillValue": 7}},
    {"n": 4, "chunks": (1, 4), "codec": {}, "units": "minutes since 2000-01-01 06:00",
     "packing": {"dtype": "u1", "scale_factor": 2.0, "add_offset": 100.0, "_FillValue": 255}},
]  # fmt: skip
"""Files that agree in nothing but their variable."""


def write(path: Path, first_day: int, kind: dict[str, Any]) -> Path:
    days = np.datetime64("2000-01-01", "ns") + np.arange(kind["n"]) * np.timedelta64(1, "D")
    values = np.random.default_rng(first_day).uniform(270, 290, (kind["n"], 4))
    values[1, 2] = np.nan
    ds = xr.Dataset({"t": (("time", "x"), values)}, {"time": days + np.timedelta64(first_day, "D")})
    encoding = {
        "t": {"chunksizes": kind["chunks"], **kind["packing"], **kind["codec"]},
        "time": {"units": kind["units"], "dtype": "i8"},
    }
    ds.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    return path


def test_never_refused_for_chunks_codecs_packing_or_time_units(tmp_path: Path) -> None:
    files, day = [], 0
    for number, kind in enumerate(FILES):
        files.append(write(tmp_path / f"{number}.nc", day, kind))
        day += kind["n"]
    gridref.build(files, tmp_path / "cube.gridref", "time")
    cube = xr.open_zarr(f"gridref::{tmp_path / 'cube.gridref'}", chunks=None).load()
    options: dict[str, Any] = {"combine": "nested", "concat_dim": "time", "engine": "h5netcdf"}
    with xr.open_mfdataset(files, **options) as expected:
        np.testing.assert_array_equal(cube.t.values, expected.t.values)
        np.testing.assert_array_equal(cube.time.values, expected.time.values)
    assert np.isnan(cube.t.values).sum() == len(FILES)
