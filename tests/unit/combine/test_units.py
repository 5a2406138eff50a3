"""Units of times of several files, their calendars, and exact arithmetic on them."""

from __future__ import annotations

import datetime as dt
from fractions import Fraction
from typing import Any

import cftime
import numpy as np
import pytest

from gridref.combine import CombineOptions, combine
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import (
    GREGORIAN_START_NS,
    UNIT_NAMES,
    UNIT_NS,
    TimeBase,
    is_time_like,
    units_with,
)
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly


@pytest.mark.parametrize(
    ("first", "second", "unit"),
    [
        ((0.5, "hours since 2009-01-01"), (90.0, "minutes since 2009-01-03"), "seconds"),
        ((0.3, "days since 2009-01-01"), (864.0, "seconds since 2009-01-03"), "seconds"),
        ((0.125, "seconds since 2009-01-01"), (0.1, "seconds since 2009-01-02"), "milliseconds"),
        ((1.0, "seconds since 2009-01-01"), (0.3, "seconds since 2009-01-02"), "milliseconds"),
        ((0.0625, "seconds since 2009-01-01"), (0.1, "seconds since 2009-01-02"), "microseconds"),
    ],
)
def test_ticks_are_the_largest_that_hold_every_time(
    first: tuple[float, str], second: tuple[float, str], unit: str
) -> None:
    parts = [times([value], units) for value, units in (first, second)]
    done = combine(parts, "time", read=read_slowly, options=CombineOptions(overlap="keep"))
    assert done.group is not None
    joined = done.group.arrays["time"]
    expected = np.concatenate([decoded(part.arrays["time"]) for part in parts])
    np.testing.assert_array_equal(decoded(joined), expected)
    assert joined.dtype == np.int64
    assert str(joined.attrs["units"]).startswith(f"{unit} since 2009-01-01")


def test_times_that_are_missing_do_not_keep_others_from_whole_seconds() -> None:
    first = times([0, -1, 7200], "seconds since 2000-01-01", "i8", _FillValue=np.int64(-1))
    second = times([1, -1], "days since 2000-02-01", "i8", _FillValue=np.int64(-1))
    done = combine([first, second], "time", read=read_slowly)
    assert done.group is not None
    expected = np.concatenate([decoded(part.arrays["time"]) for part in (first, second)])
    np.testing.assert_array_equal(decoded(done.group.arrays["time"]), expected)


def times(values: list[Any], units: str, code: str = "f8", **attrs: Any) -> VirtualGroup:
    data = np.array(values, code)
    array = chunked_array(data, data.shape, ("time",), attrs={"units": units, **attrs})
    return VirtualGroup({"time": array})


def decoded(array: VirtualArray) -> Any:
    import xarray as xr

    variable = xr.Variable(array.dims, read_slowly(array), dict(array.attrs))
    return xr.conventions.decode_cf_variable("v", variable).values


# Every day

DAY_NS = 86400 * 10**9
CALENDARS = ["standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"]


@pytest.mark.parametrize("calendar", CALENDARS)
@pytest.mark.parametrize(("first", "last"), [(1, 5), (1580, 1584), (1698, 1704), (1999, 2001)])
def test_each_day_is_one_more(calendar: str, first: int, last: int) -> None:
    date = cftime.datetime(first, 1, 1, calendar=calendar)
    before = None
    while date.year <= last:
        found = base(f"{date.year:04}-{date.month:02}-{date.day:02}", calendar)
        assert found is not None
        assert before is None or found.epoch_ns - before == DAY_NS, date
        before = found.epoch_ns
        date += dt.timedelta(1)


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
        (" 00:00:00 +05:30", -19800),
        (" 00:00:00 -0145", 6300),
        (" 00:00:00 00:00", 0),
        (" 00:00:00 0:00", 0),
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


# Calendars

DATES = ["0001-01-01", "1582-09-20", "1582-10-04", "1582-10-15", "1900-03-01", "2000-02-28"]


def base(since: str, calendar: str = "standard") -> TimeBase | None:
    return TimeBase.of({"units": f"days since {since}", "calendar": calendar})


@pytest.mark.parametrize("calendar", CALENDARS)
@pytest.mark.parametrize("date", DATES)
def test_days_between_dates_are_those_of_cftime(date: str, calendar: str) -> None:
    start, later = base(date, calendar), base("2001-03-01", calendar)
    assert start is not None
    assert later is not None
    there = cftime.datetime(2001, 3, 1, calendar=calendar)
    days = int(cftime.date2num(there, f"days since {date}", calendar))
    assert (later.epoch_ns - start.epoch_ns) == days * DAY_NS


@pytest.mark.parametrize("calendar", ["noleap", "all_leap", "360_day"])
def test_the_first_day_of_year_0_is_day_0(calendar: str) -> None:
    found = base("0000-01-01", calendar)
    assert found is not None
    assert found.epoch_ns == 0


@pytest.mark.parametrize(
    "date", ["2000-13-01", "2000-00-01", "2000-01-32", "2000-01-00", "2000-01-01 00:00:30:00"]
)
def test_dates_that_are_none(date: str) -> None:
    assert base(date) is None


@pytest.mark.parametrize("calendar", ["standard", "proleptic_gregorian", "julian"])
def test_year_0_is_not_understood_where_readers_differ(calendar: str) -> None:
    assert base("0000-01-01", calendar) is None


def calendar_times(values: Any, units: str, calendar: str) -> VirtualArray:
    data = np.asarray(values)
    attrs = {"units": units, "calendar": calendar}
    return chunked_array(data, data.shape, ("time",), attrs=attrs)


def test_the_first_gregorian_day_is_the_same_in_both_calendars() -> None:
    """One day earlier it is not, and is refused."""
    late = calendar_times([5], "days since 2000-01-01", "standard")
    for day, fits in ((0, True), (-1, False)):
        first = calendar_times([day], "days since 1582-10-15", "proleptic_gregorian")
        done = combine(
            [VirtualGroup({"time": first}), VirtualGroup({"time": late})],
            "time",
            read=read_slowly,
            options=CombineOptions(),
        )
        assert (done.group is not None) == fits
    assert base("1582-10-15").epoch_ns == GREGORIAN_START_NS


@pytest.mark.parametrize("calendar", CALENDARS)
def test_fractions_of_days_are_the_times_that_they_were(calendar: str) -> None:
    parts = [
        calendar_times([0.0, 0.25, 1.123456], "days since 1996-02-28", calendar),
        calendar_times([0.5, 0.125], "days since 2004-03-03 06:00:00", calendar),
    ]
    done = combine([VirtualGroup({"time": part}) for part in parts], "time", read=read_slowly)
    assert done.group is not None
    joined = done.group.arrays["time"]

    def dates(array: VirtualArray) -> list[Any]:
        return list(cftime.num2date(read_slowly(array), array.attrs["units"], calendar))

    assert dates(joined) == [*dates(parts[0]), *dates(parts[1])]
