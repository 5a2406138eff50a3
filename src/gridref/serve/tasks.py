"""Cut the work of a read into tasks for threads.

A `Task` has pieces of one source. Its chunks are decoded one by one, unless many of them are small
and alike: these are decoded together. Archives with a few bytes per chunk (time axes with a
chunk length of 1, for example) would otherwise spend all their time in the interpreter.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from gridref.cache import LRU
from gridref.codecs import decode_chunk, decode_together, unpack
from gridref.errors import DecodeError, Place, ReadError
from gridref.model.array import VirtualArray
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.model.projection import SliceProjection
from gridref.serve.plan import CrossProduct, LookedUp, PieceBatch, PieceSet, is_missing_block
from gridref.typing import Int64Array

# Tasks: stored chunks, and where their elements go

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
        """Where the chunks are; None if they are inline."""
        if self.rows.state[0] == ChunkState.INLINE:
            return None
        return self.rows.sources[int(self.rows.source[0])]

    def part(self, rows: NDArray[np.int64]) -> Task:
        """A task of some of the pieces."""
        return Task(self.pieces, self.batch, self.members[rows], self.rows.take(rows))

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
        """The key of the chunk in a cache."""
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

        None unless they are numbers that are side by side there, each of them once.
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
        """Whether its bytes are numbers as they are in memory."""
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
        try:
            out[self.target] = values if unpacking is None else unpack(values, unpacking)
        except (TypeError, ValueError) as error:  # the catalog of a stranger may say so
            raise _not_converted(self.encoding, out, self.place, error) from error


def _not_converted(
    encoding: Encoding, out: NDArray[Any], place: Place, error: Exception
) -> DecodeError:
    return DecodeError(
        f"stored elements of {encoding.dtype} do not become elements of {out.dtype}: {error}", place
    )


class _Identity:
    """Hashes and compares as an object itself, whatever the object's own equality.

    It does not keep the object, and differs from any that takes its place in memory.
    """

    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        self.held = weakref.ref(held)  # always the same one, as long as anybody has it

    def __hash__(self) -> int:
        return id(self.held)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.held is self.held


def _key(pieces: PieceSet, batch: PieceBatch, member: int) -> Hashable:
    array = pieces.array
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
            try:
                out[pieces.in_output(batch.piece[member])] = absent_value(array, encoding)
            except (TypeError, ValueError) as error:
                raise _not_converted(encoding, out, Place(), error) from error
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
        yield whole.part(part)


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


# Many small chunks that are alike, decoded together

LEAST_PIECES = 16
MOST_CHUNK_BYTES = 4096
"""Larger chunks gain nothing: their time goes into decoding and copying."""


def together(task: Task) -> tuple[NDArray[np.int64], bool]:
    """Rows of a task that `deliver_stacked` can take, and whether they are compressed.

    All of them are selected by slices and held by small chunks of one encoding and shape. Chunks
    that are compressed are wanted whole; the cache may keep others of them.
    """
    nothing = np.zeros(0, np.int64), False
    cross, batch, members, rows = task.pieces, task.batch, task.members, task.rows
    if len(members) < LEAST_PIECES or not _is_cut_by_slices(cross):
        return nothing
    some = members[len(members) // 2]
    encoding, shape = cross.array.encodings[int(batch.encoding[some])], batch.shape[some]
    n_bytes = int(np.prod(shape)) * encoding.dtype.itemsize
    has_array_codecs = encoding.codecs[0].name != "bytes"
    if n_bytes > MOST_CHUNK_BYTES or encoding.prefix or has_array_codecs:
        return nothing
    are = (batch.encoding[members] == batch.encoding[some]) & (batch.shape[members] == shape).all(1)
    if rows.filter_mask is not None:
        are &= rows.filter_mask == 0
    is_compressed = len(encoding.codecs) > 1
    are &= _are_whole(cross, batch, members) if is_compressed else rows.length == n_bytes
    found = np.flatnonzero(are)
    return (found, is_compressed) if len(found) >= LEAST_PIECES else nothing


def _is_cut_by_slices(pieces: PieceSet) -> TypeGuard[CrossProduct]:
    return isinstance(pieces, CrossProduct) and all(
        isinstance(axis.pieces, SliceProjection) for axis in pieces.axes
    )


def _are_whole(cross: CrossProduct, batch: PieceBatch, members: Int64Array) -> NDArray[np.bool_]:
    """Whether all of the pieces' chunks is wanted, in their order."""
    whole = np.ones(len(members), bool)
    for axis, along in enumerate(cross.axes):
        assert isinstance(along.pieces, SliceProjection)
        piece = batch.piece[members, axis]
        whole &= (along.pieces.start[piece] == 0) & (along.pieces.step[piece] == 1)
        whole &= along.pieces.count[piece] == batch.shape[members, axis]
    return whole


def deliver_stacked(task: Task, data: Sequence[bytes | memoryview], out: NDArray[Any]) -> None:
    """Decode chunks as one array with an axis in front, and copy their elements to the output.

    Parameters
    ----------
    task
        All of it is alike; see `together`.
    data
        The chunks' bytes. Those that are not compressed are back to back in any number of buffers.

    Raises
    ------
    DecodeError
        If a chunk is not what its codecs produce.
    """
    cross, batch, members = task.pieces, task.batch, task.members
    assert isinstance(cross, CrossProduct)
    encoding = cross.array.encodings[int(batch.encoding[members[0]])]
    shape = tuple(batch.shape[members[0]].tolist())
    if len(encoding.codecs) > 1:
        stacked = decode_together(data, encoding, shape)
    else:
        whole = (len(members), *shape)
        stacked = decode_chunk(b"".join(data), replace(encoding, chunk_shape=whole), whole)
    pieces = batch.piece[members]
    for alike in _alike(cross, pieces):
        values = stacked[(alike, *cross.in_chunk(pieces[alike[0]]))]
        if encoding.unpacking is not None:
            values = unpack(values, encoding.unpacking)
        out[_mesh(cross, pieces[alike])] = values


def _alike(cross: CrossProduct, pieces: Int64Array) -> list[Int64Array]:
    """Groups of pieces that take the same elements of their chunks."""
    columns = [
        column[pieces[:, axis]]
        for axis, along in enumerate(cross.axes)
        if isinstance(along.pieces, SliceProjection)
        for column in (along.pieces.start, along.pieces.step, along.pieces.count)
    ]
    if not columns:
        return [np.arange(len(pieces))]
    table = np.stack(columns, axis=1)
    if (table == table[0]).all():
        return [np.arange(len(pieces))]
    _, group = np.unique(table, axis=0, return_inverse=True)
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1)


def _mesh(cross: CrossProduct, pieces: Int64Array) -> tuple[Int64Array, ...]:
    """Places in the output of every element of alike pieces: one index array an axis."""
    ndim = len(cross.axes)
    mesh = []
    for axis, along in enumerate(cross.axes):
        assert isinstance(along.pieces, SliceProjection)
        count = int(along.pieces.count[pieces[0, axis]])
        starts = along.pieces.out_start[pieces[:, axis]]
        shape = [len(pieces)] + [1] * ndim
        shape[1 + axis] = count
        mesh.append((starts[:, np.newaxis] + np.arange(count)).reshape(shape))
    return tuple(mesh)
