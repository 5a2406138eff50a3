"""Selections of HDF5 dataspaces, axis by axis.

Source: HDF5 File Format Specification v3, "Dataspace Selections" (H5S_SEL_NONE, H5S_SEL_POINTS,
H5S_SEL_HYPER versions 1 to 3, H5S_SEL_ALL).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gridref.errors import UnsupportedFeatureError
from gridref.formats.hdf5.format.superblock import FieldCursor
from gridref.typing import Int64Array

__all__ = ["UNLIMITED", "AxisHyperslab", "Selection", "read_selection"]

UNLIMITED = (1 << 64) - 1
"""HDF5's mark of an endless count or block."""


_MAX_SEGMENTS = 100_000
_MAX_RANK = 32
_MAX_EXTENT = 1 << 62
_NONE, _POINTS, _HYPERSLAB, _ALL = range(4)
_REGULAR = 0x01


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

    def extent_of(self, n_elements: int) -> int:
        """Extent of an axis in which it selects so many elements.

        As the HDF5 library computes how large a virtual dataset is.
        """
        if not n_elements:
            return 0
        if self.block in (UNLIMITED, self.stride):
            return self.start + n_elements
        count, rest = divmod(n_elements, self.block)
        if rest:
            return self.start + count * self.stride + rest
        return self.start + (count - 1) * self.stride + self.block

    def n_elements(self, extent: int) -> int:
        """How many elements it selects in an axis of `extent`."""
        inside = extent - self.start
        if inside <= 0:
            return 0
        if self.block == UNLIMITED:
            return inside
        count, rest = divmod(inside, self.stride)
        if self.count != UNLIMITED and count >= self.count:
            return self.count * self.block
        return count * self.block + min(rest, self.block)

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


@dataclass(frozen=True)
class Selection:
    """A selection of elements of a dataspace.

    Attributes
    ----------
    is_all
        Whether it selects all elements, however many these are.
    slabs
        What it selects along each axis; None where it is no hyperslab, but a list of points or an
        irregular union.
    """

    is_all: bool = False
    slabs: tuple[AxisHyperslab, ...] | None = None

    def axes(self, extents: tuple[int, ...]) -> tuple[AxisHyperslab, ...]:
        """The selection as one hyperslab an axis of a dataspace.

        Raises
        ------
        UnsupportedFeatureError
            If it is a list of points or an irregular union.
        """
        if self.is_all:
            return tuple(AxisHyperslab(0, 1, 1, extent) for extent in extents)
        if self.slabs is None:
            raise UnsupportedFeatureError(
                "a virtual dataset maps an irregular selection or a list of points"
            )
        return self.slabs or tuple(AxisHyperslab(0, 1, 0, 0) for _ in extents)

    @property
    def unlimited_axis(self) -> int | None:
        """The axis along which it is endless, if there is one."""
        for axis, slab in enumerate(self.slabs or ()):
            if slab.is_unlimited:
                return axis
        return None


def read_selection(cursor: FieldCursor) -> Selection:
    """Decode a selection.

    Raises
    ------
    SourceFormatError
        If it is cut off or contradicts itself.
    UnsupportedFeatureError
        If it is of an unknown version, or a list of points.
    """
    kind, version = cursor.take(4), cursor.take(4)
    if kind in (_NONE, _ALL) and version == 1:
        cursor.take_bytes(8)
        return Selection(is_all=kind == _ALL, slabs=())
    if kind == _POINTS and version in (1, 2):
        _skip_points(cursor, version)
        return Selection()
    if kind == _HYPERSLAB and version == 1:
        cursor.take_bytes(8)
        return Selection(slabs=_regular(_blocks(cursor, cursor.take(4), 4)))
    if kind == _HYPERSLAB and version in (2, 3):
        flags = cursor.take(1)
        width = cursor.take(1) if version == 3 else 8
        cursor.take_bytes(4 if version == 2 else 0)
        if width not in (2, 4, 8):
            raise cursor.error(f"has a selection with numbers of {width} bytes")
        rank = cursor.take(4)
        if flags & _REGULAR:
            return Selection(slabs=_hyperslab(cursor, rank, width))
        return Selection(slabs=_regular(_blocks(cursor, rank, width)))
    raise UnsupportedFeatureError(
        f"a virtual dataset maps a selection of the unknown kind {kind}, version {version}"
    )


def _skip_points(cursor: FieldCursor, version: int) -> None:
    width = cursor.take(1) if version == 2 else 4
    cursor.take_bytes(8 if version == 1 else 0)
    rank = cursor.take(4)
    n_points = cursor.take(width)
    cursor.take_bytes(n_points * rank * width)


def _hyperslab(cursor: FieldCursor, rank: int, width: int) -> tuple[AxisHyperslab, ...]:
    _check_rank(cursor, rank)
    endless = (1 << 8 * width) - 1
    slabs = []
    for _ in range(rank):
        start, stride, count, block = (cursor.take(width) for _ in range(4))
        count, block = (UNLIMITED if number == endless else number for number in (count, block))
        slab = AxisHyperslab(start, stride, count, block)
        largest = max(n for n in (start, stride, count, block) if n != UNLIMITED)
        if largest > _MAX_EXTENT or (count > 1 and stride < max(1, min(block, _MAX_EXTENT))):
            raise cursor.error(f"has the impossible selection {slab}")
        slabs.append(slab)
    if sum(slab.is_unlimited for slab in slabs) > 1:
        raise cursor.error("has a selection that is endless along two axes")
    return tuple(slabs)


def _check_rank(cursor: FieldCursor, rank: int) -> None:
    if not 0 < rank <= _MAX_RANK:
        raise cursor.error(f"has a selection of {rank} dimensions")


def _blocks(cursor: FieldCursor, rank: int, width: int) -> Int64Array:
    """First and last elements of the blocks of a hyperslab selection, as (n, 2, rank)."""
    _check_rank(cursor, rank)
    n_blocks = cursor.take(width)
    raw = cursor.take_bytes(n_blocks * 2 * rank * width)
    blocks = np.frombuffer(raw, f"<u{width}").reshape(n_blocks, 2, rank)
    if not n_blocks or int(blocks.max()) > _MAX_EXTENT or (blocks[:, 0] > blocks[:, 1]).any():
        raise cursor.error("has a selection of impossible blocks")
    return blocks.astype(np.int64)


def _regular(blocks: Int64Array) -> tuple[AxisHyperslab, ...] | None:
    """The blocks as one hyperslab; None if they are not."""
    n_blocks, _, rank = blocks.shape
    slabs = []
    n_expected = 1
    for axis in range(rank):
        starts, lengths = blocks[:, 0, axis], blocks[:, 1, axis] - blocks[:, 0, axis] + 1
        unique = np.unique(starts)
        strides = np.unique(np.diff(unique))
        block = int(lengths[0])
        if (lengths != block).any() or len(strides) > 1 or (strides < block).any():
            return None
        stride = int(strides[0]) if len(strides) else 1
        slabs.append(AxisHyperslab(int(unique[0]), stride, len(unique), block))
        n_expected *= len(unique)
    if n_blocks != n_expected or len(np.unique(blocks[:, 0], axis=0)) != n_blocks:
        return None
    return tuple(slabs)
