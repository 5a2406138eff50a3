"""Selections projected on chunks equal plain numpy indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.model.grid import GridAxis
from gridref.model.projection import (
    IndexProjection,
    Progression,
    SliceProjection,
    normalize_selection,
    project,
    project_progressions,
)
from gridref.testing.strategies import selections


@st.composite
def grid_axes(draw: st.DrawFn) -> GridAxis:
    edges = draw(st.lists(st.integers(1, 7), min_size=1, max_size=10))
    return GridAxis.from_edges(edges, draw(st.integers(0, sum(edges))))


def carry_out(
    axis: GridAxis, values: NDArray[np.int64], projection: SliceProjection | IndexProjection, n: int
) -> NDArray[np.int64]:
    """Copy the pieces as a reader would; what no piece fills stays -1."""
    out = np.full(n, -1)
    for piece, chunk in enumerate(projection.chunk):
        start = int(axis.starts(chunk))
        part = values[start : start + int(axis.data_lengths(chunk))]
        assert projection.count[piece] > 0
        out[projection.in_output(piece)] = part[projection.in_chunk(piece)]
    return out


@given(st.data())
def test_one_axis(data: st.DataObject) -> None:
    axis = data.draw(grid_axes())
    selection = data.draw(selections(axis.extent, keep=True))
    values = np.arange(axis.extent)
    expected = values[selection]
    normal = normalize_selection(selection, axis.extent)
    got = carry_out(axis, values, project(axis, normal), len(expected))
    if isinstance(normal, Progression) and normal.flipped:
        got = got[::-1]
    assert np.array_equal(got, expected)


@given(st.data())
def test_no_chunk_twice_and_none_in_vain(data: st.DataObject) -> None:
    axis = data.draw(grid_axes())
    selection = data.draw(selections(axis.extent, keep=True))
    projection = project(axis, normalize_selection(selection, axis.extent))
    touched = np.unique(axis.locate(np.arange(axis.extent)[selection]))
    assert projection.chunk.tolist() == touched.tolist()


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(-9, 9), st.integers(1, 9), st.integers(1, 8)),
        min_size=1,
        max_size=5,
    )
)
def test_progressions(cases: list[tuple[int, int, int, int]]) -> None:
    rows = [(start + max(0, -step * (n - 1)), step, n, length) for start, step, n, length in cases]
    start, step, count, length = np.array(rows, dtype=np.int64).T
    owner, pieces = project_progressions(start, step, count, length)
    for number, (first, stride, n, chunk_length) in enumerate(rows):
        out = np.full(n, -1)
        for piece in np.flatnonzero(owner == number):
            chunk = int(pieces.chunk[piece])
            part = np.arange(chunk_length) + chunk * chunk_length
            out[pieces.in_output(piece)] = part[pieces.in_chunk(piece)]
        assert out.tolist() == [first + stride * j for j in range(n)]


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (slice(None, None, 0), "slice step cannot be zero"),
        (12, "index 12 is out of bounds for 0"),
        ([1, -11], "index -11 is out of bounds for 0"),
        (np.ones(9, bool), "mask of shape"),
        ([1.5], "an index is an integer"),
        ("x", "an index is an integer"),
        ([[1, 2]], "an index is an integer"),
    ],
)
def test_bad_selections(selection: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        normalize_selection(selection, 10)


@pytest.mark.parametrize(
    "selection",
    [
        np.array([-1, 3], "i1"),
        np.array([2, 200], "u1"),
        np.array([999], "u8"),
        slice(3, None, 10**30),
        slice(None, None, -(2**63)),
        slice(2**70, None),
    ],
)
def test_numbers_of_any_size(selection: Any) -> None:
    axis, values = GridAxis.uniform(1000, 7), np.arange(1000)
    got = carry_out(
        axis,
        values,
        project(axis, normalize_selection(selection, 1000)),
        len(values[selection]),
    )
    assert np.array_equal(got, values[selection])
