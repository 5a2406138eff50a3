"""Where each input goes in the result: the interface `Placement`, and inputs in sequence (`Along`).

Rules of drift do not know how inputs are laid out; they ask a `Placement`. It says which variables
grow along which dimensions, and finds the places of each input, as `Runs` along each dimension.
Others are by labels (`gridref.combine.hypercube`), on pixels (`gridref.combine.mosaic`), and in
rows (`gridref.combine.instances`). `Placement` itself puts each input at a given place, as the
fragments of CF aggregation variables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from gridref.combine.boxes import Boxes, Runs, held_along
from gridref.combine.columns import Column, Notes
from gridref.combine.labels import LabelOrder, order_labels
from gridref.combine.options import CombineOptions
from gridref.combine.rules.dimensions import (
    counts_along,
    refuse_moved,
    repeated_along,
    stack_columns,
)
from gridref.combine.rules.packing import fill_for_gaps, with_padding
from gridref.combine.values import Values
from gridref.errors import InvalidRequestError, Message, Option
from gridref.model.array import VirtualArray
from gridref.model.joining import missing_like

Lengths = Mapping[str, Mapping[int, int]]
"""Length of each growing dimension in each file that says it."""


@dataclass(frozen=True, eq=False)
class Placement:
    """A way to lay inputs beside each other. This one puts each at a given place.

    Attributes
    ----------
    growing
        The dimensions along which the result is longer than its inputs.
    runs
        Where inputs are along each of them, as far as that is the same for all variables.
    settled
        Attributes by variable (``""`` for the group) that the placement deals with itself.
    new
        Those of the dimensions that no input has: they are put first.
    pads
        Whether elements that no file holds have to read as missing values.
    """

    growing: tuple[str, ...]
    runs: Mapping[str, Runs] = field(default_factory=dict)
    settled: Mapping[str, Collection[str]] = field(default_factory=dict)
    new: tuple[str, ...] = ()
    pads: bool = False

    each_may_be_new: ClassVar[bool] = False
    """Whether inputs may lack some of the dimensions, and not all of them or none."""

    in_a_row: ClassVar[bool] = False
    """Whether inputs follow each other, as they do in a ragged archive, which counts them."""

    in_batches: ClassVar[bool] = True
    """Whether what batches of inputs gave can be combined once more, as if it were inputs."""

    def check(self, rules: CombineOptions) -> None:
        """Check that options mean something for the placement.

        Raises
        ------
        InvalidRequestError
            If one does not.
        """

    @property
    def repeats(self) -> bool:
        """Whether a variable without the dimension can be repeated along it."""
        return False

    def keeps_last(self, dims: Sequence[str], rule: str) -> bool:
        """Whether the last of several files that hold an element shows, and not the first.

        Parameters
        ----------
        rule
            What `CombineOptions.overlap` says.
        """
        return rule == "last"

    def dims_of_files(self, column: Column, task: Task) -> tuple[str, ...]:
        """Dimensions along which a variable with one value for each file is repeated.

        Empty where there are none, or where several files with different values share a place
        along them.
        """
        return ()

    def with_new_dims(self, columns: Mapping[str, Column], notes: Notes) -> Mapping[str, Column]:
        """Give variables the dimensions that no input has."""
        for dim in reversed(self.new):
            columns = stack_columns(columns, dim, notes)
        return columns

    def order_of_files(self, columns: Mapping[str, Column], task: Task) -> Sequence[int]:
        """All inputs, in the order in which ``join`` takes one of them for the first or last."""
        return range(len(task.notes.inputs))

    def at_level(self, columns: Mapping[str, Column], lengths: Lengths, task: Task) -> Self:
        """The placement of a group and those below, once its variables are known."""
        return self

    def dims_of(self, column: Column, task: Task) -> tuple[str, ...] | None:
        """Dimensions along which a variable grows; None where it is no part of the result."""
        return self.held_dims(column)

    def held_dims(self, column: Column) -> tuple[str, ...]:
        """The dimensions that grow among those of a variable, in any file."""
        held = {dim for kind in column.kinds for dim in kind.array.dims}
        return tuple(dim for dim in self.growing if dim in held)

    def with_dims(
        self, column: Column, dims: Sequence[str], lengths: Lengths, task: Task
    ) -> Column | None:
        """Give dimensions to those files' arrays that lack them; None where that cannot be."""
        return column

    def places(
        self, column: Column, dims: Sequence[str], lengths: Lengths, lacking: Sequence[int]
    ) -> Mapping[str, Runs]:
        """Find the places of a variable along the dimensions that it grows along.

        Parameters
        ----------
        lacking
            Files that have the places along the dimension, but not the variable.
        """
        return {dim: self.runs[dim] for dim in dims}

    def has_gaps(self, column: Column, runs: Mapping[str, Runs]) -> bool:
        """Whether there are elements that no file holds, and that read as missing values."""
        return self.pads and Boxes.of(column.files, runs).have_holes(column)

    def fill(
        self, column: Column, runs: Mapping[str, Runs], lacking: Sequence[int], task: Task
    ) -> tuple[Column, Any] | None:
        """What places that no file holds read as, like `fill_for_gaps`."""
        named = column.name if column.name in runs else ""
        shown = (own.file for own in runs.values())
        covered = bool(lacking) and not np.isin(lacking, np.concatenate([*shown])).any()
        known = fill_for_gaps(column, lacking, named, task.notes, covered=covered)
        if known is None or known[1] is not None or not self.has_gaps(column, runs):
            return known
        return with_padding(known[0])

    def known(self, column: Column, runs: Mapping[str, Runs]) -> VirtualArray | None:
        """What a variable is, if that is known without its arrays."""
        return None

    def with_missing(self, column: Column, runs: Mapping[str, Runs], fill: Any) -> Column:
        """The column with arrays of missing blocks for inputs that have a place, but not it."""
        return column


@dataclass(frozen=True, eq=False)
class Task:
    """What the rules share: how inputs are laid out, their values, and what is found."""

    placement: Placement
    notes: Notes
    values: Values

    @property
    def growing(self) -> tuple[str, ...]:
        """The dimensions along which the result is longer than its inputs."""
        return self.placement.growing


# Inputs in sequence along a dimension, in the given order or by label


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
        have_lengths = lengths[dim].keys() >= set(column.files)
        if all(dim not in kind.array.dims for kind in column.kinds) and not have_lengths:
            why: tuple[Any, ...] = (
                "groups differ in length there; ",
                Option("layout", "ragged", "layout=Ragged()"),
                " keeps one value for each file",
            )
            if lengths[dim]:
                why = (
                    "some of its files do not have it; ",
                    Option("compat", "override"),
                    " shows the first file's for all and loses the others",
                )
            message = Message(
                f"its values differ, and it cannot be repeated along {dim!r} because ", *why
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
    return {
        file: ~held_along(array, [array.dims.index(dim)])
        for file, array in zip(column.files, column.arrays, strict=True)
        if dim in array.dims and not array.held_blocks.all()
    }
