"""Find the inner chunks of Zarr shards.

This module reads the index of each shard once, checks it, and returns the byte ranges of the inner
chunks in C order of the chunks.

Source: Zarr v3 ``sharding-indexed`` codec, version 1.0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gridref.codecs import decode_chunk
from gridref.errors import DecodeError, Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.chunk_files import ChunkFiles
from gridref.model.encoding import ARRAY_TO_BYTES, Codec, Encoding, transpose_codec
from gridref.model.manifest import Source
from gridref.model.shard import MISSING_CHUNK
from gridref.typing import Int64Array

_INDEX_OVERHEAD = {"bytes": 0, "crc32c": 4, "transpose": 0}


@dataclass(frozen=True)
class Chain:
    """A codec chain taken apart at its ``sharding_indexed`` codecs.

    Attributes
    ----------
    codecs
        Chain of the innermost chunks, with the transpositions around the shards before it.
    levels
        The sharding codecs, outermost first, and the order of the axes that each sees.
    chunk_shape
        Shape of the innermost chunks, along the axes of the array.
    """

    codecs: tuple[Codec, ...]
    levels: tuple[tuple[Codec, tuple[int, ...]], ...]
    chunk_shape: tuple[int, ...]


def split_chain(codecs: Sequence[Codec], chunk_shape: Sequence[int]) -> Chain:
    """Take a chain apart.

    Raises
    ------
    UnsupportedFeatureError
        If anything but a transposition is before a sharding codec, or anything after it: inner
        chunks then have no byte ranges.
    """
    order = tuple(range(len(chunk_shape)))
    levels: list[tuple[Codec, tuple[int, ...]]] = []
    shape, chain = tuple(chunk_shape), list(codecs)
    while any(codec.name == "sharding_indexed" for codec in chain):
        at = next(i for i, codec in enumerate(chain) if codec.name in ARRAY_TO_BYTES)
        if chain[at].name != "sharding_indexed" or len(chain) > at + 1:
            raise UnsupportedFeatureError("shards are compressed as a whole")
        for codec in chain[:at]:
            if codec.name != "transpose":
                raise UnsupportedFeatureError(f"the codec {codec.name} stands before sharding")
            order = tuple(order[axis] for axis in codec.configuration["order"])
        levels.append((chain[at], order))
        inner = chain[at].configuration["chunk_shape"]
        shape = tuple(int(inner[order.index(axis)]) for axis in range(len(order)))
        chain = [Codec.from_json(document) for document in chain[at].configuration["codecs"]]
    front = (transpose_codec(order),) if levels and order != tuple(range(len(order))) else ()
    return Chain((*front, *chain), tuple(levels), shape)


@dataclass(frozen=True, eq=False)
class ChunkRanges:
    """Byte ranges of chunks or shards.

    Attributes
    ----------
    source
        int64 (n,), index into `sources`; -1 for a range of `inline`.
    offset, length
        int64 (n,), the byte range.
    coords
        int64 (n, ndim), first element along each axis.
    shape
        int64 (n, ndim), shape.
    inline
        Bytes that are in the metadata themselves.
    """

    sources: tuple[Source, ...]
    source: Int64Array
    offset: Int64Array
    length: Int64Array
    coords: Int64Array
    shape: Int64Array
    inline: bytes = b""

    def place(self, number: int) -> Place:
        """The place of one of them."""
        start = int(self.offset[number])
        url = self.sources[int(self.source[number])].url
        return Place(source=url, start=start, stop=start + int(self.length[number]))


def inner_ranges(
    files: ChunkFiles, shards: ChunkRanges, codec: Codec, order: tuple[int, ...]
) -> ChunkRanges:
    """The ranges of the chunks inside shards, by one request for each shard.

    Parameters
    ----------
    files
        Reads the indexes.
    codec
        Their ``sharding_indexed`` codec.
    order
        For each axis of the codec's chunk shape, the number of the array's axis.

    Raises
    ------
    SourceFormatError
        For an index that is cut, fails its checksum, has one-sided markers of missing chunks, or
        points outside its shard.
    """
    inner: Int64Array = np.array(
        [codec.configuration["chunk_shape"][order.index(axis)] for axis in range(len(order))],
        np.int64,
    )
    index_codecs = tuple(Codec.from_json(e) for e in codec.configuration["index_codecs"])
    counts = shards.shape // inner
    size = np.prod(counts, axis=1) * 16 + _overhead(index_codecs)
    short = np.flatnonzero(shards.length < size)
    if len(short):
        raise SourceFormatError("shorter than its shard index", shards.place(int(short[0])))
    at_start = codec.configuration.get("index_location", "end") == "start"
    start = shards.offset + (0 if at_start else shards.length - size)
    sources = [shards.sources[number] for number in shards.source.tolist()]
    parts = files.read_each(sources, start, size)
    contents = [
        _entries(shards, number, data, tuple(counts[number].tolist()), index_codecs, order)
        for number, data in enumerate(parts)
    ]
    return _joined(shards, contents, inner)


def _overhead(codecs: Sequence[Codec]) -> int:
    unknown = [codec.name for codec in codecs if codec.name not in _INDEX_OVERHEAD]
    if unknown:
        raise UnsupportedFeatureError(f"shard indexes are encoded with {', '.join(unknown)}")
    return sum(_INDEX_OVERHEAD[codec.name] for codec in codecs)


def _entries(
    shards: ChunkRanges,
    number: int,
    data: bytes,
    counts: tuple[int, ...],
    codecs: tuple[Codec, ...],
    order: tuple[int, ...],
) -> tuple[Int64Array, Int64Array]:
    """Coords in the shard, and (offset, size), of the chunks that a shard holds."""
    stored = tuple(counts[axis] for axis in order)
    try:
        index = decode_chunk(data, Encoding((*stored, 2), np.dtype("u8"), codecs))
    except DecodeError as error:
        place = shards.place(number)
        raise SourceFormatError(f"bad shard index: {error.reason}", place) from error
    entries = index.transpose((*np.argsort(order), len(order))).reshape(math.prod(counts), 2)
    missing = entries == MISSING_CHUNK
    one_sided = missing[:, 0] != missing[:, 1]
    held = np.flatnonzero(~missing[:, 0] & ~missing[:, 1])
    limit = np.uint64(shards.length[number])
    offset, size = entries[held, 0], entries[held, 1]
    outside = (offset > limit) | (size > limit) | (size > limit - np.minimum(offset, limit))
    if one_sided.any() or outside.any():
        fault = "marks a chunk missing on one side" if one_sided.any() else "points outside of it"
        raise SourceFormatError(f"the shard's index {fault}", shards.place(number))
    # numpy unravels nothing into no dimensions.
    coords = (
        np.stack(np.unravel_index(held, counts), axis=1) if counts else np.empty((len(held), 0))
    )
    ranges = np.stack([offset, size], axis=1).astype(np.int64)
    return coords.astype(np.int64), ranges


def _joined(
    shards: ChunkRanges, contents: list[tuple[Int64Array, Int64Array]], inner: Int64Array
) -> ChunkRanges:
    ndim = len(inner)
    owner = np.repeat(np.arange(len(contents)), [len(coords) for coords, _ in contents])
    coords: Int64Array = np.concatenate(
        [np.zeros((0, ndim), np.int64), *(coords for coords, _ in contents)]
    )
    ranges = np.concatenate([np.zeros((0, 2), np.int64), *(ranges for _, ranges in contents)])
    return ChunkRanges(
        shards.sources,
        shards.source[owner],
        shards.offset[owner] + ranges[:, 0],
        ranges[:, 1],
        shards.coords[owner] + coords * inner,
        np.repeat(inner[np.newaxis], len(owner), axis=0),
    )
