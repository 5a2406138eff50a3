"""The place of every stored chunk: the source table, the chunk manifest and checksums.

A `Source` is a file as it was when it was scanned. A `ChunkManifest` has one row for each stored
chunk: its source, offset and length, or its bytes. A `RunManifest` states the places of records by
five numbers. `ChunkChecksums` holds the CRC-32C of the stored chunks of one source, and says which
of them a read must verify.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, Literal, Protocol, Self, runtime_checkable
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gridref.errors import InvalidRequestError
from gridref.model.columns import (
    WideColumn,
    condensed,
    joined_columns,
    narrowed,
    taken,
    wide,
)
from gridref.model.source_policy import SourcePolicy
from gridref.pickling import Picklable
from gridref.secrets import shown_address
from gridref.typing import Int64Array

# CRC-32C of stored chunks by their byte ranges. Pure


class KnownChecksums(Protocol):
    """Checksums of the stored chunks of one source, loaded or to be loaded."""

    def load(self) -> ChunkChecksums | None:
        """The checksums; None if there are none for this source."""
        ...


@dataclass(frozen=True, eq=False)
class ChunkChecksums(Picklable):
    """Checksums of all stored chunks of one source, by offset, then by length; each range once.

    Attributes
    ----------
    offset, length
        int64 (n,), the byte range of each chunk.
    crc32c
        uint32 (n,), CRC-32C (RFC 3720, appendix B.4) of its bytes.
    """

    offset: Int64Array
    length: Int64Array
    crc32c: NDArray[np.uint32]

    @classmethod
    def of(cls, offset: Int64Array, length: Int64Array, crc32c: NDArray[np.uint32]) -> Self:
        """Sort ranges, and drop repeated ones."""
        order = np.lexsort((length, offset))
        offset, length = offset[order], length[order]
        first = np.ones(order.size, bool)
        first[1:] = (offset[1:] != offset[:-1]) | (length[1:] != length[:-1])
        return cls(offset[first], length[first], crc32c[order][first])

    @property
    def nbytes(self) -> int:
        return self.offset.nbytes + self.length.nbytes + self.crc32c.nbytes

    def load(self) -> ChunkChecksums:
        """Itself: see `KnownChecksums`."""
        return self

    def rows_of(self, offset: Int64Array, length: Int64Array) -> Int64Array:
        """int64 (n,), the number of the chunk with exactly each range; -1 if there is none."""
        row = np.searchsorted(self.offset, offset, side="left")
        stop = np.searchsorted(self.offset, offset, side="right")
        found = np.full(row.size, -1, np.int64)
        open_ones = np.flatnonzero(row < stop)
        while open_ones.size:  # once more for each further chunk that begins at the same byte
            equal = self.length[row[open_ones]] == length[open_ones]
            found[open_ones[equal]] = row[open_ones[equal]]
            row[open_ones] += 1
            open_ones = open_ones[~equal]
            open_ones = open_ones[row[open_ones] < stop[open_ones]]
        return found

    def of_chunk(self, offset: int, length: int) -> int | None:
        """The checksum of the chunk with exactly this range; None if there is none."""
        (row,) = self.rows_of(np.array([offset]), np.array([length])).tolist()
        return int(self.crc32c[row]) if row >= 0 else None

    def rows_below(self, start: int, stop: int) -> Int64Array:
        """Numbers of the chunks that hold ``start:stop``; empty if any byte is in none of them."""
        reached = self._reached
        low = int(np.searchsorted(reached, start, side="right"))
        high = int(np.searchsorted(self.offset, stop, side="left"))
        rows = np.arange(low, high)
        rows = rows[self.offset[low:high] + self.length[low:high] > start]
        if not rows.size:
            return rows
        ends = reached[rows]
        whole = self.offset[rows[0]] <= start and ends[-1] >= stop
        return rows if whole and (self.offset[rows[1:]] <= ends[:-1]).all() else rows[:0]

    @cached_property
    def _reached(self) -> Int64Array:
        """int64 (n,), the greatest end of the chunks up to each one."""
        return np.asarray(np.maximum.accumulate(self.offset + self.length))


# The source table and the chunk manifest, as columns

type Identity = Literal["strict", "size", "content"]
"""The identity of a scanned file: size, and time of change or ETag; size alone; or size and, if
time and ETag differ, checksum."""

IDENTITIES: tuple[Identity, ...] = ("strict", "content", "size")
"""The strictest first."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file that chunk references point into, as it was when it was scanned.

    Attributes
    ----------
    url
        Absolute local path, or fsspec URL.
    size_bytes
        Size of the file; None if unknown.
    mtime_ns
        Modification time in nanoseconds since 1970 (local files); None if unknown.
    etag
        Entity tag or another version string of an object store; None if unknown.
    checksum
        Checksum of its content, as `gridref.io.identity` writes it; None if none was taken.
    told_by
        The properties that must be equal for it to be the same file.
    policy
        Decides whether it may be opened, if a catalog or references name it; None if the user
        named it. Two sources can be equal with different policies.
    chunk_checksums
        Checksums of its stored chunks, which each read verifies; None without checksums. Two
        sources can be equal with different ones.
    """

    url: str
    size_bytes: int | None = None
    mtime_ns: int | None = None
    etag: str | None = None
    checksum: str | None = None
    told_by: Identity = "strict"
    policy: SourcePolicy | None = field(default=None, compare=False, repr=False)
    chunk_checksums: KnownChecksums | None = field(default=None, compare=False, repr=False)

    @property
    def identity(self) -> str:
        """All that distinguishes it from other sources, for hashes: `repr` hides secrets."""
        described = (
            f"size_bytes={self.size_bytes!r}, mtime_ns={self.mtime_ns!r}, etag={self.etag!r}"
        )
        return f"Source(url={self.url!r}, {described})"

    def __repr__(self) -> str:
        return replace(self, url=shown_address(self.url)).identity

    def __reduce__(self) -> tuple[Any, ...]:  # ten times as fast as that of dataclasses with slots
        return Source, tuple([getattr(self, name) for name in self.__match_args__])


class ChunkState(IntEnum):
    """The state of a chunk in a row of a manifest."""

    MISSING = 0
    """The file does not hold the chunk: it reads as fill value."""
    RANGE = 1
    """A byte range of a source."""
    INLINE = 2
    """A byte range of the manifest's own `inline` bytes."""


class Manifest(Protocol):
    """Rows of chunk references, in memory or read on demand."""

    @property
    def n_rows(self) -> int: ...

    @property
    def has_filter_masks(self) -> bool:
        """Whether any chunk has filters switched off."""
        ...

    def take(self, rows: NDArray[np.int64]) -> ChunkManifest:
        """The given rows, in the given order, in memory."""
        ...


@runtime_checkable
class KnownSources(Manifest, Protocol):
    """A manifest that knows its files before any row is read."""

    @property
    def sources(self) -> tuple[Source, ...]: ...

    def with_sources(self, sources: tuple[Source, ...]) -> Manifest:
        """The same rows with other sources."""
        ...


@dataclass(frozen=True, eq=False)
class ChunkManifest:
    """Chunk references in memory: one row a stored chunk, one array a column.

    Attributes
    ----------
    sources
        The sources that `source` counts into.
    source
        int32, index of the source; meaningless unless the state is ``RANGE``.
    offset
        int64, first byte of the chunk in its source (or in `inline`). Joined manifests keep it in
        32 bits if these are enough, and widen it on each access to all rows.
    length
        int64, stored size of the chunk in bytes; kept like `offset`.
    state
        uint8, a `ChunkState`.
    filter_mask
        uint32, bit ``i`` set where the ``i``-th bytes -> bytes codec was not applied to the chunk;
        None if all codecs were applied to all chunks.

    Raises
    ------
    InvalidRequestError
        If columns differ in length. Whether rows point inside `sources` and `inline` is checked
        when files and catalogs are read: here it would cost more than most operations.
    """

    sources: tuple[Source, ...]
    source: NDArray[np.int32]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    state: NDArray[np.uint8]
    filter_mask: NDArray[np.uint32] | None = None
    inline: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        kept = vars(self)
        columns = [kept[name] for name in ("source", "offset", "length", "state")]
        if self.filter_mask is not None:
            columns.append(self.filter_mask)
        sizes = {column.shape for column in columns}
        if len(sizes) != 1 or len(self.state.shape) != 1:
            raise InvalidRequestError(f"manifest columns differ in shape: {sorted(sizes)}")

    @classmethod
    def from_columns(
        cls,
        sources: Iterable[Source],
        *,
        offset: ArrayLike,
        length: ArrayLike,
        source: ArrayLike = 0,
        state: ArrayLike = ChunkState.RANGE,
        filter_mask: ArrayLike | None = None,
        inline: bytes = b"",
    ) -> Self:
        """Build from anything array-like; scalars are repeated. A mask of zeros becomes None.

        Short columns of one number, which sibling files have in common, are shared and read-only.
        """
        offset_column = np.atleast_1d(np.asarray(offset, dtype=np.int64))
        shape = offset_column.shape

        def column(values: ArrayLike, dtype: Any) -> NDArray[Any]:
            if isinstance(values, int) and shape[0] <= _MOST_SHARED_ROWS:
                return _repeated(int(values), dtype, shape[0])
            array = np.asarray(values, dtype=dtype)
            if array.shape != shape:
                array = np.broadcast_to(array, shape)
            return np.ascontiguousarray(array)

        mask = None if filter_mask is None else column(filter_mask, np.uint32)
        if mask is not None and not mask.any():
            mask = None
        return cls(
            tuple(sources),
            column(source, np.int32),
            offset_column,
            column(length, np.int64),
            column(state, np.uint8),
            mask,
            inline,
        )

    @classmethod
    def from_inline(cls, chunks: Sequence[bytes], sources: Iterable[Source] = ()) -> Self:
        """Build a manifest whose chunks are the given bytes; nothing points into `sources`."""
        if len(chunks) == 1:
            return cls(tuple(sources), *_one_inline_row(len(chunks[0])), None, chunks[0])
        lengths = np.array([len(chunk) for chunk in chunks], dtype=np.int64)
        return cls(
            tuple(sources),
            np.zeros(len(chunks), np.int32),
            np.cumsum(lengths) - lengths,
            lengths,
            np.full(len(chunks), ChunkState.INLINE, np.uint8),
            None,
            b"".join(chunks),
        )

    @classmethod
    def missing(cls, n_rows: int) -> Self:
        """Build a manifest of `n_rows` missing chunks."""
        zeros = np.zeros(n_rows, np.int64)
        return cls.from_columns((), offset=zeros, length=zeros, state=ChunkState.MISSING)

    @classmethod
    def concatenate(cls, manifests: Sequence[ChunkManifest]) -> Self:
        """All rows of `manifests`, one after the other, with one table of sources.

        The cost grows with the number of rows; each manifest adds only entries in lists.
        """
        if not manifests:
            return cls.missing(0)
        held = [vars(manifest) for manifest in manifests]

        def parts(name: str) -> list[Any]:
            return [each[name] for each in held]

        states, inline = parts("state"), parts("inline")
        n_rows = np.fromiter(map(len, states), np.int64, len(states))
        state = joined_columns(states)
        sources, source = _joined_sources(parts("sources"), parts("source"), n_rows, state)
        offset = np.concatenate(parts("offset"))
        if any(inline):
            # After a manifest with 3 inline bytes, offsets of inline rows of the next grow by 3.
            n_inline = np.fromiter(map(len, inline), np.int64, len(inline))
            before = np.repeat(np.cumsum(n_inline) - n_inline, n_rows)
            offset = offset + np.where(state == ChunkState.INLINE, before, 0)
        key = blake2b(np.fromiter(map(id, sources), np.int64, len(sources)).data).digest()
        known = _of_sources.get(key)
        joined = cls(
            sources if known is None else known.sources,
            source,
            narrowed(offset),
            joined_columns(parts("length"), narrow=True),
            state,
            _joined_masks(parts("filter_mask"), n_rows),
            b"".join(inline),
        )
        _of_sources.setdefault(key, joined)
        return joined

    def __reduce__(self) -> tuple[Any, ...]:
        # Three times as fast as pickling small arrays; processes send many manifests.
        kept = vars(self)
        offset, length = kept["offset"], kept["length"]
        if len(offset) > _MOST_SHARED_ROWS or {offset.dtype, length.dtype} != {_INT64}:
            return ChunkManifest, tuple([kept[name] for name in self.__match_args__])
        return _of_bytes, (offset.tobytes(), length.tobytes(), {**kept, "offset": 0, "length": 0})

    @property
    def n_rows(self) -> int:
        return len(self.state)

    @property
    def has_filter_masks(self) -> bool:
        """Whether any chunk has filters switched off."""
        return self.filter_mask is not None

    @property
    def masks(self) -> NDArray[np.uint32]:
        """The filter mask of each row: 0 where all filters are on."""
        return np.zeros(self.n_rows, np.uint32) if self.filter_mask is None else self.filter_mask

    @property
    def stored_bytes(self) -> int:
        """Sum of the stored sizes of all chunks, in bytes."""
        return int(self.length[self.state != ChunkState.MISSING].sum())

    def take(self, rows: NDArray[np.int64] | slice) -> ChunkManifest:
        """The given rows, in the given order. `sources` and `inline` are shared."""
        kept, mask = vars(self), self.filter_mask
        return ChunkManifest(
            self.sources,
            self.source[rows],
            wide(kept["offset"][rows]),
            wide(taken(kept["length"], rows)),
            taken(self.state, rows),
            None if mask is None else mask[rows],
            self.inline,
        )

    def with_sources(self, sources: tuple[Source, ...]) -> ChunkManifest:
        """The same rows with other sources."""
        return ChunkManifest(**{**vars(self), "sources": sources})

    def inline_bytes(self, row: int) -> bytes:
        start = int(vars(self)["offset"][row])
        return self.inline[start : start + int(vars(self)["length"][row])]


for _name in ("offset", "length"):
    setattr(ChunkManifest, _name, WideColumn(_name))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class RunManifest:
    """Chunks of one size at equal distances in one file, as records are: no row is kept.

    Attributes
    ----------
    first
        First byte of the first chunk.
    stride
        Bytes from the beginning of a chunk to that of the next one.
    length
        Size of each chunk in bytes.
    n_rows
        Number of chunks.
    """

    sources: tuple[Source, ...]
    first: int
    stride: int
    length: int
    n_rows: int

    @property
    def has_filter_masks(self) -> bool:
        """False: no chunk has filters switched off."""
        return False

    def take(self, rows: NDArray[np.int64]) -> ChunkManifest:
        """The given rows, in the given order."""
        offset = self.first + np.asarray(rows, np.int64) * self.stride
        return ChunkManifest.from_columns(self.sources, offset=offset, length=self.length)

    def with_sources(self, sources: tuple[Source, ...]) -> RunManifest:
        """The same chunks of another source."""
        return replace(self, sources=sources)


_of_sources = WeakValueDictionary[bytes, ChunkManifest]()
"""Joined manifests by their sources: those of the same files share one table of sources."""

_MOST_SHARED_ROWS = 1024
_INT64 = np.dtype(np.int64)


def _of_bytes(offset: bytes, length: bytes, others: dict[str, Any]) -> ChunkManifest:
    """Unpickle a manifest."""
    columns = {"offset": np.frombuffer(offset, _INT64), "length": np.frombuffer(length, _INT64)}
    return ChunkManifest(**{**others, **columns})


@lru_cache(maxsize=1024)
def _repeated(value: int, dtype: Any, n_rows: int) -> NDArray[Any]:
    column = np.full(n_rows, value, dtype)
    column.flags.writeable = False
    return column


@lru_cache(maxsize=1024)
def _one_inline_row(
    length: int,
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """Columns of one inline chunk; shared by all of the same size."""
    columns = (
        np.zeros(1, np.int32),
        np.zeros(1, np.int64),
        np.full(1, length, np.int64),
        np.full(1, ChunkState.INLINE, np.uint8),
    )
    for column in columns:
        column.flags.writeable = False
    return columns


def _joined_sources(
    held: Sequence[tuple[Source, ...]],
    numbers: Sequence[NDArray[np.int32]],
    n_rows: NDArray[np.int64],
    state: NDArray[np.uint8],
) -> tuple[tuple[Source, ...], NDArray[np.int32]]:
    """The distinct sources of all manifests, and the source of every row.

    Sources [a], [b, c] and [a] listed together are [a, b, c, a]: row 1 of the second manifest, of
    its source 1, is of number 1 + 1 = 2 there, and numbers 0 and 3 both become source 0.
    """
    listed = tuple(itertools.chain.from_iterable(held))
    distinct, known = identity_numbers(listed)
    if len(listed) == len(held) and min(map(len, held)) == 1:  # the usual case: a file each
        number = np.repeat(known, n_rows)
    else:
        n_sources = np.fromiter(map(len, held), np.int64, len(held))
        in_list = np.concatenate(numbers) + np.repeat(np.cumsum(n_sources) - n_sources, n_rows)
        in_list[state != ChunkState.RANGE] = 0
        number = known[in_list] if listed else np.zeros(len(state), np.int32)
    number[state != ChunkState.RANGE] = 0
    return distinct, condensed(number)


def _joined_masks(
    masks: Sequence[NDArray[np.uint32] | None], n_rows: NDArray[np.int64]
) -> NDArray[np.uint32] | None:
    if all(mask is None for mask in masks):
        return None
    return np.concatenate(
        [
            np.zeros(n, np.uint32) if mask is None else mask
            for mask, n in zip(masks, n_rows.tolist(), strict=True)
        ]
    )


def distinct_objects[T](items: Sequence[T]) -> list[T]:
    """The objects, each one once, by identity: equal but distinct objects are all kept."""
    return list(dict(zip(map(id, items), items, strict=True)).values())


def identity_numbers[T](items: Sequence[T]) -> tuple[tuple[T, ...], NDArray[np.int32]]:
    """The distinct objects, and for each item the number of its object among them."""
    every = np.arange(len(items), dtype=np.int32)
    held = np.fromiter(map(id, items), np.int64, len(items))
    ordered = np.sort(held)
    if (ordered[1:] != ordered[:-1]).all():
        return tuple(items), every
    _, first, number = np.unique(held, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(first), np.int32)
    place[order] = every[: len(first)]
    return tuple(items[k] for k in first[order].tolist()), place[number]
