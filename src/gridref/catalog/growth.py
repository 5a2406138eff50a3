"""Decide which rows of a catalog stay and which are written when files are added. Pure.

The catalog was combined before, so that drift in it is resolved. The rules need only the metadata
of its arrays and the labels at their ends, not their blocks and rows. So new files are combined
with `Standing` arrays, stand-ins of a block or two for arrays of any number. The result shows which
tables of the catalog stay as they are (`grown`).

Some rules have to see every block. Even then most blocks are the same afterwards, at other places
or with another encoding. `reused` recognises them by their rows. A layout puts them at their new
places, and only the other blocks are written.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.entries import Coords, Layout, Segment, whole
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import MISSING_BLOCK, BlockTable
from gridref.model.encoding import Encoding
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.joining import boxes_of, same_scalar
from gridref.model.manifest import ChunkManifest
from gridref.typing import Int64Array

# Standing arrays: placeholders for arrays of a catalog


class WholeNeededError(Exception):
    """The rules need, or change, the catalog's elements: it has to be combined as a whole."""


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
    span
        Its elements that are stood for.
    blocks
        The blocks that show it.
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


def standing_group(group: VirtualGroup, dim: str, span: Span) -> VirtualGroup:
    """A group that stands for some elements; arrays without the dimension are the catalog's own.

    Raises
    ------
    WholeNeededError
        Where an array has nothing that could stand for it.
    """
    return group.with_each_array(lambda path, array: _standing(array, dim, span, path))


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
    return array.with_changes(grid=grid, manifests=(manifest,), blocks=blocks)


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


# Arrays of the next snapshot, combined with standing arrays. Pure

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


def placed(laid: Layout | None, old: Layout, part: int) -> Layout:
    """Where the blocks of a `GrownArray` are: the catalog's as in `old`, new ones in a part."""
    if laid is None:
        return old
    segments: list[Segment] = []
    for segment in laid:
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
    """
    if before is not None and dim not in before.dims:
        if dim in combined.dims:
            raise WholeNeededError("it is repeated as often as the catalog has elements")
        return kept(combined) if is_unchanged(combined, before) else written(combined)
    if dim not in combined.dims:
        return written(combined)
    axis = combined.dims.index(dim)
    if before is None:
        slabs = _slabs_by_place(combined, axis, inputs)
        there = [span is not None for span in slabs]
        if np.compress(there, combined.held_blocks, axis).any():
            # An attribute of the catalog has become a variable.
            return written(combined)
    else:
        slabs = _slabs_by_manifest(combined, axis)
        _check_unchanged(combined, before, axis, [span for span in slabs if span is not None])
    spans = [each for each in inputs if isinstance(each, Span)]
    if [span for span in slabs if span is not None] != spans:
        raise WholeNeededError("spans are cut, left out or in another order")
    old = edges if before is None else before.grid.axes[axis].edges()
    laid, grid = _laid(slabs, combined.grid, axis, old)
    held_encodings = () if before is None else before.encodings
    encodings = _with_new(held_encodings, combined, combined.blocks.encoding)
    shown = combined.with_changes(grid=grid, encodings=encodings, blocks=NoBlocks(grid.n_chunks))
    new = np.array([span is None for span in slabs])
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
        and _is_as_before(combined, before)
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
    """The same for an array that the catalog does not have: inputs are in the given order."""
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
        and _is_as_before(combined, before)
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


def _laid(
    slabs: Sequence[Span | None],
    combined: ChunkGrid,
    axis: int,
    old: NDArray[np.int64],
) -> tuple[Layout, ChunkGrid]:
    """The boxes of blocks, after each other along the axis, and the grid of all blocks.

    Parameters
    ----------
    slabs
        For each block along the axis the span that it stands for; None for a new one.
    combined
        The grid of these blocks.
    old
        Edge lengths of the catalog along the axis.
    """
    shown, bounds = combined.axes[axis].edges(), np.concatenate([[0], np.cumsum(old)])
    runs: list[tuple[int, int, NDArray[np.int64]]] = []
    n_new = 0
    for span, group in itertools.groupby(enumerate(slabs), key=lambda slab: slab[1]):
        places = [place for place, _ in group]
        if span is None:
            runs.append((NEW, n_new, shown[places]))
            n_new += len(places)
            continue
        first, stop = np.searchsorted(bounds, [span.start, span.stop]).tolist()
        if bounds[first] != span.start or bounds[stop] != span.stop:
            raise WholeNeededError("blocks are cut")
        runs.append((BEFORE, first, old[first:stop]))
    axes = list(combined.axes)
    axes[axis] = GridAxis.from_edges(
        np.concatenate([*(edges for _, _, edges in runs), np.zeros(0, np.int64)])
    )
    grid = ChunkGrid(tuple(axes))
    segments: list[Segment] = []
    reached = 0
    for part, begin, edges in runs if grid.n_chunks else ():
        corner, start, shape = [0] * grid.ndim, [0] * grid.ndim, list(grid.grid_shape)
        corner[axis], start[axis], shape[axis] = begin, reached, len(edges)
        segments.append(Segment(part, tuple(corner), tuple(start), tuple(shape)))
        reached += len(edges)
    return tuple(segments), grid


def _with_new(
    held: Sequence[Encoding], combined: VirtualArray, numbers: NDArray[np.integer]
) -> tuple[Encoding, ...]:
    """Encodings of the catalog, and then others of a combined array that some blocks have.

    Two of the catalog may have become equal: each keeps its place, as blocks count into them.
    """
    used = [combined.encodings[i] for i in np.unique(numbers).tolist() if i != MISSING_BLOCK]
    return (*held, *dict.fromkeys(each for each in used if each not in held))


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
    return combined.with_changes(
        grid=ChunkGrid(tuple(axes)), encodings=encodings, blocks=renumbered
    )


# Arrays of the next snapshot, combined as a whole. Pure

MOST_PIECES = 256
"""Boxes that an array may fall into; one of more is written as a whole, to be read faster."""


def reused(combined: VirtualArray, before: VirtualArray | None) -> GrownArray:
    """What has become of an array that was combined with others, block by block.

    Parameters
    ----------
    combined
        The array as it is now.
    before
        The catalog's array of that name, whose manifests it shares; None if there is none.
    """
    if before is not None and is_unchanged(combined, before):
        return kept(combined)
    if before is None or not before.ndim == combined.ndim > 0 or not before.encodings:
        return written(combined)
    same = _same_rows(combined, before)
    places = _places(combined, before, same)
    is_kept, encoding = _decoded_alike(combined, before, places, same)
    ids = np.where(is_kept, _run_numbers(places, combined.grid.grid_shape), -1)
    held = [Segment(BEFORE, _first(places, start), start, shape) for start, shape in boxes_of(ids)]
    is_new = ~is_kept & combined.held_blocks
    encodings = _reused_encodings(combined, before, encoding, is_new)
    new, laid = _new_blocks(combined, is_new, encodings)
    if not held or len(held) + len(laid) > MOST_PIECES:
        return written(combined)
    is_same = encodings == before.encodings and combined.grid.axes == before.grid.axes
    if is_same and new is None and held == [*whole(BEFORE, combined.grid.grid_shape)]:
        return kept(combined.with_changes(encodings=encodings, blocks=NoBlocks(combined.n_blocks)))
    shown = combined.with_changes(encodings=encodings, blocks=NoBlocks(combined.n_blocks))
    return GrownArray(shown, (*held, *laid), new, _is_altered(combined, before, encodings))


@dataclass(frozen=True, eq=False)
class _Same:
    """Blocks of a combined array, and those of before that are the same rows of the tables."""

    now: Int64Array
    before: Int64Array


def _places(combined: VirtualArray, before: VirtualArray, same: _Same) -> list[Int64Array]:
    """For each block along each axis which one of before it is; -1 where it is none.

    Blocks stay in rows and columns of each other, whatever is put between them.
    """
    at = np.unravel_index(same.now, combined.grid.grid_shape)
    was = np.unravel_index(same.before, before.grid.grid_shape)
    places = []
    for axis, own in enumerate(combined.grid.axes):
        low = np.full(own.n_chunks, before.n_blocks)
        high = np.full(own.n_chunks, -1)
        np.minimum.at(low, at[axis], was[axis])
        np.maximum.at(high, at[axis], was[axis])
        edges = before.grid.axes[axis].edges()[np.maximum(high, 0)]
        places.append(np.where((low == high) & (own.edges() <= edges), high, -1))
    return places


def _same_rows(combined: VirtualArray, before: VirtualArray) -> _Same:
    number = {id(manifest): i for i, manifest in enumerate(before.manifests)}
    of = np.array([*(number.get(id(manifest), -1) for manifest in combined.manifests), -1])
    own, theirs = combined.blocks, before.blocks
    held = np.flatnonzero((own.encoding != MISSING_BLOCK) & (of[own.manifest] >= 0))
    known = np.flatnonzero(theirs.encoding != MISSING_BLOCK)
    if not held.size or not known.size:
        return _Same(np.zeros(0, np.int64), np.zeros(0, np.int64))
    rows = _as_bytes(theirs.take(known), theirs.manifest[known])
    wanted = _as_bytes(own.take(held), of[own.manifest[held]])
    order = np.argsort(rows, kind="stable")
    at = np.minimum(np.searchsorted(rows, wanted, sorter=order), len(rows) - 1)
    same = rows[order[at]] == wanted
    return _Same(held[same], known[order[at[same]]])


def _as_bytes(blocks: BlockTable, manifest: NDArray[Any]) -> NDArray[np.bytes_]:
    """The numbers of each block, as something that can be sorted."""
    columns = (blocks.row_stride, blocks.stored_shape, blocks.origin, blocks.step)
    rows = np.column_stack([manifest, blocks.first_row, *columns]).astype(np.int64)
    raw = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    # A byte more, as trailing zeros do not count.
    marked = np.column_stack([raw, np.ones(len(rows), np.uint8)])
    return np.ascontiguousarray(marked).view(f"S{marked.shape[1]}").reshape(-1)


def _decoded_alike(
    combined: VirtualArray, before: VirtualArray, places: Sequence[Int64Array], same: _Same
) -> tuple[NDArray[np.bool_], dict[int, Encoding]]:
    """Blocks that go on, and the encoding that each one of before becomes.

    What one encoding of before has become has to be one, as rows count into a list of them.
    """
    shape = combined.grid.grid_shape
    in_place = np.all(np.meshgrid(*(own >= 0 for own in places), indexing="ij"), axis=0).reshape(-1)
    meshed = np.meshgrid(*(np.maximum(own, 0) for own in places), indexing="ij")
    expected = np.ravel_multi_index(tuple(meshed), before.grid.grid_shape).reshape(-1)
    is_same = np.zeros(combined.n_blocks, bool)
    is_same[same.now] = expected[same.now] == same.before
    was, now = before.blocks.encoding[expected], combined.blocks.encoding
    pairs = np.stack([was, now], axis=1)[is_same & in_place]
    found, counts = np.unique(pairs, axis=0, return_counts=True)
    becomes = np.full(len(before.encodings) + 1, MISSING_BLOCK)
    for one, other in found[np.argsort(counts, kind="stable")].tolist():
        becomes[one] = other
    both_missing = (was == MISSING_BLOCK) & (now == MISSING_BLOCK)
    is_kept = in_place & (both_missing | (is_same & (becomes[was] == now)))
    encodings = {
        one: combined.encodings[other]
        for one, other in enumerate(becomes[:-1].tolist())
        if other != MISSING_BLOCK
    }
    return is_kept.reshape(shape), encodings


def _run_numbers(places: Sequence[Int64Array], shape: Coords) -> Int64Array:
    """A number for each block, the same for neighbours that were neighbours before."""
    numbers = np.zeros(shape, np.int64)
    for axis, own in enumerate(places):
        breaks = np.concatenate([[0], np.cumsum(np.diff(own) != 1)]) if len(own) else own
        along = [1] * len(shape)
        along[axis] = len(own)
        numbers = numbers * (len(own) + 1) + breaks.reshape(along)
    return numbers


def _first(places: Sequence[Int64Array], start: Coords) -> Coords:
    return tuple(int(own[at]) for own, at in zip(places, start, strict=True))


def _reused_encodings(
    combined: VirtualArray,
    before: VirtualArray,
    becomes: dict[int, Encoding],
    is_new: NDArray[np.bool_],
) -> tuple[Encoding, ...]:
    """What those of before become, in their order, and then those of new blocks alone.

    Those that no block has any more may not fit another dtype or fill value: any other one is in
    their place then.
    """
    spare = None if _is_as_before(combined, before) else next(iter(becomes.values()), None)
    held = [becomes.get(number, spare or own) for number, own in enumerate(before.encodings)]
    return _with_new(held, combined, combined.blocks.encoding[is_new.reshape(-1)])


def _new_blocks(
    combined: VirtualArray, is_new: NDArray[np.bool_], encodings: tuple[Encoding, ...]
) -> tuple[VirtualArray | None, Layout]:
    """The blocks that are written, as an array, and where they are."""
    if not is_new.any():
        return None, ()
    axes = range(is_new.ndim)
    chosen = [is_new.any(axis=tuple(a for a in axes if a != axis)) for axis in axes]
    number = [np.cumsum(own) - 1 for own in chosen]
    laid = [
        Segment(NEW, _first(number, start), start, shape)
        for start, shape in boxes_of(np.where(is_new, 0, -1))
    ]
    blocks = combined.blocks
    hidden = np.where(is_new.reshape(-1), blocks.encoding, MISSING_BLOCK)
    only_new = combined.with_changes(blocks=replace(blocks, encoding=hidden.astype(np.int32)))
    return on_axes(only_new, chosen, encodings), tuple(laid)


def _is_altered(
    combined: VirtualArray, before: VirtualArray, encodings: tuple[Encoding, ...]
) -> bool:
    is_alike = encodings[: len(before.encodings)] == before.encodings
    return not (is_alike and _is_as_before(combined, before))


def _is_as_before(combined: VirtualArray, before: VirtualArray) -> bool:
    """Whether dtype and fill value are those of the catalog."""
    return combined.dtype == before.dtype and same_scalar(
        combined.fill_value, before.fill_value, before.dtype
    )
