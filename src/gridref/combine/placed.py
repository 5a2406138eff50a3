"""Files' versions of a variable at places of a larger array, which they need not fill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gridref.combine.columns import Column, Notes
from gridref.combine.gaps import fill_for_gaps, with_padding
from gridref.model.array import VirtualArray
from gridref.model.placing import lay_out

__all__ = ["Placed"]


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
        Whether what no file holds is to be told from what files hold, as values that are missing.
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
        """What gaps read as, and what lies behind the ends of files."""
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
