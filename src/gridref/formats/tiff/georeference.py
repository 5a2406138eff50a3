"""Coordinates of a georeferenced image, as rioxarray names and lays them out.

Sources: CF conventions 1.11, section 5.6 "Grid Mappings"; rioxarray's ``spatial_ref`` coordinate
with a ``GeoTransform`` attribute in GDAL's order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gridref.cache import LRU
from gridref.formats.tiff.crs import crs_attributes
from gridref.formats.tiff.geokeys import Affine, affine_of, pixels_are_points, read_geo_keys
from gridref.formats.tiff.tags import Tag
from gridref.model.array import VirtualArray

__all__ = ["MAX_COORDINATES", "SPATIAL_REF", "Georeference", "georeference_of"]

MAX_COORDINATES, _KEPT_BYTES = 1 << 23, 1 << 25
"""Most coordinates along an axis, which are kept inline; bytes of axes that are remembered."""

SPATIAL_REF = "spatial_ref"
"""Name of the grid mapping variable."""

_ZERO = VirtualArray.from_numpy(np.array(0), ())


@dataclass(frozen=True)
class Georeference:
    """Where an image lies.

    Attributes
    ----------
    affine
        Pixels to map coordinates; None if only the coordinate reference system is known.
    crs
        CF grid mapping attributes; None if the system is unknown.
    area_or_point
        ``"Area"`` or ``"Point"``: what a pixel's value stands for.
    unknown_crs
        Whether the file names a coordinate reference system that is not understood.
    """

    affine: Affine | None
    crs: Mapping[str, Any] | None
    area_or_point: str
    unknown_crs: bool = False

    def scaled(self, columns: float, rows: float) -> Georeference:
        """Where an image of the same extent with larger pixels lies."""
        affine = None if self.affine is None else self.affine.scaled(columns, rows)
        return replace(self, affine=affine)

    def coordinates(
        self, n_rows: int, n_columns: int, y: str = "y", x: str = "x"
    ) -> dict[str, VirtualArray]:
        """Coordinate variables: pixel centres along `y` and `x`, and ``spatial_ref``.

        A rotated image has no coordinates along its axes, and neither has one of more than
        `MAX_COORDINATES` rows or columns; their ``GeoTransform`` says it all.
        """
        arrays = {SPATIAL_REF: _ZERO.replace(attrs=self._mapping())}
        affine = self.affine
        is_small = max(n_rows, n_columns) <= MAX_COORDINATES
        if affine is not None and affine.is_rectilinear and is_small:
            degrees = (self.crs or {}).get("grid_mapping_name") == "latitude_longitude"
            arrays[x] = _pixel_centres(affine.x0, affine.dx_col, n_columns, x, "X", degrees)
            arrays[y] = _pixel_centres(affine.y0, affine.dy_row, n_rows, y, "Y", degrees)
        return arrays

    def _mapping(self) -> dict[str, Any]:
        attrs = dict(self.crs or {})
        if self.affine is not None:
            attrs["GeoTransform"] = self.affine.gdal()
        return attrs


_axes = LRU[VirtualArray](_KEPT_BYTES, lambda axis: 2000 + 8 * axis.size)


def _pixel_centres(
    start: float, step: float, n_pixels: int, dim: str, letter: str, degrees: bool
) -> VirtualArray:
    """Coordinate variable of one axis; files on the same grid, like a time series, share it."""

    def make() -> VirtualArray:
        centres = np.arange(n_pixels, dtype="f8")
        centres += 0.5  # in place: an axis may be long
        centres *= step
        centres += start
        return VirtualArray.from_numpy(centres, (dim,), _axis_attributes(letter, degrees))

    return _axes.get_or_load((start, step, n_pixels, dim, letter, degrees), make)


def _axis_attributes(letter: str, degrees: bool) -> dict[str, Any]:
    """CF attributes of a horizontal coordinate."""
    if degrees:
        which, unit = ("longitude", "east") if letter == "X" else ("latitude", "north")
        return {
            "axis": letter,
            "long_name": which,
            "standard_name": which,
            "units": f"degrees_{unit}",
        }
    name = letter.lower()
    return {
        "axis": letter,
        "long_name": f"{name} coordinate of projection",
        "standard_name": f"projection_{name}_coordinate",
    }


def georeference_of(tags: Mapping[int, Any]) -> Georeference | None:
    """What the tags of a file say about its place; None if nothing."""
    if not any(
        code in tags
        for code in (Tag.GEO_KEY_DIRECTORY, Tag.MODEL_PIXEL_SCALE, Tag.MODEL_TRANSFORMATION)
    ):
        return None
    keys = read_geo_keys(tags)
    affine = affine_of(tags, keys)
    if affine is None and not keys:
        return None
    crs = crs_attributes(keys)
    kind = "Point" if pixels_are_points(keys) else "Area"
    return Georeference(affine, crs, kind, bool(keys) and crs is None)
