"""Map tiles: of grids beside rasterio's and matplotlib's, of cells beside the nearest element."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import httpx
import imagecodecs
import netCDF4
import numpy as np
import pyproj
import pytest
import scipy.spatial
from matplotlib import colormaps
from rasterio.transform import from_origin
from rasterio.warp import Resampling, reproject

import gridref
from gridref.faces.http import create_app
from gridref.faces.web import cells, tiles
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


def test_levels_that_are_elsewhere_are_not_drawn() -> None:
    """Coarser along other dimensions too, or without latitudes and longitudes of their own."""
    north, east = np.linspace(60, 30, 64), np.linspace(0, 40, 2000)
    steps = np.zeros((64, 2000, 4), "f4") + np.arange(4, dtype="f4")
    plane = np.zeros((64, 1), "f4") + east.astype("f4")
    lats, lons = (
        VirtualArray.from_numpy(np.ascontiguousarray(each), ("y", "x"), {"units": units})
        for each, units in zip(
            np.broadcast_arrays(north[:, None], east),
            ("degrees_north", "degrees_east"),
            strict=True,
        )
    )

    def with_level(
        name: str, values: Any, dims: tuple[str, ...], step: tuple[slice, ...], **others: Any
    ) -> VirtualGroup:
        fine, coarse = (
            VirtualArray.from_numpy(np.ascontiguousarray(each), dims)
            for each in (values, values[step])
        )
        beside = {key: value for key, value in others.items() if key == "lon"}
        beside = {"lon": axis(east[::2], "lon", units="degrees_east")} if beside else {}
        return VirtualGroup(
            {**others, name: fine}, {"overview_1": VirtualGroup({**beside, name: coarse})}
        )

    two = slice(None, None, 2)
    groups = {
        "steps": with_level(
            "v", steps, ("lat", "lon", "t"), (slice(None), two, two),
            lat=axis(north, "lat", units="degrees_north"),
            lon=axis(east, "lon", units="degrees_east"),
        ),
        "curved": with_level("v", plane, ("y", "x"), (two, two), lat=lats, lon=lons),
    }  # fmt: skip
    groups["alone"] = VirtualGroup(groups["curved"].arrays)
    with running(create_app(groups, access_log=False)) as url:
        for at in range(4):
            shown = tile(f"{url}/steps/tiles/v/2/2/1.png?limits=0,3&style=gray&at=:,:,{at}")
            assert set(np.unique(shown[..., 0][shown[..., 3] > 0])) == {[0, 85, 170, 254][at]}
        curved, alone = (
            tile(f"{url}/{name}/tiles/v/2/2/1.png?limits=0,40") for name in ("curved", "alone")
        )
        np.testing.assert_array_equal(curved, alone)


@pytest.mark.parametrize(
    ("longitudes", "expected"),
    [
        ((170, 175, 185), (-180, 180)),
        ((-190, -185, -175), (-180, 180)),
        ((350, 355, 360), (-12.5, 2.5)),
        ((200, 210, 220), (-165, -135)),
    ],
)
def test_bounds_hold_what_is_beyond_the_date_line(
    longitudes: tuple[float, ...], expected: tuple[float, float]
) -> None:
    """Maps ask for no tiles outside of them; a constant that is large has limits as well."""
    group = VirtualGroup(
        {
            "v": VirtualArray.from_numpy(np.full((2, 3), 1e20), ("lat", "lon")),
            "lat": axis([10, 20], "lat", units="degrees_north"),
            "lon": axis(longitudes, "lon", units="degrees_east"),
        }
    )
    with running(create_app({"m": group}, access_log=False)) as url:
        west, _, east, _ = httpx.get(f"{url}/m/tiles/v/tilejson.json").json()["bounds"]
        assert tile(f"{url}/m/tiles/v/0/0/0.png")[..., 3].any()
    assert (west, east) == expected


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


EVERY = 8
"""Every so many pixels are compared."""
POLAR = pyproj.Transformer.from_crs(3413, 4326, always_xy=True)
X, Y = np.meshgrid(np.arange(-60, 60) * 5e4, np.arange(60, -60, -1) * 5e4)
AROUND_POLE = POLAR.transform(X, Y)
SWATH = tuple(
    each[:, np.r_[0:20, 50:70]]  # two beams, with a gap between them
    for each in np.meshgrid(177 + 0.1 * np.arange(70), 10 - 0.1 * np.arange(80))
)
SWATH[0][30:33, 5:9] = np.nan
TURN = np.radians(30)
ROWS, COLUMNS = np.mgrid[0:90, 0:70]
TURNED = (
    10 + 0.2 * (COLUMNS * np.cos(TURN) - ROWS * np.sin(TURN)),
    -8 + 0.2 * (COLUMNS * np.sin(TURN) + ROWS * np.cos(TURN)),
)


def numbered(shape: tuple[int, ...]) -> Any:
    """Values that gray tiles show each in another colour than those beside it."""
    return (np.arange(np.prod(shape)).reshape(shape) * 7 % 251).astype("f4")


def cells_group(
    places: Any, values: Any = None, dims: tuple[str, ...] = ("y", "x")
) -> VirtualGroup:
    longitudes, latitudes = places
    values = numbered(longitudes.shape) if values is None else values

    def array(values: Any, dims: tuple[str, ...], **attrs: Any) -> VirtualArray:
        return VirtualArray.from_numpy(np.ascontiguousarray(values), dims, attrs)

    own = ("time", "y", "x")[-longitudes.ndim :]
    return VirtualGroup(
        {
            "a": array(values, dims, coordinates="lat lon"),
            "lat": array(latitudes, own, units="degrees_north"),
            "lon": array(longitudes, own, units="degrees_east"),
        }
    )


@pytest.fixture(scope="module")
def served_cells() -> Iterator[str]:
    moving = np.stack([TURNED[0], TURNED[0] + 40]), np.stack([TURNED[1]] * 2)
    random = np.random.default_rng(5)
    longitudes, latitudes = (each + random.uniform(-60, 60, each.shape) for each in TURNED)
    groups = {
        "polar": cells_group(AROUND_POLE),
        "swath": cells_group(SWATH),
        "turned": cells_group(TURNED),
        "transposed": cells_group(TURNED, numbered((90, 70)).T, ("x", "y")),
        "moving": cells_group(moving, np.stack([numbered((90, 70))] * 2), ("time", "y", "x")),
        "random": cells_group((longitudes, latitudes)),
        "single": cells_group((np.full((1, 5), 3.0), np.full((1, 5), 3.0))),
    }
    with running(create_app(groups, access_log=False)) as url:
        yield url


def pixels_of(url: str) -> Any:
    """Values of some pixels of a tile; NaN where it is transparent."""
    response = httpx.get(f"{url}{'&' if '?' in url else '?'}style=gray&limits=0,255")
    assert response.status_code == 200, response.text
    pixels = imagecodecs.png_decode(response.content)[EVERY // 2 :: EVERY, EVERY // 2 :: EVERY]
    levels = np.arange(255) * 256 // 255
    values = np.searchsorted(levels, pixels[..., 0])
    return np.where(pixels[..., 3] > 0, values, np.nan)


def on_ball(longitudes: Any, latitudes: Any) -> Any:
    east, north = np.radians(longitudes), np.radians(latitudes)
    return np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], -1)


def nearest(places: Any, z: int, x: int, y: int) -> tuple[Any, Any]:
    """The element nearest to some pixels, and its distance in kilometres."""
    middles = np.arange(EVERY // 2 + 0.5, 256, EVERY) / 256
    north = np.degrees(np.arctan(np.sinh(np.pi * (1 - 2 * (y + middles) / 2**z))))
    pixels = on_ball(*np.meshgrid((x + middles) / 2**z * 360 - 180, north)).reshape(-1, 3)
    elements = np.nan_to_num(on_ball(*places).reshape(-1, 3))  # those without a place are far
    chords, found = scipy.spatial.KDTree(elements).query(pixels)
    far = 2 * 6371 * np.arcsin(chords / 2)
    return found.reshape(len(middles), -1), far.reshape(len(middles), -1)


def check_cells(url: str, places: Any, values: Any, tile: tuple[int, int, int], step: float) -> int:
    """Compare a tile with the nearest elements; `step` is how many kilometres these are apart."""
    drawn = pixels_of(f"{url}/{'/'.join(map(str, tile))}.png")
    found, far = nearest(places, *tile)
    is_drawn = np.isfinite(drawn)
    assert is_drawn[far < 0.45 * step].all()
    assert not is_drawn[far > 0.8 * step].any()
    assert (drawn == values.ravel()[found])[is_drawn].mean() > 0.97
    return int(is_drawn.sum())


@pytest.mark.parametrize("tile", [(0, 0, 0), (1, 0, 0), (2, 3, 0), (3, 0, 0), (5, 31, 5)])
def test_a_grid_around_a_pole(served_cells: str, tile: tuple[int, int, int]) -> None:
    scale = 0.95  # of the projection, near its edges
    url = f"{served_cells}/polar/tiles/a"
    drawn = pixels_of(f"{url}/{'/'.join(map(str, tile))}.png")
    found, far = nearest(AROUND_POLE, *tile)
    is_drawn = np.isfinite(drawn)
    assert is_drawn.sum() > 50
    assert is_drawn[far < 0.45 * 50 * scale].all()
    assert not is_drawn[far > 0.8 * 55].any()
    # At zooms 0 and 1 pixels are larger than the elements.
    same = (drawn == numbered(AROUND_POLE[0].shape).ravel()[found])[is_drawn].mean()
    assert same > 0.97


@pytest.mark.parametrize("tile", [(4, 15, 7), (4, 0, 7), (6, 63, 30), (6, 0, 31)])
def test_gaps_and_the_date_line_are_not_smeared(
    served_cells: str, tile: tuple[int, int, int]
) -> None:
    assert check_cells(f"{served_cells}/swath/tiles/a", SWATH, numbered((80, 40)), tile, 11.1) > 0


@pytest.mark.parametrize("tile", [(3, 4, 4), (5, 17, 16), (8, 136, 129), (10, 545, 519)])
def test_a_turned_grid(served_cells: str, tile: tuple[int, int, int]) -> None:
    values = numbered((90, 70))
    assert check_cells(f"{served_cells}/turned/tiles/a", TURNED, values, tile, 22.2) > 25
    address = f"tiles/a/{'/'.join(map(str, tile))}.png"
    np.testing.assert_array_equal(
        pixels_of(f"{served_cells}/transposed/{address}"),
        pixels_of(f"{served_cells}/turned/{address}"),
    )


def test_places_may_differ_from_step_to_step(served_cells: str) -> None:
    moved = TURNED[0] + 40, TURNED[1]
    address = f"{served_cells}/moving/tiles/a"
    later = pixels_of(f"{address}/5/20/16.png?at=1,:,:")
    found, far = nearest(moved, 5, 20, 16)
    assert (later == numbered((90, 70)).ravel()[found])[far < 10].all()
    assert np.isnan(pixels_of(f"{address}/5/20/16.png?at=0,:,:")).all()


def test_tilejson_of_cells(served_cells: str) -> None:
    document = httpx.get(f"{served_cells}/turned/tiles/a/tilejson.json").json()
    longitudes, latitudes = TURNED
    ends = longitudes.min(), latitudes.min(), longitudes.max(), latitudes.max()
    assert document["bounds"] == pytest.approx(ends, abs=0.01)
    assert document["maxzoom"] == 3  # 1,800 elements of 0.2 degrees around the earth
    crossing = httpx.get(f"{served_cells}/swath/tiles/a/tilejson.json").json()["bounds"]
    assert (crossing[0], crossing[2]) == (pytest.approx(-178.0), pytest.approx(178.9))


def test_cells_that_are_no_grid_are_refused(served_cells: str) -> None:
    for name, words in (("random", "jump to and fro"), ("single", "two rows and columns")):
        response = httpx.get(f"{served_cells}/{name}/tiles/a/3/4/3.png?limits=0,1")
        assert (response.status_code, words in response.text) == (400, True), response.text


def test_coordinates_are_bounded(
    served_cells: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from gridref.faces.http import values
    from gridref.limits import Limits

    monkeypatch.setattr(values, "limits", lambda: Limits(coordinates=100))
    with running(create_app({"turned": cells_group(TURNED)}, access_log=False)) as url:
        response = httpx.get(f"{url}/turned/tiles/a/0/0/0.png")
    assert response.status_code == 413
    assert "lat has 6300 coordinates, more than the limit coordinates" in response.text


@pytest.mark.parametrize(("longitude", "latitude", "z"), [(179.99, -40.3, 8), (0, 70.2, 24)])
def test_only_elements_near_a_tile_are_read(longitude: float, latitude: float, z: int) -> None:
    """Of a million elements."""
    places = np.meshgrid(np.linspace(40, 400, 1440, endpoint=False), np.linspace(-80, 80, 720))
    found = cells.Cells(("y", "x"), cells.places_of(*places))
    place = cells.places_of(np.array(longitude), np.array(latitude)).item()
    tile = cells.Tile(z, int(place.real * 2**z), int(place.imag * 2**z))
    windows = found.at(tile).windows
    assert 0 < sum(len(rows) * len(columns) for rows, columns in windows) < 5000


# Real files
@pytest.mark.parametrize(
    ("file", "path", "names", "step", "tiles"),
    [
        (
            "wrf_tip_2domains/wrf_tip_d1.nc",
            "T2",
            ("XLONG", "XLAT"),
            27.0,
            [(2, 2, 1), (5, 23, 12), (7, 93, 50)],
        ),
        (
            "ascat_l2_subset_uneven/ascat_20150702_084200_metopa_45145_eps_o_250_2300_ovw.l2_subsetted.nc",
            "wind_speed",
            ("lon", "lat"),
            25.0,
            [(4, 7, 10), (6, 28, 40)],
        ),
        (
            "gpm_2aku_136_137/2A-CS-151E24S154E30S.GPM.Ku.V7-20170308.20141206-S095002-E095137.004383.V05A.HDF5",
            "NS/PRE/elevation",
            ("NS/Longitude", "NS/Latitude"),
            5.0,
            [(6, 59, 37), (8, 236, 149)],
        ),
    ],
)
def test_real_files(
    shared_data: Path, tmp_path: Path, file: str, path: str, names: Any, step: float, tiles: Any
) -> None:
    source = shared_data / "families" / file
    gridref.build(str(source), str(tmp_path / "cube.gridref"))
    values, places = read_swath(source, path, names)
    known = np.isfinite(values)
    low, high = values[known].min(), values[known].max()
    seen = 0
    with running(create_app([str(tmp_path / "cube.gridref")], access_log=False)) as url:
        for z, x, y in tiles:
            address = f"{url}/cube/tiles/{path}/{z}/{x}/{y}.png?limits={low},{high}&style=gray"
            pixels = imagecodecs.png_decode(httpx.get(address).content)
            pixels = pixels[EVERY // 2 :: EVERY, EVERY // 2 :: EVERY]
            found, far = nearest(places, z, x, y)
            is_drawn = pixels[..., 3] > 0
            wanted = values.ravel()[found]
            near = far < 0.4 * step
            assert (is_drawn == np.isfinite(wanted))[near].mean() > 0.98
            assert not is_drawn[far > 1.1 * step].any()
            steps = np.floor((np.nan_to_num(wanted) - low) * 255 / (high - low))
            gray = np.clip(steps, 0, 254).astype(int) * 256 // 255
            both = is_drawn & np.isfinite(wanted)
            # Cells of a sheared grid, as GPM's is, and the nearest elements differ a little.
            assert (np.abs(pixels[..., 0].astype(int) - gray) <= 1)[both].mean() > 0.9
            seen += int(both.sum())
    assert seen > 250


def read_swath(file: Path, path: str, names: Any) -> tuple[Any, Any]:
    """Values of the first plane, longitudes and latitudes, by other programs."""
    if file.suffix == ".HDF5":
        with h5py.File(file) as opened:
            return opened[path][...].astype("f8"), [opened[name][...] for name in names]
    with netCDF4.Dataset(file) as opened:
        found = [np.ma.filled(opened[each][...].astype("f8"), np.nan) for each in (path, *names)]
    values, *places = (each[0] if each.ndim == 3 else each for each in found)
    return values, places
