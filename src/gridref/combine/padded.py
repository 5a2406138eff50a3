"""Inputs of differing length laid below each other: a row for each, as long as the longest."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gridref.combine.columns import Column, Notes
from gridref.combine.layout import Lengths
from gridref.combine.placed import Placed
from gridref.combine.values import Values

__all__ = ["Padded"]


@dataclass(frozen=True, eq=False)
class Padded:
    """Each file in rows of its own; what is behind the end of a row is missing.

    Attributes
    ----------
    instance
        Dimension of the rows.
    samples
        Dimensions along which rows begin at 0.
    lengths
        Length of the dimensions in each file, in the group that is laid out.
    """

    instance: str
    samples: tuple[str, ...]
    lengths: Lengths = field(default_factory=dict)
    settled: Mapping[str, Collection[str]] = field(default_factory=dict)
    repeats = False
    each_may_be_new = False

    @property
    def growing(self) -> tuple[str, ...]:
        """Rows, and what is along them."""
        return self.instance, *self.samples

    def at_level(
        self, columns: Mapping[str, Column], lengths: Lengths, values: Values, notes: Notes
    ) -> Padded:
        """The layout of a group, whose files are as long as they are there."""
        return replace(self, lengths=lengths)

    def dims_of(self, column: Column, notes: Notes) -> tuple[str, ...]:
        """The dimensions that grow among those of a variable."""
        known = {dim for kind in column.kinds for dim in kind.array.dims}
        return tuple(dim for dim in self.growing if dim in known)

    def with_dims(
        self, column: Column, dims: Sequence[str], lengths: Lengths, notes: Notes
    ) -> Column | None:
        """Note a problem: a variable is along the same dimensions in all files."""
        cases = column.cases(lambda kind: str(kind.array.dims))
        advice = "leave it out, or name the dimensions that differ in length (concat_dim=)"
        notes.conflict("dimensions-differ", column.path, "dimensions", cases, advice)
        return None

    def arrangement(
        self, column: Column, dims: Sequence[str], lengths: Lengths, lacking: Sequence[int]
    ) -> Placed:
        """Each file's rows below those of the file before, at the beginning of the rows."""
        n_files = max(max(known, default=-1) for known in self.lengths.values()) + 1
        known = self.lengths.get(self.instance, {})
        stops = list(itertools.accumulate(known.get(file, 0) for file in range(n_files)))
        corners = {self.instance: [0, *stops]}
        extents = {self.instance: stops[-1]}
        for dim in self.samples:
            corners[dim] = [0] * n_files
            extents[dim] = max(self.lengths[dim].values(), default=0)
        has_gaps = any(
            dict(zip(array.dims, array.shape, strict=True))[dim] < extents[dim]
            for array in column.arrays
            for dim in dims
            if dim in self.samples
        )
        return Placed(corners, extents, has_gaps=has_gaps)
