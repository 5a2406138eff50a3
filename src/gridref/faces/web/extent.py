"""Find the extent of a group in time and space from the ends of its coordinates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import cftime
import numpy as np

from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.reference_systems import compass_of

type ReadEnds = Callable[[VirtualArray], tuple[Any, Any]]
"""Reads the first and the last element of an array of one dimension."""

_DIGITS = 7
MOST_EXTENTS = 12


@dataclass(frozen=True)
class Extent:
    """From where to where a coordinate goes.

    Attributes
    ----------
    name
        The coordinate.
    first, last
        Its first and last label, as people read them.
    """

    name: str
    first: str
    last: str


def extents(group: VirtualGroup, read_ends: ReadEnds) -> list[Extent]:
    """The extents of the first coordinates of time and space in a group, at any depth.

    Raises
    ------
    ReadError
        If a coordinate cannot be read.
    """
    found = []
    for name, array in islice(_coordinates(group), MOST_EXTENTS):
        ends = [_label(end, array.attrs) for end in read_ends(array)]
        if None not in ends:
            found.append(Extent(name, *(str(end) for end in ends)))
    return found


def _coordinates(group: VirtualGroup) -> Iterator[tuple[str, VirtualArray]]:
    """Coordinate variables in the sense of CF (1.2): named as their only dimension."""
    for path, array in group.all_arrays().items():
        name = path.rpartition("/")[2]
        if array.dims == (name,) and array.size and array.dtype.kind in "iuf":
            yield path, array


def _label(value: Any, attrs: Mapping[str, Any]) -> str | None:
    """A label in words; None for one that says nothing about time or space."""
    units = str(attrs.get("units", ""))
    if " since " in units:
        return _date(value, units, str(attrs.get("calendar", "standard")))
    number = f"{float(value):.{_DIGITS}g}"
    side = compass_of(attrs)
    if side is not None:
        if number.startswith("-"):
            number, side = number[1:], {"N": "S", "E": "W"}[side]
        return f"{number}\N{DEGREE SIGN} {side}"
    in_plane = str(attrs.get("standard_name", "")).startswith("projection_")
    return f"{number} {units}".strip() if in_plane else None


def _date(value: Any, units: str, calendar: str) -> str | None:
    try:
        date = cftime.num2date(float(value), units, calendar, only_use_cftime_datetimes=True)
        text = str(date.isoformat())
    except (ValueError, OverflowError, TypeError, AttributeError):
        return None  # units of a stranger: the coordinate is shown by its attributes
    return text.removesuffix("T00:00:00")


def ends_with(read: Callable[[VirtualArray, Any], np.ndarray[Any, Any]]) -> ReadEnds:
    """Read ends by a reader of selections; the labels between them are not read."""

    def ends(array: VirtualArray) -> tuple[Any, Any]:
        first, last = (read(array, place) for place in (slice(0, 1), slice(array.size - 1, None)))
        return first[0], last[0]

    return ends
