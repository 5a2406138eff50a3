"""Reference dates of all calendars, with cftime as the oracle."""

from __future__ import annotations

from typing import Any

import cftime
import numpy as np
import pytest

from gridref.combine import CombineOptions, combine
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.times import GREGORIAN_START_NS, TimeBase
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly

DAY_NS = 86400 * 10**9
CALENDARS = ["standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"]
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
    ("zone", "minutes"),
    [
        ("", 0),
        ("Z", 0),
        ("+05:30", 330),
        ("-0145", -105),
        ("+2", 120),
        ("-11", -660),
        ("0:00", 0),
        ("00:00", 0),
    ],
)
def test_time_zones_are_taken_off(zone: str, minutes: int) -> None:
    there, here = base(f"2000-01-01 00:00:00 {zone}".rstrip()), base("2000-01-01")
    assert there is not None
    assert here is not None
    assert here.epoch_ns - there.epoch_ns == minutes * 60 * 10**9


@pytest.mark.parametrize(
    "date", ["2000-13-01", "2000-00-01", "2000-01-32", "2000-01-00", "2000-01-01 00:00:30:00"]
)
def test_dates_that_are_none(date: str) -> None:
    assert base(date) is None


@pytest.mark.parametrize("calendar", ["standard", "proleptic_gregorian", "julian"])
def test_year_0_is_not_understood_where_readers_differ(calendar: str) -> None:
    assert base("0000-01-01", calendar) is None


def times(values: Any, units: str, calendar: str) -> VirtualArray:
    data = np.asarray(values)
    attrs = {"units": units, "calendar": calendar}
    return chunked_array(data, data.shape, ("time",), attrs=attrs)


def test_the_first_gregorian_day_is_the_same_in_both_calendars() -> None:
    """One day earlier it is not, and is refused."""
    late = times([5], "days since 2000-01-01", "standard")
    for day, fits in ((0, True), (-1, False)):
        first = times([day], "days since 1582-10-15", "proleptic_gregorian")
        done = combine(
            [VirtualGroup({"time": first}), VirtualGroup({"time": late})],
            "time",
            read=read_slowly,
            options=CombineOptions(),
        )
        assert (done.group is not None) == fits
    assert base("1582-10-15").epoch_ns == GREGORIAN_START_NS


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "standard"])
def test_fractions_of_days_are_the_times_that_they_were(calendar: str) -> None:
    parts = [
        times([0.0, 0.25, 1.123456], "days since 2000-01-01", calendar),
        times([0.5, 0.125], "days since 2000-01-03 06:00:00", calendar),
    ]
    done = combine([VirtualGroup({"time": part}) for part in parts], "time", read=read_slowly)
    assert done.group is not None
    joined = done.group.arrays["time"]

    def dates(array: VirtualArray) -> list[Any]:
        return list(cftime.num2date(read_slowly(array), array.attrs["units"], calendar))

    assert dates(joined) == [*dates(parts[0]), *dates(parts[1])]
