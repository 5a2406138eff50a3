"""Arrays that stand for those of a catalog while files are combined with it.

What a catalog holds was combined before: its arrays are alike within themselves, so that rules of
drift need to see their metadata and the labels at their ends, and neither blocks nor rows. A
standing array has a block or two for any number of them, and what has become of it says which of
the catalog's tables go on as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import BlockTable, VirtualArray, VirtualGroup
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.manifest import ChunkManifest

__all__ = ["Span", "Standing", "WholeNeededError", "standing_groups", "values_of_standing"]


class WholeNeededError(Exception):
    """The rules look at, or change, what the catalog holds: it has to be combined as a whole."""


@dataclass(frozen=True, eq=False)
class Span:
    """Elements of the catalog along the dimension that grows, as one input of combining.

    Attributes
    ----------
    start, stop
        The elements, half-open.
    n_shown
        How many of them are shown to combining.
    labels
        By path of an index coordinate its labels, `n_shown` of them.
    """

    start: int
    stop: int
    n_shown: int
    labels: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Standing:
    """A `Manifest` that stands for the rows of an array of a catalog.

    Attributes
    ----------
    path, array
        The array.
    span
        Its elements that are stood for.
    blocks
        The blocks that show it.
    has_filter_masks
        As of the array.
    """

    path: str
    array: VirtualArray
    span: Span
    blocks: BlockTable
    has_filter_masks: bool

    @property
    def n_rows(self) -> int:
        """One for each element that is shown: they cannot be had."""
        return self.span.n_shown

    def take(self, rows: NDArray[np.int64]) -> ChunkManifest:
        """Raises WholeNeededError: there are none."""
        raise WholeNeededError(f"rows of {self.path}")


def standing_groups(
    group: VirtualGroup, dim: str, spans: Sequence[Span], path: str = ""
) -> list[VirtualGroup]:
    """A group for each span, in which arrays without the dimension are the catalog's own.

    Raises
    ------
    WholeNeededError
        Where an array has nothing that could stand for it.
    """
    prefix = f"{path}/" if path else ""
    below = {
        name: standing_groups(child, dim, spans, f"{prefix}{name}")
        for name, child in group.groups.items()
    }
    return [
        VirtualGroup(
            {
                name: _standing(array, dim, span, f"{prefix}{name}")
                for name, array in group.arrays.items()
            },
            {name: children[number] for name, children in below.items()},
            group.attrs,
            unlimited_dims=group.unlimited_dims,
        )
        for number, span in enumerate(spans)
    ]


def _standing(array: VirtualArray, dim: str, span: Span, path: str) -> VirtualArray:
    if dim not in array.dims:
        return array
    if not array.encodings or array.dims.count(dim) > 1:
        raise WholeNeededError(path)
    axis = array.dims.index(dim)
    axes = list(array.grid.axes)
    axes[axis] = GridAxis.from_edges([span.n_shown])
    grid = ChunkGrid(tuple(axes))
    blocks = _standing_blocks(grid)
    manifest = Standing(path, array, span, blocks, array.has_filter_masks)
    return array.replace(grid=grid, manifests=(manifest,), blocks=blocks)


def _standing_blocks(grid: ChunkGrid) -> BlockTable:
    """Blocks that show a stored array of the shape of the grid."""
    starts = np.meshgrid(*(a.starts(np.arange(a.n_chunks)) for a in grid.axes), indexing="ij")
    origin = np.stack([start.reshape(-1) for start in starts], axis=-1)
    n_blocks = len(origin)
    zeros = np.zeros(n_blocks, np.int32)
    shape = np.broadcast_to(np.array(grid.shape, np.int64), origin.shape)
    return BlockTable(
        zeros, zeros, zeros.astype(np.int64), np.zeros_like(origin), shape, origin, origin * 0 + 1
    )


def values_of_standing(array: VirtualArray) -> NDArray[Any]:
    """The labels that an array shows which stands for an index coordinate.

    Raises
    ------
    WholeNeededError
        Where there are none, or the array is more than a window of them.
    """
    manifest = array.manifests[0]
    if not isinstance(manifest, Standing) or len(array.manifests) > 1 or array.n_blocks != 1:
        raise WholeNeededError("values")
    known = manifest.span.labels.get(manifest.path)
    if known is None or array.encodings != manifest.array.encodings or array.ndim != 1:
        raise WholeNeededError("values that are shown otherwise")
    blocks = array.blocks
    return known[int(blocks.origin[0, 0]) + int(blocks.step[0, 0]) * np.arange(array.shape[0])]


def is_standing(array: VirtualArray) -> bool:
    """Whether anything of an array stands for what a catalog holds."""
    return any(isinstance(manifest, Standing) for manifest in array.manifests)
