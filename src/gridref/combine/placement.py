"""The interface `Placement`: where each input goes in the result, for a group and those below it.

Rules of drift do not know how inputs are laid out; they ask a `Placement`. It says which variables
grow along which dimensions, and finds the places of each input, as `Runs` along each dimension.
Placements are along a dimension (`gridref.combine.along`), by labels
(`gridref.combine.hypercube`), on pixels (`gridref.combine.mosaic`), in rows
(`gridref.combine.instances`), and at given corners (`gridref.combine.fragments`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from gridref.combine.boxes import Boxes, Runs
from gridref.combine.columns import Column, Notes
from gridref.combine.options import CombineOptions
from gridref.combine.rules.gaps import fill_for_gaps, with_padding
from gridref.combine.rules.single import stack_columns
from gridref.combine.values import Values
from gridref.model.array import VirtualArray

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
        """What places read as that no file holds, as `gridref.combine.rules.gaps.fill_for_gaps`."""
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
