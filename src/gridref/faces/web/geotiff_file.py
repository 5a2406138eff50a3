"""Write a part of an array on a regular, georeferenced grid as a GeoTIFF file.

Rows begin in the north and columns in the west, whichever way the array runs. Dimensions besides
these are bands. Stored numbers stay as they are; scale, offset, units and nodata are stated as GDAL
has them.

Sources: GDAL's raster data model; CF conventions 1.11, 4 to 5.6, 8.1 and appendix F.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.extras import missing_package
from gridref.faces.web.download import NotHereError, Selected
from gridref.faces.web.earth import earth_of, reference_system
from gridref.faces.web.levels import Level
from gridref.faces.web.meaning import NUMBERS, Meaning
from gridref.faces.web.part import GoesOn, Labels, Part, ReadLabels, RefusedError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import MissingValues, compass_of, meant_dtype, text_of
from gridref.serve.reader import Reader

MOST_BANDS = 4096
_TOLERANCE = 0.01
"""Of a step: how far a coordinate of a regular grid may be from its place."""
_WGS_84 = "EPSG:4326"
"""Of latitudes and longitudes without a grid mapping."""
_POINTS = 9
"""Along a side, at which two reference systems are compared."""
_TILED_FROM = 256
"""Rows or columns; smaller pictures are stored in strips."""

type Transform = tuple[float, float, float, float, float, float]


@dataclass(frozen=True)
class Raster:
    """A part of an array as a raster.

    Attributes
    ----------
    rows, columns
        Its dimensions of rows and columns, by their numbers in the array.
    turned
        Whether rows, and columns, run the other way in the file.
    transform
        From columns and rows to coordinates, in GDAL's order: ``x = t[0] + t[1] column``,
        ``y = t[3] + t[5] row``.
    system
        The reference system, as WKT.
    """

    part: Part
    rows: int
    columns: int
    turned: tuple[bool, bool]
    transform: Transform
    system: str
    bands: tuple[str, ...]

    @classmethod
    def of(cls, group: VirtualGroup, selected: Selected, labels: ReadLabels) -> Raster:
        """Plan the file.

        Parameters
        ----------
        group
            The root group.
        selected
            The part.
        labels
            Reads the labels of a dimension.

        Raises
        ------
        InvalidRequestError
            If the part is not on a regular grid, or GeoTIFF cannot say where that is.
        RefusedError
            If it has too many bands.
        NotHereError
            Without rasterio.
        """
        try:
            import rasterio  # noqa: F401
        except ImportError as error:
            raise NotHereError.of(missing_package("writing GeoTIFF", error)) from error
        part = selected.part
        if part.array.dtype.kind not in NUMBERS or part.array.dtype.itemsize > 8:
            raise _refused(f"values are {part.array.dtype}")
        level = Level.of(group, part.path)
        rows, columns = _sides(group, level)
        for axis in (rows, columns):
            if axis not in part.axes:
                raise _refused(f"along {part.array.dims[axis]} it needs a range, like 10:20 or :")
        earth = earth_of(group, part.path) or {}
        up, across = earth.get("units", (1.0, 1.0))
        top, height = _edges(part, rows, labels(rows))
        left, width = _edges(part, columns, labels(columns))
        is_south_first, is_east_first = height > 0, width < 0
        first_row = top + height * len(part.along(rows)) if is_south_first else top
        first_column = left + width * len(part.along(columns)) if is_east_first else left
        transform = (
            first_column * across,
            abs(width) * across,
            0.0,
            first_row * up,
            0.0,
            -abs(height) * up,
        )
        named = level.coordinates[rows]
        is_geographic = named is not None and compass_of(group[named].attrs) == "N"
        stated = reference_system(group, part.path, is_geographic=is_geographic) or _WGS_84
        size = len(part.along(columns)), len(part.along(rows))
        system = _kept_system(stated, transform, size)
        bands = _bands(part, (rows, columns), labels)
        return cls(part, rows, columns, (is_south_first, is_east_first), transform, system, bands)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.part.along(self.rows)), len(self.part.along(self.columns))

    def write(self, path: str, reader: Reader, goes_on: GoesOn) -> None:
        """Write the file.

        Raises
        ------
        ReadError
            If a chunk cannot be read.
        """
        import rasterio
        from rasterio.windows import Window

        numbers = _Numbers.of(self.part.array)
        height, width = self.shape
        is_tiled = min(height, width) >= _TILED_FROM
        options = {"tiled": True, "blockxsize": 256, "blockysize": 256} if is_tiled else {}
        if numbers.dtype.itemsize > 1:
            options["predictor"] = 3 if numbers.dtype.kind == "f" else 2
        with rasterio.open(
            path,
            "w",
            driver="GTiff",
            height=height,
            width=width,
            count=len(self.bands),
            dtype=numbers.dtype.name,
            crs=rasterio.crs.CRS.from_wkt(self.system),
            transform=rasterio.Affine.from_gdal(*self.transform),
            nodata=numbers.nodata,
            compress="deflate",
            zlevel=1,
            interleave="band",
            bigtiff="if_safer",
            **options,
        ) as file:
            self._describe(file)
            for places, values in self.part.pieces(reader, goes_on):
                at, (y, x), planes = self._placed(places, numbers.written(values))
                window = Window(x.start, y.start, x.stop - x.start, y.stop - y.start)
                file.write(planes, indexes=at, window=window)

    def _describe(self, file: Any) -> None:
        attrs, meaning = self.part.array.attrs, Meaning.of(self.part.array)
        n = len(self.bands)
        file.descriptions = self.bands
        file.scales, file.offsets = (meaning.scale,) * n, (meaning.offset,) * n
        file.units = (text_of(attrs, "units"),) * n
        names = ("long_name", "standard_name", "units")
        file.update_tags(**{name: text_of(attrs, name) for name in names if text_of(attrs, name)})

    def _placed(
        self, places: Sequence[slice], values: NDArray[Any]
    ) -> tuple[list[int], tuple[slice, slice], NDArray[Any]]:
        """Numbers of bands, rows and columns of the file, and (bands, rows, columns) of values."""
        axes, shape = self.part.axes, self.part.shape
        sides = [axes.index(self.rows), axes.index(self.columns)]
        others = [n for n in range(len(axes)) if n not in sides]
        numbers = np.arange(len(self.bands)).reshape([shape[n] for n in others])
        at = numbers[tuple(places[n] for n in others)].ravel() + 1
        planes = values.transpose(*others, *sides)
        planes = planes.reshape(len(at), *planes.shape[len(others) :])
        windows = []
        for number, (side, is_turned) in enumerate(zip(sides, self.turned, strict=True)):
            start, stop, _ = places[side].indices(shape[side])
            if is_turned:
                start, stop = shape[side] - stop, shape[side] - start
                planes = np.flip(planes, 1 + number)
            windows.append(slice(start, stop))
        return at.tolist(), (windows[0], windows[1]), np.ascontiguousarray(planes)


def _refused(why: str) -> InvalidRequestError:
    return InvalidRequestError(f"this cannot be a GeoTIFF: {why}; NetCDF holds any array")


# Where the grid is


def may_be_raster(group: VirtualGroup, path: str) -> bool:
    """Whether dimensions of an array have coordinates on earth, as far as is known unread."""
    try:
        _sides(group, Level.of(group, path))
    except InvalidRequestError:
        return False
    return True


def _sides(group: VirtualGroup, level: Level) -> tuple[int, int]:
    """The dimensions of rows and columns."""
    if len(level.dims) < 2:
        raise _refused("it has no rows and columns")
    if level.has_own_places(group):
        raise _refused("its latitudes and longitudes are two-dimensional, so that it is no raster")
    found = level.grid_axes(group)
    if isinstance(found, str):
        raise _refused(found)
    return found


def _edges(part: Part, axis: int, labels: Labels | None) -> tuple[float, float]:
    """The outer edge of the first element, and the step to the next one."""
    dim, along = part.array.dims[axis], part.along(axis)
    values = None if labels is None else labels.values
    if values is None or len(values) < 2:
        raise _refused(f"dimension {dim} has no two coordinates that say how large an element is")
    if len(along) > 1:
        chosen = values[along.start : along.stop : along.step]
        step = (chosen[-1] - chosen[0]) / (len(chosen) - 1)
    else:
        chosen = values[max(0, along.start - 1) :][:2]
        step = float(chosen[1] - chosen[0])
    even = chosen[0] + step * np.arange(len(chosen))
    is_even = (abs(chosen - even) <= _TOLERANCE * abs(step)).all()
    if not (np.isfinite(step) and step != 0 and is_even):
        raise _refused(f"the coordinates of {dim} are not evenly spaced")
    return float(values[along.start] - step / 2), float(step)


@lru_cache(maxsize=64)
def _kept_system(stated: str, transform: Transform, size: tuple[int, int]) -> str:
    """The reference system as WKT, if GeoTIFF keeps it.

    GeoTIFF has keys for many projections, not for all. The system that is read back
    from a file must put its pixels where they were.
    """
    import rasterio
    from pyproj import CRS, Transformer
    from pyproj.exceptions import ProjError

    try:
        system = CRS.from_user_input(stated)
        wkt = system.to_wkt()
        with rasterio.MemoryFile() as memory:
            given = {"driver": "GTiff", "width": 1, "height": 1, "count": 1, "dtype": "uint8"}
            with memory.open(crs=rasterio.crs.CRS.from_wkt(wkt), **given):
                pass
            with memory.open() as file:
                kept = CRS.from_wkt(file.crs.to_wkt()) if file.crs else None
        if kept is None:
            raise _refused(f"it has no reference system like {system.name}")
        ways = np.linspace(0, 1, _POINTS)
        xs, ys = np.meshgrid(
            transform[0] + transform[1] * size[0] * ways,
            transform[3] + transform[5] * size[1] * ways,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = Transformer.from_crs(system, kept, always_xy=True).transform(xs, ys)
    except (ProjError, rasterio.errors.RasterioError) as error:
        raise _refused(f"it cannot state the reference system: {error}") from error
    apart = np.abs(np.array(found) - (xs, ys)) / np.abs([[[transform[1]]], [[transform[5]]]])
    known = np.isfinite(apart)  # corners of an image of the whole earth are beside it
    if not known.any() or (apart[known] > _TOLERANCE).any():
        raise _refused(f"it cannot state the reference system {system.name}")
    return str(wkt)


def _bands(part: Part, sides: tuple[int, int], labels: ReadLabels) -> tuple[str, ...]:
    """A name for each band: what the other dimensions say."""
    others = [axis for axis in part.axes if axis not in sides]
    n = math.prod(len(part.along(axis)) for axis in others)
    if n > MOST_BANDS:
        raise RefusedError(f"this GeoTIFF would have {n} bands, and has at most {MOST_BANDS}")
    if not others:
        name = text_of(part.array.attrs, "long_name") or part.path.rpartition("/")[2]
        return (name,)
    named = []
    for axis in others:
        known = labels(axis)
        words = known.words if known is not None else str
        named.append([f"{part.array.dims[axis]} {words(number)}" for number in part.along(axis)])
    return tuple(", ".join(each) for each in itertools.product(*named))


# What is written


@dataclass(frozen=True)
class _Numbers:
    """How stored numbers are written.

    Attributes
    ----------
    nodata
        The number that stands for none; None without one.
    missing
        Others that do, which become `nodata`.
    """

    meant: np.dtype[Any]
    dtype: np.dtype[Any]
    nodata: float | int | None
    missing: tuple[float, ...]

    @classmethod
    def of(cls, array: VirtualArray) -> _Numbers:
        dtype = meant_dtype(array)
        written = np.dtype({"bool": "u1", "float16": "f4"}.get(dtype.name, dtype.name))
        known: tuple[Any, ...] = MissingValues.of(array).marks
        if not known and dtype.kind == "f":
            known = (np.nan,)
        nodata = known[0] if known else None
        if dtype.kind in "iu" and nodata is not None and int(float(nodata)) != nodata:
            raise _refused(f"readers of GeoTIFF would round {nodata}, which stands for no value")
        return cls(dtype, written, nodata, known[1:])

    def written(self, values: NDArray[Any]) -> NDArray[Any]:
        """Numbers as the file has them."""
        found = values.view(self.meant).astype(self.dtype)
        for number in self.missing:
            found[found == self.dtype.type(number)] = self.dtype.type(self.nodata)
        return found
