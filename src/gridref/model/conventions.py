"""What the CF conventions say: names and directions, reference systems, missing values, times.

Source: CF conventions 1.11, 2.5.1 "Missing data, valid and actual range of data", 4 "Coordinate
Types", 4.4 "Time coordinate", 5 and 7.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import VirtualArray

# Attributes that change what a stored value means

PACKING_ATTRIBUTES = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")
MEANING_ATTRIBUTES = ("units", "calendar", *PACKING_ATTRIBUTES)


def is_scaled(attrs: Mapping[str, Any]) -> bool:
    """Whether stored numbers are multiplied or shifted."""
    return not attrs.keys().isdisjoint(("scale_factor", "add_offset"))


# Names of variables in attributes: coordinates, bounds, grid mappings

REFERRING = ("coordinates", "bounds", "climatology", "grid_mapping")


def text_of(attrs: Mapping[str, Any], name: str) -> str:
    """An attribute that must be a text; empty if it is another type, or missing.

    Files hold numbers, lists and compounds under any name. Such values are kept without meaning.
    """
    value = attrs.get(name)
    return value if isinstance(value, str) else ""


def referred_names(
    arrays: Iterable[VirtualArray], attributes: Iterable[str] = REFERRING
) -> set[str]:
    """Names of the variables that others name, as coordinates, bounds or grid mappings."""
    texts = (text_of(array.attrs, name) for array in arrays for name in attributes)
    return {word.rstrip(":") for text in texts for word in text.split()}


def grid_mapping_of(attrs: Mapping[str, Any]) -> str:
    """Name of the grid mapping of an array, the first of several; empty if it has none.

    Source: CF conventions 1.11, 5.6: ``crs``, or ``crs: x y other: lat lon``.
    """
    return text_of(attrs, "grid_mapping").partition(":")[0].strip()


def listed_coordinates(arrays: Iterable[VirtualArray], attrs: Mapping[str, Any]) -> set[str]:
    """Names that arrays, or their group by `attrs`, list as coordinates (CF conventions, 5)."""
    every = (attrs, *(array.attrs for array in arrays))
    return {name for each in every for name in text_of(each, "coordinates").split()}


# The direction of a coordinate

_DIRECTIONS: Mapping[str, Mapping[str, str]] = {
    "axis": {"X": "x", "Y": "y", "Z": "z", "T": "t"},
    "standard_name": {
        **dict.fromkeys(("longitude", "grid_longitude", "projection_x_coordinate"), "x"),
        **dict.fromkeys(("latitude", "grid_latitude", "projection_y_coordinate"), "y"),
        **dict.fromkeys(("height", "altitude", "depth", "air_pressure"), "z"),
        "time": "t",
    },
}
_DEGREES = re.compile(r"degrees?_?([NEne])(orth|ast)?")


def direction(attrs: Mapping[str, Any]) -> str:
    """The direction of a coordinate: ``"x"``, ``"y"``, ``"z"`` or ``"t"``; empty if none is given.

    Source: CF conventions 1.11, 4 "Coordinate Types", 4.1 and 4.2 for units of degrees.
    """
    named = (known.get(text_of(attrs, name), "") for name, known in _DIRECTIONS.items())
    compass = compass_of(attrs)
    return next(filter(None, named), "") or {"E": "x", "N": "y", None: ""}[compass]


def compass_of(attrs: Mapping[str, Any]) -> str | None:
    """Where degrees of a coordinate count to, ``"N"`` or ``"E"``; None for other units."""
    found = _DEGREES.fullmatch(text_of(attrs, "units").strip())
    return found[1].upper() if found else None


def dims_by_direction(
    dims: Iterable[str], coordinates: Mapping[str, VirtualArray]
) -> dict[str, str]:
    """By direction the first dimension whose coordinate runs in it; ``"y"`` is that of rows."""
    found: dict[str, str] = {}
    for dim in dims:
        if dim in coordinates:
            found.setdefault(direction(coordinates[dim].attrs), dim)
    return found


# Length units

METRES = {
    **dict.fromkeys(("m", "meter", "metre", "meters", "metres"), 1.0),
    **dict.fromkeys(("km", "kilometer", "kilometre", "kilometers", "kilometres"), 1e3),
}
"""Length in metres of each unit of lengths."""


# Attributes of grid mappings: the reference system

_CODE = re.compile(r'(?:ID|AUTHORITY)\["(\w+)",\s*"?(\w+)"?\]\s*\]\s*$')


def authority_code(wkt: str) -> tuple[str, str] | None:
    """Authority and code at the end of a WKT, like ``("EPSG", "32632")``; None if it has none.

    Sources: OGC 18-010r11 (WKT 2), "Identifier"; OGC 01-009 (WKT 1), "Authority".
    """
    found = _CODE.search(wkt)
    return None if found is None else (found[1], found[2])


def wkt_of(attrs: Mapping[str, Any]) -> str:
    """The reference system in a grid mapping's attributes; empty if they name none.

    Sources: CF conventions 1.11, 5.6 (``crs_wkt``); GDAL, "netCDF" driver (``spatial_ref``).
    """
    return text_of(attrs, "crs_wkt") or text_of(attrs, "spatial_ref")


# The first and last labels of an index coordinate, which decide where further files go

type LabelEnds = Mapping[str, tuple[float, ...]]
"""By index coordinate labels as they are stored, at `ENDS`."""
ENDS = [0, 1, -2, -1]
"""The elements whose labels are kept."""


def label_ends(labels: NDArray[Any]) -> tuple[float, ...] | None:
    """The labels at `ENDS`, if all labels are strictly increasing or decreasing numbers."""
    if labels.dtype.kind not in "iuf" or labels.size < len(ENDS) or not np.isfinite(labels).all():
        return None
    later, earlier = labels[1:], labels[:-1]
    if not ((later > earlier).all() or (later < earlier).all()):
        return None
    return tuple(labels[ENDS].tolist())


# Elements that mean "no value"


BOUNDS = ("valid_min", "valid_max", "valid_range")
"""Attributes that bound values."""


@dataclass(frozen=True)
class MissingValues:
    """What is no value among the stored elements of an array. NaN never is one.

    Attributes
    ----------
    marks
        Elements that stand for no value.
    low, high
        Least and greatest value; None for no bound.
    """

    marks: tuple[Any, ...] = ()
    low: Any = None
    high: Any = None

    @classmethod
    def of(cls, array: VirtualArray) -> MissingValues:
        """Those of an array, by its attributes; marks that no element equals do not count."""
        attrs, dtype = array.attrs, meant_dtype(array)
        named = [n for name in ("_FillValue", "missing_value") for n in _numbers(attrs, name)]
        meant = partial(_as_meant, stored=array.dtype, dtype=dtype)
        marks = [each for each in (_as_element(meant(n), dtype) for n in named) if each is not None]
        bounds = [next((meant(n) for n in _numbers(attrs, name)), None) for name in BOUNDS[:2]]
        in_range = [meant(n) for n in _numbers(attrs, BOUNDS[2])]
        low, high = in_range if len(in_range) == 2 else bounds
        if dtype.kind in "iu" and {type(low), type(high)} & {float} and "scale_factor" in attrs:
            low = high = None  # of unpacked values, which the conventions do not have
        return cls(tuple(dict.fromkeys(marks)), low, high)

    @property
    def key(self) -> str:
        """A short text that is the same for the same rules."""
        said = repr((sorted(map(float, self.marks)), self.low, self.high))
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    def among(self, values: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Which elements are no values; None if all are."""
        found: NDArray[np.bool_] | None = None
        if values.dtype.kind == "f":
            found = np.isnan(values)
        for mark in self.marks:
            same = values == mark
            found = same if found is None else found | same
        for outside in (
            None if self.low is None else values < self.low,
            None if self.high is None else values > self.high,
        ):
            if outside is not None:
                found = outside if found is None else found | outside
        return found if found is not None and found.any() else None

    def shown_as(self, dtype: np.dtype[Any]) -> Any:
        """An element that stands for no value; 0 where every element is one.

        The first one of `marks`, which is ``_FillValue`` where there is one; else NaN, or an
        element outside of the bounds.
        """
        if self.marks:
            return dtype.type(self.marks[0])
        if dtype.kind == "f":
            return dtype.type(np.nan)
        info: Any = np.iinfo(dtype) if dtype.kind in "iu" else None
        if info is not None and self.low is not None and self.low > info.min:
            return dtype.type(info.min)
        if info is not None and self.high is not None and self.high < info.max:
            return dtype.type(info.max)
        return dtype.type(0)


def _numbers(attrs: Mapping[str, Any], name: str) -> Iterator[Any]:
    """The numbers of an attribute as Python's; nothing for texts."""
    found = np.asarray(attrs.get(name, []))
    if found.dtype.kind in "iuf":
        yield from found.reshape(-1).tolist()


def _as_element(mark: Any, dtype: np.dtype[Any]) -> Any:
    """A number as an element of a dtype; None if no element is that, or NaN."""
    if mark != mark:
        return None
    if dtype.kind == "f":
        with np.errstate(all="ignore"):
            return dtype.type(mark).item()
    if dtype.kind not in "iu" or not np.isfinite(mark) or mark != int(mark):
        return None
    info = np.iinfo(dtype)
    return int(mark) if info.min <= mark <= info.max else None


def stored_fill(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> Any:
    """``_FillValue`` as an element of a dtype; None if no element is that."""
    number, meant = next(_numbers(attrs, "_FillValue"), None), _meant_dtype(attrs, dtype)
    if number is None or dtype.kind == "f":
        return None if number is None else dtype.type(number)
    found = _as_element(_as_meant(number, dtype, meant), meant)
    return None if found is None else np.asarray(found, meant).view(dtype)[()]


def _as_meant(number: Any, stored: np.dtype[Any], dtype: np.dtype[Any]) -> Any:
    """The number of the same bytes where files give it the sign that elements are stored with."""
    if dtype.kind == "u" and number < 0:
        return number + 2 ** (8 * dtype.itemsize)
    is_turned = (stored.kind, dtype.kind) == ("u", "i") and number > np.iinfo(dtype).max
    return number - 2 ** (8 * dtype.itemsize) if is_turned else number


def meant_dtype(array: VirtualArray) -> np.dtype[Any]:
    """The dtype of an array, with the sign that ``_Unsigned`` gives to integers."""
    return _meant_dtype(array.attrs, array.dtype)


def _meant_dtype(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> np.dtype[Any]:
    unsigned = attrs.get("_Unsigned")
    if dtype.kind == "i" and unsigned == "true":
        return np.dtype(f"u{dtype.itemsize}")
    if dtype.kind == "u" and unsigned == "false":
        return np.dtype(f"i{dtype.itemsize}")
    return dtype


# Units of time, as exact integers
#
# Days are counted so that a difference between two reference dates of one calendar is exact. The
# three calendars of real days (standard, proleptic_gregorian, julian) share the Julian day number
# (Fliegel and Van Flandern, Communications of the ACM 11, 1968).

DAY_NS = 86_400 * 10**9

_UNITS = {
    "weeks": (7 * DAY_NS, ("week", "weeks")),
    "days": (DAY_NS, ("day", "days", "d")),
    "hours": (3600 * 10**9, ("hour", "hours", "hr", "hrs", "h")),
    "minutes": (60 * 10**9, ("minute", "minutes", "min", "mins")),
    "seconds": (10**9, ("second", "seconds", "sec", "secs", "s")),
    "milliseconds": (10**6, ("millisecond", "milliseconds", "millisec", "millisecs", "msec", "ms")),
    "microseconds": (10**3, ("microsecond", "microseconds", "microsec", "microsecs", "us")),
    "nanoseconds": (1, ("nanosecond", "nanoseconds", "nanosec", "nanosecs", "ns")),
}
UNIT_NS = {alias: ns for ns, aliases in _UNITS.values() for alias in aliases}
"""Length in nanoseconds of each unit, by all its names."""
UNIT_NAMES = {ns: name for name, (ns, _) in _UNITS.items()}
"""Name of the unit of each length in nanoseconds."""

_CALENDARS = {
    "gregorian": "standard",
    "standard": "standard",
    "proleptic_gregorian": "proleptic_gregorian",
    "julian": "julian",
    "noleap": "noleap",
    "365_day": "noleap",
    "all_leap": "all_leap",
    "366_day": "all_leap",
    "360_day": "360_day",
}

_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_SINCE = re.compile(
    r"^\s*(?P<unit>[a-zA-Z]+)\s+since\s+(?P<year>-?\d{1,6})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?:[T\s]+(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})"
    r"(?:\.(?P<fraction>\d*))?)?)?)?"
    r"(?:\s*(?P<zone>Z|z|UTC|utc|GMT|[+-]\d{1,2}(?::?\d{2})?)|\s+00?:00)?\s*$"
)


_NUMPY_UNITS = {
    "D": "days",
    "h": "hours",
    "m": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}


def numpy_time_attributes(dtype: np.dtype[Any]) -> dict[str, str] | None:
    """CF attributes of the integers in numpy's dates or durations; None if CF has no such unit."""
    unit, count = np.datetime_data(dtype)
    if unit not in _NUMPY_UNITS or count != 1:
        return None
    name = _NUMPY_UNITS[unit]
    if dtype.kind == "m":
        return {"units": name}
    return {"units": f"{name} since 1970-01-01", "calendar": "proleptic_gregorian"}


def is_time_like(attrs: Mapping[str, Any]) -> bool:
    """Whether attributes are those of a time coordinate: ``units`` like ``"days since ..."``."""
    units = attrs.get("units")
    return isinstance(units, str) and " since " in units


@dataclass(frozen=True)
class TimeBase:
    """The unit and the zero of a time coordinate.

    Attributes
    ----------
    unit_ns
        Length of one unit in nanoseconds.
    epoch_ns
        The reference date in nanoseconds, counted from day 0 of the calendar.
    calendar
        Calendar in its canonical name.
    """

    unit_ns: int
    epoch_ns: int
    calendar: str

    @classmethod
    def of(cls, attrs: Mapping[str, Any]) -> TimeBase | None:
        """Read ``units`` and ``calendar``; None if they have no exact meaning."""
        calendar = _CALENDARS.get(str(attrs.get("calendar", "standard")).lower())
        match = _SINCE.match(str(attrs.get("units", "")))
        if calendar is None or match is None:
            return None
        unit_ns = UNIT_NS.get(match["unit"].lower())
        day = _day_number(int(match["year"]), int(match["month"]), int(match["day"]), calendar)
        if unit_ns is None or day is None:
            return None
        seconds = (
            int(match["hour"] or 0) * 3600
            + int(match["minute"] or 0) * 60
            + int(match["second"] or 0)
            - _zone_seconds(match["zone"])
        )
        fraction = (match["fraction"] or "").ljust(9, "0")
        if fraction[9:].strip("0"):
            return None
        return cls(unit_ns, day * DAY_NS + seconds * 10**9 + int(fraction[:9]), calendar)

    def in_unit(self, unit_ns: int) -> TimeBase:
        """The same reference date with another unit."""
        return TimeBase(unit_ns, self.epoch_ns, self.calendar)


def duration_base(attrs: Mapping[str, Any]) -> TimeBase | None:
    """The unit of durations (``units`` like ``"hours"``), counted from 0; None for others."""
    units = attrs.get("units")
    unit_ns = UNIT_NS.get(units.lower()) if isinstance(units, str) else None
    return None if unit_ns is None else TimeBase(unit_ns, 0, "none")


def units_with(units: str, unit_ns: int) -> str:
    """The text of units of times or durations with the unit replaced."""
    _, separator, since = units.partition(" since ")
    return f"{UNIT_NAMES[unit_ns]}{separator}{since.strip()}"


def _zone_seconds(zone: str | None) -> int:
    if not zone or zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "")
    hours, minutes = (int(digits), 0) if len(digits) <= 2 else (int(digits[:-2]), int(digits[-2:]))
    return (-1 if zone[0] == "-" else 1) * (hours * 3600 + minutes * 60)


def _day_number(year: int, month: int, day: int, calendar: str) -> int | None:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    if calendar == "360_day":
        return year * 360 + (month - 1) * 30 + day - 1
    if calendar in ("noleap", "all_leap"):
        leap = calendar == "all_leap"
        before = sum(_MONTH_DAYS[: month - 1]) + (leap and month > 2)
        return year * (366 if leap else 365) + before + day - 1
    if year <= 0:
        return None  # whether there is a year 0 depends on the reader
    gregorian = calendar == "proleptic_gregorian" or (
        calendar == "standard" and (year, month, day) >= (1582, 10, 15)
    )
    return _julian_day_number(year, month, day, gregorian=gregorian)


def _julian_day_number(year: int, month: int, day: int, *, gregorian: bool) -> int:
    shift = (14 - month) // 12
    y = year + 4800 - shift
    m = month + 12 * shift - 3
    number = day + (153 * m + 2) // 5 + 365 * y + y // 4
    return number - y // 100 + y // 400 - 32045 if gregorian else number - 32083


GREGORIAN_START_NS = _julian_day_number(1582, 10, 15, gregorian=True) * DAY_NS
"""From here on the standard and the proleptic Gregorian calendar are the same."""
