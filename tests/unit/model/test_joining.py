from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gridref.model.joining import boxes_of


@given(hnp.arrays(np.int64, hnp.array_shapes(min_dims=0, max_side=5), elements=st.integers(-1, 2)))
def test_boxes_hold_every_cell_once(numbers: np.ndarray) -> None:
    seen = np.full(numbers.shape, -1)
    for start, shape in boxes_of(numbers):
        box = tuple(slice(low, low + n) for low, n in zip(start, shape, strict=True))
        assert (seen[box] == -1).all()
        seen[box] = numbers[box]
        assert len(np.unique(numbers[box])) == 1
    np.testing.assert_array_equal(seen, numbers)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_no_cells(shape: tuple[int, ...]) -> None:
    assert list(boxes_of(np.zeros(shape, np.int64))) == []
