"""Write an array as Zarr v3 objects, unit by unit as planned. A killed run can be continued.

An object appears under its name whole or not at all, and is never replaced. The same call therefore
continues a killed run: it keeps existing objects, and does not read units whose objects all exist.

A shard has the payloads of its chunks in C order, a CRC-32C of each, and the index. Readers find
payloads by the index and ignore the bytes between them. The CRC-32C are for catalogs and
others that keep references to the chunks.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import batched, chain
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.api.rewriting.plan import ENCODED_TOGETHER, RewritePlan, Unit
from gridref.api.workers import Pool, Task, told
from gridref.catalog.folder import write_errors_told
from gridref.codecs import encode_chunk
from gridref.codecs.encode import encode_bytes_codecs
from gridref.errors import (
    ChecksumError,
    InvalidRequestError,
    Message,
    Option,
    Place,
    SourceUnavailableError,
)
from gridref.io import (
    Buffer,
    RetryPolicy,
    absolute_url,
    crc32c_of,
    describe_source,
    is_absent,
    is_local,
    open_filesystem,
)
from gridref.io.ahead import DaemonThreads, map_ahead
from gridref.model.array import VirtualArray
from gridref.model.encoding import Encoding
from gridref.model.manifest import ChunkChecksums, ChunkManifest, ChunkState, Source
from gridref.model.shard import CHECKSUM_BYTES, INDEX_CODECS, IndexLocation, PackedShard
from gridref.serve.object_reader import as_shown
from gridref.serve.plan import plan_read
from gridref.serve.reader import Reader
from gridref.serve.views import ArrayView
from gridref.typing import Int64Array

# Where objects go


class Sink:
    """A place for objects. Safe for threads.

    Attributes
    ----------
    is_streamed
        Whether objects are written piece by piece; else each is in memory as a whole.
    """

    is_streamed = False

    def put(self, name: str, parts: Iterable[Buffer]) -> bool:
        """Write an object whole or not at all; False if there is one of that name, which stays.

        The memory of a part may be used again once the next one is asked for.
        """
        raise NotImplementedError

    def tail(self, name: str, n_bytes: int) -> tuple[int, bytes] | None:
        """Size of an object, and its last bytes; None if there is none."""
        raise NotImplementedError

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        raise NotImplementedError

    def merge(self, others: Sequence[Any]) -> None:
        """Take over what copies of it wrote that travelled to workers and back."""

    def clean(self) -> None:
        """Remove what killed runs were writing."""


DRAFTS = ".gridref-writing"
"""Folder, below that of the objects, of what is being written."""


class LocalSink(Sink):
    """A local folder, which is made with the first object.

    Objects that are to be `lasting` are on the disk before they have their name, so that the
    machine may fail at any moment.
    """

    is_streamed = True

    def __init__(self, folder: str, *, lasting: bool = True) -> None:
        self._folder = folder
        self._lasting = lasting
        self._drafts = os.path.join(folder, DRAFTS)

    def put(self, name: str, parts: Iterable[Buffer]) -> bool:
        path, draft = self._path(name), os.path.join(self._drafts, uuid.uuid4().hex)
        with write_errors_told("the object", path):
            os.makedirs(self._drafts, exist_ok=True)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            try:
                with open(draft, "xb") as file:
                    file.writelines(parts)
                    if self._lasting:
                        file.flush()
                        os.fsync(file.fileno())
                return _moved(draft, path)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(draft)

    def tail(self, name: str, n_bytes: int) -> tuple[int, bytes] | None:
        try:
            with open(self._path(name), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - n_bytes))
                return size, file.read(n_bytes)
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._path(name))

    def clean(self) -> None:
        """Remove what killed runs were writing, and the folder if nothing else is in it."""
        with suppress(OSError):
            for name in os.listdir(self._drafts):
                if _DRAFT.fullmatch(name):
                    os.unlink(os.path.join(self._drafts, name))
            os.rmdir(self._drafts)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, *name.split("/"))


_DRAFT = re.compile("[0-9a-f]{32}")


def _moved(draft: str, path: str) -> bool:
    """Give a file its name; False if there is one of that name, which stays."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError:  # a filesystem without links
        if os.path.lexists(path):
            return False
        os.rename(draft, path)
    return True


class RemoteSink(Sink):
    """A folder, or a common start of keys, on an fsspec filesystem."""

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self._url = url
        self._filesystem, path = open_filesystem(url, storage_options)
        self._path = path.rstrip("/")
        self._retry = RetryPolicy()

    def put(self, name: str, parts: Iterable[Buffer]) -> bool:
        if self.tail(name, 0) is not None:
            return False
        content, key = b"".join(map(bytes, parts)), self._key(name)
        self._call(lambda: self._filesystem.pipe_file(key, content))
        return True

    def tail(self, name: str, n_bytes: int) -> tuple[int, bytes] | None:
        key = self._key(name)

        def read() -> tuple[int, bytes]:
            self._filesystem.invalidate_cache()
            size = int(self._filesystem.info(key)["size"])
            start = max(0, size - n_bytes)
            if start == size:
                return size, b""
            return size, self._filesystem.cat_file(key, start=start, end=size)

        try:
            return self._call(read)
        except SourceUnavailableError as error:
            if is_absent(error):
                return None
            raise

    def remove(self, name: str) -> None:
        key = self._key(name)
        try:
            self._call(lambda: self._filesystem.rm_file(key))
        except SourceUnavailableError as error:
            if not is_absent(error):
                raise

    def _key(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _call[R](self, action: Callable[[], R]) -> R:
        return self._retry.call(action, self._url)


class MemorySink(Sink):
    """Objects in memory, by name."""

    is_streamed = True

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put(self, name: str, parts: Iterable[Buffer]) -> bool:
        return self.objects.setdefault(name, content := b"".join(map(bytes, parts))) is content

    def tail(self, name: str, n_bytes: int) -> tuple[int, bytes] | None:
        content = self.objects.get(name)
        if content is None:
            return None
        return len(content), content[max(0, len(content) - n_bytes) :]

    def remove(self, name: str) -> None:
        self.objects.pop(name, None)


def sink_at(
    url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> LocalSink | RemoteSink:
    """The sink for an address."""
    address = absolute_url(url)
    return LocalSink(address) if is_local(address) else RemoteSink(address, storage_options)


# What was written


@dataclass(frozen=True, eq=False)
class WrittenObject:
    """An object, and where the chunks in it are.

    Attributes
    ----------
    coords
        Its coords in the grid of objects.
    name, n_bytes
        Its name in the sink, and its size.
    offset, length
        int64 (n_chunks,), byte range of each chunk, in C order of the shard, those beyond the array
        included; -1 and 0 of a chunk that is not stored, because all its elements are the fill
        value.
    crc32c
        uint32 (n_chunks,), CRC-32C of their bytes; None for an object that is no shard.
    """

    coords: tuple[int, ...]
    name: str
    n_bytes: int
    offset: Int64Array
    length: Int64Array
    crc32c: NDArray[np.uint32] | None


@dataclass(frozen=True, eq=False)
class Rewritten:
    """What a run has written. An object whose chunks all hold the fill value is not there.

    Attributes
    ----------
    made, found
        Objects that this run wrote, and those that were there.
    n_decoded
        Stored chunks that it decoded, each as often as it did.
    """

    made: tuple[WrittenObject, ...]
    found: tuple[WrittenObject, ...]
    n_decoded: int

    @property
    def objects(self) -> tuple[WrittenObject, ...]:
        """All objects, in the order of their coords."""
        return tuple(sorted((*self.made, *self.found), key=lambda each: each.coords))

    @property
    def bytes_out(self) -> int:
        """Bytes that this run wrote."""
        return sum(each.n_bytes for each in self.made)


def written_array(
    view: ArrayView, objects: Iterable[WrittenObject], source_of: Callable[[WrittenObject], Source]
) -> VirtualArray:
    """What was written as an array of one block; its manifest has the chunks in C order.

    Parameters
    ----------
    view
        What was written, with shards.
    source_of
        The source of an object; it gets the checksums of its chunks.
    """
    assert view.shards is not None
    grid_shape = view.chunk_grid.grid_shape
    source = np.zeros(grid_shape, np.int32)
    offset, length = (np.zeros(grid_shape, np.int64) for _ in range(2))
    state = np.full(grid_shape, ChunkState.MISSING, np.uint8)
    sources: list[Source] = []
    for each in objects:
        inside = _chunks_inside(view, each.coords)
        box = tuple(
            slice(k, k + n)
            for k, n in zip(view.shards.first_chunk(each.coords), inside, strict=True)
        )
        held = tuple(slice(0, n) for n in inside)
        counts = view.shards.chunks_per_shard(each.coords)
        is_held = (each.offset >= 0).reshape(counts)[held]
        source[box] = len(sources)
        offset[box] = np.where(is_held, each.offset.reshape(counts)[held], 0)
        length[box] = each.length.reshape(counts)[held]
        state[box] = np.where(is_held, ChunkState.RANGE, ChunkState.MISSING)
        sources.append(source_of(each))
    manifest = ChunkManifest(
        tuple(sources), source.ravel(), offset.ravel(), length.ravel(), state.ravel()
    )
    metadata = view.metadata
    return VirtualArray.of_one_block(
        metadata.grid.shape,
        metadata.dtype,
        encoding=encoding_of(view),
        manifest=manifest,
        dims=view.array.dims,
        fill_value=metadata.fill_value,
    )


def encoding_of(view: ArrayView) -> Encoding:
    """How the chunks of what is written into shards are encoded."""
    assert view.shards is not None
    return Encoding(view.shards.chunk_shape, view.metadata.dtype, view.chunk_codecs)


def inlined(array: VirtualArray, contents: Iterable[bytes]) -> VirtualArray:
    """An array that was written with its chunks in it; `contents` are those of its sources."""
    (manifest,) = array.manifests
    assert isinstance(manifest, ChunkManifest)
    held = list(contents)
    starts = np.cumsum([0, *map(len, held)])
    is_held = manifest.state == ChunkState.RANGE
    inline = ChunkManifest(
        (),
        np.zeros_like(manifest.source),
        np.where(is_held, manifest.offset + starts[manifest.source], 0),
        manifest.length,
        np.where(is_held, ChunkState.INLINE, manifest.state).astype(np.uint8),
        inline=b"".join(held),
    )
    return array.with_changes(manifests=(inline,))


def checksums_of(written: WrittenObject) -> ChunkChecksums | None:
    """The checksums of the chunks of a shard, as a `Source` takes them."""
    if written.crc32c is None:
        return None
    held = np.flatnonzero(written.offset >= 0)
    return ChunkChecksums.of(written.offset[held], written.length[held], written.crc32c[held])


def _chunks_inside(view: ArrayView, coords: tuple[int, ...]) -> tuple[int, ...]:
    """Number of chunks of a shard along each axis that begin inside the array."""
    assert view.shards is not None
    return tuple(
        min(n, n_chunks - low)
        for low, n, n_chunks in zip(
            view.shards.first_chunk(coords),
            view.shards.chunks_per_shard(coords),
            view.chunk_grid.grid_shape,
            strict=True,
        )
    )


# Writing


def rewrite(
    plan: RewritePlan,
    reader: Reader,
    sink: Sink,
    *,
    prefix: str = "",
    path: str | None = None,
    spill: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    pool: Pool | None = None,
) -> Rewritten:
    """Write what a plan says; the same call goes on where an earlier one was killed.

    Parameters
    ----------
    reader
        Reads the sources of the array. Its threads and its cache are not used.
    sink
        Where objects go. Objects that are there must be of the same array and plan.
    prefix
        What the names of objects begin with: ``tas/``.
    path
        Path of the array, for messages.
    spill
        Local folder for intermediate files, of this rewrite alone; it must be the same one in the
        next call. Only needed if the plan has two passes.
    progress
        Called with the number of units that are done, and of all.
    pool
        Workers that write the units; None for this process. Sink and intermediate files must be
        where they reach them.

    Raises
    ------
    ReadError
        If a chunk cannot be read.
    InvalidRequestError, SourceUnavailableError
        If an object cannot be written, or workers die.
    """
    work = _Work(reader, sink, prefix, path)
    if plan.first is None:
        return work.done(plan, pool, progress)
    assert spill is not None
    return _through_files(plan, plan.first, work, spill, pool, progress)


type _Told = Callable[[int, int], None]


def _through_files(
    plan: RewritePlan,
    first: RewritePlan,
    work: _Work,
    spill: str,
    pool: Pool | None,
    progress: _Told | None,
) -> Rewritten:
    """Write intermediate files first, and what a plan says from them."""
    files = LocalSink(spill, lasting=False)

    def told(done: int, _of: int, before: int = 0) -> None:
        if progress is not None:
            progress(before + done, plan.n_steps)

    # Once all is written, the files are gone. What is not there then holds the fill value only,
    # unless somebody removed it since, or wanted the same in another place.
    noted = files.tail(_ALL_WRITTEN, 64)
    if noted is not None:
        there = work.found(plan)
        if noted[1] == _digest_of(there):
            told(plan.n_steps, plan.n_steps)
            return there
        files.remove(_ALL_WRITTEN)
    _check_room(spill, plan)
    passed = replace(work, sink=files, prefix="").done(first, pool, told)

    def source_of(each: WrittenObject) -> Source:
        source = describe_source(os.path.join(spill, each.name))
        return replace(source, chunk_checksums=checksums_of(each))

    between = written_array(first.view, passed.objects, source_of)
    second = replace(plan, view=replace(plan.view, array=between), first=None)
    try:
        done = work.done(second, pool, partial(told, before=first.n_units))
    except ChecksumError as error:  # the machine may have failed before a file was on the disk
        for each in passed.objects:
            files.remove(each.name)
        reason = "an intermediate file was damaged, and all were removed: the same call goes on"
        raise ChecksumError(reason, error.place) from error
    files.put(_ALL_WRITTEN, [_digest_of(done)])
    for each in passed.objects:
        files.remove(each.name)
    files.clean()
    return replace(done, n_decoded=passed.n_decoded)


def _digest_of(done: Rewritten) -> bytes:
    """A digest of the names of all objects."""
    return hashlib.sha256("\n".join(e.name for e in done.objects).encode()).hexdigest().encode()


def own_folder(name: str) -> str:
    """A folder of this user for intermediate files, in the system's one for temporary files.

    Raises
    ------
    InvalidRequestError
        If somebody else made it: what is in it could be anything.
    """
    user = os.getuid() if hasattr(os, "getuid") else None
    path = os.path.join(tempfile.gettempdir(), f"gridref-spill-{'' if user is None else user}")
    with write_errors_told("the folder for intermediate files", path):
        os.makedirs(path, 0o700, exist_ok=True)
        held = os.lstat(path)
    if stat.S_ISLNK(held.st_mode) or user not in (None, held.st_uid) or held.st_mode & 0o022:
        raise InvalidRequestError(
            "the folder for intermediate files belongs to another user, or others may write to it:"
            " remove it, or set TMPDIR to another folder",
            Place(source=path),
        )
    return os.path.join(path, name)


_ALL_WRITTEN = "all-written"
"""A file that says which objects were written; it takes the place of intermediate files."""


def _check_room(spill: str, plan: RewritePlan) -> None:
    """Refuse to begin where there is no room for intermediate files: all elements."""
    os.makedirs(spill, exist_ok=True)
    held = sum(entry.stat().st_size for entry in os.scandir(spill) if entry.is_file())
    needed, free = plan.view.array.nbytes - held, shutil.disk_usage(spill).free
    if free < needed:
        raise InvalidRequestError(
            Message(
                f"{free // 10**6} MB are free, and intermediate files take up to"
                f" {needed // 10**6} MB: make room, name another folder (",
                Option("spill"),
                ", or TMPDIR), or give more ",
                Option("memory"),
            ),
            Place(source=spill),
        )


@dataclass(frozen=True, eq=False)
class _Work:
    """What writes the units of one pass, here or on workers, to which it travels."""

    reader: Reader
    sink: Sink
    prefix: str
    path: str | None

    def done(self, plan: RewritePlan, pool: Pool | None, progress: _Told | None) -> Rewritten:
        """Write all units of a pass. Each worker writes the objects of its units."""
        if pool is None:
            return self.of(plan, plan.units(), progress)
        parts: list[Rewritten] = []
        sinks: list[Sink] = []
        n_workers, executor = pool
        done_ahead = map_ahead(executor, partial(self.unit, plan), plan.units(), 2 * n_workers)
        for number in range(1, plan.n_units + 1):
            with told(task=_WRITING):
                part, written = next(done_ahead)
            parts.append(part)
            sinks.append(written)
            if progress is not None:
                progress(number, plan.n_units)
        self.sink.merge(sinks)
        return Rewritten(
            tuple(each for part in parts for each in part.made),
            tuple(each for part in parts for each in part.found),
            sum(part.n_decoded for part in parts),
        )

    def found(self, plan: RewritePlan) -> Rewritten:
        """The objects of a plan that are there."""
        writer = ObjectWriter(plan, self.reader, self.sink, self.prefix, self.path)
        for unit in plan.units():
            writer.look_for(unit)
        return writer.written()

    def unit(self, plan: RewritePlan, unit: Unit) -> tuple[Rewritten, Sink]:
        """Write one unit; return the sink with what was written."""
        return self.of(plan, [unit], None), self.sink

    def of(self, plan: RewritePlan, units: Iterable[Unit], progress: _Told | None) -> Rewritten:
        """Write units in this process."""
        writer = ObjectWriter(plan, self.reader, self.sink, self.prefix, self.path)
        with DaemonThreads(plan.n_threads) as encoders:

            def put(unit: Unit, values: NDArray[Any], coords: tuple[int, ...]) -> None:
                # All threads encode, however few objects are written at a time.
                n_writers = min(plan.n_threads, math.prod(unit.counts))
                n_ahead = -(-(plan.n_threads + 1) // n_writers)  # few chunks wait for a writer
                encoded = partial(map_ahead, encoders, n_ahead=n_ahead)
                writer.put(coords, values[writer.inside(unit, coords)], encoded)

            write_units(plan, units, writer.read, put, progress)
        return writer.written()


_WRITING = Task("wrote", "part of the array", "The same call goes on")


def write_units(
    plan: RewritePlan,
    units: Iterable[Unit],
    read: Callable[[tuple[int, Unit]], tuple[Unit, NDArray[Any] | None]],
    put: Callable[[Unit, NDArray[Any], tuple[int, ...]], None],
    progress: Callable[[int, int], None] | None,
) -> None:
    """Read units, each while the objects of the one before are written.

    Parameters
    ----------
    read
        Gives the elements of a numbered unit; None if there is nothing to write.
    put
        Writes an object of a unit, in one of several threads.
    """
    with DaemonThreads(1) as ahead, DaemonThreads(plan.n_threads) as writers:
        for done, (unit, values) in enumerate(map_ahead(ahead, read, enumerate(units), 2), 1):
            if values is not None:
                put_one = partial(put, unit, values)
                for _ in map_ahead(writers, put_one, list(unit.objects()), 2 * plan.n_threads):
                    pass
                del put_one
            del values  # the memory is for the unit that is read next
            if progress is not None:
                progress(done, plan.n_units)


type _Encoded = Callable[..., Iterator[list[Buffer | None]]]
"""Encodes the chunks of an object, some at a time: `map`, or what does it in threads."""


class ObjectWriter:
    """A rewrite under way; the reader's own threads and cache are not used."""

    def __init__(
        self, plan: RewritePlan, reader: Reader, sink: Sink, prefix: str, path: str | None
    ) -> None:
        self.view = plan.view
        self.reader = Reader(reader.ranges, n_threads=plan.n_threads, n_requests=plan.n_requests)
        self.sink, self.prefix, self.path = sink, prefix, path
        self.found: dict[tuple[int, ...], WrittenObject] = {}
        self.made: dict[tuple[int, ...], WrittenObject] = {}
        self.n_decoded = 0
        self._serial, *self._codecs = self.view.chunk_codecs
        metadata = self.view.metadata
        # Chunks of texts of any length are always stored.
        fill = np.full(1, metadata.fill_value, metadata.dtype)
        self._fill = b"" if metadata.dtype.kind == "T" else encode_chunk(fill, (self._serial,))
        is_plain = self.view.array.dtype.kind in "biufcmM"
        self._is_copied = is_plain and sys.byteorder == "little"
        self._scratch = threading.local()
        n_buffers = min(2, plan.n_units) if is_plain else 0
        self._buffers = [np.empty(plan.unit_bytes, np.uint8) for _ in range(n_buffers)]

    def read(self, numbered: tuple[int, Unit]) -> tuple[Unit, NDArray[Any] | None]:
        """Read a unit into one of two buffers by turns; None if all its objects are there."""
        number, unit = numbered
        return unit, None if self.look_for(unit) else self.values(number, unit)

    def look_for(self, unit: Unit) -> bool:
        """Note as found which objects of a unit are there; return whether all of them are."""
        held = {coords: self._held(coords) for coords in unit.objects()}
        self.found |= {coords: each for coords, each in held.items() if each is not None}
        return None not in held.values()

    def values(self, number: int, unit: Unit) -> NDArray[Any]:
        """The elements of a unit, in the buffer that units of such numbers have."""
        array, out = self.view.array, None
        if self._buffers:
            n_bytes = math.prod(unit.shape) * array.dtype.itemsize
            out = self._buffers[number % 2][:n_bytes].view(array.dtype).reshape(unit.shape)
        self.n_decoded += sum(cross.n_pieces for cross in plan_read(array, unit.region).crosses)
        return self.reader.read(array, unit.region, name=self.path, out=out)

    def inside(self, unit: Unit, coords: tuple[int, ...]) -> tuple[slice | EllipsisType, ...]:
        """Where the elements of an object are in those of its unit."""
        grid = self.view.metadata.grid
        # With "..." numpy leaves a single element in its array, and so as long as it is.
        return (
            *(
                slice(start - part.start, start - part.start + n)
                for start, n, part in zip(
                    grid.start(coords), grid.data_shape(coords), unit.region, strict=True
                )
            ),
            ...,
        )

    def put(self, coords: tuple[int, ...], values: NDArray[Any], encoded: _Encoded = map) -> None:
        """Write an object with these elements, if it is not there."""
        if coords in self.found:
            return
        name = self._name(coords)
        entries = _Entries(self._n_chunks(coords))
        parts = self._parts(coords, values, entries, encoded)
        first = next(parts, None)
        if first is None:
            return
        if self.sink.put(name, chain((first,), parts)):
            self.made[coords] = entries.written(coords, name, self.view.shards is not None)
            return
        held = self._held(coords)  # another process was first
        if held is not None:
            self.found[coords] = held

    def written(self) -> Rewritten:
        """What there is at the end."""
        return Rewritten((*self.made.values(),), (*self.found.values(),), self.n_decoded)

    def _name(self, coords: tuple[int, ...]) -> str:
        return self.prefix + self.view.metadata.chunk_key(coords)

    def _n_chunks(self, coords: tuple[int, ...]) -> int:
        shards = self.view.shards
        return 1 if shards is None else math.prod(shards.chunks_per_shard(coords))

    def _held(self, coords: tuple[int, ...]) -> WrittenObject | None:
        """An object that is there; one that is damaged is removed."""
        n_chunks, name = self._n_chunks(coords), self._name(coords)
        if self.view.shards is None:
            found = self.sink.tail(name, 0)
            if found is None:
                return None
            return WrittenObject(
                coords, name, found[0], np.zeros(1, np.int64), np.array([found[0]]), None
            )
        found = self.sink.tail(name, _tail_bytes(n_chunks))
        if found is None:
            return None
        size, tail = found
        entries = _entries_of(tail, size, n_chunks)
        if entries is None:
            self.sink.remove(name)
            return None
        return WrittenObject(coords, name, size, *entries)

    def _parts(
        self, coords: tuple[int, ...], values: NDArray[Any], entries: _Entries, encoded: _Encoded
    ) -> Iterator[Buffer]:
        """The bytes of an object, chunk by chunk; nothing if all elements are the fill value."""
        shards = self.view.shards
        if shards is None:
            payload = self._encoded(values, self.view.metadata.grid.chunk_shape(coords))
            if payload is not None:
                entries.add(0, payload)
                yield payload
            return
        lengths = shards.chunk_shape
        counts = shards.chunks_per_shard(coords)

        def payloads_of(places: Sequence[tuple[int, ...]]) -> list[Buffer | None]:
            regions = (
                tuple(slice(k * n, (k + 1) * n) for k, n in zip(place, lengths, strict=True))
                for place in places
            )
            return [self._encoded(values[region], lengths) for region in regions]

        together = max(1, ENCODED_TOGETHER // max(1, math.prod(lengths) * values.itemsize))
        if not self._codecs:  # all are in the same memory
            together = 1
        batches = [*batched(np.ndindex(*_chunks_inside(self.view, coords)), together)]
        mapped = map if len(batches) == 1 or not self._codecs else encoded
        for places, payloads in zip(batches, mapped(payloads_of, batches), strict=True):
            for place, payload in zip(places, payloads, strict=True):
                if payload is not None:
                    entries.add(int(np.ravel_multi_index(place, counts)), payload)
                    yield payload
        if entries.order:
            yield entries.tail()

    def _encoded(self, values: NDArray[Any], shape: tuple[int, ...]) -> Buffer | None:
        """A chunk as it is stored; None if all its bytes are those of the fill value."""
        plain = self._plain(values, shape)
        if self._fill and plain[: len(self._fill)] == self._fill:
            n_elements = len(plain) // len(self._fill)
            if plain == self._fill * n_elements:
                return None
        return encode_bytes_codecs(plain, self._codecs) if self._codecs else plain

    def _plain(self, values: NDArray[Any], shape: tuple[int, ...]) -> memoryview:
        """The elements of a chunk in their order.

        Those of numbers are in memory that the next chunk of the same thread takes, too: to clear
        new memory, and to give it back, would take the system longer than all else.
        """
        metadata = self.view.metadata
        if not self._is_copied:
            shown = np.ascontiguousarray(as_shown(values, shape, self.view))
            return memoryview(encode_chunk(shown, (self._serial,)))
        n_bytes = math.prod(shape) * metadata.dtype.itemsize
        memory = getattr(self._scratch, "memory", None)
        if memory is None or memory.nbytes < n_bytes:
            memory = self._scratch.memory = np.empty(n_bytes, np.uint8)
        plain = memory[:n_bytes]
        whole = plain.view(metadata.dtype).reshape(shape)
        if values.shape != shape:
            whole[...] = metadata.fill_value
        whole[tuple(slice(0, extent) for extent in values.shape)] = values
        return plain.data


class _Entries:
    """Where the chunks of an object are, as they are added to it."""

    def __init__(self, n_chunks: int) -> None:
        self.n_chunks = n_chunks
        self.order: list[int] = []
        self._n_bytes: list[int] = []
        self._crc32c: list[int] = []

    def add(self, number: int, payload: Buffer) -> None:
        """A payload behind those of before."""
        self.order.append(number)
        self._n_bytes.append(len(payload))
        self._crc32c.append(crc32c_of(payload))

    @property
    def crc32c(self) -> NDArray[np.uint32]:
        """CRC-32C of each chunk, 0 for those that are not stored."""
        crc32c = np.zeros(self.n_chunks, np.uint32)
        crc32c[self.order] = self._crc32c
        return crc32c

    @property
    def packed(self) -> PackedShard:
        """The payloads back to back."""
        order, n_bytes = np.array(self.order, np.int64), np.array(self._n_bytes, np.int64)
        return PackedShard.pack(order, n_bytes, self.n_chunks, IndexLocation.END)

    def tail(self) -> bytes:
        """What is behind the payloads of a shard: the CRC-32C, and the index."""
        index = encode_chunk(self.packed.index(), INDEX_CODECS)
        return self.crc32c.astype("<u4").tobytes() + index

    def written(self, coords: tuple[int, ...], name: str, is_shard: bool) -> WrittenObject:
        """The object, once it is written."""
        packed = self.packed
        offset, length = np.full(self.n_chunks, -1, np.int64), np.zeros(self.n_chunks, np.int64)
        offset[packed.order] = packed.start
        length[packed.order] = self._n_bytes
        n_bytes = packed.payload_bytes + (_tail_bytes(self.n_chunks) if is_shard else 0)
        return WrittenObject(
            coords, name, n_bytes, offset, length, self.crc32c if is_shard else None
        )


_CRC_BYTES = 4


def _tail_bytes(n_chunks: int) -> int:
    """Bytes of a shard behind its payloads."""
    return (_CRC_BYTES + 16) * n_chunks + CHECKSUM_BYTES


def _entries_of(
    tail: bytes, size: int, n_chunks: int
) -> tuple[Int64Array, Int64Array, NDArray[np.uint32]] | None:
    """Offset, length and CRC-32C of the chunks of a shard, from its end; None if it is damaged."""
    if len(tail) != _tail_bytes(n_chunks):
        return None
    crc32c = np.frombuffer(tail, "<u4", n_chunks).astype(np.uint32)
    index, checksum = tail[_CRC_BYTES * n_chunks : -CHECKSUM_BYTES], tail[-CHECKSUM_BYTES:]
    if crc32c_of(index) != int.from_bytes(checksum, "little"):
        return None
    entries = np.frombuffer(index, "<i8").reshape(n_chunks, 2)
    offset, length = entries[:, 0].copy(), entries[:, 1].copy()
    length[offset < 0] = 0
    if int(length.sum()) + len(tail) != size or (offset + length > size).any():
        return None
    return offset, length, crc32c
