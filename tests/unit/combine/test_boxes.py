"""Boxes of combining against plain arithmetic: cells that nothing fills."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gridref.combine.boxes import Cells

SPANS = st.tuples(st.integers(0, 5), st.integers(1, 3)).map(lambda at: (at[0], at[0] + at[1]))


@settings(max_examples=60)
@given(
    st.integers(1, 3).flatmap(lambda n: st.lists(st.tuples(*[SPANS] * n), min_size=1, max_size=4)),
    st.lists(st.integers(0, 2), min_size=4, max_size=4),
)
def test_holes_are_what_no_box_holds(boxes: list[Any], files: list[int]) -> None:
    shape = [9] * len(boxes[0])
    cells = Cells.of(np.array(boxes, np.int64), np.array(files[: len(boxes)]), shape)
    held = np.zeros(shape, int)
    clashes = []
    for number, box in enumerate(boxes):
        part = held[tuple(slice(*span) for span in box)]
        if any(files[owner - 1] != files[number] for owner in part[part > 0].tolist()):
            clashes.append(number)
        part[part == 0] = number + 1
    assert [number for number, _ in cells.clashes] == clashes
    assert all(first < number for number, first in cells.clashes)
    assert all(files[first] != files[number] for number, first in cells.clashes)
    holes = list(cells.holes())
    found = np.zeros(shape, int)
    for hole in holes:
        assert all(start < stop for start, stop in hole)
        found[tuple(slice(*span) for span in hole)] += 1
    np.testing.assert_array_equal(found, held == 0)
    for one, other in itertools.permutations(holes, 2):
        assert one[:-1] != other[:-1] or one[-1][1] != other[-1][0]
