"""GRIB files of both editions: their fields as a virtual group.

Fields become variables: one for each parameter, kind of level and kind of statistic, on each grid.
Each is in a group, ``isobaricInhPa`` or ``surface/accum``, so that the variables of a group share
their dimensions. Dimensions are number (of members), time, step and level; where a variable lacks a
field that others of its group have, its values are NaN. Names are those of cfgrib.

Latitudes and longitudes along axes are kept as values. Those of each point of a projection follow
from the grid section, which is kept as the one chunk of both arrays: ``gridref.grib_places``
computes them when they are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gridref.codecs.grib import PLACES, VALUES
from gridref.codecs.grib_grids import DEGREES, Grid, GridError, UnknownGridError, read_grid
from gridref.errors import UnsupportedFeatureError
from gridref.formats.chunks import scattered_chunks
from gridref.formats.georeference import SPATIAL_REF, grid_mapping
from gridref.formats.grib.header import Field
from gridref.formats.grib.index_files import fields_of
from gridref.formats.grib.product import (
    CENTRES,
    UNKNOWN,
    Parameter,
    Product,
    level_type,
    parameter_of,
)
from gridref.formats.location import Location
from gridref.formats.scanner import Findings, ScanOptions
from gridref.learned import FORMS
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Codec, shared_encoding
from gridref.model.manifest import ChunkManifest, Source
from gridref.model.scan_report import Fate

_FLOAT = np.dtype("f4")
_CODECS = (Codec(VALUES),)
_AXES = {
    "isobaricInhPa",
    "isobaricInPa",
    "isobaricLayer",
    "hybrid",
    "hybridLayer",
    "generalVertical",
    "generalVerticalLayer",
    "sigma",
    "sigmaLayer",
    "theta",
    "heightAboveSea",
}
"""Levels that are a dimension even where a file has one of them."""
_HEIGHTS = "heightAboveGroundLayer"
_NUMBERED = {"soilLayer", "snowLayer", "seaIceLayer", "oceanModelLayer"}
"""Layers between numbered surfaces: the lower one, which has the number of the layer, counts."""
_ORDERED = 241
"""Number of the kind of level that is an ordered sequence of data (WMO, code table 4.5)."""
_NAMES_BYTES = 4000
"""What a product and its names take in memory, about."""
_DECREASING = {"isobaricInhPa", "isobaricInPa"}
_DERIVED = {0: "mean", 1: "weighted_mean", 2: "spread", 3: "normalized_spread", 4: "spread"}
_TIME = {
    "units": "seconds since 1970-01-01T00:00:00",
    "calendar": "proleptic_gregorian",
}
_ABOUT: dict[str, dict[str, Any]] = {
    "number": {
        "units": "1",
        "standard_name": "realization",
        "long_name": "ensemble member numerical id",
    },
    "time": _TIME
    | {"standard_name": "forecast_reference_time", "long_name": "initial time of forecast"},
    "step": {
        "units": "seconds",
        "dtype": "timedelta64[ns]",
        "standard_name": "forecast_period",
        "long_name": "time since forecast_reference_time",
    },
    "valid_time": _TIME
    | {"standard_name": "time", "long_name": "time", "_FillValue": np.int64(np.iinfo("i8").min)},
}
_SOIL = {"units": "m", "positive": "down", "long_name": "soil depth", "standard_name": "depth"}
_SOIL_1 = _SOIL | {"units": "cm"}
_PRESSURE = {"positive": "down", "standard_name": "air_pressure", "long_name": "pressure"}
_LEVELS: dict[str, dict[str, Any]] = {
    "depthBelowLand": _SOIL,
    "depthBelowLandLayer": _SOIL,
    "hybrid": {
        "units": "1",
        "positive": "down",
        "long_name": "hybrid level",
        "standard_name": "atmosphere_hybrid_sigma_pressure_coordinate",
    },
    "heightAboveGround": {
        "units": "m",
        "positive": "up",
        "long_name": "height above the surface",
        "standard_name": "height",
    },
    "isobaricInhPa": _PRESSURE | {"units": "hPa", "stored_direction": "decreasing"},
    "isobaricInPa": _PRESSURE | {"units": "Pa", "stored_direction": "decreasing"},
    "isobaricLayer": _PRESSURE | {"units": "hPa"},
}
"""Attributes of levels, as cfgrib has them."""
_LEVELS_1 = _LEVELS | {
    "depthBelowLand": _SOIL_1,
    "depthBelowLandLayer": _SOIL_1,
    "isobaricLayer": _PRESSURE | {"units": "kPa"},
}
"""Those of edition 1: its numbers are in the units of code table 3."""

type _Labels = tuple[int | None, int, int, float | None]
"""Number, time, step and level."""


@dataclass
class _Variable:
    """The fields of a variable, by their labels."""

    parameter: Parameter
    product: Product
    grid: GridArrays
    fields: dict[_Labels, Field] = field(default_factory=dict)

    def labels(self, axis: int) -> set[Any]:
        return {labels[axis] for labels in self.fields}


@dataclass
class _Group:
    """The variables of a group."""

    level: str
    about_level: Mapping[str, Any]
    grid: GridArrays
    variables: dict[str, _Variable] = field(default_factory=dict)


@dataclass
class _Sorted:
    """Fields by groups and variables."""

    source: Source
    findings: Findings
    groups: dict[tuple[str, ...], _Group] = field(default_factory=dict)

    def refuse(self, path: str, reason: str) -> None:
        self.findings.refuse(path, UnsupportedFeatureError(reason))


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe a file; raises as `gridref.formats.scan` does."""
    fields, unfit = fields_of(location.opened, location.head, options)
    return group_of_fields(fields, location.opened.source, options, unfit)


def group_of_fields(
    fields: Sequence[Field], source: Source, options: ScanOptions, unfit: str = ""
) -> VirtualGroup:
    """Describe the fields of a file.

    Parameters
    ----------
    unfit
        Why an index file beside it is not used, for the report.
    """
    found = _sorted(fields, source)
    if unfit:
        found.findings.note("/index file", Fate.SKIPPED, unfit)
    tree: dict[tuple[str, ...], VirtualGroup] = {}
    for path, group in found.groups.items():
        tree[path] = _built(path, group, found)
    first = next((f.product for f in fields if isinstance(f.product, Product)), None)
    return VirtualGroup(
        _shared_times(tree.values()),
        groups=_nested(tree),
        attrs={} if first is None else _about_file(first),
        report=found.findings.report(options),
        unlimited_dims=frozenset(),
    )


def _shared_times(groups: Iterable[VirtualGroup]) -> dict[str, VirtualArray]:
    """Times and steps of the file, where all groups have the same ones.

    An archive is placed by them, also where some of its files lack a group.
    """
    held = [group.arrays for group in groups if group.arrays]
    names = ("time", "step", "valid_time")  # times that are valid together may begin apart
    manifests = [[arrays[name].manifests[0] for name in names] for arrays in held]
    times = {
        tuple(own.inline for own in each if isinstance(own, ChunkManifest)) for each in manifests
    }
    return {name: held[0][name] for name in names} if len(times) == 1 else {}


# Sorting fields


def _sorted(fields: Sequence[Field], source: Source) -> _Sorted:
    found = _Sorted(source, Findings(source.url))
    grids: dict[tuple[bytes, int], GridArrays] = {}
    numbers: dict[str, int] = {}
    for number, each in enumerate(fields, 1):
        path = f"/message {number}"
        try:
            key = each.grid, each.edition
            if key not in grids:
                grids[key] = grid_arrays(*key)
                numbers.setdefault(grids[key].key, len(numbers))
        except UnsupportedFeatureError as error:
            found.refuse(path, error.reason)
            continue
        if isinstance(each.product, Product):
            grid = grids[key]
            _sort(each, each.product, grid, numbers[grid.key], found)
        else:
            found.refuse(path, str(each.product))
    return found


def _sort(each: Field, product: Product, grid: GridArrays, n_grid: int, found: _Sorted) -> None:
    level, parameter = _named(product)
    name = parameter.variable.replace("/", "_")
    above = (*([f"grid_{n_grid}"] if n_grid else []), level)
    labels = (product.number, product.time, product.step, _level_label(product, level))
    about_level = (_LEVELS_1 if product.edition == 1 else _LEVELS).get(level, {"long_name": level})
    known, path = each, ""
    for window in _windows(product):
        at = (*above, *window, *_kinds(product))
        path = f"/{'/'.join(at)}/{name}"
        group = found.groups.setdefault(at, _Group(level, about_level, grid))
        if group.about_level != about_level:
            found.refuse(path, f"its edition {product.edition} states {level} in other units")
            return
        variable = group.variables.setdefault(name, _Variable(parameter, product, grid))
        if variable.parameter != parameter:
            names = f"{variable.parameter.name} and {parameter.name}"
            found.refuse(path, f"two parameters have its name, {names}")
            return
        known = variable.fields.setdefault(labels, each)
        if known is each:
            return
    where = f"the field at byte {each.offset} has the labels of that at {known.offset}"
    if known.mark == each.mark:
        why = f"{where} again, the first one is taken"
        found.findings.note(path, Fate.SKIPPED, why)
    else:
        found.refuse(path, f"{where} and is not told apart from it")


def _level_label(product: Product, level: str) -> float | None:
    """The upper level of a layer, as in cfgrib; above the ground the larger height."""
    if level == _HEIGHTS and product.level is not None and product.bottom is not None:
        return max(product.level, product.bottom)
    return product.bottom if level in _NUMBERED else product.level


def _named(product: Product) -> tuple[str, Parameter]:
    """The kind of level, and the names of the parameter. Few of the fields of an archive differ."""
    key = (
        "GRIB names",
        product.edition,
        product.centre,
        product.is_of_ecmwf,
        product.tables_version,
        *sorted(product.keys.items()),
    )
    known: tuple[str, Parameter] | None = FORMS.get(key)
    if known is None:
        known = _level_name(product), parameter_of(product)
        FORMS.put(key, known, _NAMES_BYTES)
    return known


def _level_name(product: Product) -> str:
    """The name of a kind of level; its number where there is none."""
    found = level_type(product)
    if found != UNKNOWN:
        return found
    keys = product.keys
    first = keys.get("typeOfFirstFixedSurface", keys.get("indicatorOfTypeOfLevel"))
    return "orderedSequenceData" if first == _ORDERED else f"level_{first}"


def _windows(product: Product) -> list[tuple[str, ...]]:
    """Groups of a statistic: that of windows from the beginning of the forecast, and by length.

    The first hour is both: a file that has it twice, as NCEP's do, has it in both groups.
    """
    if product.window is None:
        return [() if product.step_type == "instant" else (product.step_type,)]
    unit, letter = next(
        (unit, letter)
        for unit, letter in ((3600, "h"), (60, "min"), (1, "s"))
        if product.window % unit == 0
    )
    by_length = (f"{product.step_type}_{product.window // unit}{letter}",)
    return [(product.step_type,), by_length] if product.window == product.step else [by_length]


def _kinds(product: Product) -> list[str]:
    what, _, number = product.kind.partition("_")
    if what == "derived":
        return [f"ensemble_{_DERIVED.get(int(number), number)}"]
    return [product.kind] if product.kind else []


# Building arrays


def _built(path: tuple[str, ...], group: _Group, found: _Sorted) -> VirtualGroup:
    for name, variable in list(group.variables.items()):
        if None in (members := variable.labels(0)) and len(members) > 1:
            reason = "some of its fields are members of an ensemble, and others are of none"
            found.refuse(f"/{'/'.join(path)}/{name}", reason)
            del group.variables[name]
    axes = _axes(group)
    arrays: dict[str, VirtualArray] = {}
    used: set[str] = set()
    for name, variable in group.variables.items():
        place = f"/{'/'.join(path)}/{name}"
        dims = _dims_of(variable, group)
        own = {dim: axes[dim] for dim in dims}
        n_places = math.prod(map(len, own.values()))
        n_fields = len(variable.fields)
        if n_places > min(limits().field_places * n_fields, limits().sparse_chunk_rows):
            found.refuse(
                place,
                beyond("field_places", f"its {n_fields} fields are among {n_places} places"),
            )
            continue
        arrays[name] = _array(variable, group.level, own, found.source)
        used |= own.keys()
        found.findings.note(place, Fate.TAKEN)
    coordinates = {dim: _coordinate(dim, axes[dim], group) for dim in axes if dim in used}
    if used:
        coordinates["valid_time"] = _valid_times(axes["time"], axes["step"])
    return VirtualGroup({**coordinates, **group.grid.arrays, **arrays} if used else {})


_DIMS = ("number", "time", "step")


def _dims_of(variable: _Variable, group: _Group) -> list[str]:
    dims = list(_DIMS) if variable.labels(0) != {None} else ["time", "step"]
    levels = variable.labels(3)
    if len(levels) > 1 or (group.level in _AXES and levels != {None}):
        dims.append(group.level)
    return dims


def _axes(group: _Group) -> dict[str, dict[Any, int]]:
    """For each dimension the labels of all variables that have it, with their places."""
    labels: dict[str, set[Any]] = {}
    for variable in group.variables.values():
        for dim in _dims_of(variable, group):
            axis = 3 if dim == group.level else _DIMS.index(dim)
            labels.setdefault(dim, set()).update(variable.labels(axis))
    return {
        dim: {
            label: place
            for place, label in enumerate(
                sorted(
                    found,
                    key=lambda label: (label is not None, label or 0),
                    reverse=dim in _DECREASING,
                )
            )
        }
        for dim, found in labels.items()
    }


def _array(
    variable: _Variable, level: str, axes: Mapping[str, Mapping[Any, int]], source: Source
) -> VirtualArray:
    counts = tuple(len(axis) for axis in axes.values())
    positions = [3 if dim == level else _DIMS.index(dim) for dim in axes]
    strides = [math.prod(counts[at + 1 :]) for at in range(len(counts))]
    places = list(zip(positions, axes.values(), strides, strict=True))
    fields = variable.fields.values()
    manifest = scattered_chunks(
        math.prod(counts),
        [
            sum(axis[labels[position]] * stride for position, axis, stride in places)
            for labels in variable.fields
        ],
        [source],
        offset=[each.offset for each in fields],
        length=[each.length for each in fields],
        filter_mask=[each.claim for each in fields],
    )
    grid = variable.grid
    chunk_shape = (1,) * len(counts) + grid.shape
    return VirtualArray.of_one_block(
        counts + grid.shape,
        _FLOAT,
        encoding=shared_encoding(chunk_shape, _FLOAT, _CODECS),
        manifest=manifest,
        dims=(*axes, *grid.dims),
        attrs=_about_variable(variable, level, level in axes),
        fill_value=_FLOAT.type(np.nan),
    )


def _about_variable(variable: _Variable, level: str, has_levels: bool) -> dict[str, Any]:
    parameter, product = variable.parameter, variable.product
    attrs: dict[str, Any] = {
        "GRIB_paramId": parameter.number,
        "GRIB_shortName": parameter.short,
        "GRIB_name": parameter.name,
        "GRIB_units": parameter.units,
        "GRIB_cfVarName": parameter.variable,
        "GRIB_typeOfLevel": level,
        "GRIB_stepType": product.step_type,
        **variable.grid.attrs,
        "long_name": parameter.name,
        "units": parameter.units,
    }
    if parameter.short == UNKNOWN:
        attrs["long_name"] = parameter.variable
        attrs["units"] = "1"
    if not has_levels and product.level is not None:
        attrs["GRIB_level"] = _level_label(product, level)
    if parameter.standard_name:
        attrs["standard_name"] = parameter.standard_name
    places = [name for name in ("latitude", "longitude") if name in variable.grid.arrays]
    attrs["coordinates"] = " ".join(["valid_time", *places])
    return attrs


def _coordinate(dim: str, labels: Iterable[Any], group: _Group) -> VirtualArray:
    if dim == group.level:
        return VirtualArray.from_numpy(np.array(list(labels), "f8"), (dim,), group.about_level)
    return VirtualArray.from_numpy(np.array(list(labels), "i8"), (dim,), _ABOUT[dim])


def _valid_times(times: Iterable[int], steps: Iterable[int]) -> VirtualArray:
    values = np.add.outer(np.array(list(times), "i8"), np.array(list(steps), "i8"))
    about = _ABOUT["valid_time"]
    return VirtualArray.from_numpy(values, ("time", "step"), about, about["_FillValue"])


def _about_file(product: Product) -> dict[str, Any]:
    centre = CENTRES.get(product.centre, str(product.centre))
    return {"GRIB_edition": product.edition, "GRIB_centre": centre, "Conventions": "CF-1.7"}


def _nested(tree: Mapping[tuple[str, ...], VirtualGroup]) -> dict[str, VirtualGroup]:
    """Groups inside of groups, out of groups by their paths."""
    names = dict.fromkeys(path[0] for path in tree)
    found: dict[str, VirtualGroup] = {}
    for name in names:
        below = {path[1:]: group for path, group in tree.items() if path[0] == name}
        own = below.pop((), VirtualGroup())
        found[name] = own.with_changes(groups=_nested(below)) if below else own
    return found


# Dimensions and coordinates of grids


_CELLS = ("values",)
_LATITUDE = {
    "units": "degrees_north",
    "standard_name": "latitude",
    "long_name": "latitude",
}
_LONGITUDE = {
    "units": "degrees_east",
    "standard_name": "longitude",
    "long_name": "longitude",
}
_ZERO = VirtualArray.from_numpy(np.array(0), ())


@dataclass(frozen=True)
class GridArrays:
    """What a grid gives to the groups that have it.

    Attributes
    ----------
    key
        Equal for grids whose points are at the same places.
    dims, shape
        Dimensions of a field, named as cfgrib does.
    arrays
        Coordinate variables and the grid mapping.
    attrs
        Attributes of variables on it.
    """

    key: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    arrays: Mapping[str, VirtualArray]
    attrs: Mapping[str, Any]

    @property
    def kept_bytes(self) -> int:
        """Bytes of the coordinates that are values; those of planes are computed."""
        return sum(array.nbytes for array in self.arrays.values() if array.ndim == 1)


@FORMS.keeps(lambda grid, section, _: 20_000 + len(section) + grid.kept_bytes)
def grid_arrays(section: bytes, edition: int) -> GridArrays:
    """Describe the grid of a section."""
    try:
        return _made(read_grid(section, edition), section, edition)
    except UnknownGridError as error:
        raise UnsupportedFeatureError(str(error)) from error
    except GridError as error:
        raise UnsupportedFeatureError(f"its grid is damaged: {error}") from error


def _made(grid: Grid, section: bytes, edition: int) -> GridArrays:
    if 4 * grid.n_points > limits().decoded_bytes:
        raise UnsupportedFeatureError(
            beyond("decoded_bytes", f"its grid of {grid.n_points} points has more bytes")
        )
    attrs: dict[str, Any] = {"GRIB_gridType": grid.kind, "GRIB_numberOfPoints": grid.n_points}
    if not grid.has_places:
        return GridArrays(repr((section, edition)), _CELLS, grid.shape, {}, attrs)
    arrays: dict[str, VirtualArray] = {}
    if grid.kind in DEGREES:
        dims: tuple[str, ...] = ("latitude", "longitude")
        for dim, values, about in zip(dims, grid.axes(), (_LATITUDE, _LONGITUDE), strict=True):
            arrays[dim] = VirtualArray.from_numpy(values, (dim,), about)
    else:
        if len(grid.shape) == 1:
            dims = _CELLS
        else:
            dims = ("y", "x")
            names = ("Y", "X")
            of_axes = _axis(grid)
            for dim, values, letter in zip(dims, grid.axes(), names, strict=True):
                arrays[dim] = VirtualArray.from_numpy(values, (dim,), of_axes[letter])
        for name, about_place in (("latitude", _LATITUDE), ("longitude", _LONGITUDE)):
            arrays[name] = _computed(name, grid, section, edition, dims, about_place)
    arrays[SPATIAL_REF] = _ZERO.with_changes(attrs=_mapping(grid))
    attrs["grid_mapping"] = SPATIAL_REF
    return GridArrays(_key(grid), dims, grid.shape, arrays, attrs)


def _key(grid: Grid) -> str:
    """The editions state other radii of the Earth, which move no point along parallels."""
    of_degrees = not grid.projection
    return repr(replace(grid, axes_of_earth=(0.0, 0.0)) if of_degrees else grid)


def _computed(
    name: str,
    grid: Grid,
    section: bytes,
    edition: int,
    dims: tuple[str, ...],
    attrs: Mapping[str, Any],
) -> VirtualArray:
    dtype = np.dtype("f8")
    codec = Codec.of(PLACES, coordinate=name, edition=edition)
    return VirtualArray.of_one_block(
        grid.shape,
        dtype,
        encoding=shared_encoding(grid.shape, dtype, (codec,)),
        manifest=ChunkManifest.from_inline([section]),
        dims=dims,
        attrs=attrs,
    )


def _axis(grid: Grid) -> dict[str, dict[str, str]]:
    if grid.kind.startswith("rotated"):
        return {
            letter: {"axis": letter, "units": "degrees", "standard_name": f"grid_{name}"}
            for letter, name in (("Y", "latitude"), ("X", "longitude"))
        }
    return {
        letter: {
            "axis": letter,
            "units": "m",
            "standard_name": f"projection_{letter.lower()}_coordinate",
        }
        for letter in "YX"
    }


def _mapping(grid: Grid) -> dict[str, Any]:
    """CF attributes of the reference system."""
    import pyproj
    from pyproj.exceptions import CRSError

    try:
        return grid_mapping(pyproj.CRS.from_dict(grid.crs_parameters()))
    except CRSError as error:
        raise UnsupportedFeatureError(f"its grid has no reference system: {error}") from error
