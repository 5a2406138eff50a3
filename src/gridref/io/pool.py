"""Byte ranges of sources, local and remote.

`SourcePool` takes sources and ranges, and returns their bytes. It merges near ranges, checks that
each source is still the file that was scanned, and raises an error for any missing byte.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gridref.errors import InvalidRequestError, Place, ShortReadError, SourceChangedError, number_of
from gridref.forks import new_lock
from gridref.io.address import is_local
from gridref.io.ahead import in_threads
from gridref.io.coalesce import LOCAL_MERGING, REMOTE_MERGING, MergedReads, Merging, plan_reads
from gridref.io.context import current_context, current_traffic
from gridref.io.faults import MAX_REQUESTS, RetryPolicy
from gridref.io.identity import (
    SCAN_AGAIN,
    Buffer,
    ReadRanges,
    check_content,
    check_identity,
    crc32c_of,
    read_checked,
    same_version,
)
from gridref.io.local import (
    LocalFiles,
    OpenFile,
    described,
    read_cached,
    read_fully,
    read_into,
)
from gridref.io.remote import RemoteFiles
from gridref.model.manifest import ChunkChecksums, Source

_ATTEMPTS = 3
"""Attempts to read a local file without a change of it meanwhile."""
_HAS_PREADV = hasattr(os, "preadv")

type IdentityCheck = Literal["check", "skip"]


class SourcePool:
    """Reads byte ranges of sources. Thread-safe, and can be pickled.

    Parameters
    ----------
    storage_options
        fsspec options of the sources' filesystem, or a mapping of protocol to options.
    identity
        ``"check"`` compares a source with what the scan recorded, as its `Source.told_by` says: a
        local file at each call, a remote one at the first. ``"skip"`` reads without comparing.
    max_open_files
        Most local files that stay open.
    local_merging, remote_merging
        Which ranges are read as one.
    retry
        What to do about transient failures of remote sources.
    """

    def __init__(
        self,
        storage_options: Mapping[str, Any] | None = None,
        *,
        identity: IdentityCheck = "check",
        max_open_files: int = 128,
        local_merging: Merging = LOCAL_MERGING,
        remote_merging: Merging = REMOTE_MERGING,
        retry: RetryPolicy | None = None,
    ) -> None:
        if identity not in ("check", "skip"):
            raise InvalidRequestError(f'identity must be "check" or "skip", got {identity!r}')
        self._settings: dict[str, Any] = {
            "storage_options": dict(storage_options or {}),
            "identity": identity,
            "max_open_files": max_open_files,
            "local_merging": local_merging,
            "remote_merging": remote_merging,
            "retry": retry,
        }
        self._checks_identity = identity == "check"
        self._local_merging = local_merging
        self._remote_merging = remote_merging
        self._local_traffic = current_traffic()
        self._local = LocalFiles(max_open_files)
        self._remote = RemoteFiles(storage_options, retry)
        self._checked: set[Source] = set()
        self._agreed: dict[Source, Source] = {}
        self._agreeing: dict[Source, Any] = {}
        self._lock = new_lock()
        self._n_requests = 0
        self._n_bytes = 0

    def __getstate__(self) -> dict[str, Any]:
        return self._settings

    def __setstate__(self, settings: dict[str, Any]) -> None:
        SourcePool.__init__(self, **settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def n_requests(self) -> int:
        """Reads sent so far, after merging."""
        return self._n_requests

    @property
    def n_bytes(self) -> int:
        """Bytes read so far."""
        return self._n_bytes

    def read(self, source: Source, offset: int, length: int) -> Buffer:
        """The bytes of one range. Raises as `read_ranges` does."""
        return self.read_ranges(source, [offset], [length])[0]

    def read_ranges(self, source: Source, offsets: ArrayLike, lengths: ArrayLike) -> list[Buffer]:
        """The bytes of each range, in the given order.

        Parameters
        ----------
        source
            The file, with what the scan recorded about it.
        offsets, lengths
            int64 (n_ranges,), first byte and size in bytes of each range, in any order.

        Returns
        -------
        list
            One buffer of exactly the requested size for each range. Merged ranges share memory.

        Raises
        ------
        SourceUnavailableError
            If the source is missing, unreachable or must not be read.
        SourceNotAllowedError
            If the catalog that names the source may not read it; it is then not opened.
        SourceChangedError
            If it is not the file that was scanned.
        ShortReadError
            If a range reaches beyond the end of the source, or fewer bytes came.
        ChecksumError
            If there are checksums of its chunks, and the bytes of one do not match.
        """
        offset = np.asarray(offsets, np.int64).reshape(-1)
        length = np.asarray(lengths, np.int64).reshape(-1)
        known = self._checksums(source)
        if known is None:
            return self._read_ranges(source, offset, length)
        return read_checked(source, known, offset, length, self._read_ranges)

    def _checksums(self, source: Source) -> ChunkChecksums | None:
        """What chunks are compared with, and therefore read whole."""
        checksums = source.chunk_checksums if self._checks_identity else None
        return None if checksums is None else checksums.load()

    def _read_ranges(
        self, source: Source, offset: NDArray[np.int64], length: NDArray[np.int64]
    ) -> list[Buffer]:
        if offset.size == length.size == 1:
            whole = self._read_one(source, int(offset[0]), int(length[0]))
            if whole is not None:
                return [whole]
        local = is_local(source.url)
        at_hand = None if local else current_context().at_hand
        if at_hand is not None:
            kept = at_hand.parts(source, offset.tolist(), length.tolist())
            if kept is not None:
                return [*kept]
        plan = plan_reads(offset, length, self._local_merging if local else self._remote_merging)
        if len(plan) == 0:
            return [b""] * offset.size
        if self._checks_identity:
            _check_inside(source, offset, length)
        parts = self._fetch(source, plan.start.tolist(), plan.stop.tolist())
        self._count(len(parts), sum(map(len, parts)), local=local)
        _check_complete(source, plan, parts, offset, length)
        return _cut(plan, parts, length)

    def _fetch(self, source: Source, starts: list[int], stops: list[int]) -> list[bytes]:
        if is_local(source.url):
            return self._read_steady(source, lambda file: file.fetch(source.url, starts, stops))
        if not self._checks_identity:
            return self._remote.fetch(source.url, starts, stops, policy=source.policy)
        if _by_content(source) or not self._remote.checks(source.url, source.policy):
            self._check_remote(source)
        agreed = self._agreed.get(source, source)
        parts = self._remote.fetch(source.url, starts, stops, agreed, source.policy)
        if any(len(part) < b - a for part, a, b in zip(parts, starts, stops, strict=True)):
            # An answer that there are no such bytes says nothing else about the file.
            self._check_remote(source)
        return parts

    def read_into(self, source: Source, offset: int, buffer: memoryview) -> bool:
        """Fill a buffer from a local file, without a copy.

        False, with anything in the buffer, for sources that are not local or have any fault:
        `read_ranges` then reports the fault.
        """
        if not _HAS_PREADV or not self._is_plain(source, offset, len(buffer)):
            return False
        known = self._checksums(source)
        checksum = None if known is None else known.of_chunk(offset, len(buffer))
        if known is not None and checksum is None:
            return False
        if not self._read_steady(source, lambda file: read_into(file, offset, buffer)):
            return False
        if checksum is not None and crc32c_of(buffer) != checksum:
            return False
        self._counted(buffer)
        return True

    def at_hand(self, source: Source, offset: int, length: int) -> Buffer | None:
        """The bytes of one range of an open local file, if they need no wait for a disk.

        None also for sources with any fault: `read_ranges` then reports it.
        """
        if self._checks_identity and source.chunk_checksums is not None:
            return None
        file = self._local.opened(source.url, source.policy)
        if file is None or not self._is_plain(source, offset, length):
            return None
        try:
            self._require_same(source, file)
            part = read_cached(file, offset, offset + length)
            self._require_same(source, file)
        except SourceChangedError:
            return None
        return self._counted(part)

    def _read_one(self, source: Source, offset: int, length: int) -> Buffer | None:
        """One range of a local file, by the fastest way; None if anything is unusual."""
        if not self._is_plain(source, offset, length):
            return None
        part = self._read_steady(source, lambda file: read_fully(file, offset, offset + length))
        return self._counted(part) if len(part) == length else None

    def _is_plain(self, source: Source, offset: int, length: int) -> bool:
        """Whether a range is a possible one of a local file."""
        inside = source.size_bytes is None or offset + length <= source.size_bytes
        return offset >= 0 and length > 0 and inside and is_local(source.url)

    def _counted(self, part: Buffer | None) -> Buffer | None:
        if part is not None:
            self._count(1, len(part), local=True)
        return part

    def _count(self, n_requests: int, n_bytes: int, *, local: bool) -> None:
        with self._lock:
            self._n_requests += n_requests
            self._n_bytes += n_bytes
        if local:  # remote files count for themselves
            self._local_traffic.add(n_requests, n_bytes)

    def check(self, source: Source) -> None:
        """Compare a source with what the scan recorded; a remote one once.

        Raises
        ------
        SourceUnavailableError, SourceChangedError
            As `read_ranges` does.
        """
        if is_local(source.url):
            self._open_local(source)
        else:
            self._check_remote(source)

    def check_all(self, sources: Iterable[Source], *, asks_servers: bool) -> None:
        """Compare sources with what the scan recorded, without opening local ones.

        Remote ones are passed over unless `asks_servers`.

        Raises
        ------
        SourceUnavailableError, SourceChangedError
            As `read_ranges` does.
        """
        if not self._checks_identity:
            return
        remote = []
        for source in sources:
            if not is_local(source.url):
                if asks_servers:
                    remote.append(source)
            elif source.policy is None and not _by_content(source):
                check_identity(source, described(source.url))
            else:
                self._open_local(source)
        for _ in in_threads(self._check_remote, remote, MAX_REQUESTS):
            pass

    def close(self) -> None:
        """Close files. The pool can still be used."""
        self._local.close()
        with self._lock:
            self._checked.clear()
            self._agreed.clear()

    def _open_local(self, source: Source) -> OpenFile:
        """The open file, checked: later reads are from exactly this file."""
        file = self._local.open(source.url, source.policy)
        if self._checks_identity:
            try:
                self._require_same(source, file)
            except SourceChangedError:
                # Another file may have replaced the open one.
                self._local.forget(source.url, source.policy)
                file = self._local.open(source.url, source.policy)
                self._require_same(source, file)
        return file

    def _read_steady[Result](self, source: Source, read: Callable[[OpenFile], Result]) -> Result:
        """The bytes of a local file, read again if the file changed meanwhile."""
        for _ in range(_ATTEMPTS):
            file = self._open_local(source)
            before = file.changed_ns()
            result = read(file)
            self._require_same(source, file)
            if not self._checks_identity or file.changed_ns() == before:
                return result
        raise SourceChangedError(
            "the file changes while it is read (ctime), though its size and modification time stay:"
            " wait until nothing writes to it, then scan it again",
            Place(source=source.url),
        )

    def _require_same(self, source: Source, file: OpenFile) -> None:
        """Compare an open file with the recorded one after a read: it may have changed."""
        if self._checks_identity:
            self._compare(source, file.describe(), partial(file.fetch, source.url))

    def _compare(self, source: Source, current: Source, read: ReadRanges) -> None:
        """Compare a source with the current file; by its content, if it may have been moved.

        A source with the right content is compared as it was found from then on.
        """
        if not _by_content(source):
            check_identity(source, current)
            return
        with self._lock:
            agreed = self._agreed.get(source, source)
            agreeing = self._agreeing.setdefault(source, new_lock())
        if agreed == current or same_version(agreed, current):
            return
        with agreeing:
            if self._agreed.get(source) != current:
                check_content(source, current, read)
                self._agreed[source] = current

    def _check_remote(self, source: Source) -> None:
        with self._lock:
            if source in self._checked:
                return
        if source.size_bytes is not None or source.etag is not None:
            current = self._remote.describe(source.url, source.policy)
            fetch = partial(self._remote.fetch, source.url, policy=source.policy)
            self._compare(source, current, fetch)
        with self._lock:
            self._checked.add(source)


def _by_content(source: Source) -> bool:
    return source.told_by == "content" and source.checksum is not None


def _check_inside(source: Source, offset: NDArray[np.int64], length: NDArray[np.int64]) -> None:
    """Refuse references that reach beyond the recorded end, before any request."""
    if source.size_bytes is None:
        return
    beyond = (offset + length > source.size_bytes) & (length > 0)
    if beyond.any():
        i = int(np.flatnonzero(beyond)[0])
        raise ShortReadError(
            f"the reference reaches beyond the end of the file at byte {source.size_bytes}:"
            " scan the file again",
            _place(source, offset, length, i),
        )


def _check_complete(
    source: Source,
    plan: MergedReads,
    parts: list[bytes],
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
) -> None:
    got = np.fromiter(map(len, parts), np.int64, len(parts))
    if (got == plan.stop - plan.start).all():
        return
    ends = plan.start + got
    short = (length > 0) & (offset + length > ends[plan.read_of])
    i = int(np.flatnonzero(short)[0])
    came = max(0, int(ends[plan.read_of[i]] - offset[i]))
    raise ShortReadError(
        f"{came} of {number_of(int(length[i]), 'byte')} arrived: the file is shorter than its"
        f" references say. {SCAN_AGAIN}",
        _place(source, offset, length, i),
    )


def _place(source: Source, offset: NDArray[np.int64], length: NDArray[np.int64], i: int) -> Place:
    start = int(offset[i])
    return Place(source=source.url, start=start, stop=start + int(length[i]))


def _cut(plan: MergedReads, parts: list[bytes], length: NDArray[np.int64]) -> list[Buffer]:
    """The ranges from the reads; a read of one range is returned without a copy."""
    views = [memoryview(part) for part in parts]
    return [
        b""
        if read < 0
        else parts[read]
        if size == len(parts[read])
        else views[read][start : start + size]
        for read, start, size in zip(
            plan.read_of.tolist(), plan.offset_in_read.tolist(), length.tolist(), strict=True
        )
    ]
