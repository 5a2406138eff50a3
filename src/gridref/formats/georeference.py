"""Turn the places of pixels into coordinates, named as rioxarray names them.

Sources: CF conventions 1.11, section 5.6 "Grid Mappings"; rioxarray's ``spatial_ref`` coordinate
with a ``GeoTransform`` attribute in GDAL's order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gridref.learned import FORMS
from gridref.limits import limits
from gridref.model.array import VirtualArray
from gridref.model.pixels import Affine

SPATIAL_REF = "spatial_ref"
"""Name of the grid mapping variable."""

_ZERO = VirtualArray.from_numpy(np.array(0), ())


@dataclass(frozen=True)
class Georeference:
    """The placement of an image.

    Attributes
    ----------
    affine
        Pixels to map coordinates; None if only the coordinate reference system is known.
    crs
        CF grid mapping attributes; None if the system is unknown.
    area_or_point
        ``"Area"`` or ``"Point"``: what a pixel's value belongs to.
    unknown_crs
        Whether the file names an unknown coordinate reference system.
    """

    affine: Affine | None
    crs: Mapping[str, Any] | None
    area_or_point: str
    unknown_crs: bool = False

    def scaled(self, columns: float, rows: float) -> Georeference:
        """The placement of an image of the same extent with larger pixels."""
        affine = None if self.affine is None else self.affine.scaled(columns, rows)
        return replace(self, affine=affine)

    def coordinates(
        self, n_rows: int, n_columns: int, y: str = "y", x: str = "x"
    ) -> dict[str, VirtualArray]:
        """Coordinate variables: pixel centres along `y` and `x`, and ``spatial_ref``.

        A rotated image has no coordinates along its axes, and neither has one of more than
        `Limits.coordinates` rows or columns; their ``GeoTransform`` is enough.
        """
        arrays = {SPATIAL_REF: _ZERO.with_changes(attrs=self._mapping())}
        affine = self.affine
        is_small = max(n_rows, n_columns) <= limits().coordinates
        if affine is not None and affine.is_rectilinear and is_small:
            angle = _angle(self.crs or {})
            arrays[x] = _pixel_centres(affine.x0, affine.dx_col, n_columns, x, "X", angle)
            arrays[y] = _pixel_centres(affine.y0, affine.dy_row, n_rows, y, "Y", angle)
        return arrays

    def _mapping(self) -> dict[str, Any]:
        attrs = dict(self.crs or {})
        if self.affine is not None:
            attrs["GeoTransform"] = self.affine.gdal()
        return attrs


@FORMS.keeps(lambda axis, *_: 2000 + axis.nbytes)
def _pixel_centres(
    start: float, step: float, n_pixels: int, dim: str, letter: str, angle: str
) -> VirtualArray:
    """Coordinate variable of one axis; files on the same grid, like a time series, share it."""
    centres = np.arange(n_pixels, dtype="f8")
    centres += 0.5  # in place: an axis may be long
    centres *= step
    centres += start
    return VirtualArray.from_numpy(centres, (dim,), _axis_attributes(letter, angle))


def _angle(crs: Mapping[str, Any]) -> str:
    """The unit of the axes of a geographic system, mostly ``degree``; empty for others."""
    if crs.get("grid_mapping_name") != "latitude_longitude":
        return ""
    axes = str(crs.get("crs_wkt", "")).rpartition(",CS[")[2]
    units = re.findall(r'(?:ANGLE)?UNIT\["([^"]+)"', axes)
    return units[0] if units else "degree"


def _axis_attributes(letter: str, angle: str) -> dict[str, Any]:
    """CF attributes of a horizontal coordinate; `angle` is empty unless it is one."""
    if angle:
        which, unit = ("longitude", "east") if letter == "X" else ("latitude", "north")
        return {
            "axis": letter,
            "long_name": which,
            "standard_name": which,
            "units": f"degrees_{unit}" if angle == "degree" else angle,
        }
    name = letter.lower()
    return {
        "axis": letter,
        "long_name": f"{name} coordinate of projection",
        "standard_name": f"projection_{name}_coordinate",
    }


def mapped(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that link a variable to its grid mapping; xarray makes it a coordinate."""
    return {**attrs, "grid_mapping": SPATIAL_REF, "coordinates": SPATIAL_REF}


def grid_mapping(crs: Any) -> dict[str, Any]:
    """CF grid mapping attributes of a system of pyproj: its WKT, GDAL's name for it, and so on."""
    attributes = crs.to_cf()
    attributes["spatial_ref"] = attributes["crs_wkt"]
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in attributes.items()
    }
