"""Grid mappings, and the variables that attributes name (CF conventions, 5 and 7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gridref.model.array import VirtualArray

# Names of variables in attributes: coordinates, bounds, grid mappings

_REFERRING = ("coordinates", "bounds", "climatology", "grid_mapping")


def text_of(attrs: Mapping[str, Any], name: str) -> str:
    """An attribute that must be a text; empty if it is another type, or missing.

    Files hold numbers, lists and compounds under any name. Such values are kept without meaning.
    """
    value = attrs.get(name)
    return value if isinstance(value, str) else ""


def referred_names(arrays: Iterable[VirtualArray]) -> set[str]:
    """Names of the variables that others name as coordinates, bounds or grid mappings."""
    names: set[str] = set()
    for array in arrays:
        for attribute in _REFERRING:
            text = text_of(array.attrs, attribute)
            names.update(word.rstrip(":") for word in text.split())
    return names


# The direction of a coordinate

_DIRECTIONS: Mapping[str, Mapping[str, str]] = {
    "axis": {"X": "x", "Y": "y", "Z": "z", "T": "t"},
    "standard_name": {
        **dict.fromkeys(("longitude", "grid_longitude", "projection_x_coordinate"), "x"),
        **dict.fromkeys(("latitude", "grid_latitude", "projection_y_coordinate"), "y"),
        **dict.fromkeys(("height", "altitude", "depth", "air_pressure"), "z"),
        "time": "t",
    },
}
_DEGREES = re.compile(r"degrees?_?([NEne])(orth|ast)?")


def direction(attrs: Mapping[str, Any]) -> str:
    """The direction of a coordinate: ``"x"``, ``"y"``, ``"z"`` or ``"t"``; empty if none is given.

    Source: CF conventions 1.11, 4 "Coordinate Types", 4.1 and 4.2 for units of degrees.
    """
    named = (known.get(text_of(attrs, name), "") for name, known in _DIRECTIONS.items())
    compass = compass_of(attrs)
    return next(filter(None, named), "") or {"E": "x", "N": "y", None: ""}[compass]


def compass_of(attrs: Mapping[str, Any]) -> str | None:
    """Where degrees of a coordinate count to, ``"N"`` or ``"E"``; None for other units."""
    found = _DEGREES.fullmatch(text_of(attrs, "units").strip())
    return found[1].upper() if found else None


# Attributes of grid mappings: the reference system and the places of pixels

_CODE = re.compile(r'(?:ID|AUTHORITY)\["(\w+)",\s*"?(\w+)"?\]\s*\]\s*$')


def authority_code(wkt: str) -> tuple[str, str] | None:
    """Authority and code at the end of a WKT, like ``("EPSG", "32632")``; None if it has none.

    Sources: OGC 18-010r11 (WKT 2), "Identifier"; OGC 01-009 (WKT 1), "Authority".
    """
    found = _CODE.search(wkt)
    return None if found is None else (found[1], found[2])


def wkt_of(attrs: Mapping[str, Any]) -> str:
    """The reference system in a grid mapping's attributes; empty if they name none.

    Sources: CF conventions 1.11, 5.6 (``crs_wkt``); GDAL, "netCDF" driver (``spatial_ref``).
    """
    return text_of(attrs, "crs_wkt") or text_of(attrs, "spatial_ref")


def geotransform(attrs: Mapping[str, Any]) -> tuple[float, ...] | None:
    """The six numbers of GDAL's ``GeoTransform`` in a grid mapping's attributes; None without them.

    ``x = n[0] + n[1] column + n[2] row, y = n[3] + n[4] column + n[5] row``.
    """
    try:
        numbers = tuple(float(word) for word in str(attrs.get("GeoTransform", "")).split())
    except ValueError:
        return None
    return numbers if len(numbers) == 6 else None
