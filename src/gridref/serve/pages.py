"""Plan the chunks and references of views, for a page of neighbouring chunks at a time.

A page is a box of chunks. Readers usually ask for a chunk's neighbours next, so planning a page
once is cheaper than planning each chunk.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec, Encoding, bytes_codec
from gridref.model.manifest import ChunkManifest, ChunkState
from gridref.model.projection import SliceProjection
from gridref.serve.plan import (
    AxisPieces,
    CrossProduct,
    LookedUp,
    ManifestRows,
    PieceBatch,
    identify,
    look_up,
    plan_read,
)
from gridref.serve.presence import References, digest_of, fills_differ, native_references
from gridref.serve.segments import (
    DecodedSegment,
    LiteralSegment,
    RewrappedSegment,
    SourceSegment,
    VirtualObject,
)
from gridref.serve.views import ArrayView
from gridref.typing import Int64Array

# Stored zlib chunks shown as gzip: a new wrapper, no new compression


def rewrapped(
    view: ArrayView, coords: tuple[int, ...], below: Sequence[LookedUp[CrossProduct]]
) -> RewrappedSegment | None:
    """The stored chunk behind a chunk of a portable gzip view, if only the wrapper differs.

    Only a chunk that has all of a stored chunk's elements in their order and encoding qualifies.
    What overhangs the array may differ: no reader shows it.

    Parameters
    ----------
    view
        A portable view without shards.
    coords
        Coords of the chunk, inside the grid.
    below
        The stored chunks that it is made of.

    Returns
    -------
    RewrappedSegment or None
        None where the chunk has to be encoded.
    """
    if [codec.name for codec in view.metadata.codecs] != ["bytes", "gzip"]:
        return None
    array = view.array
    if len(below) != 1 or len(below[0].batch) != 1 or not below[0].references:
        return None
    (part,) = below
    batch = part.batch
    shape = view.metadata.grid.chunk_shape(coords)
    encoding = array.encodings[int(batch.encoding[0])]
    whole = tuple(batch.shape[0].tolist()) == shape and _in_order(part.pieces, batch)
    alike = view.metadata.dtype == array.dtype
    if not whole or not alike or not _is_zlib_only(array, encoding):
        return None
    held = _held(part.references[0].rows)
    if held is None:
        return None
    n_bytes = math.prod(shape) * array.dtype.itemsize
    raw = Encoding((n_bytes,), np.dtype("u1"), (Codec("bytes"), encoding.codecs[1]))
    return RewrappedSegment(held, raw)


def _in_order(cross: CrossProduct, batch: PieceBatch) -> bool:
    """Whether a piece begins where its stored chunk does, and goes the same way."""
    return all(
        (part.start or 0) == 0 and (part.step or 1) == 1 for part in cross.in_chunk(batch.piece[0])
    )


def _is_zlib_only(array: VirtualArray, encoding: Encoding) -> bool:
    return (
        [codec.name for codec in encoding.codecs] == ["bytes", "numcodecs.zlib"]
        and encoding.codecs[0] == bytes_codec(array.dtype)
        and encoding.dtype == array.dtype
        and encoding.unpacking is None
        and not encoding.prefix
    )


def _held(row: ChunkManifest) -> SourceSegment | LiteralSegment | None:
    """The stored bytes; None where the chunk is missing or was left uncompressed."""
    masked = row.filter_mask is not None and bool(row.filter_mask[0])
    if masked or row.state[0] == ChunkState.MISSING:
        return None
    if row.state[0] == ChunkState.INLINE:
        return LiteralSegment(row.inline_bytes(0))
    return SourceSegment(row.sources[int(row.source[0])], int(row.offset[0]), int(row.length[0]))


# Pages of chunks that are decoded on the way

PIECE_BYTES = 200
"""About what the references of a piece take."""


@dataclass(frozen=True, eq=False)
class DecodedPage:
    """What a box of decoded chunks is made of.

    Attributes
    ----------
    first
        Coords of the first chunk.
    edges
        Along each axis, int64, the chunks' first elements, counted from the page's, and the end.
    lengths
        Along each axis, int64, the chunks' lengths; the last one may overhang the array.
    parts
        The stored chunks below, cut so that each piece is in one chunk.
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
        """The object for a chunk of the page; None if all below it is missing.

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
    """Cut pieces at edges of the output; returns them, and which are between which edges.

    Pieces that fill 0 to 7 and 7 to 10 of the output, cut at 0, 5 and 10, fill 0 to 5, 5 to 7 and
    7 to 10; the first one is between the first edges, and the other two between the second.
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
    """The properties of a view that the bytes of its decoded chunks depend on."""
    document = view.metadata.to_json()
    names = ("data_type", "codecs", "fill_value")
    return json.dumps([document[name] for name in names]).encode()


# Pages of references of native chunks

PAGE_CHUNKS = 256
"""Chunks of a page: enough that looking it up costs little for each of them."""
ROW_BYTES = 200
"""About what a row takes, in numbers of Python."""


PAGE_STORED_CHUNKS = 8192
"""The same for chunks that are decoded, of the stored chunks below them."""


@lru_cache(maxsize=1024)
def page_shape(grid_shape: tuple[int, ...], most: int = PAGE_CHUNKS) -> tuple[int, ...]:
    """Number of chunks of a page along each axis: whole rows in C order, as many as fit."""
    left = most
    lengths = []
    for n_chunks in reversed(grid_shape):
        lengths.append(max(1, min(n_chunks, left)))
        left //= lengths[-1]
    return tuple(reversed(lengths))


def _page_shape_of(view: ArrayView) -> tuple[int, ...]:
    most = PAGE_CHUNKS
    if not view.as_stored:
        most = max(1, min(most, PAGE_STORED_CHUNKS // view.stored_chunks_below))
    return page_shape(view.metadata.grid.grid_shape, most)


def page_coords_of(view: ArrayView, coords: tuple[int, ...]) -> tuple[int, ...]:
    """Coords of the page that holds a chunk."""
    shape = _page_shape_of(view)
    return tuple(k // n for k, n in zip(coords, shape, strict=True))


@dataclass(frozen=True, eq=False)
class ReferencePage:
    """The references of a box of chunks.

    Attributes
    ----------
    first, counts
        Coords of the first chunk, and number of chunks along each axis.
    references
        Of all chunks, in C order.
    """

    first: tuple[int, ...]
    counts: tuple[int, ...]
    references: References

    def coords(self, rows: Int64Array) -> Int64Array:
        """int64 (n, ndim), the coords of some chunks, which are numbered as in the box."""
        if not self.counts:
            return np.zeros((len(rows), 0), np.int64)
        inside = np.stack(np.unravel_index(rows, self.counts), axis=1)
        return inside + np.array(self.first, np.int64)

    @property
    def n_bytes(self) -> int:
        """About what it takes in memory."""
        return len(self.references.source) * ROW_BYTES + sum(map(len, self.references.literals))

    @cached_property
    def _rows(self) -> list[tuple[bool, int, int, int]]:
        references = self.references
        columns = (references.present, references.source, references.offset, references.length)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    @cached_property
    def _identities(self) -> list[bytes]:
        return [source.identity.encode() for source in self.references.sources]

    def chunk(self, path: str, coords: tuple[int, ...]) -> VirtualObject | None:
        """The object for a chunk of the page; None if it is missing."""
        number = 0
        for k, low, n in zip(coords, self.first, self.counts, strict=True):
            number = number * n + k - low
        present, source, offset, length = self._rows[number]
        if not present:
            return None
        if source < 0:
            data = self.references.inline_bytes(number)
            return VirtualObject((LiteralSegment(data),), digest_of(data), path, coords)
        segment = SourceSegment(self.references.sources[source], offset, length)
        etag = digest_of(self._identities[source], b"%d %d" % (offset, length))
        return VirtualObject((segment,), etag, path, coords)


def plan_page(view: ArrayView, page_coords: tuple[int, ...]) -> ReferencePage | DecodedPage:
    """Plan a page of a view without shards."""
    grid_shape = view.metadata.grid.grid_shape
    shape = _page_shape_of(view)
    first = tuple(k * n for k, n in zip(page_coords, shape, strict=True))
    counts = tuple(
        min(n, n_chunks - low) for n, n_chunks, low in zip(shape, grid_shape, first, strict=True)
    )
    if not view.as_stored:
        return decoded_page(view, first, counts)
    return ReferencePage(first, counts, native_references(view, first, counts))
