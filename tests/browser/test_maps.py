"""Grids that are not plain are drawn where they are on earth: spots are where pyproj puts them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pyproj import CRS, Proj, Transformer

from gridref.faces.http import create_app
from gridref.model.array import VirtualArray, VirtualGroup
from tests.browser.test_first_sight import TICKS, along, box_of
from tests.browser.test_viewer import TOLD, opened
from tests.browser.visits import Visit
from tests.uvicorn_server import running

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


def groups() -> dict[str, tuple[VirtualGroup, tuple[float, float]]]:
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
def shown() -> Iterator[str]:
    named = {name: group for name, (group, _) in groups().items()}
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
def test_spots_are_where_they_are_on_earth(visit: Visit, shown: str, name: str) -> None:
    _, (longitude, latitude) = groups()[name]
    page = opened(visit, f"{shown}/{name}/array/a", GRAY)
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
def test_globes_and_poles(visit: Visit, shown: str, name: str) -> None:
    _, (longitude, latitude) = groups()[name]
    state = f"{GRAY}&view=globe&centre=-10,20" if name == "ocean" else GRAY
    page = opened(visit, f"{shown}/{name}/array/a", state)
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
def test_the_grid_as_stored_is_one_click_away(visit: Visit, shown: str) -> None:
    page = opened(visit, f"{shown}/ocean/array/a", GRAY)
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
def test_arrow_keys_go_north_and_east(visit: Visit, shown: str) -> None:
    page = opened(visit, f"{shown}/ocean/array/a", "coasts=0")
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
