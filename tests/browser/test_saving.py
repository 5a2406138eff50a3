"""What is shown, as files and as lines of Python: what they hold is what xarray reads there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import tifffile
import xarray as xr

import gridref
from gridref.faces.http import create_app
from tests.browser.visits import Visit
from tests.uvicorn_server import running

pytestmark = pytest.mark.long
HEAT = np.round(np.random.default_rng(2).normal(280, 8, (4, 60, 80)), 2).astype("f4")


def maps() -> xr.Dataset:
    return xr.Dataset(
        {"heat": (("time", "lat", "lon"), HEAT, {"units": "K", "long_name": "surface heat"})},
        {
            "time": ("time", [0, 31, 59, 90], {"units": "days since 2023-01-01"}),
            "lat": ("lat", np.arange(-29.5, 30), {"units": "degrees_north"}),
            "lon": ("lon", np.arange(0.5, 80), {"units": "degrees_east"}),
        },
    )


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("saved")
    packed = {"heat": {"zlib": True, "chunksizes": (1, 30, 40)}}
    maps().to_netcdf(folder / "maps.nc", encoding=packed)
    maps().to_netcdf(folder / "maps.nc", "a", group="deep", encoding=packed)
    large = np.arange(6000 * 5000, dtype="u4").reshape(6000, 5000)
    tifffile.imwrite(folder / "large.tif", large, tile=(512, 512), compression="zlib")
    scanned = {path.stem: gridref.scan(path) for path in folder.iterdir()}
    with running(create_app(scanned, access_log=False)) as url:
        yield url


def opened(visit: Visit, url: str, state: str) -> Any:
    visit.page.goto(f"{url}#{state}")
    visit.wait("document.getElementById('viewer')?.dataset.ready > 0")
    visit.page.get_by_text("Download, and read in Python").click()
    visit.wait("document.querySelector('.saving code').textContent")
    return visit.page


def saved(page: Any, role: str, name: str) -> Path:
    with page.expect_download() as download:
        page.get_by_role(role, name=name).click()
    assert download.value.failure() is None
    return Path(download.value.path())


def lines_run(page: Any) -> xr.DataArray:
    code = page.locator(".saving code").inner_text()
    names: dict[str, Any] = {}
    exec(code, names)
    part: xr.DataArray = names["part"]
    return part.load()


@pytest.mark.parametrize("path", ["heat", "deep/heat"])
def test_the_part_that_is_seen_is_saved(visit: Visit, shown: str, path: str) -> None:
    # North is up, and through the glass a quarter of the map is seen around its middle.
    page = opened(visit, f"{shown}/maps/array/{path}", "at0=2&zoom=2&middle=0.5,0.5")
    expected = maps()["heat"].isel(time=2, lat=slice(15, 45), lon=slice(20, 60))
    part = lines_run(page)
    np.testing.assert_array_equal(part, expected)
    assert str(part.time.values)[:10] == "2023-03-01"
    with xr.open_dataset(saved(page, "link", "NetCDF")) as file:
        np.testing.assert_array_equal(file["heat"], expected)
        np.testing.assert_array_equal(file["lat"], expected["lat"])
        assert str(file["time"].values)[:10] == "2023-03-01"
    with rasterio.open(saved(page, "link", "GeoTIFF")) as file:
        np.testing.assert_array_equal(file.read(1), expected[::-1])
        assert file.bounds == (20, -15, 60, 15)


def test_what_is_chosen_later_is_followed(visit: Visit, shown: str) -> None:
    page = opened(visit, f"{shown}/maps/array/heat", "at0=0")
    page.get_by_role("button", name="Next time").click()
    visit.wait("document.querySelector('.saving code').textContent.includes('\"time\": 1')")
    np.testing.assert_array_equal(lines_run(page), HEAT[1])


def test_a_look_saves_the_elements_that_it_shows(visit: Visit, shown: str) -> None:
    page = opened(visit, f"{shown}/large/array/image", "")
    part = lines_run(page)
    assert max(part.shape) <= 2048
    with xr.open_dataset(saved(page, "link", "NetCDF")) as file:
        np.testing.assert_array_equal(file["image"], part)
    assert page.get_by_role("link", name="GeoTIFF").count() == 0


def test_the_picture_has_its_title_axes_and_colours(
    visit: Visit, shown: str, tmp_path: Path
) -> None:
    page = opened(visit, f"{shown}/maps/array/heat", "at0=1")
    from PIL import Image

    canvas = page.locator("#viewer-canvas").bounding_box()
    with Image.open(saved(page, "button", "Picture (PNG)")) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    on_page = tmp_path / "page.png"
    page.locator("#viewer-canvas").screenshot(path=on_page)
    with Image.open(on_page) as image:
        drawn = np.asarray(image.convert("RGB")).astype(int)
    is_ink = abs(pixels - pixels[0, -1]).sum(2) > 30
    assert is_ink[:45].any()  # the title
    assert is_ink[:, :60].any()  # latitudes
    # The picture itself is on the page and in the file from element to element the same.
    top = np.flatnonzero(is_ink.sum(1) > 0.9 * canvas["width"])[0]
    left = np.flatnonzero(is_ink[top + 40])[0]
    middles = [(np.arange(n) + 0.5) / n for n in HEAT.shape[1:]]
    rows, columns = (middle * side for middle, side in zip(middles, drawn.shape, strict=False))
    rows, columns = rows.astype(int)[:, None], columns.astype(int)
    left += np.flatnonzero(is_ink[top + 40, left:] & is_ink[top + 200, left:])[0]
    found = pixels[top + rows, left + columns]
    assert (abs(found - drawn[rows, columns]).sum(2) < 12).mean() > 0.95  # coasts are thin lines
    below = is_ink[top + int(canvas["height"]) + 10 :]
    assert below.sum() > 2000  # longitudes, and the bar of colours
