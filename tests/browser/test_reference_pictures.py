"""Pictures of twelve kinds of data show everything where matplotlib and numpy draw it.

The reference is drawn by the ticks of the viewer's picture, so that these are tested too, and cut
into tiles. Each tile that shows something has to be in the viewer's picture, at the same place.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.ndimage import map_coordinates, uniform_filter, zoom
from scipy.signal import fftconvolve

from gridref.faces.http import create_app
from tests.browser.kinds import KINDS, Kind, Reference
from tests.browser.test_maps import TICKS, box_of
from tests.browser.test_viewer import READY
from tests.browser.visits import Visit
from tests.uvicorn_server import running

TILES = 3  # along a side
AWAY = 12  # pixels within which a tile is looked for
MOST_AWAY = 2
LEAST_ALIKE = 0.6
WHITE = {"color": "white", "linewidth": 1.08}  # 1.5 pixels
PIXELS = """
    (selector) => {
        const canvas = document.querySelector(selector);
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
        copy.drawImage(canvas, 0, 0);
        const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
        let text = "";
        for (const byte of data) text += String.fromCharCode(byte);
        return [canvas.width, canvas.height, btoa(text)];
    }
"""
NOTES_TEXTS = """
    window.texts = [];
    const write = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (words, x, y) {
        const { e, f } = this.getTransform();
        if (this.canvas.closest?.(".plot")) window.texts.push([words, x + e, y + f]);
        write.call(this, words, x, y);
    };
"""
"""Of series, whose ticks are drawn on the canvas."""


# ---- what the viewer shows


@pytest.fixture(scope="module")
def shown(
    browser: Any, tmp_path_factory: pytest.TempPathFactory, shared_data: Path
) -> Iterator[Any]:
    """A tab, the address of a server of all kinds, and their references."""
    served, references = {}, {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind.name)
        served[kind.name], references[kind.name] = kind.make(shared_data, folder)
    visit = Visit(browser, viewport={"width": 720, "height": 800})
    visit.page.add_init_script(NOTES_TEXTS)
    with running(create_app(served, access_log=False)) as url:
        yield visit, url, references
        visit.close()


def number(words: str) -> float:
    """What a tick says: a number, degrees, or a day since 1950."""
    if re.fullmatch(r"\d{4}(-\d\d){1,2}", words):
        return float((np.datetime64(words, "D") - np.datetime64("1950-01-01")).astype(float))
    value = float(re.search(r"[-−]?[\d.,]+", words)[0].replace("−", "-").replace(",", ""))
    return -value if words[-1] in "SW" else value


def along(ticks: list[tuple[str, float]], length: float, up: Any = None) -> tuple[float, float]:
    """What the first and last pixel are worth, by ticks that lie on a straight line."""
    values = np.array([number(words) for words, _ in ticks])
    if up is None and any(words[-1] in "EW°" for words, _ in ticks):
        values = np.degrees(np.unwrap(np.radians(values)))
    values = values if up is None else up(values)
    places = np.array([place for _, place in ticks])
    slope, start = np.polyfit(places, values, 1)
    assert np.abs((slope * places + start - values) / slope).max() < 1.5, ticks
    return start, start + slope * length


def mercator(latitudes: Any) -> Any:
    return np.degrees(np.arctanh(np.sin(np.radians(latitudes))))


class Shown:
    """A picture of the viewer, (height, width) from 0 to 1 and NaN, and the limits of its axes."""

    def __init__(self, page: Any, reference: Reference) -> None:
        is_series = reference.y is None and reference.from_above is None
        width, height, data = page.evaluate(
            PIXELS, ".plot canvas" if is_series else "#viewer-canvas"
        )
        pixels = np.frombuffer(base64.b64decode(data), np.uint8)
        pixels = pixels.reshape(height, width, 4).astype(float)
        if is_series:
            self._series(page, pixels)
            return
        self.picture = np.where(pixels[..., 3] == 255, pixels[..., :3].mean(-1) / 255, np.nan)
        if reference.from_above is None:
            self._axes(page, mercator if reference.is_mercator else None)

    def _axes(self, page: Any, up: Any) -> None:
        box = box_of(page)
        height, width = self.picture.shape
        ticks = [(words, x - box["x"], y - box["y"]) for words, x, y in page.evaluate(TICKS)]
        low = [(words, x) for words, x, y in ticks if y > box["height"] - 1]
        side = [(words, y) for words, x, y in ticks if y <= box["height"] - 1]
        self.across = along(low, width)
        self.top_down = along(side, height, up or (lambda values: values))

    def _series(self, page: Any, pixels: Any) -> None:
        box, outer = (
            page.locator(f".plot {name}").first.bounding_box() for name in (".u-over", "canvas")
        )
        left, top = (round(box[side] - outer[side]) for side in "xy")
        width, height = round(box["width"]), round(box["height"])
        inside = pixels[top : top + height, left : left + width]
        # Of the line's colour, which is the only one that is not grey.
        colour = inside[..., :3].max(-1) - inside[..., :3].min(-1)
        self.picture = np.clip(colour / colour.max(), 0, 1)
        ticks = [each for each in page.evaluate("window.texts") if re.match(r"[-−\d]", each[0])]
        low = [(words, x - left) for words, x, y in ticks if y > top + height]
        side = [(words, y - top) for words, x, y in ticks if x < left]
        self.across, self.top_down = along(low, width), along(side, height)


# ---- what it has to show


def drawn(reference: Reference, shown: Shown) -> Any:
    """The reference's picture, as large as the viewer's."""
    height, width = shown.picture.shape
    if reference.from_above is not None:
        return _globe(reference, height, width)
    if reference.y is None:
        return _line(reference, shown, height, width)
    return _mesh(reference, shown, height, width)


def _line(reference: Reference, shown: Shown, height: int, width: int) -> Any:
    """The line that matplotlib draws, upright lines over values of one pixel, and lonely points."""
    x, values = np.asarray(reference.x, float), reference.values
    known = np.isfinite(values)
    beside = np.pad(known, 1)
    lonely = known & ~beside[:-2] & ~beside[2:]
    first, last = shown.across
    pixels = np.floor((x - first) / (last - first) * width).astype(int)
    ends = np.full((2, width + 1), [[np.inf], [-np.inf]])
    np.minimum.at(ends[0], pixels[known], values[known])
    np.maximum.at(ends[1], pixels[known], values[known])
    some = np.flatnonzero(np.isfinite(ends[0]))
    figure = Figure((width / 100, height / 100), 100, facecolor="none")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    axes.plot(x, values, **WHITE)
    axes.plot(x[lonely], values[lonely], ".", color="white", markersize=4.3, markeredgewidth=0)
    axes.vlines(first + (some + 0.5) / width * (last - first), *ends[:, some], **WHITE)
    axes.set(xlim=shown.across, ylim=shown.top_down[::-1])
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., 3] / 255


def _mesh(reference: Reference, shown: Shown, height: int, width: int) -> Any:
    """Each element as many points, where it is."""
    values, x, y = reference.values, np.asarray(reference.x, float), np.asarray(reference.y, float)
    fine = [
        max(2, int(np.ceil(2.5 * n / m)))
        for n, m in zip((height, width), values.shape, strict=True)
    ]
    rows, columns = (
        (np.arange(n * k) + 0.5) / k - 0.5 for n, k in zip(values.shape, fine, strict=True)
    )
    places = np.meshgrid(rows, columns, indexing="ij")
    if x.ndim == 1:
        x, y = np.meshgrid(x, y)
        x, y = between(x, places), between(y, places)
    else:  # on the side of the earth that the map shows
        a, b = np.radians(x), np.radians(y)
        space = np.cos(b) * np.cos(a), np.cos(b) * np.sin(a), np.sin(b)
        east, north, up = (between(each, places) for each in space)
        x, y = (
            np.degrees(np.arctan2(north, east)),
            np.degrees(np.arctan2(up, np.hypot(east, north))),
        )
        middle = sum(shown.across) / 2
        x = middle + (x - middle + 180) % 360 - 180
    y = mercator(y) if reference.is_mercator else y
    right, down = (
        (each - first) / (last - first) * n
        for each, (first, last), n in ((x, shown.across, width), (y, shown.top_down, height))
    )
    low, high = limits(reference)
    grey = np.clip((values - low) / (high - low), 0, 1).repeat(fine[0], 0).repeat(fine[1], 1)
    is_there = (right >= 0) & (right < width) & (down >= 0) & (down < height)
    picture = np.full((height, width), np.nan)
    picture[down[is_there].astype(int), right[is_there].astype(int)] = grey[is_there]
    return picture


def between(field: Any, places: Any) -> Any:
    """A field between its elements, and half an element beyond them."""
    wider = np.pad(field, 1, "reflect", reflect_type="odd")
    return map_coordinates(wider, [each + 1 for each in places], order=1)


def _globe(reference: Reference, height: int, width: int) -> Any:
    """From above its middle, in a picture that is 4 % wider than the earth."""
    find, (longitude, latitude) = reference.from_above
    assert latitude == 0
    radius = width / 2.08
    y, x = np.mgrid[:height, :width] + 0.5
    x, y = (x - width / 2) / radius, (height / 2 - y) / radius
    with np.errstate(invalid="ignore"):
        towards = np.sqrt(1 - x**2 - y**2)
        rows, columns = find(
            longitude + np.degrees(np.arctan2(x, towards)), np.degrees(np.arcsin(y))
        )
    n = len(reference.values)
    is_there = (rows > -0.5) & (rows < n - 0.5) & (columns > -0.5) & (columns < n - 0.5)
    rows, columns = np.where(is_there, rows, 0), np.where(is_there, columns, 0)
    rows, columns = (np.rint(each).astype(int) for each in (rows, columns))
    low, high = limits(reference)
    grey = (reference.values[rows, columns] - low) / (high - low)
    return np.where(is_there, np.clip(grey, 0, 1), np.nan)


def limits(reference: Reference) -> tuple[float, float]:
    return reference.limits or tuple(np.nanpercentile(reference.values, (2, 98)))


# ---- whether they agree


def faults(picture: Any, reference: Any, blur: int = 3) -> list[str]:
    """Tiles of the reference that are not where it has them."""
    a, b = (uniform_filter(np.nan_to_num(each, nan=-0.5), blur) for each in (picture, reference))
    rows, columns = (np.linspace(0, n, TILES + 1).astype(int) for n in b.shape)
    found, n_tiles = [], 0
    for top, bottom in pairwise(rows):
        for left, right in pairwise(columns):
            tile = b[top + AWAY : bottom - AWAY, left + AWAY : right - AWAY]
            if tile.std() < 0.04:
                continue  # nothing to be seen
            n_tiles += 1
            alike = likeness(a[top:bottom, left:right], tile)
            here = slice(AWAY - MOST_AWAY, AWAY + MOST_AWAY + 1)
            near = alike[here, here].max()
            if near < LEAST_ALIKE or near < alike.max() - 0.02:
                away = np.array(np.unravel_index(alike.argmax(), alike.shape)) - AWAY
                found.append(
                    f"{top}:{bottom}, {left}:{right}: {near:.2f}, {alike.max():.2f} at {away}"
                )
    assert n_tiles >= 3, "the reference shows too little"
    return found


def likeness(around: Any, tile: Any) -> Any:
    """How much of what varies in a tile is in its surroundings, wherever it is laid there."""
    ones = np.ones(tile.shape)
    squares = fftconvolve(around**2, ones, "valid")
    together = fftconvolve(around, tile[::-1, ::-1], "valid")
    return 1 - (squares - 2 * together + (tile**2).sum()) / (tile.var() * tile.size)


WRONG = {
    "upside down": lambda picture: picture[::-1],
    "mirrored": lambda picture: picture[:, ::-1],
    "moved": lambda picture: np.roll(picture, (6, 6), (0, 1)),
    "stretched": lambda picture: zoom(picture, (1.06, 1), order=0)[: len(picture)],
}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_it_shows_is_where_it_has_to_be(shown: Any, kind: Kind) -> None:
    visit, url, references = shown
    visit.begin()
    reference = references[kind.name]
    state = kind.state
    if reference.limits is None and (reference.y is not None or reference.from_above):
        low, high = limits(reference)
        state = f"colours=gray&low={low}&high={high}&coasts=0"
    visit.page.goto(f"{url}/{kind.name}/array/{kind.path}{state and '#'}{state}")
    visit.wait(READY)
    visit.page.wait_for_timeout(200)
    picture = Shown(visit.page, reference)
    expected = drawn(reference, picture)
    blur = 9 if reference.y is None and reference.from_above is None else 3  # lines are thin
    assert faults(picture.picture, expected, blur) == []
    for name, wrong in WRONG.items():
        assert faults(wrong(picture.picture), expected, blur), name
    assert not visit.barriers()
    assert not visit.problems
