"""Dtypes of files that are joined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gridref.combine.rules.dtypes import _common
from tests.short_series import combined, series

COMPOUNDS: list[tuple[Any, Any, Any]] = [
    ([("a", "S3"), ("n", "i4")], [("a", "S5"), ("n", "i2")], [("a", "S5"), ("n", "i4")]),
    ([("a", "S3", (2,))], [("a", "S4", (2,))], [("a", "S4", (2,))]),
    ([("a", "S3", (2,))], [("a", "S4", (3,))], None),
    ([("a", "S3")], [("b", "S3")], None),
    ([("a", "S3")], [("a", "i4")], None),
    ([("a", "V3"), ("b", "f4")], [("a", "V3"), ("b", "f8")], [("a", "V3"), ("b", "f8")]),
    ([("a", [("b", "S1")])], [("a", [("b", "S2")])], [("a", [("b", "S2")])]),
    ([("a", "S3")], "S3", None),
]


@pytest.mark.parametrize(("one", "other", "expected"), COMPOUNDS, ids=range(len(COMPOUNDS)))
def test_compounds_are_joined_member_by_member(one: Any, other: Any, expected: Any) -> None:
    dtypes = [np.dtype(one), np.dtype(other)]
    for order in (dtypes, dtypes[::-1]):
        found = _common(order)
        assert found == (None if expected is None else np.dtype(expected))


@pytest.mark.parametrize(
    ("one", "other"), [("S3", "U3"), ("S3", "i2"), ("?", "u1"), ("M8[s]", "m8[s]"), ("U2", "M8[s]")]
)
def test_dtypes_without_a_common_one(one: str, other: str) -> None:
    done = combined(series([0, 1], np.zeros(2, one)), series([2, 3], np.zeros(2, other)))
    assert done.group is None
    assert [problem.cause for problem in done.problems] == ["dtype-differs"]


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [("S3", "S5", "S5"), ("U1", "U4", "U4"), ("i2", "i4", "i4"), ("u1", "f4", "f4")],
)
def test_dtypes_with_one(one: str, other: str, common: str) -> None:
    done = combined(series([0, 1], np.ones(2, one)), series([2], np.ones(1, other)))
    assert done.group is not None
    assert done.group.arrays["v"].dtype == np.dtype(common)
