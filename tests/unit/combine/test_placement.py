"""Files along one dimension: gaps, order, and when there is nothing to report."""

from __future__ import annotations

import numpy as np
import pytest

from gridref.model.array import VirtualGroup
from gridref.testing.reference_reader import read_slowly
from tests.short_series import combined, series


def causes(*groups: VirtualGroup) -> list[str]:
    done = combined(*groups)
    assert done.group is not None
    return [drift.cause for drift in done.report]


@pytest.mark.parametrize(
    "labels",
    [
        ([0, 1, 2], [3, 4, 5]),
        ([0.0, 0.1, 0.2], [0.3, 0.4]),
        ([0, 5, 6], [8, 9]),  # uneven inside: a step like others is none
        ([0, 1], [6, 11]),
        ([5, 4], [3, 2]),
        ([0], [1]),
        ([0], [7]),
        ([0], [1], [2]),
        ([3],),
    ],
)
def test_labels_that_go_on_leave_nothing_to_report(labels: tuple[list[float], ...]) -> None:
    assert causes(*map(series, labels)) == []


@pytest.mark.parametrize("labels", [([0, 1, 2], [9, 10]), ([9, 8], [3, 2]), ([0, 1, 3], [20, 21])])
def test_labels_that_leap_leave_a_gap(labels: tuple[list[float], ...]) -> None:
    assert causes(*map(series, labels)) == ["gap"]


@pytest.mark.parametrize("dtype", ["u1", "u8", "i1", "i8", "f4"])
@pytest.mark.parametrize(
    ("labels", "found"),
    [(([5, 4], [3, 2]), []), (([100, 99], [3, 2]), ["gap"]), (([1, 2], [9, 10]), ["gap"])],
)
def test_gaps_are_the_same_in_every_dtype(
    dtype: str, labels: tuple[list[int], ...], found: list[str]
) -> None:
    assert causes(*(series(np.array(part, dtype)) for part in labels)) == found


def test_distances_do_not_leave_the_dtype() -> None:
    assert causes(series(np.array([-100, 100], "i1")), series(np.array([127], "i1"))) == []
    near, far = np.array([-100, -99], "i1"), np.array([120, 121], "i1")
    assert causes(series(near), series(far)) == ["gap"]


def test_labels_that_rise_in_the_end_are_put_in_rising_order() -> None:
    done = combined(series([2, 0, 4]), series([4, 3, 9]), overlap="first")
    assert done.group is not None
    assert read_slowly(done.group.arrays["x"]).tolist() == [0, 2, 3, 4, 9]
    done = combined(series([4, 2, 0]), series([9, 3, 4]), overlap="first")
    assert done.group is not None
    assert read_slowly(done.group.arrays["x"]).tolist() == [9, 4, 3, 2, 0]


@pytest.mark.parametrize("n_units", [2, 4, 5, 6])
def test_four_of_many_values_are_shown(n_units: int) -> None:
    parts = [series([n], units=f"unit{n}") for n in range(n_units)]
    done = combined(*parts)
    assert done.group is None
    (text,) = [str(problem) for problem in done.problems]
    assert [f"unit{n}" in text for n in range(n_units)] == [n < 4 for n in range(n_units)]
    assert ("more values" in text) == (n_units > 4)
    if n_units > 4:
        assert f"; {n_units - 4} more values" in text


@pytest.mark.parametrize("n_files", [1, 2])
def test_files_without_rows_count_for_nothing(n_files: int) -> None:
    empty = series(np.zeros(0, "i8"))
    done = combined(*[empty] * n_files, series([1, 2]))
    assert done.group is not None
    assert read_slowly(done.group.arrays["x"]).tolist() == [1, 2]
