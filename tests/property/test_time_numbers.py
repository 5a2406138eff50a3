"""Times in other units are what exact arithmetic gives, or nothing where numbers cannot hold it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gridref.combine.rules.units import (
    NO_TIME,
    TimePart,
    factors,
    in_ticks,
    in_units,
    sums_exactly,
)
from gridref.combine.values import Values
from gridref.model.array import VirtualArray
from gridref.model.conventions import UNIT_NS, TimeBase

DAY_NS = 86400 * 10**9
UNITS = sorted({int(unit) for unit in UNIT_NS.values() if unit <= DAY_NS})
ENDS = (2**31 - 1, 2**53 - 1, 2**53, 2**53 + 1, 2**62, 2**63 - 1)
INTEGERS = st.one_of(
    st.integers(-100, 100),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.sampled_from([sign * (end + more) for end in ENDS for sign in (1, -1) for more in (-1, 0)]),
)
FLOATS = st.one_of(
    st.integers(-1000, 1000).map(lambda n: n / 8),
    st.integers(-(2**54), 2**54).map(float),
    st.floats(-1e6, 1e6),
)
FILL = -999
VALUES = Values(lambda array: array.read())
FILLS = (math.nan,)  # which no integer is


@st.composite
def bases(draw: st.DrawFn) -> tuple[TimeBase, TimeBase]:
    """A base, and one with a unit that divides its own, whole ticks away."""
    unit = draw(st.sampled_from(UNITS))
    finer = draw(st.sampled_from([other for other in UNITS if unit % other == 0]))
    shift = draw(st.sampled_from([0, 1, -1, 365, 10**6])) * max(finer, DAY_NS)
    calendar = draw(st.sampled_from(["standard", "noleap"]))
    return TimeBase(unit, shift, calendar), TimeBase(finer, 0, calendar)


def part(numbers: list[int] | list[float], dtype: str, base: TimeBase) -> TimePart:
    array = VirtualArray.from_numpy(
        np.array(numbers, dtype), ["time"], attrs={"_FillValue": np.dtype(dtype).type(FILL)}
    )
    return TimePart(0, 0, base, array)


def exact(
    numbers: list[int] | list[float], base: TimeBase, target: TimeBase
) -> list[Fraction | None]:
    """In the target's units; None where there is no time."""
    shift = Fraction(base.epoch_ns - target.epoch_ns, target.unit_ns)
    ratio = base.unit_ns // target.unit_ns
    return [None if n == FILL or n != n else meant(n, ratio) + shift for n in numbers]


def meant(number: float, ratio: int) -> Fraction:
    """A number in units that are finer by a ratio: 0.001 us are 1 ns, if no float is nearer to it.

    Whole units that a file holds as a fraction of its own are rounded in the file already.
    """
    exactly = Fraction(number) * ratio
    whole = round(exactly)
    return Fraction(whole) if whole / ratio == number else exactly


def equals(found: NDArray, expected: list[Fraction | None]) -> bool:
    held = [None if n == NO_TIME or n != n else Fraction(n) for n in found.tolist()]
    return held == expected


@given(st.lists(INTEGERS, min_size=1, max_size=4), bases())
@example([2**63 - 1], (TimeBase(1, 0, "standard"), TimeBase(1, 0, "standard")))
def test_integers(numbers: list[int], pair: tuple[TimeBase, TimeBase]) -> None:
    base, target = pair
    expected = exact(numbers, base, target)
    ratio, shift = factors(base, target)
    largest = [abs(n) for n in expected if n is not None]
    largest += [abs(n * ratio) for n in numbers if n != FILL]
    fits = not largest or max(*largest, abs(shift)) <= 2**63 - 1
    for found in (
        in_units(part(numbers, "i8", base), target, VALUES, FILLS),
        in_ticks(part(numbers, "i8", base), target, VALUES),
    ):
        assert (found is not None) == fits
        assert found is None or equals(found, expected)
    without = in_units(part(numbers, "i8", base), target, VALUES)
    assert (without is not None) == (fits and FILL not in numbers)
    bound = max([abs(n) for n in numbers if n != FILL], default=0)
    exactly = sums_exactly(part(numbers, "i8", base), target, VALUES)
    assert exactly == (bound * ratio + abs(shift) < 2**53)
    small = [n for n in numbers if abs(n) < 2**31]
    assert sums_exactly(part(small, "i4", base), target, VALUES) == (
        2**32 * ratio + abs(shift) < 2**53
    )


@given(st.lists(st.one_of(FLOATS, st.just(float("nan"))), min_size=1, max_size=4), bases())
@example([0.001], (TimeBase(1000, 0, "standard"), TimeBase(1, 0, "standard")))
def test_floats(numbers: list[float], pair: tuple[TimeBase, TimeBase]) -> None:
    base, target = pair
    expected = exact(numbers, base, target)
    found = in_units(part(numbers, "f8", base), target, VALUES, FILLS)
    assert found is None or equals(found, expected)
    assert (found is not None) == sums_exactly(part(numbers, "f8", base), target, VALUES)
    whole = all(n != n or (n == int(n) and abs(n) < 2**20) for n in numbers)
    ratio, shift = factors(base, target)
    if whole and ratio * 2**20 + abs(shift) < 2**53:
        assert found is not None


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=4), bases())
@example([8], (TimeBase(1, 0, "noleap"), TimeBase(1, 0, "noleap")))
def test_floats_as_ticks(eighths: list[int], pair: tuple[TimeBase, TimeBase]) -> None:
    base, target = pair
    numbers = [n / 8 for n in eighths]
    expected = exact(numbers, base, target)
    found = in_ticks(part(numbers, "f8", base), target, VALUES)
    divisible = all(n is None or n.denominator == 1 for n in expected)
    shown_ns = 1 if base.calendar == "standard" else 1000  # cftime rounds to microseconds
    nanoseconds = all(n * base.unit_ns % (8 * shown_ns) == 0 for n in eighths)
    fits = all(abs(n) < 2**60 for n in [*map(abs, factors(base, target)), *filter(None, expected)])
    if nanoseconds and fits:
        assert (found is not None) == divisible
        assert found is None or equals(found, expected)
