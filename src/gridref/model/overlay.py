"""Boxes of elements: what overlays of an array hold, and coarser levels of it. Pure.

An overlay is a second layout of some elements of an array. It is kept in *sheets*: arrays that were
written once and never change. Its *coverage* says which elements of the array are the same ones in
a sheet. Changes of the array only ever move, cut or drop boxes of the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

Coords = tuple[int, ...]
Box = tuple[tuple[int, int], ...]
"""A half-open interval of elements along each axis."""


@dataclass(frozen=True)
class Cover:
    """A box of elements of an array that are elements of a sheet.

    Attributes
    ----------
    sheet
        Number of the sheet.
    first
        Its first element in the sheet.
    start
        Its first element in the array.
    shape
        Number of elements along each dimension.

    Raises
    ------
    ValueError
        For numbers that are none, or ranks that differ.
    """

    sheet: int
    first: Coords
    start: Coords
    shape: Coords

    def __post_init__(self) -> None:
        numbers = (self.sheet, *self.first, *self.start, *self.shape)
        ranks = {len(self.first), len(self.start), len(self.shape)}
        is_box = all(type(n) is int and 0 <= n < 2**62 for n in numbers) and all(self.shape)
        if len(ranks) > 1 or not is_box:
            raise ValueError(f"a box of an overlay is {self!r}")

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def box(self) -> Box:
        """Its elements in the array."""
        return tuple((low, low + n) for low, n in zip(self.start, self.shape, strict=True))

    @property
    def sheet_box(self) -> Box:
        """Its elements in the sheet."""
        return tuple((low, low + n) for low, n in zip(self.first, self.shape, strict=True))

    @property
    def shift(self) -> Coords:
        """What is added to an element of the array to get that of the sheet."""
        return tuple(a - b for a, b in zip(self.first, self.start, strict=True))

    def within(self, box: Box) -> Cover | None:
        """The part of it in a box of the array; None for nothing."""
        both = common(self.box, box)
        if both is None:
            return None
        first = tuple(low + shift for (low, _), shift in zip(both, self.shift, strict=True))
        return replace(
            self,
            first=first,
            start=tuple(low for low, _ in both),
            shape=tuple(high - low for low, high in both),
        )


def common(one: Box, other: Box) -> Box | None:
    """The elements that are in both boxes; None for nothing."""
    both = tuple(
        (max(low, start), min(high, stop))
        for (low, high), (start, stop) in zip(one, other, strict=True)
    )
    return None if any(low >= high for low, high in both) else both


def without(box: Box, others: Iterable[Box]) -> list[Box]:
    """The elements of a box that are in none of some others, as boxes that do not overlap."""
    rest = [box]
    for other in others:
        rest = [piece for each in rest for piece in _less(each, other)]
    return rest


def _less(box: Box, other: Box) -> list[Box]:
    """A box without another one: what is before and behind it along each axis."""
    if common(box, other) is None:
        return [box]
    pieces: list[Box] = []
    left = list(box)
    for axis, ((low, high), (start, stop)) in enumerate(zip(box, other, strict=True)):
        outside = ((low, min(start, high)), (max(stop, low), high))
        pieces += [
            (*left[:axis], along, *left[axis + 1 :]) for along in outside if along[0] < along[1]
        ]
        left[axis] = (max(low, start), min(high, stop))
    return pieces


def moved(coverage: Iterable[Cover], moves: Sequence[Cover]) -> tuple[Cover, ...]:
    """The coverage of an array whose elements are at other places now.

    Parameters
    ----------
    moves
        What the array is made of: the elements from `start` were those from `first` before. Other
        elements are new, and not covered.
    """
    found = []
    for cover in coverage:
        for move in moves:
            kept = cover.within(move.sheet_box)
            if kept is not None:
                start = tuple(a - b for a, b in zip(kept.start, move.shift, strict=True))
                found.append(replace(kept, start=start))
    return merged(found)


def merged(covers: Iterable[Cover]) -> tuple[Cover, ...]:
    """The same coverage in fewer boxes: those that lie beside each other become one."""
    found = sorted(covers, key=lambda cover: (cover.sheet, cover.start))
    while True:
        before = len(found)
        for axis in range(len(found[0].start) if found else 0):
            found = _merged_along(found, axis)
        if len(found) == before:
            return tuple(found)


def _merged_along(covers: Sequence[Cover], axis: int) -> list[Cover]:
    """Boxes of one sheet that touch along an axis, and are alike along the others, as one."""

    def alike(cover: Cover) -> tuple[object, ...]:
        rest = [*cover.box]
        del rest[axis]
        return cover.sheet, cover.shift, tuple(rest)

    result: list[Cover] = []
    last: dict[tuple[object, ...], int] = {}
    for cover in sorted(covers, key=lambda cover: cover.start[axis]):
        key = alike(cover)
        at = last.get(key)
        if at is not None and result[at].box[axis][1] == cover.start[axis]:
            shape = list(result[at].shape)
            shape[axis] += cover.shape[axis]
            result[at] = replace(result[at], shape=tuple(shape))
        else:
            last[key] = len(result)
            result.append(cover)
    return result


@dataclass(frozen=True)
class Stored:
    """What the cost of reading a layout is estimated by.

    Attributes
    ----------
    chunk_shape
        Elements of a stored chunk.
    object_shape
        Elements of an object, which is a file or a shard.
    chunk_bytes
        Stored size of a chunk, on average.
    is_far
        Whether objects are on a server.
    """

    chunk_shape: Coords
    object_shape: Coords
    chunk_bytes: float
    is_far: bool


# Coarser levels of an array
#
# Element i of a level along an axis is made of the elements [i * f, (i + 1) * f) of the array, its
# window. The last window of an axis is shorter where the length is no multiple of f.


def factors_of(factors: Coords, level: int) -> Coords:
    """Lengths of the windows of a level along each axis; those of level 1 are given."""
    return tuple(factor**level for factor in factors)


def level_shape(shape: Sequence[int], windows: Sequence[int]) -> Coords:
    """Shape of the level with windows of some lengths."""
    return tuple(-(-extent // window) for extent, window in zip(shape, windows, strict=True))


def cover_of_level(
    cover: Cover, windows: Coords, shape: Sequence[int], sheet_shape: Sequence[int]
) -> Cover | None:
    """The elements of a level whose windows a box of the array holds as the sheet had them.

    Parameters
    ----------
    cover
        A box of elements of the array, and where they were in the sheet.
    windows
        Lengths of the level's windows.
    shape, sheet_shape
        Shape of the array, and of the box that the sheet was made of.

    Returns
    -------
    Cover or None
        In elements of the level. None if there is no such element: windows are not whole, or they
        are others than they were, because the elements moved by something else than windows.
    """
    first, start, lengths = [], [], []
    every = zip(cover.box, cover.sheet_box, windows, shape, sheet_shape, strict=True)
    for (low, high), (was, was_high), window, extent, sheet_extent in every:
        if (low - was) % window:
            return None
        begin, end = -(-low // window), high // window
        if high == extent and was_high == sheet_extent:  # the last window is as short as it was
            end = -(-high // window)
        if begin >= end:
            return None
        start.append(begin)
        lengths.append(end - begin)
        first.append(begin + (was - low) // window)
    return Cover(cover.sheet, tuple(first), tuple(start), tuple(lengths))


def is_covered(covers: Sequence[Cover], shape: Sequence[int]) -> bool:
    """Whether boxes that do not overlap are a whole level."""
    return sum(cover.n_elements for cover in covers) == math.prod(shape)


def windows_of(box: Box, windows: Coords, shape: Sequence[int]) -> Box:
    """The elements of the array that a box of elements of a level is made of."""
    return tuple(
        (low * window, min(high * window, extent))
        for (low, high), window, extent in zip(box, windows, shape, strict=True)
    )


def whole_windows(box: Box, windows: Coords, shape: Sequence[int]) -> Box:
    """The least box of whole windows around a box of elements of the array."""
    around = tuple((low // n, -(-high // n)) for (low, high), n in zip(box, windows, strict=True))
    return windows_of(around, windows, shape)


def paths_of_levels(path: str, n_levels: int) -> Iterator[str]:
    """Paths of the levels of an array: ``overview_1/image``, beside ``image``."""
    above, _, name = path.rpartition("/")
    head = f"{above}/" if above else ""
    for level in range(1, n_levels + 1):
        yield f"{head}{group_of_level(level)}/{name}"


def group_of_level(level: int) -> str:
    """Name of the group that a level is in, as for pyramids of GeoTIFF and JPEG 2000."""
    return f"overview_{level}"
