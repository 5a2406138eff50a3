"""Coarser levels of an array: their shapes, and which of their elements hold after a change. Pure.

Element ``i`` of a level along an axis is made of the elements ``[i * f, (i + 1) * f)`` of the
array, its *window*. The last window of an axis is shorter where the length is no multiple of ``f``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gridref.model.overlay import Box, Coords, Cover


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
