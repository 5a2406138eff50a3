"""Facts about files, from which their layout is found: what they hold, and which belong together.

Each fact is read when it is first needed. Detectors (`gridref.api.layout.discovery`) ask `Facts`
only. A `Source` is what could label files: a scalar coordinate, an attribute, or a part of their
names.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.api.layout.names import VARIABLE, NameField, NameParts, name_parts, whole_names
from gridref.api.layout.plates import wells_in_names
from gridref.api.layout.sources import Scanned, attribute_of
from gridref.combine.mosaic import Raster, read_raster
from gridref.combine.options import Read
from gridref.combine.rules.packing import as_meant
from gridref.combine.values import sortable
from gridref.errors import InvalidRequestError, Message, Option, Place, Problem, number_of
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import (
    DAY_NS,
    TimeBase,
    duration_base,
    is_time_like,
    listed_coordinates,
    text_of,
)

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

_SCALAR, _DATE, _ATTRIBUTE, NUMBER, _WORD = range(5)
"""Ranks of sources, the best supported first."""

Span = tuple[Any, Any]
"""The least and the greatest label."""
Box = tuple[Span, ...]
"""Where a file is: a span along each dimension."""

_PRODUCTS = ("realm", "ShortName", "short_name", "product", "product_name", "domain")
"""Attributes that name a product (CMIP, ECS), if they are the same in all files of a kind."""

_LONGEST_NAME = 64

_EVERYWHERE = (float("-inf"), float("inf"))
_NOWHERE = _EVERYWHERE[::-1]

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
    """Facts of files."""

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
        held = [group.all_arrays().items() for group in self.groups]
        named = [{path.rpartition("/")[2]: array for path, array in own} for own in held]
        return [tuple(self._span(own.get(dim)) for dim in self.varying) for own in named]

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
        named = listed_coordinates(held[0].values(), {})
        orders: dict[str, set[tuple[int, ...]]] = {}
        for path, array in held[0].items():
            if array.ndim != 1 or array.is_index(path) or not is_time_like(array.attrs):
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
        return [array for path, array in paths if array.is_index(path)]

    @cached_property
    def uneven(self) -> list[str]:
        """Dimensions whose length differs between files."""
        found = dict[str, None]()
        for versions in _by_path(self.groups):
            for dim in versions[0].dims:
                if len({array.sizes.get(dim) for array in versions}) > 1:
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
        singles = {name for array in arrays for name, n in array.sizes.items() if n == 1}
        singles -= {name for array in arrays for name, n in array.sizes.items() if n > 1}
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
            for dim, extent in array.sizes.items()
            if dim not in self.varying
        }
        labels = {
            (path, _labels(array, self.read).tobytes())
            for path, array in arrays.items()
            if array.is_index(path) and array.dims[0] not in self.varying
        }
        bases = (TimeBase.of(array.attrs) for array in arrays.values())
        calendars = {_ALIKE.get(base.calendar, base.calendar) for base in bases if base is not None}
        return frozenset(sizes), frozenset(labels), frozenset(calendars)

    def _span(self, array: VirtualArray | None) -> Span:
        """The least and the greatest label; times in nanoseconds, whatever they are counted in.

        Of text the least one twice: it has no order in which one file continues another.
        """
        if array is None:
            return _EVERYWHERE
        if not array.size:
            return _NOWHERE
        values = _labels(array, self.read)
        if values.dtype.kind in "SU":
            return (least := min(values.reshape(-1).tolist())), least
        least, greatest = values.min(), values.max()
        base = TimeBase.of(array.attrs) or duration_base(array.attrs)
        if base is None or values.dtype.kind not in "iuf":
            return least, greatest
        return _in_ns(least, base), _in_ns(greatest, base)

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

    @cached_property
    def shown_repeats(self) -> str:
        """The first two files with a variable in common, and in each other's box, in words."""
        for one, other in itertools.combinations(range(len(self.files)), 2):
            if _meet(self.boxes[one], self.boxes[other]) and (
                self.variables[one] & self.variables[other]
            ):
                names = " and ".join(os.path.basename(self.files[own]) for own in (one, other))
                how = "the same" if self.boxes[one] == self.boxes[other] else "some of the same"
                return f"{names} have {how} labels along {' and '.join(self.varying)}"
        return ""

    # Names, images and pixels

    @cached_property
    def parts(self) -> NameParts | None:
        """The parts of the names; None where they are not cut alike.

        A part is not called what a variable, or a dimension with several elements, is called:
        ``tas1.nc`` with the variable ``tas``.
        """
        parts = name_parts(self.files)
        if parts is None:
            return None
        taken = {path.rpartition("/")[2] for own in self.variables for path in own}
        arrays = (array for group in self.groups for array in group.all_arrays().values())
        taken |= {dim for array in arrays for dim, extent in array.sizes.items() if extent > 1}
        fields = [
            replace(field, name=f"part{number}")
            if field.name in taken and not field.is_time
            else field
            for number, field in enumerate(parts.fields, start=1)
        ]
        return replace(parts, fields=tuple(fields))

    @cached_property
    def parts_of_images(self) -> NameParts | None:
        """The parts of the names; of images ``T0``, ``Z1`` and ``P2`` are called what they are."""
        parts = self.parts
        images = [group.arrays.get("image") for group in self.groups]
        held = [array for array in images if array is not None and "tiff_series" in array.attrs]
        if parts is None or len(held) < len(images):
            return parts
        taken = {dim for array in held for dim, extent in array.sizes.items() if extent > 1}
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
        corners = [str((raster.x.begin, raster.y.begin, raster.crs)) for raster in self.rasters]
        return [(place,) for place in as_spans(corners)]

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
                rank = _DATE if field.is_time else NUMBER if field.kind == "d" else _WORD
                what = {_DATE: "dates", NUMBER: "numbers", _WORD: "words"}[rank]
                reason = f"{what} in the names ({field.values[0]}, ...)"
                yield Source(rank, field.name, field.values, reason, field=field)

    def scalars(self, others: Sequence[str]) -> Iterable[Source]:
        """Scalar coordinates that differ, but for those of other dimensions."""
        first = self.groups[0].arrays
        named = listed_coordinates(first.values(), self.groups[0].attrs)
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

    # Kinds of files: they share variables along the same dimensions, on one grid with one calendar

    @cached_property
    def kinds(self) -> list[int]:
        """The number of the kind of each file, counted in the order of the files.

        Where variables tell kinds apart, grids do so only if several files of a kind share each.
        """
        products = self._products
        if len(set(products)) == 1:
            return numbered(self.grids)
        both = [*zip(products, self.grids, strict=True)]
        n_files, n_grids = Counter(products), Counter(product for product, _ in set(both))
        return numbered(
            (product, grid if n_grids[product] < n_files[product] else None)
            for product, grid in both
        )

    @cached_property
    def _products(self) -> list[int]:
        """Numbers of files that share variables, and have these along the same dimensions."""
        held = [
            {path: array.dims for path, array in group.all_arrays().items()}
            for group in self.groups
        ]
        firsts: list[int] = []
        found = []
        for number, own in enumerate(held):
            alike = (
                product
                for product, first in enumerate(firsts)
                if self.variables[number] & self.variables[first]
                and all(own[path] == held[first][path] for path in own.keys() & held[first].keys())
            )
            product = next(alike, len(firsts))
            if product == len(firsts):
                firsts.append(number)
            found.append(product)
        return found

    @cached_property
    def telling_kinds(self) -> list[Source]:
        """Attributes and parts of names that have one value for each kind, the best known first."""
        parts = self.parts or whole_names(self.files)
        products = self.told_by({name: name for name in _PRODUCTS})
        names = [_with_letters(source) for source in self.names(parts)]
        found = [*self.attributes, *products, *names]
        told = [own for own in found if numbered(own.values) == self.kinds]
        return sorted(told, key=lambda source: source.rank)

    @cached_property
    def names_of_kinds(self) -> list[str]:
        """The name of the kind of each file: what tells it, else its largest variable or number."""
        for source in self.telling_kinds:
            if max(map(len, source.values)) <= _LONGEST_NAME:
                return [*source.values]
        largest = [_largest(group) for group in self.groups]
        if numbered(largest) == self.kinds:
            return largest
        return [f"kind{kind + 1}" for kind in self.kinds]


def numbered(column: Iterable[Any]) -> list[int]:
    """Different values as different numbers, counted in the order of first occurrence."""
    known: dict[Any, int] = {}
    return [known.setdefault(value, len(known)) for value in column]


def as_spans(column: Iterable[Any]) -> list[Span]:
    """Different values as different spans."""
    return [(number, number) for number in numbered(column)]


def _with_letters(source: Source) -> Source:
    """A number in names with the letters before and behind it: ``d01``."""
    if source.field is None or source.field.kind != "d":
        return source
    number, before, behind = source.field.part
    values = tuple(f"{before}{value}{behind}" for value in source.values)
    field = NameField(source.dim, "", values, (number, "", ""))
    return replace(source, values=values, field=field)


def _largest(group: VirtualGroup) -> str:
    arrays = group.all_arrays()
    return max(arrays, key=lambda path: arrays[path].size, default="").rpartition("/")[2]


def _variables(group: VirtualGroup) -> set[str]:
    """Paths of variables that are not coordinates of a dimension, nor scalars or bounds."""
    arrays = group.all_arrays()
    bounds = {str(array.attrs.get("bounds")) for array in arrays.values()}
    return {
        path
        for path, array in arrays.items()
        if array.ndim and not array.is_index(path) and path not in bounds
    }


def _by_path(groups: Sequence[VirtualGroup]) -> list[list[VirtualArray]]:
    """The variables of all files, those of one path together."""
    found: dict[str, list[VirtualArray]] = {}
    for group in groups:
        for path, array in group.all_arrays().items():
            found.setdefault(path, []).append(array)
    return [*found.values()]


def _meet(one: Box, other: Box) -> bool:
    return all(a[0] <= b[1] and b[0] <= a[1] for a, b in zip(one, other, strict=True))


# Dimensions along which files hold different parts


def varying_dims(groups: Sequence[VirtualGroup], read: Read) -> list[str]:
    """Dimensions along which groups hold different parts: by their index coordinates.

    Those are dimensions of time whose labels differ, of text that no two groups share, and others
    whose labels follow each other from group to group; numbers that interleave are those of
    different grids.
    """
    held = [group.all_arrays() for group in groups]
    paths = dict.fromkeys(
        path
        for arrays in held
        for path, array in arrays.items()
        if array.is_index(path) and array.size
    )
    varying = [path for path in paths if _varies([arrays.get(path) for arrays in held], read)]
    return list(dict.fromkeys(path.rpartition("/")[2] for path in varying))


def _in_ns(value: Any, base: TimeBase) -> int | float:
    """A time in nanoseconds; a whole number, as a float is some thousand of them off."""
    if isinstance(value, np.integer):
        return base.epoch_ns + int(value) * base.unit_ns
    after = float(value) * base.unit_ns
    return base.epoch_ns + (round(after) if math.isfinite(after) else after)


def _labels(array: VirtualArray, read: Read) -> NDArray[Any]:
    """Labels as what they mean, to be compared between files."""
    return sortable(read(as_meant(array)))


def _varies(coordinates: Sequence[VirtualArray | None], read: Read) -> bool:
    """Whether index coordinates of one name are different parts of one dimension."""
    distinct: dict[Any, tuple[NDArray[Any], VirtualArray]] = {}
    meaning: tuple[str, ...]
    for array in coordinates:
        if array is not None and array.size:
            values = _labels(array, read)
            meaning = tuple(str(array.attrs.get(name)) for name in ("units", "calendar"))
            lasts = duration_base(array.attrs)
            if lasts is not None and values.dtype.kind in "iuf":
                values, meaning = values.astype("f8") * lasts.unit_ns, ()
            distinct.setdefault((values.tobytes(), values.shape, *meaning), (values, array))
    if len(distinct) < 2:
        return False
    if any(is_time_like(array.attrs) for _, array in distinct.values()):
        return True
    if all(values.dtype.kind in "SU" for values, _ in distinct.values()):
        texts = [{*values.reshape(-1).tolist()} for values, _ in distinct.values()]
        return sum(map(len, texts)) == len(set().union(*texts))
    try:
        spans = sorted((np.min(values), np.max(values)) for values, _ in distinct.values())
    except TypeError:  # text and numbers
        return False
    return all(end < start for (_, end), (start, _) in itertools.pairwise(spans))


def is_ragged(group: VirtualGroup, dims: Sequence[str]) -> bool:
    """Whether each variable has at most one of some dimensions, and each dimension a variable."""
    held = [set(dims).intersection(array.dims) for array in group.all_arrays().values()]
    return all(len(own) <= 1 for own in held) and set().union(*held) == set(dims)


# How often files have values: daily, monthly, six-hourly

_CALENDAR = (("yearly", 359, 367), ("monthly", 27.5, 31.5), ("daily", 0.999, 1.001))
"""Names of spacings in days, with the least and the most."""


def spacing_problem(scanned: Sequence[tuple[str, VirtualGroup]], read: Read) -> Problem | None:
    """The problem that files of different variables have times of different spacing."""
    known: dict[str, list[str]] = {}
    for file, group in scanned:
        name = _spacing(group, read)
        if name is not None:
            known.setdefault(name, []).append(file)
    if len(known) < 2:
        return None
    cases = (
        f"{name} in {number_of(len(files), 'file')} like {files[0]}"
        for name, files in known.items()
    )
    shown = "; ".join(cases)
    message = Message(
        f"times are {shown}: ",
        Option("split", "frequency", "layout=Groups(frequency=True)"),
        " puts each into a group, ",
        Option("join", "outer"),
        " puts all on one axis with gaps",
    )
    return Problem("spacing-differs", message, sources=tuple(files[0] for files in known.values()))


def frequency(group: VirtualGroup, read: Read, file: str) -> str:
    """How often a file has values: its attribute ``frequency``, as in CMIP, or from its times."""
    named = group.attrs.get("frequency")
    if isinstance(named, str) and named.strip():
        return named.strip()
    if not _times(group):
        return "fixed"
    name = _spacing(group, read)
    if name is None:
        raise InvalidRequestError(
            Message(
                "it has a single time and no attribute 'frequency', so its time step is unknown: "
                "group the files by a field of the pattern or by another attribute (",
                Option("group_by", "model", "layout=Groups('model')"),
                ")",
            ),
            Place(source=file),
        )
    return name


def _times(group: VirtualGroup) -> list[str]:
    """Coordinates of dimensions of time."""
    return [
        name
        for name, array in group.arrays.items()
        if array.is_index(name) and TimeBase.of(array.attrs) is not None
    ]


def _spacing(group: VirtualGroup, read: Read) -> str | None:
    """The usual distance between times in words; None of fewer than two."""
    for name in _times(group):
        array = group.arrays[name]
        base = TimeBase.of(array.attrs)
        if base is not None and array.shape[0] > 1:
            steps = np.abs(np.diff(np.asarray(read(array), np.float64))) * base.unit_ns
            return _in_words(_median(steps))
    return None


def _median(steps: NDArray[np.float64]) -> float:
    """The median; numpy's takes far longer for the few times of a file."""
    ordered, half = np.sort(steps), len(steps) // 2
    return float(ordered[half] if len(steps) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def _in_words(step_ns: float) -> str:
    days = step_ns / DAY_NS
    for name, least, most in _CALENDAR:
        if least <= days <= most:
            return name
    for name, length in (("days", 1), ("hourly", 1 / 24), ("minutes", 1 / 1440)):
        count = days / length
        if count >= 0.999 and abs(count - round(count)) < 1e-3:
            return name if round(count) == 1 else f"{round(count)}{name}"
    return f"{days * 86400:g}seconds"


# The files of one OME-TIFF set: scanning any of them gives the whole set (OME-TIFF specification,
# "Multi-file OME-TIFF filesets")


def one_of_each_set(scanned: Scanned) -> Scanned:
    """The files without those whose set another one before them gives already."""
    first: dict[frozenset[str], str] = {}
    kept = []
    for file, group in scanned:
        files = _set_of(group)
        if files is None or first.setdefault(files, file) == file:
            kept.append((file, group))
    return kept


def refusing_parts_of_sets(
    scanned: Iterable[tuple[str, VirtualGroup]],
) -> Iterator[tuple[str, VirtualGroup]]:
    """The files, as long as each set is there once."""
    first: dict[frozenset[str], str] = {}
    for file, group in scanned:
        files = _set_of(group)
        if files is not None and first.setdefault(files, file) != file:
            raise InvalidRequestError(
                f"it and {first[files]} belong to one OME-TIFF set of {len(files)} files, and "
                "each file stands for the whole set: leave out layout options, or give one file "
                "of each set",
                Place(source=file),
            )
        yield file, group


def _set_of(group: VirtualGroup) -> frozenset[str] | None:
    """The files that the images of a TIFF file are in; None if it is one."""
    files = {
        source.url
        for array in group.all_arrays().values()
        if "tiff_series" in array.attrs
        for manifest in array.manifests
        for source in getattr(manifest, "sources", ())
    }
    return frozenset(files) if len(files) > 1 else None
