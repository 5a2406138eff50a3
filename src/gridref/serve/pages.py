"""The objects of chunks: what they consist of, which of them exist, and pages of neighbours.

A `VirtualObject` consists of segments: literal bytes, byte ranges and decoded chunks. Every segment
knows its size without I/O where that is possible. Segments of many chunks are columns: an object
costs no work per chunk in Python.

A page is a box of chunks. Readers usually ask for a chunk's neighbours next, so planning a page
once is cheaper than planning each chunk. Which chunks exist, and the ETags of their references, are
found for a box of chunks at a time, too.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from gridref.codecs import REWRAP_BYTES
from gridref.errors import Place
from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec, Encoding, bytes_codec, element_bytes
from gridref.model.manifest import ChunkManifest, ChunkState, Source
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
from gridref.serve.tasks import absent_value
from gridref.serve.views import ArrayView
from gridref.typing import Int64Array

# Segments: what objects consist of


@dataclass(frozen=True)
class LiteralSegment:
    """Bytes that are at hand."""

    data: bytes = field(repr=False)

    @property
    def n_bytes(self) -> int:
        return len(self.data)


@dataclass(frozen=True)
class SourceSegment:
    """A byte range of a source."""

    source: Source
    offset: int
    n_bytes: int


@dataclass(frozen=True, eq=False)
class PackedSegment:
    """Byte ranges of sources and of literal bytes, back to back.

    Attributes
    ----------
    sources
        The sources that `source` counts into.
    literals
        Bytes that negative numbers in `source` count into: -1 is the first.
    source
        int64 (n_runs,), where each run is.
    offset
        int64 (n_runs,), its first byte there.
    start
        int64 (n_runs + 1,), its first byte in the segment; the last entry is the segment's size.
    """

    sources: tuple[Source, ...]
    literals: tuple[bytes, ...] = field(repr=False)
    source: Int64Array
    offset: Int64Array
    start: Int64Array

    @property
    def n_bytes(self) -> int:
        return int(self.start[-1])


@dataclass(frozen=True, eq=False)
class DecodedSegment:
    """A chunk of the portable view, to be decoded and encoded on reading.

    It has `shape`, and may overhang the array. `n_bytes` is None where compression makes the size
    unknown beforehand; `below` are the stored chunks that it is made of.
    """

    view: ArrayView
    coords: tuple[int, ...]
    shape: tuple[int, ...]
    n_bytes: int | None
    below: tuple[LookedUp[CrossProduct], ...] = field(repr=False)


@dataclass(frozen=True)
class RewrappedSegment:
    """A stored zlib stream, to be made a gzip member on reading.

    Attributes
    ----------
    encoding
        Decodes it, to uint8.
    """

    held: SourceSegment | LiteralSegment
    encoding: Encoding

    @property
    def n_bytes(self) -> int:
        return self.held.n_bytes + REWRAP_BYTES


@dataclass(frozen=True, eq=False)
class DecodedRunSegment:
    """The present inner chunks of a portable shard, in C order, each of `chunk_bytes`.

    Attributes
    ----------
    first
        Coords of the shard's first inner chunk.
    counts
        Number of inner chunks along each axis of the shard.
    numbers
        int64, C-order numbers in the shard of the chunks that are present, ascending.
    chunk_bytes
        Size of each payload.
    """

    view: ArrayView
    first: tuple[int, ...]
    counts: tuple[int, ...]
    numbers: Int64Array
    chunk_bytes: int

    @property
    def n_bytes(self) -> int:
        return len(self.numbers) * self.chunk_bytes


Segment = (
    LiteralSegment
    | SourceSegment
    | PackedSegment
    | DecodedSegment
    | RewrappedSegment
    | DecodedRunSegment
)


@dataclass(frozen=True, eq=False)
class VirtualObject:
    """The object of one key.

    Attributes
    ----------
    segments
        What the object consists of, in order.
    tag
        The entity tag, or what makes it when it is asked for.
    variable
        Path of the array, for messages.
    coords
        Chunk coords, for messages.
    """

    segments: tuple[Segment, ...]
    tag: str | Callable[[], str] = field(repr=False)
    variable: str | None = None
    coords: tuple[int, ...] | None = None

    @cached_property
    def etag(self) -> str:
        """Entity tag, without quotes: equal exactly if the content is equal, as far as is known."""
        return self.tag if isinstance(self.tag, str) else self.tag()

    @property
    def n_bytes(self) -> int | None:
        """Size in bytes; None where it is known only after encoding."""
        sizes = [segment.n_bytes for segment in self.segments]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def place(self) -> Place:
        """Which array and chunk this is."""
        return Place(variable=self.variable, chunk=self.coords)


# References of chunks, and which chunks exist: for a box at a time, from the manifest alone

BoolArray = NDArray[np.bool_]

RESOLVE_PIECES = 65_536
LISTED_CHUNKS = 1 << 20
"""Chunks whose presence is looked up at a time in a listing."""


def digest_of(*parts: bytes) -> str:
    """An entity tag made of bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class References:
    """References of some chunks of a native view, in columns.

    Attributes
    ----------
    sources
        The sources in use.
    literals
        Inline bytes, which negative numbers in `source` count into: -1 is the first. Each may hold
        several chunks: see `inline_bytes`.
    source, offset, length
        int64 (n_chunks,), as in a manifest.
    present
        bool (n_chunks,), whether the chunk is there.
    """

    sources: tuple[Source, ...]
    literals: tuple[bytes, ...]
    source: Int64Array
    offset: Int64Array
    length: Int64Array
    present: BoolArray

    def inline_bytes(self, chunk: int) -> bytes:
        held = self.literals[-1 - int(self.source[chunk])]
        start = int(self.offset[chunk])
        return held[start : start + int(self.length[chunk])]

    def identity(self) -> str:
        """An entity tag of the chunks' content, as far as sources tell."""
        columns = [self.source, self.offset, self.length, self.present]
        return digest_of(
            *(source.identity.encode() for source in self.sources),
            *self.literals,
            *(column.tobytes() for column in columns),
        )


def native_references(view: ArrayView, first: Sequence[int], counts: Sequence[int]) -> References:
    """The references of a box of chunks of a native view, in C order.

    Parameters
    ----------
    first, counts
        Coords of the first chunk and number of chunks along each axis; all inside the grid.
    """
    block, row = view.locate(first, counts)
    manifest = np.where(row < 0, -1, view.array.blocks.manifest[block])
    n_chunks = len(row)
    source, offset, length = (np.zeros(n_chunks, np.int64) for _ in range(3))
    present = np.zeros(n_chunks, bool)
    sources: dict[Source, int] = {}
    literals: list[bytes] = []
    for number in np.unique(manifest[manifest >= 0]).tolist():
        members = np.flatnonzero(manifest == number)
        rows = view.array.manifests[number].take(row[members])
        source[members] = _source_numbers(rows, sources, literals)
        offset[members] = rows.offset
        length[members] = rows.length
        present[members] = rows.state != ChunkState.MISSING
    return References(tuple(sources), tuple(literals), source, offset, length, present)


def _source_numbers(
    rows: ChunkManifest, sources: dict[Source, int], literals: list[bytes]
) -> Int64Array:
    """Number each row's source in `sources` and `literals`, which grow."""
    is_range = rows.state == ChunkState.RANGE
    used = np.unique(rows.source[is_range])
    lookup = np.zeros(int(used[-1]) + 1 if len(used) else 1, np.int64)
    for number in used.tolist():
        lookup[number] = sources.setdefault(rows.sources[number], len(sources))
    result = np.zeros(rows.n_rows, np.int64)
    result[is_range] = lookup[rows.source[is_range]]
    is_inline = rows.state == ChunkState.INLINE
    if is_inline.any():
        literals.append(rows.inline)
        result[is_inline] = -len(literals)
    return result


def held_below(
    view: ArrayView, first: Sequence[int], counts: Sequence[int]
) -> tuple[BoolArray, str]:
    """Which chunks of a box of a portable view hold anything, and what identifies their content.

    A chunk is there if any stored chunk under it is, or if a missing one reads as another value
    than the array's fill value.

    Returns
    -------
    tuple
        bool array of shape `counts`, and an entity tag of the stored chunks.
    """
    axes = view.chunk_grid.axes
    starts = [
        axis.starts(np.arange(k, k + n)) for axis, k, n in zip(axes, first, counts, strict=True)
    ]
    stops = [
        start + axis.data_lengths(np.arange(k, k + n))
        for start, axis, k, n in zip(starts, axes, first, counts, strict=True)
    ]
    region = tuple(slice(int(a[0]), int(b[-1])) for a, b in zip(starts, stops, strict=True))
    origin = [part.start for part in region]
    edges = [(a - low, b - low) for a, b, low in zip(starts, stops, origin, strict=True)]
    held = np.zeros(tuple(counts), bool)
    digest = hashlib.blake2b(digest_size=16)
    for cross in plan_read(view.array, region).crosses:
        pieces = _pieces_present(cross, digest)
        box, inside = _onto_chunks(cross, pieces, edges)
        held[box] |= inside
    return held, digest.hexdigest()


def _pieces_present(cross: CrossProduct, digest: hashlib.blake2b) -> BoolArray:
    """Which pieces' stored chunks are there; what identifies them goes into the digest."""
    differs = fills_differ(cross.array)
    present = np.zeros(cross.n_pieces, bool)
    done = 0
    for batch in cross.batches(RESOLVE_PIECES):
        looked_up = look_up(cross, batch)
        identify((looked_up,), digest)
        for each in looked_up.references:
            stored = each.rows.state != ChunkState.MISSING
            present[done + each.members] = stored | differs[batch.encoding[each.members]]
        done += len(batch)
    return present.reshape(tuple(len(axis.pieces) for axis in cross.axes))


def fills_differ(array: VirtualArray) -> BoolArray:
    """Of each encoding, whether its missing chunks read as another value than the array's."""
    if array.dtype.kind == "T":
        return np.zeros(len(array.encodings), bool)
    own = element_bytes(array.fill_value, array.dtype)
    others = [
        element_bytes(absent_value(array, encoding), array.dtype) for encoding in array.encodings
    ]
    return np.array([other != own for other in others], bool)


def _onto_chunks(
    cross: CrossProduct, pieces: BoolArray, edges: Sequence[tuple[Int64Array, Int64Array]]
) -> tuple[tuple[slice, ...], BoolArray]:
    """For each chunk that a cross product touches, whether any piece on it is present.

    `edges` are first and end elements of the chunks along each axis, counted as the pieces' output.

    An example along one axis: pieces of elements 0..4, 4..6 and 6..8, and chunks of 0..5 and 5..8.
    Only the middle piece is present. The chunks touch the pieces 0 to 1 and 1 to 2. Before each
    piece there are 0, 0, 1, 1 present ones, so both chunks touch one: 1 > 0, 1 > 0.
    """
    box = []
    for number, (axis, (starts, stops)) in enumerate(zip(cross.axes, edges, strict=True)):
        assert isinstance(axis.pieces, SliceProjection)
        out_start = axis.pieces.out_start
        order = np.argsort(out_start, kind="stable")
        low = out_start[order]
        high = low + axis.pieces.count[order]
        begin = int(np.searchsorted(stops, low[0], side="right"))
        end = int(np.searchsorted(starts, high[-1], side="left"))
        box.append(slice(begin, end))
        at = np.searchsorted(high, starts[begin:end], side="right")
        until = np.searchsorted(low, stops[begin:end], side="left")
        moved = np.moveaxis(pieces, number, 0)[order]
        sums = np.zeros((len(order) + 1, *moved.shape[1:]), np.int64)
        np.cumsum(moved, axis=0, out=sums[1:])
        pieces = np.moveaxis(sums[until] > sums[at], 0, number)
    return tuple(box), pieces


def keys_present(view: ArrayView, fixed: Sequence[int] = ()) -> Iterator[tuple[int, ...]]:
    """Coords of the keys (chunks, or shards) that are there, in C order, below leading coords."""
    grid_shape = view.metadata.grid.grid_shape
    rest = grid_shape[len(fixed) :]
    if not rest:
        if _presence(view, fixed, (1,) * len(fixed)).all():
            yield tuple(fixed)
        return
    if 0 in rest:
        return
    below = math.prod(rest[1:]) * _chunks_a_key(view)
    step = max(1, LISTED_CHUNKS // max(1, below))
    for low in range(0, rest[0], step):
        count = min(step, rest[0] - low)
        first = (*fixed, low, *(0 for _ in rest[1:]))
        present = _presence(view, first, (*(1 for _ in fixed), count, *rest[1:]))
        for index in np.argwhere(present).tolist():
            yield tuple(a + b for a, b in zip(first, index, strict=True))


def _chunks_a_key(view: ArrayView) -> int:
    if view.shards is None:
        return 1
    return math.prod(
        int(axis.run_lengths.max()) // length
        for axis, length in zip(view.shards.grid.axes, view.shards.chunk_shape, strict=True)
    )


def _presence(view: ArrayView, first: Sequence[int], counts: Sequence[int]) -> BoolArray:
    """Which keys of a box are there."""
    if view.shards is None:
        return chunks_present(view, first, counts)
    ends = []
    for axis, length, chunks, k, n in zip(
        view.shards.grid.axes,
        view.shards.chunk_shape,
        view.chunk_grid.axes,
        first,
        counts,
        strict=True,
    ):
        starts = axis.starts(np.arange(k, k + n)) // length
        last = starts[-1] + int(axis.chunk_lengths(k + n - 1)) // length
        ends.append((starts, min(chunks.n_chunks, int(last))))
    chunk_first = [int(starts[0]) for starts, _ in ends]
    chunk_counts = [end - low for (_, end), low in zip(ends, chunk_first, strict=True)]
    present = chunks_present(view, chunk_first, chunk_counts)
    for number, (starts, _) in enumerate(ends):
        present = np.logical_or.reduceat(present, starts - starts[0], axis=number)
    return present


def chunks_present(view: ArrayView, first: Sequence[int], counts: Sequence[int]) -> BoolArray:
    """Which chunks (inner ones where there are shards) of a box are there."""
    if view.as_stored:
        return native_references(view, first, counts).present.reshape(tuple(counts))
    return held_below(view, first, counts)[0]


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
