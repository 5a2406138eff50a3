"""What the viewer makes of arrays unasked, and maps of grids that are not plain."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pyproj import CRS, Proj, Transformer

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


BRIGHT = """
    () => {
        const canvas = document.getElementById("viewer-canvas");
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
        copy.drawImage(canvas, 0, 0);
        const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
        let [n, x, y] = [0, 0, 0];
        for (let i = 0; i < data.length; i += 4) {
            if (data[i] < 240 || data[i + 1] < 240 || data[i + 2] < 240 || !data[i + 3]) continue;
            n += 1;
            x += (i / 4) % canvas.width + 0.5;
            y += Math.floor(i / 4 / canvas.width) + 0.5;
        }
        return [x / n / devicePixelRatio, y / n / devicePixelRatio, n];
    }
"""
"""The middle of what is white: the spot, in black surroundings."""
GRAY = "colours=gray&low=0&high=1&coasts=0"


def spot(shape: tuple[int, int], row: int, column: int, size: int = 1) -> Any:
    """Nothing but a bright spot."""
    values = np.zeros(shape, "f4")
    values[row - size : row + size + 1, column - size : column + size + 1] = 1
    return values


def of_projection(text: str, mapping: dict[str, Any], xs: Any, ys: Any, at: Any) -> VirtualGroup:
    units = "rad" if "geos" in text else "m"
    kept = {k: v for k, v in mapping.items() if isinstance(v, str | int | float)}
    return VirtualGroup(
        {
            "x": along(xs, "x", units=units, standard_name="projection_x_coordinate"),
            "y": along(ys, "y", units=units, standard_name="projection_y_coordinate"),
            "crs": VirtualArray.from_numpy(np.array(0), (), kept),
            "a": VirtualArray.from_numpy(
                spot((len(ys), len(xs)), *at), ("y", "x"), {"grid_mapping": "crs"}
            ),
        }
    )


def of_places(latitudes: Any, longitudes: Any, at: Any, size: int = 1) -> VirtualGroup:
    return VirtualGroup(
        {
            "nav_lat": VirtualArray.from_numpy(latitudes.astype("f4"), ("y", "x")),
            "nav_lon": VirtualArray.from_numpy(longitudes.astype("f4"), ("y", "x")),
            "a": VirtualArray.from_numpy(spot(latitudes.shape, *at, size), ("y", "x")),
        }
    )


UTM = CRS.from_epsg(32633)
POLAR = CRS.from_epsg(3413)
GEOS = "+proj=geos +h=35786023 +lon_0=-75 +sweep=x +ellps=GRS80"
POLE = {
    "grid_mapping_name": "rotated_latitude_longitude",
    "grid_north_pole_latitude": 39.25,
    "grid_north_pole_longitude": -162.0,
}


def map_groups() -> dict[str, tuple[VirtualGroup, tuple[float, float]]]:
    """Groups by name, with the longitude and latitude of the spot of each."""
    made = {}
    xs, ys = 400_000 + 500.0 * np.arange(60), 5_500_000 - 500.0 * np.arange(50)
    place = Proj(UTM)(xs[40], ys[10], inverse=True)
    made["utm"] = of_projection("", {"crs_wkt": UTM.to_wkt()}, xs, ys, (10, 40)), place
    rows, columns = np.linspace(-20, 20, 60), np.linspace(-25, 15, 70)
    rotated = {
        "rlat": along(rows, "rlat", units="degrees", standard_name="grid_latitude"),
        "rlon": along(columns, "rlon", units="degrees", standard_name="grid_longitude"),
        "rp": VirtualArray.from_numpy(np.array(0), (), POLE),
        "a": VirtualArray.from_numpy(
            spot((60, 70), 45, 12), ("rlat", "rlon"), {"grid_mapping": "rp"}
        ),
    }
    back = Transformer.from_crs(CRS.from_cf(POLE), "+proj=longlat +ellps=WGS84", always_xy=True)
    made["rotated"] = VirtualGroup(rotated), back.transform(columns[12], rows[45])
    xs, ys = np.linspace(-3e6, 3e6, 80), np.linspace(3e6, -3e6, 80)
    place = Proj(POLAR)(xs[20], ys[60], inverse=True)
    made["polar"] = of_projection("", POLAR.to_cf(), xs, ys, (60, 20)), place
    angles = np.linspace(-0.15, 0.15, 120)
    place = Proj(GEOS)(angles[70] * 35786023, -angles[30] * 35786023, inverse=True)
    mapping = {
        "grid_mapping_name": "geostationary",
        "perspective_point_height": 35786023.0,
        "semi_major_axis": 6378137.0,
        "semi_minor_axis": 6356752.31414,
        "longitude_of_projection_origin": -75.0,
        "latitude_of_projection_origin": 0.0,
        "sweep_angle_axis": "x",
    }
    made["geostationary"] = of_projection(GEOS, mapping, angles, -angles, (30, 70)), place
    # An ocean model: the first row is the southernmost, and columns begin in the Pacific.
    j, i = np.meshgrid(np.arange(80), np.arange(120), indexing="ij")
    latitudes = -70 + 1.9 * j + 3 * np.sin(np.radians(3 * i))
    longitudes = (73 + 3.0 * i + 0.2 * j + 180) % 360 - 180
    made["ocean"] = (
        of_places(latitudes, longitudes, (55, 80)),
        (longitudes[55, 80], latitudes[55, 80]),
    )
    # A swath over the date line, read from north to south.
    line, pixel = np.meshgrid(np.arange(150), np.arange(40), indexing="ij")
    latitudes = 30 - 0.25 * line - 0.06 * pixel
    longitudes = (176 - 0.06 * line + 0.3 * pixel + 180) % 360 - 180
    made["swath"] = (
        of_places(latitudes, longitudes, (100, 20), 2),
        (longitudes[100, 20], latitudes[100, 20]),
    )
    return made


@pytest.fixture(scope="module")
def map_shown() -> Iterator[str]:
    named = {name: group for name, (group, _) in map_groups().items()}
    with running(create_app(named, access_log=False)) as url:
        yield url


def by_ticks(page: Any, x: float, y: float) -> tuple[float, float]:
    """Longitude and latitude of a point of a flat map, by the ticks around it."""
    box = box_of(page)
    across, up = [], []
    for words, tick_x, tick_y in page.evaluate(TICKS):
        number = float(re.match(r"[\d.]+", words)[0]) * (-1 if words[-1] in "SW" else 1)
        if tick_y > box["y"] + box["height"] - 1:
            across.append((tick_x - box["x"], number))
        else:
            up.append((tick_y - box["y"], number))
    xs, longitudes = np.array(across).T
    ys, latitudes = np.array(up).T
    longitudes = np.degrees(np.unwrap(np.radians(longitudes)))
    slope, start = np.polyfit(xs, longitudes, 1)
    order = np.argsort(ys)
    return slope * x + start, float(np.interp(y, ys[order], latitudes[order]))


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ["utm", "ocean", "rotated", "swath"])
def test_spots_are_where_they_are_on_earth(visit: Visit, map_shown: str, name: str) -> None:
    _, (longitude, latitude) = map_groups()[name]
    page = opened(visit, f"{map_shown}/{name}/array/a", GRAY)
    x, y, n = page.evaluate(BRIGHT)
    assert n > 4
    found = by_ticks(page, x, y)
    span = 0.03 if name == "utm" else 1.2
    assert abs((found[0] - longitude + 180) % 360 - 180) < span, found
    assert abs(found[1] - latitude) < span, found
    page.locator("#viewer-canvas").hover(position={"x": x, "y": y})
    told = visit.wait(f"{TOLD}.startsWith('1 at') && {TOLD}")
    north, south, east, west = re.search(r"([\d.]+)° ([NS]), ([\d.]+)° ([EW])", told).groups()
    assert float(north) * (-1 if south == "S" else 1) == pytest.approx(latitude, abs=span)
    assert float(east) * (-1 if west == "W" else 1) == pytest.approx(longitude, abs=span)
    assert not visit.barriers()


@pytest.mark.long
@pytest.mark.parametrize("name", ["polar", "geostationary", "ocean"])
def test_globes_and_poles(visit: Visit, map_shown: str, name: str) -> None:
    _, (longitude, latitude) = map_groups()[name]
    state = f"{GRAY}&view=globe&centre=-10,20" if name == "ocean" else GRAY
    page = opened(visit, f"{map_shown}/{name}/array/a", state)
    view = page.locator("select[name=view]").input_value()
    assert view == {"polar": "north"}.get(name, "globe")
    x, y, n = page.evaluate(BRIGHT)
    assert n > 4
    box = box_of(page)
    if name == "polar":  # the grid is square, and the meridian 45° W points down
        laea = Proj("+proj=laea +lat_0=90 +lon_0=-45 +R=1")
        edge = 3e6 * 80 / 79
        reach = max(laea(*Proj(POLAR)(edge, 0, inverse=True)))
        scale = box["width"] / (2 * reach * 1.04)
    else:
        centre = (-10, 20) if name == "ocean" else (-75, 0)
        laea = Proj(f"+proj=ortho +lat_0={centre[1]} +lon_0={centre[0]} +R=1")
        scale = box["width"] / 2.08
    east, north = laea(longitude, latitude)
    assert x - box["width"] / 2 == pytest.approx(scale * east, abs=5)
    assert box["height"] / 2 - y == pytest.approx(scale * north, abs=5)
    assert page.locator(".axes .tick").count() == 0


@pytest.mark.long
def test_the_grid_as_stored_is_one_click_away(visit: Visit, map_shown: str) -> None:
    page = opened(visit, f"{map_shown}/ocean/array/a", GRAY)
    assert page.locator("select[name=view]").input_value() == "flat"
    page.locator("select[name=view]").select_option("stored")
    box = box_of(page)
    x, y, _ = page.evaluate(BRIGHT)
    assert x == pytest.approx(80.5 / 120 * box["width"], abs=1)
    assert y == pytest.approx((80 - 55.5) / 80 * box["height"], abs=1)  # north is up
    assert "view=stored" in page.url
    page.locator("select[name=view]").select_option("globe")
    page.locator("#viewer-canvas").scroll_into_view_if_needed()
    box = box_of(page)
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 260, box["y"] + 220, steps=3)
    page.mouse.up()
    assert "centre=" in page.url
    turned = page.evaluate(BRIGHT)
    url = page.url
    page.goto("about:blank")
    opened(visit, url)
    np.testing.assert_allclose(page.evaluate(BRIGHT), turned, atol=1)
    assert page.locator("select[name=view]").input_value() == "globe"


@pytest.mark.long
def test_arrow_keys_go_north_and_east(visit: Visit, map_shown: str) -> None:
    page = opened(visit, f"{map_shown}/ocean/array/a", "coasts=0")
    page.locator("#viewer-canvas").focus()

    def place() -> tuple[float, float]:
        north, ns, east, ew = re.search(
            r"([\d.]+)° ([NS]), ([\d.]+)° ([EW])", page.evaluate(TOLD)
        ).groups()
        return float(east) * (-1 if ew == "W" else 1), float(north) * (-1 if ns == "S" else 1)

    page.keyboard.press("ArrowUp")
    first = place()
    page.keyboard.press("ArrowUp")
    assert place()[1] > first[1] + 1
    before = place()
    page.keyboard.press("ArrowRight")
    assert 1 < (place()[0] - before[0]) % 360 < 5
