"""Map tiles of arrays on two-dimensional latitudes and longitudes, against the nearest element."""

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

import gridref
from gridref.faces.http import create_app
from gridref.faces.web import cells
from gridref.model.array import VirtualArray, VirtualGroup
from tests.uvicorn_server import running

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


def group(places: Any, values: Any = None, dims: tuple[str, ...] = ("y", "x")) -> VirtualGroup:
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
def served() -> Iterator[str]:
    moving = np.stack([TURNED[0], TURNED[0] + 40]), np.stack([TURNED[1]] * 2)
    random = np.random.default_rng(5)
    longitudes, latitudes = (each + random.uniform(-60, 60, each.shape) for each in TURNED)
    groups = {
        "polar": group(AROUND_POLE),
        "swath": group(SWATH),
        "turned": group(TURNED),
        "transposed": group(TURNED, numbered((90, 70)).T, ("x", "y")),
        "moving": group(moving, np.stack([numbered((90, 70))] * 2), ("time", "y", "x")),
        "random": group((longitudes, latitudes)),
        "single": group((np.full((1, 5), 3.0), np.full((1, 5), 3.0))),
    }
    with running(create_app(groups, access_log=False)) as url:
        yield url


def shown(url: str) -> Any:
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
    closeness = [part @ elements.T for part in np.array_split(pixels, 16)]
    found = np.concatenate([each.argmax(1) for each in closeness])
    far = 6371 * np.arccos(np.clip(np.concatenate([each.max(1) for each in closeness]), -1, 1))
    return found.reshape(len(middles), -1), far.reshape(len(middles), -1)


def check(url: str, places: Any, values: Any, tile: tuple[int, int, int], step: float) -> int:
    """Compare a tile with the nearest elements; `step` is how many kilometres these are apart."""
    drawn = shown(f"{url}/{'/'.join(map(str, tile))}.png")
    found, far = nearest(places, *tile)
    is_drawn = np.isfinite(drawn)
    assert is_drawn[far < 0.45 * step].all()
    assert not is_drawn[far > 0.8 * step].any()
    assert (drawn == values.ravel()[found])[is_drawn].mean() > 0.97
    return int(is_drawn.sum())


@pytest.mark.parametrize("tile", [(0, 0, 0), (1, 0, 0), (2, 3, 0), (3, 0, 0), (5, 31, 5)])
def test_a_grid_around_a_pole(served: str, tile: tuple[int, int, int]) -> None:
    scale = 0.95  # of the projection, near its edges
    url = f"{served}/polar/tiles/a"
    drawn = shown(f"{url}/{'/'.join(map(str, tile))}.png")
    found, far = nearest(AROUND_POLE, *tile)
    is_drawn = np.isfinite(drawn)
    assert is_drawn.sum() > 50
    assert is_drawn[far < 0.45 * 50 * scale].all()
    assert not is_drawn[far > 0.8 * 55].any()
    # At zooms 0 and 1 pixels are larger than the elements.
    same = (drawn == numbered(AROUND_POLE[0].shape).ravel()[found])[is_drawn].mean()
    assert same > 0.97


@pytest.mark.parametrize("tile", [(4, 15, 7), (4, 0, 7), (6, 63, 30), (6, 0, 31)])
def test_gaps_and_the_date_line_are_not_smeared(served: str, tile: tuple[int, int, int]) -> None:
    assert check(f"{served}/swath/tiles/a", SWATH, numbered((80, 40)), tile, 11.1) > 0


@pytest.mark.parametrize("tile", [(3, 4, 4), (5, 17, 16), (8, 136, 129), (10, 545, 519)])
def test_a_turned_grid(served: str, tile: tuple[int, int, int]) -> None:
    values = numbered((90, 70))
    assert check(f"{served}/turned/tiles/a", TURNED, values, tile, 22.2) > 25
    address = f"tiles/a/{'/'.join(map(str, tile))}.png"
    np.testing.assert_array_equal(
        shown(f"{served}/transposed/{address}"), shown(f"{served}/turned/{address}")
    )


def test_places_may_differ_from_step_to_step(served: str) -> None:
    moved = TURNED[0] + 40, TURNED[1]
    address = f"{served}/moving/tiles/a"
    later = shown(f"{address}/5/20/16.png?at=1,:,:")
    found, far = nearest(moved, 5, 20, 16)
    assert (later == numbered((90, 70)).ravel()[found])[far < 10].all()
    assert np.isnan(shown(f"{address}/5/20/16.png?at=0,:,:")).all()


def test_tilejson_of_cells(served: str) -> None:
    document = httpx.get(f"{served}/turned/tiles/a/tilejson.json").json()
    longitudes, latitudes = TURNED
    ends = longitudes.min(), latitudes.min(), longitudes.max(), latitudes.max()
    assert document["bounds"] == pytest.approx(ends, abs=0.01)
    assert document["maxzoom"] == 3  # 1,800 elements of 0.2 degrees around the earth
    crossing = httpx.get(f"{served}/swath/tiles/a/tilejson.json").json()["bounds"]
    assert (crossing[0], crossing[2]) == (pytest.approx(-178.0), pytest.approx(178.9))


def test_cells_that_are_no_grid_are_refused(served: str) -> None:
    for name, words in (("random", "jump to and fro"), ("single", "two rows and columns")):
        response = httpx.get(f"{served}/{name}/tiles/a/3/4/3.png?limits=0,1")
        assert (response.status_code, words in response.text) == (400, True), response.text


def test_coordinates_are_bounded(
    served: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from gridref.faces.http import values
    from gridref.limits import Limits

    monkeypatch.setattr(values, "limits", lambda: Limits(coordinates=100))
    with running(create_app({"turned": group(TURNED)}, access_log=False)) as url:
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
    values, places = read(source, path, names)
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


def read(file: Path, path: str, names: Any) -> tuple[Any, Any]:
    """Values of the first plane, longitudes and latitudes, by other programs."""
    if file.suffix == ".HDF5":
        with h5py.File(file) as opened:
            return opened[path][...].astype("f8"), [opened[name][...] for name in names]
    with netCDF4.Dataset(file) as opened:
        found = [np.ma.filled(opened[each][...].astype("f8"), np.nan) for each in (path, *names)]
    values, *places = (each[0] if each.ndim == 3 else each for each in found)
    return values, places
