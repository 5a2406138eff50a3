"""Combine the attributes of many inputs into one set, as the option for attributes says.

Values that differ are noted with their files. An elevation, a gain or a member in an attribute
holds for one file only: the first file's must not stand for all, so each becomes a coordinate along
the dimension.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gridref.combine.columns import Column, Notes, text_beside, value_keys, value_text
from gridref.combine.report import Drift
from gridref.errors import Message, Option
from gridref.model.array import VirtualArray, VirtualGroup, path_in
from gridref.model.conventions import PACKING_ATTRIBUTES, duration_base, is_time_like

_MEANING = (*PACKING_ATTRIBUTES, "dtype", "coordinates", "bounds", "grid_mapping")
"""Attributes that say what stored numbers mean, or what variables are to each other.

xarray has them in the encoding, and drops none of them.
"""
_UNITS = ("units", "calendar")

Cases = Sequence[tuple[Mapping[str, Any], Sequence[int]]]


def combine_attributes(
    cases: Cases, path: str, notes: Notes, resolved: Collection[str] = ()
) -> dict[str, Any]:
    """Apply the rule for attributes and note what differs.

    Parameters
    ----------
    cases
        The distinct sets of attributes, each with the files that have it.
    path
        Path of the variable or group.
    resolved
        Names whose differences another rule has dealt with; the first set's value is taken.
    """
    first = dict(cases[0][0]) if cases else {}
    rule = notes.options.combine_attrs
    if rule == "drop":
        kept = {*resolved, *_MEANING, *(_UNITS if _counts_time(first) else ())}
        return {name: first[name] for name in first if name in kept}
    for name in dict.fromkeys(itertools.chain.from_iterable(attrs for attrs, _ in cases)):
        if name in resolved:
            continue
        values = _values(cases, name)
        if values is None:
            continue
        if rule == "identical" or (rule == "no_conflicts" and values.n_present > 1):
            notes.conflict(
                "attributes",
                path,
                f"attributes {name!r}",
                values.files,
                Message(
                    Option("combine_attrs", "override"),
                    " keeps the first file's and loses the others",
                ),
            )
        elif rule == "drop_conflicts" and values.n_present > 1:
            first.pop(name, None)
            notes.drift("attributes", path, values.named(name), f"{name} left out", values.n_values)
        elif rule in ("no_conflicts", "drop_conflicts"):
            first.setdefault(name, next(attrs[name] for attrs, _ in cases if name in attrs))
        else:
            notes.drift("attributes", path, values.named(name), "the first file's", values.n_values)
    return first


def _counts_time(attrs: Mapping[str, Any]) -> bool:
    """Whether numbers are times or durations in the units that the attributes say."""
    return is_time_like(attrs) or duration_base(attrs) is not None


@dataclass(frozen=True)
class _Values:
    """The values that one attribute has.

    Attributes
    ----------
    files
        Files by value, as text. Values beyond the first `Drift.MAX_CASES` are one case.
    n_values, n_present
        Number of distinct values, with and without "none" of files that lack the attribute.
    """

    files: dict[str, list[int]]
    n_values: int
    n_present: int

    def named(self, name: str) -> dict[str, list[int]]:
        """Files by value, with the attribute's name."""
        return {f"{name} = {text}": files for text, files in self.files.items()}


_ABSENT = object()


def _values(cases: Cases, name: str) -> _Values | None:
    """The values of one attribute with the files that have each; None where all files agree."""
    values = [attrs.get(name, _ABSENT) for attrs, _ in cases]
    keys = value_keys(values)
    if keys is None:
        return None
    by_key: dict[Any, tuple[Any, list[int]]] = {}
    others: list[int] = []
    for key, value, (_, files) in zip(keys, values, cases, strict=True):
        held = by_key.get(key)
        if held is not None:
            held[1].extend(files)
        elif len(by_key) < Drift.MAX_CASES:
            by_key[key] = (value, list(files))
        else:
            others.extend(files)
    n_values = len(set(keys))
    texts = _texts(by_key.values())
    if others:
        texts[f"{n_values - len(by_key)} more values"] = others
    return _Values(texts, n_values, n_values - any(value is _ABSENT for value in values))


def _texts(values: Iterable[tuple[Any, list[int]]]) -> dict[str, list[int]]:
    """Files by the text of their value; distinct values get distinct texts."""
    shown: dict[str, list[int]] = {}
    first_of: dict[str, Any] = {}
    for held_value, files in values:
        value = None if held_value is _ABSENT else held_value
        text = value_text(value)
        if text in first_of:
            text = text_beside(value, first_of[text])
        first_of.setdefault(text, value)
        shown.setdefault(text, []).extend(files)
    return shown


# Attributes that say something of each file, as coordinates

Own = list[Mapping[str, Any] | None]
"""Attributes of each input; None of those that lack what would have them."""

_NAMES = frozenset(
    {
        "band",
        "band_id",
        "band_name",
        "central_wavelength",
        "channel",
        "driving_model_id",
        "elangle",
        "elevation",
        "elevation_angle",
        "ensemble_member",
        "experiment_id",
        "fixed_angle",
        "gain",
        "intercept",
        "level",
        "member",
        "member_id",
        "model_id",
        "nodata",
        "offset",
        "polarisation",
        "polarization",
        "quantity",
        "realization",
        "realization_index",
        "scenario",
        "slope",
        "source_id",
        "sweep",
        "sweep_fixed_angle",
        "sweep_number",
        "tilt",
        "undetect",
        "variant_label",
        "wavelength",
    }
)
"""Attributes whose values are labels or say how numbers are to be read: those of radars (ODIM_H5,
CfRadial), of CMIP and CORDEX, and of instruments."""


def as_coordinates(
    groups: Sequence[VirtualGroup | None],
    columns: Mapping[str, Column],
    path: str,
    *,
    growing: Sequence[str],
    has_place: Callable[[Column], object],
    notes: Notes,
) -> tuple[dict[str, Column], set[str]]:
    """The variables of groups, and one for each attribute that says something and differs.

    Attributes of a variable are called after both: ``DBZH_gain``. An input that has a variable
    instead of the attribute is the result of combining others. An attribute is left out
    if its values have no place along a dimension, such as the gain of tiles in a mosaic.

    Parameters
    ----------
    growing
        The dimensions along which the result is longer than its inputs.
    has_place
        Whether a variable with one value for each input can be along them.

    Returns
    -------
    tuple
        The columns, and the names of attributes of the groups that are among them or left out.
    """
    found = dict(columns)
    if notes.options.combine_attrs != "override":
        return found, set()
    told = set()
    own = [None if group is None else group.attrs for group in groups]
    for name in sorted(_names_in(own)):
        if name in growing:
            told.add(name)  # its labels along the dimension say it for each
            continue
        attribute = _Attribute.of(name, _free(name, groups), own, columns, growing)
        if attribute.differs:
            told.add(name)
            found = attribute.among(found, path, has_place, notes)
    for variable, column in columns.items():
        if len(column.kinds) == 1:
            continue
        own = [None] * len(groups)
        for file, array in zip(column.files, column.arrays, strict=True):
            own[file] = array.attrs
        for name in sorted(_names_in(own)):
            attribute = _Attribute.of(name, f"{variable}_{name}", own, columns, growing)
            if attribute.differs:
                arrays = [
                    a.with_changes(attrs=_without(a.attrs, {name})) for a in found[variable].arrays
                ]
                found[variable] = found[variable].with_arrays(arrays)
                found = attribute.among(found, path, has_place, notes)
    return found, told


def with_told_names(
    attrs: Mapping[str, Any], made: Collection[str], columns: Mapping[str, Column], notes: Notes
) -> dict[str, Any]:
    """Attributes of a group that list what was made of attributes as ``coordinates``."""
    beside = [name for name in made if name in columns and columns[name].path in notes.told]
    if not beside:
        return dict(attrs)
    named = str(attrs.get("coordinates", "")).split()
    return {**attrs, "coordinates": " ".join(dict.fromkeys([*named, *beside]))}


def without_names(attrs: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """Remove some attributes of a group, and their names from its ``coordinates``."""
    rest = _without(attrs, names)
    beside = str(rest.get("coordinates", "")).split()
    if names.intersection(beside):
        rest["coordinates"] = " ".join(name for name in beside if name not in names)
        if not rest["coordinates"]:
            del rest["coordinates"]
    return rest


def _without(attrs: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in attrs.items() if name not in names}


def _names_in(own: Own) -> set[str]:
    return set().union(*(_NAMES.intersection(attrs) for attrs in own if attrs is not None))


def _free(name: str, groups: Sequence[VirtualGroup | None]) -> str:
    """What the coordinate is called: the attribute's name, if no group has a variable beside it."""
    held = (group for group in groups if group is not None)
    taken = any(name in group.attrs and name in group.arrays for group in held)
    return f"{name}_attribute" if taken else name


@dataclass(frozen=True, eq=False)
class _Attribute:
    """One attribute of all inputs that say it, or that were combined of such.

    Attributes
    ----------
    target
        What its coordinate is called.
    known
        The coordinate in inputs that have it already.
    values
        Plain values of the others; None where they lack the attribute.
    is_free
        Whether no input has a variable of its own under the coordinate's name.
    """

    name: str
    target: str
    known: Mapping[int, VirtualArray]
    values: Mapping[int, Any]
    is_free: bool

    @classmethod
    def of(
        cls,
        name: str,
        target: str,
        own: Own,
        columns: Mapping[str, Column],
        growing: Sequence[str],
    ) -> Self:
        """The attribute of this name."""
        before = columns.get(target)
        held = {} if before is None else dict(zip(before.files, before.arrays, strict=True))
        dims = {*growing, _items(target)}
        is_free = all(dims.issuperset(array.dims) for array in held.values())
        known = held if is_free else {}
        values = {
            file: _plain(attrs.get(name))
            for file, attrs in enumerate(own)
            if attrs is not None and file not in held
        }
        return cls(name, target, known, values, is_free)

    @property
    def differs(self) -> bool:
        """Whether not all that have it say the same."""
        if not self.values:
            return False
        return bool(self.known) or value_keys(list(self.values.values())) is not None

    def among(
        self,
        columns: Mapping[str, Column],
        path: str,
        has_place: Callable[[Column], object],
        notes: Notes,
    ) -> dict[str, Column]:
        """The columns with the coordinate, if its values have a place; the drift is noted."""
        column = self._column(path)
        if column is not None and not has_place(column):
            column = None
        cases: dict[str, list[int]] = {}
        for file, value in self.values.items():
            cases.setdefault(f"{self.name} = {value_text(value)}", []).append(file)
        others = {name: own for name, own in columns.items() if name != self.target}
        if column is None:
            notes.drift("attributes", path, cases, f"{self.name} left out")
            return others if self.known else dict(columns)
        notes.drift("attributes", path, cases, f"the coordinate {self.target!r}")
        notes.told.add(column.path)
        return {**columns, self.target: column}

    def _column(self, path: str) -> Column | None:
        """Its values as an array of each input; None where they are of several shapes."""
        said = [value for value in self.values.values() if value is not None]
        shapes = {np.shape(value) if isinstance(value, list) else () for value in said}
        if not self.is_free or len(shapes) > 1 or any(len(shape) > 1 for shape in shapes):
            return None
        (shape,) = shapes or {()}
        items = [item for value in said for item in (value if shape else [value])]
        as_text = not all(isinstance(item, int | float) for item in items)
        lacking: Any = "" if as_text else np.nan
        for length in shape:
            lacking = [lacking] * length
        shown = [lacking if value is None else value for value in self.values.values()]
        stored = np.asarray(shown).astype(str) if as_text else np.asarray(shown)
        dims = (_items(self.target),) if shape else ()
        arrays = dict(self.known)
        for number, file in enumerate(self.values):
            arrays[file] = VirtualArray.from_numpy(stored[number], dims)
        whole = path_in(path, self.target)
        files = sorted(arrays)
        return Column(self.target, whole, files, [arrays[file] for file in files])


def _items(target: str) -> str:
    """The dimension of an attribute that has several values."""
    return f"{target}_item"


def _plain(value: Any) -> Any:
    """A value as Python's own: a scalar, also where it is the only element, or lists."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of several lengths
        return value
    return array.reshape(()).item() if array.size == 1 else array.tolist()
