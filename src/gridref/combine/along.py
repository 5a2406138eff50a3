"""Place inputs in sequence along a dimension, in the given order or by label.

An input that lacks a variable gives missing blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine.boxes import Runs
from gridref.combine.columns import Column
from gridref.combine.labels import LabelOrder, order_labels
from gridref.combine.placement import Lengths, Placement, Task
from gridref.combine.rules.indices import counts_along, refuse_moved
from gridref.combine.rules.single import repeated_along
from gridref.errors import InvalidRequestError, Message, Option
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.joining import missing_like


@dataclass(frozen=True, eq=False)
class Along(Placement):
    """One file after the other, along a dimension; each of several dimensions for itself.

    Attributes
    ----------
    by_label
        Whether files are put in the order of their labels, not the given one.
    counts_files
        Whether the last of several dimensions counts the files, as in ragged archives.
    order
        Where labels overlap and one of each is kept; None where all of every file follows.
    inputs
        The variables of a group before labels of other dimensions were aligned: what an input does
        not hold hides nothing of another one, what is missing for want of a label does, as in
        xarray.

    Raises
    ------
    InvalidRequestError
        For no dimension.
    """

    by_label: bool = False
    counts_files: bool = False
    order: LabelOrder | None = None
    inputs: Mapping[str, Column] = field(default_factory=dict)

    in_a_row = True

    def __post_init__(self) -> None:
        if not self.growing:
            raise InvalidRequestError("nothing to combine along: no dimension")

    @property
    def repeats(self) -> bool:
        """Where there is one dimension, or one of them counts the files."""
        return len(self.growing) == 1 or self.counts_files

    def dims_of_files(self, column: Column, task: Task) -> tuple[str, ...]:
        """The dimension; of several the last one."""
        return self.growing[-1:]

    def at_level(self, columns: Mapping[str, Column], lengths: Lengths, task: Task) -> Along:
        """The placement in the order of a group's own labels, else of those of groups above it."""
        order = self._order(columns, lengths, task) or self.order
        runs = {dim: _in_a_row(own, own) for dim, own in lengths.items()}
        return replace(self, order=order, inputs=columns, runs=runs)

    def _order(
        self, columns: Mapping[str, Column], lengths: Lengths, task: Task
    ) -> LabelOrder | None:
        dim, notes = self.growing[0], task.notes
        column = columns.get(dim)
        if len(self.growing) != 1 or column is None or column.path in notes.failed:
            return None
        if any(kind.array.dims != (dim,) for kind in column.kinds):
            return None
        counting = [own for own in columns.values() if counts_along(own, notes) == dim]
        by_label = self.by_label and not counting
        order = order_labels(column, task.values, notes, lengths[dim], by_label=by_label)
        if order is not None:
            refuse_moved(counting, dim, notes)
        return order

    def dims_of(self, column: Column, task: Task) -> tuple[str, ...] | None:
        """The growing dimension that a variable has, as a tuple of at most one."""
        dims = self.held_dims(column)
        if len(dims) > 1:
            message = f"it has several of the dimensions that grow: {', '.join(dims)}"
            task.notes.problem("dimensions-differ", column.path, message, column.files[:1])
            return None
        return dims

    def with_dims(
        self, column: Column, dims: Sequence[str], lengths: Lengths, task: Task
    ) -> Column | None:
        """Repeat the arrays that lack the dimension along it; None if it has no one length."""
        (dim,) = dims
        if all(dim not in kind.array.dims for kind in column.kinds) and not lengths[dim]:
            message = Message(
                f"its values differ, and it cannot be repeated along {dim!r} because groups "
                "differ in length there; ",
                Option("layout", "ragged", "layout=Ragged()"),
                " keeps one value for each file",
            )
            task.notes.problem("values-differ", column.path, message, column.files)
            return None
        cases = column.cases(lambda kind: str(kind.array.dims))
        done = f"repeated along {dim} where it is missing"
        task.notes.drift("dimensions", column.path, cases, done)
        wanted = max((kind.array.dims for kind in column.kinds), key=len)
        return repeated_along(column, dim, lengths[dim], wanted.index(dim))

    def places(
        self, column: Column, dims: Sequence[str], lengths: Lengths, lacking: Sequence[int]
    ) -> Mapping[str, Runs]:
        """One file after the other, those that lack the variable included."""
        (dim,) = dims
        if self.order is not None:
            absent = {file: np.ones(lengths[dim][file], bool) for file in lacking}
            absent |= _absent_labels(self.inputs.get(column.name, column), dim)
            return {dim: self.order.runs(absent)}
        if len(column.files) == len(lengths[dim]):
            return {dim: self.runs[dim]}
        return {dim: _in_a_row([*column.files, *lacking], lengths[dim])}

    def with_missing(self, column: Column, runs: Mapping[str, Runs], fill: Any) -> Column:
        """The column, with missing blocks where an input that goes on lacks the variable."""
        ((dim, places),) = runs.items()
        lacking = np.setdiff1d(places.file, column.files) if fill is not None else ()
        if not len(lacking):
            return column
        first, axis = column.first, column.first.dims.index(dim)
        known = dict(zip(column.files, column.arrays, strict=True))
        for file in map(int, lacking):
            own = places.file == file
            extent = int((places.start[own] + places.count[own]).max())
            known[file] = missing_like(first, axis, extent, fill)
        files = sorted(known)
        return replace(column, files=files, arrays=[known[file] for file in files])


def _in_a_row(files: Iterable[int], lengths: Mapping[int, int]) -> Runs:
    ordered = sorted(files)
    return Runs.in_a_row(ordered, [lengths.get(file, 0) for file in ordered])


def _absent_labels(column: Column, dim: str) -> dict[int, NDArray[np.bool_]]:
    """For files whose array has missing blocks: where along a dimension it holds nothing."""
    known = {}
    for file, array in zip(column.files, column.arrays, strict=True):
        missing = array.blocks.encoding == MISSING_BLOCK
        if dim in array.dims and missing.any():
            axis = array.dims.index(dim)
            others = tuple(other for other in range(array.ndim) if other != axis)
            by_block = missing.reshape(array.grid.grid_shape).all(axis=others)
            known[file] = np.repeat(by_block, array.grid.axes[axis].edges())
    return known
