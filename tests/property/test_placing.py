"""Arrays laid at places of a larger one read as numpy assignments, in either order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridref.errors import InvalidRequestError
from gridref.model import joining
from gridref.model.array import VirtualArray
from gridref.model.joining import concatenate, lay_out
from gridref.testing.builders import chunked_array
from gridref.testing.reference_reader import read_slowly
from tests.work import FEWER

FILL = -1


@st.composite
def placed(draw: st.DrawFn) -> tuple[list[VirtualArray], list[Any], list[tuple[int, ...]]]:
    """Small arrays of one or two blocks, what they read as, and their corners."""
    ndim = draw(st.integers(1, 3))
    dims = ("t", "y", "x")[-ndim:]
    arrays, values, corners = [], [], []
    for number in range(draw(st.integers(1, 4))):
        shape = draw(st.tuples(*[st.integers(1, 4)] * ndim))
        own = np.arange(np.prod(shape), dtype="i4").reshape(shape) + 1000 * number
        chunks = draw(st.tuples(*[st.integers(1, 3)] * ndim))
        array = chunked_array(own, chunks, dims, fill_value=FILL)
        if draw(st.booleans()):
            array, own = concatenate([array, array], 0), np.concatenate([own, own])
        arrays.append(array)
        values.append(own)
        corners.append(draw(st.tuples(*[st.integers(0, 4)] * ndim)))
    return arrays, values, corners


@FEWER
@given(placed(), st.booleans(), st.integers(0, 2))
def test_places(laid: Any, keep_last: bool, more: int) -> None:
    arrays, values, corners = laid
    ends = [np.add(corner, own.shape) for corner, own in zip(corners, values, strict=True)]
    shape = tuple((np.max(ends, axis=0) + more).tolist())
    expected = np.full(shape, FILL, "i4")
    order = list(zip(corners, values, strict=True))
    for corner, own in order if keep_last else order[::-1]:
        inside = tuple(slice(at, at + n) for at, n in zip(corner, own.shape, strict=True))
        expected[inside] = own
    found = lay_out(arrays, corners, shape, keep_last=keep_last)
    assert found.shape == shape
    np.testing.assert_array_equal(read_slowly(found), expected)
    assert found.nbytes == expected.nbytes
    wide = lay_out(arrays, corners, shape, dtype=np.dtype("f8"), fill_value=7, keep_last=keep_last)
    assert wide.dtype == "f8"
    assert wide.fill_value == 7
    held = expected != FILL
    np.testing.assert_array_equal(read_slowly(wide)[held], expected[held])
    assert (read_slowly(wide)[~held] == 7).all()


def test_cells_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    array = chunked_array(np.zeros((2, 2), "u1"), (2, 2), ("y", "x"))
    corners = [(0, 0), (3, 5), (6, 9)]
    monkeypatch.setattr(joining, "MAX_CELLS", 25)
    assert lay_out([array] * 3, corners, (8, 11)).shape == (8, 11)
    monkeypatch.setattr(joining, "MAX_CELLS", 24)
    with pytest.raises(InvalidRequestError, match="a grid of 5 by 5 cells"):
        lay_out([array] * 3, corners, (8, 11))
