"""Put the fragments of an aggregation variable at their places, in its units.

Input is the variable, without data, and its fragments with their corners. Output is one array;
elements that no fragment holds are missing. Fragments go through the same rules of drift as files.

Source: CF conventions 1.13, 2.8 "Aggregation Variables".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gridref.combine.boxes import Runs
from gridref.combine.columns import Column, Notes
from gridref.combine.level import Inherited, combine_columns
from gridref.combine.options import CombineOptions, Read
from gridref.combine.placement import Placement, Task
from gridref.combine.report import Combination
from gridref.combine.rules.packing import PACKING_ATTRIBUTES
from gridref.combine.values import Values
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.joining import missing_array

_UNITS = ("units", "calendar")


@dataclass(frozen=True, eq=False)
class Fragment:
    """A part of an aggregation variable.

    Attributes
    ----------
    array
        What it holds, with the dimensions of the variable, in their order.
    corner
        Where its first element is along each dimension.
    name
        Its file, for messages.
    """

    array: VirtualArray
    corner: tuple[int, ...]
    name: str


def combine_fragments(
    path: str,
    attrs: Mapping[str, Any],
    shape: Sequence[int],
    fragments: Sequence[Fragment],
    *,
    read: Read,
    options: CombineOptions,
) -> Combination:
    """Put fragments at their places by the rules of drift; what none of them holds is missing.

    Parameters
    ----------
    path
        Path of the variable.
    attrs
        Its attributes. Fragments are converted to its units, and its fill value applies to
        fragments without one.
    fragments
        One or more, which do not overlap.
    read, options
        As for `gridref.combine.combine`.

    Returns
    -------
    Combination
        A group with the one array, by its path.
    """
    first = fragments[0].array
    arrays = [_with_defaults(fragment.array, attrs) for fragment in fragments]
    wanted = {**arrays[0].attrs, **{name: attrs[name] for name in _UNITS if name in attrs}}
    # The rules bring all inputs on the units of the first one, which is the variable itself.
    reference = missing_array(
        (0,) * first.ndim, first.dtype, dims=first.dims, fill_value=first.fill_value, attrs=wanted
    )
    names = ["the aggregation variable", *(fragment.name for fragment in fragments)]
    notes = Notes(options, [VirtualGroup()] * len(names), names)
    files = range(1, len(names))
    runs = {
        dim: Runs.whole(files, [fragment.corner[axis] for fragment in fragments], extent)
        for axis, (dim, extent) in enumerate(zip(first.dims, shape, strict=True))
    }
    placement = Placement(first.dims, runs, pads=True)
    column = Column(path, path, range(len(names)), [reference, *arrays])
    task = Task(placement, notes, Values(read))
    combined, _, _ = combine_columns({path: column}, "", task, Inherited())
    report, problems = notes.report(), tuple(notes.problems)
    if problems or path not in combined:
        return Combination(None, report, problems)
    array = combined[path]
    shown = array.with_changes(attrs=_shown_attributes(attrs, array.attrs))
    return Combination(VirtualGroup({path: shown}), report)


def _with_defaults(array: VirtualArray, attrs: Mapping[str, Any]) -> VirtualArray:
    """A fragment that says nothing of units or missing values is as the variable says."""
    added: dict[str, Any] = {}
    if "units" not in array.attrs:
        added = {name: attrs[name] for name in _UNITS if name in attrs}
    fill = attrs.get("_FillValue")
    declares = {"_FillValue", "missing_value"} & set(array.attrs)
    if fill is not None and not declares and np.asarray(fill).dtype == array.dtype:
        added["_FillValue"] = fill
    return array.with_changes(attrs={**added, **array.attrs}) if added else array


def _shown_attributes(attrs: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The variable's attributes, but for those that say how stored numbers are to be read.

    A variable that says a scale itself has fragments without one: their values are packed numbers.
    """
    told = {name: found[name] for name in (*PACKING_ATTRIBUTES, *_UNITS) if name in found}
    return {
        **{name: value for name, value in attrs.items() if name not in ("_FillValue", *_UNITS)},
        **told,
    }
