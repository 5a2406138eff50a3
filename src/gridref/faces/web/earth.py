"""Find where the elements of an array are on earth, for the maps of the viewer.

Sources: CF conventions 1.11, 4.1, 4.2 (units of degrees), 5.2 (two-dimensional coordinates),
5.6 and appendix F (grid mappings).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from gridref.api.decoding import System, crs_of, system_of
from gridref.faces.web.meaning import array_at, groups_around, sweep_of
from gridref.model.array import VirtualArray, VirtualGroup, path_in
from gridref.model.conventions import (
    METRES,
    compass_of,
    dims_by_direction,
    grid_mapping_of,
    text_of,
)

_NAMES = {
    **dict.fromkeys(("latitude", "lat", "nav_lat", "xlat", "lats", "tlat", "geolat"), "N"),
    **dict.fromkeys(("longitude", "lon", "nav_lon", "xlong", "lons", "tlong", "geolon"), "E"),
}
"""What coordinates are called that say nothing else of themselves."""
_BESIDE = ("geolocation_fields", "geolocation fields", "geolocation_data", "geolocation")
"""Groups of satellites' products that hold the coordinates of their neighbours."""
_NAMELESS = "phony_dim_"
"""Dimensions that HDF5 gives no names are the same if they are as long."""
_RADIANS = {"rad": 1.0, "radian": 1.0, "radians": 1.0, "microradian": 1e-6, "microradians": 1e-6}


def earth_of(group: VirtualGroup, path: str) -> dict[str, Any] | None:
    """Where the elements of an array are on earth; None if only its 1-D coordinates may say it.

    Parameters
    ----------
    group
        The root group.

    Returns
    -------
    dict
        ``dims`` of rows and columns, and one of ``latitude`` and ``longitude``, paths of arrays
        whose last two dimensions these are; ``pole``, latitude and longitude of a rotated pole and
        its turn; and ``projection``, a text of PROJ, with ``units``, what a unit of each coordinate
        is in the system's; and ``sweep`` of a weather radar: see `sweep_of`.
    """
    array = array_at(group, path)
    return (
        _two_dimensional(group, path, array)
        or _mapped(group, path, array)
        or sweep_of(group, path, array)
    )


# Two-dimensional latitude and longitude


def _two_dimensional(group: VirtualGroup, path: str, array: VirtualArray) -> dict[str, Any] | None:
    named = [upward(group, path, name) for name in text_of(array.attrs, "coordinates").split()]
    near = _arrays(group, (*reversed([*_near(group, path)]), *reversed(list(filter(None, named)))))
    found: dict[str, tuple[str, VirtualArray]] = {}
    for each, coordinate in near:
        compass = _compass(each, coordinate)
        if compass is not None and _covers(coordinate, array):
            found[compass] = each, coordinate
    if set(found) != {"N", "E"}:
        return None
    (latitude, north), (longitude, east) = found["N"], found["E"]
    if north.dims != east.dims:
        return None
    dims = north.dims[-2:]
    shown = dims if set(dims) <= set(array.dims) else array.dims[-2:]
    return {"latitude": latitude, "longitude": longitude, "dims": list(shown)}


def _arrays(group: VirtualGroup, paths: Iterable[str]) -> Iterator[tuple[str, VirtualArray]]:
    for path in paths:
        array = group[path]
        if isinstance(array, VirtualArray):
            yield path, array


def _near(group: VirtualGroup, path: str) -> Iterator[str]:
    """Paths of arrays in the array's group, those above, and those beside it that locate others."""
    for folder, holder in groups_around(group, path):
        yield from (path_in(folder, name) for name in holder.arrays)
        for beside, each in holder.groups.items():
            if beside.lower() in _BESIDE:
                yield from (path_in(folder, f"{beside}/{name}") for name in each.arrays)


def upward(group: VirtualGroup, path: str, name: str) -> str | None:
    """Path of the array of a name in the array's group or one above."""
    candidates = (path_in(folder, name) for folder, _ in groups_around(group, path))
    found = (each for each in candidates if each in group and isinstance(group[each], VirtualArray))
    return next(found, None)


def _compass(path: str, array: VirtualArray) -> str | None:
    if "rad" in text_of(array.attrs, "units").lower():
        return None  # maps are of degrees
    named = {"latitude": "N", "longitude": "E"}.get(text_of(array.attrs, "standard_name"))
    return named or compass_of(array.attrs) or _NAMES.get(path.rpartition("/")[2].lower())


def _covers(coordinate: VirtualArray, array: VirtualArray) -> bool:
    if coordinate.dtype.kind not in "iuf":
        return False
    dims = coordinate.dims[-2:]
    if coordinate.ndim not in (2, 3) or len(set(dims)) != 2:
        return False
    nameless = all(dim.startswith(_NAMELESS) for dim in (*dims, *array.dims[-2:]))
    if nameless and coordinate.shape == array.shape[-2:]:
        return True
    lengths = dict(zip(array.dims, array.shape, strict=True))
    return [lengths.get(dim) for dim in dims] == [*coordinate.shape[-2:]]


# Grid mappings


def _grid_mapping(group: VirtualGroup, path: str) -> Mapping[str, Any] | None:
    """Attributes of the grid mapping of an array."""
    name = grid_mapping_of(group[path].attrs)
    found = upward(group, path, name) if name else None
    return None if found is None else group[found].attrs


def _mapped(group: VirtualGroup, path: str, array: VirtualArray) -> dict[str, Any] | None:
    attrs = _grid_mapping(group, path)
    if attrs is None or array.ndim < 2:
        return None
    dims = _rows_and_columns(group, path, array)
    if text_of(attrs, "grid_mapping_name") == "rotated_latitude_longitude":
        return _rotated(attrs, dims)
    found = _projection(system_of(attrs))
    if found is None:
        return None
    text, metres = found
    height = float(_number(attrs, "perspective_point_height") or 1)
    units = [_size(group, path, dim, height, metres) for dim in dims]
    return {"projection": text, "units": units, "dims": dims}


def _rows_and_columns(group: VirtualGroup, path: str, array: VirtualArray) -> list[str]:
    """The dimensions of y and of x, as their coordinates or names say; else the last two."""
    found = {dim: at for dim in array.dims if (at := upward(group, path, dim))}
    labels = {dim: array_at(group, at) for dim, at in found.items()}
    ways = {dim: dim for dim in array.dims} | dims_by_direction(reversed(array.dims), labels)
    return [ways["y"], ways["x"]] if {"x", "y"} <= set(ways) else list(array.dims[-2:])


def _rotated(attrs: Mapping[str, Any], dims: list[str]) -> dict[str, Any] | None:
    names = ("grid_north_pole_latitude", "grid_north_pole_longitude", "north_pole_grid_longitude")
    pole = [_number(attrs, name) for name in names]
    return None if None in pole[:2] else {"pole": [pole[0], pole[1], pole[2] or 0.0], "dims": dims}


def reference_system(group: VirtualGroup, path: str, *, is_geographic: bool = False) -> str:
    """The reference system that the grid mapping of an array states, as WKT.

    Parameters
    ----------
    group, path
        As for `earth_of`.
    is_geographic
        Whether to give the system of the latitudes and longitudes that a projection is made of.

    Returns
    -------
    str
        Empty where nothing is stated that PROJ understands.
    """
    attrs = _grid_mapping(group, path)
    crs = None if attrs is None else crs_of(system_of(attrs))
    if crs is not None and is_geographic and crs.is_projected:
        crs = crs.geodetic_crs
    return "" if crs is None else str(crs.to_wkt())


def _number(attrs: Mapping[str, Any], name: str) -> float | None:
    try:
        return float(attrs[name])
    except (KeyError, TypeError, ValueError):
        return None


@lru_cache(maxsize=256)
def _projection(system: System) -> tuple[str, float] | None:
    """A projected reference system as a text of PROJ, and metres of its unit; None without one."""
    crs = crs_of(system)
    if crs is None or not crs.is_projected:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such texts say less than WKT, and enough here
        text = crs.to_proj4()
    return (text, crs.axis_info[0].unit_conversion_factor) if text else None


def _size(group: VirtualGroup, path: str, dim: str, height: float, metres: float) -> float:
    """What a unit of a coordinate is in the system's, whose unit has so many metres.

    Angles are those of a satellite that looks down. Other units are the system's own.
    """
    found = upward(group, path, dim)
    units = text_of(group[found].attrs, "units").strip().lower() if found else ""
    size = _RADIANS[units] * height if units in _RADIANS else METRES.get(units, metres)
    return size / metres
