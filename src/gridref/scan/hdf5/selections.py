"""Selections of HDF5 dataspaces, axis by axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from h5py import h5s
from numpy.typing import NDArray

from gridref.errors import UnsupportedFeatureError

__all__ = ["UNLIMITED", "AxisHyperslab", "axes_of"]

UNLIMITED = (1 << 64) - 1
"""HDF5's mark of an endless count or block."""

Int64Array = NDArray[np.int64]

_MAX_SEGMENTS = 100_000


@dataclass(frozen=True)
class AxisHyperslab:
    """Equal runs of elements at equal distances along one axis.

    Attributes
    ----------
    start, stride
        First element of the first run, and distance between the first elements of runs.
    count, block
        Number of runs, and of elements in each; `UNLIMITED` for as many as there are.
    """

    start: int
    stride: int
    count: int
    block: int

    @property
    def is_unlimited(self) -> bool:
        """Whether it goes on as far as the axis does."""
        return UNLIMITED in (self.count, self.block)

    def run(self, number: int) -> AxisHyperslab:
        """One of the runs."""
        return AxisHyperslab(self.start + number * self.stride, 1, 1, self.block)

    def runs(self, extent: int) -> tuple[Int64Array, Int64Array]:
        """First element and length of each run inside an axis of `extent`, joined where they touch.

        Raises
        ------
        UnsupportedFeatureError
            If they are too many.
        """
        if self.start >= extent or 0 in (self.count, self.block):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if self.block == UNLIMITED:
            return np.array([self.start]), np.array([extent - self.start])
        if self.count == 1 or self.stride == self.block:
            length = extent - self.start
            if self.count != UNLIMITED:
                length = min(length, self.count * self.block)
            return np.array([self.start]), np.array([length])
        count = -(-(extent - self.start) // self.stride)
        if self.count != UNLIMITED:
            count = min(count, self.count)
        if count > _MAX_SEGMENTS:
            raise UnsupportedFeatureError(f"a mapping of a virtual dataset has {count} pieces")
        starts = self.start + self.stride * np.arange(count, dtype=np.int64)
        return starts, np.minimum(self.block, extent - starts)


def axes_of(space: Any, extents: tuple[int, ...]) -> tuple[AxisHyperslab, ...]:
    """The selection of a dataspace as one hyperslab an axis.

    Raises
    ------
    UnsupportedFeatureError
        If it is a list of points or an irregular union.
    """
    kind = space.get_select_type()
    if kind == h5s.SEL_ALL:
        return tuple(AxisHyperslab(0, 1, 1, extent) for extent in extents)
    if kind == h5s.SEL_NONE:
        return tuple(AxisHyperslab(0, 1, 0, 0) for _ in extents)
    if kind != h5s.SEL_HYPERSLABS or not space.is_regular_hyperslab():
        raise UnsupportedFeatureError(
            "a virtual dataset maps an irregular selection or a list of points"
        )
    columns = zip(*space.get_regular_hyperslab(), strict=True)
    return tuple(AxisHyperslab(*(int(value) for value in column)) for column in columns)
