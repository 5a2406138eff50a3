"""What of a catalog goes on as it is, and what is written, when files are added to it. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.segments import Layout, Segment, whole
from gridref.catalog.standing import Span, Standing, WholeNeededError
from gridref.model.array import MISSING_BLOCK, BlockTable, VirtualArray
from gridref.model.encoding import Encoding
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.joining import same_scalar

__all__ = [
    "BEFORE",
    "NEW",
    "GrownArray",
    "NoBlocks",
    "grown",
    "is_unchanged",
    "kept",
    "on_axes",
    "written",
]

BEFORE, NEW = 0, 1
"""The parts of the layout of a `GrownArray`: what the catalog holds, and what is written."""


@dataclass(frozen=True, eq=False)
class GrownArray:
    """An array of the next snapshot.

    Attributes
    ----------
    shown
        The array, as far as its description goes: its manifests and blocks mean nothing.
    laid
        Which of its blocks are which: boxes of the array's blocks `BEFORE`, and of `NEW` ones. None
        where all go on as they are.
    new
        The blocks that are written, with the encodings of `shown`; None for none.
    is_altered
        Whether blocks of before are decoded otherwise, so that what is known of their values is
        known no more.
    """

    shown: VirtualArray
    laid: Layout | None
    new: VirtualArray | None
    is_altered: bool = False

    def layout(self, old: Layout, part: int) -> Layout:
        """Where its blocks lie: those of the catalog as in `old`, new ones in another part."""
        if self.laid is None:
            return old
        segments: list[Segment] = []
        for segment in self.laid:
            segments += [replace(segment, part=part)] if segment.part else segment.through(old)
        return tuple(segments)


def kept(array: VirtualArray) -> GrownArray:
    """An array whose blocks go on as they are."""
    return GrownArray(array, None, None)


def written(array: VirtualArray) -> GrownArray:
    """An array all of whose blocks are written."""
    return GrownArray(array, whole(NEW, array.grid.grid_shape), array)


def grown(
    combined: VirtualArray,
    before: VirtualArray | None,
    dim: str,
    inputs: Sequence[Span | int],
    edges: NDArray[np.int64],
) -> GrownArray:
    """What has become of an array.

    Parameters
    ----------
    combined
        The array, combined of standing and of new ones.
    before
        The catalog's array; None if it has none of that name.
    inputs
        What was combined, in order: spans of the catalog, and lengths of new inputs.
    edges
        Edge lengths of the catalog along the dimension, for arrays that it does not have.

    Raises
    ------
    WholeNeededError
        If combining changed what the catalog holds.
    """
    if before is not None and dim not in before.dims:
        return kept(combined) if is_unchanged(combined, before) else written(combined)
    if dim not in combined.dims:
        return written(combined)
    axis = combined.dims.index(dim)
    if before is None:
        slabs = _slabs_by_place(combined, axis, inputs)
    else:
        slabs = _slabs_by_manifest(combined, axis)
        _check_unchanged(combined, before, axis, [span for span in slabs if span is not None])
    spans = [each for each in inputs if isinstance(each, Span)]
    if [span for span in slabs if span is not None] != spans:
        raise WholeNeededError("spans are cut, left out or in another order")
    old = edges if before is None else before.grid.axes[axis].edges()
    runs, all_edges = _runs(slabs, combined.grid.axes[axis].edges(), old)
    encodings = _encodings(combined, before)
    axes = list(combined.grid.axes)
    axes[axis] = GridAxis.from_edges(all_edges)
    grid = ChunkGrid(tuple(axes))
    shown = combined.replace(grid=grid, encodings=encodings, blocks=NoBlocks(grid.n_chunks))
    new = np.array([span is None for span in slabs])
    laid = _laid(runs, grid.grid_shape, axis)
    if not new.any():
        return GrownArray(shown, laid, None)
    every = [np.ones(each.n_chunks, bool) for each in combined.grid.axes]
    every[axis] = new
    return GrownArray(shown, laid, on_axes(combined, every, encodings))


@dataclass(frozen=True)
class NoBlocks:
    """The place of blocks in an array that is only described."""

    n_blocks: int

    def load(self) -> BlockTable:
        """There are none."""
        raise WholeNeededError("blocks")


def is_unchanged(combined: VirtualArray, before: VirtualArray) -> bool:
    """Whether all blocks of an array are those of the catalog's, untouched."""
    return (
        combined.manifests == before.manifests
        and combined.block_source is before.block_source
        and combined.encodings == before.encodings
        and combined.grid.axes == before.grid.axes
        and combined.dtype == before.dtype
        and same_scalar(combined.fill_value, before.fill_value, before.dtype)
        and combined.dims == before.dims
    )


def _slabs_by_manifest(combined: VirtualArray, axis: int) -> list[Span | None]:
    """For each block along the axis the span that it stands for; None for a new one."""
    blocks = combined.blocks
    spans = [m.span if isinstance(m, Standing) else None for m in combined.manifests] + [None]
    number = np.where(blocks.encoding == MISSING_BLOCK, len(spans) - 1, blocks.manifest)
    number = np.array([i if span is not None else -1 for i, span in enumerate(spans)])[number]
    slabs = np.moveaxis(number.reshape(combined.grid.grid_shape), axis, 0)
    slabs = slabs.reshape(len(slabs), -1)
    if (slabs != slabs[:, :1]).any():
        raise WholeNeededError("blocks beside each other come from both")
    return [spans[i] for i in slabs[:, 0].tolist()]


def _slabs_by_place(
    combined: VirtualArray, axis: int, inputs: Sequence[Span | int]
) -> list[Span | None]:
    """The same for an array that the catalog does not have: each input lies where it was given."""
    lengths = [each.n_shown if isinstance(each, Span) else each for each in inputs]
    stops = np.cumsum(lengths)
    edges = combined.grid.axes[axis].edges()
    starts = np.cumsum(edges) - edges
    if stops[-1] != edges.sum() or not np.isin(stops, starts + edges).all():
        raise WholeNeededError("inputs are cut")
    owner = np.searchsorted(stops, starts, side="right")
    if len(set(owner.tolist())) < len([n for n in lengths if n]):
        raise WholeNeededError("inputs have become one")
    of = [each if isinstance(each, Span) else None for each in inputs]
    return [of[i] for i in owner.tolist()]


def _check_unchanged(
    combined: VirtualArray, before: VirtualArray, axis: int, spans: Sequence[Span]
) -> None:
    """Raise where what the catalog holds would have to be shown otherwise."""
    alike = (
        combined.dims == before.dims
        and combined.dtype == before.dtype
        and same_scalar(combined.fill_value, before.fill_value, before.dtype)
        and all(
            one == other
            for number, (one, other) in enumerate(
                zip(combined.grid.axes, before.grid.axes, strict=True)
            )
            if number != axis
        )
    )
    if not alike or not spans:
        raise WholeNeededError("arrays of another kind")
    blocks = combined.blocks
    for number, manifest in enumerate(combined.manifests):
        if not isinstance(manifest, Standing):
            continue
        rows = blocks.take(np.flatnonzero(blocks.manifest == number))
        expected = manifest.blocks
        encodings = {combined.encodings[i] for i in rows.encoding.tolist() if i != MISSING_BLOCK}
        windows = all(
            np.array_equal(getattr(rows, name), getattr(expected, name))
            for name in ("first_row", "row_stride", "stored_shape", "origin", "step")
        )
        if encodings != {before.encodings[0]} or not windows:
            raise WholeNeededError("blocks that are shown otherwise")


@dataclass(frozen=True)
class _Run:
    """Neighbouring blocks along the dimension that grows: of the catalog, or to be written."""

    part: int
    first: int
    n: int


def _laid(runs: Sequence[_Run], grid_shape: tuple[int, ...], axis: int) -> Layout:
    """Runs of blocks along an axis after each other, as boxes."""
    if 0 in grid_shape:
        return ()
    segments = []
    reached = 0
    for run in runs:
        first, start, shape = [0] * len(grid_shape), [0] * len(grid_shape), list(grid_shape)
        first[axis], start[axis], shape[axis] = run.first, reached, run.n
        segments.append(Segment(run.part, tuple(first), tuple(start), tuple(shape)))
        reached += run.n
    return tuple(segments)


def _runs(
    slabs: Sequence[Span | None], shown: NDArray[np.int64], old: NDArray[np.int64]
) -> tuple[tuple[_Run, ...], NDArray[np.int64]]:
    """Runs of blocks along the axis, and the edge lengths of all."""
    bounds = np.concatenate([[0], np.cumsum(old)])
    runs: list[_Run] = []
    edges: list[NDArray[np.int64]] = []
    n_new = 0
    for span, group in itertools.groupby(enumerate(slabs), key=lambda slab: slab[1]):
        places = [place for place, _ in group]
        if span is None:
            runs.append(_Run(NEW, n_new, len(places)))
            n_new += len(places)
            edges.append(shown[places])
            continue
        first, stop = np.searchsorted(bounds, [span.start, span.stop]).tolist()
        if bounds[first] != span.start or bounds[stop] != span.stop:
            raise WholeNeededError("blocks are cut")
        runs.append(_Run(BEFORE, first, stop - first))
        edges.append(old[first:stop])
    return tuple(runs), np.concatenate([*edges, np.zeros(0, np.int64)])


def _encodings(combined: VirtualArray, before: VirtualArray | None) -> tuple[Encoding, ...]:
    """Those of the catalog, in its order, and then new ones: its blocks count into them."""
    held = () if before is None else before.encodings
    used = np.unique(combined.blocks.encoding)
    new = [combined.encodings[i] for i in used.tolist() if i != MISSING_BLOCK]
    return tuple(dict.fromkeys([*held, *new]))


def on_axes(
    combined: VirtualArray, chosen: Sequence[NDArray[np.bool_]], encodings: tuple[Encoding, ...]
) -> VirtualArray:
    """Some blocks along each axis as an array of their own, with other lists of encodings.

    Blocks of encodings that are not listed become missing.
    """
    places = [np.flatnonzero(each) for each in chosen]
    numbers = np.arange(combined.n_blocks).reshape(combined.grid.grid_shape)
    blocks = combined.blocks.take(numbers[np.ix_(*places)].reshape(-1))
    axes = [
        axis if len(own) == axis.n_chunks else GridAxis.from_edges(axis.edges()[own])
        for axis, own in zip(combined.grid.axes, places, strict=True)
    ]
    number = {encoding: i for i, encoding in enumerate(encodings)}
    lookup = np.array([*(number.get(each, -1) for each in combined.encodings), MISSING_BLOCK])
    renumbered = replace(blocks, encoding=lookup[blocks.encoding].astype(np.int32))
    return combined.replace(grid=ChunkGrid(tuple(axes)), encodings=encodings, blocks=renumbered)
