"""Map tiles, compared with what rasterio's reprojection and matplotlib's colours give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import imagecodecs
import numpy as np
import pyproj
import pytest
from matplotlib import colormaps
from rasterio.transform import from_origin
from rasterio.warp import Resampling, reproject

from gridref.faces.http import create_app
from gridref.faces.web import tiles
from gridref.model.array import VirtualArray, VirtualGroup
from tests.programs import built_viewer
from tests.uvicorn_server import running

CIRCLE = 2 * np.pi * 6378137
LAT, LON = np.linspace(89.5, -89.5, 180), np.linspace(0.5, 359.5, 360)
VALUES = (np.arange(180)[:, None] * 3 + np.arange(360)[None, :] % 97).astype("f4")
UTM = (np.arange(300)[:, None] + 2 * np.arange(400)[None, :]).astype("f4")
ROTATED = (np.arange(60)[:, None] + np.arange(80)[None, :]).astype("f4")


def axis(values: Any, dim: str, **attrs: Any) -> VirtualArray:
    return VirtualArray.from_numpy(np.asarray(values, "f8"), (dim,), attrs)


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    built_viewer()  # whose colours tiles have
    both = np.stack([VALUES, VALUES + 1000])
    both[0, :10] = np.nan
    globe = VirtualGroup(
        {
            "tas": VirtualArray.from_numpy(both, ("time", "lat", "lon")),
            "turned": VirtualArray.from_numpy(both[1].T.copy(), ("lon", "lat")),
            "time": axis([0, 31], "time", units="days since 2023-01-01"),
            "lat": axis(LAT, "lat", units="degrees_north"),
            "lon": axis(LON, "lon", units="degrees_east"),
            "bare": VirtualArray.from_numpy(VALUES, ("y", "x")),
        }
    )
    crs = pyproj.CRS.from_epsg(32632)
    utm = VirtualGroup(
        {
            "a": VirtualArray.from_numpy(UTM, ("y", "x"), {"grid_mapping": "crs"}),
            "crs": VirtualArray.from_numpy(np.int32(0), (), {"crs_wkt": crs.to_wkt()}),
            "y": axis(5_500_000 - 1000 * np.arange(300) - 500, "y", units="m"),
            "x": axis(300_000 + 1000 * np.arange(400) + 500, "x", units="m"),
        }
    )
    pole = {
        "grid_mapping_name": "rotated_latitude_longitude",
        "grid_north_pole_latitude": 39.25,
        "grid_north_pole_longitude": -162.0,
    }
    rotated = VirtualGroup(
        {
            "a": VirtualArray.from_numpy(ROTATED, ("rlat", "rlon"), {"grid_mapping": "pole"}),
            "pole": VirtualArray.from_numpy(np.int32(0), (), pole),
            "rlat": axis(
                -15 + 0.5 * np.arange(60), "rlat", standard_name="grid_latitude", units="degrees"
            ),
            "rlon": axis(
                -20 + 0.5 * np.arange(80), "rlon", standard_name="grid_longitude", units="degrees"
            ),
        }
    )
    app = create_app({"globe": globe, "utm": utm, "rotated": rotated}, access_log=False)
    with running(app) as url:
        yield url


def tile(url: str) -> Any:
    """Colours of a tile, (256, 256, RGBA)."""
    response = httpx.get(url)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "image/png"
    shown = imagecodecs.png_decode(response.content)
    assert shown.shape == (256, 256, 4)
    return shown


def expected(values: Any, low: float, high: float, style: str = "viridis") -> Any:
    """What the colours should be, by matplotlib's."""
    name = style.removesuffix("_r")
    colours = np.floor(255 * colormaps[name](np.arange(256)) + 0.5).astype("u1")
    share = (np.nan_to_num(values) - low) / (high - low)
    steps = np.clip(np.floor(share * 255), 0, 254).astype(int)
    chosen = colours[np.arange(255) * 256 // 255][:: -1 if style.endswith("_r") else 1]
    return np.where(np.isfinite(values)[..., None], chosen[steps], 0)


def reprojected(values: Any, transform: Any, crs: Any, z: int, x: int, y: int) -> Any:
    """A tile by rasterio (GDAL), nearest neighbour."""
    side = CIRCLE / 2**z
    to = from_origin(-CIRCLE / 2 + x * side, CIRCLE / 2 - y * side, side / 256, side / 256)
    out = np.full((256, 256), np.nan, "f4")
    reproject(
        values,
        out,
        src_transform=transform,
        src_crs=crs,
        dst_transform=to,
        dst_crs="EPSG:3857",
        resampling=Resampling.nearest,
        src_nodata=np.nan,
        dst_nodata=np.nan,
        tolerance=0,
    )
    return out


def differing(shown: Any, wanted: Any) -> float:
    """Share of the pixels that have another colour."""
    return float((shown != wanted).any(-1).mean())


@pytest.mark.parametrize("place", [(0, 0, 0), (2, 1, 1), (3, 7, 2), (5, 17, 11)])
def test_tiles_of_latitude_and_longitude(served: str, place: tuple[int, int, int]) -> None:
    z, x, y = place
    shown = tile(f"{served}/globe/tiles/tas/{z}/{x}/{y}.png?at=1,:,:&limits=1000,1600")
    west_first = np.roll(VALUES + 1000, 180, 1)
    wanted = reprojected(west_first, from_origin(-180, 90, 1, 1), "EPSG:4326", z, x, y)
    assert differing(shown, expected(wanted, 1000, 1600)) < 0.01
    other = tile(f"{served}/globe/tiles/turned/{z}/{x}/{y}.png?limits=1000,1600")
    np.testing.assert_array_equal(other, shown)


def test_tiles_of_a_projection(served: str) -> None:
    transform = from_origin(300_000, 5_500_000, 1000, 1000)
    seen = 0
    for place in ((6, 33, 22), (8, 134, 90), (5, 16, 11)):
        shown = tile(
            f"{served}/utm/tiles/a/{'/'.join(map(str, place))}.png?limits=0,1100&style=magma_r"
        )
        wanted = reprojected(UTM, transform, "EPSG:32632", *place)
        seen += int(np.isfinite(wanted).sum())
        assert ((shown[..., 3] > 0) == np.isfinite(wanted)).mean() > 0.99
        assert differing(shown, expected(wanted, 0, 1100, "magma_r")) < 0.02
    assert seen > 20_000


def test_tiles_of_a_rotated_pole(served: str) -> None:
    shown = tile(f"{served}/rotated/tiles/a/4/8/4.png?limits=0,140")
    middles = (np.arange(256) + 0.5) / 256
    lon, lat = np.meshgrid(
        (8 + middles) / 16 * 360 - 180,
        np.degrees(np.arctan(np.sinh(np.pi * (1 - 2 * (4 + middles) / 16)))),
    )
    north, turn = np.radians(39.25), np.radians(lon + 162.0)
    # Source: COSMO's and CORDEX's formulas of rotated coordinates.
    phi = np.radians(lat)
    up, out = np.sin(phi), np.cos(phi)
    rlat = np.degrees(np.arcsin(up * np.sin(north) + out * np.cos(north) * np.cos(turn)))
    ahead = -np.sin(north) * out * np.cos(turn) + np.cos(north) * up
    rlon = np.degrees(np.arctan2(-np.sin(turn) * out, ahead))
    row, column = np.round((rlat + 15) / 0.5).astype(int), np.round((rlon + 20) / 0.5).astype(int)
    inside = (row >= 0) & (row < 60) & (column >= 0) & (column < 80)
    wanted = np.where(inside, ROTATED[np.clip(row, 0, 59), np.clip(column, 0, 79)], np.nan)
    assert inside.mean() > 0.5
    assert differing(shown, expected(wanted, 0, 140)) < 0.01


def test_tilejson_says_where_and_how(served: str) -> None:
    document = httpx.get(
        f"{served}/globe/tiles/tas/tilejson.json?time=2023-02-01&style=gray"
    ).json()
    assert document["tilejson"] == "3.0.0"
    assert document["bounds"] == pytest.approx([-180, -85.0511, 180, 85.0511], abs=1e-3)
    assert document["maxzoom"] == 1
    (address,) = document["tiles"]
    low, high = np.nanpercentile(VALUES[10:], [2, 98])
    given = httpx.URL(address).params["limits"].split(",")
    assert [float(each) for each in given] == pytest.approx([low, high], rel=0.05)
    shown = tile(address.format(z=1, x=0, y=0))
    np.testing.assert_array_equal(shown[..., 0], shown[..., 2])  # gray
    utm = httpx.get(f"{served}/utm/tiles/a/tilejson.json").json()["bounds"]
    corners = pyproj.Transformer.from_crs(32632, 4326, always_xy=True).transform(
        [300_000, 700_000], [5_200_000, 5_500_000]
    )
    assert utm == pytest.approx(
        [corners[0][0], corners[1][0], corners[0][1], corners[1][1]], abs=0.3
    )


def test_without_the_viewer_tiles_are_gray(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = tile(f"{served}/utm/tiles/a/6/33/22.png?style=gray")
    gray = {"gray": tiles.scales()["gray"]}
    monkeypatch.setattr(tiles, "scales", lambda: gray)
    np.testing.assert_array_equal(tile(f"{served}/utm/tiles/a/6/33/22.png"), wanted)
    refused = httpx.get(f"{served}/utm/tiles/a/6/33/22.png?style=viridis")
    assert (refused.status_code, "there is no style" in refused.text) == (400, True)


def test_missing_values_are_transparent(served: str) -> None:
    assert (tile(f"{served}/globe/tiles/tas/0/0/0.png?at=0,:,:")[0, :, 3] == 0).all()


def test_the_coarsest_level_that_suffices_is_drawn() -> None:
    built_viewer()

    def level(number: int) -> dict[str, VirtualArray]:
        rows, columns = 1440 // 2**number, 2880 // 2**number
        north = 90 - (np.arange(rows) + 0.5) * 180 / rows
        east = (np.arange(columns) + 0.5) * 360 / columns
        values = np.full((rows, columns), float(number))
        return {
            "a": VirtualArray.from_numpy(values, ("lat", "lon")),
            "lat": axis(north, "lat", units="degrees_north"),
            "lon": axis(east, "lon", units="degrees_east"),
        }

    below = {f"overview_{number}": VirtualGroup(level(number)) for number in (1, 2, 3)}
    with running(create_app({"m": VirtualGroup(level(0), below)}, access_log=False)) as url:
        for place, number in (((0, 0, 0), 2), ((1, 0, 0), 1), ((2, 1, 1), 1), ((5, 3, 9), 0)):
            z, x, y = place
            shown = tile(f"{url}/m/tiles/a/{z}/{x}/{y}.png?limits=0,4")
            assert differing(shown, expected(np.full((256, 256), float(number)), 0, 4)) == 0


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ("globe/tiles/tas/1/2/0.png", 400, "there is no tile 1/2/0"),
        ("globe/tiles/tas/99/0/0.png", 400, "there is no tile"),
        ("globe/tiles/tas/0/0/0.png?style=jet", 400, "there is no style 'jet'"),
        ("globe/tiles/tas/0/0/0.png?limits=5", 400, "limits are two numbers"),
        ("globe/tiles/tas/0/0/0.png?limits=5,1", 400, "limits are two numbers"),
        ("globe/tiles/tas/0/0/0.png?limits=nan,inf", 400, "limits are two numbers"),
        ("globe/tiles/tas/0/0/0.png?at=:,:,:", 400, "a tile is of one element along time"),
        ("globe/tiles/tas/0/0/0.png?time=1850", 400, "time has no label near '1850'"),
        ("globe/tiles/bare/0/0/0.png", 400, "neither latitudes and longitudes nor a grid mapping"),
        ("globe/tiles/nothing/0/0/0.png", 404, "nothing is here"),
        ("globe/tiles/tas", 404, "nothing is here"),
        ("globe/tiles/tas/0/0/x.png", 404, "nothing is here"),
    ],
)
def test_what_cannot_be_meant_is_said(served: str, asked: str, status: int, words: str) -> None:
    response = httpx.get(f"{served}/{asked}")
    assert (response.status_code, words in response.text) == (status, True), response.text
