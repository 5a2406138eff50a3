"""What the viewer makes of arrays unasked: shape, axes, titles, times, colours and limits."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gridref.faces.http import create_app
from gridref.model.array import VirtualArray, VirtualGroup
from tests.browser.test_viewer import TOLD, cells, opened, rendered
from tests.browser.visits import Visit
from tests.uvicorn_server import running

TICKS = """
    [...document.querySelectorAll(".axes .tick")].map((tick) => {
        const box = tick.querySelector("line").getBoundingClientRect();
        return [tick.textContent, box.x + box.width / 2, box.y + box.height / 2];
    })
"""


OCEAN = np.random.default_rng(8).normal(size=(5, 4, 6)).astype("f4")


def along(values: Any, dim: str, **attrs: str) -> VirtualArray:
    return VirtualArray.from_numpy(np.asarray(values), (dim,), attrs)


def groups() -> dict[str, VirtualGroup]:
    """A plain picture, one on earth, one of lengths, and one of ocean models' times."""
    random = np.random.default_rng(7)
    sky = (random.normal(280, 9, (30, 40)) // 0.25 * 0.25).astype("f4")
    sky[3, 4] = 999
    earth = {
        "lat": along(np.linspace(-58, 58, 30).astype("f4"), "lat", units="degrees_north"),
        "lon": along(np.arange(40) * 2.0, "lon", units="degrees_east"),
        "tas": VirtualArray.from_numpy(
            sky,
            ("lat", "lon"),
            {"long_name": "Air temperature", "standard_name": "air_temperature", "units": "K"},
        ),
    }
    lengths = {
        "y": along(np.arange(20) * 0.5, "y", units="micrometer"),
        "x": along(np.arange(30) * 0.25, "x", units="micrometer"),
        "spots": VirtualArray.from_numpy(random.integers(0, 999, (20, 30), "u2"), ("y", "x")),
    }
    ocean = {
        "time_centered": along(
            np.arange(5) * 30.0, "time_counter", units="days since 1850-02-01", calendar="360_day"
        ),
        "deptht": along([0.5, 10, 50, 200.5], "deptht", units="m", positive="down"),
        "toce": VirtualArray.from_numpy(OCEAN, ("time_counter", "deptht", "x"), {}),
    }
    plain = {"a": VirtualArray.from_numpy(random.normal(size=(12, 60)), ("i", "j"))}
    return {
        "earth": VirtualGroup(earth),
        "lengths": VirtualGroup(lengths),
        "ocean": VirtualGroup(ocean),
        "plain": VirtualGroup(plain),
    }


@pytest.fixture(scope="module")
def shown() -> Iterator[str]:
    with running(create_app(groups(), access_log=False)) as url:
        yield url


def box_of(page: Any) -> Any:
    return page.locator("#viewer-canvas").bounding_box()


def test_pixels_are_square_and_stretch_when_asked(visit: Visit, shown: str) -> None:
    page = opened(visit, f"{shown}/plain/array/a")
    box = box_of(page)
    assert box["width"] / 60 == pytest.approx(box["height"] / 12, rel=0.02)
    page.get_by_label("Stretch").check()
    assert box_of(page)["height"] > 2 * box["height"]
    page = opened(visit, f"{shown}/lengths/array/spots")
    box = box_of(page)
    assert box["width"] / (30 * 0.25) == pytest.approx(box["height"] / (20 * 0.5), rel=0.01)
    assert page.locator(".bar-of-length").text_content().endswith(" µm")
    page = opened(visit, f"{shown}/ocean/array/toce", "rows=time_counter&columns=deptht")
    box = box_of(page)
    assert box["width"] > 1.5 * box["height"]  # days and metres have nothing in common


@pytest.mark.long
def test_ticks_are_where_the_coordinates_are(visit: Visit, shown: str) -> None:
    page = opened(visit, f"{shown}/earth/array/tas", "zoom=1")
    box = box_of(page)
    shown_ticks = {words: (x - box["x"], y - box["y"]) for words, x, y in page.evaluate(TICKS)}
    step = 116 / 29
    for latitude in (-40, 0, 40):
        words = f"{abs(latitude)}°" + {-1: " S", 0: "", 1: " N"}[np.sign(latitude)]
        expected = (58 + step / 2 - latitude) / (116 + step) * box["height"]
        assert shown_ticks[words][1] == pytest.approx(expected, abs=1), words
    expected = (30 + 1) / 80 * box["width"]
    assert shown_ticks["30° E"][0] == pytest.approx(expected, abs=1)
    assert page.locator("#viewer .title p").text_content() == "Air temperature (K)"
    assert page.locator("select[name=colours]").input_value() == "thermal"


@pytest.mark.long
def test_limits_leave_outliers_out_and_say_so(visit: Visit, shown: str) -> None:
    page = opened(visit, f"{shown}/earth/array/tas", "colours=viridis&coasts=0")
    sky = (np.random.default_rng(7).normal(280, 9, (30, 40)) // 0.25 * 0.25).astype("f4")
    sky[3, 4] = 999
    np.testing.assert_array_equal(cells(visit, sky.shape, None), rendered(sky.astype("f8"))[::-1])
    told = page.locator(".outside").text_content()
    above = 100 * (sky > np.percentile(sky, 98)).mean()
    assert f"{round(above, 1):g} % are above" in told
    assert "up to 999 K" in told


@pytest.mark.long
def test_times_have_other_names_and_calendars(visit: Visit, shown: str) -> None:
    page = opened(visit, f"{shown}/ocean/array/toce", "at0=1")
    assert page.locator(".slide .at").text_content() == "1850-03-01"
    page.locator("#viewer-canvas").focus()
    page.keyboard.press("ArrowRight")
    place = visit.wait(f"{TOLD}").partition(" at ")[2]
    assert place.startswith("time_counter 1850-03-01, deptht 0.5 m, x 0")
    ticks = [(words, y) for words, _, y in page.evaluate(TICKS)]
    box = box_of(page)
    below = {words: y - box["y"] for words, y in ticks}
    assert below["50"] == pytest.approx(2.5 / 4 * box["height"], abs=1)  # depths go down
    page.keyboard.press("Enter")
    page.locator("#viewer-series .plot canvas").wait_for()
    page.locator("#viewer-series summary").click()
    times = page.locator("#viewer-series th").all_text_contents()
    assert times == ["1850-02-01", "1850-03-01", "1850-04-01", "1850-05-01", "1850-06-01"]


@pytest.mark.long
def test_an_address_holds_zoom_point_and_plot(visit: Visit, shown: str) -> None:
    page = opened(visit, f"{shown}/earth/array/tas")
    page.locator("#viewer-canvas").focus()
    for key in ("+", "+", "ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.locator("#viewer-series .plot canvas").wait_for()
    told = page.evaluate(TOLD).partition(";")[0]
    url, drawn = page.url, page.evaluate("document.getElementById('viewer-canvas').toDataURL()")
    assert all(f"{key}=" in url for key in ("zoom", "middle", "point", "plot"))
    page.goto("about:blank")
    page.goto(url)
    page.locator("#viewer-series .plot canvas").wait_for()
    assert page.evaluate("document.getElementById('viewer-canvas').toDataURL()") == drawn
    assert page.evaluate(TOLD).partition(";")[0] == told
    assert not visit.barriers()


@pytest.mark.long
def test_an_address_holds_a_closer_look_at_a_series(visit: Visit, shown: str) -> None:
    page = opened(visit, f"{shown}/ocean/array/toce", "point=0,1,2&plot=1")
    plot = page.locator("#viewer-series .plot .u-over")
    plot.wait_for()
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 20, steps=4)
    page.mouse.up()
    visit.wait("location.hash.includes('span=')")
    page.locator("#viewer summary", has_text="How often values are").click()
    visit.wait("location.hash.includes('often=1')")
    url = page.url
    low, high = (float(each) for each in re.search(r"span=([\d.]+)%2C([\d.]+)", url).groups())
    assert 0 < low < high < 120  # of days from 0 to 120
    page.goto("about:blank")
    page = opened(visit, url)
    page.locator("#viewer-series .plot .u-over").wait_for()
    page.locator(".counts .plot canvas").wait_for()
    page.wait_for_timeout(100)
    assert page.url == url
    page.locator("#viewer-series .plot .u-over").dblclick()
    visit.wait("!location.hash.includes('span=')")
    other = "location.hash = location.hash.replace('point=0%2C1%2C2', 'point=0%2C3%2C4')"
    page.evaluate(other)
    visit.wait("document.querySelector('#viewer-series figcaption')?.textContent.includes('x 4')")


@pytest.mark.long
def test_a_series_is_downloaded_with_its_dates(visit: Visit, shown: str) -> None:
    page = opened(visit, f"{shown}/ocean/array/toce", "point=0,1,2&plot=1")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    text = download.value.path().read_text()
    head, *rows = csv.reader(text.splitlines())
    assert head == ["time_centered", "value"]
    assert [label for label, _ in rows] == [f"1850-0{month}-01" for month in range(2, 7)]
    assert [np.float32(value) for _, value in rows] == OCEAN[:, 1, 2].tolist()
