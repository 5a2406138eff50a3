from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridref.errors import InvalidRequestError
from gridref.io.coalesce import Merging, plan_reads
from tests.work import counted_work


@st.composite
def ranges(draw: st.DrawFn) -> list[tuple[int, int]]:
    span = draw(st.sampled_from([30, 500]))
    one = st.tuples(st.integers(0, span), st.one_of(st.integers(0, 12), st.integers(0, span)))
    return draw(st.lists(one, max_size=25))


@given(ranges(), st.integers(0, 20), st.integers(1, 60))
def test_reads_deliver_every_range_and_keep_to_the_limits(
    pairs: list[tuple[int, int]], gap: int, span: int
) -> None:
    data = np.random.default_rng(0).bytes(1100)
    offsets = np.array([pair[0] for pair in pairs], np.int64)
    lengths = np.array([pair[1] for pair in pairs], np.int64)
    plan = plan_reads(offsets, lengths, Merging(gap, span))
    parts = [data[a:b] for a, b in zip(plan.start, plan.stop, strict=True)]
    for (offset, length), read, inside in zip(
        pairs, plan.read_of, plan.offset_in_read, strict=True
    ):
        if length == 0:
            assert read == -1
        else:
            assert parts[read][inside : inside + length] == data[offset : offset + length]
    assert (np.diff(plan.start) > 0).all()
    for read in range(len(plan)):
        members = np.flatnonzero(plan.read_of == read)
        assert members.size
        size = plan.stop[read] - plan.start[read]
        assert size <= max(span, lengths[members].max())
        wanted = np.zeros(2000, bool)
        for member in members:
            wanted[offsets[member] : offsets[member] + lengths[member]] = True
        holes = np.flatnonzero(wanted[plan.start[read] : plan.stop[read]])
        assert (np.diff(holes) <= gap + 1).all()


def test_touching_ranges_are_one_read() -> None:
    plan = plan_reads([20, 0, 10], [5, 10, 10], Merging(0, 100))
    assert (plan.start.tolist(), plan.stop.tolist()) == ([0], [25])
    assert plan.offset_in_read.tolist() == [20, 0, 10]


def test_a_long_range_takes_along_what_lies_inside_it() -> None:
    plan = plan_reads([0, 10, 50, 90], [100, 5, 5, 5], Merging(0, 8))
    assert len(plan) == 1


def test_a_million_ranges_are_planned_without_a_step_for_each() -> None:
    offsets = np.arange(1_000_000) * 64
    with counted_work() as work:
        plan = plan_reads(offsets, np.full(offsets.size, 32), Merging(64, 2**20))
    assert 0 < work.n_lines < 50 + 5 * len(plan)
    assert len(plan) == -(-64_000_000 // 2**20)


@pytest.mark.parametrize(("offsets", "lengths"), [([-1], [5]), ([1], [-5]), ([1, 2], [3])])
def test_impossible_ranges_are_refused(offsets: list[int], lengths: list[int]) -> None:
    with pytest.raises(InvalidRequestError):
        plan_reads(offsets, lengths, Merging(0, 10))


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="gap must be >= 0"):
        Merging(-1, 10)
