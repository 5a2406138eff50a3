"""Combine the groups at one path: apply every rule of drift, in order.

Rules work on *columns*, the inputs' versions of one variable, and note what they find. Output is
the variables of the combined group. Problems are raised together at the end: one run shows all of
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine.boxes import lay
from gridref.combine.columns import Column, Notes, columns_of
from gridref.combine.labels import in_one_form
from gridref.combine.placement import Lengths, Task
from gridref.combine.rules.attributes import (
    as_coordinates,
    combine_attributes,
    with_told_names,
    without_names,
)
from gridref.combine.rules.dimensions import (
    align_dimensions,
    extents_agree,
    find_flips,
    flip_files,
    lengths_along,
    repeated_along,
    shift_indices,
    stacked_attributes,
    static_array,
)
from gridref.combine.rules.flags import resolve_flags
from gridref.combine.rules.georeference import with_moved_transforms
from gridref.combine.rules.joined_labels import (
    LabelPositions,
    advice_for_labels,
    align_labels,
    find_label_positions,
)
from gridref.combine.rules.packing import Packing, lacking_files, resolve_dtype, resolve_packing
from gridref.combine.rules.units import resolve_times, resolve_units
from gridref.errors import Message, Option, some_of
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import is_scaled
from gridref.model.joining import cast_scalar, compacted, is_complete, same_scalar

# One variable of the result, from the inputs' versions of it


def combine_column(column: Column, lengths: Lengths, task: Task) -> VirtualArray | None:
    """One variable of the result; None where a problem was noted or it is left out."""
    if column.path in task.notes.failed:
        return None
    dims = task.placement.dims_of(column, task)
    if dims is None:
        return None
    if dims:
        return _combine_growing(column, dims, lengths, task)
    return _combine_static(column, lengths, task)


def _combine_static(column: Column, lengths: Lengths, task: Task) -> VirtualArray | None:
    """A variable without the dimension: one for all files, or repeated where that is asked for."""
    notes = task.notes
    _note_absent(column, column.files, "kept from the files that have it", notes)
    is_index = column.is_index
    if column.path in notes.told:
        along = task.placement.dims_of_files(column, task)
        return _repeat(column, along, lengths, task)
    rule = "minimal" if is_index else notes.options.repeat_rule(column.name)
    if rule == "minimal" and column.name not in notes.options.repeated and _is_label(column):
        rule = "different"
    if rule == "all" and task.placement.repeats and task.growing:
        along = task.placement.dims_of_files(column, task)
        if along:
            return _repeat(column, along, lengths, task)
    if not extents_agree(column, (), notes):
        return None
    if notes.options.compat == "override" and not is_index:
        return with_attributes(column.first, column, task)
    differing = static_array(column, task.values, notes)
    if differing is None:
        return None
    if not differing:
        return with_attributes(column.first, column, task)
    if rule == "different":
        along = task.placement.dims_of_files(column, task)
        if along:
            return _repeat(column, along, lengths, task)
    _note_differing(column, differing, lengths, task, is_index=is_index)
    return None


def _is_label(column: Column) -> bool:
    """Whether it is a single value in each file, as labels are, and no grid mapping."""
    return not any(
        kind.array.ndim
        or Packing.of(kind.array).scale
        or {"grid_mapping_name", "crs_wkt"} & kind.array.attrs.keys()
        for kind in column.kinds
    )


def _note_differing(
    column: Column, differing: Sequence[int], lengths: Lengths, task: Task, *, is_index: bool
) -> None:
    alike = {dim.lower() for dim in task.growing}
    written = [f" (but {dim!r})" for dim in column.first.dims if dim.lower() in alike]
    why = f"It has no dimension {' or '.join(map(repr, task.growing))}{''.join(written)}"
    if not task.growing:
        why = "The files are combined along no dimension"
    if is_index:
        cause, what, advice = "labels-differ", "labels", advice_for_labels(column, task.values)
    else:
        cause, what = "values-differ", "values"
        advice = Message(
            Option("compat", "override"), " shows the first file's for all and loses the others"
        )
        if not task.growing:
            new = Option("stack", ..., "layout=Stack(...)")
            advice = Message(new, " stacks the files along a new dimension; ", advice)
        can_repeat = task.placement.repeats and any(map(lengths.get, task.growing))
        if task.placement.in_a_row and not can_repeat:
            ragged = Option("layout", "ragged", "layout=Ragged()")
            advice = Message(ragged, " keeps one value for each file; ", advice)
        if can_repeat:
            advice = Message(
                Option("variables", "different"), " repeats it along the dimension; ", advice
            )
    task.notes.problem(
        cause,
        column.path,
        Message(
            f"its {what} differ from those in {task.notes.name(column.files[0])}. {why}, so they"
            " must be equal; ",
            advice,
        ),
        differing,
    )


def _repeat(
    column: Column, dims: Sequence[str], lengths: Lengths, task: Task
) -> VirtualArray | None:
    wide = column
    for dim in reversed(dims):
        if lengths[dim].keys() >= set(column.files):
            wide = repeated_along(wide, dim, lengths[dim])
    along = f"along {' and '.join(dims)}"
    task.notes.drift("repeated", column.path, {"without the dimension": list(column.files)}, along)
    return _combine_growing(wide, dims, lengths, task)


def _combine_growing(
    column: Column, dims: Sequence[str], lengths: Lengths, task: Task
) -> VirtualArray | None:
    """A variable that grows along the dimensions."""
    notes = task.notes
    complete: Column | None = column
    if any(not set(dims) <= set(kind.array.dims) for kind in column.kinds):
        complete = task.placement.with_dims(column, dims, lengths, task)
    if complete is None or not extents_agree(complete, dims, notes):
        return None
    packed = resolve_packing(complete, notes)
    dtype = None if packed is None else resolve_dtype(packed, notes)
    if packed is None or dtype is None:
        return None
    column = packed
    lacking = lacking_files(column, lengths[dims[0]])
    runs = task.placement.places(column, dims, lengths, lacking)
    known = task.placement.fill(column, runs, lacking, task)
    if known is None:
        return None
    _note_fill_values(column, dtype, notes)
    _note_unknown(column, lacking, lengths[dims[0]], notes)
    shown, fill = known
    if fill is not None and shown.first.dtype.kind == "f":
        dtype = np.result_type(*{kind.array.dtype for kind in shown.kinds})
    alike = fill is None and len(column.kinds) == 1
    joined = task.placement.known(shown, runs)
    if joined is None:
        last = task.placement.keeps_last([*runs], notes.options.overlap)
        whole = task.placement.with_missing(shown, runs, fill)
        fill = _fill_of_missing(whole) if fill is None else fill
        joined = lay(whole, runs, keep_last=last, dtype=dtype, fill=fill, alike=alike)
    return with_attributes(compacted(joined), shown, task)


def _fill_of_missing(column: Column) -> Any:
    """What the first array with missing blocks shows there, so that they stay missing in the whole.

    A catalog has such blocks where labels are declared ahead. None where no array has any, or where
    all arrays are alike.
    """
    if len(column.kinds) == 1:
        return None
    absent = (array for array in column.arrays if not array.held_blocks.all())
    return next((array.fill_value for array in absent), None)


def _note_unknown(
    column: Column, lacking: Sequence[int], lengths: Mapping[int, int], notes: Notes
) -> None:
    """Note the files that lack a variable and do not say how long it would be."""
    if len(column.files) + len(lacking) < len(notes.inputs):
        empty = [file for file, extent in lengths.items() if not extent]
        effect = "nothing is added where its length is unknown"
        _note_absent(column, [*column.files, *lacking, *empty], effect, notes)


def _note_fill_values(column: Column, dtype: np.dtype[Any], notes: Notes) -> None:
    """Note where chunks that files do not hold read otherwise than in the first file."""
    if len(column.kinds) == 1:
        return
    first = cast_scalar(column.first.fill_value, dtype)
    unlike = [
        number
        for kind in column.kinds
        if not same_scalar(cast_scalar(kind.array.fill_value, dtype), first, dtype)
        for number in kind.members
    ]
    if not all(is_complete(column.arrays[number]) for number in unlike):
        cases = column.cases(lambda kind: f"fill value {kind.array.fill_value}")
        done = "missing chunks keep reading as in their file"
        notes.drift("fill-value", column.path, cases, done)


def _note_absent(column: Column, known: Iterable[int], effect: str, notes: Notes) -> None:
    """Note the files that have no part in a variable."""
    absent = set(range(len(notes.inputs))).difference(known)
    if absent:
        cases = {"there": list(column.files), "missing": sorted(absent)}
        notes.drift("variable-missing", column.path, cases, effect)


def with_attributes(array: VirtualArray, column: Column, task: Task) -> VirtualArray:
    """An array with the attributes of all files, combined as the rule for them says."""
    cases = [(kind.array.attrs, column.files_of(kind)) for kind in column.kinds]
    settled = task.placement.settled.get(column.name, ())
    return array.with_changes(attrs=combine_attributes(cases, column.path, task.notes, settled))


# All variables at one path: the order of the rules


@dataclass(frozen=True, eq=False)
class Inherited:
    """What a group passes on to the groups inside it: netCDF dimensions hold below, too."""

    lengths: Lengths = field(default_factory=dict)
    flips: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    positions: Mapping[str, LabelPositions] = field(default_factory=dict)


def combine_columns(
    columns: Mapping[str, Column], path: str, task: Task, inherited: Inherited
) -> tuple[dict[str, VirtualArray], Task, Inherited]:
    """Combine the variables of a group.

    Parameters
    ----------
    task
        How inputs are laid out, and what is found.
    inherited
        What the groups above say of dimensions.

    Returns
    -------
    tuple
        The variables of the result; the task and what is inherited, for the groups below.
    """
    notes, values, growing = task.notes, task.values, task.growing
    columns = {
        name: aligned
        for name, column in columns.items()
        if (aligned := align_dimensions(column, growing, notes)) is not None
    }
    columns = {
        name: in_one_form(column, growing, values, notes) for name, column in columns.items()
    }
    own = {name for name, column in columns.items() if column.is_index}
    flips = {dim: files for dim, files in inherited.flips.items() if dim not in own}
    flips |= find_flips(columns, growing, values, notes)
    columns = {name: flip_files(column, flips) for name, column in columns.items()}
    columns = resolve_times(columns, notes, values)
    columns = resolve_units(columns, notes)
    columns = resolve_flags(columns, notes)
    positions = {dim: known for dim, known in inherited.positions.items() if dim not in own}
    if notes.options.join != "exact":
        order = task.placement.order_of_files(columns, task)
        positions |= find_label_positions(columns, growing, order, notes, values)
    unaligned = columns
    if positions:
        columns = {
            name: align_labels(column, positions, growing, notes, values)
            for name, column in columns.items()
        }
    lengths = lengths_along(columns, growing, inherited.lengths)
    columns = shift_indices(columns, lengths, notes, values)
    here = replace(task, placement=task.placement.at_level(unaligned, lengths, task))
    arrays = {
        name: array
        for name, column in columns.items()
        if (array := combine_column(column, lengths, here)) is not None
    }
    _check_sizes(arrays, path, here)
    return arrays, here, Inherited(lengths, flips, positions)


def _check_sizes(arrays: Mapping[str, VirtualArray], path: str, task: Task) -> None:
    """Note where variables of one group have grown to different lengths."""
    for dim in task.growing:
        sizes: dict[int, list[str]] = {}
        for name, array in arrays.items():
            if dim in array.dims:
                sizes.setdefault(array.sizes[dim], []).append(name)
        if len(sizes) > 1:
            shown = "; ".join(f"{extent} of {some_of(names)}" for extent, names in sizes.items())
            message = f"lengths along {dim!r} differ between variables: {shown}"
            task.notes.problem("shape-differs", path, message, (), drop=False)


# A group: its variables and attributes


def combine_level(
    groups: Sequence[VirtualGroup | None], path: str, task: Task, inherited: Inherited
) -> tuple[VirtualGroup, Mapping[str, Column], Task, Inherited]:
    """Combine the groups at one path, without those below.

    Returns
    -------
    tuple
        The group; its variables in the inputs, with new dimensions; the task and what is inherited,
        for the groups below.
    """
    columns, told = as_coordinates(
        groups,
        columns_of(groups, path),
        path,
        growing=task.growing,
        has_place=lambda column: task.placement.dims_of_files(column, task),
        notes=task.notes,
    )
    wide = task.placement.with_new_dims(columns, task.notes)
    arrays, here, passed = combine_columns(wide, path, task, inherited)
    cases = [
        (without_names(group.attrs, told) if told else group.attrs, (number,))
        for number, group in enumerate(groups)
        if group is not None
    ]
    attrs = combine_attributes(cases, path, task.notes, task.placement.settled.get("", ()))
    attrs = with_told_names(attrs, arrays, wide, task.notes)
    for dim in reversed(task.placement.new):
        attrs = stacked_attributes(attrs, dim)

    def labels_of(dim: str) -> NDArray[Any] | None:
        labels = arrays.get(dim)
        if labels is None or not labels.is_index(dim) or not task.values.available(labels):
            return None
        return None if is_scaled(labels.attrs) else task.values.of(labels)

    arrays = with_moved_transforms(arrays, labels_of)
    return VirtualGroup(arrays, attrs=attrs), wide, here, passed
