"""Which layout a read takes, by numbers alone."""

from __future__ import annotations

import numpy as np
import pytest

from gridref.model.overlay import Stored
from gridref.model.projection import Progression
from gridref.serve.choosing import estimate, n_touched

SHAPE = (10_000, 2000, 4000)
MAPS = Stored((1, 2000, 4000), (1, 2000, 4000), 16e6, True)
SERIES = Stored((10_000, 20, 20), (10_000, 20, 800), 7e6, True)
EVERY = [Progression(0, 1, n) for n in SHAPE]


def selected(**axes: Progression) -> list[Progression]:
    return [axes.get(name, every) for name, every in zip("tyx", EVERY, strict=True)]


@pytest.mark.parametrize(
    ("selection", "n_maps", "n_series"),
    [
        (selected(y=Progression(7, 1, 1), x=Progression(9, 1, 1)), 10_000, 1),
        (selected(t=Progression(7, 1, 1)), 1, 100 * 200),
        (selected(t=Progression(0, 1, 30), y=Progression(15, 1, 10)), 30, 2 * 200),
        (selected(y=Progression(0, 40, 50), x=Progression(9, 1, 1)), 10_000, 50),
    ],
)
def test_chunks_that_are_touched(selection: list[Progression], n_maps: int, n_series: int) -> None:
    assert estimate(MAPS, 4, selection).n_chunks == n_maps
    assert estimate(SERIES, 4, selection).n_chunks == n_series


def test_series_and_maps_of_a_server() -> None:
    """10,000 maps of 16 MB over 100 MB/s take half an hour; one chunk of 7 MB 0.1 s."""
    series = selected(y=Progression(7, 1, 1), x=Progression(9, 1, 1))
    assert 1600 < estimate(MAPS, 4, series).seconds < 2500
    assert 0.09 < estimate(SERIES, 4, series).seconds < 0.25
    a_map = selected(t=Progression(7, 1, 1))
    assert 0.15 < estimate(MAPS, 4, a_map).seconds < 0.4
    assert estimate(SERIES, 4, a_map).seconds > 1000


def test_chunks_beside_each_other_are_one_request() -> None:
    near = Stored((1, 10), (100, 10), 1000.0, False)
    column = estimate(near, 4, [Progression(0, 1, 100), Progression(3, 1, 1)])
    assert (column.n_chunks, column.n_requests) == (100, 1)
    far_apart = Stored((1, 10), (100, 10_000), 100_000.0, False)
    column = estimate(far_apart, 4, [Progression(0, 1, 100), Progression(3, 1, 1)])
    assert (column.n_chunks, column.n_requests) == (100, 100)


@pytest.mark.parametrize("length", [1, 3, 10])
def test_stretches_are_counted_as_numpy_counts_them(length: int) -> None:
    for start, step, count in [(0, 1, 20), (5, 1, 1), (2, 3, 6), (1, 7, 5)]:
        elements = start + step * np.arange(count)
        expected = len(np.unique(elements // length))
        assert n_touched(elements, length) == expected
        # Of a slice, stretches in its gaps may count too, but never fewer.
        assert expected <= n_touched(Progression(start, step, count), length) <= count
