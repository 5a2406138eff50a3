"""Time units of the CF conventions (4.4 "Time coordinate"), as exact integers.

Days are counted so that a difference between two reference dates of one calendar is exact. The
three calendars of real days (``standard``, ``proleptic_gregorian``, ``julian``) share the Julian
day number (Fliegel and Van Flandern, Communications of the ACM 11, 1968).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
