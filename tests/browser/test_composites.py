"""Channels of microscopy, and three bands, that make one picture: drawn as numpy draws it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

import gridref
from gridref.faces.http import create_app
from gridref.model.array import VirtualArray, VirtualGroup
from tests.browser.test_viewer import READY, TOLD, cells, opened
from tests.browser.visits import Visit
from tests.uvicorn_server import running

CELLS = np.random.default_rng(30).integers(0, 4096, (3, 4, 12, 16), "u2")
"""Three channels of four z planes, of 12 bits."""
NAMES = ("DAPI", "GFP", "membrane")
COLOURS = {"DAPI": (0, 0, 255), "GFP": (0, 255, 0), "membrane": (255, 0, 128)}
BANDS = np.random.default_rng(31).normal(0.2, 0.05, (7, 10, 14)).astype("f4")
BANDS[:, 2, 3] = np.nan


def signed(red: int, green: int, blue: int) -> int:
    """A colour as OME-XML has it: red, green, blue and alpha as a signed number of 32 bits."""
    return int(np.array([255, blue, green, red], "u1").view("<i4")[0])


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an OME-TIFF with named channels, and of a raster of seven bands."""
    path: Path = tmp_path_factory.mktemp("images") / "cells.ome.tif"
    channels = {"Name": list(NAMES), "Color": [signed(*COLOURS[name]) for name in NAMES]}
    about = {"axes": "CZYX", "Channel": channels}
    tifffile.imwrite(path, CELLS, metadata=about, photometric="minisblack")
    raster = VirtualArray.from_numpy(BANDS, ("band", "y", "x"))
    catalogs = {"cells": gridref.scan(path), "raster": VirtualGroup({"bands": raster})}
    with running(create_app(catalogs, access_log=False)) as url:
        yield url


def shares(plane: Any, low: float, high: float) -> Any:
    return np.clip((plane.astype("f8") - low) / (high - low), 0, 1)


def composed(planes: Any, colours: Any, limits: Any) -> Any:
    """RGB of planes that each add their colour."""
    added = [
        shares(plane, *limit)[..., np.newaxis] * colour
        for plane, colour, limit in zip(planes, np.array(colours), limits, strict=True)
    ]
    return np.minimum(np.sum(added, axis=0), 255)


def percentiles(plane: Any, outside: float) -> Any:
    return np.nanpercentile(plane.astype("f8"), [outside, 100 - outside])


def drawn(visit: Visit, shape: tuple[int, int]) -> Any:
    return cells(visit, shape, None).astype(int)


def test_channels_are_composed_by_name_colour_and_contrast(visit: Visit, images: str) -> None:
    page = opened(visit, f"{images}/cells/array/image")
    colours = [COLOURS[name] for name in NAMES]
    limits = [percentiles(CELLS[channel, 0], 0.1) for channel in range(3)]
    expected = composed(CELLS[:, 0], colours, limits)
    found = drawn(visit, (12, 16))
    assert np.abs(found[..., :3] - expected).max() <= 1
    legend = page.locator("#viewer-legend li").all_text_contents()
    assert [words.partition(":")[0] for words in legend] == list(NAMES)
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowRight")
    told = ", ".join(f"{name} {CELLS[channel, 0, 0, 0]}" for channel, name in enumerate(NAMES))
    assert page.evaluate(TOLD).startswith(f"{told} at z ")

    page.get_by_role("checkbox", name="GFP").uncheck()
    visit.wait(f"{READY} == '2'")
    page.get_by_label("Colour of DAPI").fill("#ffffff")
    page.get_by_label("membrane from").fill("1000")
    page.get_by_label("membrane from").press("Enter")
    page.locator("input[name=z]").focus()
    page.keyboard.press("ArrowRight")
    visit.wait(f"{READY} == '3'")
    limits[2][0] = 1000
    kept = [0, 2]
    expected = composed(
        CELLS[kept, 1], [(255, 255, 255), COLOURS["membrane"]], [limits[at] for at in kept]
    )
    found = drawn(visit, (12, 16))
    assert np.abs(found[..., :3] - expected).max() <= 1
    asked = {url.split("/c/")[1].split("/")[0] for url in visit.asked if "/c/" in url}
    assert asked <= {"0", "1", "2"}

    url = page.url
    page.goto("about:blank")
    opened(visit, url)
    np.testing.assert_array_equal(drawn(visit, (12, 16)), found)
    assert not page.get_by_role("checkbox", name="GFP").is_checked()
    assert not visit.barriers()


@pytest.mark.long
def test_a_channel_alone_has_a_slider_with_names(visit: Visit, images: str) -> None:
    page = opened(visit, f"{images}/cells/array/image", "zoom=2&middle=0.5,0.5")
    page.get_by_label("Channels in one picture").uncheck()
    visit.wait(f"{READY} == '2'")
    assert "zoom=2" in page.url
    assert page.locator(".slide .at").all_text_contents()[0] == "DAPI"
    page.get_by_label("Next c").click()
    visit.wait(f"{READY} == '3'")
    assert page.locator(".slide .at").all_text_contents()[0] == "GFP"
    assert "compose=no" in page.url
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(TOLD).startswith(f"{CELLS[1, 0, 0, 0]} at c GFP, z ")


@pytest.mark.long
def test_any_three_bands_are_red_green_and_blue(visit: Visit, images: str) -> None:
    page = opened(visit, f"{images}/raster/array/bands")
    assert page.locator("input[name=band]").count() == 1
    page.get_by_label("Bands as red, green, blue").check()
    visit.wait(f"{READY} == '2'")
    for number, (name, band) in enumerate((("red", 5), ("green", 3), ("blue", 1))):
        page.locator(f"select[name={name}]").select_option(str(band))
        visit.wait(f"{READY} == '{3 + number}'")
    limits = [percentiles(BANDS[band], 2) for band in (5, 3, 1)]
    expected = composed(BANDS[[5, 3, 1]], np.eye(3) * 255, limits)
    found = drawn(visit, (10, 14))
    missing = np.isnan(BANDS[0])
    assert (found[missing] == 0).all()
    assert np.abs(found[~missing][:, :3] - expected[~missing]).max() <= 1
    url = page.url
    page.goto("about:blank")
    page = opened(visit, url)
    np.testing.assert_array_equal(drawn(visit, (10, 14)), found)
    assert page.locator("select[name=red]").input_value() == "5"
    assert not visit.barriers()
