"""Pieces of a page, cut where its chunks end."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gridref.model.projection import SliceProjection
from gridref.serve.pages import _cut_at
from gridref.serve.plan import AxisPieces


def elements(axis: AxisPieces) -> dict[int, tuple[int, int, int]]:
    """Block, stored chunk and place in it of every output element."""
    pieces = axis.pieces
    assert isinstance(pieces, SliceProjection)
    return {
        int(pieces.out_start[p]) + k: (
            int(axis.block[p]),
            int(pieces.chunk[p]),
            int(pieces.start[p] + k * pieces.step[p]),
        )
        for p in range(len(pieces))
        for k in range(int(pieces.count[p]))
    }


COUNTS = [(1,), (4,), (3, 1, 2), (7, 3), (1, 1, 1), (2, 5, 1)]
STEPS = [1, -1, 3, 0]


@pytest.mark.parametrize("order", ["as they lie", "turned round"])
@pytest.mark.parametrize("counts", COUNTS)
def test_each_piece_lies_in_one_chunk_and_nothing_moves(
    counts: tuple[int, ...], order: str
) -> None:
    n, total = len(counts), sum(counts)
    pieces = SliceProjection(
        np.arange(n) + 5,
        np.arange(n) + 20,
        np.resize(np.array(STEPS), n),
        np.array(counts),
        np.cumsum([0, *counts[:-1]]),
    )
    axis = AxisPieces(np.arange(n) + 2, pieces)
    if order == "turned round":
        turned = np.arange(n)[::-1]
        axis = AxisPieces(axis.block[turned], pieces.take(turned))
    inner = range(1, total)
    for n_cuts in range(3):
        for at in itertools.combinations(inner, n_cuts):
            edges = np.array([0, *at, total])
            cut, splits = _cut_at(axis, edges)
            assert elements(cut) == elements(axis)
            assert isinstance(cut.pieces, SliceProjection)
            assert (cut.pieces.count > 0).all()
            for k, (low, high) in enumerate(itertools.pairwise(edges.tolist())):
                part = AxisPieces(
                    cut.block[splits[k] : splits[k + 1]],
                    cut.pieces.take(np.arange(splits[k], splits[k + 1])),
                )
                assert sorted(elements(part)) == [*range(low, high)]
            assert len(cut.pieces) == len({*edges[:-1].tolist(), *pieces.out_start.tolist()})


def test_pieces_that_fill_a_part_of_the_page() -> None:
    """The other cross products of the page fill the rest."""
    pieces = SliceProjection(*map(np.array, ([0, 1], [0, 0], [1, 1], [2, 2], [3, 5])))
    cut, splits = _cut_at(AxisPieces(np.array([0, 0]), pieces), np.array([0, 2, 4, 6, 8, 10]))
    assert isinstance(cut.pieces, SliceProjection)
    assert cut.pieces.out_start.tolist() == [3, 4, 5, 6]
    assert cut.pieces.count.tolist() == [1, 1, 1, 1]
    assert splits.tolist()[:5] == [0, 0, 1, 3, 4]
