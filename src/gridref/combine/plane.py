"""Inputs laid beside each other on the pixels of a plane: for mosaics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gridref.combine.columns import Column, Notes
from gridref.combine.georeference import Placement, extents_of
from gridref.combine.layout import Lengths
from gridref.combine.placed import Placed
from gridref.combine.report import LEFT_OUT
from gridref.combine.series import Series
from gridref.combine.values import Values

__all__ = ["PYRAMID_ATTRIBUTES", "Plane"]

PYRAMID_ATTRIBUTES = ("multiscales", "zarr_conventions")


@dataclass(frozen=True, eq=False)
class Plane:
    """Every file at its place on common rows and columns.

    Attributes
    ----------
    y, x
        The dimensions of rows and columns.
    placements
        Where each file lies.
    keep_last
        Whether the last of several files that hold a pixel shows, and not the first.
    series
        Labels along dimensions beside rows and columns; None for a plane alone.
    merges
        Whether files hold different variables, so that none of them lacks one.
    """

    y: str
    x: str
    placements: Sequence[Placement]
    keep_last: bool
    series: Series | None = None
    merges: bool = False
    settled: Mapping[str, Collection[str]] = field(default_factory=dict)
    repeats = False
    each_may_be_new = False

    @property
    def growing(self) -> tuple[str, ...]:
        """Rows and columns, and the dimensions beside them."""
        return (*self.beside, self.y, self.x)

    @property
    def beside(self) -> tuple[str, ...]:
        """The dimensions beside rows and columns."""
        return () if self.series is None else self.series.dims

    def at_level(
        self, columns: Mapping[str, Column], lengths: Lengths, values: Values, notes: Notes
    ) -> Plane:
        """The layout itself: labels of rows and columns say nothing that placements do not."""
        return self

    def dims_of(self, column: Column, notes: Notes) -> tuple[str, ...] | None:
        """All dimensions, or none; coordinates of rows and columns are made anew."""
        dims = {dim for kind in column.kinds for dim in kind.array.dims if dim in self.growing}
        if {self.y, self.x} <= dims or not dims:
            return self.growing if dims else ()
        if column.name in self.beside:
            return (column.name,)
        if column.name not in self.growing:
            cases = {f"along {' and '.join(sorted(dims))} only": list(column.files)}
            notes.drift("dimensions", column.path, cases, LEFT_OUT)
        return None

    def with_dims(
        self, column: Column, dims: Sequence[str], lengths: Lengths, notes: Notes
    ) -> Column | None:
        """Note a problem: a variable with both dimensions in some files must have them in all."""
        cases = column.cases(lambda kind: str(kind.array.dims))
        advice = f"only variables along {self.y} and {self.x} can be laid beside each other"
        notes.conflict("dimensions-differ", column.path, "dimensions", cases, advice)
        return None

    def arrangement(
        self, column: Column, dims: Sequence[str], lengths: Lengths, lacking: Sequence[int]
    ) -> Placed:
        """The placements; what no file holds is missing."""
        n_rows, n_columns = extents_of(self.placements)
        corners: dict[str, Sequence[int]] = {
            self.y: [placement.row for placement in self.placements],
            self.x: [placement.column for placement in self.placements],
        }
        extents = {self.y: n_rows, self.x: n_columns}
        if self.series is not None:
            for dim in self.beside:
                corners[dim] = self.series.starts(dim)
                extents[dim] = len(self.series.places[dim])
        return Placed(corners, extents, self.keep_last, merges=self.merges)
