"""HDF-EOS2: grids with their georeference, and swaths with their geolocation.

The attribute ``StructMetadata.0`` (and ``.1`` and so on, if it is long) names the grids and swaths
of a file, their dimensions and fields, in ODL. Fields are data sets whose dimensions are named like
``YDim:NAME_OF_GRID``.

Sources: HDF-EOS Library User's Guide, volume 1 (170-EMD-001), sections 3.5 (grids), 3.4 (swaths)
and 6 (projections); GCTP, appendix A (projection parameters).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gridref.formats.georeference import SPATIAL_REF, Georeference, grid_mapping
from gridref.formats.hdf4.datasets import Dataset
from gridref.learned import FORMS
from gridref.model.array import VirtualArray
from gridref.model.pixels import Affine

_PARAMETERS = {
    "lat_1": 2,
    "lat_2": 3,
    "lon_0": 4,
    "lat_0": 5,
    "lat_ts": 5,
}
"""Places of angles in ``ProjParams``, under the names of PROJ."""
_PROJECTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "GCTP_GEO": ("longlat", ()),
    "GCTP_ALBERS": ("aea", ("lat_1", "lat_2", "lon_0", "lat_0")),
    "GCTP_LAMCC": ("lcc", ("lat_1", "lat_2", "lon_0", "lat_0")),
    "GCTP_MERCAT": ("merc", ("lon_0", "lat_ts")),
    "GCTP_PS": ("stere", ("lon_0", "lat_ts")),
    "GCTP_TM": ("tmerc", ("lon_0", "lat_0")),
    "GCTP_LAMAZ": ("laea", ("lon_0", "lat_0")),
    "GCTP_SNSOID": ("sinu", ("lon_0",)),
    "GCTP_EQRECT": ("eqc", ("lon_0", "lat_ts")),
    "GCTP_CEA": ("cea", ("lon_0", "lat_ts")),
    "GCTP_UTM": ("utm", ()),
}
"""Names of projections: that of PROJ, and the angles that they take."""
_ELLIPSOIDS: Mapping[int, dict[str, Any]] = {
    0: {"ellps": "clrk66"},
    1: {"ellps": "clrk80"},
    2: {"ellps": "bessel"},
    4: {"ellps": "intl"},
    5: {"ellps": "WGS72"},
    8: {"ellps": "GRS80"},
    9: {"ellps": "airy"},
    12: {"datum": "WGS84"},
    15: {"ellps": "krass"},
    19: {"R": 6370997.0},
}
"""Ellipsoids by ``SphereCode``."""
_WGS84 = {"proj": "longlat", "datum": "WGS84"}
_MIRRORED = {"HDFE_GD_UR": (True, False), "HDFE_GD_LL": (False, True), "HDFE_GD_LR": (True, True)}
"""Where the first pixel is not the upper left one: whether columns and rows are reversed."""

_GEOLOCATION = ("Latitude", "Longitude")

type Odl = dict[str, Any]


@dataclass(frozen=True)
class Structure:
    """A grid or a swath.

    Attributes
    ----------
    fields
        Dimensions of its fields by name.
    facts
        Its other entries in ODL.
    """

    name: str
    is_grid: bool
    fields: Mapping[str, tuple[str, ...]]
    facts: Mapping[str, Any]

    def number(self, name: str) -> int:
        """A whole number among its facts; -1 if there is none."""
        text = str(self.facts.get(name, ""))
        return int(text) if re.fullmatch(r"-?\d{1,9}", text) else -1

    def numbers(self, name: str) -> list[float]:
        """A list of numbers among its facts; empty if there is none."""
        try:
            found = [float(word) for word in _words(self.facts.get(name, ""))]
        except ValueError:
            return []
        return found if all(map(math.isfinite, found)) else []


def structures_of(attrs: Mapping[str, Any]) -> list[Structure]:
    """The grids and swaths that the attributes of a file name."""
    parts: list[str] = []
    while isinstance(text := attrs.get(f"StructMetadata.{len(parts)}"), str):
        parts.append(text)
    root = _parsed("".join(parts))
    return [
        structure
        for kind, is_grid in (("Grid", True), ("Swath", False))
        for structure in _structures(_group(root, f"{kind}Structure"), kind, is_grid)
    ]


def _structures(listed: Odl, kind: str, is_grid: bool) -> Iterator[Structure]:
    for facts in filter(lambda each: isinstance(each, dict), listed.values()):
        name = str(facts.get(f"{kind}Name", "")).strip('"')
        fields = {
            str(entry.get(f"{which}Name", "")).strip('"'): tuple(_words(entry.get("DimList", "")))
            for which in ("DataField", "GeoField")
            for entry in _group(facts, which).values()
            if isinstance(entry, dict)
        }
        if name and "/" not in name:
            yield Structure(name, is_grid, fields, facts)


def _parsed(text: str) -> Odl:
    """Groups and objects of ODL as dictionaries of texts."""
    root: Odl = {}
    open_ones, last = [root], ""
    for line in map(str.strip, text.splitlines()):
        key, equals, value = (part.strip() for part in line.partition("="))
        if key in ("GROUP", "OBJECT"):
            open_ones.append({})
            open_ones[-2][value] = open_ones[-1]
        elif key in ("END_GROUP", "END_OBJECT"):
            open_ones = open_ones[:-1] or [root]
        elif equals:
            last = key
            open_ones[-1][key] = value
        elif isinstance(open_ones[-1].get(last), str):
            open_ones[-1][last] += line  # a value of several lines
    return root


def _group(odl: Odl, name: str) -> Odl:
    group = odl.get(name)
    return group if isinstance(group, dict) else {}


def _words(value: Any) -> list[str]:
    """The members of a list in brackets."""
    return [word.strip().strip('"') for word in str(value).strip("() ").split(",") if word.strip()]


class Structures:
    """Where the data sets of a file belong.

    The only grid or swath of a file is its root. Of several each is a group.
    """

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self._all = structures_of(attrs)
        self._georeferences = {
            each.name: georeference for each in self._all if (georeference := _georeference(each))
        }

    def placed(self, dataset: Dataset) -> tuple[str, Dataset]:
        """The group of a data set, and the data set with the dimensions and coordinates there."""
        structure = self._structure_of(dataset)
        if structure is None:
            return "", dataset
        dims = _dims_of(dataset, structure)
        own = replace(dataset, dims=dims, attrs=self._attributes(structure, dataset, dims))
        return self._group_of(structure), own

    def _group_of(self, structure: Structure) -> str:
        return "" if len(self._all) == 1 else structure.name

    def _attributes(
        self, structure: Structure, dataset: Dataset, dims: tuple[str, ...]
    ) -> Mapping[str, Any]:
        """The attributes of a field, which name its coordinates."""
        if structure.name in self._georeferences and {"x", "y"} <= {*dims}:
            mapping = {"grid_mapping": SPATIAL_REF}
            return _with_coordinates(dataset.attrs, [SPATIAL_REF]) | mapping
        latitudes, longitudes = (structure.fields.get(name, ()) for name in _GEOLOCATION)
        is_located = latitudes and latitudes == longitudes and {*latitudes} <= {*dims}
        if structure.is_grid or dataset.name in _GEOLOCATION or not is_located:
            return dataset.attrs
        return _with_coordinates(dataset.attrs, _GEOLOCATION)

    def _structure_of(self, dataset: Dataset) -> Structure | None:
        named = {dim.rpartition(":")[2] for dim in dataset.dims if ":" in dim}
        found = [each for each in self._all if each.name in named]
        found = found or [each for each in self._all if dataset.name in each.fields]
        return found[0] if len(found) == 1 else None

    def coordinates(self) -> Iterator[tuple[str, dict[str, VirtualArray]]]:
        """The coordinates of each grid, by its group."""
        for structure in self._all:
            georeference = self._georeferences.get(structure.name)
            if georeference is not None:
                shape = structure.number("YDim"), structure.number("XDim")
                yield self._group_of(structure), georeference.coordinates(*shape)


def _dims_of(dataset: Dataset, structure: Structure) -> tuple[str, ...]:
    """The dimensions of a field without the name of the grid or swath; of grids ``y`` and ``x``."""
    dims = structure.fields.get(dataset.name, ())
    if len(dims) != len(dataset.dims):
        dims = tuple(dim.removesuffix(f":{structure.name}") for dim in dataset.dims)
    if not structure.is_grid:
        return dims
    axes = {(name, structure.number(name)): name[0].lower() for name in ("XDim", "YDim")}
    return tuple(axes.get(axis, axis[0]) for axis in zip(dims, dataset.shape, strict=True))


def _with_coordinates(attrs: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Attributes that name coordinates, besides those that they name already."""
    stated = attrs.get("coordinates")
    known = stated.split() if isinstance(stated, str) else []
    return {**attrs, "coordinates": " ".join(dict.fromkeys([*known, *names]))}


def _georeference(structure: Structure) -> Georeference | None:
    """The georeference of a grid; None if its corners are unknown."""
    corners = [structure.numbers(name) for name in ("UpperLeftPointMtrs", "LowerRightMtrs")]
    n_columns, n_rows = structure.number("XDim"), structure.number("YDim")
    projection = str(structure.facts.get("Projection", ""))
    if (
        not structure.is_grid
        or [len(corner) for corner in corners] != [2, 2]
        or min(n_columns, n_rows) < 1
    ):
        return None
    if projection == "GCTP_GEO":
        corners = [[_degrees(angle) for angle in corner] for corner in corners]
    elif projection == "GCTP_BCEA":
        return None  # its corners are angles, which are not those of pixels in degrees
    (left, top), (right, bottom) = corners
    columns, rows = _MIRRORED.get(str(structure.facts.get("GridOrigin", "")), (False, False))
    left, right = (right, left) if columns else (left, right)
    top, bottom = (bottom, top) if rows else (top, bottom)
    if left == right or top == bottom:
        return None
    affine = Affine(left, (right - left) / n_columns, 0.0, top, 0.0, (bottom - top) / n_rows)
    crs = _crs(structure, projection)
    return Georeference(affine, crs, "Area", crs is None)


def _degrees(packed: float) -> float:
    """An angle packed as DDDMMMSSS.SS; one that is so small is in degrees already."""
    if abs(packed) <= 360:
        return packed
    degrees, rest = divmod(abs(packed), 1e6)
    minutes, seconds = divmod(rest, 1e3)
    return math.copysign(degrees + minutes / 60 + seconds / 3600, packed)


def _crs(structure: Structure, projection: str) -> dict[str, Any] | None:
    """Attributes of the grid mapping; None if the projection or the ellipsoid is unknown."""
    proj = _proj(structure, projection)
    return None if proj is None else _mapping(tuple(proj.items()))


@FORMS.keeps(lambda *_: 20_000)
def _mapping(items: tuple[tuple[str, Any], ...]) -> dict[str, Any] | None:
    import pyproj
    from pyproj.exceptions import CRSError

    proj = dict(items)
    try:
        crs = pyproj.CRS.from_epsg(4326) if proj == _WGS84 else pyproj.CRS.from_dict(proj)
        return grid_mapping(crs)
    except CRSError:
        return None


def _proj(structure: Structure, projection: str) -> dict[str, Any] | None:
    """The system in the terms of PROJ."""
    if projection not in _PROJECTIONS:
        return None
    name, angles = _PROJECTIONS[projection]
    numbers = [*structure.numbers("ProjParams"), *[0.0] * 13][:13]
    ellipsoid = _ellipsoid(structure, numbers)
    if ellipsoid is None:
        return None
    proj: dict[str, Any] = {"proj": name, **ellipsoid}
    if name == "longlat":
        return proj
    if name == "utm":
        zone = structure.number("ZoneCode")
        south = {"south": True} if str(structure.facts.get("ZoneCode", "")).startswith("-") else {}
        return proj | {"zone": abs(zone)} | south if 1 <= abs(zone) <= 60 else None
    proj |= {angle: _degrees(numbers[_PARAMETERS[angle]]) for angle in angles}
    if name == "stere":
        proj["lat_0"] = math.copysign(90.0, proj["lat_ts"])
    if name == "tmerc":
        proj["k_0"] = numbers[2] or 1.0
    return proj | {"x_0": numbers[6], "y_0": numbers[7], "units": "m"}


def _ellipsoid(structure: Structure, numbers: list[float]) -> dict[str, Any] | None:
    """The ellipsoid: of a code, or with axes of its own; WGS 84 for degrees without any."""
    code, major, minor = structure.number("SphereCode"), *map(abs, numbers[:2])
    if code >= 0:
        return _ELLIPSOIDS.get(code)
    if major > 0:
        if minor == 0:
            return {"R": major}
        # GCTP takes a small number for the square of the eccentricity, whatever its sign.
        return {"a": major, "b": minor} if minor > 1 else {"a": major, "es": minor}
    return {"datum": "WGS84"} if structure.facts.get("Projection") == "GCTP_GEO" else None
