"""The work of a read, cut into tasks for threads: stored chunks, and where their elements go."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.cache import LRU
from gridref.codecs import decode_chunk, unpack
from gridref.errors import Place, ReadError
from gridref.model.array import VirtualArray
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.serve.lookup import LookedUp
from gridref.serve.plan import PieceBatch, PieceSet, is_missing_block

__all__ = ["Buffer", "Chunk", "Task", "absent_value", "tasks_of"]

Buffer = bytes | memoryview

TASK_PIECES = 4096
"""Pieces that one thread fetches and decodes at a time, at most."""
TASK_BYTES = (256 * 2**10, 16 * 2**20)
"""Stored bytes that one thread fetches at a time: at least, where there is work for all threads,
and at most; the last chunk comes on top."""
KEPT_SHARE = 16
"""Times faster a chunk in the cache is copied than others are fetched and decoded."""
MOST_LOOKED_FOR = 1024
"""Pieces that are looked for in the cache: with more of them, that takes time itself."""


@dataclass(frozen=True, eq=False)
class Task:
    """Pieces that one thread works on: all of one source, or all inline.

    Attributes
    ----------
    pieces
        The part of the plan that they belong to.
    batch
        Some of its pieces.
    members
        int64 (n,), numbers of the task's pieces in the batch.
    rows
        The references of their stored chunks.
    """

    pieces: PieceSet
    batch: PieceBatch
    members: NDArray[np.int64]
    rows: ChunkManifest

    @property
    def source(self) -> Source | None:
        """Where the chunks lie; None if they are inline."""
        if self.rows.state[0] == ChunkState.INLINE:
            return None
        return self.rows.sources[int(self.rows.source[0])]

    def only(self, row: int) -> Task:
        """A task of one of the pieces."""
        return Task(
            self.pieces, self.batch, self.members[row : row + 1], self.rows.take(np.array([row]))
        )

    def place_at(self, start: int | None) -> Place:
        """Which stored chunk holds a byte of the source, for messages."""
        if start is None:
            return Place()
        offset = self.rows.offset
        held = np.flatnonzero((offset <= start) & (start < offset + self.rows.length))
        return next((Chunk(self, i, int(self.members[i])).place for i in held.tolist()), Place())

    def chunks(self) -> Iterator[Chunk]:
        """The stored chunks, one by one."""
        for row, member in enumerate(self.members.tolist()):
            yield Chunk(self, row, member)


class Chunk:
    """A stored chunk of a task, and the piece of it that is wanted.

    Attributes
    ----------
    row
        Its number in the task.
    encoding, shape, filter_mask
        How it is decoded.
    n_bytes
        Its stored size.
    inside
        Index of what is wanted of it.
    target
        Index of that in the output.
    """

    __slots__ = (
        "encoding", "filter_mask", "inside", "member", "n_bytes", "row", "shape", "target", "task"
    )  # fmt: skip

    def __init__(self, task: Task, row: int, member: int) -> None:
        batch, rows, piece = task.batch, task.rows, task.batch.piece[member]
        self.task, self.row, self.member = task, row, member
        self.encoding = task.pieces.array.encodings[int(batch.encoding[member])]
        self.shape: tuple[int, ...] = tuple(batch.shape[member].tolist())
        self.filter_mask = 0 if rows.filter_mask is None else int(rows.filter_mask[row])
        self.n_bytes = int(rows.length[row])
        self.inside = task.pieces.in_chunk(piece)
        self.target = task.pieces.in_output(piece)

    @property
    def key(self) -> Hashable:
        """What tells it from all other chunks, for a cache."""
        return _key(self.task.pieces, self.task.batch, self.member)

    @property
    def offset(self) -> int:
        """Its first byte in its source."""
        return int(self.task.rows.offset[self.row])

    @property
    def place(self) -> Place:
        """Which chunk it is, for messages."""
        coords = tuple(self.task.batch.chunk[self.member].tolist())
        source = self.task.source
        if source is None:
            return Place(chunk=coords)
        start = self.offset
        return Place(source=source.url, chunk=coords, start=start, stop=start + self.n_bytes)

    def memory(self, out: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any] | None:
        """The part of the output that elements of a shape can be put in as they are decoded.

        None unless they are numbers that lie side by side there, each of them once.
        """
        encoding = self.encoding
        if encoding.dtype != out.dtype or encoding.unpacking is not None:
            return None
        if not all(isinstance(along, slice) for along in self.target):
            return None
        memory = out[(*self.target, ...)]
        return memory if memory.shape == shape and memory.flags.c_contiguous else None

    def is_whole(self) -> bool:
        """Whether all of the chunk is wanted, in its order."""
        return all(
            isinstance(along, slice) and along.indices(length) == (0, length, 1)
            for along, length in zip(self.inside, self.shape, strict=True)
        )

    @property
    def lies_as_decoded(self) -> bool:
        """Whether its bytes are numbers as they lie in memory."""
        return (
            self.encoding.dtype.kind in "iufc"
            and sys.byteorder == "little"
            and self.encoding.codecs == (bytes_codec(self.encoding.dtype),)
        )

    def decode(self, data: Buffer, memory: NDArray[Any] | None) -> NDArray[Any]:
        """Decode the chunk, into memory of its shape if that can be.

        Raises
        ------
        ReadError
            Naming chunk, source and byte range.
        """
        try:
            return decode_chunk(data, self.encoding, self.shape, self.filter_mask, memory)
        except ReadError as error:
            raise error.located(self.place) from error.__cause__

    def deliver(self, decoded: NDArray[Any], out: NDArray[Any]) -> bool:
        """Copy what is wanted to the output; returns whether that was all of the chunk."""
        values = decoded[(*self.inside, ...)]  # an array, also of a single element
        self.put(values, out)
        return bool(values.size >= decoded.size)

    def put(self, values: NDArray[Any], out: NDArray[Any]) -> None:
        """Copy wanted elements to the output, unpacked and cast."""
        unpacking = self.encoding.unpacking
        out[self.target] = values if unpacking is None else unpack(values, unpacking)


class _Identity:
    """Hashes and compares as the object itself, whatever the object's own equality."""

    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        self.held = held

    def __hash__(self) -> int:
        return id(self.held)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.held is self.held


def _key(pieces: PieceSet, batch: PieceBatch, member: int) -> Hashable:
    array = pieces.array
    # The manifest itself stands in the key, so that its identity cannot be reused while cached.
    manifest = array.manifests[int(batch.manifest[member])]
    encoding = array.encodings[int(batch.encoding[member])]
    return _Identity(manifest), int(batch.row[member]), encoding


def tasks_of(
    part: LookedUp[PieceSet], out: NDArray[Any], n_tasks: int, kept: LRU[NDArray[Any]]
) -> Iterator[Task]:
    """Cut a batch into tasks, ordered by source and offset; what is missing is filled at once.

    Parameters
    ----------
    n_tasks
        How many there should be, if they do not get too small or too large.
    kept
        Decoded chunks by their `Chunk.key`.
    """
    pieces, batch, array = part.pieces, part.batch, part.pieces.array
    for member in np.flatnonzero(is_missing_block(batch)).tolist():
        out[pieces.in_output(batch.piece[member])] = array.fill_value
    for each in part.references:
        for member in each.members[each.rows.state == ChunkState.MISSING].tolist():
            encoding = array.encodings[int(batch.encoding[member])]
            out[pieces.in_output(batch.piece[member])] = absent_value(array, encoding)
        rows = each.rows
        held = np.flatnonzero(rows.state != ChunkState.MISSING)
        if rows.n_rows == len(held) == 1:
            yield Task(pieces, batch, each.members, rows)
        elif len(held):
            order = held[np.lexsort((rows.offset[held], rows.source[held], rows.state[held]))]
            whole = Task(pieces, batch, each.members[order], rows.take(order))
            yield from _cut(whole, n_tasks, kept)


def _cut(whole: Task, n_tasks: int, kept: LRU[NDArray[Any]]) -> Iterator[Task]:
    """Cut what is to be done into tasks of one source each."""
    rows = whole.rows
    group = rows.source.astype(np.int64) * 4 + rows.state
    group[rows.state == ChunkState.INLINE] = -1
    work = _work(whole, kept)
    least, most = TASK_BYTES
    task_bytes = min(max(int(work.sum()) // n_tasks, least), most)
    volume = (np.cumsum(work) - work) // task_bytes
    number = np.arange(rows.n_rows) // TASK_PIECES
    cut = np.zeros(rows.n_rows - 1, bool)
    for key in (group, volume, number):
        cut |= key[1:] != key[:-1]
    cuts = np.flatnonzero(cut) + 1
    if not len(cuts):
        yield whole
        return
    for part in np.split(np.arange(rows.n_rows), cuts):
        yield Task(whole.pieces, whole.batch, whole.members[part], rows.take(part))


def _work(whole: Task, kept: LRU[NDArray[Any]]) -> NDArray[np.int64]:
    """Stored bytes of every chunk; fewer of those in the cache, for what copying them takes."""
    length = whole.rows.length
    if not len(kept) or len(length) > MOST_LOOKED_FOR:
        return length
    members = whole.members.tolist()
    is_kept = [_key(whole.pieces, whole.batch, member) in kept for member in members]
    return np.where(is_kept, length // KEPT_SHARE, length)


def absent_value(array: VirtualArray, encoding: Encoding) -> Any:
    """What a missing chunk of a block reads as, in the array's dtype."""
    if encoding.fill is None:
        return array.fill_value
    value = np.frombuffer(encoding.fill, encoding.dtype)[:1]
    if encoding.unpacking is not None:
        value = unpack(value, encoding.unpacking)
    return value[0]
