"""Combine the groups at one path: all rules of drift, in their order.

Every rule works on *columns*, the inputs' versions of one variable, and notes what it finds.
Problems are raised together at the end, so that one run shows all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gridref.combine.alignment import LabelPositions, align_labels, find_label_positions
from gridref.combine.columns import Column
from gridref.combine.dimensions import align_dimensions, find_flips, flip_files, lengths_along
from gridref.combine.layout import Lengths, Task
from gridref.combine.ragged import shift_indices
from gridref.combine.times import resolve_times
from gridref.combine.units import resolve_units
from gridref.combine.variables import combine_column
from gridref.model.array import VirtualArray

__all__ = ["Inherited", "combine_columns"]


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
    own = {name for name, column in columns.items() if column.first.dims == (name,)}
    flips = {dim: files for dim, files in inherited.flips.items() if dim not in own}
    if notes.options.compat == "equals":
        flips |= find_flips(columns, growing, values, notes)
    columns = {name: flip_files(column, flips) for name, column in columns.items()}
    columns = resolve_times(columns, notes, values)
    columns = resolve_units(columns, notes)
    positions = {dim: known for dim, known in inherited.positions.items() if dim not in own}
    positions |= find_label_positions(columns, growing, notes, values)
    unaligned = columns
    if positions:
        columns = {
            name: align_labels(column, positions, growing, notes, values)
            for name, column in columns.items()
        }
    lengths = lengths_along(columns, growing, inherited.lengths)
    columns = shift_indices(columns, lengths, notes, values)
    here = replace(task, layout=task.layout.at_level(unaligned, lengths, values, notes))
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
                sizes.setdefault(array.shape[array.dims.index(dim)], []).append(name)
        if len(sizes) > 1:
            shown = "; ".join(
                f"{extent} of {', '.join(names[:3])}" for extent, names in sizes.items()
            )
            message = f"lengths along {dim!r} differ between variables: {shown}"
            task.notes.problem("shape-differs", path, message, (), drop=False)
