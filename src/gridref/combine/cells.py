"""Boxes on the cells that their edges make: which cells are held by none, which by several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gridref.errors import InvalidRequestError
from gridref.model.placing import MAX_CELLS
from gridref.typing import Int64Array

__all__ = ["Box", "Cells"]

Box = tuple[tuple[int, int], ...]
"""Half-open spans of elements, one for each dimension."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Boxes laid on the cells that their edges make.

    Attributes
    ----------
    lines
        Where cells start along each dimension, and the extent.
    owner
        For each cell the number of the first box that holds it; -1 where none does.
    clashes
        Boxes of another owner that hold a cell which is taken: their number, and the first one's.
    """

    lines: Sequence[Int64Array]
    owner: Int64Array
    clashes: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, boxes: Sequence[Box], shape: Sequence[int]) -> Cells:
        """Lay boxes, the first one below.

        Raises
        ------
        InvalidRequestError
            If their edges make too many cells to look at.
        """
        edges = np.array(boxes, np.int64).reshape(len(boxes), len(shape), 2)
        lines = [
            np.unique(np.append(edges[:, axis].reshape(-1), [0, extent]))
            for axis, extent in enumerate(shape)
        ]
        sizes = [len(cuts) - 1 for cuts in lines]
        if np.prod(sizes, dtype=float) > MAX_CELLS:
            raise InvalidRequestError(
                f"the edges of the inputs make a grid of {' by '.join(map(str, sizes))} cells: they"
                " hardly share any label; combine those that do by themselves"
            )
        owner = np.full(sizes, -1, np.int64)
        spans = [np.searchsorted(cuts, edges[:, axis]) for axis, cuts in enumerate(lines)]
        single = all((span[:, 1] - span[:, 0] == 1).all() for span in spans)
        if single and spans:
            cells = np.ravel_multi_index([span[:, 0] for span in spans], sizes)
            if len(np.unique(cells)) == len(cells):  # the usual case, without a loop
                owner.reshape(-1)[cells] = np.arange(len(cells))
                return cls(lines, owner, [])
        clashes = []
        for number, box in enumerate(boxes):
            mine = owner[_slices(lines, box)]
            taken = mine[mine >= 0]
            if taken.size:
                clashes.append((number, int(taken[0])))
            mine[mine < 0] = number
        return cls(lines, owner, clashes)

    def holes(self) -> Iterator[Box]:
        """Cells that no box holds; neighbours along the last dimension are one."""
        runs: list[tuple[list[int], int]] = []
        for cell in np.argwhere(self.owner < 0).tolist():
            first, n_joined = runs[-1] if runs else ([], 0)
            if first[:-1] == cell[:-1] and first and first[-1] + n_joined == cell[-1]:
                runs[-1] = first, n_joined + 1
            else:
                runs.append((cell, 1))
        return (self._box(first, n_joined) for first, n_joined in runs)

    def covers(self, box: Box) -> bool:
        """Whether boxes hold all of another one, whose edges are among theirs."""
        return bool((self.owner[_slices(self.lines, box)] >= 0).all())

    def _box(self, cell: Sequence[int], n_last: int) -> Box:
        counts = [1] * (len(cell) - 1) + [n_last]
        return tuple(
            (int(cuts[at]), int(cuts[at + n]))
            for cuts, at, n in zip(self.lines, cell, counts, strict=True)
        )


def _slices(lines: Sequence[Int64Array], box: Box) -> tuple[slice, ...]:
    return tuple(
        slice(*np.searchsorted(cuts, span).tolist()) for cuts, span in zip(lines, box, strict=True)
    )
