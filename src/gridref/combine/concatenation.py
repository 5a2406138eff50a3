"""Many virtual groups laid after one another along a dimension, drift and all.

Every rule works on *columns*, the inputs' versions of one variable, and notes what it finds.
Problems are raised together at the end, so that one run shows all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gridref.combine.alignment import Places, align_labels, find_places
from gridref.combine.attributes import combine_attributes
from gridref.combine.columns import Column, Notes, columns_of
from gridref.combine.dimensions import (
    align_dimensions,
    extents_agree,
    find_flips,
    flip_files,
    lengths_along,
    shared_lengths,
)
from gridref.combine.dtypes import resolve_dtype
from gridref.combine.gaps import fill_gaps
from gridref.combine.options import CombineOptions, Read
from gridref.combine.overlaps import Piece, plan_pieces
from gridref.combine.packing import resolve_packing
from gridref.combine.ragged import shift_indices
from gridref.combine.report import DriftReport, grouped
from gridref.combine.stacking import (
    repeated_along,
    stack_columns,
    stacked_attributes,
    static_array,
)
from gridref.combine.times import resolve_times
from gridref.combine.units import resolve_units
from gridref.combine.values import Values
from gridref.errors import CombineError, InvalidRequestError, Problem
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.indexing import isel
from gridref.model.joining import cast_scalar, compacted, concatenate, same_scalar
from gridref.model.scan_report import ScanReport

__all__ = ["Combination", "combine_batch"]


@dataclass(frozen=True, eq=False)
class Combination:
    """What combining gives.

    Attributes
    ----------
    group
        The combined group; None where problems prevent it.
    report
        What differed, and how it was resolved.
    problems
        What could not be resolved.
    """

    group: VirtualGroup | None
    report: DriftReport
    problems: tuple[Problem, ...] = ()

    def unwrap(self) -> VirtualGroup:
        """The combined group.

        Raises
        ------
        CombineError
            With every problem, where there is one.
        """
        if self.problems or self.group is None:
            raise CombineError(self.problems)
        return self.group


def combine_batch(
    groups: Sequence[VirtualGroup],
    growing: tuple[str, ...],
    read: Read | None,
    options: CombineOptions,
    unnamed: Sequence[str],
) -> Combination:
    """Combine groups that are all in memory.

    Parameters
    ----------
    groups, growing, read, options
        As for `gridref.combine.combine`.
    unnamed
        Names for groups that do not know their file.
    """
    notes = Notes(options, groups, unnamed)
    task = _Task(growing, notes, Values(read), _is_new(groups, growing))
    if task.stacking:
        lengths = {growing[0]: dict.fromkeys(range(len(groups)), 1)}
    else:
        lengths = shared_lengths(groups, growing)
    group = _combine_level(list(groups), "", task, _Inherited(lengths))
    names = tuple(notes.name(file) for file in range(len(groups)))
    report = DriftReport(tuple(notes.drifts), names)
    if notes.problems:
        return Combination(None, report, grouped(notes.problems))
    scans = ScanReport.joined([item.report for item in groups])
    return Combination(group.replace(report=scans), report)


def _is_new(groups: Sequence[VirtualGroup], growing: Sequence[str]) -> bool:
    """Whether no input has the dimension."""
    found = any(
        not set(growing).isdisjoint(array.dims)
        for group in groups
        for _, part in group.walk()
        for array in part.arrays.values()
    )
    if not found and len(growing) > 1:
        raise InvalidRequestError(f"no input has any of the dimensions {', '.join(growing)}")
    return not found


@dataclass(frozen=True, eq=False)
class _Task:
    growing: tuple[str, ...]
    notes: Notes
    values: Values
    stacking: bool


@dataclass(frozen=True, eq=False)
class _Inherited:
    """What a group passes on to the groups inside it: netCDF dimensions hold below, too."""

    lengths: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    flips: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    places: Mapping[str, Places] = field(default_factory=dict)
    pieces: list[Piece] | None = None


def _combine_level(
    groups: Sequence[VirtualGroup | None], path: str, task: _Task, inherited: _Inherited
) -> VirtualGroup:
    """Combine the groups at one path, and those below."""
    notes, growing = task.notes, task.growing
    columns = columns_of(groups, path)
    if task.stacking:
        columns = stack_columns(columns, growing[0], notes)
    columns = {
        name: aligned
        for name, column in columns.items()
        if (aligned := align_dimensions(column, growing, notes)) is not None
    }
    own = {name for name, column in columns.items() if column.first.dims == (name,)}
    flips = {dim: files for dim, files in inherited.flips.items() if dim not in own}
    if notes.options.compat == "equals":
        flips |= find_flips(columns, growing, task.values, notes)
    columns = {name: flip_files(column, flips) for name, column in columns.items()}
    columns = resolve_times(columns, notes, task.values)
    columns = resolve_units(columns, notes)
    places = {dim: found for dim, found in inherited.places.items() if dim not in own}
    places |= find_places(columns, growing, notes, task.values)
    if places:
        columns = {
            name: align_labels(column, places, growing, notes, task.values)
            for name, column in columns.items()
        }
    lengths = lengths_along(columns, growing, inherited.lengths)
    columns = shift_indices(columns, lengths, notes, task.values)
    pieces = _pieces(columns, lengths, task) or inherited.pieces
    arrays = {
        name: array
        for name, column in columns.items()
        if (array := _combine_column(column, lengths, pieces, task)) is not None
    }
    _check_sizes(arrays, path, task)
    passed = _Inherited(lengths, flips, places, pieces)
    attrs = _group_attributes(groups, path, notes)
    return VirtualGroup(
        arrays,
        _subgroups(groups, path, task, passed),
        stacked_attributes(attrs, growing[0]) if task.stacking else attrs,
    )


def _check_sizes(arrays: Mapping[str, VirtualArray], path: str, task: _Task) -> None:
    """Note where variables of one group have grown to different lengths."""
    for dim in task.growing:
        sizes: dict[int, list[str]] = {}
        for name, array in arrays.items():
            if dim in array.dims:
                sizes.setdefault(array.shape[array.dims.index(dim)], []).append(name)
        if len(sizes) > 1:
            shown = "; ".join(
                f"{extent} of {', '.join(names[:3])}" for extent, names in sizes.items()
            )
            message = f"lengths along {dim!r} differ between variables: {shown}"
            task.notes.problem("shape-differs", path, message, (), drop=False)


def _path(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _pieces(
    columns: Mapping[str, Column], lengths: Mapping[str, Mapping[int, int]], task: _Task
) -> list[Piece] | None:
    if len(task.growing) != 1:
        return None
    (dim,) = task.growing
    column = columns.get(dim)
    if column is None or column.path in task.notes.failed:
        return None
    if any(kind.array.dims != (dim,) for kind in column.kinds):
        return None
    return plan_pieces(column, task.values, task.notes, lengths[dim])


def _subgroups(
    groups: Sequence[VirtualGroup | None], path: str, task: _Task, passed: _Inherited
) -> dict[str, VirtualGroup]:
    names = dict.fromkeys(name for group in groups if group is not None for name in group.groups)
    return {
        name: _combine_level(
            [None if group is None else group.groups.get(name) for group in groups],
            _path(path, name),
            task,
            passed,
        )
        for name in names
    }


def _group_attributes(
    groups: Sequence[VirtualGroup | None], path: str, notes: Notes
) -> dict[str, Any]:
    cases = [(group.attrs, (number,)) for number, group in enumerate(groups) if group is not None]
    return combine_attributes(cases, path, notes)


def _combine_column(
    column: Column,
    lengths: Mapping[str, Mapping[int, int]],
    pieces: list[Piece] | None,
    task: _Task,
) -> VirtualArray | None:
    """One variable of the result; None where a problem was noted or it is left out."""
    notes = task.notes
    if column.path in notes.failed:
        return None
    dims = [dim for dim in task.growing if any(dim in kind.array.dims for kind in column.kinds)]
    if len(dims) > 1:
        message = f"it has several of the dimensions that grow: {', '.join(dims)}"
        notes.problem("dimensions-differ", column.path, message, column.files[:1])
        return None
    if not dims:
        return _combine_static(column, lengths, pieces, task)
    (dim,) = dims
    return _combine_growing(column, dim, lengths[dim], pieces, notes)


def _combine_static(
    column: Column,
    lengths: Mapping[str, Mapping[int, int]],
    pieces: list[Piece] | None,
    task: _Task,
) -> VirtualArray | None:
    """A variable without the dimension: one for all files, or repeated where that is asked for."""
    notes = task.notes
    _note_absent(column, column.files, "kept from the files that have it", notes)
    if notes.options.variables == "all" and len(task.growing) == 1:
        return _repeat(column, lengths, pieces, task)
    if not extents_agree(column, (), notes):
        return None
    if notes.options.compat == "override":
        return _with_attributes(column.first, column, notes)
    differing = static_array(column, task.values, notes)
    if differing is None:
        return None
    if not differing:
        return _with_attributes(column.first, column, notes)
    if notes.options.variables == "different" and len(task.growing) == 1:
        return _repeat(column, lengths, pieces, task)
    alike = {dim.lower() for dim in task.growing}
    written = [f" (but {dim!r})" for dim in column.first.dims if dim.lower() in alike]
    notes.problem(
        "values-differ",
        column.path,
        f"its values differ from those in {notes.name(column.files[0])}, and it has no dimension"
        f" {' or '.join(map(repr, task.growing))}{''.join(written)};"
        " variables='different' repeats it along the dimension, compat='override' takes the first",
        differing,
    )
    return None


def _repeat(
    column: Column,
    lengths: Mapping[str, Mapping[int, int]],
    pieces: list[Piece] | None,
    task: _Task,
) -> VirtualArray | None:
    (dim,) = task.growing
    wide = repeated_along(column, dim, lengths[dim])
    task.notes.drift(
        "repeated", column.path, {"without the dimension": list(column.files)}, f"along {dim}"
    )
    return _combine_growing(wide, dim, lengths[dim], pieces, task.notes)


def _combine_growing(
    column: Column,
    dim: str,
    lengths: Mapping[int, int],
    pieces: list[Piece] | None,
    notes: Notes,
) -> VirtualArray | None:
    """A variable that grows along the dimension."""
    if any(dim not in kind.array.dims for kind in column.kinds):
        column = _with_dimension(column, dim, lengths, notes)
    if not extents_agree(column, (dim,), notes):
        return None
    column = resolve_packing(column, notes)
    dtype = resolve_dtype(column, notes)
    filled = fill_gaps(column, dim, lengths, notes)
    if dtype is None or filled is None:
        return None
    _note_fill_values(column, dtype, notes)
    full, fill = filled
    if len(full.files) < len(notes.inputs):
        known = [*full.files, *(file for file, extent in lengths.items() if not extent)]
        _note_absent(column, known, "nothing is added where its length is unknown", notes)
    dtype = dtype if fill is None else full.first.dtype if full.first.dtype.kind == "f" else dtype
    axis = column.first.dims.index(dim)
    arrays = full.arrays if pieces is None else _cut(full, dim, pieces)
    if not arrays:
        arrays = full.arrays[:1]
    alike = fill is None and len(column.kinds) == 1
    joined = compacted(concatenate(arrays, axis, dtype=dtype, fill_value=fill, alike=alike))
    return _with_attributes(joined, full, notes)


def _note_fill_values(column: Column, dtype: np.dtype[Any], notes: Notes) -> None:
    """Note where chunks that files do not hold read otherwise than in the first file."""
    if len(column.kinds) == 1:
        return
    first = cast_scalar(column.first.fill_value, dtype)
    if all(
        same_scalar(cast_scalar(kind.array.fill_value, dtype), first, dtype)
        for kind in column.kinds
    ):
        return
    cases = column.cases(lambda kind: f"fill value {kind.array.fill_value}")
    notes.drift("fill-value", column.path, cases, "missing chunks keep reading as in their file")


def _note_absent(column: Column, known: Iterable[int], what: str, notes: Notes) -> None:
    """Note the files that have no part in a variable."""
    absent = set(range(len(notes.inputs))).difference(known)
    if absent:
        cases = {"there": list(column.files), "missing": sorted(absent)}
        notes.drift("variable-missing", column.path, cases, what)


def _with_dimension(column: Column, dim: str, lengths: Mapping[int, int], notes: Notes) -> Column:
    """Give the dimension to those files' arrays that lack it."""
    cases = column.cases(lambda kind: str(kind.array.dims))
    notes.drift("dimensions", column.path, cases, f"repeated along {dim} where it is missing")
    wanted = max((kind.array.dims for kind in column.kinds), key=len)
    return repeated_along(column, dim, lengths, wanted.index(dim))


def _cut(column: Column, dim: str, pieces: Sequence[Piece]) -> list[VirtualArray]:
    """The parts of the arrays that are shown, in their order."""
    arrays = dict(zip(column.files, column.arrays, strict=True))
    return [
        isel(arrays[piece.file], {dim: slice(piece.start, piece.stop)})
        for piece in pieces
        if piece.file in arrays
    ]


def _with_attributes(array: VirtualArray, column: Column, notes: Notes) -> VirtualArray:
    cases = [(kind.array.attrs, column.files_of(kind)) for kind in column.kinds]
    return array.replace(attrs=combine_attributes(cases, column.path, notes))
