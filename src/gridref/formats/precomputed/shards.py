"""Chunks of a scale in shards: files that hold many chunks each, with an index in two steps.

A chunk has a number, its id. The id, hashed or not, tells its shard and its minishard. A shard
begins with the places of the indexes of its minishards, and the index of a minishard lists ids with
the places of their chunks. `ShardManifest` reads indexes when rows are taken, and only those of
the minishards that hold the rows: a volume of millions of chunks is scanned without reading any.

Source: Neuroglancer's documentation, "Neuroglancer Precomputed Sharded Format", and "Compressed
morton code" of its volume format; MurmurHash3 by A. Appleby (x86, 128 bits).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gridref.cache import LRU, cache_bytes
from gridref.codecs.stage import decompressed
from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.chunk_files import StoreFiles, check_chunk_files
from gridref.formats.precomputed.info import Scale, Sharding, Triple
from gridref.io import SourcePool
from gridref.io.ahead import in_threads
from gridref.limits import beyond, limits
from gridref.model.manifest import ChunkManifest, ChunkState, Source

type Ids = NDArray[np.uint64]

_ENTRY_BYTES = 16
_PAGE_BITS = 12
"""The beginning of a shard is read in pieces of 64 KiB, the places of so many minishards."""
_KEPT_BYTES = 256
"""At least what an index takes in the cache."""


# From rows of a manifest to shards


def chunk_ids(grid_shape: Triple[int], rows: NDArray[np.int64]) -> Ids:
    """The compressed Morton code of chunks: bits of x, y and z in turn, without those always 0.

    Parameters
    ----------
    grid_shape
        Chunks along z, y, x.
    rows
        int64 (n,), numbers of chunks in C order of the grid.
    """
    along = [each.astype(np.uint64) for each in np.unravel_index(rows, grid_shape)[::-1]]
    ids: Ids = np.zeros(len(rows), np.uint64)
    bit = 0
    for level in range(max(grid_shape).bit_length()):
        for place, count in zip(along, grid_shape[::-1], strict=True):
            if 1 << level < count:
                ids |= (place >> np.uint64(level) & np.uint64(1)) << np.uint64(bit)
                bit += 1
    return ids


def _id_bits(grid_shape: Triple[int]) -> int:
    """Bits of the largest id."""
    return sum(max(0, count - 1).bit_length() for count in grid_shape)


def minishards(sharding: Sharding, ids: Ids) -> Ids:
    """The minishard of each id: the number of its shard, then, in the low bits, that inside it."""
    bits = sharding.minishard_bits + sharding.shard_bits
    shift = sharding.preshift_bits
    shifted = ids >> np.uint64(shift) if shift < 64 else np.zeros_like(ids)
    hashed = _murmur(shifted) if sharding.is_hashed else shifted
    return hashed & np.uint64(2**bits - 1)


def _murmur(ids: Ids) -> Ids:
    """The low 64 bits of MurmurHash3 (x86, 128 bits) of 8 bytes, with seed 0."""
    c1, c2, c3, length = map(np.uint32, (0x239B961B, 0xAB0E9789, 0x38B34AE5, 8))
    low, high = ids.astype(np.uint32), (ids >> np.uint64(32)).astype(np.uint32)
    h1 = _rotated(low * c1, 15) * c2 ^ length
    h2 = _rotated(high * c2, 16) * c3 ^ length
    h1 = h1 + h2 + length + length
    h2 = h2 + h1
    h3 = h4 = h1 + length
    h1, h2, h3, h4 = map(_mixed, (h1, h2, h3, h4))
    h1 = h1 + h2 + h3 + h4
    h2 = h2 + h1
    return h2.astype(np.uint64) << np.uint64(32) | h1


def _rotated(values: NDArray[np.uint32], n_bits: int) -> NDArray[np.uint32]:
    return values << np.uint32(n_bits) | values >> np.uint32(32 - n_bits)


def _mixed(values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    values = (values ^ values >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    values = (values ^ values >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return values ^ values >> np.uint32(16)


# The indexes


class ShardIndexes:
    """Reads indexes of minishards, and keeps those used last. Thread-safe; pickled without them.

    Parameters
    ----------
    sharding
        The parameters.
    grid_shape
        Chunks of the scale along z, y, x: no index lists more.
    """

    def __init__(self, sharding: Sharding, grid_shape: Triple[int], pool: SourcePool) -> None:
        self._sharding = sharding
        self._n_chunks = math.prod(grid_shape)
        self._largest_id = np.uint64(2 ** _id_bits(grid_shape) - 1)
        self._pool = pool
        self._begin = _ENTRY_BYTES << sharding.minishard_bits
        self._kept = LRU[Ids](cache_bytes())

    def read(self, shards: Sequence[tuple[Source, int, Ids]]) -> list[list[Ids]]:
        """Indexes of some minishards, one request after the other in each shard.

        Parameters
        ----------
        shards
            The file of each shard, its number, and the numbers of its minishards.

        Returns
        -------
        list
            By shard and minishard uint64 (3, n): ids, first bytes and sizes of the chunks.

        Raises
        ------
        SourceFormatError
            If an index is damaged.
        """
        return list(in_threads(lambda shard: self._of_shard(*shard), shards))

    def _of_shard(self, source: Source, shard: int, numbers: Ids) -> list[Ids]:
        wanted = numbers.tolist()
        found = {number: self._kept.get((shard, number)) for number in wanted}
        missing = [number for number, index in found.items() if index is None]
        places = self._places(source, shard, missing)
        filled = [number for number in missing if places[number][1]]
        starts, sizes = [places[n][0] for n in filled], [places[n][1] for n in filled]
        parts = dict(zip(filled, self._pool.read_ranges(source, starts, sizes), strict=True))
        for number in missing:
            start, size = places[number]
            place = Place(source=source.url, start=start, stop=start + size)
            index: Ids = np.zeros((3, 0), np.uint64)
            if number in parts:
                index = self._parsed(bytes(parts[number]), source, place)
                own = np.uint64(shard << self._sharding.minishard_bits | number)
                is_own = minishards(self._sharding, index[0]) == own
                if not is_own.all() or (index[0] > self._largest_id).any():
                    reason = "the index of a minishard lists a chunk that cannot be in it"
                    raise SourceFormatError(reason, place)
            found[number] = self._kept.put((shard, number), index, index.nbytes + _KEPT_BYTES)
        return [index for index in found.values() if index is not None]

    def _places(
        self, source: Source, shard: int, numbers: Sequence[int]
    ) -> dict[int, tuple[int, int]]:
        """First byte and size of the indexes of minishards."""
        size = source.size_bytes
        place = Place(source=source.url, start=0, stop=self._begin)
        if size is None or size < self._begin:
            raise SourceFormatError(f"a shard of {size} bytes ends inside of its index", place)
        pages = {
            page: self._page(source, shard, page)
            for page in {number >> _PAGE_BITS for number in numbers}
        }
        places: dict[int, tuple[int, int]] = {}
        for number in numbers:
            start, stop = pages[number >> _PAGE_BITS][number % 2**_PAGE_BITS].tolist()
            if start != stop and not start < stop <= size - self._begin:
                raise SourceFormatError("the index of a shard points outside of it", place)
            places[number] = self._begin + start, stop - start
        return places

    def _page(self, source: Source, shard: int, page: int) -> Ids:
        """uint64 (minishards, 2), begin and end of their indexes behind the index of the shard."""
        kept = self._kept.get((shard, "page", page))
        if kept is not None:
            return kept
        start = page * _ENTRY_BYTES << _PAGE_BITS
        n_bytes = min(self._begin - start, _ENTRY_BYTES << _PAGE_BITS)
        entries = np.frombuffer(self._pool.read(source, start, n_bytes), "<u8").reshape(-1, 2)
        return self._kept.put((shard, "page", page), entries, entries.nbytes + _KEPT_BYTES)

    def _parsed(self, data: bytes, source: Source, place: Place) -> Ids:
        """An index: differences of ids, gaps between chunks, and their sizes."""
        most = min(24 * self._n_chunks, limits().decoded_bytes)
        if self._sharding.has_gzip_index:
            try:
                data = decompressed(lambda: zlib.decompressobj(wbits=31), data, most)
            except (ValueError, zlib.error) as error:
                raise SourceFormatError(f"the index of a minishard: {error}", place) from error
        if len(data) % 24 or len(data) > most:
            raise SourceFormatError(f"the index of a minishard has {len(data)} bytes", place)
        ids, gaps, sizes = np.frombuffer(data, "<u8").reshape(3, -1)
        ids = np.cumsum(ids, dtype=np.uint64)
        stops = np.cumsum(gaps + sizes, dtype=np.uint64)
        room = np.uint64((source.size_bytes or 0) - self._begin)
        if ((sizes > room) | (stops > room) | (stops < sizes)).any():
            raise SourceFormatError("the index of a minishard points outside of its shard", place)
        if len(np.unique(ids)) < len(ids):
            raise SourceFormatError("the index of a minishard lists a chunk twice", place)
        return np.stack([ids, stops - sizes + np.uint64(self._begin), sizes])


# The manifest


@dataclass(frozen=True, eq=False)
class ShardManifest:
    """The chunks of a scale in shards: a `Manifest` whose rows are read on demand.

    Attributes
    ----------
    numbers
        The place of each of them in `sources`, by its number.
    grid_shape
        Chunks along z, y, x.
    sharding
        The parameters.
    """

    sources: tuple[Source, ...]
    numbers: Mapping[int, int]
    grid_shape: Triple[int]
    sharding: Sharding
    indexes: ShardIndexes

    @property
    def n_rows(self) -> int:
        return math.prod(self.grid_shape)

    @property
    def has_filter_masks(self) -> bool:
        """False: no chunk has filters switched off."""
        return False

    def with_sources(self, sources: tuple[Source, ...]) -> ShardManifest:
        """The same chunks of other files."""
        return replace(self, sources=sources)

    def take(self, rows: NDArray[np.int64]) -> ChunkManifest:
        """The given rows, in the given order, in memory.

        Raises
        ------
        SourceFormatError
            If an index is damaged.
        """
        ids = chunk_ids(self.grid_shape, np.asarray(rows, np.int64))
        source, (known, start, size) = self._held(np.unique(minishards(self.sharding, ids)))
        if not len(known):
            return ChunkManifest.missing(len(ids))
        order = np.argsort(known)
        at = order[np.minimum(np.searchsorted(known, ids, sorter=order), len(known) - 1)]
        is_there = known[at] == ids
        held = at[is_there]
        number, offset, length = (np.zeros(len(ids), np.int64) for _ in range(3))
        number[is_there], offset[is_there], length[is_there] = source[held], start[held], size[held]
        state = np.where(is_there, ChunkState.RANGE, ChunkState.MISSING)
        return ChunkManifest.from_columns(
            self.sources, source=number, offset=offset, length=length, state=state
        )

    def _held(self, used: Ids) -> tuple[NDArray[np.int64], Ids]:
        """The chunks in some minishards: numbers of their sources, and uint64 (3, n)."""
        bits = self.sharding.minishard_bits
        shards, first = np.unique(used >> np.uint64(bits), return_index=True)
        inside = np.split(used & np.uint64(2**bits - 1), first[1:])
        wanted = [
            (self.sources[number], shard, numbers)
            for shard, numbers in zip(shards.tolist(), inside, strict=True)
            if (number := self.numbers.get(shard)) is not None
        ]
        found = self.indexes.read(wanted) if wanted else []
        parts: list[Ids] = [np.zeros((3, 0), np.uint64), *(i for each in found for i in each)]
        sizes = [sum(index.shape[1] for index in each) for each in found]
        source = np.repeat([self.numbers[shard] for _, shard, _ in wanted], sizes)
        return source.astype(np.int64), np.concatenate(parts, axis=1)


def shard_manifest(files: StoreFiles, scale: Scale, sharding: Sharding) -> ShardManifest:
    """Find the shards of a scale, without reading any.

    Raises
    ------
    UnsupportedFeatureError
        If there are more chunks than the limits, or shards of the old form in two files.
    """
    n_chunks, n_bits = math.prod(scale.grid_shape), _id_bits(scale.grid_shape)
    if n_chunks > limits().chunk_rows or n_bits > 64:
        raise UnsupportedFeatureError(beyond("chunk_rows", f"it has {n_chunks} chunks"))
    found = _shards(files, scale, sharding, n_bits)
    pool = SourcePool(files.storage_options)
    return ShardManifest(
        tuple(found.values()),
        {number: place for place, number in enumerate(found)},
        scale.grid_shape,
        sharding,
        ShardIndexes(sharding, scale.grid_shape, pool),
    )


def _shards(files: StoreFiles, scale: Scale, sharding: Sharding, n_bits: int) -> dict[int, Source]:
    """The shards that are there, by number."""
    n_digits = max(1, -(-sharding.shard_bits // 4))
    found = files.listed(scale.key)
    if found is None:
        numbers = _possible(scale, sharding, n_bits)
        names = [f"{number:0{n_digits}x}" for number in numbers]
        found = files.named(scale.key, [f"{name}.shard" for name in names])
        found = found or files.named(scale.key, [f"{name}.index" for name in names])
    if any(name.endswith(".index") for name in found):
        raise UnsupportedFeatureError("its shards are of the old form, .index and .data files")
    digits = {name: name.removesuffix(".shard") for name in found if name.endswith(".shard")}
    by_number = {
        int(text, 16): found[name]
        for name, text in digits.items()
        if len(text) == n_digits and not set(text) - set("0123456789abcdef")
    }
    return {n: source for n, source in by_number.items() if not n >> sharding.shard_bits}


def _possible(scale: Scale, sharding: Sharding, n_bits: int) -> Sequence[int]:
    """The numbers of shards that chunks of the scale may be in."""
    n_chunks = math.prod(scale.grid_shape)
    left = n_bits - sharding.preshift_bits - sharding.minishard_bits
    bits = sharding.shard_bits if sharding.is_hashed else min(sharding.shard_bits, max(0, left))
    if n_chunks >> bits:
        check_chunk_files(2**bits)
        return range(2**bits)
    check_chunk_files(n_chunks)
    ids = chunk_ids(scale.grid_shape, np.arange(n_chunks))
    shards = minishards(sharding, ids) >> np.uint64(sharding.minishard_bits)
    return [int(shard) for shard in np.unique(shards)]
