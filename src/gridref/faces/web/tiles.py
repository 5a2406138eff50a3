"""Draw map tiles of an array: WebMercator, 256 pixels a side, colours by value.

Sources: OGC 17-083r4, annex D.1 (WebMercatorQuad); TileJSON 3.0.0; PNG, third edition (W3C).
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.faces.web.levels import Level
from gridref.model.array import VirtualGroup

SIDE = 256
"""Pixels a side."""
MOST_ZOOM = 24
MOST_LATITUDE = math.degrees(math.atan(math.sinh(math.pi)))
OUTSIDE = -1

type Indices = NDArray[np.int64]
type Window = tuple[range, range]
"""Rows and columns of an array; they may have steps."""
type ReadCoordinate = Callable[[str], NDArray[np.float64]]


@dataclass(frozen=True)
class Tile:
    """A tile of the map: its zoom, and its column and row from the north-west."""

    z: int
    x: int
    y: int

    def __post_init__(self) -> None:
        if self.z > MOST_ZOOM or max(self.x, self.y) >= 2**self.z:
            raise InvalidRequestError(
                f"there is no tile {self.z}/{self.x}/{self.y}: zooms are 0 to {MOST_ZOOM}, and"
                " columns and rows are below 2 to the power of the zoom"
            )

    def places(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Longitudes of its columns of pixels and latitudes of its rows, in their middles."""
        middles = (np.arange(SIDE) + 0.5) / SIDE
        east, south = (self.x + middles) / 2**self.z, (self.y + middles) / 2**self.z
        return 360 * east - 180, np.degrees(np.arctan(np.sinh(np.pi * (1 - 2 * south))))

    @property
    def corner(self) -> complex:
        """Its north-west on the map, which is 1 wide and high: column and row as one number."""
        return complex(self.x, self.y) / (1 << self.z)

    @property
    def scale(self) -> int:
        """Pixels that the whole map is wide."""
        return SIDE << self.z


# Which element is at a place


@dataclass(frozen=True, eq=False)
class Axis:
    """The coordinates of a dimension, to find the nearest one.

    Attributes
    ----------
    edges
        Ascending: halfway between two coordinates, and half a step beyond the first and last.
    is_turned
        Whether the coordinates descend.
    """

    edges: NDArray[np.float64]
    is_turned: bool

    @classmethod
    def of(cls, values: NDArray[np.float64], name: str) -> Axis:
        """From coordinates.

        Raises
        ------
        InvalidRequestError
            If they neither ascend nor descend.
        """
        steps = np.diff(values)
        if len(values) < 2 or not ((steps > 0).all() or (steps < 0).all()):
            raise InvalidRequestError(f"there are no tiles: {name} neither ascends nor descends")
        ends = values[:1] - steps[0] / 2, values[-1:] + steps[-1] / 2
        edges = np.concatenate((ends[0], values[:-1] + steps / 2, ends[1]))
        return cls(edges if steps[0] > 0 else edges[::-1], bool(steps[0] < 0))

    def nearest(self, wanted: NDArray[np.float64], circle: float = 0) -> Indices:
        """The element nearest to each place; `OUTSIDE` where there is none."""
        n, first = len(self.edges) - 1, self.edges[0]
        if circle:
            wanted = first + np.mod(wanted - first, circle)
        known = np.where(np.isfinite(wanted), wanted, np.inf)
        found = np.searchsorted(self.edges, known, "right") - 1
        inside = (found >= 0) & (found < n)
        return np.where(inside, n - 1 - found if self.is_turned else found, OUTSIDE)


@dataclass(frozen=True, eq=False)
class Ground:
    """Where the elements of an array are on earth.

    Attributes
    ----------
    dims
        Dimensions of rows and of columns.
    rows, columns
        Their coordinates.
    system
        The text of PROJ that these are in; empty for longitude and latitude.
    units
        What a unit of rows, and of columns, is in the system's.
    circle
        Degrees after which columns come again; 0 where they do not.
    """

    dims: tuple[str, str]
    rows: Axis
    columns: Axis
    system: str = ""
    units: tuple[float, float] = (1.0, 1.0)
    circle: float = 360

    @property
    def nbytes(self) -> int:
        """Size in bytes, for caches."""
        return self.rows.edges.nbytes + self.columns.edges.nbytes

    @classmethod
    def of(cls, group: VirtualGroup, level: Level, read: ReadCoordinate) -> Ground:
        """That of an array.

        Raises
        ------
        InvalidRequestError
            If nothing says where it is, or what says it is not drawn as tiles.
        """
        found = level.grid_axes(group)
        if isinstance(found, str):
            raise InvalidRequestError(f"there are no tiles: {found}")
        paths = [str(level.coordinates[axis]) for axis in found]
        rows, columns = (Axis.of(read(path), path) for path in paths)
        dims = level.dims[found[0]], level.dims[found[1]]
        if level.earth is None or level.is_on_earth(group):
            return cls(dims, rows, columns)
        if "projection" in level.earth:
            up, across = level.earth["units"]
            return cls(dims, rows, columns, level.earth["projection"], (up, across), 0)
        latitude, longitude, turn = level.earth["pole"]
        system = (
            f"+proj=ob_tran +o_proj=longlat +o_lat_p={latitude} +o_lon_p={turn}"
            f" +lon_0={longitude + 180} +datum=WGS84 +no_defs"
        )
        return cls(dims, rows, columns, system)

    def at(self, tile: Tile) -> Nearest:
        """The element nearest to each pixel of a tile."""
        longitudes, latitudes = tile.places()
        if not self.system:
            rows, columns = self.rows.nearest(latitudes), self.columns.nearest(longitudes, 360)
            return Nearest(rows[:, None], columns[None, :])
        xs, ys = _transformed(self.system, *np.meshgrid(longitudes, latitudes))
        up, across = self.units
        rows, columns = self.rows.nearest(ys / up), self.columns.nearest(xs / across, self.circle)
        outside = (rows == OUTSIDE) | (columns == OUTSIDE)
        return Nearest(np.where(outside, OUTSIDE, rows), np.where(outside, OUTSIDE, columns))

    def around(self) -> float:
        """How many elements would be around the earth."""
        west, _, east, _ = self.bounds() if self.system else self.columns.edges[[0, 0, -1, 0]]
        return float(360 * (len(self.columns.edges) - 1) / max(1e-9, east - west))

    def bounds(self) -> list[float]:
        """West, south, east and north of what is shown."""
        west, east = self.columns.edges[0], self.columns.edges[-1]
        south, north = self.rows.edges[0], self.rows.edges[-1]
        if self.system:
            up, across = self.units
            ways = np.linspace(0, 1, 33)
            east_wards, north_wards = west + ways * (east - west), south + ways * (north - south)
            xs, ys = np.meshgrid(across * east_wards, up * north_wards)
            found = _transformed(self.system, xs, ys, back=True)
            known = np.isfinite(found).all(0)
            if not known.any():
                return [-180.0, -MOST_LATITUDE, 180.0, MOST_LATITUDE]
            (west, south), (east, north) = found[:, known].min(1), found[:, known].max(1)
        else:
            turns = 360 * math.floor((west + 180) / 360)
            west, east = west - turns, east - turns
            if east > 180:  # it is on both sides of the date line
                west, east = -180.0, 180.0
        least, most = (-180.0, -MOST_LATITUDE), (180.0, MOST_LATITUDE)
        corners = *np.maximum((west, south), least), *np.minimum((east, north), most)
        return [float(corner) for corner in corners]


@dataclass(frozen=True, eq=False)
class Nearest:
    """The elements nearest to the pixels of a tile.

    Attributes
    ----------
    rows, columns
        Of each pixel, of shapes that broadcast; `OUTSIDE` where there is none.
    """

    rows: Indices
    columns: Indices

    @property
    def windows(self) -> list[Window]:
        """Rows and columns to read; none if no pixel has an element."""
        inside = [found[found != OUTSIDE] for found in (self.rows, self.columns)]
        if not all(map(len, inside)):
            return []
        rows, columns = (range(int(each.min()), int(each.max()) + 1) for each in inside)
        return [(rows, columns)]

    def paint(self, image: NDArray[np.float64], window: Window, values: NDArray[Any]) -> None:
        """Give the pixels of an image the values of a window."""
        places = []
        for found, along in zip((self.rows, self.columns), window, strict=True):
            nearest = (found - along.start + along.step // 2) // along.step
            places.append(np.clip(nearest, 0, len(along) - 1))
        inside = (self.rows != OUTSIDE) & (self.columns != OUTSIDE)
        np.copyto(image, values[tuple(places)], where=inside)


@lru_cache(maxsize=64)
def _transformer(system: str) -> Any:
    from pyproj import Transformer

    return Transformer.from_crs("EPSG:4326", system, always_xy=True)


def _transformed(system: str, xs: Any, ys: Any, *, back: bool = False) -> NDArray[np.float64]:
    """Longitudes and latitudes in a reference system, or back."""
    found = _transformer(system).transform(xs, ys, direction="INVERSE" if back else "FORWARD")
    return np.asarray(found, np.float64)


# Colours


@cache
def scales() -> dict[str, str]:
    """The colour scales of the viewer: 256 colours each, as hexadecimal digits.

    ``make assets`` writes them; without it there is gray.
    """
    file = files(__package__) / "built" / "colours.json"
    gray = "".join(f"{level:02x}" * 3 for level in range(256))
    return {"gray": gray, **(json.loads(file.read_text()) if file.is_file() else {})}


def usual_style() -> str:
    """The colours of tiles that nobody chose any for."""
    return "viridis" if "viridis" in scales() else "gray"


def palette(style: str) -> bytes:
    """255 colours of a style, behind one that stands for no value.

    Raises
    ------
    InvalidRequestError
        If there is no such style.
    """
    name = style.removesuffix("_r")
    if name not in scales():
        raise InvalidRequestError(
            f"there is no style {style!r}: there are {', '.join(sorted(scales()))}, and each"
            " reversed with _r"
        )
    colours = np.frombuffer(bytes.fromhex(scales()[name]), np.uint8).reshape(256, 3)
    chosen = colours[np.arange(255) * 256 // 255]
    return bytes(3) + (chosen[::-1] if style.endswith("_r") else chosen).tobytes()


def coloured(values: NDArray[Any], low: float, high: float) -> NDArray[np.uint8]:
    """Numbers of colours in a `palette`: 0 where there is no value."""
    with np.errstate(invalid="ignore", over="ignore"):
        steps = np.floor((values - low) * (255 / (high - low)))
    known = np.isfinite(values)
    return np.where(known, np.clip(np.nan_to_num(steps), 0, 254) + 1, 0).astype(np.uint8)


def png(pixels: NDArray[np.uint8], colours: bytes) -> bytes:
    """A picture of numbers of colours. The first colour is transparent."""
    height, width = pixels.shape
    lines = np.zeros((height, width + 1), np.uint8)  # each behind the number of its filter: none
    lines[:, 1:] = pixels
    chunks: Sequence[tuple[bytes, bytes]] = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", colours),
        (b"tRNS", b"\0"),
        (b"IDAT", zlib.compress(lines.tobytes(), 1)),
        (b"IEND", b""),
    )
    written = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)
