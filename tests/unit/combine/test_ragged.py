"""Variables that count along dimensions, and rows that are padded to one length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.combine import CombineOptions, combine
from gridref.combine.rules.units import TimePart, sums_exactly
from gridref.combine.values import Values
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import TimeBase
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly


def array(values: Any, dims: str, dtype: str = "i4", **attrs: Any) -> VirtualArray:
    data = np.array(values, dtype)
    return chunked_array(data, [max(1, n) for n in data.shape], tuple(dims), attrs=attrs)


def stations(n: int, index: list[int], dtype: str = "i4", **attrs: Any) -> VirtualGroup:
    """n stations, and observations of some of them."""
    return VirtualGroup(
        {
            "s": array(range(n), "s"),
            "i": array(index, "o", dtype, instance_dimension="s", **attrs),
            "v": array(range(len(index)), "o"),
        }
    )


def indices(*groups: VirtualGroup, **options: Any) -> Any:
    done = combine(
        list(groups),
        ["s", "o"],
        read=read_slowly,
        options=CombineOptions(overlap="keep", **options),
    )
    assert done.group is not None, done.problems
    return read_slowly(done.group.arrays["i"]), [drift.cause for drift in done.report]


def test_indices_count_on_behind_the_files_before() -> None:
    found, causes = indices(stations(2, [0, 1, 1]), stations(3, [2, 0]), stations(1, [0]))
    assert found.tolist() == [0, 1, 1, 4, 2, 5]
    assert "index-shift" in causes


def test_no_index_stays_none() -> None:
    parts = [stations(2, [0, -1], _FillValue=np.int32(-1)) for _ in range(2)]
    found, _ = indices(*parts)
    assert found.tolist() == [0, -1, 2, -1]


def test_negative_indices_point_to_nothing() -> None:
    found, _ = indices(stations(2, [0, -1]), stations(2, [-1, 1]))
    assert found.tolist() == [0, -1, -1, 3]


def test_a_fill_value_that_becomes_an_index() -> None:
    parts = [stations(n, [2, 255], "u1", _FillValue=np.uint8(255)) for n in (253, 3)]
    found, _ = indices(*parts)
    assert found.tolist() == [2, -1, 255, -1]


@pytest.mark.parametrize(("n", "dtype"), [(63, "i1"), (64, "i2")])
def test_indices_that_grow_too_large_get_a_larger_type(n: int, dtype: str) -> None:
    found, _ = indices(stations(n, [0, n - 1], "i1"), stations(64, [0, 63], "i1"))
    assert found.tolist() == [0, n - 1, n, n + 63]
    assert (found.dtype == "i1") == (dtype == "i1")


def test_variables_may_be_named_that_count() -> None:
    parts = [
        VirtualGroup({"s": array(range(2), "s"), "i": array([1, 0], "o"), "v": array([7, 8], "o")})
        for _ in range(2)
    ]
    found, _ = indices(*parts, index_variables={"i": "s"})
    assert found.tolist() == [1, 0, 3, 2]
    found, causes = indices(*parts)
    assert found.tolist() == [1, 0, 1, 0]
    assert "index-shift" not in causes


def test_indices_that_nothing_can_read_are_a_problem() -> None:
    packed = [stations(2, [0, 1]) for _ in range(2)]
    parts = [
        group.with_changes(
            arrays={
                **group.arrays,
                "i": chunked_array(
                    np.array([0, 1], "i4"), (1,), ("o",), attrs={"instance_dimension": "s"}
                ),
            }
        )
        for group in packed
    ]
    done = combine(parts, ["s", "o"], options=CombineOptions(overlap="keep"))
    assert "index-shift" in [problem.cause for problem in done.problems]


@pytest.mark.parametrize(("years", "exactly"), [(0, True), (10, True), (140, True), (160, False)])
def test_integers_of_32_bits_sum_exactly_below_2_to_the_53(years: int, exactly: bool) -> None:
    """Seconds as microseconds: 2^32 of them are 4.29e15, and 2^53 is 9.007e15."""
    epoch = years * 31_557_600 * 10**9
    base, target = TimeBase(10**9, epoch, "noleap"), TimeBase(10**3, 0, "noleap")
    part = TimePart(0, 0, base, array([0], "t"))
    assert sums_exactly(part, target, Values(None)) == exactly
    assert (
        sums_exactly(TimePart(0, 0, base, array([0], "t", "u2")), target, Values(None)) == exactly
    )
    assert sums_exactly(TimePart(0, 0, base, array([0], "t", "i8")), target, Values(None))
