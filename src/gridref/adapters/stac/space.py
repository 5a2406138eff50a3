"""Where on the ground a dataset lies, as STAC has it: a box of longitudes and latitudes, and a CRS.

Sources: STAC extension "projection" 2.0.0; RFC 7946, 3.1.9 and 5.2 (boxes across the antimeridian).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from gridref.adapters.stac.axes import Axis, kind_of
from gridref.extras import missing_package
from gridref.model.reference_systems import wkt_of

__all__ = ["Space", "geometry_of", "space_of"]

_GEOGRAPHIC = ("degrees", "degree")

type Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Space:
    """Where a dataset lies.

    Attributes
    ----------
    bbox
        West, south, east and north in degrees; west is greater than east across the antimeridian.
    properties
        Of the projection extension.
    reference_system
        Of the datacube extension; None where there is no CRS of rows and columns.
    """

    bbox: Box
    properties: Mapping[str, Any]
    reference_system: Any = None


def space_of(dataset: xr.Dataset, axes: Mapping[str, Axis]) -> Space | None:
    """Find out where a dataset lies; None if nothing says so.

    By the coordinates of rows and columns, in the CRS of the grid mapping; else by longitudes and
    latitudes of each element.
    """
    x, y = (next((a for a in axes.values() if a.kind == kind), None) for kind in ("x", "y"))
    if x is not None and y is not None and x.length and y.length:
        crs = _crs_of(dataset, x)
        if crs is not None:
            return _projected(x, y, crs)
    return _of_elements(dataset)


def geometry_of(bbox: Box) -> dict[str, Any]:
    """The box as GeoJSON; two of them across the antimeridian."""
    west, south, east, north = bbox
    parts = [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]
    rings = [[[[a, south], [b, south], [b, north], [a, north], [a, south]]] for a, b in parts]
    if len(rings) == 1:
        return {"type": "Polygon", "coordinates": rings[0]}
    return {"type": "MultiPolygon", "coordinates": rings}


def _crs_of(dataset: xr.Dataset, x: Axis) -> Any:
    """The coordinate reference system of rows and columns; None if nothing says what it is."""
    try:
        from pyproj import CRS
        from pyproj.exceptions import CRSError
    except ImportError as error:
        raise missing_package("describing a catalog for STAC", error) from error
    named = [
        str(v.encoding.get("grid_mapping", v.attrs.get("grid_mapping", ""))).partition(":")[0]
        for v in dataset.data_vars.values()
    ]
    for name in filter(dataset.variables.__contains__, [*named, "spatial_ref"]):
        attrs = dataset.variables[name].attrs
        try:
            wkt = wkt_of(attrs)
            return CRS.from_wkt(wkt) if wkt else CRS.from_cf(dict(attrs))
        except (CRSError, KeyError, TypeError, ValueError, AttributeError):
            continue
    attrs = {} if x.labels is None else x.labels.attrs
    rotated = attrs.get("standard_name") == "grid_longitude"
    in_degrees = str(attrs.get("units", "")).startswith(_GEOGRAPHIC) and not rotated
    return CRS.from_epsg(4326) if in_degrees else None


def _projected(x: Axis, y: Axis, crs: Any) -> Space:
    from pyproj import Transformer

    (left, right), (bottom, top) = x.edges, y.edges
    corners = (left, bottom, right, top)
    code = crs.to_epsg()
    properties: dict[str, Any] = {"proj:code": None if code is None else f"EPSG:{code}"}
    if code is None:
        properties["proj:wkt2"] = crs.to_wkt()
    properties |= {"proj:shape": [y.length, x.length], "proj:bbox": list(corners)}
    if x.step is not None and y.step is not None:
        x0, y0 = float(x.values[0]) - x.step / 2, float(y.values[0]) - y.step / 2
        properties["proj:transform"] = [x.step, 0.0, x0, 0.0, y.step, y0]
    if crs.is_geographic and not crs.is_derived:
        box = _on_the_globe(*corners)
    else:
        transformer = Transformer.from_crs(crs, 4326, always_xy=True)
        box = transformer.transform_bounds(*corners)
    return Space(box, properties, crs.to_wkt() if code is None else code)


def _of_elements(dataset: xr.Dataset) -> Space | None:
    """The box of the longitudes and latitudes that lie in variables of their own."""
    found = {
        kind: variable
        for name, variable in dataset.variables.items()
        if variable.size
        and str(variable.attrs.get("units", "")).startswith(_GEOGRAPHIC)
        and (kind := kind_of(str(name), variable)) in ("x", "y")
        and not str(variable.attrs.get("standard_name", "")).startswith("grid_")
    }
    if len(found) < 2:
        return None
    (west, east), (south, north) = (
        (float(np.nanmin(found[kind].values)), float(np.nanmax(found[kind].values)))
        for kind in ("x", "y")
    )
    if not np.isfinite([west, south, east, north]).all():
        return None
    return Space(_on_the_globe(west, south, east, north), {})


def _on_the_globe(west: float, south: float, east: float, north: float) -> Box:
    """A box with longitudes from -180 to 180, and latitudes from -90 to 90."""
    south, north = max(south, -90.0), min(north, 90.0)
    if east - west >= 360 or (west < -180 and east > 180):
        return (-180.0, south, 180.0, north)
    if west >= -180 and east <= 180:
        return (west, south, east, north)
    return (_wrapped(west), south, _wrapped(east) or 180.0, north)


def _wrapped(longitude: float) -> float:
    return (longitude + 180) % 360 - 180
