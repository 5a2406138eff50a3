"""Read the georeference of TIFF files: GeoKeys and coordinate reference systems.

`read_geo_keys` and `affine_of` take the GeoTIFF tags of an image. They return its keys, and the
transformation from pixels to coordinates. `crs_attributes` turns the keys into the attributes of a
CF grid mapping. `georeference_of` returns both as the georeference of an image.

Source for keys and placement: OGC GeoTIFF Standard 1.1 (OGC 19-008r4): section 7.1.1
"GeoKeyDirectoryTag", annex B "Georeferencing" (``ModelPixelScaleTag``, ``ModelTiepointTag``,
``ModelTransformationTag``), 7.1.2 ``GTRasterTypeGeoKey``.

Sources for reference systems: OGC GeoTIFF Standard 1.1 (OGC 19-008r4), sections 7.4 to 7.6 and
annex C (keys, coordinate transformation codes); CF conventions, appendix F; OGC 01-009 (WKT 1) for
systems without an EPSG code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gridref.formats.georeference import Georeference, grid_mapping
from gridref.formats.tiff.directory import Tag
from gridref.learned import FORMS
from gridref.model.pixels import Affine

# GeoTIFF keys, and the placement of the raster

_RASTER_TYPE = 1025
_PIXEL_IS_POINT = 2


def read_geo_keys(tags: Mapping[int, Any]) -> dict[int, Any]:
    """Values of all keys by number: int, float, tuple of floats, or str.

    Entries that point outside their parameter tags are left out.
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
    """Whether a pixel's value belongs to its centre, and not to its area."""
    return bool(keys.get(_RASTER_TYPE) == _PIXEL_IS_POINT)


def affine_of(tags: Mapping[int, Any], keys: Mapping[int, Any]) -> Affine | None:
    """The placement of the raster; None if no tag states it.

    If the tie points refer to the centres of pixels (``PixelIsPoint``), the result still refers to
    their corners, half a pixel away. Several tie points without a scale are ground
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


# Coordinate reference systems as attributes of CF grid mappings

_MODEL_TYPE, _GEODETIC_CRS, _PROJECTED_CRS = 1024, 2048, 3072
_GEO_CITATION, _DATUM, _SEMI_MAJOR, _SEMI_MINOR, _INVERSE_FLATTENING = 2049, 2050, 2057, 2058, 2059
_PROJ_CITATION, _PROJECTION, _METHOD, _LINEAR_UNIT, _UNIT_SIZE = 3073, 3074, 3075, 3076, 3077
_CITATION = 1026
_ANGULAR_UNIT, _PRIME_MERIDIAN = 2054, 2061
_USER_DEFINED = 32767
_PROJECTED_MODEL, _NOT_PROJECTED = 1, (None, 2, 3)
"""Values of GTModelTypeGeoKey; with others GDAL takes a system for one of no known place."""
_ESRI = "ESRI PE String = "
"""Begins a citation that is WKT: Esri's programs write it, and GDAL for methods without a code."""

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
    17: ("Equirectangular", (_ORIGIN[0], ("standard_parallel_1", (3078,)), _ORIGIN[1])),
    18: ("Cassini_Soldner", _ORIGIN),
    21: ("Orthographic", _ORIGIN),
    23: ("Robinson", (("longitude_of_center", _LONGITUDE),)),
    24: ("Sinusoidal", (("longitude_of_center", _LONGITUDE),)),
    28: (
        "Cylindrical_Equal_Area",
        (("standard_parallel_1", (3078,)), ("central_meridian", _LONGITUDE)),
    ),
}
"""Code of ProjMethodGeoKey: name in WKT 1, and for each parameter the keys that may hold it."""

_ANGLES = {9101: ("radian", 1.0), 9102: ("degree", math.pi / 180), 9105: ("grad", math.pi / 200)}
_UNITS = {9001: ("metre", 1.0), 9002: ("foot", 0.3048), 9003: ("US survey foot", 1200 / 3937)}


def crs_attributes(keys: Mapping[int, Any]) -> dict[str, Any] | None:
    """CF grid mapping attributes of the coordinate reference system, with its WKT.

    Returns
    -------
    dict or None
        ``crs_wkt``, ``spatial_ref`` (GDAL's name for it), ``grid_mapping_name`` and so on. None if
        the keys name no system or an unknown one.
    """
    return _attributes(tuple(sorted(keys.items())))


@FORMS.keeps(lambda _, items: 20_000 + len(repr(items)))
def _attributes(items: tuple[tuple[int, Any], ...]) -> dict[str, Any] | None:
    import pyproj
    from pyproj.exceptions import CRSError

    keys = dict(items)
    try:
        code = _epsg_code(keys)
        if code is not None:
            crs = pyproj.CRS.from_epsg(code)
        else:
            wkt = _esri(keys) or _user_defined(keys)
            if wkt is None:
                return None
            crs = pyproj.CRS.from_wkt(wkt)
        return grid_mapping(crs)
    except CRSError:
        return None


def _epsg_code(keys: Mapping[int, Any]) -> int | None:
    projected, model = keys.get(_PROJECTED_CRS), keys.get(_MODEL_TYPE)
    if model in (None, _PROJECTED_MODEL, _USER_DEFINED) and projected is not None:
        return projected if 1024 <= projected < _USER_DEFINED else None
    if model not in _NOT_PROJECTED:
        return None
    geodetic = keys.get(_GEODETIC_CRS)
    return geodetic if geodetic is not None and 1024 <= geodetic < _USER_DEFINED else None


def _esri(keys: Mapping[int, Any]) -> str | None:
    """WKT 1 of a system in Esri's words."""
    texts = (str(keys.get(key, "")) for key in (_PROJ_CITATION, _CITATION, _GEO_CITATION))
    return next((text.removeprefix(_ESRI) for text in texts if text.startswith(_ESRI)), None)


def _user_defined(keys: Mapping[int, Any]) -> str | None:
    """WKT 1 of a system that the keys spell out."""
    geographic, model = _geographic_wkt(keys), keys.get(_MODEL_TYPE)
    is_projected = model == _PROJECTED_MODEL or _METHOD in keys
    if geographic is None or not is_projected:
        return geographic if model in _NOT_PROJECTED else None
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
    """The ``GEOGCS`` node: an EPSG system, with the keys' own ellipsoid if they have one."""
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
    unit = _ANGLES.get(keys.get(_ANGULAR_UNIT, 9102))
    meridian = keys.get(_PRIME_MERIDIAN, 0.0)
    if ellipsoid is None or unit is None or not isinstance(meridian, float):
        return None
    names = dict(re.findall(r"([A-Za-z ]+?) *= *([^|]+)", keys.get(_GEO_CITATION) or ""))
    name = names.get("GCS Name") or keys.get(_GEO_CITATION) or "unknown"
    return (
        f'GEOGCS["{_quoted(name)}",DATUM["{_quoted(names.get("Datum", "unknown"))}",'
        f'SPHEROID["{_quoted(names.get("Ellipsoid", "unknown"))}",'
        f"{ellipsoid[0]!r},{ellipsoid[1]!r}]],"
        f'PRIMEM["{_quoted(names.get("Primem", "Greenwich"))}",{meridian!r}],'
        f'UNIT["{unit[0]}",{unit[1]!r}]]'
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


def georeference_of(tags: Mapping[int, Any]) -> Georeference | None:
    """The georeference in the tags of a file; None if there is none."""
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
