"""Files as seekable objects, for code that parses metadata.

`open_for_scan` takes an address and returns a `ScanFile`. Our own scanners, tifffile, pyarrow (the
tables of catalogs) and, in `verify`, h5py read small pieces all over a file. A local file is read
as requested. A remote file is read in aligned blocks that are kept, and the readahead doubles while
reading is sequential.

h5py holds one lock while it reads from a file object, and takes the same lock to free an object. If
the fsspec thread that fetches the bytes collects an h5py object as garbage, the two threads wait
for each other forever (h5py documentation, "Python file-like objects"). `collector_paused` prevents
that. Python can pause its collector only for the whole process. Without the pause,
``tests/integration/test_bad_input.py`` hangs. Only `verify` needs it, for remote HDF5 files
that are too large to be read whole.
"""

from __future__ import annotations

import copy
import gc
import io
import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, override

import numpy as np

from gridref.cache import LRU
from gridref.errors import (
    GridrefError,
    InvalidRequestError,
    Place,
    ShortReadError,
    SourceChangedError,
    SourceUnavailableError,
    number_of,
)
from gridref.forks import new_lock, new_rlock
from gridref.io.address import absolute_url, is_local
from gridref.io.coalesce import LOCAL_MERGING, REMOTE_MERGING, Merging, plan_reads
from gridref.io.context import BLOCK_BYTES, Layouts, current_context, current_traffic, note_opened
from gridref.io.faults import RetryPolicy
from gridref.io.identity import RangeFetcher
from gridref.io.local import AsOnAServer, LocalFiles, OpenFile
from gridref.io.remote import RemoteFiles
from gridref.model.manifest import Source
from gridref.model.source_policy import SourcePolicy

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


_FEW_REQUESTS, _BYTES_A_REQUEST = 3, 2 * 2**20
"""About as many bytes as arrive in the time that an answer takes to begin."""


def describe_source(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    policy: SourcePolicy | None = None,
) -> Source:
    """Describe a file that a policy allows, as it is now: size, and modification time or ETag.

    Raises
    ------
    SourceUnavailableError
        If there is none, or it cannot be reached or read.
    """
    address = absolute_url(url)
    if is_local(address):
        return replace(OpenFile(address, policy).describe(), policy=policy)
    return RemoteFiles(storage_options).describe(address, policy)


def open_for_scan(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    policy: SourcePolicy | None = None,
    first_bytes: int = 0,
    block_bytes: int = BLOCK_BYTES,
    max_readahead_bytes: int = 2**20,
    max_cached_bytes: int = 64 * 2**20,
    retry: RetryPolicy | None = None,
    shared: LocalFiles | None = None,
) -> ScanFile:
    """Open a file for parsing.

    Parameters
    ----------
    url
        Local path or fsspec URL.
    storage_options
        fsspec options, or a mapping of protocol to options.
    policy
        Decides whether it may be opened, if another file names it.
    first_bytes
        For remote files: how much to read first, unless files beside it have shown what is needed.
    block_bytes, max_readahead_bytes, max_cached_bytes
        For remote files: unit of reading, most bytes to read ahead, and most bytes to keep.
    retry
        For remote files: how to retry transient failures.
    shared
        For local files: keeps them open, some at a time. By default a file stays open.

    Raises
    ------
    SourceUnavailableError
        If there is none, or it cannot be reached or read.
    """
    address = absolute_url(url)
    local, context = is_local(address), current_context()
    if local and context.reads is None:
        return LocalScanFile(address, policy, shared)
    files = AsOnAServer(address, policy) if local else _Unchanged(storage_options, retry, policy)
    layouts = context.layouts or Layouts()
    is_usual = block_bytes == BLOCK_BYTES and policy is None
    came = context.beginning(address) if is_usual and context.beginning else None
    if came is not None and isinstance(files, _Unchanged):
        starts = came.starts
        files.keep_located(address, came.located)
        source, parts = files.begin(address, starts, came.stops, came.results)
    else:
        starts, stops = layouts.ranges(address, block_bytes, first_bytes)
        source, parts = files.begin(address, starts, stops)
    file = RemoteScanFile(
        files,
        source,
        block_bytes=block_bytes,
        max_readahead_bytes=max_readahead_bytes,
        max_cached_bytes=max_cached_bytes,
        layouts=layouts,
    )
    file.begin_with(starts, parts)
    return file


class SeekableFile(io.RawIOBase):
    """A file to read, at any place."""

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True


class ScanFile(SeekableFile):
    """A seekable, read-only binary file that counts what it reads.

    Attributes
    ----------
    source
        The file as it was when it was opened.
    n_requests, n_bytes
        Reads sent, and bytes read.
    last_error
        A copy of the exception of the last failed read. Libraries written in C may replace an
        exception with one of their own: see `raise_last_error`.
    is_remote
        Whether each read waits for a server.
    """

    is_remote: ClassVar[bool] = False

    def __init__(self, source: Source) -> None:
        super().__init__()
        if source.size_bytes is None:
            raise SourceUnavailableError(
                "the server does not state the size of the file", Place(source=source.url)
            )
        self.source = source
        note_opened(source.url, source)
        self.n_requests = 0
        self.n_bytes = 0
        self.last_error: GridrefError | None = None
        self._size = source.size_bytes
        self._position = 0
        self._noted = current_context().reads

    @property
    def came_whole(self) -> bool:
        """Whether a request for a range returned all of it: the server may ignore ranges."""
        return False

    @property
    def is_foreseen(self) -> bool:
        """Whether files beside it have shown what a scan will read."""
        return False

    @property
    def name(self) -> str:
        """The address of the file."""
        return self.source.url

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self._size

    @override
    def tell(self) -> int:
        return self._position

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if origin + offset < 0:
            raise InvalidRequestError(f"seek to {origin + offset}, before the start of the file")
        self._position = origin + offset
        return self._position

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        stop = self._size if size is None or size < 0 else min(self._size, self._position + size)
        if stop <= self._position:
            return b""
        part = self.read_many([self._position], [stop - self._position])[0]
        self._position = stop
        return part

    @override
    def readall(self) -> bytes:
        return self.read(-1)

    @override
    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        part = self.read(len(view))
        view[: len(part)] = part
        return len(part)

    def read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """The bytes of each range; near ranges are read as one, all at once if possible.

        Raises
        ------
        ShortReadError
            If a range reaches beyond the end of the file.
        SourceUnavailableError
            If reading fails.
        """
        try:
            for offset, length in zip(offsets, lengths, strict=True):
                if offset < 0 or length < 0 or offset + length > self._size:
                    raise ShortReadError(
                        f"the range reaches beyond the end of the file at byte {self._size}",
                        Place(source=self.name, start=int(offset), stop=int(offset + length)),
                    )
            if self._noted is not None:
                self._noted.note(self.name, offsets, lengths)
            return self._read_many(offsets, lengths)
        except GridrefError as error:
            self.last_error = _alone(error)
            raise

    def raise_last_error(self) -> None:
        """Raise the exception of a failed read, if there was one."""
        if self.last_error is not None:
            raise self.last_error

    @abstractmethod
    def _read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]: ...

    def _fetch(
        self, reader: RangeFetcher, starts: Sequence[int], stops: Sequence[int]
    ) -> list[bytes]:
        """Read and count, and refuse a file that has become shorter."""
        parts = reader.fetch(self.name, starts, stops)
        self.n_requests += len(parts)
        self.n_bytes += sum(map(len, parts))
        for part, start, stop in zip(parts, starts, stops, strict=True):
            if len(part) != stop - start:
                raise ShortReadError(
                    f"{len(part)} of {number_of(stop - start, 'byte')} arrived: the file has become"
                    " shorter",
                    Place(source=self.name, start=start, stop=stop),
                )
        return parts

    def _fetch_merged(
        self, reader: RangeFetcher, offsets: Sequence[int], lengths: Sequence[int], merging: Merging
    ) -> list[bytes]:
        plan = plan_reads(offsets, lengths, merging)
        parts = self._fetch(reader, plan.start.tolist(), plan.stop.tolist())
        return [
            parts[read][start : start + length] if read >= 0 else b""
            for read, start, length in zip(
                plan.read_of.tolist(), plan.offset_in_read.tolist(), lengths, strict=True
            )
        ]


def _alone(error: GridrefError) -> GridrefError:
    """A copy of an error without its traceback and cause, which refer to objects.

    A traceback would keep the objects of the library that reads the file, and these would keep the
    file. Objects of h5py must not outlive the interpreter.
    """
    copied = copy.copy(error)  # with its traceback, where tblib is loaded
    copied.__cause__ = copied.__context__ = None
    return copied.with_traceback(None)


class LocalScanFile(ScanFile):
    """A local file."""

    def __init__(
        self, path: str, policy: SourcePolicy | None = None, shared: LocalFiles | None = None
    ) -> None:
        self._forget: Callable[[], None] = lambda: None
        if shared is None:
            file = OpenFile(path, policy)
            self._opened: Callable[[], OpenFile] = lambda: file
        else:
            self._opened = partial(shared.open, path, policy)
            self._forget = partial(shared.forget, path, policy)
            self._forget()  # of that name there may be another one now
        self._traffic = current_traffic()
        super().__init__(replace(self._opened().describe(), policy=policy))

    @override
    def close(self) -> None:
        if not self.closed:
            self._forget()
        super().close()

    @override
    def _read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        if len(offsets) == 1:
            return self._fetch(self._opened(), [offsets[0]], [offsets[0] + lengths[0]])
        return self._fetch_merged(self._opened(), offsets, lengths, LOCAL_MERGING)

    @override
    def _fetch(
        self, reader: RangeFetcher, starts: Sequence[int], stops: Sequence[int]
    ) -> list[bytes]:
        parts = super()._fetch(reader, starts, stops)
        self._traffic.add(len(parts), sum(map(len, parts)))
        return parts


class _Unchanged(RemoteFiles):
    """Reads one file as long as it is the one that was first described."""

    def __init__(
        self,
        storage_options: Mapping[str, Any] | None,
        retry: RetryPolicy | None,
        policy: SourcePolicy | None,
    ) -> None:
        super().__init__(storage_options, retry)
        self._policy = policy

    @override
    def begin(
        self,
        url: str,
        starts: Sequence[int],
        stops: Sequence[int],
        came: list[Any] | None = None,
        *_: object,
    ) -> tuple[Source, list[bytes]]:
        self._source, parts = super().begin(url, starts, stops, came, self._policy)
        return self._source, parts

    @override
    def fetch(
        self, url: str, starts: Sequence[int], stops: Sequence[int], *_: object
    ) -> list[bytes]:
        try:
            return super().fetch(url, starts, stops, self._source, self._policy)
        except SourceChangedError as error:
            raise SourceChangedError(
                "the file changed while it was scanned: scan it again", error.place
            ) from error


class RemoteScanFile(ScanFile):
    """A remote file, read in blocks that are kept. Thread-safe.

    Parameters
    ----------
    block_bytes, max_readahead_bytes, max_cached_bytes
        Unit of reading, most that is read ahead, and most that is kept.
    layouts
        Learns the used blocks when the file is closed.
    """

    is_remote = True

    def __init__(
        self,
        reader: RangeFetcher,
        source: Source,
        *,
        block_bytes: int,
        max_readahead_bytes: int,
        max_cached_bytes: int,
        layouts: Layouts | None = None,
    ) -> None:
        super().__init__(source)
        self._layouts = layouts
        self._used: set[int] = set()
        self._reader = reader
        self._block_bytes = block_bytes
        self._max_readahead = max(1, max_readahead_bytes // block_bytes)
        self._blocks = LRU[bytes](max_cached_bytes, len, keeps_last=1)
        self._readahead = 1
        self._next_block = 0
        self._lock = new_rlock()

    def begin_with(self, starts: Sequence[int], parts: Sequence[bytes]) -> None:
        """Keep bytes that came with the description of the file; they start at whole blocks."""
        unit = self._block_bytes
        for start, part in zip(starts, parts, strict=True):
            for offset in range(0, len(part), unit):
                self._blocks.put((start + offset) // unit, part[offset : offset + unit])
            self.n_requests += bool(part)
            self.n_bytes += len(part)

    @property
    @override
    def came_whole(self) -> bool:
        return getattr(self._reader, "came_whole", False)

    @property
    @override
    def is_foreseen(self) -> bool:
        return self._layouts is not None and self._layouts.knows(self.name)

    @override
    def close(self) -> None:
        if not self.closed and self._layouts is not None and self.last_error is None:
            self._layouts.learn(self.name, self._used)
        super().close()

    @override
    def _read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        # Large pieces are data, read once: keeping them would push the metadata out.
        large = [length > self._max_readahead * self._block_bytes for length in lengths]
        with self._lock:
            if any(large):
                return self._fetch_merged(self._reader, offsets, lengths, REMOTE_MERGING)
            blocks = self._load(_blocks_of(offsets, lengths, self._block_bytes))
            return [
                self._assemble(blocks, offset, length)
                for offset, length in zip(offsets, lengths, strict=True)
            ]

    def _assemble(self, blocks: Mapping[int, bytes], offset: int, length: int) -> bytes:
        if length == 0:
            return b""
        unit = self._block_bytes
        first, last = offset // unit, (offset + length - 1) // unit
        head = offset - first * unit
        if first == last:
            return blocks[first][head : head + length]
        joined = b"".join(blocks[number] for number in range(first, last + 1))
        return joined[head : head + length]

    def _load(self, wanted: list[int]) -> dict[int, bytes]:
        """The blocks; absent ones are read in few runs, together with the readahead."""
        self._used.update(wanted)
        kept = ((number, self._blocks.get(number)) for number in wanted)
        blocks = {number: block for number, block in kept if block is not None}
        missing = [number for number in wanted if number not in blocks]
        if missing:
            missing = self._with_readahead(missing)
            unit = self._block_bytes
            starts = [number * unit for number in missing]
            sizes = [min(unit, self._size - start) for start in starts]
            parts = self._fetch_merged(self._reader, starts, sizes, Merging(0, 16 * 2**20))
            for number, block in zip(missing, parts, strict=True):
                blocks[number] = self._blocks.put(number, block)
        return blocks

    def _with_readahead(self, missing: list[int]) -> list[int]:
        """More blocks after the last one, twice as many each time reading is sequential.

        All of a file, once waiting for scattered pieces has taken as long as reading all of it.
        """
        sequential = missing[0] == self._next_block and missing[0] > 0
        worth_bytes = (self.n_requests - _FEW_REQUESTS) * _BYTES_A_REQUEST
        if not sequential and worth_bytes >= self._size <= self._blocks.max_bytes // 2:
            return list(range(-(-self._size // self._block_bytes)))
        self._readahead = min(self._max_readahead, self._readahead * 2) if sequential else 1
        n_blocks = -(-self._size // self._block_bytes)
        last = missing[-1]
        ahead = range(last + 1, min(n_blocks, last + self._readahead))
        extended = [*missing, *(number for number in ahead if number not in self._blocks)]
        self._next_block = extended[-1] + 1
        return extended


def _blocks_of(offsets: Sequence[int], lengths: Sequence[int], block_bytes: int) -> list[int]:
    """Numbers of the blocks that ranges touch, ascending."""
    numbers = [
        np.arange(offset // block_bytes, (offset + length - 1) // block_bytes + 1)
        for offset, length in zip(offsets, lengths, strict=True)
        if length
    ]
    if len(numbers) == 1:
        return [int(number) for number in numbers[0]]
    return [int(n) for n in np.unique(np.concatenate(numbers))] if numbers else []


# The garbage collector, paused while a library with a global lock waits for remote bytes

_lock = new_lock()
_n_pauses = 0
_was_enabled = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause automatic garbage collection in all threads. Enter it before the lock is taken."""
    global _n_pauses, _was_enabled  # noqa: PLW0603 - the collector is the process's
    with _lock:
        if _n_pauses == 0:
            _was_enabled = gc.isenabled()
        _n_pauses += 1
        gc.disable()
    try:
        _finish_running_collection()
        yield
    finally:
        with _lock:
            _n_pauses -= 1
            if _n_pauses == 0 and _was_enabled:
                gc.enable()


def _finish_running_collection() -> None:
    """Wait until fsspec's thread has ended a collection that it may be in."""
    fsspec: Any = sys.modules.get("fsspec.asyn")
    loop = fsspec and fsspec.loop[0]
    if loop is not None and loop.is_running():
        fsspec.sync(loop, _nothing)


async def _nothing() -> None:
    pass
