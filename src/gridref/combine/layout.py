"""The interface between rules of drift and ways to lay inputs beside each other.

Rules of drift do not know how inputs are laid out. They ask `LayoutRules`. Layouts are along a
dimension (`gridref.combine.along`), on a plane (`gridref.combine.mosaic`), or at given places
(`gridref.combine.hypercube`, `gridref.combine.fragments`). `Placed` puts inputs at places of a
larger array.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from gridref.combine.columns import Column, Notes
from gridref.combine.rules.gaps import fill_for_gaps, with_padding
from gridref.combine.values import Values
from gridref.model.array import VirtualArray
from gridref.model.placing import lay_out

# What rules of drift ask of a layout

Lengths = Mapping[str, Mapping[int, int]]
"""Length of each growing dimension in each file that says it."""


class Arrangement(Protocol):
    """The places of the files' versions of one variable."""

    def fill(
        self, column: Column, lacking: Sequence[int], notes: Notes
    ) -> tuple[Column, Any] | None:
        """What places read as that no file holds, as `gridref.combine.rules.gaps.fill_for_gaps`.

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

    def dims_of_files(self, column: Column, values: Values) -> tuple[str, ...]:
        """Dimensions along which a variable with one value for each file is repeated.

        Empty where the layout has none, or where several files with different values share a place
        along them.
        """
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
        """Find the places of a column's arrays, and the gaps of files that lack it."""
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


# Versions of a variable at places of a larger array, which they need not fill


@dataclass(frozen=True, eq=False)
class Placed:
    """Arrays at the places of their files.

    Attributes
    ----------
    corners
        Index of the first element of each file along each dimension that grows.
    extents
        Length of the result along each of these.
    keep_last
        Whether the last of several files that hold an element shows, and not the first.
    has_gaps
        Whether elements that no file holds have to read as missing values.
    merges
        Whether files hold different variables, so that none of them lacks one.
    """

    corners: Mapping[str, Sequence[int]]
    extents: Mapping[str, int]
    keep_last: bool = False
    has_gaps: bool = False
    merges: bool = False

    def fill(
        self, column: Column, lacking: Sequence[int], notes: Notes
    ) -> tuple[Column, Any] | None:
        """The fill value of gaps and of places behind the ends of files."""
        if self.merges:
            return column, None
        named = column.name if column.name in self.corners else ""
        known = fill_for_gaps(column, lacking, named, notes, covered=False)
        if known is None or known[1] is not None or not self.has_gaps:
            return known
        return with_padding(known[0])

    def lay(self, column: Column, dtype: np.dtype[Any], fill: Any, *, alike: bool) -> VirtualArray:
        """Put arrays at their places; cells that none holds are missing blocks."""
        dims = column.first.dims
        corners = [
            [self.corners[dim][file] if dim in self.corners else 0 for dim in dims]
            for file in column.files
        ]
        sizes = dict(zip(dims, column.first.shape, strict=True))
        sizes |= {dim: extent for dim, extent in self.extents.items() if dim in sizes}
        return lay_out(
            column.arrays,
            corners,
            [sizes[dim] for dim in dims],
            keep_last=self.keep_last,
            dtype=dtype,
            fill_value=fill,
        )
