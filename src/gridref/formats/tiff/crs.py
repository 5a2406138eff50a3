"""Coordinate reference systems out of GeoTIFF keys, as CF grid mapping attributes.

Sources: OGC GeoTIFF Standard 1.1 (OGC 19-008r4), sections 7.4 to 7.6 and annex C (keys, coordinate
transformation codes); CF conventions, appendix F; OGC 01-009 (WKT 1) for systems without an EPSG
code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

__all__ = ["crs_attributes"]

_MODEL_TYPE, _GEODETIC_CRS, _PROJECTED_CRS = 1024, 2048, 3072
_GEO_CITATION, _DATUM, _SEMI_MAJOR, _SEMI_MINOR, _INVERSE_FLATTENING = 2049, 2050, 2057, 2058, 2059
_PROJ_CITATION, _PROJECTION, _METHOD, _LINEAR_UNIT, _UNIT_SIZE = 3073, 3074, 3075, 3076, 3077
_CITATION = 1026
_USER_DEFINED = 32767
_PROJECTED_MODEL = 1

_LATITUDE = (3081, 3085, 3089)
_LONGITUDE = (3080, 3084, 3088)
_SCALE = (3092, 3093)
_EASTING = (3082, 3086, 3090)
_NORTHING = (3083, 3087, 3091)

_ORIGIN = (("latitude_of_origin", _LATITUDE), ("central_meridian", _LONGITUDE))
_CENTRE = (("latitude_of_center", _LATITUDE), ("longitude_of_center", _LONGITUDE))
_PARALLELS = (("standard_parallel_1", (3078,)), ("standard_parallel_2", (3079,)))
_SCALED = (("scale_factor", _SCALE),)

_METHODS: Mapping[int, tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]] = {
    1: ("Transverse_Mercator", _ORIGIN + _SCALED),
    7: ("Mercator_1SP", (("central_meridian", _LONGITUDE), *_SCALED)),
    8: ("Lambert_Conformal_Conic_2SP", _ORIGIN + _PARALLELS),
    9: ("Lambert_Conformal_Conic_1SP", _ORIGIN + _SCALED),
    10: ("Lambert_Azimuthal_Equal_Area", _CENTRE),
    11: ("Albers_Conic_Equal_Area", _CENTRE + _PARALLELS),
    12: ("Azimuthal_Equidistant", _CENTRE),
    14: ("Stereographic", _ORIGIN + _SCALED),
    15: (
        "Polar_Stereographic",
        (("latitude_of_origin", _LATITUDE), ("central_meridian", (3095, *_LONGITUDE)), *_SCALED),
    ),
    16: ("Oblique_Stereographic", _ORIGIN + _SCALED),
    17: ("Equirectangular", (("standard_parallel_1", (3078,)), ("central_meridian", _LONGITUDE))),
    18: ("Cassini_Soldner", _ORIGIN),
    21: ("Orthographic", _ORIGIN),
    23: ("Robinson", (("longitude_of_center", _LONGITUDE),)),
    24: ("Sinusoidal", (("longitude_of_center", _LONGITUDE),)),
    28: (
        "Cylindrical_Equal_Area",
        (("standard_parallel_1", (3078,)), ("central_meridian", _LONGITUDE)),
    ),
}
"""Code of ProjMethodGeoKey: name in WKT 1, and for each parameter the keys it may stand in."""

_UNITS = {9001: ("metre", 1.0), 9002: ("foot", 0.3048), 9003: ("US survey foot", 1200 / 3937)}


def crs_attributes(keys: Mapping[int, Any]) -> dict[str, Any] | None:
    """CF grid mapping attributes of the coordinate reference system, with its WKT.

    Returns
    -------
    dict or None
        ``crs_wkt``, ``spatial_ref`` (what GDAL calls it), ``grid_mapping_name`` and so on. None if
        the keys name no system, or one that is not understood, or pyproj is not installed.
    """
    attributes = _attributes(tuple(sorted(keys.items())))
    return None if attributes is None else dict(attributes)


@lru_cache(maxsize=256)
def _attributes(items: tuple[tuple[int, Any], ...]) -> tuple[tuple[str, Any], ...] | None:
    try:
        import pyproj
        from pyproj.exceptions import CRSError
    except ImportError:
        return None
    keys = dict(items)
    try:
        code = _epsg_code(keys)
        if code is not None:
            crs = pyproj.CRS.from_epsg(code)
        else:
            wkt = _user_defined(keys)
            if wkt is None:
                return None
            crs = pyproj.CRS.from_wkt(wkt)
        attributes = crs.to_cf()
    except CRSError:
        return None
    attributes["spatial_ref"] = attributes["crs_wkt"]
    return tuple(
        (name, list(value) if isinstance(value, tuple) else value)
        for name, value in attributes.items()
    )


def _epsg_code(keys: Mapping[int, Any]) -> int | None:
    """EPSG code of the system, if it has one."""
    projected = keys.get(_PROJECTED_CRS)
    if keys.get(_MODEL_TYPE, _PROJECTED_MODEL) == _PROJECTED_MODEL and projected is not None:
        return projected if 1024 <= projected < _USER_DEFINED else None
    if keys.get(_MODEL_TYPE) == _PROJECTED_MODEL:
        return None
    geodetic = keys.get(_GEODETIC_CRS)
    return geodetic if geodetic is not None and 1024 <= geodetic < _USER_DEFINED else None


def _user_defined(keys: Mapping[int, Any]) -> str | None:
    """WKT 1 of a system that the keys spell out."""
    geographic = _geographic_wkt(keys)
    if geographic is None or keys.get(_MODEL_TYPE) != _PROJECTED_MODEL:
        return geographic
    projection = _projection_wkt(keys)
    if projection is None:
        return None
    name = keys.get(_PROJ_CITATION) or keys.get(_CITATION) or "unnamed"
    unit, size = _UNITS.get(keys.get(_LINEAR_UNIT, 9001), ("unknown", keys.get(_UNIT_SIZE)))
    if not isinstance(size, float):
        return None
    return (
        f'PROJCS["{_quoted(name)}",{geographic},{projection},UNIT["{unit}",{size!r}],'
        'AXIS["Easting",EAST],AXIS["Northing",NORTH]]'
    )


def _projection_wkt(keys: Mapping[int, Any]) -> str | None:
    """The ``PROJECTION`` and ``PARAMETER`` nodes."""
    code = keys.get(_PROJECTION, _USER_DEFINED)
    if 16001 <= code <= 16160 and code % 100 <= 60:
        zone, south = code % 100, code > 16100
        return _projection(
            "Transverse_Mercator",
            {
                "latitude_of_origin": 0.0,
                "central_meridian": zone * 6.0 - 183.0,
                "scale_factor": 0.9996,
                "false_easting": 500000.0,
                "false_northing": 1e7 if south else 0.0,
            },
        )
    method = _METHODS.get(keys.get(_METHOD, 0))
    if method is None:
        return None
    name, wanted = method
    parameters = {
        parameter: _first(keys, geo_keys, 1.0 if parameter == "scale_factor" else 0.0)
        for parameter, geo_keys in wanted
    }
    if name == "Mercator_1SP" and 3078 in keys:
        name = "Mercator_2SP"
        parameters.pop("scale_factor")
        parameters["standard_parallel_1"] = _first(keys, (3078,), 0.0)
    parameters["false_easting"] = _first(keys, _EASTING, 0.0)
    parameters["false_northing"] = _first(keys, _NORTHING, 0.0)
    return _projection(name, parameters)


def _projection(name: str, parameters: Mapping[str, float]) -> str:
    nodes = [f'PARAMETER["{parameter}",{value!r}]' for parameter, value in parameters.items()]
    return ",".join([f'PROJECTION["{name}"]', *nodes])


def _first(keys: Mapping[int, Any], geo_keys: tuple[int, ...], default: float) -> float:
    return next((float(keys[key]) for key in geo_keys if isinstance(keys.get(key), float)), default)


def _geographic_wkt(keys: Mapping[int, Any]) -> str | None:
    """The ``GEOGCS`` node: an EPSG system, with the keys' own ellipsoid where they give one."""
    code = keys.get(_GEODETIC_CRS, _USER_DEFINED)
    datum = keys.get(_DATUM, _USER_DEFINED)
    if code == _USER_DEFINED and 6001 <= datum <= 6999:
        code = datum - 2000  # EPSG numbers the older systems and their datums alike
    ellipsoid = _ellipsoid(keys)
    if 1024 <= code < _USER_DEFINED:
        import pyproj

        wkt = str(pyproj.CRS.from_epsg(code).to_wkt("WKT1_GDAL"))
        if ellipsoid is None:
            return wkt
        numbers = f"{ellipsoid[0]!r},{ellipsoid[1]!r}"
        return re.sub(r'(SPHEROID\["[^"]*",)[^,\]]+,[^,\]]+', rf"\g<1>{numbers}", wkt)
    if ellipsoid is None:
        return None
    names = dict(re.findall(r"([A-Za-z ]+?) *= *([^|]+)", keys.get(_GEO_CITATION) or ""))
    name = names.get("GCS Name") or keys.get(_GEO_CITATION) or "unknown"
    return (
        f'GEOGCS["{_quoted(name)}",DATUM["{_quoted(names.get("Datum", "unknown"))}",'
        f'SPHEROID["{_quoted(names.get("Ellipsoid", "unknown"))}",'
        f"{ellipsoid[0]!r},{ellipsoid[1]!r}]],"
        f'PRIMEM["{_quoted(names.get("Primem", "Greenwich"))}",0],'
        'UNIT["degree",0.0174532925199433]]'
    )


def _ellipsoid(keys: Mapping[int, Any]) -> tuple[float, float] | None:
    """Semi-major axis in metres and inverse flattening (0 for a sphere)."""
    major = keys.get(_SEMI_MAJOR)
    if not isinstance(major, float):
        return None
    inverse = keys.get(_INVERSE_FLATTENING)
    if isinstance(inverse, float):
        return major, inverse
    minor = keys.get(_SEMI_MINOR)
    if isinstance(minor, float):
        return major, 0.0 if minor == major else major / (major - minor)
    return None


def _quoted(text: str) -> str:
    return text.replace('"', "'")
