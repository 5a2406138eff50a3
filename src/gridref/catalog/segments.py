"""Which rows of which part hold the blocks of an array. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Layout", "Segment", "whole"]

type Layout = tuple[Segment, ...]
"""The blocks of an array: boxes of blocks of parts. Where there is none, blocks are missing."""

Coords = tuple[int, ...]


@dataclass(frozen=True)
class Segment:
    """A box of the blocks that a part holds of an array, and where in the array it lies.

    Attributes
    ----------
    part
        Number of the part.
    first
        Its first block among those that the part holds of the array.
    start
        Its first block among those of the array.
    shape
        Number of blocks along each dimension.

    Raises
    ------
    ValueError
        For numbers that are none, or ranks that differ.
    """

    part: int
    first: Coords
    start: Coords
    shape: Coords

    def __post_init__(self) -> None:
        numbers = (self.part, *self.first, *self.start, *self.shape)
        ranks = {len(self.first), len(self.start), len(self.shape)}
        if len(ranks) > 1 or not all(type(n) is int and 0 <= n < 2**31 for n in numbers):
            raise ValueError(f"a segment is {self!r}")

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return math.prod(self.shape)

    @property
    def source_box(self) -> tuple[slice, ...]:
        """Its blocks among those of the part."""
        return _box(self.first, self.shape)

    @property
    def box(self) -> tuple[slice, ...]:
        """Its blocks among those of the array."""
        return _box(self.start, self.shape)

    def check_inside(self, source: Coords, target: Coords) -> None:
        """Refuse a box that reaches out of grids of so many blocks.

        Raises
        ------
        ValueError
            If it does.
        """
        for first, grid in ((self.first, source), (self.start, target)):
            stops = [low + n for low, n in zip(first, self.shape, strict=True)]
            if any(stop > n for stop, n in zip(stops, grid, strict=True)):
                raise ValueError(f"blocks {first} and following of {grid}: {self.shape}")

    def through(self, layout: Layout) -> Layout:
        """What of a layout is in the box at `first`, moved to where this segment lies."""
        cut = (self._within(each) for each in layout)
        return tuple(segment for segment in cut if segment is not None)

    def _within(self, other: Segment) -> Segment | None:
        """What of another segment's blocks is among this one's source blocks."""
        spans = [
            (max(start, first), min(start + length, first + n))
            for start, length, first, n in zip(
                other.start, other.shape, self.first, self.shape, strict=True
            )
        ]
        if any(low >= high for low, high in spans):
            return None
        lows = [low for low, _ in spans]
        return Segment(
            other.part,
            _sum(other.first, lows, other.start),
            _sum(self.start, lows, self.first),
            tuple(high - low for low, high in spans),
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        first = {"first": list(self.first)} if any(self.first) else {}
        return {
            "part": self.part, **first, "start": list(self.start), "shape": list(self.shape)
        }  # fmt: skip

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Segment:
        """Read the JSON form."""
        start, shape = tuple(document["start"]), tuple(document["shape"])
        first = tuple(document.get("first", (0,) * len(start)))
        return cls(document["part"], first, start, shape)


def whole(part: int, grid_shape: Coords) -> Layout:
    """The layout of an array that lies in one part."""
    zeros = (0,) * len(grid_shape)
    if 0 in grid_shape:
        return ()
    return (Segment(part, zeros, zeros, grid_shape),)


def _sum(origin: Coords, at: Sequence[int], less: Coords) -> Coords:
    """``origin + at - less``."""
    return tuple(o + a - b for o, a, b in zip(origin, at, less, strict=True))


def _box(start: Coords, shape: Coords) -> tuple[slice, ...]:
    return tuple(slice(low, low + n) for low, n in zip(start, shape, strict=True))
