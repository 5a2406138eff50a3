"""Sentinel-2 products: their images as rasterio reads them, in groups by resolution."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rasterio
import rioxarray
import xarray as xr

import gridref
from gridref.errors import CombineError, SourceFormatError, UnsupportedFeatureError
from gridref.model.scan_report import Fate
from tests.http_server import Site, serving
from tests.jp2_files import image_of, read_jp2, write_jp2
from tests.safe_files import BANDS_1C, BANDS_2A, write_product

FEW = {10: ("B02", "TCI"), 20: ("B02", "SCL"), 60: ("B01",)}


def image(product: Path, resolution: str, band: str) -> Path:
    """The file of a band."""
    found = product.glob(f"GRANULE/*/IMG_DATA/R{resolution}/*_{band}_{resolution}.jp2")
    return next(iter([*found, *product.glob(f"GRANULE/*/IMG_DATA/*_{band}.jp2")]))


@pytest.mark.parametrize(("level", "bands"), [("2A", BANDS_2A), ("1C", BANDS_1C)])
@pytest.mark.parametrize("what", ["folder", "metadata"])
def test_a_product(
    tmp_path: Path, level: str, bands: dict[int, tuple[str, ...]], what: str
) -> None:
    product = write_product(tmp_path, level)
    target = product if what == "folder" else product / f"MTD_MSIL{level}.xml"
    group = gridref.scan(target)
    assert group.attrs["PROCESSING_LEVEL"] == f"Level-{level}"
    assert group.attrs["SPECIAL_VALUE_NODATA"] == "0"
    moment = np.timedelta64(int(group["time"][...]), "us") + np.datetime64(0, "s")
    assert moment == np.datetime64("2023-06-01T10:50:31.024")
    own = {"x", "y", "band", "spatial_ref"}
    found = {name: tuple(set(part.arrays) - own) for name, part in group.groups.items()}
    assert {name: {*names} for name, names in found.items()} == {
        f"{resolution}m": {*names} for resolution, names in bands.items()
    }
    for resolution, names in found.items():
        for name in names:
            path = image(product, resolution, name)
            expected = read_jp2(path)
            single = len(expected) == 1
            array = group[f"{resolution}/{name}"]
            assert array.dims == (("y", "x") if single else ("band", "y", "x"))
            np.testing.assert_array_equal(array[...], expected[0] if single else expected)
        with rasterio.open(path) as file:
            n_overviews = len(file.overviews(1))
        assert len(group[resolution].groups) == n_overviews
        for number in range(n_overviews):
            expected = read_jp2(path, overview_level=number)
            coarse = group[f"{resolution}/overview_{number + 1}/{name}"][...]
            np.testing.assert_array_equal(coarse, expected if coarse.ndim == 3 else expected[0])


def test_each_resolution_has_its_places(tmp_path: Path) -> None:
    product = write_product(tmp_path, bands=FEW)
    gridref.build([product], tmp_path / "a.gridref")
    for resolution, band in (("10m", "B02"), ("20m", "SCL"), ("60m", "B01")):
        expected = rioxarray.open_rasterio(image(product, resolution, band))
        assert isinstance(expected, xr.DataArray)
        with xr.open_dataset(tmp_path / "a.gridref", engine="gridref", group=resolution) as own:
            assert own.rio.crs == expected.rio.crs
            assert own.rio.transform() == expected.rio.transform()
            np.testing.assert_array_equal(own["x"], expected["x"])
            np.testing.assert_array_equal(own["y"], expected["y"])


def test_products_are_one_cube_over_time(tmp_path: Path) -> None:
    dates = ("20230606", "20230601", "20230611")
    products = [write_product(tmp_path, date=date, bands=FEW) for date in dates]
    gridref.build(products[:2], tmp_path / "a.gridref")
    gridref.open_catalog(tmp_path / "a.gridref").append(products[2:])
    catalog = gridref.open_catalog(tmp_path / "a.gridref")
    with xr.open_datatree(tmp_path / "a.gridref", engine="gridref") as tree:
        days = np.array([f"{date[:4]}-{date[4:6]}-{date[6:]}" for date in sorted(dates)])
        found = tree["time"].values.astype("datetime64[D]")
        np.testing.assert_array_equal(found, days.astype("datetime64[D]"))
        for resolution, band in (("10m", "TCI"), ("20m", "B02"), ("60m", "B01")):
            images = [read_jp2(image(product, resolution, band)) for product in sorted(products)]
            expected = np.stack([each if len(each) > 1 else each[0] for each in images])
            np.testing.assert_array_equal(tree[f"{resolution}/{band}"], expected)
    result = catalog.verify()
    assert result.differences == ()
    assert result.n_arrays >= sum(map(len, FEW.values()))


def test_tiles_and_dates_are_a_mosaic_of_images(tmp_path: Path) -> None:
    bands = {10: ("B02",), 20: ("B02", "B05")}
    tiles = {"31UFS": 600_000, "31UGS": 602_400}
    for date in ("20230601", "20230606"):
        for tile, x in tiles.items():
            write_product(tmp_path, date=date, tile=tile, bands=bands, corner=(x, 5e6), metres=2400)
    gridref.build(
        sorted(tmp_path.glob("*.SAFE/GRANULE/*/IMG_DATA/*/*.jp2")),
        tmp_path / "a.gridref",
        layout=gridref.Mosaic("T{_}_{time:%Y%m%dT%H%M%S}_{variable}_{_}m.jp2", grids="groups"),
    )
    catalog = gridref.open_catalog(tmp_path / "a.gridref")
    for resolution, band in (("10", "B02"), ("20", "B02"), ("20", "B05")):
        for number, date in enumerate(("20230601", "20230606")):
            paths = [
                next(tmp_path.rglob(f"T{tile}_{date}*_{band}_{resolution}m.jp2")) for tile in tiles
            ]
            expected = np.concatenate([read_jp2(path)[0] for path in paths], axis=1)
            np.testing.assert_array_equal(catalog[f"{resolution}/{band}"][number], expected)


def test_folders_of_tiles_that_overlap_are_refused(tmp_path: Path) -> None:
    few = {10: ("B02",), 20: ("B02",)}
    products = [
        write_product(tmp_path, tile=tile, bands=few, corner=(x, 5e6), metres=2400)
        for tile, x in {"31UFS": 600_000, "31UGS": 602_160}.items()
    ]
    with pytest.raises(CombineError, match=r"10m/x.*: its labels differ"):
        gridref.build(products, tmp_path / "a.gridref")
    with pytest.raises(CombineError, match=r"its groups have \(10m, 20m\): give the files"):
        gridref.build(products, tmp_path / "a.gridref", layout=gridref.Mosaic())


def test_a_product_on_a_server(tmp_path: Path) -> None:
    product = write_product(tmp_path, bands=FEW)
    with serving(Site.of_folder(product)) as site:
        group = gridref.scan(f"{site.url}/{product.name}")
        assert len(site.requests) == group.report.n_requests
        values = group["20m/SCL"][...]
    np.testing.assert_array_equal(values, read_jp2(image(product, "20m", "SCL"))[0])


def test_images_that_are_not_there_are_reported(tmp_path: Path) -> None:
    product = write_product(tmp_path, bands=FEW)
    image(product, "20m", "B02").unlink()
    group = gridref.scan(product)
    assert "B02" not in group["20m"].arrays
    (skipped,) = [finding for finding in group.report if finding.fate is Fate.SKIPPED]
    assert skipped.path.endswith("_B02_20m")
    assert skipped.reason == "the file is not there"


def test_an_image_on_another_grid_is_refused(tmp_path: Path) -> None:
    product = write_product(tmp_path, bands=FEW)
    with rasterio.open(image(product, "20m", "B02")) as file:
        place = {"crs": file.crs, "transform": file.transform * file.transform.translation(1, 0)}
    write_jp2(image(product, "20m", "SCL"), image_of((1, 240, 240), "u1"), **place)
    with pytest.raises(UnsupportedFeatureError, match="on another grid"):
        gridref.scan(product)
    assert {"B02"} <= set(gridref.scan(product, on_unsupported="skip")["20m"].arrays)


@pytest.mark.parametrize("name", ["../T_B02_10m", "/etc/T_B02_10m", "http://host/T_B02_10m", "a"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    product = write_product(tmp_path, bands={60: ("B01",)})
    document = product / "MTD_MSIL2A.xml"
    text = document.read_text()
    start, stop = text.index("<IMAGE_FILE>") + 12, text.index("</IMAGE_FILE>")
    document.write_text(text[:start] + name + text[stop:])
    with pytest.raises(UnsupportedFeatureError, match="leads elsewhere"):
        gridref.scan(product)


@pytest.mark.parametrize(
    ("damage", "encoding", "reason"),
    [
        ("<!DOCTYPE a []>", "utf-8", "document type"),
        ("<!DOCTYPE a []>", "utf-16", "document type"),
        ("<a>", "utf-8", "not XML"),
        ("", "utf-7", "not XML"),
    ],
)
def test_damaged_metadata(tmp_path: Path, damage: str, encoding: str, reason: str) -> None:
    product = write_product(tmp_path, bands={60: ("B01",)})
    document = product / "MTD_MSIL2A.xml"
    head, rest = document.read_text().replace("UTF-8", encoding).split("?>", 1)
    document.write_text(f"{head}?>{damage}{rest}", encoding=encoding)
    with pytest.raises(SourceFormatError, match=reason):
        gridref.scan(product)
