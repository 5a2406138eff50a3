"""Place georeferenced groups on the pixels of the first one.

`read_raster` reads the position of an input from the ``GeoTransform`` of its grid mapping variable
(GDAL's order: x origin, x step along columns, x step along rows, y origin, y step along columns,
y step along rows) or from its coordinates. `misfit` names what keeps an input off the first one's
pixels. `place_rasters` gives rows and columns, and `overlaps` the inputs that share pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gridref.combine.boxes import Cells
from gridref.combine.values import Values
from gridref.errors import Message, Option
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.reference_systems import direction, geotransform, wkt_of
from gridref.typing import Int64Array

GRID_MAPPING = "spatial_ref"
"""Usual name of the variable whose attributes say where pixels are."""

_SAME_PIXEL = 0.25
"""How far, in pixels, coordinates may be off a transform that means the same pixels."""
_EVEN = 0.05
"""How far, in pixels, evenly spaced coordinates may be off their places, by rounding."""


@dataclass(frozen=True)
class Misfit:
    """Why an input does not fit the others: a short name of the cause, and the reason."""

    cause: str
    message: str


@dataclass(frozen=True)
class Raster:
    """What an input says about its pixels.

    Attributes
    ----------
    x0, y0
        Outer corner of the first pixel, in the units of the coordinate reference system.
    dx, dy
        From a column, and a row, to the next.
    n_rows, n_columns
        Extent in pixels.
    crs
        Coordinate reference system, as WKT.
    labels
        Labels along dimensions beside rows and columns; inputs of different labels do not overlap.
    by_labels
        Whether this is what its coordinates say, and not a ``GeoTransform``.
    number
        The same for all that one input holds.
    """

    name: str
    x0: float
    dx: float
    y0: float
    dy: float
    n_rows: int
    n_columns: int
    crs: str
    labels: tuple[Any, ...] = (None,)
    by_labels: bool = False
    number: int = 0

    @property
    def transform(self) -> str:
        """The ``GeoTransform``."""
        return " ".join(repr(float(n)) for n in (self.x0, self.dx, 0, self.y0, 0, self.dy))

    def moved(self, rows: int, columns: int) -> Raster:
        """The raster that begins so many rows and columns further."""
        return replace(self, x0=self.x0 + columns * self.dx, y0=self.y0 + rows * self.dy)


def mapping_name(group: VirtualGroup, x: str, y: str) -> str:
    """Name of the grid mapping of the arrays with both dimensions."""
    for array in group.arrays.values():
        named = array.attrs.get("grid_mapping")
        if {x, y} <= {*array.dims} and isinstance(named, str) and named in group.arrays:
            return named
    return GRID_MAPPING


def plane_dims(group: VirtualGroup, x: str, y: str) -> tuple[str, str]:
    """What a group calls columns and rows, where not as asked for."""
    if any({x, y} <= {*array.dims} for array in group.arrays.values()):
        return x, y
    index = {n: direction(a.attrs) for n, a in group.arrays.items() if a.dims == (n,)}
    found = {way: name for name, way in reversed(index.items())}
    return found.get("x", x), found.get("y", y)


def read_raster(
    group: VirtualGroup, name: str, x: str, y: str, values: Values | None = None
) -> Raster | Misfit:
    """Read the georeference of an input, along the dimensions `x` and `y`.

    Where its coordinates are at other places than its ``GeoTransform`` says, or there is none, the
    coordinates count: GDAL writes the rows of NetCDF files from south to north under a transform
    that goes the other way.
    """
    shape = next(
        (
            (array.shape[array.dims.index(y)], array.shape[array.dims.index(x)])
            for array in group.arrays.values()
            if x in array.dims and y in array.dims
        ),
        None,
    )
    mapping = group.arrays.get(mapping_name(group, x, y))
    attrs = {} if mapping is None else mapping.attrs
    numbers = geotransform(attrs)
    labels = [_ends(group.arrays.get(dim), values) for dim in (x, y)]
    crs = wkt_of(attrs)
    if shape is not None and numbers is not None:
        x0, dx, skew_x, y0, skew_y, dy = numbers
        raster = Raster(name, x0, dx, y0, dy, shape[0], shape[1], crs)
        if skew_x or skew_y or not dx or not dy:
            return Misfit("rotated", "its pixels are rotated against the axes; warp it first")
        if None in labels or _agree(raster, labels):
            return raster
    if shape is None or None in labels:
        message = f"it has no variable along {y} and {x} with a georeference"
        inside = [
            own
            for own, part in group.groups.items()
            if any({x, y} <= {*array.dims} for array in part.arrays.values())
        ]
        if inside:
            message += (
                f", its groups have ({', '.join(inside[:3])}): give the files of their images"
            )
        return Misfit("not-georeferenced", message)
    return _of_labels(group, name, (x, y), values, crs)


def _ends(array: VirtualArray | None, values: Values | None) -> tuple[float, float] | None:
    """The first and last label of an axis with several; None if they are unknown."""
    if array is None or values is None or array.ndim != 1 or array.dtype.kind not in "iuf":
        return None
    if array.shape[0] < 2 or not values.available(array):
        return None
    held = values.of(array)
    return float(held[0]), float(held[-1])


def _agree(raster: Raster, labels: Sequence[tuple[float, float] | None]) -> bool:
    """Whether labels are on the centres of a raster's pixels."""
    axes = (
        (raster.x0, raster.dx, raster.n_columns),
        (raster.y0, raster.dy, raster.n_rows),
    )
    return all(
        abs(first - (start + 0.5 * step)) <= _SAME_PIXEL * abs(step)
        and abs(last - (start + (n - 0.5) * step)) <= _SAME_PIXEL * abs(step)
        for (start, step, n), (first, last) in zip(axes, filter(None, labels), strict=True)
    )


def _of_labels(
    group: VirtualGroup, name: str, dims: tuple[str, str], values: Values | None, crs: str
) -> Raster | Misfit:
    """The position of an input by its labels, which have to be evenly spaced."""
    starts, steps, counts = [], [], []
    for dim in dims:
        assert values is not None
        labels = values.of(group.arrays[dim]).astype(np.float64)
        step = float(labels[-1] - labels[0]) / (len(labels) - 1)
        off = np.abs(labels - (labels[0] + step * np.arange(len(labels)))).max()
        if not step or not off <= _EVEN * abs(step):
            message = Message(
                f"its labels along {dim!r} are not evenly spaced: they deviate by up to"
                f" {off / abs(step) if step else np.inf:.3g} pixels; combine the files by their "
                "labels instead (",
                Option("concat_dim", [dims[1], dims[0]]),
                ")",
            )
            return Misfit("off-grid", message)
        starts.append(float(labels[0]) - 0.5 * step)
        steps.append(step)
        counts.append(len(labels))
    (x0, y0), (dx, dy), (n_columns, n_rows) = starts, steps, counts
    return Raster(name, x0, dx, y0, dy, n_rows, n_columns, crs, by_labels=True)


def misfit(first: Raster, raster: Raster, tolerance: float) -> Misfit | None:
    """Why a raster does not fit the first one's pixels; None if it does.

    Parameters
    ----------
    tolerance
        How far pixels may be off each other, in pixels.
    """
    if raster.crs != first.crs:
        message = Message(
            f"its coordinate reference system is {_crs_name(raster.crs)}; "
            f"{first.name} has {_crs_name(first.crs)}; ",
            Option("grids", "groups"),
            " gives each a group",
        )
        return Misfit("crs-differs", message)
    drift_x = abs(raster.dx / first.dx - 1) * raster.n_columns
    drift_y = abs(raster.dy / first.dy - 1) * raster.n_rows
    if max(drift_x, drift_y) > tolerance:
        message = Message(
            f"its pixels are {raster.dx:.12g} by {raster.dy:.12g}, those of "
            f"{first.name} {first.dx:.12g} by {first.dy:.12g}: over its extent that "
            f"is {max(drift_x, drift_y):.3g} pixels; ",
            Option("grids", "groups"),
            " gives each a group",
        )
        return Misfit("resolution-differs", message)
    row, column = _offset(first, raster)
    off_row, off_column = abs(row - round(row)), abs(column - round(column))
    if max(off_row, off_column) > tolerance:
        message = Message(
            f"it is {off_column:.3g} columns and {off_row:.3g} rows off the pixels of "
            f"{first.name}; the tolerance is {tolerance:g}; ",
            Option("grids", "groups"),
            " gives each grid a group",
        )
        return Misfit("off-grid", message)
    return None


def _crs_name(wkt: str) -> str:
    """The name in a WKT: what stands between its first quotes."""
    parts = wkt.split('"', 2)
    return repr(parts[1]) if len(parts) > 1 else "unknown"


def _offset(first: Raster, raster: Raster) -> tuple[float, float]:
    """Rows and columns from the first raster's corner to another one's."""
    return (raster.y0 - first.y0) / first.dy, (raster.x0 - first.x0) / first.dx


def place_rasters(first: Raster, rasters: Sequence[Raster]) -> tuple[Int64Array, tuple[int, int]]:
    """Rows and columns of rasters, counted from the outermost pixel of all.

    Returns
    -------
    tuple
        int64 (n, 2, 2): the first row and the one after the last, and these of columns; and the row
        and column of that outermost pixel on the first one's grid.
    """
    offsets = [_offset(first, raster) for raster in rasters]
    starts = np.array([(round(row), round(column)) for row, column in offsets], np.int64)
    sizes = np.array([(raster.n_rows, raster.n_columns) for raster in rasters], np.int64)
    top, left = map(int, starts.min(axis=0))
    starts -= (top, left)
    return np.stack([starts, starts + sizes], axis=2), (top, left)


def side_by_side(spans: Int64Array) -> Int64Array:
    """Rasters of the same sizes that share nothing, in one row."""
    sizes = spans[..., 1] - spans[..., 0]
    stops = np.stack([sizes[:, 0], np.cumsum(sizes[:, 1])], axis=1)
    return np.stack([stops - sizes, stops], axis=2)


def overlaps(spans: Int64Array, inputs: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Rasters that share pixels with an earlier one, of another input.

    Rows 0..4 and 3..7 share row 3: their edges are the lines 0, 3, 4, 7, the first takes the cells
    0..3 and 3..4, the second finds the cell 3..4 taken.

    Parameters
    ----------
    spans
        As `place_rasters` gives them.

    Returns
    -------
    list of tuple
        Number of the raster, that of an earlier one, and how many rows and columns they share.

    Raises
    ------
    InvalidRequestError
        If edges make too many cells to look at.
    """
    cells = Cells.of(spans, np.array(inputs), spans[..., 1].max(axis=0).tolist())
    found = []
    for number, other in cells.clashes:
        both = spans[[number, other]]
        shared = both[..., 1].min(axis=0) - both[..., 0].max(axis=0)
        found.append((number, other, int(shared[0]), int(shared[1])))
    return found
