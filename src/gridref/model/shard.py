"""Virtual shards: how inner chunks are grouped, packed and indexed. Pure.

A virtual shard consists of the payloads of its present inner chunks, back to back, and the index of
the Zarr v3 ``sharding_indexed`` codec after or before them. Its size follows from the sizes of the
payloads alone, so it is known before any payload is read.

Source: Zarr v3 ``sharding-indexed`` codec, version 1.0, section "Binary shard format".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.model.encoding import Codec
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.typing import Int64Array

MISSING_CHUNK = 2**64 - 1
"""Offset and size of an absent inner chunk."""
ENTRY_BYTES = 16
CHECKSUM_BYTES = 4


class IndexLocation(StrEnum):
    """The place of the index in a shard."""

    START = "start"
    END = "end"


INDEX_CODECS = (Codec.of("bytes", endian="little"), Codec("crc32c"))
"""Codecs of every index that gridref writes."""


def shard_axis(extent: int, chunk_length: int, edges: Sequence[int] | Int64Array) -> GridAxis:
    """The shards along an axis whose edges follow `edges`.

    The last shard is rounded up to whole chunks; where it is merely shorter than its equal
    neighbours, it gets their length, which makes the grid regular.

    Raises
    ------
    NotRepresentableError
        If an edge inside the array is not divisible by the chunk length.
    """
    lengths = np.array(edges, dtype=np.int64)
    if not len(lengths):
        return GridAxis.uniform(extent, chunk_length)
    uneven = np.flatnonzero(lengths[:-1] % chunk_length)
    if len(uneven):
        raise NotRepresentableError(
            f"an edge of {int(lengths[uneven[0]])} is not divisible by the chunk length"
            f" {chunk_length}"
        )
    lengths[-1] = -(-int(lengths[-1]) // chunk_length) * chunk_length
    if (lengths[:-1] == lengths[0]).all() and lengths[-1] <= lengths[0]:
        return GridAxis.uniform(extent, int(lengths[0]))
    return GridAxis.from_edges(lengths, extent)


@dataclass(frozen=True)
class ShardLayout:
    """Shards over a regular grid of inner chunks.

    Attributes
    ----------
    chunk_shape
        Shape of the inner chunks; every shard edge is divisible by it.

    Raises
    ------
    InvalidRequestError
        If an edge is not divisible.
    """

    grid: ChunkGrid
    chunk_shape: tuple[int, ...]
    location: IndexLocation = IndexLocation.END

    def __post_init__(self) -> None:
        for number, (axis, length) in enumerate(zip(self.grid.axes, self.chunk_shape, strict=True)):
            if (axis.run_lengths % length).any():
                raise InvalidRequestError(
                    f"shard edges {axis.to_json()} are not divisible by {length}"
                    f" (dimension {number})"
                )

    @cached_property
    def chunk_grid(self) -> ChunkGrid:
        """The grid of the inner chunks over the whole array."""
        return ChunkGrid.regular(self.grid.shape, self.chunk_shape)

    def first_chunk(self, coords: Sequence[int]) -> tuple[int, ...]:
        """Coords, in the grid of inner chunks, of a shard's first chunk."""
        return tuple(
            start // length
            for start, length in zip(self.grid.start(coords), self.chunk_shape, strict=True)
        )

    def chunks_per_shard(self, coords: Sequence[int]) -> tuple[int, ...]:
        """Number of inner chunks along each axis of a shard, those beyond the array included."""
        return tuple(
            edge // length
            for edge, length in zip(self.grid.chunk_shape(coords), self.chunk_shape, strict=True)
        )

    def codec(self, inner: Sequence[Codec]) -> Codec:
        """The ``sharding_indexed`` codec, around the codecs of the inner chunks."""
        return Codec.of(
            "sharding_indexed",
            chunk_shape=list(self.chunk_shape),
            codecs=[codec.to_json() for codec in inner],
            index_codecs=[codec.to_json() for codec in INDEX_CODECS],
            index_location=self.location.value,
        )


@dataclass(frozen=True, eq=False)
class PackedShard:
    """Payloads packed back to back, and the index with their places.

    Attributes
    ----------
    order
        int64 (n_present,), inner chunks (numbered in C order) in the order of their payloads.
    start
        int64 (n_present,), first byte of each payload, counted from the first payload.
    payload_bytes
        Size of all payloads.
    n_chunks
        Number of inner chunks, present or not.
    """

    order: Int64Array
    start: Int64Array
    payload_bytes: int
    n_chunks: int
    location: IndexLocation

    @classmethod
    def pack(
        cls, order: Int64Array, n_bytes: Int64Array, n_chunks: int, location: IndexLocation
    ) -> PackedShard:
        """Pack payloads.

        Parameters
        ----------
        order
            The present chunks, in the requested order.
        n_bytes
            Size of the payload of each of them.
        n_chunks
            Number of inner chunks, present or not.
        """
        stops = np.cumsum(n_bytes)
        total = int(stops[-1]) if len(stops) else 0
        return cls(order, stops - n_bytes, total, n_chunks, location)

    @property
    def index_bytes(self) -> int:
        """Size of the index with its checksum."""
        return ENTRY_BYTES * self.n_chunks + CHECKSUM_BYTES

    def index(self) -> NDArray[np.uint64]:
        """The index: uint64 (n_chunks, 2), offset in the shard and size of each chunk."""
        entries = np.full((self.n_chunks, 2), MISSING_CHUNK, np.uint64)
        before = self.index_bytes if self.location is IndexLocation.START else 0
        entries[self.order, 0] = (self.start + before).astype(np.uint64)
        sizes = np.diff(self.start, append=self.payload_bytes)
        entries[self.order, 1] = sizes.astype(np.uint64)
        return entries


def boxes_of_interval(
    first: int, stop: int, counts: Sequence[int]
) -> list[tuple[tuple[int, int], ...]]:
    """Cut an interval of C-order numbers into boxes.

    Parameters
    ----------
    first, stop
        Half-open interval of numbers.
    counts
        Shape of the grid that is numbered.

    Returns
    -------
    list
        Boxes, at most ``2 * ndim - 1`` of them, that hold exactly the interval's cells in order: a
        half-open interval along each axis.
    """
    if first >= stop:
        return []
    if not counts:
        return [()]
    inner = math.prod(counts[1:])
    head, low = divmod(first, inner)
    tail, high = divmod(stop, inner)
    if head == tail:
        return [((head, head + 1), *box) for box in boxes_of_interval(low, high, counts[1:])]
    boxes: list[tuple[tuple[int, int], ...]] = []
    if low:
        boxes += [((head, head + 1), *box) for box in boxes_of_interval(low, inner, counts[1:])]
        head += 1
    if head < tail:
        boxes.append(((head, tail), *((0, count) for count in counts[1:])))
    if high:
        boxes += [((tail, tail + 1), *box) for box in boxes_of_interval(0, high, counts[1:])]
    return boxes
