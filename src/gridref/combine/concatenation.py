"""Many virtual groups laid after one another along a dimension, drift and all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gridref.combine.attributes import combine_attributes
from gridref.combine.columns import Notes, columns_of
from gridref.combine.dimensions import shared_lengths
from gridref.combine.layout import LayoutRules, Task
from gridref.combine.levels import Inherited, combine_columns
from gridref.combine.options import CombineOptions, Read
from gridref.combine.report import Combination, grouped
from gridref.combine.stacking import stack_columns, stacked_attributes
from gridref.combine.values import Values
from gridref.errors import InvalidRequestError, Problem
from gridref.model.array import VirtualGroup
from gridref.model.label_ends import LabelEnds, label_ends
from gridref.model.scan_report import ScanReport

__all__ = ["combine_batch", "group_attributes", "is_new", "no_such_dimension"]


def combine_batch(
    groups: Sequence[VirtualGroup],
    unnamed: Sequence[str],
    layout: LayoutRules,
    read: Read | None,
    options: CombineOptions,
) -> Combination:
    """Combine groups that are all in memory.

    Parameters
    ----------
    groups, read, options
        As for `gridref.combine.combine`.
    layout
        How they lie beside each other.
    unnamed
        Names for groups that do not know their file.
    """
    notes = Notes(options, groups, unnamed)
    task = Task(layout, notes, Values(read))
    stacking = layout.each_may_be_new or is_new(groups, layout.growing)
    new = new_dims(groups, layout.growing) if stacking else ()
    lengths = shared_lengths(groups, layout.growing)
    lengths |= {dim: dict.fromkeys(range(len(groups)), 1) for dim in new}
    group = _combine_level(list(groups), "", task, Inherited(lengths), new)
    report = notes.report()
    if notes.problems:
        return Combination(None, report, grouped(notes.problems))
    scans = ScanReport.joined([item.report for item in groups])
    return Combination(group.replace(report=scans), report, ends=_ends(group, notes))


def _ends(group: VirtualGroup, notes: Notes) -> LabelEnds:
    """Labels at the ends of those index coordinates that came out as they were looked at."""
    found = {}
    for path, labels in notes.in_order.items():
        array = group.arrays.get(path)
        if array is not None and (array.shape, array.dtype) == (labels.shape, labels.dtype):
            found[path] = label_ends(labels)
    return {path: ends for path, ends in found.items() if ends is not None}


def is_new(groups: Sequence[VirtualGroup], growing: Sequence[str]) -> bool:
    """Whether no input has the dimension."""
    is_new = len(new_dims(groups, growing)) == len(growing)
    if is_new and len(growing) > 1:
        raise InvalidRequestError(f"no input has any of the dimensions {', '.join(growing)}")
    return is_new


def new_dims(groups: Sequence[VirtualGroup], dims: Sequence[str]) -> tuple[str, ...]:
    """The dimensions that no input has."""
    wanted = set(dims)
    for group in groups:
        for _, part in group.walk():
            for array in part.arrays.values():
                wanted.difference_update(array.dims)
                if not wanted:
                    return ()
    return tuple(dim for dim in dims if dim in wanted)


def no_such_dimension(dim: str, first: VirtualGroup, files: Sequence[str]) -> Problem:
    """The problem to name first where inputs cannot be stacked: the dimension may be misspelt."""
    dims = dict.fromkeys(name for array in first.all_arrays().values() for name in array.dims)
    message = (
        f"no input has a dimension {dim!r}, so that they were to be stacked along a new one; the"
        f" first has {', '.join(list(dims)[:8]) or 'none'}"
    )
    return Problem("dimension-missing", message, sources=tuple(files))


def _combine_level(
    groups: Sequence[VirtualGroup | None],
    path: str,
    task: Task,
    inherited: Inherited,
    new: Sequence[str],
) -> VirtualGroup:
    """Combine the groups at one path, and those below; new dimensions are put first."""
    columns = columns_of(groups, path)
    for dim in reversed(new):
        columns = stack_columns(columns, dim, task.notes)
    arrays, below, passed = combine_columns(columns, path, task, inherited)
    names = dict.fromkeys(name for group in groups if group is not None for name in group.groups)
    subgroups = {
        name: _combine_level(
            [None if group is None else group.groups.get(name) for group in groups],
            f"{path}/{name}" if path else name,
            below,
            passed,
            new,
        )
        for name in names
    }
    attrs = group_attributes(groups, path, task)
    for dim in reversed(new):
        attrs = stacked_attributes(attrs, dim)
    return VirtualGroup(
        arrays,
        subgroups,
        attrs,
        unlimited_dims=frozenset().union(*(group.unlimited_dims for group in groups if group)),
    )


def group_attributes(
    groups: Sequence[VirtualGroup | None], path: str, task: Task
) -> dict[str, Any]:
    """Attributes of the groups at one path, combined as the rule for them says."""
    cases = [(group.attrs, (number,)) for number, group in enumerate(groups) if group is not None]
    return combine_attributes(cases, path, task.notes, task.layout.settled.get("", ()))
