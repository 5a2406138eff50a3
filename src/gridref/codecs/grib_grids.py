"""The grid of a GRIB message: its shape, its scanning, and where its points are.

`read_grid` takes a grid section as it is in the file, of either edition, and returns a `Grid`. Its
arrays have rows first, in the order of scanning: what a file scans first comes first.

Sources: WMO Manual on Codes I.2, FM 92 GRIB: edition 1, section 2 with code tables 6 to 8, and
edition 2, section 3 with templates 3.N, code tables 3.1, 3.2, 3.4. Names are those of eccodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.limits import beyond, limits

type Floats = NDArray[np.float64]

_MISSING = 0xFFFFFFFF
_KINDS = {
    0: "regular_ll",
    1: "rotated_ll",
    10: "mercator",
    20: "polar_stereographic",
    30: "lambert",
    40: "regular_gg",
    41: "rotated_gg",
    101: "unstructured_grid",
    140: "lambert_azimuthal_equal_area",
    150: "healpix",
}
_KINDS_1 = {0: 0, 1: 10, 3: 30, 4: 40, 5: 20, 10: 1, 14: 41}
"""Template of edition 2 for each kind of edition 1."""
_SPECTRAL = {2: (50, 51, 52, 53), 1: (50, 60, 70, 80)}
_EARTHS = {
    0: (6367470.0, 6367470.0),
    2: (6378160.0, 6356775.0),
    4: (6378137.0, 6356752.314140356),
    5: (6378137.0, 6356752.314245179),
    6: (6371229.0, 6371229.0),
    8: (6371200.0, 6371200.0),
    9: (6377563.396, 6356256.909),
}
"""Axes in metres by code table 3.2; 1, 3 and 7 state them."""

I_NEGATIVE, J_POSITIVE, J_CONSECUTIVE, ALTERNATING = 0x80, 0x40, 0x20, 0x10
"""Bits of the scanning mode, flag table 3.4."""
_OFFSET = 0x0F
"""Bits of rows that begin half a step later, or have a point less."""
_WHOLE = 0.1
"""So many degrees may rounding take from a whole circle."""
DEGREES = ("regular_ll", "regular_gg")
"""Grids whose axes are latitudes and longitudes."""


class GridError(ValueError):
    """A grid section that is damaged."""


class UnknownGridError(GridError):
    """A grid of a kind that is not read."""


def signed(raw: bytes) -> int:
    """An integer whose first bit is its sign, as all of GRIB has them."""
    value = int.from_bytes(raw, "big")
    top = 1 << (8 * len(raw) - 1)
    return top - value if value & top else value


def ibm_float(raw: bytes) -> float:
    """A float of IBM/360, 32 bits."""
    mantissa = int.from_bytes(raw[1:4], "big")
    value = math.ldexp(mantissa, 4 * ((raw[0] & 0x7F) - 64) - 24)
    return -value if raw[0] & 0x80 else value


@dataclass(frozen=True)
class Grid:
    """A grid.

    Attributes
    ----------
    kind
        As eccodes names it: ``"regular_ll"``, ``"lambert"``, ``"reduced_gg"``.
    shape
        Rows and columns; the number of cells where there are no rows of one length.
    scanning
        Flag table 3.4.
    first, last
        Latitude and longitude of the first and the last point, in degrees; of rotated grids in
        their own system.
    spacing
        Metres between the points of a row, and between rows; of projections only.
    n_gaussian
        Parallels between a pole and the equator.
    row_lengths
        Points in each row of a reduced grid.
    axes_of_earth
        Equatorial and polar radius in metres.
    projection
        PROJ parameters of a projection or of a rotated pole.
    """

    kind: str
    shape: tuple[int, ...]
    scanning: int = 0
    first: tuple[float, float] = (0.0, 0.0)
    last: tuple[float, float] = (0.0, 0.0)
    spacing: tuple[float, float] = (0.0, 0.0)
    n_gaussian: int = 0
    row_lengths: tuple[int, ...] = ()
    axes_of_earth: tuple[float, float] = _EARTHS[6]
    projection: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_points(self) -> int:
        """Number of points."""
        return math.prod(self.shape)

    @property
    def has_places(self) -> bool:
        """Whether the section says where the points are."""
        return self.kind not in ("unstructured_grid", "healpix")

    def in_rows(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values in the order of the file as an array of rows."""
        if len(self.shape) == 1:
            return values
        n_rows, n_columns = self.shape
        if self.scanning & J_CONSECUTIVE:
            rows = values.reshape(n_columns, n_rows).T
            odd = (slice(None), slice(1, None, 2))
            flipped = (slice(None, None, -1), slice(1, None, 2))
        else:
            rows = values.reshape(n_rows, n_columns)
            odd = (slice(1, None, 2), slice(None))
            flipped = (slice(1, None, 2), slice(None, None, -1))
        if self.scanning & ALTERNATING:
            rows = rows.copy()
            rows[odd] = rows[flipped]
        return rows

    def axes(self) -> tuple[Floats, Floats]:
        """Coordinates of the rows and of the columns: degrees, or metres of the projection."""
        n_rows, n_columns = self.shape
        if self.spacing == (0.0, 0.0):
            if self.n_gaussian:
                rows = self._parallels()
            else:
                rows = np.linspace(self.first[0], self.last[0], n_rows)
            return rows, self._meridians(n_columns)
        x, y = self.transformer().transform(self.first[1], self.first[0])
        right = -1 if self.scanning & I_NEGATIVE else 1
        up = 1 if self.scanning & J_POSITIVE else -1
        return (
            y + up * self.spacing[1] * np.arange(n_rows),
            x + right * self.spacing[0] * np.arange(n_columns),
        )

    def latitudes_longitudes(self) -> tuple[Floats, Floats]:
        """Degrees of each point, in the shape of the grid; longitudes from 0 to 360."""
        y: Floats
        x: Floats
        if self.row_lengths:
            rows = self._parallels() if self.n_gaussian else self._reduced_rows()
            lengths = np.array(self.row_lengths)
            within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            longitudes = self.first[1] + within * np.repeat(self._steps(lengths), lengths)
            y, x = np.repeat(rows, lengths), longitudes % 360
        else:
            y, x = np.meshgrid(*self.axes(), indexing="ij")
        if not self.projection:
            return y, x
        longitudes, latitudes = self.transformer().transform(x, y, direction="INVERSE")
        return latitudes, longitudes % 360

    def transformer(self) -> Any:
        """From longitudes and latitudes in degrees to the coordinates of the axes."""
        return _transformer(tuple(self.crs_parameters().items()))

    def crs_parameters(self) -> dict[str, Any]:
        """PROJ parameters of the system of the axes."""
        a, b = self.axes_of_earth
        found: dict[str, Any] = {"proj": "longlat", "no_defs": True, **self.projection}
        found |= {"R": a} if a == b else {"a": a, "b": b}
        return found

    def _parallels(self) -> Floats:
        n_rows = len(self.row_lengths) or self.shape[0]
        every = gaussian_latitudes(self.n_gaussian)
        if self.scanning & J_POSITIVE:
            every = every[::-1]
        start = int(np.argmin(np.abs(every - self.first[0])))
        if abs(every[start] - self.first[0]) > 0.5 * 90 / self.n_gaussian:
            raise GridError(f"no Gaussian parallel is near its first latitude, {self.first[0]}")
        if start + n_rows > len(every):
            raise GridError(f"it has {n_rows} rows, more than Gaussian parallels")
        return every[start : start + n_rows]

    def _reduced_rows(self) -> Floats:
        return np.linspace(self.first[0], self.last[0], len(self.row_lengths))

    def _steps(self, lengths: NDArray[np.int64]) -> Floats:
        """Degrees between the points of each row of a reduced grid.

        Rows of degrees that are no whole circle go from the first to the last longitude, as those
        of the World Area Forecast System do.
        """
        span = (self.last[1] - self.first[1]) % 360
        if self.n_gaussian or span + 360 / lengths.max() > 360 - _WHOLE:
            return 360 / np.maximum(lengths, 1)
        return span / np.maximum(lengths - 1, 1)

    def _meridians(self, n_columns: int) -> Floats:
        """Monotonic; from 0 to 360 where the grid does not cross 0."""
        first, last = self.first[1], self.last[1]
        is_circle = first == last and n_columns > 1  # its last column repeats the first one
        if self.scanning & I_NEGATIVE:
            last -= 360 if last > first or is_circle else 0
        elif last < first or (is_circle and first):
            first -= 360
        elif is_circle:
            last += 360
        return np.linspace(first, last, n_columns)


@lru_cache(maxsize=16)
def _transformer(parameters: tuple[tuple[str, Any], ...]) -> Any:
    import pyproj

    system = dict(parameters)
    earth = {name: value for name, value in parameters if name in ("R", "a", "b", "no_defs")}
    base = pyproj.CRS.from_dict({"proj": "longlat", **earth})
    crs = pyproj.CRS.from_dict(system)
    return pyproj.Transformer.from_crs(base, crs, always_xy=True)


@lru_cache(maxsize=8)
def gaussian_latitudes(n: int) -> Floats:
    """Latitudes of the 2 n Gaussian parallels in degrees, from north to south.

    They are the zeros of the Legendre polynomial of degree 2 n, found by Newton's method from
    Tricomi's approximation. They equal those of eccodes to 1e-9.
    """
    if not 0 < n <= limits().gaussian_parallels:
        said = f"it has {n} Gaussian parallels between a pole and the equator"
        raise GridError(beyond("gaussian_parallels", said) if n > 0 else said)
    degree = 2 * n
    theta = np.pi * (4 * np.arange(1, n + 1) - 1) / (4 * degree + 2)
    x = (1 - (degree - 1) / (8 * degree**3)) * np.cos(theta)
    for _ in range(4):
        before, now = np.ones(n), x
        for k in range(2, degree + 1):
            before, now = now, ((2 * k - 1) * x * now - (k - 1) * before) / k
        x = x - now * (x * x - 1) / (degree * (x * now - before))
    north = np.degrees(np.arcsin(x))
    return np.concatenate([north, -north[::-1]])


# Grid sections


def read_grid(section: bytes, edition: int) -> Grid:
    """The grid of section 3 of edition 2, or section 2 of edition 1.

    Raises
    ------
    UnknownGridError
        If it is of a kind that is not read.
    GridError
        If it is damaged.
    """
    try:
        grid = _read_2(section) if edition == 2 else _read_1(section)
    except IndexError as error:
        raise GridError("its section is cut off") from error
    offsets = _OFFSET if edition == 2 else 0
    turned = I_NEGATIVE | J_CONSECUTIVE | ALTERNATING if grid.row_lengths else 0
    if grid.scanning & (offsets | turned):
        raise UnknownGridError(f"its scanning mode {grid.scanning:#x} is not read on such a grid")
    if min(grid.shape) < 1:
        raise GridError(f"it has the shape {grid.shape}")
    return grid


class _Octets:
    """Numbers in a section; octets count from 1, as in the manual."""

    def __init__(self, section: bytes) -> None:
        self.section = section

    def raw(self, first: int, last: int) -> bytes:
        if last > len(self.section):
            raise IndexError(last)
        return self.section[first - 1 : last]

    def unsigned(self, first: int, last: int) -> int:
        return int.from_bytes(self.raw(first, last), "big")

    def signed(self, first: int, last: int) -> int:
        return signed(self.raw(first, last))


def _known(template: int, edition: int) -> str:
    if template in _SPECTRAL[edition]:
        raise UnknownGridError("spherical harmonics are not read: transform it to a grid first")
    number = template if edition == 2 else _KINDS_1.get(template, -1)
    if number not in _KINDS:
        raise UnknownGridError(f"its grid is of a kind that is not read, {template}")
    return _KINDS[number]


def _read_2(section: bytes) -> Grid:
    octets = _Octets(section)
    kind = _known(octets.unsigned(13, 14), 2)
    n_points = octets.unsigned(7, 10)
    if kind in ("unstructured_grid", "healpix"):
        return Grid(kind, (n_points,))
    earth = _earth_2(octets)
    n_columns, n_rows = octets.unsigned(31, 34), octets.unsigned(35, 38)
    if kind in ("regular_ll", "rotated_ll", "regular_gg", "rotated_gg"):
        angle, parts = octets.unsigned(39, 42), octets.unsigned(43, 46)
        unit = angle / parts if angle and 0 < parts < _MISSING else 1e-6
        rotated = kind.startswith("rotated")
        end = 84 if rotated else 72
        pole: tuple[float, ...] = ()
        if rotated:
            rotation = float(np.frombuffer(octets.raw(81, 84), ">f4")[0])
            pole = (octets.signed(73, 76) * unit, octets.signed(77, 80) * unit, rotation)
        return _of_degrees(
            kind,
            (n_rows, n_columns),
            n_points,
            scanning=octets.unsigned(72, 72),
            first=(octets.signed(47, 50) * unit, octets.signed(51, 54) * unit),
            last=(octets.signed(56, 59) * unit, octets.signed(60, 63) * unit),
            n_gaussian=octets.unsigned(68, 71),
            row_lengths=_list_2(octets, end, n_rows) if n_columns == _MISSING else (),
            pole=pole,
            earth=earth,
        )
    degree = 1e-6
    at = {"mercator": (60, 65), "lambert_azimuthal_equal_area": (64, 56)}.get(kind, (65, 56))
    first = (octets.signed(39, 42) * degree, octets.signed(43, 46) * degree)
    projection: dict[str, Any]
    if kind == "mercator":
        projection = {"proj": "merc", "lat_ts": octets.signed(48, 51) * degree}
        if octets.unsigned(61, 64):
            raise UnknownGridError("its Mercator grid is rotated, which is not read")
    elif kind == "lambert_azimuthal_equal_area":
        projection = {
            "proj": "laea",
            "lat_0": octets.signed(47, 50) * degree,
            "lon_0": octets.signed(51, 54) * degree,
        }
    else:
        lad, lov = octets.signed(48, 51) * degree, octets.signed(52, 55) * degree
        south = bool(octets.unsigned(64, 64) & 0x80)
        if kind == "lambert":
            latin = octets.signed(66, 69) * degree, octets.signed(70, 73) * degree
            projection = _conic(latin, lad, lov)
        else:
            projection = _polar(lad, lov, south)
    unit = 1e-3
    spacing = octets.unsigned(at[1], at[1] + 3) * unit, octets.unsigned(at[1] + 4, at[1] + 7) * unit
    return _of_projection(
        kind, (n_rows, n_columns), octets.unsigned(at[0], at[0]), first, spacing, projection, earth
    )


def _earth_2(octets: _Octets) -> tuple[float, float]:
    shape = octets.unsigned(15, 15)
    if shape == 1:
        radius = octets.unsigned(17, 20) / 10.0 ** octets.signed(16, 16)
        axes = radius, radius
    elif shape in (3, 7):
        unit = 1000.0 if shape == 3 else 1.0
        axes = (
            unit * octets.unsigned(22, 25) / 10.0 ** octets.signed(21, 21),
            unit * octets.unsigned(27, 30) / 10.0 ** octets.signed(26, 26),
        )
    else:
        axes = _EARTHS.get(shape, _EARTHS[6])
    if not all(1e6 < axis < 1e8 for axis in axes):
        raise GridError(f"its Earth has the radii {axes} m")
    return axes


def _list_2(octets: _Octets, end: int, n_rows: int) -> tuple[int, ...]:
    width = octets.unsigned(11, 11)
    if width not in (1, 2, 4):
        raise GridError("it has no lengths of its rows")
    raw = octets.raw(end + 1, end + n_rows * width)
    return tuple(np.frombuffer(raw, f">u{width}").tolist())


def _read_1(section: bytes) -> Grid:
    octets = _Octets(section)
    kind = _known(octets.unsigned(6, 6), 1)
    degree = 1e-3
    n_columns, n_rows = octets.unsigned(7, 8), octets.unsigned(9, 10)
    first = (octets.signed(11, 13) * degree, octets.signed(14, 16) * degree)
    flags, scanning = octets.unsigned(17, 17), octets.unsigned(28, 28)
    earth = _EARTHS[2 if flags & 0x40 else 0]
    if kind in ("regular_ll", "rotated_ll", "regular_gg", "rotated_gg"):
        pole: tuple[float, ...] = ()
        if kind.startswith("rotated"):
            rotation = ibm_float(octets.raw(39, 42))
            pole = (octets.signed(33, 35) * degree, octets.signed(36, 38) * degree, rotation)
        lengths: tuple[int, ...] = ()
        if n_columns == 0xFFFF:
            start = octets.unsigned(5, 5) + 4 * octets.unsigned(4, 4)
            lengths = tuple(
                np.frombuffer(octets.raw(start, start + 2 * n_rows - 1), ">u2").tolist()
            )
        return _of_degrees(
            kind,
            (n_rows, n_columns),
            sum(lengths) or n_rows * n_columns,
            scanning=scanning,
            first=first,
            last=(octets.signed(18, 20) * degree, octets.signed(21, 23) * degree),
            n_gaussian=octets.unsigned(26, 27),
            row_lengths=lengths,
            pole=pole,
            earth=earth,
        )
    if kind == "mercator":
        projection: dict[str, Any] = {"proj": "merc", "lat_ts": octets.signed(24, 26) * degree}
        spacing = octets.unsigned(29, 31) * 1.0, octets.unsigned(32, 34) * 1.0
    else:
        lov = octets.signed(18, 20) * degree
        spacing = octets.unsigned(21, 23) * 1.0, octets.unsigned(24, 26) * 1.0
        south = bool(octets.unsigned(27, 27) & 0x80)
        if kind == "lambert":
            latin = octets.signed(29, 31) * degree, octets.signed(32, 34) * degree
            projection = _conic(latin, latin[0], lov)
        else:
            projection = _polar(-60.0 if south else 60.0, lov, south)
    return _of_projection(kind, (n_rows, n_columns), scanning, first, spacing, projection, earth)


def _of_degrees(
    kind: str,
    shape: tuple[int, int],
    n_points: int,
    *,
    scanning: int,
    first: tuple[float, float],
    last: tuple[float, float],
    n_gaussian: int,
    row_lengths: tuple[int, ...],
    pole: tuple[float, ...],
    earth: tuple[float, float],
) -> Grid:
    """A grid along parallels and meridians, which may be rotated or reduced."""
    if row_lengths:
        kind = f"reduced_{kind.removeprefix('regular_')}"
        if sum(row_lengths) != n_points:
            raise UnknownGridError("parts of reduced grids are not read")
    elif math.prod(shape) != n_points:
        raise GridError(f"it has {n_points} points in {shape[0]} rows of {shape[1]}")
    projection: dict[str, Any] = {}
    if pole:
        if pole[2]:
            raise UnknownGridError("grids that are rotated about their pole are not read")
        projection = {
            "proj": "ob_tran",
            "o_proj": "longlat",
            "o_lat_p": -pole[0],
            "o_lon_p": 0.0,
            "lon_0": pole[1],
        }
    return Grid(
        kind,
        (n_points,) if row_lengths else shape,
        scanning,
        first,
        last,
        n_gaussian=n_gaussian if kind.endswith("gg") else 0,
        row_lengths=row_lengths,
        axes_of_earth=earth,
        projection=projection,
    )


def _of_projection(
    kind: str,
    shape: tuple[int, int],
    scanning: int,
    first: tuple[float, float],
    spacing: tuple[float, float],
    projection: dict[str, Any],
    earth: tuple[float, float],
) -> Grid:
    if not all(spacing):
        raise GridError("its points are 0 m apart")
    return Grid(
        kind,
        shape,
        scanning,
        first,
        spacing=spacing,
        axes_of_earth=earth,
        projection=projection,
    )


def _conic(latin: tuple[float, float], latitude: float, meridian: float) -> dict[str, Any]:
    return {
        "proj": "lcc",
        "lat_1": latin[0],
        "lat_2": latin[1],
        "lat_0": latitude,
        "lon_0": meridian,
    }


def _polar(latitude: float, meridian: float, south: bool) -> dict[str, Any]:
    pole = -90.0 if south else 90.0
    return {"proj": "stere", "lat_0": pole, "lat_ts": latitude, "lon_0": meridian}
