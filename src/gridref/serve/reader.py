"""Read selections of virtual arrays: the executor behind every face of gridref."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gridref.cache import LRU
from gridref.codecs import decode_chunk, unpack
from gridref.errors import GridrefError, Place, ReadError
from gridref.forks import tell_in_children
from gridref.io import MAX_REQUESTS, is_local
from gridref.model.array import VirtualArray
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.manifest import ChunkManifest, ChunkState, Source
from gridref.serve.absence import never_absent
from gridref.serve.lookup import LookedUp, look_up
from gridref.serve.plan import PieceBatch, PieceSet, is_missing_block, plan_read
from gridref.serve.points import plan_points
from gridref.serve.runs import LEAST_BYTES, runs_of
from gridref.serve.stacking import can_stack, deliver_stacked

__all__ = ["RangeReader", "Reader"]

Buffer = bytes | memoryview

RESOLVE_PIECES = 65_536
"""Pieces resolved to manifest rows at a time: bounds the memory of a plan."""
TASK_PIECES = 4096
"""Pieces that one thread fetches and decodes at a time, at most."""
TASK_BYTES = (256 * 2**10, 16 * 2**20)
"""Stored bytes that one thread fetches at a time: at least, where there is work for all threads,
and at most; the last chunk comes on top."""
TASKS_PER_THREAD = 4
"""Tasks that a batch is cut into for each thread, if they do not get too small."""


class RangeReader(Protocol):
    """What the reader needs of the I/O layer."""

    def read_ranges(
        self, source: Source, offsets: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> Sequence[Buffer]:
        """The bytes of every range, in order; raises a `ReadError` where any cannot be had."""
        ...

    def read_into(self, source: Source, offset: int, buffer: memoryview) -> bool:
        """Fill a buffer, if that spares a copy; else False."""
        ...

    def at_hand(self, source: Source, offset: int, length: int) -> Buffer | None:
        """The bytes of one range if nothing has to be waited for; else None."""
        ...


@dataclass(frozen=True, eq=False)
class _Task:
    """Pieces that one thread works on: all of one source, or all inline."""

    pieces: PieceSet
    batch: PieceBatch
    members: NDArray[np.int64]
    rows: ChunkManifest


class Reader:
    """Reads selections of arrays into memory.

    Parameters
    ----------
    ranges
        Where bytes come from.
    n_threads
        Threads that fetch and decode.
    cache_bytes
        Size of the cache of decoded chunks; 0 keeps none, which is right for large reads.
    """

    def __init__(
        self, ranges: RangeReader, *, n_threads: int | None = None, cache_bytes: int = 0
    ) -> None:
        self.ranges = ranges
        self.n_threads = n_threads or min(32, (os.cpu_count() or 1) + 4)
        self.cache = LRU[NDArray[Any]](cache_bytes)
        self._threads: dict[int, ThreadPoolExecutor] = {}
        tell_in_children(self)

    def after_fork(self) -> None:
        """Forget the threads, which do not live in a child process."""
        self._threads = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_threads": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        tell_in_children(self)

    @never_absent()
    def read(
        self, array: VirtualArray, selection: Any = None, *, name: str | None = None
    ) -> NDArray[Any]:
        """Read a selection.

        Parameters
        ----------
        array
            The array.
        selection
            As for `gridref.serve.plan.plan_read`: orthogonal; None reads all.
        name
            Path of the array, for messages.

        Returns
        -------
        numpy.ndarray
            Elements of the array's dtype, in native byte order.

        Raises
        ------
        InvalidRequestError
            For a bad selection.
        ReadError
            Where a chunk that exists cannot be had or decoded, saying which.
        """
        plan = plan_read(array, selection)
        out = _allocate(plan.shape, array)
        self._execute(_looked_up(plan.crosses), out, name)
        return plan.finish(out)

    def read_looked_up(
        self, array: VirtualArray, shape: Sequence[int], looked_up: Iterable[LookedUp[PieceSet]]
    ) -> NDArray[Any]:
        """Read what was planned and looked up before: an array of `shape`, as `read` gives it.

        Raises
        ------
        ReadError
            As `read` does.
        """
        out = _allocate(shape, array)
        self._execute(looked_up, out, None)
        return out

    @never_absent()
    def read_points(
        self, array: VirtualArray, coords: Sequence[ArrayLike], *, name: str | None = None
    ) -> NDArray[Any]:
        """Read single points; every stored chunk that holds some is read once.

        Parameters
        ----------
        array, coords
            As for `gridref.serve.points.plan_points`.
        name
            Path of the array, for messages.

        Returns
        -------
        numpy.ndarray
            The points' elements, (n_points,).

        Raises
        ------
        InvalidRequestError, ReadError
            As `read` does.
        """
        points = plan_points(array, coords)
        out = _allocate((len(points.out_index),), array)
        self._execute(_looked_up((points,)), out, name)
        return out

    def _execute(
        self, looked_up: Iterable[LookedUp[PieceSet]], out: NDArray[Any], name: str | None
    ) -> None:
        try:
            self._run_all(looked_up, out)
        except GridrefError as error:
            raise error.located(Place(variable=name)) from error.__cause__

    def _run_all(self, looked_up: Iterable[LookedUp[PieceSet]], out: NDArray[Any]) -> None:
        tasks = (
            task
            for part in looked_up
            for task in _tasks(part, out, TASKS_PER_THREAD * self.n_threads)
        )
        run = partial(self._run, out=out)
        first = next(tasks, None)
        if first is None:
            return
        second = next(tasks, None)
        if second is None:
            run(first)
            return
        self._run_in_threads(run, _chain(first, second, tasks))

    def _threads_for(self, task: _Task) -> ThreadPoolExecutor:
        """Threads for decoding; more of them where most wait for a server."""
        waits = task.rows.state[0] == ChunkState.RANGE and not is_local(
            task.rows.sources[int(task.rows.source[0])].url
        )
        n_threads = max(MAX_REQUESTS, self.n_threads) if waits else self.n_threads
        threads = self._threads.get(n_threads)
        if threads is None:
            threads = ThreadPoolExecutor(n_threads, thread_name_prefix="gridref-read")
            self._threads[n_threads] = threads
        return threads

    def _run_in_threads(self, run: Any, tasks: Iterator[_Task]) -> None:
        """Keep all threads busy, but never plan far ahead of them. The first error wins."""
        pending: list[Future[None]] = []
        try:
            for task in tasks:
                pending.append(self._threads_for(task).submit(run, task))
                if len(pending) >= 2 * max(self._threads):
                    pending.pop(0).result()
            for future in pending:
                future.result()
        finally:
            for future in pending:
                future.cancel()

    def _run(self, task: _Task, out: NDArray[Any]) -> None:
        pieces = task.pieces
        if can_stack(pieces, task.batch, task.members, task.rows):
            stored = self._fetch(task.rows)
            deliver_stacked(pieces, task.batch, task.members, stored, out)
            return
        array = pieces.array
        waiting = []
        for row, member in enumerate(task.members.tolist()):
            decoded = self.cache.get(_cache_key(array, task.batch, member))
            if decoded is not None:
                _deliver(task, member, decoded, out)
            elif not self._read_runs(task, member, row, out):
                waiting.append((row, member))
        if not waiting:
            return
        rows = task.rows.take(np.array([row for row, _ in waiting]))
        for row, ((_, member), data) in enumerate(zip(waiting, self._fetch(rows), strict=True)):
            decoded = _decode(array, task.batch, member, rows, row, data)
            if not _deliver(task, member, decoded, out):
                # The rest may be asked for next. Of what is not compressed, only this is kept.
                shared = np.may_share_memory(decoded, np.frombuffer(data, np.uint8))
                kept = decoded.copy() if shared else decoded
                self.cache.put(_cache_key(array, task.batch, member), kept)

    def _read_runs(self, task: _Task, member: int, row: int, out: NDArray[Any]) -> bool:
        """Read no more of a large uncompressed chunk than is wanted; False if that is not so."""
        rows, batch, pieces = task.rows, task.batch, task.pieces
        if rows.length[row] < LEAST_BYTES or rows.state[row] == ChunkState.INLINE:
            return False
        encoding = pieces.array.encodings[int(batch.encoding[member])]
        shape = tuple(batch.shape[member].tolist())
        index = pieces.in_chunk(batch.piece[member])
        if rows.filter_mask is not None and rows.filter_mask[row]:
            return False
        runs = runs_of(encoding, shape, int(rows.length[row]), index)
        if runs is None:
            return False
        source = rows.sources[int(rows.source[row])]
        offset = int(rows.offset[row]) + runs.offset
        single = len(offset) == 1
        if single and self._read_in_place(task, member, source, int(offset[0]), runs.shape, out):
            return True
        if runs.is_whole:
            return False
        parts = self.ranges.read_ranges(source, offset, np.full_like(offset, runs.n_bytes))
        whole = replace(encoding, chunk_shape=runs.shape)
        values = decode_chunk(b"".join(parts), whole, runs.shape)
        out[pieces.in_output(batch.piece[member])] = _converted(values, encoding)
        return True

    def _read_in_place(
        self,
        task: _Task,
        member: int,
        source: Source,
        offset: int,
        shape: tuple[int, ...],
        out: NDArray[Any],
    ) -> bool:
        """Read elements that lie in the file as they do in the output, straight into it."""
        pieces, batch = task.pieces, task.batch
        encoding = pieces.array.encodings[int(batch.encoding[member])]
        stored_so = encoding.codecs == (bytes_codec(encoding.dtype),) and sys.byteorder == "little"
        numbers = encoding.dtype.kind in "iufc" and encoding.unpacking is None
        if not (stored_so and numbers and encoding.dtype == out.dtype):
            return False
        target = out[pieces.in_output(batch.piece[member])]
        if not np.may_share_memory(target, out) or not target.flags.c_contiguous:
            return False
        if target.shape != shape:  # one element shown several times
            return False
        buffer = memoryview(target.reshape(-1).view(np.uint8))
        return self.ranges.read_into(source, offset, buffer)

    def _fetch(self, rows: ChunkManifest) -> Sequence[Buffer]:
        if rows.state[0] == ChunkState.INLINE:
            return [rows.inline_bytes(row) for row in range(rows.n_rows)]
        source = rows.sources[int(rows.source[0])]
        return self.ranges.read_ranges(source, rows.offset, rows.length)


def _chain(first: _Task, second: _Task, rest: Iterator[_Task]) -> Iterator[_Task]:
    yield first
    yield second
    yield from rest


def _allocate(shape: Sequence[int], array: VirtualArray) -> NDArray[Any]:
    # Nothing is copied into the gaps between members of a compound.
    allocate = np.zeros if array.dtype.names else np.empty
    return allocate(shape, array.dtype)


def _looked_up(parts: Iterable[PieceSet]) -> Iterator[LookedUp[PieceSet]]:
    """Look up the stored chunks of a plan, a bounded number at a time."""
    for pieces in parts:
        for batch in pieces.batches(RESOLVE_PIECES):
            yield look_up(pieces, batch)


def _tasks(part: LookedUp[PieceSet], out: NDArray[Any], n_tasks: int) -> Iterator[_Task]:
    """Cut a batch into tasks, ordered by source and offset; what is missing is filled at once."""
    pieces, batch, array = part.pieces, part.batch, part.pieces.array
    for member in np.flatnonzero(is_missing_block(batch)).tolist():
        out[pieces.in_output(batch.piece[member])] = array.fill_value
    for each in part.references:
        for member in each.members[each.rows.state == ChunkState.MISSING].tolist():
            encoding = array.encodings[int(batch.encoding[member])]
            out[pieces.in_output(batch.piece[member])] = absent_value(array, encoding)
        yield from _sorted_tasks(pieces, batch, each.members, each.rows, n_tasks)


def _sorted_tasks(
    pieces: PieceSet,
    batch: PieceBatch,
    members: NDArray[np.int64],
    rows: ChunkManifest,
    n_tasks: int,
) -> Iterator[_Task]:
    held = np.flatnonzero(rows.state != ChunkState.MISSING)
    order = held[np.lexsort((rows.offset[held], rows.source[held], rows.state[held]))]
    if not len(order):
        return
    rows = rows.take(order)
    members = members[order]
    group = rows.source.astype(np.int64) * 4 + rows.state
    group[rows.state == ChunkState.INLINE] = -1
    least, most = TASK_BYTES
    task_bytes = min(max(int(rows.length.sum()) // n_tasks, least), most)
    volume = (np.cumsum(rows.length) - rows.length) // task_bytes
    number = np.arange(len(order)) // TASK_PIECES
    cut = np.zeros(len(order) - 1, bool)
    for key in (group, volume, number):
        cut |= key[1:] != key[:-1]
    for part in np.split(np.arange(len(order)), np.flatnonzero(cut) + 1):
        yield _Task(pieces, batch, members[part], rows.take(part))


def absent_value(array: VirtualArray, encoding: Encoding) -> Any:
    """What a missing chunk of a block reads as, in the array's dtype."""
    if encoding.fill is None:
        return array.fill_value
    value = np.frombuffer(encoding.fill, encoding.dtype)[:1]
    if encoding.unpacking is not None:
        value = unpack(value, encoding.unpacking)
    return value[0]


def _cache_key(array: VirtualArray, batch: PieceBatch, member: int) -> tuple[Any, ...]:
    # The manifest itself stands in the key, so that its identity cannot be reused while cached.
    manifest = array.manifests[int(batch.manifest[member])]
    encoding = array.encodings[int(batch.encoding[member])]
    return (_Identity(manifest), int(batch.row[member]), encoding)


class _Identity:
    """Hashes and compares as the object itself, whatever the object's own equality."""

    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        self.held = held

    def __hash__(self) -> int:
        return id(self.held)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.held is self.held


def _decode(
    array: VirtualArray,
    batch: PieceBatch,
    member: int,
    rows: ChunkManifest,
    row: int,
    data: Buffer,
) -> NDArray[Any]:
    encoding = array.encodings[int(batch.encoding[member])]
    shape = tuple(batch.shape[member].tolist())
    mask = 0 if rows.filter_mask is None else int(rows.filter_mask[row])
    try:
        return decode_chunk(data, encoding, shape, mask)
    except ReadError as error:
        raise error.located(_place(batch, member, rows, row)) from error.__cause__


def _place(batch: PieceBatch, member: int, rows: ChunkManifest, row: int) -> Place:
    chunk = tuple(batch.chunk[member].tolist())
    start = int(rows.offset[row])
    if rows.state[row] == ChunkState.INLINE:
        return Place(chunk=chunk)
    source = rows.sources[int(rows.source[row])].url
    return Place(source=source, chunk=chunk, start=start, stop=start + int(rows.length[row]))


def _deliver(task: _Task, member: int, decoded: NDArray[Any], out: NDArray[Any]) -> bool:
    """Copy a piece's elements from the decoded chunk to the output, unpacked and cast.

    Returns whether they were all of the chunk.
    """
    pieces, piece = task.pieces, task.batch.piece[member]
    values = decoded[(*pieces.in_chunk(piece), ...)]  # an array, also of a single element
    encoding = pieces.array.encodings[int(task.batch.encoding[member])]
    out[pieces.in_output(piece)] = _converted(values, encoding)
    return bool(values.size >= decoded.size)


def _converted(values: NDArray[Any], encoding: Encoding) -> NDArray[Any]:
    return values if encoding.unpacking is None else unpack(values, encoding.unpacking)
