"""How the inputs' versions of a variable are laid beside each other: what all ways have in common.

Rules of drift do not know how inputs are laid out. They ask `LayoutRules`, of which there are two:
along a dimension (`gridref.combine.along`), and on a plane (`gridref.combine.plane`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from gridref.combine.columns import Column, Notes
from gridref.combine.values import Values
from gridref.model.array import VirtualArray

__all__ = ["Arrangement", "LayoutRules", "Lengths", "Task"]

Lengths = Mapping[str, Mapping[int, int]]
"""Length of each growing dimension in each file that says it."""


class Arrangement(Protocol):
    """Where the files' versions of one variable lie."""

    def fill(
        self, column: Column, lacking: Sequence[int], notes: Notes
    ) -> tuple[Column, Any] | None:
        """What places read as that no file holds, as `gridref.combine.gaps.fill_for_gaps`.

        Parameters
        ----------
        column
            The variable in the files that have it.
        lacking
            Files that have the places along the dimension, but not the variable.
        """
        ...

    def lay(self, column: Column, dtype: np.dtype[Any], fill: Any, *, alike: bool) -> VirtualArray:
        """Lay the arrays of a column out as arranged.

        Parameters
        ----------
        column
            The variable as it is to be shown, in the files that have it.
        dtype
            Dtype of the result.
        fill
            Fill value of the result; None for the first file's.
        alike
            Whether dtypes and fill values are known to be the same.
        """
        ...


class LayoutRules(Protocol):
    """A way to lay inputs beside each other."""

    @property
    def growing(self) -> tuple[str, ...]:
        """The dimensions along which the result is longer than its inputs."""
        ...

    @property
    def settled(self) -> Mapping[str, Collection[str]]:
        """Attributes by variable (``""`` for the group) that the layout deals with itself."""
        ...

    @property
    def each_may_be_new(self) -> bool:
        """Whether inputs may lack some of the dimensions, and not all of them or none."""
        ...

    @property
    def repeats(self) -> bool:
        """Whether a variable without the dimension can be repeated along it."""
        ...

    def at_level(
        self, columns: Mapping[str, Column], lengths: Lengths, values: Values, notes: Notes
    ) -> Self:
        """The layout of a group and those below, once its variables are known."""
        ...

    def dims_of(self, column: Column, notes: Notes) -> tuple[str, ...] | None:
        """Dimensions along which a variable grows; None where it is no part of the result."""
        ...

    def with_dims(
        self, column: Column, dims: Sequence[str], lengths: Lengths, notes: Notes
    ) -> Column | None:
        """Give dimensions to those files' arrays that lack them; None where that cannot be."""
        ...

    def arrangement(
        self, column: Column, dims: Sequence[str], lengths: Lengths, lacking: Sequence[int]
    ) -> Arrangement:
        """Where the arrays of a column lie, and what the files that lack it leave empty."""
        ...


@dataclass(frozen=True, eq=False)
class Task:
    """What the rules share: how inputs are laid out, their values, and what is found."""

    layout: LayoutRules
    notes: Notes
    values: Values

    @property
    def growing(self) -> tuple[str, ...]:
        """The dimensions along which the result is longer than its inputs."""
        return self.layout.growing
