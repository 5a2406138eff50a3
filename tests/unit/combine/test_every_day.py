"""Reference dates by plain counting: every day of a calendar is one more than the day before."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from fractions import Fraction

import pytest

from gridref.model.times import UNIT_NAMES, UNIT_NS, TimeBase, is_time_like, units_with

DAY_NS = 86400 * 10**9
LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def days(calendar: str, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Every date of some years, in order."""
    for year in range(first, last + 1):
        leap = {
            "julian": year % 4 == 0,
            "proleptic_gregorian": year % 4 == 0 and (year % 100 != 0 or year % 400 == 0),
            "noleap": False,
            "all_leap": True,
        }
        leap["standard"] = leap["julian" if year < 1582 else "proleptic_gregorian"]
        for month in range(1, 13):
            length = 30 if calendar == "360_day" else LENGTHS[month - 1]
            if calendar != "360_day" and month == 2:
                length += leap[calendar]
            for day in range(1, length + 1):
                dropped = calendar == "standard" and (1582, 10, 4) < (year, month, day) < (
                    *(1582, 10, 15),
                )
                if not dropped:
                    yield year, month, day


@pytest.mark.parametrize(
    "calendar", ["standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"]
)
@pytest.mark.parametrize(("first", "last"), [(1, 5), (1580, 1584), (1698, 1704), (1999, 2001)])
def test_each_day_is_one_more(calendar: str, first: int, last: int) -> None:
    before = None
    for year, month, day in days(calendar, first, last):
        attrs = {"units": f"days since {year:04}-{month:02}-{day:02}", "calendar": calendar}
        base = TimeBase.of(attrs)
        assert base is not None
        assert before is None or base.epoch_ns - before == DAY_NS, (year, month, day)
        before = base.epoch_ns


def test_days_of_the_gregorian_calendar_are_those_of_python() -> None:
    zero = TimeBase.of({"units": "days since 0001-01-01", "calendar": "proleptic_gregorian"})
    assert zero is not None
    for date in (dt.date(1, 3, 1), dt.date(1600, 2, 29), dt.date(9999, 12, 31)):
        base = TimeBase.of({"units": f"days since {date}", "calendar": "proleptic_gregorian"})
        assert base is not None
        days_later = (base.epoch_ns - zero.epoch_ns) // DAY_NS
        assert days_later == date.toordinal() - 1


def test_the_calendars_meet() -> None:
    def epoch(date: str, calendar: str) -> int:
        base = TimeBase.of({"units": f"s since {date}", "calendar": calendar})
        assert base is not None
        return base.epoch_ns

    assert epoch("1582-10-15", "standard") == epoch("1582-10-15", "proleptic_gregorian")
    assert epoch("1582-10-04", "standard") == epoch("1582-10-04", "julian")
    assert epoch("1582-10-15", "standard") == epoch("1582-10-05", "julian")
    assert epoch("2000-01-01", "gregorian") == epoch("2000-01-01", "standard")
    assert epoch("2000-01-01", "365_day") == epoch("2000-01-01", "noleap")
    assert epoch("2000-01-01", "366_day") == epoch("2000-01-01", "all_leap")


SECONDS = {"week": 604800, "day": 86400, "hour": 3600, "minute": 60, "second": 1}
FRACTIONS = {"millisecond": 1000, "microsecond": 10**6, "nanosecond": 10**9}
LENGTH = {**SECONDS, **{name: Fraction(1, n) for name, n in FRACTIONS.items()}}
SHORT = {"d": "day", "h": "hour", "hr": "hour", "min": "minute", "sec": "second", "s": "second"}
SHORT |= {"ms": "millisecond", "us": "microsecond", "ns": "nanosecond", "msec": "millisecond"}
SHORT |= {"millisec": "millisecond", "microsec": "microsecond", "nanosec": "nanosecond"}


@pytest.mark.parametrize("name", [*LENGTH, *SHORT])
def test_units_by_all_their_names(name: str) -> None:
    ns = LENGTH[SHORT.get(name, name)] * 10**9
    plural = [name] if name in ("d", "h", "s", "ms", "us", "ns") else [name, f"{name}s"]
    for spelled in plural:
        if spelled in UNIT_NS:
            base = TimeBase.of({"units": f"{spelled.upper()} since 2000-1-1"})
            assert base is not None
            assert base.unit_ns == ns
    assert name in UNIT_NS
    assert UNIT_NAMES[int(ns)] == f"{SHORT.get(name, name)}s"


def seconds_after_midnight(text: str) -> Fraction | None:
    found = TimeBase.of({"units": f"days since 2000-01-01{text}"})
    midnight = TimeBase.of({"units": "days since 2000-01-01"})
    assert midnight is not None
    return None if found is None else Fraction(found.epoch_ns - midnight.epoch_ns, 10**9)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 0),
        (" 7", 7 * 3600),
        ("T07", 7 * 3600),
        (" 7:8", 7 * 3600 + 8 * 60),
        (" 07:08:09", 7 * 3600 + 8 * 60 + 9),
        (" 00:00:09.", 9),
        (" 00:00:09.5", Fraction(19, 2)),
        (" 00:00:00.123456789", Fraction(123456789, 10**9)),
        (" 00:00:00.1234567890", Fraction(123456789, 10**9)),
        (" 00:00:00.1234567891", None),
        (" 00:00:00 utc", 0),
        ("Z", 0),
        (" 00:00:00 +1", -3600),
        (" 00:00:00 -1:30", 5400),
        (" 00:00:00 +0130", -5400),
        (" 00:00:00 -12", 43200),
        (" noon", None),
        (" 00:00:00 +123456", None),
    ],
)
def test_times_of_day(text: str, seconds: Fraction | int | None) -> None:
    assert seconds_after_midnight(text) == seconds


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"units": "K"},
        {"units": "months since 2000-01-01"},
        {"units": "days since 2000-01"},
        {"units": "days since 2000-01-01", "calendar": "lunar"},
        {"units": "days since -0001-01-01"},
        {"units": 5},
    ],
)
def test_what_is_no_reference_date(attrs: dict[str, object]) -> None:
    assert TimeBase.of(attrs) is None


def test_which_units_are_those_of_times() -> None:
    assert is_time_like({"units": "days since whenever"})
    assert not is_time_like({"units": "days"})
    assert not is_time_like({"units": 5})
    assert not is_time_like({})
    assert units_with("days since  2000-01-01 ", 1) == "nanoseconds since 2000-01-01"
    base = TimeBase.of({"units": "days since 2000-01-01"})
    assert base is not None
    assert base.in_unit(5) == TimeBase(5, base.epoch_ns, "standard")


@pytest.mark.parametrize("date", ["2000-12-31", "2000-01-31", "2000-01-01"])
def test_the_ends_of_years_and_months_are_dates(date: str) -> None:
    assert TimeBase.of({"units": f"days since {date}"}) is not None
