"""Which blocks of a combined array are rows of the catalog that it was combined of. Pure.

Where rules had to see all of what a catalog holds, most blocks come out as they went in: cut
nowhere, at other places, perhaps to be decoded otherwise. Those are told by the rows that they
count into; a layout puts them where they are now, and only the others are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.growth import (
    BEFORE,
    NEW,
    GrownArray,
    NoBlocks,
    is_unchanged,
    kept,
    on_axes,
    written,
)
from gridref.catalog.segments import Coords, Layout, Segment, whole
from gridref.model.array import MISSING_BLOCK, BlockTable, VirtualArray
from gridref.model.boxes import boxes_of
from gridref.model.encoding import Encoding
from gridref.model.joining import same_scalar
from gridref.typing import Int64Array

__all__ = ["reused"]

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
    is_new = ~is_kept & _present(combined)
    encodings = _encodings(combined, before, encoding, is_new)
    new, laid = _new_blocks(combined, is_new, encodings)
    if not held or len(held) + len(laid) > MOST_PIECES:
        return written(combined)
    is_same = encodings == before.encodings and combined.grid.axes == before.grid.axes
    if is_same and new is None and held == [*whole(BEFORE, combined.grid.grid_shape)]:
        return kept(combined.replace(encodings=encodings, blocks=NoBlocks(combined.n_blocks)))
    shown = combined.replace(encodings=encodings, blocks=NoBlocks(combined.n_blocks))
    return GrownArray(shown, (*held, *laid), new, _is_altered(combined, before, encodings))


def _present(array: VirtualArray) -> NDArray[np.bool_]:
    """Bool (grid shape), the blocks that some file holds."""
    return np.not_equal(array.blocks.encoding, MISSING_BLOCK).reshape(array.grid.grid_shape)


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


def _encodings(
    combined: VirtualArray,
    before: VirtualArray,
    becomes: dict[int, Encoding],
    is_new: NDArray[np.bool_],
) -> tuple[Encoding, ...]:
    """What those of before become, in their order, and then those of new blocks alone."""
    held = [becomes.get(number, own) for number, own in enumerate(before.encodings)]
    used = np.unique(combined.blocks.encoding[is_new.reshape(-1)]).tolist()
    new = [combined.encodings[number] for number in used]
    return (*held, *dict.fromkeys(each for each in new if each not in held))


def _new_blocks(
    combined: VirtualArray, is_new: NDArray[np.bool_], encodings: tuple[Encoding, ...]
) -> tuple[VirtualArray | None, Layout]:
    """The blocks that are written, as an array, and where they lie."""
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
    only_new = combined.replace(blocks=replace(blocks, encoding=hidden.astype(np.int32)))
    return on_axes(only_new, chosen, encodings), tuple(laid)


def _is_altered(
    combined: VirtualArray, before: VirtualArray, encodings: tuple[Encoding, ...]
) -> bool:
    return (
        combined.dtype != before.dtype
        or encodings[: len(before.encodings)] != before.encodings
        or not same_scalar(combined.fill_value, before.fill_value, before.dtype)
    )
