"""The unit that times of several files get."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.combine import CombineOptions, combine
from gridref.model.array import VirtualArray, VirtualGroup
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
