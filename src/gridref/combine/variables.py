"""One variable of the result, out of the inputs' versions of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gridref.combine.attributes import combine_attributes
from gridref.combine.columns import Column, Notes
from gridref.combine.dimensions import extents_agree
from gridref.combine.dtypes import resolve_dtype
from gridref.combine.gaps import lacking_files
from gridref.combine.layout import Lengths, Task
from gridref.combine.packing import resolve_packing
from gridref.combine.stacking import repeated_along, static_array
from gridref.model.array import VirtualArray
from gridref.model.joining import cast_scalar, compacted, same_scalar

__all__ = ["combine_column", "with_attributes"]


def combine_column(column: Column, lengths: Lengths, task: Task) -> VirtualArray | None:
    """One variable of the result; None where a problem was noted or it is left out."""
    if column.path in task.notes.failed:
        return None
    dims = task.layout.dims_of(column, task.notes)
    if dims is None:
        return None
    if dims:
        return _combine_growing(column, dims, lengths, task)
    return _combine_static(column, lengths, task)


def _combine_static(column: Column, lengths: Lengths, task: Task) -> VirtualArray | None:
    """A variable without the dimension: one for all files, or repeated where that is asked for."""
    notes = task.notes
    _note_absent(column, column.files, "kept from the files that have it", notes)
    rule = "minimal" if _is_index(column) else notes.options.repeat_rule(column.name)
    if rule == "all" and task.layout.repeats and task.growing:
        return _repeat(column, lengths, task)
    if not extents_agree(column, (), notes):
        return None
    if notes.options.compat == "override":
        return with_attributes(column.first, column, task)
    differing = static_array(column, task.values, notes)
    if differing is None:
        return None
    if not differing:
        return with_attributes(column.first, column, task)
    if rule == "different" and task.layout.repeats and task.growing:
        return _repeat(column, lengths, task)
    _note_differing(column, differing, task)
    return None


def _is_index(column: Column) -> bool:
    """Whether a variable holds a dimension's labels: ``join`` says what becomes of those."""
    return column.first.dims == (column.name,)


def _note_differing(column: Column, differing: Sequence[int], task: Task) -> None:
    alike = {dim.lower() for dim in task.growing}
    written = [f" (but {dim!r})" for dim in column.first.dims if dim.lower() in alike]
    repeats = task.layout.repeats and not _is_index(column)
    repeat = "variables='different' repeats it along the dimension, " if repeats else ""
    task.notes.problem(
        "values-differ",
        column.path,
        f"its values differ from those in {task.notes.name(column.files[0])}, and it has no"
        f" dimension {' or '.join(map(repr, task.growing))}{''.join(written)};"
        f" {repeat}compat='override' takes the first",
        differing,
    )


def _repeat(column: Column, lengths: Lengths, task: Task) -> VirtualArray | None:
    wide = column
    for dim in reversed(task.growing):
        if lengths[dim].keys() >= set(column.files):
            wide = repeated_along(wide, dim, lengths[dim])
    along = f"along {' and '.join(task.growing)}"
    task.notes.drift("repeated", column.path, {"without the dimension": list(column.files)}, along)
    return _combine_growing(wide, task.growing, lengths, task)


def _combine_growing(
    column: Column, dims: Sequence[str], lengths: Lengths, task: Task
) -> VirtualArray | None:
    """A variable that grows along the dimensions."""
    notes = task.notes
    complete: Column | None = column
    if any(not set(dims) <= set(kind.array.dims) for kind in column.kinds):
        complete = task.layout.with_dims(column, dims, lengths, notes)
    if complete is None or not extents_agree(complete, dims, notes):
        return None
    packed = resolve_packing(complete, notes)
    dtype = None if packed is None else resolve_dtype(packed, notes)
    if packed is None or dtype is None:
        return None
    column = packed
    lacking = lacking_files(column, lengths[dims[0]])
    arrangement = task.layout.arrangement(column, dims, lengths, lacking)
    known = arrangement.fill(column, lacking, notes)
    if known is None:
        return None
    _note_fill_values(column, dtype, notes)
    _note_unknown(column, lacking, lengths[dims[0]], notes)
    shown, fill = known
    if fill is not None and shown.first.dtype.kind == "f":
        dtype = np.result_type(*{kind.array.dtype for kind in shown.kinds})
    alike = fill is None and len(column.kinds) == 1
    joined = compacted(arrangement.lay(shown, dtype, fill, alike=alike))
    return with_attributes(joined, shown, task)


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
    if all(
        same_scalar(cast_scalar(kind.array.fill_value, dtype), first, dtype)
        for kind in column.kinds
    ):
        return
    cases = column.cases(lambda kind: f"fill value {kind.array.fill_value}")
    notes.drift("fill-value", column.path, cases, "missing chunks keep reading as in their file")


def _note_absent(column: Column, known: Iterable[int], effect: str, notes: Notes) -> None:
    """Note the files that have no part in a variable."""
    absent = set(range(len(notes.inputs))).difference(known)
    if absent:
        cases = {"there": list(column.files), "missing": sorted(absent)}
        notes.drift("variable-missing", column.path, cases, effect)


def with_attributes(array: VirtualArray, column: Column, task: Task) -> VirtualArray:
    """An array with the attributes of all files, combined as the rule for them says."""
    cases = [(kind.array.attrs, column.files_of(kind)) for kind in column.kinds]
    settled = task.layout.settled.get(column.name, ())
    return array.replace(attrs=combine_attributes(cases, column.path, task.notes, settled))
