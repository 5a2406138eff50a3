"""Find the extent of a group in time and space from the ends of its coordinates.

`extents` gives it in words, `reach_of` in dates and degrees that can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from gridref.faces.web.meaning import Meaning, date_of
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import compass_of, is_scaled, is_time_like

type Read = Callable[[VirtualArray, slice], np.ndarray[Any, Any]]
"""Reads some elements of an array of one dimension."""

_DIGITS = 7
MOST_EXTENTS = 12


@dataclass(frozen=True)
class Extent:
    """From where to where a coordinate goes."""

    name: str
    first: str
    last: str


@dataclass(frozen=True)
class Ends:
    """The first and the last value of a coordinate, as stored, and what its attributes say."""

    name: str
    first: Any
    last: Any
    attrs: Mapping[str, Any]

    @property
    def labels(self) -> tuple[str | None, str | None]:
        """Both as people read them; None where they say nothing of time or space."""
        return _label(self.first, self.attrs), _label(self.last, self.attrs)


def ends_of(group: VirtualGroup, read: Read) -> list[Ends]:
    """The ends of the first coordinates in a group, at any depth; no others are read.

    Raises
    ------
    ReadError
        If a coordinate cannot be read.
    """
    found = islice(_coordinates(group), MOST_EXTENTS)
    return [Ends(name, *_ends(array, read), array.attrs) for name, array in found]


def _ends(array: VirtualArray, read: Read) -> tuple[Any, Any]:
    """Satellites' coordinates may be packed; others stay what they are."""
    ends = read(array, slice(0, 1))[0], read(array, slice(array.size - 1, None))[0]
    if not is_scaled(array.attrs):
        return ends
    first, last = Meaning.of(array).unpacked(np.asarray(ends)).round(9).tolist()
    return first, last


def extents(found: Iterable[Ends]) -> list[Extent]:
    """The extents of coordinates of time and space, in words."""
    told = ((each.name, *each.labels) for each in found)
    return [
        Extent(name, first, last)
        for name, first, last in told
        if first is not None and last is not None
    ]


@dataclass(frozen=True)
class Reach:
    """What a catalog extends over.

    Attributes
    ----------
    times
        First and last date, in the form of ISO 8601; None if nothing is known.
    south_north, west_east
        Degrees, west before east; None if nothing is known.
    """

    times: tuple[str, str] | None = None
    south_north: tuple[float, float] | None = None
    west_east: tuple[float, float] | None = None

    def meets(self, west: float, south: float, east: float, north: float) -> bool:
        """Whether it has a part in a box; longitudes count around the earth."""
        if self.south_north is None or self.west_east is None:
            return False
        low, high = self.south_north
        first, last = self.west_east
        turns = (first + 360 * k <= east and west <= last + 360 * k for k in (-2, -1, 0, 1, 2))
        return low <= north and south <= high and any(turns)


def reach_of(found: Sequence[Ends], attrs: Mapping[str, Any]) -> Reach:
    """What coordinates extend over; where there are none, what the attributes of the group say.

    Source: Attribute Convention for Data Discovery 1.3 (``time_coverage_start``, ...).
    """
    times = [
        label
        for each in found
        if is_time_like(each.attrs)
        for label in each.labels
        if label is not None
    ]
    stated = [attrs.get(f"time_coverage_{end}") for end in ("start", "end")]
    times = times or [each for each in stated if isinstance(each, str) and each[:4].isdigit()]
    return Reach(
        (min(times), max(times)) if times else None,
        _degrees(found, "N") or _stated(attrs, "lat"),
        _degrees(found, "E") or _stated(attrs, "lon"),
    )


def _degrees(found: Sequence[Ends], compass: str) -> tuple[float, float] | None:
    along = [each for each in found if compass_of(each.attrs) == compass]
    ends = [float(end) for each in along for end in (each.first, each.last) if np.isfinite(end)]
    return (min(ends), max(ends)) if ends else None


def _stated(attrs: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    try:
        low, high = (float(attrs[f"geospatial_{name}_{end}"]) for end in ("min", "max"))
    except (KeyError, TypeError, ValueError):
        return None
    high += 360 if name == "lon" and high < low else 0
    return (low, high) if abs(low) <= 720 and abs(high) <= 720 else None


def _coordinates(group: VirtualGroup) -> Iterator[tuple[str, VirtualArray]]:
    """Coordinate variables in the sense of CF (1.2): named as their only dimension."""
    for path, array in group.all_arrays().items():
        name = path.rpartition("/")[2]
        if array.is_index(name) and array.size and array.dtype.kind in "iuf":
            yield path, array


def _label(value: Any, attrs: Mapping[str, Any]) -> str | None:
    """A label in words; None for one that says nothing about time or space."""
    if is_time_like(attrs):
        return date_of(value, attrs)
    number = f"{float(value):.{_DIGITS}g}"
    side = compass_of(attrs)
    if side is not None:
        if number.startswith("-"):
            number, side = number[1:], {"N": "S", "E": "W"}[side]
        return f"{number}\N{DEGREE SIGN} {side}"
    in_plane = str(attrs.get("standard_name", "")).startswith("projection_")
    return f"{number} {attrs.get('units', '')}".strip() if in_plane else None
