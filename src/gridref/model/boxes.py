"""Grids of numbers as boxes of equal ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["boxes_of"]

Coords = tuple[int, ...]


def boxes_of(numbers: NDArray[np.integer[Any]]) -> Iterator[tuple[Coords, Coords]]:
    """First cell and shape of boxes of one number each, which together hold all that are not -1.

    Neighbours along the first axis that are equal are one, then those along the next one.
    """
    if numbers.ndim == 0:
        if numbers >= 0:
            yield (), ()
        return
    differ = (numbers[1:] != numbers[:-1]).any(axis=tuple(range(1, numbers.ndim)))
    cuts = [0, *(np.flatnonzero(differ) + 1).tolist(), len(numbers)] if numbers.size else []
    for low, high in itertools.pairwise(cuts):
        for start, shape in boxes_of(numbers[low]):
            yield (low, *start), (high - low, *shape)
