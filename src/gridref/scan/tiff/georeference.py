"""Coordinates of a georeferenced image, as rioxarray names and lays them out.

Sources: CF conventions 1.11, section 5.6 "Grid Mappings"; rioxarray's ``spatial_ref`` coordinate
with a ``GeoTransform`` attribute in GDAL's order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gridref.model.array import VirtualArray
from gridref.scan.tiff.crs import crs_attributes
from gridref.scan.tiff.geokeys import Affine, affine_of, read_geo_keys
from gridref.scan.tiff.tags import Tag

__all__ = ["SPATIAL_REF", "Georeference", "georeference_of"]

SPATIAL_REF = "spatial_ref"
"""Name of the grid mapping variable."""

_RASTER_TYPE, _PIXEL_IS_POINT = 1025, 2


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
        return Georeference(affine, self.crs, self.area_or_point, self.unknown_crs)

    def coordinates(
        self, n_rows: int, n_columns: int, y: str = "y", x: str = "x"
    ) -> dict[str, VirtualArray]:
        """Coordinate variables: pixel centres along `y` and `x`, and ``spatial_ref``.

        A rotated image has no coordinates along its axes; its ``GeoTransform`` says it all.
        """
        found = {SPATIAL_REF: VirtualArray.from_numpy(np.array(0), (), self._mapping())}
        affine = self.affine
        if affine is not None and affine.is_rectilinear:
            columns = affine.x0 + (np.arange(n_columns) + 0.5) * affine.dx_col
            rows = affine.y0 + (np.arange(n_rows) + 0.5) * affine.dy_row
            found[x] = VirtualArray.from_numpy(columns, (x,), self._axis("X", "x"))
            found[y] = VirtualArray.from_numpy(rows, (y,), self._axis("Y", "y"))
        return found

    def _mapping(self) -> dict[str, Any]:
        attrs = dict(self.crs or {})
        if self.affine is not None:
            attrs["GeoTransform"] = self.affine.gdal()
        return attrs

    def _axis(self, letter: str, name: str) -> dict[str, Any]:
        crs = self.crs or {}
        if crs.get("grid_mapping_name") == "latitude_longitude":
            which, unit = ("longitude", "east") if letter == "X" else ("latitude", "north")
            return {
                "axis": letter,
                "long_name": which,
                "standard_name": which,
                "units": f"degrees_{unit}",
            }
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
    point = keys.get(_RASTER_TYPE) == _PIXEL_IS_POINT
    return Georeference(affine, crs, "Point" if point else "Area", bool(keys) and crs is None)
