"""Read selections of virtual arrays. Every read of elements ends here.

Chunks that are sent as they are stored go through `object_reader` instead.

`Reader` takes an array and a selection, plans the read, fetches the byte ranges, decodes in threads
and returns a numpy array. If a chunk cannot be read, it raises an error that no caller takes for a
missing chunk (`never_absent`).

Large results that are copied on and dropped use the same memory again (`Scratch`): new memory costs
more than filling it, because the system clears every page first.
"""

from __future__ import annotations

import itertools
import math
import os
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gridref.cache import LRU, Load
from gridref.codecs import decode_chunk
from gridref.errors import (
    DecodeError,
    GridrefError,
    InvalidRequestError,
    OverlayNotUsedWarning,
    Place,
    ReadError,
    ShortReadError,
    SourceNotAllowedError,
    SourceUnavailableError,
)
from gridref.forks import tell_in_children
from gridref.io import MAX_REQUESTS, SourcePool, is_absent, is_local
from gridref.io.context import AtHand, current_context, working
from gridref.model.array import Overlay, VirtualArray
from gridref.model.manifest import ChunkState, Source
from gridref.serve.plan import (
    LEAST_BYTES,
    LookedUp,
    PieceSet,
    PointSet,
    ReadPlan,
    look_up,
    plan_in_files,
    plan_points,
    plan_points_with_overlays,
    plan_read,
    plan_with_overlays,
    runs_of,
)
from gridref.serve.tasks import Buffer, Chunk, Task, deliver_stacked, tasks_of, together

# Errors that no reader takes for a missing chunk


@contextmanager
def never_absent() -> Iterator[None]:
    """Convert errors that Zarr readers take for a missing chunk to our own errors.

    zarr-python fills in for a ``KeyError`` or ``FileNotFoundError``, fsspec's mappers for any
    ``OSError`` of their list. Whatever raises one below a read, a filesystem, a codec or a slip of
    our own, the read has failed, and nothing is absent.

    Raises
    ------
    ReadError
        In place of a `LookupError` or `OSError` that is not ours.
    """
    try:
        yield
    except GridrefError:
        raise
    except (LookupError, OSError) as error:
        raise ReadError(f"reading failed: {type(error).__name__}: {error}") from error


# Memory for results that are copied on and dropped

KEPT_BYTES = 256 * 2**20
"""Most bytes that are kept for the next results: two super-chunks of the direct view."""
LEAST_KEPT_BYTES = 2**20
"""Smaller results are in memory of their own, which the C library keeps by itself."""


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array to be filled; nothing is ever copied into the gaps between members of a compound."""
    allocate = np.zeros if dtype.names else np.empty
    try:
        return allocate(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise _too_large(shape, dtype) from error


def _too_large(shape: Sequence[int], dtype: np.dtype[Any]) -> InvalidRequestError:
    n_bytes = math.prod(shape) * dtype.itemsize
    return InvalidRequestError(
        f"an array of shape {tuple(shape)} has {n_bytes} bytes, more than the available memory: "
        "select less of it"
    )


class Scratch:
    """Gives arrays whose memory goes to others once nothing refers to it any more. Thread-safe.

    Parameters
    ----------
    kept_bytes
        Most bytes that are kept while no array uses them.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self.kept_bytes = kept_bytes
        # Threads take and give with single operations of a deque, which need no lock: memory may
        # come back in the middle of anything.
        self._free: deque[NDArray[np.uint8]] = deque()

    @property
    def n_bytes(self) -> int:
        """Bytes that are kept now."""
        return sum(block.nbytes for block in list(self._free))

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array with anything in it, as of `numpy.empty`."""
        n_elements = math.prod(shape)
        if n_elements * dtype.itemsize < LEAST_KEPT_BYTES or dtype.kind not in "biufcmM":
            return empty(shape, dtype)
        try:
            lease: Any = _Lease(self, self._taken(n_elements * dtype.itemsize))
        except (MemoryError, ValueError) as error:
            raise _too_large(shape, dtype) from error
        return np.frombuffer(lease, dtype, n_elements).reshape(shape)

    def _taken(self, n_bytes: int) -> NDArray[np.uint8]:
        """A kept block of about the size; else a new one."""
        for _ in range(len(self._free)):
            try:
                block = self._free.popleft()
            except IndexError:  # another thread was first
                break
            if n_bytes <= block.nbytes <= 4 * n_bytes:
                return block
            self.give(block)
        return np.empty(n_bytes, np.uint8)

    def give(self, block: NDArray[np.uint8]) -> None:
        """Take a block back; those that came back first are dropped, if they are too much."""
        self._free.append(block)
        while self.n_bytes > self.kept_bytes:
            try:
                self._free.popleft()
            except IndexError:
                break


class _Lease:
    """A block of memory while arrays are in it: they keep this object alive, and it comes back."""

    __slots__ = ("_block", "_scratch")

    def __init__(self, scratch: Scratch, block: NDArray[np.uint8]) -> None:
        self._scratch, self._block = scratch, block

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self._block)

    def __del__(self) -> None:
        self._scratch.give(self._block)


scratch = Scratch()
"""That of this process."""


# The reader

RESOLVE_PIECES = 65_536
"""Pieces resolved to manifest rows at a time: bounds the memory of a plan."""
TASKS_PER_THREAD = 3
"""Tasks that a batch is cut into for each thread, if they do not get too small."""

_N_CORES = os.cpu_count() or 1


class Reader:
    """Reads selections of arrays into memory.

    Parameters
    ----------
    n_threads
        Threads that fetch and decode.
    cache_bytes
        Size of the cache of decoded chunks; 0 keeps none, which is right for large reads.
    n_requests
        Least number of threads where most of them wait for a server.
    """

    def __init__(
        self,
        ranges: SourcePool,
        *,
        n_threads: int | None = None,
        cache_bytes: int = 0,
        n_requests: int = MAX_REQUESTS,
    ) -> None:
        self.ranges = ranges
        self.n_threads = n_threads or min(32, (os.cpu_count() or 1) + 4)
        self.n_requests = n_requests
        self.cache = LRU[NDArray[Any]](cache_bytes)
        self._threads: dict[int, ThreadPoolExecutor] = {}
        self._reading: set[object] = set()
        tell_in_children(self)

    def after_fork(self) -> None:
        """Forget the threads, which do not live in a child process."""
        self._threads = {}
        self._reading = set()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_threads": {}, "_reading": set()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        tell_in_children(self)

    @never_absent()
    def read(
        self,
        array: VirtualArray,
        selection: Any = None,
        *,
        name: str | None = None,
        is_copied: bool = False,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Read a selection.

        Parameters
        ----------
        selection
            As for `gridref.serve.plan.plan_read`: orthogonal; None reads all.
        name
            Path of the array, for messages.
        is_copied
            Whether the caller copies and drops the result. Its memory is then used again.
        out
            Memory for the result: an array of its shape (before axes are dropped) and dtype.

        Returns
        -------
        numpy.ndarray
            Elements of the array's dtype, in native byte order.

        Raises
        ------
        InvalidRequestError
            For a bad selection.
        ReadError
            If an existing chunk cannot be read or decoded; names the chunk.
        """
        plan, choice = plan_with_overlays(array, selection)
        if out is not None and (out.shape, out.dtype) != (plan.shape, array.dtype):
            raise InvalidRequestError(
                f"the result has shape {plan.shape} and dtype {array.dtype}: it does not fit into"
                f" an array of shape {out.shape} and dtype {out.dtype}"
            )
        new = scratch.empty if is_copied or out is not None else empty

        def read(plan: ReadPlan, out: NDArray[Any] | None = None) -> NDArray[Any]:
            values = new(plan.shape, array.dtype) if out is None else out
            self._execute(_looked_up(plan.crosses), values, name)
            return plan.finish(values)

        if choice is None:
            return read(plan, out)
        values = self._read_or(
            choice.overlays,
            plan_in_files(array, choice.parts[: choice.n_covered]),
            partial(read, plan),
            lambda: read(plan_read(array, selection)),
        )
        if out is None:
            return values
        # Not read into it: threads may still write what comes late of an overlay that failed.
        result = plan.finish(out)
        result[...] = values
        return result

    def _read_or(
        self,
        overlays: Sequence[Overlay],
        in_files: Iterable[PieceSet],
        with_overlay: Callable[[], NDArray[Any]],
        files_alone: Callable[[], NDArray[Any]],
    ) -> NDArray[Any]:
        """Read with overlays; from the files alone if that fails, whose errors count.

        `in_files` are the pieces of files that the overlays answer for.
        """
        try:
            if overlays[0].checks_files:
                sources = _sources_of(in_files)
                self.ranges.check_all(sources, asks_servers=overlays[0].asks_servers)
            return with_overlay()
        except GridrefError as error:
            values = files_alone()
            _warn_not_used(overlays, error)
            return values

    def read_looked_up(
        self, array: VirtualArray, shape: Sequence[int], looked_up: Iterable[LookedUp[PieceSet]]
    ) -> NDArray[Any]:
        """Read a plan that was looked up before: an array of `shape`, as `read` returns it.

        Raises
        ------
        ReadError
            As `read` does.
        """
        out = scratch.empty(shape, array.dtype)
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
            As for `gridref.serve.plan.plan_points`.
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
        sets, choice = plan_points_with_overlays(array, coords)
        n_points = sum(len(points.out_index) for points in sets)

        def read(sets: Iterable[PointSet]) -> NDArray[Any]:
            out = empty((n_points,), array.dtype)
            self._execute(_looked_up(sets), out, name)
            return out

        if choice is None:
            return read(sets)
        return self._read_or(
            choice.overlays,
            (plan_points(array, part.in_files) for part in choice.parts[: choice.n_covered]),
            partial(read, sets),
            lambda: read((plan_points(array, coords),)),
        )

    def _execute(
        self, looked_up: Iterable[LookedUp[PieceSet]], out: NDArray[Any], name: str | None
    ) -> None:
        try:
            self._run_all(looked_up, out)
        except GridrefError as error:
            raise error.located(Place(variable=name)) from error.__cause__
        except (MemoryError, RuntimeError) as error:  # the latter of threads that cannot start
            if isinstance(error, RuntimeError) and "thread" not in str(error):
                raise
            raise InvalidRequestError(
                f"there is not enough memory to read {out.shape}: select less of it, or allow the"
                " process more",
                Place(variable=name),
            ) from error

    def _run_all(self, looked_up: Iterable[LookedUp[PieceSet]], out: NDArray[Any]) -> None:
        parts = iter(looked_up)
        first = next(parts, None)
        if first is None:
            return
        run = partial(self._run, out=out)
        this_read = object()
        self._reading.add(this_read)
        try:
            # Where callers' threads keep all cores busy, each does its own work, in few tasks.
            alone = len(self._reading) > _N_CORES and not _waits(first)
            n_tasks = 1 if alone else TASKS_PER_THREAD * self.n_threads
            tasks = (
                task
                for part in itertools.chain((first,), parts)
                for task in tasks_of(part, out, n_tasks, self.cache)
            )
            if alone:
                for task in tasks:
                    run(task)
            else:
                self._run_in_threads(run, tasks)
        finally:
            self._reading.discard(this_read)

    def _threads_for(self, task: Task) -> ThreadPoolExecutor:
        """Threads for decoding; more of them where most wait for a server."""
        waits = task.source is not None and not is_local(task.source.url)
        n_threads = max(self.n_requests, self.n_threads) if waits else self.n_threads
        threads = self._threads.get(n_threads)
        if threads is None:
            threads = ThreadPoolExecutor(n_threads, thread_name_prefix="gridref-read")
            self._threads[n_threads] = threads
        return threads

    def _run_in_threads(self, run: Any, tasks: Iterator[Task]) -> None:
        """Keep all threads busy, but never plan far ahead of them. The first error wins.

        A single task needs none of them.
        """
        first = next(tasks, None)
        second = next(tasks, None)
        if first is None:
            return
        if second is None:
            run(first)
            return
        if (at_hand := current_context().at_hand) is not None:
            run = partial(_run_with, at_hand, run)
        pending: list[Future[None]] = []
        try:
            for task in itertools.chain((first, second), tasks):
                pending.append(self._threads_for(task).submit(run, task))
                if len(pending) >= 2 * max(self._threads):
                    pending.pop(0).result()
            for future in pending:
                future.result()
        finally:
            for future in pending:
                future.cancel()

    def _run(self, task: Task, out: NDArray[Any]) -> None:
        rows, is_compressed = together(task)
        if len(rows) and self._delivered_stacked(task.part(rows), is_compressed, out):
            if len(rows) == len(task.members):
                return
            task = task.part(np.setdiff1d(np.arange(len(task.members)), rows))
        claimed: set[Hashable] = set()
        try:
            waiting, others = self._begin(task, claimed, out)
            if waiting:
                self._load(task, waiting, claimed, out)
        except BaseException as error:
            for key in claimed:
                self.cache.fail(key, error)
            raise
        for chunk, load in others:
            decoded = load.value()
            if decoded is None:  # what failed may have been another chunk
                self._run(task.part(np.array([chunk.row])), out)
            else:
                chunk.deliver(decoded, out)

    def _delivered_stacked(self, task: Task, is_compressed: bool, out: NDArray[Any]) -> bool:
        """Read chunks that are alike; False if one is damaged: the caller finds which."""
        stored = self._fetch(task) if is_compressed else self._fetch_together(task)
        try:
            deliver_stacked(task, stored, out)
        except DecodeError:
            return False
        return True

    def _begin(
        self, task: Task, claimed: set[Hashable], out: NDArray[Any]
    ) -> tuple[list[Chunk], list[tuple[Chunk, Load[NDArray[Any]]]]]:
        """Deliver what needs no decoding.

        Returns the chunks to decode here, and those that are kept or that another thread is
        decoding. A chunk is claimed if more of it may be wanted next.
        """
        waiting: list[Chunk] = []
        others: list[tuple[Chunk, Load[NDArray[Any]]]] = []
        for chunk in task.chunks():
            if chunk.is_whole():
                kept = self.cache.get(chunk.key)
                if kept is not None:
                    chunk.deliver(kept, out)
                elif not self._read_runs(chunk, out):
                    waiting.append(chunk)
            elif not self._read_runs(chunk, out):
                load, is_ours = self.cache.claim(chunk.key)
                if is_ours:
                    claimed.add(chunk.key)
                    waiting.append(chunk)
                else:
                    others.append((chunk, load))
        return waiting, others

    def _load(
        self, task: Task, waiting: list[Chunk], claimed: set[Hashable], out: NDArray[Any]
    ) -> None:
        """Fetch and decode chunks; what is claimed of them is kept."""
        stored = self._fetch(task, [chunk.row for chunk in waiting])
        for chunk, data in zip(waiting, stored, strict=True):
            memory = chunk.memory(out, chunk.shape) if chunk.is_whole() else None
            decoded = chunk.decode(data, memory)
            if decoded is not memory:
                chunk.deliver(decoded, out)
            if chunk.key in claimed:
                # Of what is not compressed, only this is kept; and `out` is the caller's.
                owners = (np.frombuffer(data, np.uint8), out)
                shared = any(np.may_share_memory(decoded, owner) for owner in owners)
                self.cache.finish(chunk.key, decoded.copy() if shared else decoded)
                claimed.discard(chunk.key)

    def _read_runs(self, chunk: Chunk, out: NDArray[Any]) -> bool:
        """Read no more of a large uncompressed chunk than is wanted; False if that is not so."""
        if chunk.n_bytes < LEAST_BYTES or chunk.filter_mask:
            return False
        source = chunk.task.source
        if source is None:
            return False
        runs = runs_of(chunk.encoding, chunk.shape, chunk.n_bytes, chunk.inside)
        if runs is None:
            return False
        offset = chunk.offset + runs.offset
        memory = chunk.memory(out, runs.shape) if len(offset) == 1 else None
        if memory is not None and chunk.lies_as_decoded:
            buffer = memoryview(memory.reshape(-1).view(np.uint8))
            if self.ranges.read_into(source, int(offset[0]), buffer):
                return True
        if runs.is_whole:
            return False
        try:
            parts = self.ranges.read_ranges(source, offset, np.full_like(offset, runs.n_bytes))
        except ReadError as error:
            raise error.located(chunk.place) from error.__cause__
        whole = replace(chunk.encoding, chunk_shape=runs.shape)
        chunk.put(decode_chunk(b"".join(parts), whole, runs.shape), out)
        return True

    def _fetch_together(self, task: Task) -> Sequence[Buffer]:
        """The bytes of all chunks back to back; those side by side in a file in one buffer."""
        if task.source is None:
            return self._fetch(task)
        offset, length = task.rows.offset, task.rows.length
        begins = np.flatnonzero(np.append(True, offset[1:] != offset[:-1] + length[:-1]))
        try:
            return self._read_ranges(task, offset[begins], np.add.reduceat(length, begins))
        except ShortReadError:
            return self._fetch(task)  # its error names the chunk that lacks bytes

    def _fetch(self, task: Task, wanted: Sequence[int] | None = None) -> Sequence[Buffer]:
        rows = task.rows if wanted is None else task.rows.take(np.array(wanted))
        if task.source is None:
            return [rows.inline_bytes(row) for row in range(rows.n_rows)]
        return self._read_ranges(task, rows.offset, rows.length)

    def _read_ranges(
        self, task: Task, offset: NDArray[np.int64], length: NDArray[np.int64]
    ) -> Sequence[Buffer]:
        assert task.source is not None
        try:
            return self.ranges.read_ranges(task.source, offset, length)
        except ReadError as error:
            raise error.located(task.place_at(error.place.start)) from error.__cause__


def _run_with(at_hand: AtHand | None, run: Callable[[Task], None], task: Task) -> None:
    """Run a task in another thread, with the bytes that the caller's scan kept."""
    with working(at_hand=at_hand):
        run(task)


def _waits(part: LookedUp[PieceSet]) -> bool:
    """Whether a server has to be waited for, going by one chunk of each manifest."""
    for each in part.references:
        (held,) = np.nonzero(each.rows.state == ChunkState.RANGE)
        if len(held) and not is_local(each.rows.sources[int(each.rows.source[held[0]])].url):
            return True
    return False


def _sources_of(parts: Iterable[PieceSet]) -> Iterator[Source]:
    """The files of the chunks of a plan, each once."""
    seen: set[int] = set()
    for each in _looked_up(parts):
        for references in each.references:
            rows = references.rows
            for number in np.unique(rows.source[rows.state == ChunkState.RANGE]).tolist():
                source = rows.sources[number]
                if id(source) not in seen:
                    seen.add(id(source))
                    yield source


_warned: set[str] = set()
"""Overlays that were warned of."""


def _warn_not_used(overlays: Sequence[Overlay], error: GridrefError) -> None:
    """Say once of overlays that their elements were read from the files, and why."""
    named = " or ".join(each.id for each in overlays)
    if named not in _warned:
        _warned.add(named)
        warnings.warn(
            f"overlay {named} cannot be read, so the files were read instead: {_why(error)}",
            OverlayNotUsedWarning,
            stacklevel=4,
        )


def _why(error: GridrefError) -> str:
    """What is wrong with an overlay, and what to do: other than of a file of the archive."""
    kind = type(error).__name__
    if isinstance(error, SourceNotAllowedError):
        return f"{kind}: {error}"
    if isinstance(error, SourceUnavailableError) and not is_absent(error):
        return f"an object of it cannot be reached ({kind}: {error.place})"
    what = (
        "is missing"
        if isinstance(error, SourceUnavailableError)
        else "has changed since it was written"
    )
    return f"an object of it {what}; drop the overlay, and write it again ({kind}: {error.place})"


def _looked_up(parts: Iterable[PieceSet]) -> Iterator[LookedUp[PieceSet]]:
    """Look up the stored chunks of a plan, a bounded number at a time."""
    for pieces in parts:
        for batch in pieces.batches(RESOLVE_PIECES):
            yield look_up(pieces, batch)
