"""Turn attributes that differ between inputs and say what values mean into coordinates.

An elevation, a gain or a member in an attribute holds for one file only. The first file's value
must not stand for all, so each becomes a coordinate along the dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gridref.combine.columns import Column, value_keys, value_text
from gridref.combine.layout import Task
from gridref.model.array import VirtualArray, VirtualGroup

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
    groups: Sequence[VirtualGroup | None], columns: Mapping[str, Column], path: str, task: Task
) -> tuple[dict[str, Column], set[str]]:
    """The variables of groups, and a scalar for each attribute that says something and differs.

    Attributes of a variable are called after both: ``DBZH_gain``. An input that has a variable
    instead of the attribute is the result of combining others.

    Returns
    -------
    tuple
        The columns, and the names of attributes of the groups that are among them.
    """
    found = dict(columns)
    asked_otherwise = task.notes.options.combine_attrs != "override"
    if asked_otherwise or not task.layout.repeats or not task.growing:
        return found, set()
    told = set()
    own = [None if group is None else group.attrs for group in groups]
    for name in sorted(_names_in(own)):
        if name in task.growing:
            told.add(name)  # its labels along the dimension say it for each
            continue
        target = _free(name, groups)
        column = _column(name, target, own, columns.get(target), path, task)
        if column is not None:
            found[target] = column
            told.add(name)
    for variable, column in columns.items():
        if len(column.kinds) == 1:
            continue
        own = [None] * len(groups)
        for file, array in zip(column.files, column.arrays, strict=True):
            own[file] = array.attrs
        for name in sorted(_names_in(own)):
            target = f"{variable}_{name}"
            scalars = _column(name, target, own, columns.get(target), path, task)
            if scalars is not None:
                arrays = [
                    a.replace(attrs=_without(a.attrs, {name})) for a in found[variable].arrays
                ]
                found[variable] = found[variable].with_arrays(arrays)
                found[target] = scalars
    return found, told


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


def _column(
    name: str, target: str, own: Own, before: Column | None, path: str, task: Task
) -> Column | None:
    """An attribute as a scalar of each input; None where all that have it say the same."""
    known = {} if before is None else dict(zip(before.files, before.arrays, strict=True))
    if any(not set(task.growing).issuperset(array.dims) for array in known.values()):
        return None  # a variable of the files themselves
    if any(np.size(attrs[name]) != 1 for attrs in own if attrs is not None and name in attrs):
        return None
    values = {
        file: np.asarray(attrs[name]).reshape(()).item() if name in attrs else None
        for file, attrs in enumerate(own)
        if attrs is not None and file not in known
    }
    if not values or (not known and value_keys(list(values.values())) is None):
        return None
    as_text = not all(isinstance(value, int | float | None) for value in values.values())
    lacking = "" if as_text else np.nan
    shown = [lacking if value is None else value for value in values.values()]
    stored = np.asarray([str(value) for value in shown] if as_text else shown)
    arrays = dict(known)
    cases: dict[str, list[int]] = {}
    for number, (file, value) in enumerate(values.items()):
        arrays[file] = VirtualArray.from_numpy(stored[number], ())
        cases.setdefault(f"{name} = {value_text(value)}", []).append(file)
    whole = f"{path}/{target}" if path else target
    task.notes.drift("attributes", path, cases, f"the coordinate {target!r}")
    task.notes.told.add(whole)
    files = sorted(arrays)
    return Column(target, whole, files, [arrays[file] for file in files])
