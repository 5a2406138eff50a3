"""What the viewer shows of planes: looks of large arrays, sliders, and composites of channels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile

import gridref
from gridref.faces.http import create_app
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.manifest import ChunkManifest, Source
from tests.browser.test_viewer import READY, TOLD, cells, opened
from tests.browser.visits import Visit
from tests.uvicorn_server import running

ROWS, COLUMNS = 1200, 5000
TRAVELLED = """
    performance.getEntriesByType("resource")
        .filter((each) => /[/](look|native|portable)[/]/.test(each.name))
        .reduce((sum, each) => sum + each.encodedBodySize, 0)
"""


def field() -> Any:
    rows, columns = np.ogrid[:ROWS, :COLUMNS]
    return (rows // 40 + (columns // 100) / 64).astype("f4")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the same picture of 24 MB compressed and plain, on latitudes and longitudes."""
    path = tmp_path_factory.mktemp("files") / "large.nc"
    with h5py.File(path, "w") as file:
        file["lat"], file["lon"] = (
            np.linspace(59.975, 0.025, ROWS),
            np.linspace(0.025, 249.975, COLUMNS),
        )
        for name, units in (("lat", "degrees_north"), ("lon", "degrees_east")):
            file[name].attrs["units"] = units
            file[name].make_scale(name)
        for name, chunks in (("height", (300, 1000)), ("plain", None)):
            made = file.create_dataset(
                name,
                data=field(),
                chunks=chunks,
                **({"compression": "gzip", "shuffle": True} if chunks else {}),
            )
            made.dims[0].attach_scale(file["lat"])
            made.dims[1].attach_scale(file["lon"])
    return path


@pytest.fixture(scope="module")
def served(files: Path) -> Iterator[str]:
    values = np.arange(3000.0)[:, None] + np.arange(10)
    bare = VirtualGroup({"a": VirtualArray.from_numpy(values, ("y", "x"))})
    with running(create_app({"m": gridref.scan(files), "bare": bare}, access_log=False)) as url:
        yield url


def test_all_of_a_large_array_is_shown(visit: Visit, served: str, files: Path) -> None:
    page = opened(visit, f"{served}/m/array/height")
    shown = page.evaluate(
        "JSON.parse(document.getElementById('viewer').dataset.levels).map(({shape}) => shape)"
    )
    assert shown == [[ROWS, COLUMNS], [240, 1000]]
    assert page.evaluate(TRAVELLED) < files.stat().st_size / 20
    canvas = page.locator("#viewer-canvas")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    visit.wait(f"{TOLD}.includes('bytes')")
    told = page.evaluate(TOLD)
    assert told.startswith("0 at lat 59.875° N, lon 0.125° E; large.nc, bytes"), told
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] - 3, "y": box["height"] / 2})
    assert "lon 249.375° E" in page.evaluate(TOLD)
    with h5py.File(files) as file:
        expected = file["height"][602, 4987]
    assert float(page.evaluate(TOLD).split()[0]) == expected
    page.locator("select[name=detail]").select_option("0")
    visit.wait(f"{READY} == '2'")  # a window, which sliders move
    assert page.locator("input[name='from lon']").count() == 1


def test_chunks_travel_compressed(visit: Visit, served: str, files: Path) -> None:
    for name in ("height", "plain"):
        page = opened(visit, f"{served}/m/array/{name}", "level=0")
        assert page.evaluate(TRAVELLED) < 24e6 / 15
        kinds = {url.split("/m/")[1].split("/")[0] for url in visit.asked if f"/{name}/c/" in url}
        assert kinds == {"native" if name == "height" else "portable"}
        page.goto("about:blank")


@pytest.mark.long
def test_elements_without_labels_keep_their_numbers(visit: Visit, served: str) -> None:
    page = opened(visit, f"{served}/bare/array/a")
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowDown")
    told = page.evaluate(TOLD)
    row = int(told.split(" at y ")[1].split(",")[0])
    assert row % 3 == 1
    assert float(told.split()[0]) == row + int(told.split(", x ")[1].split(";")[0])


def test_a_long_series_is_read_by_the_server(visit: Visit, tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=(4000, 8, 64)).astype("f4").round(3)
    values[7] = np.nan
    with h5py.File(tmp_path / "long.nc", "w") as file:
        file.create_dataset("a", data=values, chunks=(1, 8, 64))
    app = create_app({"m": gridref.scan(tmp_path / "long.nc")}, access_log=False)
    with running(app) as url:
        page = opened(visit, f"{url}/m/array/a")
        visit.asked.clear()
        page.locator("#viewer-canvas").focus()
        for key in ("ArrowRight", "Enter"):
            page.keyboard.press(key)
        page.locator("#viewer-series button").first.wait_for()
        row, column = (
            int(part.split()[1]) for part in page.evaluate(TOLD).split(";")[0].split(", ")[-2:]
        )
        page.locator("#viewer-series summary").click()
        shown = page.locator("#viewer-series td").all_text_contents()
        asked = [url.split("/m/")[1].split("/")[0] for url in visit.asked if "/m/" in url]
        page.goto("about:blank")
    expected = values[: len(shown), row, column]
    assert len(shown) == 200
    found = [np.nan if text == "no value" else float(text) for text in shown]
    np.testing.assert_array_equal(np.array(found, "f4"), expected)
    assert asked.count("series") == 1
    assert not {"portable", "native"} & set(asked)


DRAGGED = """
    (async () => {
        const place = document.getElementById("viewer");
        const slider = document.querySelector("input[name=t]");
        const before = Number(place.dataset.ready);
        for (let i = 0; i < 40; i++) {
            slider.value = Number(slider.value) + 132;
            slider.dispatchEvent(new Event("input"));
            await new Promise((go) => setTimeout(go, 16));
        }
        return Number(place.dataset.ready) - before;
    })()
"""
AT = "document.querySelector('.slide .at').textContent"


@pytest.fixture(scope="module")
def steps() -> Iterator[str]:
    """The address of an array of 12 planes, each a chunk, filled with its number."""
    values = np.broadcast_to(np.arange(12.0)[:, None, None], (12, 4, 5)).copy()
    group = VirtualGroup({"a": VirtualArray.from_numpy(values, ("t", "y", "x"))})
    app = create_app({"m": group}, access_log=False, chunks={"t": 1}, compressor="zstd")
    with running(app) as url:
        yield f"{url}/m/array/a"


def asked(visit: Visit) -> list[int]:
    return [int(url.split("/c/")[1].split("/")[0]) for url in visit.asked if "/a/c/" in url]


@pytest.mark.long
def test_steps_and_what_comes_next(visit: Visit, steps: str) -> None:
    page = opened(visit, steps)
    assert asked(visit) == [0]
    page.get_by_label("Next t").click()
    visit.wait(f"{READY} == '2'")
    page.wait_for_timeout(100)
    assert asked(visit) == [0, 1, 2, 3, 4]  # the next ones ahead
    page.get_by_label("Next t").click()
    visit.wait(f"{READY} == '3'")
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(TOLD).startswith("2 at t 2")
    page.get_by_label("Previous t").click()
    visit.wait(f"{READY} == '4' && {AT} == '1'")


@pytest.mark.long
def test_play_goes_round_until_it_is_stopped(visit: Visit, steps: str) -> None:
    page = opened(visit, steps, "at0=10")
    play = page.get_by_label("Play t")
    play.click()
    assert play.get_attribute("aria-pressed") == "true"
    visit.wait(f"{AT} == '1'")
    play.click()
    page.wait_for_timeout(300)
    shown = page.evaluate(AT)
    page.wait_for_timeout(300)
    assert page.evaluate(AT) == shown
    assert f"at0={shown}" in page.url


def test_what_is_passed_over_is_given_up(visit: Visit, steps: str) -> None:
    page = opened(visit, steps)
    held: list[Any] = []
    # Playwright asks for a function of Python.
    page.route("**/a/c/5/**", lambda route: held.append(route))  # noqa: PLW0108
    slider = page.locator("input[name=t]")
    with page.expect_event("requestfailed", lambda request: "/a/c/5/" in request.url):
        slider.fill("5")
        page.wait_for_timeout(50)
        slider.fill("9")
    visit.wait(f"{READY} == '2'")
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(TOLD).startswith("9 at t 9")
    page.unroute("**/a/c/5/**")
    slider.fill("5")  # what was given up is asked for anew
    visit.wait(f"{READY} == '3' && {TOLD}.startsWith('5 at t 5')")
    assert len(held) == 1


@pytest.mark.long
def test_a_few_steps_are_read_at_once_and_the_last_one_is_shown(visit: Visit, steps: str) -> None:
    page = opened(visit, steps)
    held: list[Any] = []
    # Playwright asks for a function of Python.
    page.route(re.compile(r"/a/c/(3|5|7|9)/"), lambda route: held.append(route))  # noqa: PLW0108
    slider = page.locator("input[name=t]")
    for step in ("3", "5", "7", "9"):
        slider.fill(step)
        page.wait_for_timeout(30)
    assert asked(visit)[1:] == [3, 5, 7]  # so many at once
    with page.expect_event("requestfailed", lambda request: "/a/c/3/" in request.url):
        pass  # the oldest one is given up for the newest
    page.wait_for_timeout(50)
    assert asked(visit)[1:] == [3, 5, 7, 9]
    with page.expect_event("requestfailed", lambda request: "/a/c/5/" in request.url):
        held[2].continue_()
    visit.wait(f"{READY} == '2'")  # 7, while 9 is on its way
    held[3].continue_()
    visit.wait(f"{READY} == '3'")
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(TOLD).startswith("9 at t 9")


@pytest.mark.long
def test_what_was_passed_over_is_not_told_to_have_failed(visit: Visit, steps: str) -> None:
    page = opened(visit, steps)
    held: list[Any] = []
    page.route(re.compile(r"/a/c/(4|8)/"), lambda route: held.append(route))  # noqa: PLW0108
    slider = page.locator("input[name=t]")
    for step in ("4", "8"):
        slider.fill(step)
        page.wait_for_timeout(30)
    held[0].abort()
    page.wait_for_timeout(50)
    assert page.evaluate(READY) == "1"
    assert page.evaluate(TOLD) == ""
    held[1].continue_()
    visit.wait(f"{READY} == '2'")
    assert all("ERR_FAILED" in problem for problem in visit.problems)
    visit.problems.clear()


@pytest.mark.long
def test_dragging_over_ten_thousand_steps_shows_them(visit: Visit, tmp_path: Path) -> None:
    """As many chunks, of which a hundred differ."""
    planes = np.random.default_rng(5).normal(size=(100, 20, 30)).astype("<f4")
    path = tmp_path / "planes.bin"
    path.write_bytes(planes.tobytes())
    status = path.stat()
    manifest = ChunkManifest.from_columns(
        [Source(str(path), status.st_size, status.st_mtime_ns)],
        offset=np.arange(10_000) % 100 * planes[0].nbytes,
        length=planes[0].nbytes,
    )
    encoding = Encoding((1, 20, 30), planes.dtype, (bytes_codec(planes.dtype),))
    array = VirtualArray.of_one_block(
        (10_000, 20, 30), planes.dtype, encoding=encoding, manifest=manifest, dims=("t", "y", "x")
    )
    with running(create_app({"m": VirtualGroup({"a": array})}, access_log=False)) as url:
        page = opened(visit, f"{url}/m/array/a")
        assert page.evaluate(DRAGGED) > 4  # of 40 in 0.6 s; without load, 38
        page.locator("#viewer-canvas").focus()
        page.keyboard.press("ArrowRight")
        told = visit.wait(f"{TOLD}.includes(' at t 5280, y 0, x 0') && {TOLD}")
        assert np.float32(told.split()[0]) == planes[5_280 % 100, 0, 0]
        page.goto("about:blank")


@pytest.mark.long
def test_an_error_is_tried_again(visit: Visit, steps: str) -> None:
    page = opened(visit, steps)
    page.route("**/a/c/3/**", lambda route: route.abort())
    page.locator("input[name=t]").fill("3")
    visit.wait(f"{READY} == 'failed'")
    told = page.evaluate(TOLD)
    assert "the server does not answer" in told
    assert "fetch" not in told
    page.unroute("**/a/c/3/**")
    page.get_by_role("button", name="Try again").click()
    visit.wait(f"{READY} == '2'")
    assert page.evaluate(TOLD) == ""
    assert not visit.violations()
    visit.problems.clear()  # the browser's own words about what was refused


@pytest.mark.long
def test_chunks_that_are_none_are_told_in_words(visit: Visit, steps: str) -> None:
    page = opened(visit, steps)
    page.route("**/a/c/3/**", lambda route: route.fulfill(body=b"cut"))
    page.locator("input[name=t]").fill("3")
    visit.wait(f"{READY} == 'failed'")
    told = page.evaluate(TOLD)
    assert "what the server sent cannot be decoded" in told
    assert "Error" not in told
    page.route("**/a/c/4/**", lambda route: route.abort())
    page.unroute("**/a/c/3/**")
    page.get_by_label("Next t").click()
    visit.wait(f"{TOLD}.includes('the server does not answer')")
    page.unroute("**/a/c/4/**")
    page.get_by_role("button", name="Try again").click()
    visit.wait(f"{READY} == '2'")
    assert all("ERR_FAILED" in problem for problem in visit.problems)
    visit.problems.clear()


@pytest.mark.long
def test_a_series_that_failed_is_tried_again(visit: Visit, steps: str) -> None:
    page = opened(visit, steps)
    page.route("**/a/c/7/**", lambda route: route.abort())
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    visit.wait(f"{TOLD}.includes('the server does not answer')")
    page.unroute("**/a/c/7/**")
    page.get_by_role("button", name="Try again").click()
    page.locator("#viewer-series .plot canvas").wait_for()
    assert page.evaluate(READY) == "1"
    assert "not answer" not in page.evaluate(TOLD)
    assert all("ERR_FAILED" in problem for problem in visit.problems)
    visit.problems.clear()


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
