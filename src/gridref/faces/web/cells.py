"""Draw elements with latitudes and longitudes of their own on map tiles, each as a cell.

Ocean and weather models on curved grids, and swaths of satellites, have two-dimensional latitudes
and longitudes. The cell of an element is the quadrilateral whose corners are the means of four
neighbouring elements. Where there is no neighbour (at the edges of the array, beside missing
coordinates and beside gaps) a cell is as wide as on its other side.

Places are complex numbers: columns and rows of the map, each from 0 to 1 (`places_of`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.faces.web.tiles import SIDE, Tile, Window

GAP = 4
"""A step that is so many times as long as both steps beside it leads over a gap."""
MOST_STEP = 0.25
"""Of the map: neighbours that are farther apart are on two sides of a pole."""
BLOCKS = 64
"""Blocks a side of the coarse index, at most."""
LEAST_BLOCK = 16
"""Elements a side of a block, if the array has them."""
MOST_WINDOWS = 8
"""Parts of an array that are read for one tile."""
MOST_TRIED = 2**24
"""Pairs of a cell and a pixel that may be in it, for one tile."""
TRIED_AT_ONCE = 2**18
LEAST_TURN = -1e-6
"""So far outside of an edge, in pixels, still counts as on it."""
MOST_SHOWN = 89.9
"""Degrees of latitude; the map ends before."""

type Places = NDArray[np.complex128]
type Run = tuple[int, int]
"""Beginning and end of a stretch."""
type Ways = tuple[Places, NDArray[np.bool_]]
"""Steps from each element, and whether they lead to a neighbour."""


def places_of(longitudes: NDArray[np.float64], latitudes: NDArray[np.float64]) -> Places:
    """Places on the WebMercator map, from its north-west; NaN where a coordinate is missing."""
    known = np.isfinite(longitudes) & (np.abs(latitudes) <= 90)
    north = np.radians(np.clip(latitudes, -MOST_SHOWN, MOST_SHOWN))
    x = np.mod(longitudes / 360 + 0.5, 1)
    y = 0.5 - np.arctanh(np.sin(north)) / (2 * np.pi)
    return np.where(known, x + 1j * y, np.nan)


@dataclass(frozen=True, eq=False)
class Cells:
    """Where the elements of an array are, with a coarse index.

    Attributes
    ----------
    dims
        Dimensions of rows and of columns.
    places
        Of the elements, (rows, columns).
    """

    dims: tuple[str, str]
    places: Places

    def __post_init__(self) -> None:
        if min(self.places.shape) < 2 or not np.isfinite(self.places).any():
            raise InvalidRequestError(
                "there are no tiles: its latitudes and longitudes need two rows and columns, and"
                f" values; their shape is {self.places.shape}"
            )

    @property
    def nbytes(self) -> int:
        """Size in bytes, for caches."""
        return self.places.nbytes

    @cached_property
    def _edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where blocks of rows, and of columns, begin and end."""
        rows, columns = (
            np.linspace(0, n, min(max(1, n // LEAST_BLOCK), BLOCKS) + 1).astype(np.int64)
            for n in self.places.shape
        )
        return rows, columns

    @cached_property
    def _boxes(self) -> tuple[NDArray[np.float64], ...]:
        """West, east, north and south of each block, with about one more cell on each side."""
        sizes = np.minimum.outer(*map(np.diff, self._edges))
        x, y = self.places.real, self.places.imag
        turned = np.mod(x + 0.5, 1) - 0.5
        (west, east), (other_west, other_east) = self._ends(x), self._ends(turned)
        is_turned = other_east - other_west < east - west  # it is on both sides of the date line
        west, east = np.where(is_turned, (other_west, other_east), (west, east))
        north, south = self._ends(y)
        beside, above = (east - west) / (sizes - 1), (south - north) / (sizes - 1)
        return west - beside, east + beside, north - above, south + above

    def _ends(self, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        rows, columns = (edges[:-1] for edges in self._edges)
        ends = (np.fmin, np.fmax)
        return tuple(each.reduceat(each.reduceat(values, rows), columns, axis=1) for each in ends)

    def at(self, tile: Tile) -> Inside:
        """The elements in whose cells the pixels of a tile are."""
        side = SIDE / tile.scale
        left, top = tile.corner.real, tile.corner.imag
        west, east, north, south = self._boxes
        turns = [(west + turn <= left + side) & (east + turn >= left) for turn in (-1, 0, 1)]
        near = np.any(turns, 0) & (north <= top + side) & (south >= top)
        columns = [(c, _runs(near[:, slice(*c)].any(1))) for c in _runs(near.any(0))]
        runs = [(row, column) for column, rows in columns for row in rows]
        if len(runs) > MOST_WINDOWS:
            above, beside = _runs(near.any(1)), _runs(near.any(0))
            runs = [((above[0][0], above[-1][1]), (beside[0][0], beside[-1][1]))]
        return Inside(self, tile, [self._elements(*run) for run in runs])

    def _elements(self, rows: Run, columns: Run) -> Window:
        """Those of some blocks."""
        found = [edges[[*run]] for edges, run in zip(self._edges, (rows, columns), strict=True)]
        (top, bottom), (left, right) = (each.tolist() for each in found)
        return range(top, bottom), range(left, right)

    def bounds(self) -> tuple[float, float, float, float]:
        """West, south, east and north of what is shown, in degrees."""
        x, y = self.places.real, self.places.imag
        south, north = (
            float(np.degrees(np.arcsin(np.tanh(2 * np.pi * (0.5 - each)))))
            for each in (np.nanmax(y), np.nanmin(y))
        )
        return 360 * float(np.nanmin(x)) - 180, south, 360 * float(np.nanmax(x)) - 180, north

    def around(self) -> float:
        """How many elements would be around the earth."""
        steps = [np.abs(_steps(self.places, axis)) for axis in (0, 1)]
        return 1 / max(1e-12, min(float(np.nanmedian(each)) for each in steps))


@dataclass(frozen=True, eq=False)
class Inside:
    """Elements whose cells are drawn on a tile.

    Attributes
    ----------
    windows
        Rows and columns to read: parts that are far from each other in the array.
    """

    cells: Cells
    tile: Tile
    windows: list[Window]

    def paint(
        self, image: NDArray[np.float64], window: Window, values: NDArray[np.floating]
    ) -> None:
        """Draw those elements of a window that have a value on an image.

        Raises
        ------
        InvalidRequestError
            If cells lie over each other so much that they make no picture.
        """
        rows, columns = (slice(each.start, each.stop, each.step) for each in window)
        places = self.cells.places[rows, columns]
        corners = _corners(places)
        known = np.isfinite(values) & np.isfinite(corners).all(0)
        side = SIDE / self.tile.scale
        centres = places[known] - self.tile.corner
        centres -= np.round(centres.real - side / 2)  # the shorter way around the earth
        pixels = (centres + corners[:, known]) * self.tile.scale - (0.5 + 0.5j)
        _fill(image, pixels, values[known], is_round=self.tile.z == 0)


def _runs(chosen: NDArray[np.bool_]) -> list[Run]:
    """Beginnings and ends of the stretches that are chosen."""
    changes = np.flatnonzero(np.diff(np.concatenate(([False], chosen, [False]))))
    return [(int(a), int(b)) for a, b in changes.reshape(-1, 2)]


# Cells


def _steps(places: Places, axis: int) -> Places:
    """From each element to the next one along an axis; NaN where there is a gap between them."""
    steps = np.diff(places, axis=axis)
    steps -= np.round(steps.real)
    lengths = np.abs(steps)
    before, after = _moved(lengths, axis, 1), _moved(lengths, axis, -1)
    is_gap = (lengths > GAP * np.fmax(before, after)) | (np.abs(steps.real) > MOST_STEP)
    return np.where(is_gap, np.nan, steps)


def _moved[T: np.inexact](values: NDArray[T], axis: int, by: int) -> NDArray[T]:
    """Values moved along an axis, with NaN where none come from."""
    moved: NDArray[T] = np.full_like(values, np.nan)
    ahead, behind = (np.s_[by:], np.s_[:-by]) if by > 0 else (np.s_[:by], np.s_[-by:])
    before = (slice(None),) * axis
    moved[(*before, ahead)] = values[(*before, behind)]
    return moved


def _corners(places: Places) -> Places:
    """From each element to the corners of its cell, (4, rows, columns), around it."""
    linked = [_ways(places, axis) for axis in (0, 1)]
    around = ((0, 0), (0, 1), (1, 1), (1, 0))
    return np.stack([_corner(linked[0][r], linked[1][c], r, c) for r, c in around])


def _ways(places: Places, axis: int) -> tuple[Ways, Ways]:
    """Back and ahead along an axis."""
    steps = _steps(places, axis)
    edge = [(0, 0), (0, 0)]
    edge[axis] = (0, 1)
    ahead = np.pad(steps, edge, constant_values=np.nan)
    back = -_moved(ahead, axis, 1)
    ends = np.isfinite(ahead), np.isfinite(back)
    return (np.where(ends[1], back, -ahead), ends[1]), (np.where(ends[0], ahead, -back), ends[0])


def _corner(up: Ways, across: Ways, row_way: int, column_way: int) -> Places:
    """From each element to one corner: half its steps there, and half those of its neighbour.

    Neighbours find the same corner. Where four elements meet it is their mean.
    """
    (rows, has_row), (columns, has_column) = up, across
    beside = _moved(rows, 1, -1 if column_way else 1)
    beyond = _moved(columns, 0, -1 if row_way else 1)
    beside = np.where(has_column & np.isfinite(beside), beside, rows)
    beyond = np.where(has_row & np.isfinite(beyond), beyond, columns)
    corner: Places = np.where(has_column, 2 * columns + rows + beside, 2 * rows + columns + beyond)
    return corner / 4


# Pixels


def _fill(
    image: NDArray[np.float64],
    corners: Places,
    values: NDArray[np.floating],
    *,
    is_round: bool,
) -> None:
    """Give the pixels of an image the values of the cells that they are in."""
    side = len(image)
    left, top = np.ceil(corners.real.min(0)), np.ceil(corners.imag.min(0))
    right, bottom = np.floor(corners.real.max(0)), np.floor(corners.imag.max(0))
    top, bottom = np.maximum(top, 0), np.minimum(bottom, side - 1)
    if not is_round:
        left, right = np.maximum(left, 0), np.minimum(right, side - 1)
    seen = (left <= right) & (top <= bottom)
    left, top = (each[seen].astype(np.int64) for each in (left, top))
    wide = right[seen].astype(np.int64) - left + 1
    corners, values = corners[:, seen], values[seen]
    counts = wide * (bottom[seen].astype(np.int64) - top + 1)
    for part in _parts(counts):
        cells = np.repeat(np.arange(part.start, part.stop), counts[part])
        ends = np.cumsum(counts[part])
        numbers = np.arange(len(cells)) - np.repeat(ends - counts[part], counts[part])
        rows, columns = top[cells] + numbers // wide[cells], left[cells] + numbers % wide[cells]
        inside = _are_inside(columns + 1j * rows, corners[:, cells])
        image[rows[inside], columns[inside] % side] = values[cells[inside]]


def _parts(counts: NDArray[np.int64]) -> Iterator[slice]:
    """Cells, so many at once that memory is bounded."""
    ends = np.cumsum(counts)
    if len(ends) and ends[-1] > MOST_TRIED:
        raise InvalidRequestError(
            "there are no tiles: its latitudes and longitudes jump to and fro between neighbours"
        )
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + TRIED_AT_ONCE, "right")))
        yield slice(start, stop)
        start = stop


def _are_inside(points: Places, corners: Places) -> NDArray[np.bool_]:
    """Whether points are inside quadrilaterals: on the same side of all four edges."""
    edges, ways = np.roll(corners, -1, 0) - corners, points - corners
    turns = edges.real * ways.imag - edges.imag * ways.real
    result: NDArray[np.bool_] = (turns.min(0) >= LEAST_TURN) | (turns.max(0) <= -LEAST_TURN)
    return result
