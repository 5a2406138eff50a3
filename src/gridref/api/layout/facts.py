"""Facts about files, from which their layout is found. Each fact is read when it is first needed.

Detectors (`gridref.api.layout.detectors`) ask `Facts` only. A `Source` is what could label files:
a scalar coordinate, an attribute, or a part of their names.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gridref.api.layout.cubes import varying_dims
from gridref.api.layout.names import VARIABLE, NameField, NameParts, name_parts, wells_in_names
from gridref.api.layout.sources import attribute_of
from gridref.combine.georeference import Raster, read_raster
from gridref.combine.options import Read
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.reference_systems import text_of
from gridref.model.times import TimeBase, duration_base, is_time_like

_ATTRIBUTES = {
    "source_id": "model",
    "model_id": "model",
    "experiment_id": "experiment",
    "scenario": "scenario",
    "variant_label": "member",
    "member_id": "member",
    "realization_index": "member",
    "realization": "member",
    "ensemble_member": "member",
    "driving_model_id": "driving_model",
}
"""Attributes that tell files apart (CMIP and CORDEX data reference syntax), and their dimension."""

_ELEVATION = "elangle"
"""The attribute with the elevation of a sweep, in degrees (ODIM_H5 2.4, "where" of a dataset)."""

_AXES = {
    "T": "t",
    "TP": "t",
    "Z": "z",
    "C": "c",
    "CH": "c",
    "P": "position",
    "POS": "position",
}
"""Letters before numbers in names of microscopy images, and the dimension that they count."""

_SCALARS = ("time", "realization", "forecast_reference_time", "forecast_period")
"""Standard names of scalar coordinates that can become dimensions (CF conventions, 5.7)."""

_SCALAR, _DATE, _ATTRIBUTE, _NUMBER, _WORD = range(5)
"""Ranks of sources, the best supported first."""

Span = tuple[Any, Any]
"""The least and the greatest label."""
Box = tuple[Span, ...]
"""Where a file is: a span along each dimension."""

_EVERYWHERE = (float("-inf"), float("inf"))

_ALIKE = {"proleptic_gregorian": "standard"}
"""Calendars that are the same for all dates since 1582."""

_ROUNDING_NS = 10**6
"""How far sums of times may be off, as they are compared as floats."""


@dataclass(frozen=True)
class Source:
    """A possible source of labels: its value in each file, and the dimension that it labels."""

    rank: int
    dim: str
    values: tuple[Any, ...]
    reason: str
    field: NameField | None = None
    attribute: str | None = None

    @property
    def meaning(self) -> Any:
        """Equal for sources that say the same: one attribute under two names, a repeated number."""
        if self.field is None:
            return self.dim
        return (self.values, self.field.kind) if self.field.is_time else self.values


@dataclass(frozen=True, eq=False)
class Facts:
    """Facts of files.

    Attributes
    ----------
    files, groups
        Addresses, and what was scanned of each.
    read
        Reads all values of an array.
    """

    files: Sequence[str]
    groups: Sequence[VirtualGroup]
    read: Read

    # Variables and dimensions

    @cached_property
    def variables(self) -> list[set[str]]:
        """Of each file the variables that are no index, scalar or bounds, or one without a name."""
        return [_variables(group) or {""} for group in self.groups]

    @cached_property
    def words(self) -> set[str]:
        """Names of variables and dimensions, of all files."""
        held = [group.all_arrays().items() for group in self.groups]
        return {
            name
            for own in held
            for path, array in own
            for name in (path.rpartition("/")[2], *array.dims)
        }

    def differ_by_groups(self, dim: str) -> bool:
        """Whether files only lack whole groups, and groups have labels of the dimension themselves.

        What a file lacks there leaves no gap among what others hold.
        """
        held: dict[str, set[frozenset[str]]] = {}
        for own in self.variables:
            folders: dict[str, set[str]] = {}
            for path in own:
                folders.setdefault(path.rpartition("/")[0], set()).add(path)
            for folder, paths in folders.items():
                held.setdefault(folder, set()).add(frozenset(paths))
        alike = all(len(found) == 1 for found in held.values())
        return alike and not any(dim in group.arrays for group in self.groups)

    @cached_property
    def varying(self) -> list[str]:
        """Dimensions along which coordinates differ."""
        return varying_dims(self.groups, self.read)

    @cached_property
    def boxes(self) -> list[Box]:
        """Where each file is along the dimensions that vary."""
        held = [_by_name(group) for group in self.groups]
        return [tuple(self._span(own.get(dim)) for dim in self.varying) for own in held]

    @cached_property
    def is_single(self) -> bool:
        """Whether each file has one label along each dimension that varies."""
        return all(
            dim in group.arrays and group.arrays[dim].size == 1
            for dim in self.varying
            for group in self.groups
        )

    @cached_property
    def unlabelled(self) -> list[str]:
        """Unlimited dimensions of all files that have no coordinate."""
        shared = frozenset.intersection(*(group.unlimited_dims for group in self.groups))
        return [dim for dim in shared if not any(dim in group.arrays for group in self.groups)]

    @cached_property
    def by_labels(self) -> tuple[int, ...]:
        """The files in the order of their labels along the dimensions that vary."""
        return tuple(sorted(range(len(self.files)), key=self.boxes.__getitem__))

    @cached_property
    def by_times(self) -> dict[str, tuple[int, ...]]:
        """Dimensions along which times of no two files overlap, and the files in their order.

        The times are in a variable of another name; of a dimension that has labels, in one that
        other variables name as their coordinate, or that is called time by its standard name. Where
        several disagree, none counts. The largest variable has the dimension: times of something
        beside the data, as of looks at stars, say nothing of these.
        """
        held = [group.all_arrays() for group in self.groups]
        largest = max(held[0].values(), key=lambda array: array.size, default=None)
        named = {w for a in held[0].values() for w in str(a.attrs.get("coordinates", "")).split()}
        orders: dict[str, set[tuple[int, ...]]] = {}
        for path, array in held[0].items():
            if array.ndim != 1 or _is_index(path, array) or not is_time_like(array.attrs):
                continue
            (dim,) = array.dims
            if largest is None or dim not in largest.dims:
                continue
            says = (
                path.rpartition("/")[2] in named or text_of(array.attrs, "standard_name") == "time"
            )
            order = self._order([own.get(path) for own in held])
            if order is not None and (says or dim not in self.labelled):
                orders.setdefault(dim, set()).add(order)
        return {dim: min(orders[dim]) for dim in sorted(orders) if len(orders[dim]) == 1}

    def _order(self, coordinates: Sequence[VirtualArray | None]) -> tuple[int, ...] | None:
        """Files in the order of their times, if all are of one unit and none overlap."""
        units = {str(array.attrs.get("units")) for array in coordinates if array is not None}
        spans = [self._span(array) for array in coordinates]
        order = sorted(range(len(spans)), key=spans.__getitem__)
        apart = all(spans[a][1] < spans[b][0] for a, b in itertools.pairwise(order))
        return tuple(order) if len(units) == 1 and apart else None

    @cached_property
    def recorded(self) -> set[str]:
        """Dimensions that files record along: unlimited, or with times as their coordinate."""
        unlimited = frozenset.intersection(*(group.unlimited_dims for group in self.groups))
        times = {array.dims[0] for array in self._indexes if is_time_like(array.attrs)}
        return {*unlimited, *times}

    @cached_property
    def labelled(self) -> set[str]:
        """Dimensions that a coordinate of some file labels."""
        return {array.dims[0] for array in self._indexes}

    @cached_property
    def _indexes(self) -> list[VirtualArray]:
        """Coordinates of dimensions, of all files."""
        paths = (pair for group in self.groups for pair in group.all_arrays().items())
        return [array for path, array in paths if _is_index(path, array)]

    @cached_property
    def uneven(self) -> list[str]:
        """Dimensions whose length differs between files."""
        found = dict[str, None]()
        for versions in _by_path(self.groups):
            for dim in versions[0].dims:
                if len({dict(_sizes(array)).get(dim) for array in versions}) > 1:
                    found[dim] = None
        return [*found]

    @cached_property
    def rows(self) -> tuple[tuple[str, ...], str | None] | None:
        """The dimensions of rows of swaths, and one of length 1 before them, if there is one.

        Their lengths differ between files. A variable has one of them at most and has it first,
        some have more dimensions, and nothing labels them, or labels that only count elements.
        """
        uneven = set(self.uneven)
        arrays = [array for group in self.groups for array in group.all_arrays().values()]
        held = [array for array in arrays if not uneven.isdisjoint(array.dims)]
        if not held or any(len(uneven.intersection(array.dims)) > 1 for array in held):
            return None
        before = {
            tuple(itertools.takewhile(lambda dim: dim not in uneven, array.dims))
            for array in held
            if array.ndim > 1
        }
        singles = {name for array in arrays for name, n in _sizes(array) if n == 1}
        singles -= {name for array in arrays for name, n in _sizes(array) if n > 1}
        are_rows = (
            len(before) == 1 and len(outer := before.pop()) <= 1 and singles.issuperset(outer)
        )
        if not are_rows or all(array.ndim - len(outer) == 1 for array in held):
            return None
        if not all(self._counts(own) for own in self._indexes if own.dims[0] in uneven):
            return None
        return tuple(self.uneven), next(iter(outer), None)

    def _counts(self, labels: VirtualArray) -> bool:
        """Whether labels are the numbers of elements, from 0 or 1."""
        if labels.dtype.kind not in "iu" or is_time_like(labels.attrs):
            return False
        values = self.read(labels).astype(np.int64)
        return bool(len(values) and values[0] in (0, 1) and (np.diff(values) == 1).all())

    @cached_property
    def grids(self) -> list[Any]:
        """Of each file the dimensions that do not vary, their coordinates, and the calendars."""
        return [self._grid(group) for group in self.groups]

    def _grid(self, group: VirtualGroup) -> Any:
        arrays = group.all_arrays()
        sizes = {
            (path.rpartition("/")[0], dim, extent)
            for path, array in arrays.items()
            for dim, extent in zip(array.dims, array.shape, strict=True)
            if dim not in self.varying
        }
        labels = {
            (path, self.read(array).tobytes())
            for path, array in arrays.items()
            if _is_index(path, array) and array.dims[0] not in self.varying
        }
        bases = (TimeBase.of(array.attrs) for array in arrays.values())
        calendars = {_ALIKE.get(base.calendar, base.calendar) for base in bases if base is not None}
        return frozenset(sizes), frozenset(labels), frozenset(calendars)

    def _span(self, array: VirtualArray | None) -> Span:
        """The least and the greatest label; times in nanoseconds, whatever they are counted in."""
        if array is None or not array.size:
            return _EVERYWHERE
        values = self.read(array)
        least, greatest = values.min(), values.max()
        base = TimeBase.of(array.attrs) or duration_base(array.attrs)
        if base is None or values.dtype.kind not in "iuf":
            return least, greatest
        first, last = (base.epoch_ns + float(value) * base.unit_ns for value in (least, greatest))
        return first, last

    # Whether files are told apart

    def are_apart(self, boxes: Sequence[Box]) -> bool:
        """Whether no two files with a variable in common are in each other's box.

        Files are swept along the dimension with most places, so that few are compared.
        """
        variables = self.variables
        n_dims = len(boxes[0])
        lows = [{str(own[dim][0]) for own in boxes} for dim in range(n_dims)]
        swept = max(range(n_dims), key=lambda dim: len(lows[dim]), default=None)
        if swept is None:
            return all(one.isdisjoint(other) for one, other in itertools.combinations(variables, 2))
        active: list[int] = []
        for file in sorted(range(len(boxes)), key=lambda file: boxes[file][swept][0]):
            active = [other for other in active if boxes[other][swept][1] >= boxes[file][swept][0]]
            for other in active:
                if _meet(boxes[file], boxes[other]) and variables[file] & variables[other]:
                    return False
            active.append(file)
        return True

    # Names, images and pixels

    @cached_property
    def parts(self) -> NameParts | None:
        """The parts of the names; None where they are not cut alike."""
        return name_parts(self.files)

    @cached_property
    def parts_of_images(self) -> NameParts | None:
        """The parts of the names; of images ``T0``, ``Z1`` and ``P2`` are called what they are."""
        parts = self.parts
        images = [group.arrays.get("image") for group in self.groups]
        held = [array for array in images if array is not None and "tiff_series" in array.attrs]
        if parts is None or len(held) < len(images):
            return parts
        taken = {
            dim
            for array in held
            for dim, extent in zip(array.dims, array.shape, strict=True)
            if extent > 1
        }
        fields: list[NameField] = []
        for field in parts.fields:
            letters = re.search(r"[A-Za-z]+$", field.part[1])
            axis = _AXES.get(letters[0].upper()) if letters and field.kind == "d" else None
            names = {other.name for other in fields}
            named = axis and axis not in taken | names
            fields.append(replace(field, name=axis) if named and axis else field)
        return replace(parts, fields=tuple(fields))

    @cached_property
    def wells(self) -> list[str]:
        """The wells of a plate that names of OME images say."""
        are_images = all("ome" in group.attrs for group in self.groups)
        return wells_in_names(self.files) if are_images else []

    @cached_property
    def rasters(self) -> list[Raster]:
        """Where the pixels of each file are; none if that is not known of all."""
        pairs = zip(self.files, self.groups, strict=True)
        found = [read_raster(group, file, "x", "y") for file, group in pairs]
        placed = [raster for raster in found if isinstance(raster, Raster)]
        return placed if len(placed) == len(found) else []

    @cached_property
    def pixel_boxes(self) -> list[Box]:
        """Which place each file's pixels begin at."""
        corners = [str((raster.x0, raster.y0, raster.crs)) for raster in self.rasters]
        return [(place,) for place in numbered(corners)]

    @cached_property
    def bands(self) -> NameField | None:
        """The part of names that tells bands of one place, if nothing else tells the files."""
        if self.parts is None or self.are_apart(self.pixel_boxes):
            return None
        return self.parts.bands(VARIABLE)

    # Sources of labels

    @cached_property
    def attributes(self) -> list[Source]:
        """Attributes that distinguish files, by convention."""
        return self.told_by(_ATTRIBUTES)

    def told_by(self, names: Mapping[str, str]) -> list[Source]:
        """Attributes of all files that differ; `names` has the dimension that each labels."""
        found = []
        for name, dim in names.items():
            values = tuple(str(group.attrs.get(name)) for group in self.groups)
            if all(name in group.attrs for group in self.groups) and len(set(values)) > 1:
                reason = f"the attribute {name!r} differs"
                found.append(Source(_ATTRIBUTE, dim, values, reason, attribute=name))
        return found

    @cached_property
    def elevations(self) -> list[Source]:
        """The elevation of the sweep that each file of a radar holds, in a group of the file.

        Of several volumes each has the same elevations: others are no labels in common.
        """
        paths = [path for path, part in self.groups[0].walk() if _ELEVATION in part.attrs]
        if len(paths) != 1:
            return []
        name = f"{paths[0]}/{_ELEVATION}".removeprefix("/")
        found = [attribute_of(group, name) for group in self.groups]
        counts = Counter(map(str, found))
        if None in found or len(counts) < 2 or len(set(counts.values())) > 1:
            return []
        reason = f"the attribute {name!r} differs"
        return [Source(_ATTRIBUTE, "elevation", tuple(map(str, found)), reason, attribute=name)]

    def names(self, parts: NameParts | None) -> Iterable[Source]:
        """Parts of names that differ, but for those that name a variable of the file."""
        variables = [{path.rpartition("/")[2] for path in own} for own in self.variables]
        for field in () if parts is None else parts.fields:
            named = all(value in own for value, own in zip(field.values, variables, strict=True))
            if not named:
                rank = _DATE if field.is_time else _NUMBER if field.kind == "d" else _WORD
                what = {_DATE: "dates", _NUMBER: "numbers", _WORD: "words"}[rank]
                reason = f"{what} in the names ({field.values[0]}, ...)"
                yield Source(rank, field.name, field.values, reason, field=field)

    def scalars(self, others: Sequence[str]) -> Iterable[Source]:
        """Scalar coordinates that differ, but for those of other dimensions."""
        first = self.groups[0].arrays
        named = {w for a in first.values() for w in str(a.attrs.get("coordinates", "")).split()}
        named |= set(str(self.groups[0].attrs.get("coordinates", "")).split())
        standard = {text_of(array.attrs, "standard_name") for array in first.values()}
        for name, array in first.items():
            own_name = text_of(array.attrs, "standard_name")
            known = own_name in _SCALARS or is_time_like(array.attrs)
            if array.ndim or name in {*others, *self._sums} or not (known or name in named):
                continue
            if own_name == "time" and {"forecast_reference_time", "forecast_period"} <= standard:
                continue  # it is the sum of both
            held = [group.arrays.get(name) for group in self.groups]
            if all(own is not None and own.ndim == 0 for own in held):
                values = tuple(str(self._span(own)) for own in held)
                if len(set(values)) > 1:
                    yield Source(_SCALAR, name, values, f"the scalar {name!r} differs")

    @cached_property
    def _sums(self) -> set[str]:
        """Scalar times that are the sum of another one and of a duration in every file."""
        scalars = [name for name, array in self.groups[0].arrays.items() if not array.ndim]
        held = {name: [group.arrays.get(name) for group in self.groups] for name in scalars}
        held = {name: own for name, own in held.items() if all(a is not None for a in own)}
        first = {name: self.groups[0].arrays[name].attrs for name in held}
        times = [name for name in held if is_time_like(first[name])]
        steps = [name for name in held if duration_base(first[name]) is not None]
        ns = {name: [self._span(array)[0] for array in held[name]] for name in (*times, *steps)}
        return {
            valid
            for valid, run, step in itertools.product(times, times, steps)
            if valid != run
            and len(set(ns[step])) > 1
            and all(
                abs(a + b - both) < _ROUNDING_NS
                for a, b, both in zip(ns[run], ns[step], ns[valid], strict=True)
            )
        }


def numbered(column: Sequence[Any]) -> list[Span]:
    """Different values as different spans."""
    number = {value: float(n) for n, value in enumerate(dict.fromkeys(column))}
    return [(number[value], number[value]) for value in column]


def _variables(group: VirtualGroup) -> set[str]:
    """Paths of variables that are not coordinates of a dimension, nor scalars or bounds."""
    arrays = group.all_arrays()
    bounds = {str(array.attrs.get("bounds")) for array in arrays.values()}
    return {
        path
        for path, array in arrays.items()
        if array.ndim and array.dims != (path.rpartition("/")[2],) and path not in bounds
    }


def _is_index(path: str, array: VirtualArray) -> bool:
    return array.dims == (path.rpartition("/")[2],)


def _by_path(groups: Sequence[VirtualGroup]) -> list[list[VirtualArray]]:
    """The variables of all files, those of one path together."""
    found: dict[str, list[VirtualArray]] = {}
    for group in groups:
        for path, array in group.all_arrays().items():
            found.setdefault(path, []).append(array)
    return [*found.values()]


def _sizes(array: VirtualArray) -> Iterable[tuple[str, int]]:
    return zip(array.dims, array.shape, strict=True)


def _by_name(group: VirtualGroup) -> dict[str, VirtualArray]:
    return {path.rpartition("/")[2]: array for path, array in group.all_arrays().items()}


def _meet(one: Box, other: Box) -> bool:
    return all(a[0] <= b[1] and b[0] <= a[1] for a, b in zip(one, other, strict=True))
