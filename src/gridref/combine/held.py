"""Which pixels an input holds, where it is a mosaic that does not hold all within its edges."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine.georeference import Raster
from gridref.model.array import MISSING_BLOCK, VirtualArray
from gridref.model.boxes import boxes_of

__all__ = ["held_rasters"]

Labels = Mapping[str, Sequence[Any]]


def held_rasters(
    raster: Raster,
    arrays: Mapping[str, VirtualArray],
    labels: Labels,
    plane: tuple[str, str],
    *,
    merges: bool,
) -> list[Raster]:
    """The rasters that an input holds: one, or several around pixels that are still missing.

    Parameters
    ----------
    raster
        Where the input lies.
    arrays
        Its variables.
    labels
        Its labels along the dimensions beside rows and columns.
    plane
        Names of the dimensions of rows and columns.
    merges
        Whether inputs hold different variables, each of which lies on pixels of its own.
    """
    laid = {name: array for name, array in arrays.items() if {*plane} <= {*array.dims}}
    if all(_held(array).all() for array in laid.values()):
        names = [*laid] if merges else [""]
        return [replace(raster, labels=tuple(itertools.product(*labels.values(), names)))]
    return [
        part
        for name, array in laid.items()
        for part in _parts(raster, array, name if merges else "", labels, plane)
    ]


def _held(array: VirtualArray) -> NDArray[np.bool_]:
    """Bool (grid shape), the blocks that are not missing."""
    return np.not_equal(array.blocks.encoding, MISSING_BLOCK).reshape(array.grid.grid_shape)


def _parts(
    raster: Raster, array: VirtualArray, name: str, labels: Labels, plane: tuple[str, str]
) -> Iterator[Raster]:
    """Boxes of pixels, those of neighbouring labels that lie in one block together."""
    beside = [dim for dim in labels if dim in array.dims]
    wanted = [array.dims.index(dim) for dim in (*beside, *plane)]
    others = tuple(axis for axis in range(array.ndim) if axis not in wanted)
    held = _held(array).any(axis=others).transpose(np.argsort(np.argsort(wanted)))
    *_, rows, columns = (np.cumsum([0, *array.grid.axes[axis].edges()]) for axis in wanted)
    for blocks, own in _labels_of_blocks(array, labels).items():
        for (top, left), (n_down, n_across) in boxes_of(np.where(held[blocks], 0, -1)):
            yield replace(
                raster.moved(int(rows[top]), int(columns[left])),
                n_rows=int(rows[top + n_down] - rows[top]),
                n_columns=int(columns[left + n_across] - columns[left]),
                labels=tuple((*each, name) for each in own),
            )


def _labels_of_blocks(
    array: VirtualArray, labels: Labels
) -> dict[tuple[int, ...], list[tuple[Any, ...]]]:
    """Labels by the blocks, along the dimensions of these that the array has, that they lie in."""
    found: dict[tuple[int, ...], list[tuple[Any, ...]]] = {}
    stops = {
        dim: np.cumsum(array.grid.axes[array.dims.index(dim)].edges())
        for dim in labels
        if dim in array.dims
    }
    for chosen in itertools.product(*(enumerate(own) for own in labels.values())):
        blocks = tuple(
            int(np.searchsorted(stops[dim], at, side="right"))
            for dim, (at, _) in zip(labels, chosen, strict=True)
            if dim in stops
        )
        found.setdefault(blocks, []).append(tuple(label for _, label in chosen))
    return found
