"""Coordinates, reference systems and band metadata equal GDAL's, through Zarr and rioxarray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from gridref.errors import GridrefError
from gridref.faces.zarr.store import open_store
from gridref.formats import scan
from gridref.model.array import VirtualGroup
from gridref.testing.reference_reader import read_slowly
from tests.shared_data import shared_files

rasterio = pytest.importorskip("rasterio")
pytest.importorskip("rioxarray")

TIFFS = shared_files("tiff/**/*.tif", "tiff/**/*.tiff", "families/**/*.tif")
pytestmark = pytest.mark.filterwarnings("ignore:Dataset has no geotransform")


def opened(group: VirtualGroup, path: str | None = None) -> xr.Dataset:
    return xr.open_dataset(
        open_store(group), engine="zarr", group=path, consolidated=False, mask_and_scale=False
    )


def georeferenced(path: Path) -> VirtualGroup | None:
    try:
        group = scan(str(path), on_unsupported="skip")
        with rasterio.open(path) as file:
            placed = file.crs is not None
    except (GridrefError, rasterio.errors.RasterioError):
        return None
    return group if placed and "band_data" in group.arrays else None


def agrees(dataset: xr.Dataset, file: Any) -> None:
    assert dataset.band_data.rio.crs == file.crs
    assert tuple(dataset.band_data.rio.transform()) == tuple(file.transform)
    if "x" not in dataset and "x_1" not in dataset and "x_2" not in dataset:
        return
    np.testing.assert_allclose(
        sorted(dataset.band_data.rio.bounds()), sorted(file.bounds), rtol=1e-9
    )


@pytest.mark.long(but=16)
@pytest.mark.parametrize("path", TIFFS)
def test_place_equals_gdal(path: Path) -> None:
    group = georeferenced(path)
    if group is None:
        return
    with rasterio.open(path) as file:
        dataset = opened(group)
        agrees(dataset, file)
        nodata = dataset.band_data.attrs.get("_FillValue")
        if file.nodata is None:
            assert nodata is None
        else:
            np.testing.assert_equal(float(np.real(nodata)), float(file.nodata))
        names = [name for name in file.descriptions if name]
        if names:
            assert list(np.atleast_1d(dataset.band_data.attrs["long_name"])) == names
    levels = [name for name in group.groups if name.startswith("overview_")]
    for number, name in enumerate(levels):
        with rasterio.open(path, overview_level=number) as file:
            agrees(opened(group, name), file)


@pytest.mark.long(but=16)
@pytest.mark.parametrize("path", TIFFS)
def test_pixel_centres_equal_rioxarray(path: Path) -> None:
    import rioxarray

    group = georeferenced(path)
    if group is None:
        return
    theirs = rioxarray.open_rasterio(path)
    if isinstance(theirs, list) or "x" not in theirs.coords or "x" not in group.arrays:
        return
    for name in ("x", "y", "band"):
        np.testing.assert_allclose(read_slowly(group.arrays[name]), theirs[name].values, rtol=1e-12)


def test_pyramid_opens_as_a_tree(shared_data: Path) -> None:
    group = scan(str(shared_data / "families/lcmap_cog_2years/lcmap_tiny_cog_2019.tif"))
    tree = xr.open_datatree(open_store(group), engine="zarr", consolidated=False)
    layout = tree.attrs["multiscales"]["layout"]
    assert [entry["asset"] for entry in layout] == [
        "band_data",
        "overview_1/band_data",
        "overview_2/band_data",
    ]
    for entry in layout:
        path, _, name = entry["asset"].rpartition("/")
        node = tree[path] if path else tree
        ratio = entry["transform"]["scale"]
        assert [a * b for a, b in zip(node[name].shape, ratio, strict=True)] == [1, 2048, 2048]


def test_rotated_image_has_its_affine(shared_data: Path) -> None:
    path = shared_data / "tiff/features/opendatacube__odc-geo__au-3577-rotated.tif"
    group = scan(str(path))
    assert "x" not in group.arrays
    with rasterio.open(path) as file:
        assert tuple(opened(group).rio.transform()) == tuple(file.transform)


@pytest.mark.parametrize("point", ["Area", "Point"])
@pytest.mark.parametrize(
    "six",
    [(8.5, 3.25, 4e5, 3.25, -8.5, 5e6), (10, 0.5, 4e5, 0, -10, 5e6), (10, 0, 4e5, 0, 10, 5e6)],
    ids=["rotated", "sheared", "south up"],
)
def test_transforms_of_all_kinds(tmp_path: Path, six: tuple[float, ...], point: str) -> None:
    """At each resolution, and through a catalog."""
    path = tmp_path / "place.tif"
    profile = {"driver": "GTiff", "width": 96, "height": 64, "count": 1, "dtype": "uint8"}
    place = rasterio.Affine(*six)
    with rasterio.open(path, "w", crs="EPSG:32632", transform=place, **profile) as file:
        file.update_tags(AREA_OR_POINT=point)
        file.write(np.arange(64 * 96, dtype=np.uint8).reshape(1, 64, 96))
        file.build_overviews([2, 4])
    group = scan(str(path))
    for level in range(3):
        options = {"overview_level": level - 1} if level else {}
        with rasterio.open(path, **options) as file:
            dataset = opened(group, f"overview_{level}" if level else None)
            np.testing.assert_allclose(
                tuple(dataset.rio.transform()), tuple(file.transform), rtol=1e-14
            )
            assert dataset.rio.crs == file.crs
            assert ("x" in group.arrays) == (six[1] == six[3] == 0)
    assert group.arrays["band_data"].attrs["AREA_OR_POINT"] == point


def test_scale_offset_units_and_names(tmp_path: Path) -> None:
    path = tmp_path / "packed.tif"
    profile = {"driver": "GTiff", "width": 8, "height": 4, "dtype": "int16", "nodata": -9}
    transform = rasterio.transform.from_origin(5, 50, 0.5, 0.25)
    with rasterio.open(path, "w", count=2, crs="EPSG:4326", transform=transform, **profile) as file:
        file.write(np.arange(64, dtype=np.int16).reshape(2, 4, 8))
        file.scales, file.offsets, file.units = (0.1, 0.1), (2.0, 2.0), ("K", "K")
        file.descriptions = ("skin", "air")
    array = scan(str(path)).arrays["band_data"]
    assert array.attrs["scale_factor"] == 0.1
    assert array.attrs["add_offset"] == 2.0
    assert list(array.attrs["long_name"]) == ["skin", "air"]
    assert array.attrs["_FillValue"] == np.int16(-9)
    decoded = xr.open_dataset(open_store(scan(str(path))), engine="zarr", consolidated=False)
    np.testing.assert_allclose(decoded.band_data.values[1, 0, 0], 32 * 0.1 + 2.0, rtol=1e-6)
    assert decoded.x.attrs["standard_name"] == "longitude"


def test_internal_mask_lies_beside_its_image(tmp_path: Path) -> None:
    path = tmp_path / "masked.tif"
    profile = {"driver": "GTiff", "width": 64, "height": 32, "count": 1, "dtype": "uint8"}
    values = np.arange(2048, dtype=np.uint8).reshape(1, 32, 64)
    mask = values[0] % 3 == 0
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(
            path, "w", crs="EPSG:32632", transform=rasterio.Affine(1, 0, 0, 0, -1, 0), **profile
        ) as file,
    ):
        file.write(values)
        file.write_mask(mask)
    group = scan(str(path))
    np.testing.assert_array_equal(read_slowly(group.arrays["band_data"]), values)
    np.testing.assert_array_equal(read_slowly(group.arrays["mask"]), mask)


@pytest.mark.parametrize("crs", ["EPSG:3031", "EPSG:2154", "EPSG:27700", "+proj=sinu +R=6371007"])
@pytest.mark.parametrize("spelled_out", [False, True])
def test_reference_systems(tmp_path: Path, crs: str, spelled_out: bool) -> None:
    """As a code, and as keys that spell the system out."""
    path = tmp_path / "crs.tif"
    wanted = rasterio.crs.CRS.from_user_input(crs)
    if spelled_out:
        wanted = rasterio.crs.CRS.from_proj4(wanted.to_proj4())
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        width=2,
        height=2,
        count=1,
        dtype="uint8",
        crs=wanted,
        transform=rasterio.Affine(10, 0, 100, 0, -10, 200),
    ) as file:
        file.write(np.ones((1, 2, 2), np.uint8))
    found = opened(scan(str(path))).rio.crs
    with rasterio.open(path) as file:
        assert found.to_dict() == file.crs.to_dict() or found == file.crs
