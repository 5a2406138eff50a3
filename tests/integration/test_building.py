"""Mosaics and stacks, from files to `xr.open_zarr`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
import xarray as xr

import gridref
from gridref.adapters.filename_pattern import labels_from_names
from gridref.errors import InvalidRequestError

RAW = {"mask_and_scale": False, "decode_times": True, "chunks": None}


def test_mosaic_of_uneven_tiles(sample_data: Path, tmp_path: Path) -> None:
    catalog = tmp_path / "hills.gridref"
    gridref.build(sample_data / "hills_*.tif", catalog, mosaic=True)
    shown = xr.open_zarr(f"gridref::file://{catalog}", **RAW)["band_data"]
    tiles = [tifffile.imread(sample_data / f"hills_{side}.tif") for side in ("west", "east")]
    assert np.array_equal(shown.values[0], np.concatenate(tiles, axis=1))
    assert shown.dtype == tiles[0].dtype
    assert gridref.verify(catalog, everything=True).ok


def test_stack_of_dated_files(shared_data: Path, tmp_path: Path) -> None:
    catalog = tmp_path / "s2.gridref"
    files = sorted((shared_data / "families" / "openeo_s2_dates").iterdir())
    gridref.build(files[::-1], catalog, stack="time", pattern="{time:%Y-%m-%d}")
    cube = xr.open_zarr(f"gridref::file://{catalog}", **RAW)
    dates = ["2023-06-01", "2023-06-04", "2023-06-06"]
    assert cube["time"].values.tolist() == np.array(dates, "datetime64[ns]").tolist()
    for place, file in enumerate(files):
        image = tifffile.imread(file)
        expected = np.moveaxis(image, -1, 0) if image.shape[-1] == 3 else image
        assert np.array_equal(cube["band_data"].values[place], expected)


def test_labels() -> None:
    urls = ["/a/x_20230114_v2.tif", "/a/x_20221231_v2.tif"]
    labels = labels_from_names(urls, "time", "_{time:%Y%m%d}_")
    assert labels.astype("datetime64[s]").astype(str).tolist() == [
        "2023-01-14T00:00:00",
        "2022-12-31T00:00:00",
    ]
    assert labels_from_names(["a7.nc", "a12.nc"], "member", "a{member}").tolist() == [7, 12]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{day:%Y}", "one field named like the dimension"),
        ("nothing", "one field"),
        ("{time:%Y%m%d}-{time}", "one field"),
        ("{time:%Q}", "%Q is not known"),
        ("{time:%Y-%m}", "does not match"),
        ("x_{time:%m%d%Y}", "is no time"),
    ],
)
def test_bad_patterns(pattern: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        labels_from_names(["/a/x_20230114.tif"], "time", pattern)


@pytest.mark.parametrize(
    "options",
    [
        {"concat_dim": "time", "mosaic": True},
        {"concat_dim": "time", "stack": "time"},
        {"pattern": "{time}"},
        {},
    ],
)
def test_one_way_to_lay_files_out(
    sample_data: Path, tmp_path: Path, options: dict[str, object]
) -> None:
    with pytest.raises(InvalidRequestError):
        gridref.build(sample_data / "hills_*.tif", tmp_path / "x.gridref", **options)


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
    gridref.build(shared_data / "families" / family, tmp_path / "stack.gridref", **options)
    result = gridref.verify(tmp_path / "stack.gridref", everything=True)
    assert result.ok
    assert result.n_chunks == compared
    assert not {path for path, _ in result.not_compared} & {"band_data", "Band1"}
