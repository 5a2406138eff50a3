"""Chunks that are decoded on the way, planned a page at a time: neighbours are asked for next."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from gridref.model.manifest import ChunkState
from gridref.model.projection import SliceProjection
from gridref.serve.lookup import LookedUp, ManifestRows, identify, look_up
from gridref.serve.plan import AxisPieces, CrossProduct, PieceBatch, plan_read
from gridref.serve.presence import digest_of, fills_differ
from gridref.serve.rewrap import rewrapped
from gridref.serve.segments import DecodedSegment, VirtualObject
from gridref.serve.views import ArrayView
from gridref.typing import Int64Array

__all__ = ["DecodedPage", "decoded_page", "view_identity"]


PIECE_BYTES = 200
"""About what the references of a piece take."""


@dataclass(frozen=True, eq=False)
class DecodedPage:
    """What a box of decoded chunks is made of.

    Attributes
    ----------
    view
        The view.
    first
        Coords of the first chunk.
    edges
        Along each axis, int64, the chunks' first elements, counted from the page's, and the end.
    lengths
        Along each axis, int64, the chunks' lengths; the last one may overhang the array.
    parts
        The stored chunks below, cut so that each piece lies in one chunk.
    """

    view: ArrayView
    first: tuple[int, ...]
    edges: tuple[Int64Array, ...]
    lengths: tuple[Int64Array, ...]
    parts: tuple[_Part, ...]

    @property
    def n_bytes(self) -> int:
        """About what it takes in memory."""
        return sum(len(part.looked_up.batch) for part in self.parts) * PIECE_BYTES

    def chunk(self, path: str, coords: tuple[int, ...]) -> VirtualObject | None:
        """What answers for a chunk of the page; None where all below it is missing.

        A chunk is there if any stored chunk under it is, or if a missing one reads as another
        value than the array's fill value.
        """
        in_page = [k - low for k, low in zip(coords, self.first, strict=True)]
        starts = [int(edges[k]) for edges, k in zip(self.edges, in_page, strict=True)]
        cut = (part.cut(in_page, starts) for part in self.parts)
        below = tuple(looked_up for looked_up in cut if looked_up is not None)
        if not any(self._is_held(looked_up) for looked_up in below):
            return None
        shape = tuple(int(along[k]) for along, k in zip(self.lengths, in_page, strict=True))
        stored = rewrapped(self.view, coords, below)
        segment = stored or self._decoded(coords, shape, below)
        tag = partial(self._tag, shape, below, b"" if stored is None else b"rewrapped")
        return VirtualObject((segment,), tag, path, coords)

    def _tag(
        self, shape: tuple[int, ...], below: tuple[LookedUp[CrossProduct], ...], form: bytes
    ) -> str:
        digest = hashlib.blake2b(self._view_identity, digest_size=16)
        digest.update(repr(shape).encode())
        identify(below, digest)
        return digest_of(digest.hexdigest().encode(), form) if form else digest.hexdigest()

    def _decoded(
        self,
        coords: tuple[int, ...],
        shape: tuple[int, ...],
        below: tuple[LookedUp[CrossProduct], ...],
    ) -> DecodedSegment:
        plain = [codec.name for codec in self.view.chunk_codecs] == ["bytes"]
        n_bytes = math.prod(shape) * self.view.metadata.dtype.itemsize
        return DecodedSegment(self.view, coords, shape, n_bytes if plain else None, below)

    def _is_held(self, looked_up: LookedUp[CrossProduct]) -> bool:
        for each in looked_up.references:
            missing = each.rows.state == ChunkState.MISSING
            differs = self._fills_differ[looked_up.batch.encoding[each.members]]
            if not missing.all() or differs.any():
                return True
        return False

    @cached_property
    def _view_identity(self) -> bytes:
        return view_identity(self.view)

    @cached_property
    def _fills_differ(self) -> NDArray[np.bool_]:
        return fills_differ(self.view.array)


@dataclass(frozen=True, eq=False)
class _Part:
    """A cross product of a page, looked up.

    Attributes
    ----------
    looked_up
        All its pieces.
    splits
        Along each axis, int64: chunk ``k`` has the axis' pieces ``splits[k]:splits[k + 1]``.
    """

    looked_up: LookedUp[CrossProduct]
    splits: tuple[Int64Array, ...]

    @cached_property
    def _numbers(self) -> Int64Array:
        """Number of each piece, on the grid of pieces."""
        axes = self.looked_up.pieces.axes
        return np.arange(len(self.looked_up.batch)).reshape([len(axis.pieces) for axis in axes])

    @cached_property
    def _row_of(self) -> tuple[Int64Array, Int64Array]:
        """Of each piece, which of the references it is among, and where there; -1 if in none."""
        among, row = (np.full(len(self.looked_up.batch), -1, np.int64) for _ in range(2))
        for number, each in enumerate(self.looked_up.references):
            among[each.members] = number
            row[each.members] = np.arange(len(each.members))
        return among, row

    def cut(self, in_page: Sequence[int], starts: Sequence[int]) -> LookedUp[CrossProduct] | None:
        """The pieces of one chunk, as a plan of its own; None if there are none.

        `in_page` are the chunk's coords in the page, and `starts` its first element there.
        """
        inside = tuple(
            slice(int(splits[k]), int(splits[k + 1]))
            for splits, k in zip(self.splits, in_page, strict=True)
        )
        numbers = self._numbers[inside].reshape(-1)
        if not len(numbers):
            return None
        cross, batch = self.looked_up.pieces, self.looked_up.batch
        axes = [
            _shifted(axis, part, start)
            for axis, part, start in zip(cross.axes, inside, starts, strict=True)
        ]
        piece = batch.piece[numbers] - np.array([part.start for part in inside], np.int64)
        return LookedUp(
            CrossProduct(cross.array, tuple(axes)),
            PieceBatch(
                piece,
                batch.block[numbers],
                batch.row[numbers],
                batch.encoding[numbers],
                batch.manifest[numbers],
                batch.chunk[numbers],
                batch.shape[numbers],
            ),
            self._references(numbers),
        )

    def _references(self, numbers: Int64Array) -> tuple[ManifestRows, ...]:
        among, row = (column[numbers] for column in self._row_of)
        result = []
        for number in sorted({*among.tolist()} - {-1}):
            members = np.flatnonzero(among == number)
            rows = self.looked_up.references[number].rows.take(row[members])
            result.append(ManifestRows(members, rows))
        return tuple(result)


def _shifted(axis: AxisPieces, part: slice, start: int) -> AxisPieces:
    """Some of an axis' pieces, their output counted from another element."""
    pieces = axis.pieces
    assert isinstance(pieces, SliceProjection)
    cut = pieces.take(part)
    moved = cut if not start else replace(cut, out_start=cut.out_start - start)
    return AxisPieces(axis.block[part], moved)


def decoded_page(view: ArrayView, first: Sequence[int], counts: Sequence[int]) -> DecodedPage:
    """Plan a box of chunks, inside the grid, of a view whose chunks are decoded."""
    edges, lengths, origins = [], [], []
    for axis, k, n in zip(view.chunk_grid.axes, first, counts, strict=True):
        starts = axis.starts(np.arange(k, k + n))
        stop = int(starts[-1] + axis.data_lengths(k + n - 1))
        origins.append(int(starts[0]))
        lengths.append(axis.chunk_lengths(np.arange(k, k + n)))
        edges.append(np.append(starts, stop) - starts[0])
    region = tuple(
        slice(low, low + int(along[-1])) for low, along in zip(origins, edges, strict=True)
    )
    plan = plan_read(view.array, region)
    parts = tuple(_part(cross, edges) for cross in plan.crosses)
    return DecodedPage(view, tuple(first), tuple(edges), tuple(lengths), parts)


def _part(cross: CrossProduct, edges: Sequence[Int64Array]) -> _Part:
    cut = [_cut_at(axis, along) for axis, along in zip(cross.axes, edges, strict=True)]
    whole = CrossProduct(cross.array, tuple(axis for axis, _ in cut))
    batch = whole.resolve(np.arange(whole.n_pieces))
    return _Part(look_up(whole, batch), tuple(splits for _, splits in cut))


def _cut_at(axis: AxisPieces, edges: Int64Array) -> tuple[AxisPieces, Int64Array]:
    """Cut pieces at edges of the output; returns them, and which lie between which edges.

    Pieces that fill 0 to 7 and 7 to 10 of the output, cut at 0, 5 and 10, fill 0 to 5, 5 to 7 and
    7 to 10; the first one lies between the first edges, and the other two between the second.
    """
    pieces = axis.pieces
    assert isinstance(pieces, SliceProjection)
    order = np.argsort(pieces.out_start, kind="stable")
    begins = pieces.out_start[order]
    end = begins[-1] + pieces.count[order[-1]]
    borders = np.union1d(begins, edges[(edges > begins[0]) & (edges < end)])
    owner = order[np.searchsorted(begins, borders, side="right") - 1]
    skipped = borders - pieces.out_start[owner]
    cut = SliceProjection(
        pieces.chunk[owner],
        pieces.start[owner] + pieces.step[owner] * skipped,
        pieces.step[owner],
        np.append(borders[1:], end) - borders,
        borders,
    )
    return AxisPieces(axis.block[owner], cut), np.searchsorted(borders, edges)


def view_identity(view: ArrayView) -> bytes:
    """What of a view the bytes of its decoded chunks depend on."""
    document = view.metadata.to_json()
    names = ("data_type", "codecs", "fill_value")
    return json.dumps([document[name] for name in names]).encode()
