"""The virtual object of one shard: where its payloads lie, and its emulated index."""

from __future__ import annotations

import math

import numpy as np

from gridref.codecs import encode_chunk
from gridref.model.shard import INDEX_CODECS, IndexLocation, PackedShard, ShardLayout
from gridref.serve.decoded_pages import view_identity
from gridref.serve.presence import References, digest_of, held_below, native_references
from gridref.serve.segments import (
    DecodedRunSegment,
    LiteralSegment,
    PackedSegment,
    Segment,
    VirtualObject,
)
from gridref.serve.views import ArrayView
from gridref.typing import Int64Array

__all__ = ["shard_object"]


def shard_object(path: str, view: ArrayView, coords: tuple[int, ...]) -> VirtualObject | None:
    """What answers for a shard; None where all its chunks are missing. Reads no source.

    Parameters
    ----------
    path
        Path of the array, for messages.
    coords
        Coords of the shard, inside the grid.
    """
    layout = view.shards
    assert layout is not None
    first, counts = layout.first_chunk(coords), layout.chunks_per_shard(coords)
    inside = tuple(
        min(n, n_chunks - low)
        for low, n, n_chunks in zip(first, counts, view.chunk_grid.grid_shape, strict=True)
    )
    segment: PackedSegment | DecodedRunSegment
    if view.as_stored:
        references = native_references(view, first, inside)
        packed, segment, identity = _native(layout, references, inside, counts)
    else:
        held, content = held_below(view, first, inside)
        numbers = _shard_numbers(inside, counts)[held.reshape(-1)]
        packed, segment = _portable(view, first, counts, numbers)
        identity = digest_of(content.encode(), view_identity(view))
    if not len(packed.order):
        return None
    index = LiteralSegment(encode_chunk(packed.index(), INDEX_CODECS))
    at_start = layout.location is IndexLocation.START
    segments: tuple[Segment, ...] = (index, segment) if at_start else (segment, index)
    etag = digest_of(identity.encode(), index.data, layout.location.encode())
    return VirtualObject(segments, etag, path, coords)


def _shard_numbers(inside: tuple[int, ...], counts: tuple[int, ...]) -> Int64Array:
    """Number in the shard of each chunk that lies inside the array, in C order."""
    numbers = np.arange(math.prod(counts)).reshape(counts)
    return np.ascontiguousarray(numbers[tuple(slice(0, n) for n in inside)]).reshape(-1)


def _native(
    layout: ShardLayout, references: References, inside: tuple[int, ...], counts: tuple[int, ...]
) -> tuple[PackedShard, PackedSegment, str]:
    """Payloads in the order in which they lie in the sources."""
    held = np.flatnonzero(references.present)
    order = held[np.lexsort((references.offset[held], references.source[held]))]
    numbers = _shard_numbers(inside, counts)[order]
    length = references.length[order]
    packed = PackedShard.pack(numbers, length, math.prod(counts), layout.location)
    return packed, _runs(references, order, packed), references.identity()


def _runs(references: References, order: Int64Array, packed: PackedShard) -> PackedSegment:
    """Payloads that follow each other in a source are one run."""
    source, offset = references.source[order], references.offset[order]
    stop = offset + references.length[order]
    follows = (source[1:] == source[:-1]) & (offset[1:] == stop[:-1])
    heads = np.flatnonzero(np.concatenate([[True], ~follows])) if len(order) else order
    start = np.append(packed.start[heads], packed.payload_bytes)
    return PackedSegment(
        references.sources, references.literals, source[heads], offset[heads], start
    )


def _portable(
    view: ArrayView, first: tuple[int, ...], counts: tuple[int, ...], numbers: Int64Array
) -> tuple[PackedShard, DecodedRunSegment]:
    """Payloads in C order, all of one size."""
    assert view.shards is not None
    n_bytes = math.prod(view.shards.chunk_shape) * view.metadata.dtype.itemsize
    sizes = np.full(len(numbers), n_bytes, np.int64)
    packed = PackedShard.pack(numbers, sizes, math.prod(counts), view.shards.location)
    return packed, DecodedRunSegment(view, first, counts, numbers, n_bytes)
