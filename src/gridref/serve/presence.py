"""List the chunks of a view that exist, and hash the references behind them, for ETags.

Both are computed for a box of chunks at a time, from the manifest alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import VirtualArray
from gridref.model.encoding import element_bytes
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.model.projection import SliceProjection
from gridref.serve.plan import CrossProduct, identify, look_up, plan_read
from gridref.serve.tasks import absent_value
from gridref.serve.views import ArrayView
from gridref.typing import Int64Array

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

    Along an axis, pieces of elements 0..4, 4..6 and 6..8, of which the middle one is present, and
    chunks of 0..5 and 5..8: the chunks touch the pieces 0 to 1 and 1 to 2. With the running number
    of present ones before each piece, 0 0 1 1, both chunks are found to touch one: 1 > 0, 1 > 0.
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
