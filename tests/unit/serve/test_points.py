"""Points grouped by the stored chunks that hold them."""

from __future__ import annotations

import numpy as np
import pytest

import gridref
from gridref.errors import InvalidRequestError
from gridref.io import SourcePool
from gridref.model.array import VirtualArray
from gridref.serve.plan import plan_points
from gridref.serve.reader import Reader
from gridref.testing.builders import chunked_array


def two_files() -> tuple[VirtualArray, np.ndarray]:
    values = [np.arange(35).reshape(5, 7), 100 + np.arange(21).reshape(3, 7)]
    parts = [chunked_array(part, (2, 3), ("t", "x")) for part in values]
    return gridref.concat(parts, "t"), np.concatenate(values)


def test_each_stored_chunk_is_one_piece() -> None:
    array, values = two_files()
    t, x = np.array([0, 7, 1, 1, 5]), np.array([0, 6, 2, 2, 0])
    plan = plan_points(array, (t, x))
    assert len(plan.block) == 3
    assert plan.splits.tolist() == [0, 3, 4, 5]
    assert Reader(SourcePool()).read_points(array, (t, x)).tolist() == values[t, x].tolist()


@pytest.mark.parametrize(
    ("t", "x", "n_pieces"),
    [
        ([0, 2, 0, 2], [0, 0, 0, 0], 2),
        ([0, 0, 0, 0], [0, 3, 0, 3], 2),
        ([0, 5, 0, 5], [0, 0, 0, 0], 2),
        ([0, 2, 5, 7, 0, 2, 5, 7], [0, 3, 0, 3, 3, 0, 3, 0], 8),
        ([4, 4, 1], [6, 5, 6], 3),
    ],
)
def test_points_of_one_chunk_are_together_in_whatever_order(
    t: list[int], x: list[int], n_pieces: int
) -> None:
    array, values = two_files()
    plan = plan_points(array, (np.array(t), np.array(x)))
    assert len(plan.block) == len(plan.chunk) == n_pieces
    assert plan.splits[-1] == len(t)
    assert (np.diff(plan.splits) > 0).all()
    assert sorted(plan.out_index.tolist()) == [*range(len(t))]
    found = Reader(SourcePool()).read_points(array, (t, x))
    assert found.tolist() == values[t, x].tolist()


def test_no_points() -> None:
    array, _ = two_files()
    assert Reader(SourcePool()).read_points(array, ([], [])).shape == (0,)


@pytest.mark.parametrize("coords", [([0],), ([0], [0, 1]), ([8], [0]), ([0], [-1]), ([0], [7]), ()])
def test_bad_points(coords: tuple[list[int], ...]) -> None:
    with pytest.raises(InvalidRequestError):
        plan_points(two_files()[0], coords)
