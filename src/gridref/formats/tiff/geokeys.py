"""GeoTIFF keys and the placement of the raster in its coordinate reference system.

Source: OGC GeoTIFF Standard 1.1 (OGC 19-008r4): section 7.1.1 "GeoKeyDirectoryTag", annex B
"Georeferencing" (``ModelPixelScaleTag``, ``ModelTiepointTag``, ``ModelTransformationTag``), 7.1.2
``GTRasterTypeGeoKey``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gridref.formats.tiff.tags import Tag

__all__ = ["Affine", "affine_of", "pixels_are_points", "read_geo_keys"]

_RASTER_TYPE = 1025
_PIXEL_IS_POINT = 2


@dataclass(frozen=True)
class Affine:
    """Pixel corners to map coordinates: ``x = x0 + col * dx_col + row * dx_row``, ``y`` alike.

    Attributes
    ----------
    x0, y0
        Map coordinates of the outer corner of the first pixel.
    dx_col, dx_row, dy_col, dy_row
        Steps of the map coordinates from a pixel to the next along the columns and rows.
    """

    x0: float
    dx_col: float
    dx_row: float
    y0: float
    dy_col: float
    dy_row: float

    @property
    def is_rectilinear(self) -> bool:
        """Whether columns run along x and rows along y."""
        return self.dx_row == 0 and self.dy_col == 0

    def scaled(self, columns: float, rows: float) -> Affine:
        """The placement of an image whose pixels are so many times larger."""
        return Affine(
            self.x0,
            self.dx_col * columns,
            self.dx_row * rows,
            self.y0,
            self.dy_col * columns,
            self.dy_row * rows,
        )

    def gdal(self) -> str:
        """As GDAL writes it: ``x0 dx_col dx_row y0 dy_col dy_row``."""
        return " ".join(repr(float(value)) for value in vars(self).values())


def read_geo_keys(tags: Mapping[int, Any]) -> dict[int, Any]:
    """Values of all keys by number: int, float, tuple of floats, or str.

    Entries that point outside of their parameter tags are left out.
    """
    directory = _numbers(tags.get(Tag.GEO_KEY_DIRECTORY))
    doubles = _numbers(tags.get(Tag.GEO_DOUBLE_PARAMS))
    ascii_params = tags.get(Tag.GEO_ASCII_PARAMS)
    text = ascii_params if isinstance(ascii_params, str) else ""
    keys: dict[int, Any] = {}
    for start in range(4, len(directory) - 3, 4):
        key, location, count, value = (int(field) for field in directory[start : start + 4])
        if location == 0:
            keys[key] = value
        elif location == Tag.GEO_DOUBLE_PARAMS and value + count <= len(doubles) and count:
            values = tuple(doubles[value : value + count])
            keys[key] = values[0] if count == 1 else values
        elif location == Tag.GEO_ASCII_PARAMS:
            keys[key] = text[value : value + count].rstrip("|\0").strip()
    return keys


def pixels_are_points(keys: Mapping[int, Any]) -> bool:
    """Whether a pixel's value stands for its centre, and not for its area."""
    return bool(keys.get(_RASTER_TYPE) == _PIXEL_IS_POINT)


def affine_of(tags: Mapping[int, Any], keys: Mapping[int, Any]) -> Affine | None:
    """Where the raster lies; None if the tags do not say.

    Where the tie points refer to the centres of pixels (``PixelIsPoint``), the result refers to
    their corners all the same, half a pixel away. Several tie points without a scale are ground
    control points, which no affine transformation expresses.
    """
    matrix = _numbers(tags.get(Tag.MODEL_TRANSFORMATION))
    scale = _numbers(tags.get(Tag.MODEL_PIXEL_SCALE))
    tie = _numbers(tags.get(Tag.MODEL_TIEPOINT))
    if len(scale) >= 2 and len(tie) >= 6 and scale[0] and scale[1]:
        dx, dy = scale[0], -abs(scale[1])
        column, row, _, x, y, _ = tie[:6]
        affine = Affine(x - column * dx, dx, 0.0, y - row * dy, 0.0, dy)
    elif len(matrix) == 16:
        affine = Affine(matrix[3], matrix[0], matrix[1], matrix[7], matrix[4], matrix[5])
    else:
        return None
    if pixels_are_points(keys):
        return replace(
            affine,
            x0=affine.x0 - (affine.dx_col + affine.dx_row) / 2,
            y0=affine.y0 - (affine.dy_col + affine.dy_row) / 2,
        )
    return affine


def _numbers(value: Any) -> Sequence[float]:
    """A tag's value as a sequence of numbers; empty if it is none."""
    if isinstance(value, tuple | list):
        return value
    if hasattr(value, "tolist"):
        values = value.tolist()
        return values if isinstance(values, list) else [values]
    return [value] if isinstance(value, int | float) else []
