"""Check that sources and chunks are still the ones that were scanned.

`check_identity` compares size, version and time of change. `check_content` compares checksums, also
for a file that was moved. `read_checked` reads byte ranges and verifies the CRC-32C of the stored
chunks in them.

A checksum is written ``blake2b:all:<hex>`` or ``blake2b:16x4096:<hex>``. The second form covers 16
ranges of 4096 bytes each, the first at the beginning of the file and the last at its end. If the
file is not larger than these ranges, both forms read everything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import batched
from typing import Any, Literal, Protocol

import numpy as np

from gridref.errors import (
    ChecksumError,
    InvalidRequestError,
    Message,
    Option,
    Place,
    SourceChangedError,
    number_of,
)
from gridref.model.manifest import ChunkChecksums, Source
from gridref.typing import Int64Array

# The protocol of readers of byte ranges

type Buffer = bytes | memoryview


class RangeFetcher(Protocol):
    """Can read byte ranges of a file."""

    def fetch(self, url: str, starts: Sequence[int], stops: Sequence[int]) -> list[bytes]:
        """The bytes of half-open ranges; fewer only where the file ends.

        Raises
        ------
        SourceUnavailableError
            If they cannot be read.
        """
        ...


# Checksums of sources: of the whole file, or of ranges spread evenly over it

type Coverage = Literal["sampled", "all"]
"""How much of a file its checksum covers."""

type ReadRanges = Callable[[Sequence[int], Sequence[int]], Sequence[bytes]]
"""Takes starts and stops of half-open ranges."""

_N_RANGES, _RANGE_BYTES = 16, 4096
_SAMPLED = f"{_N_RANGES}x{_RANGE_BYTES}"
_PIECE_BYTES = 8 * 2**20


def checksum_of(size_bytes: int, read: ReadRanges, coverage: Coverage = "sampled") -> str:
    """The checksum of a file.

    Parameters
    ----------
    coverage
        Whether to read ranges of it, or all of it.
    """
    digest = hashlib.blake2b(digest_size=16)
    ranges = _sampled(size_bytes) if coverage == "sampled" else _everything(size_bytes)
    for some in batched(ranges, _N_RANGES if coverage == "sampled" else 1):
        starts, stops = zip(*some, strict=True)
        for part in read(starts, stops):
            digest.update(part)
    return f"blake2b:{_SAMPLED if coverage == 'sampled' else 'all'}:{digest.hexdigest()}"


def coverage_of(checksum: str) -> Coverage:
    """How much of a file its checksum covers."""
    for coverage, name in (("sampled", _SAMPLED), ("all", "all")):
        if checksum.startswith(f"blake2b:{name}:"):
            return coverage  # type: ignore[return-value]
    raise InvalidRequestError(f"unknown kind of checksum: {checksum!r}")


def _sampled(size_bytes: int) -> Iterator[tuple[int, int]]:
    if size_bytes <= _N_RANGES * _RANGE_BYTES:
        yield from _everything(size_bytes)
        return
    room = size_bytes - _RANGE_BYTES
    for number in range(_N_RANGES):
        start = room * number // (_N_RANGES - 1)
        yield start, start + _RANGE_BYTES


def _everything(size_bytes: int) -> Iterator[tuple[int, int]]:
    for start in range(0, size_bytes, _PIECE_BYTES):
        yield start, min(size_bytes, start + _PIECE_BYTES)


# The identity of a source: size, version, time of change and content

_ETAG_KEYS = ("ETag", "etag", "e_tag")
_VERSION_KEYS = (
    "generation",
    "VersionId",
    "version_id",
    "Last-Modified",
    "Digest",
    "Content-MD5",
    "LastModified",
    "last_modified",
    "mtime",
    "modified",
    "created",
)
_HTTP, _S3 = ("ETag", "Last-Modified"), ("ETag",)
_STATED = {"http": _HTTP, "https": _HTTP, "s3": _S3, "s3a": _S3}
"""Tags that servers either state with each answer or never, by protocol."""
_MODIFIED = ", Last-Modified="
"""Between the ETag of an HTTP server and the time that it states beside it."""


def source_of_info(url: str, info: Mapping[str, Any]) -> Source:
    """A file as fsspec's ``info`` describes it.

    The version is the entity tag, if there is one; for HTTP servers, together with
    ``Last-Modified``. Otherwise it is the first other known property that changes with the file,
    written as ``name=value``.
    """
    size = info.get("size")
    return Source(url, None if size is None else int(size), None, _version_of(info))


def _version_of(info: Mapping[str, Any]) -> str | None:
    for key in _ETAG_KEYS:
        if info.get(key):
            modified = info.get("Last-Modified")
            return f"{info[key]}{_MODIFIED}{modified}" if modified else str(info[key])
    for key in _VERSION_KEYS:
        value = info.get(key)
        if value:
            text = value.isoformat() if isinstance(value, datetime) else str(value)
            return f"{key}={text}"
    return None


def tags_of(version: str | None) -> dict[str, str]:
    """The parts of a version, by name: ``ETag``, ``Last-Modified`` or another one."""
    if version is None:
        return {}
    name = next((key for key in _VERSION_KEYS if version.startswith(f"{key}=")), None)
    if name is not None:
        return {name: version[len(name) + 1 :]}
    etag, separator, modified = version.rpartition(_MODIFIED)
    return {"ETag": etag, "Last-Modified": modified} if separator else {"ETag": version}


def check_identity(recorded: Source, current: Source) -> None:
    """Compare the recorded source with the current one, as far as both are known.

    A server must state again what it stated during the scan. If the identity of a source is its
    size, nothing else is compared.

    Raises
    ------
    SourceChangedError
        If they differ; the error says what changed and what to do.
    """
    changes = []
    if _differ(recorded.size_bytes, current.size_bytes):
        was = number_of(recorded.size_bytes or 0, "byte")
        changes.append(f"its size was {was}, now {current.size_bytes}")
    by_version = recorded.told_by != "size"
    if by_version and _differ(recorded.mtime_ns, current.mtime_ns):
        changes.append(
            f"it was last modified {_moment(recorded.mtime_ns)}, now {_moment(current.mtime_ns)}"
        )
    if by_version:
        changes += _other_tags(recorded, current)
    if changes:
        same_size = not _differ(recorded.size_bytes, current.size_bytes)
        raise SourceChangedError(
            Message(
                f"the file changed since it was scanned: {'; '.join(changes)}. {SCAN_AGAIN}",
                _IF_IT_WAS_COPIED if same_size else "",
            ),
            Place(source=recorded.url),
        )


SCAN_AGAIN = "Scan it again (gridref refresh does, for a catalog), or restore the file"
"""The advice for a file that has changed."""
_IF_IT_WAS_COPIED = Message(
    "; only if it is a copy with the same bytes, open the catalog with ",
    Option("identity", "size"),
    " (gridref relocate records it), which reads any file of that size",
)


def same_version(recorded: Source, current: Source) -> bool:
    """Whether size and time of change, or ETag, are known for both, and equal."""
    if recorded.size_bytes != current.size_bytes:
        return False
    if recorded.mtime_ns is not None and current.mtime_ns is not None:
        return recorded.mtime_ns == current.mtime_ns
    tags, now = tags_of(recorded.etag), tags_of(current.etag)
    return bool(tags) and all(_is_same(value, now.get(name)) for name, value in tags.items())


def check_content(recorded: Source, current: Source, read: ReadRanges) -> None:
    """Compare a file that may have been moved with the checksum that was recorded."""
    check_identity(replace(recorded, mtime_ns=None, etag=None), current)
    if recorded.size_bytes is None or recorded.checksum is None:
        return
    now = checksum_of(recorded.size_bytes, read, coverage_of(recorded.checksum))
    if now != recorded.checksum:
        raise SourceChangedError(
            f"the file changed since it was scanned: its checksum was {recorded.checksum}, now"
            f" {now}. {SCAN_AGAIN}",
            Place(source=recorded.url),
        )


def _other_tags(recorded: Source, current: Source) -> Iterator[str]:
    """How tags of a version have changed since the scan, or that they are missing now."""
    now = tags_of(current.etag)
    stated = _STATED.get(current.url.partition("://")[0], ())
    for name, value in tags_of(recorded.etag).items():
        if _is_same(value, now.get(name)):
            continue
        label = "Last-Modified" if name == "Last-Modified" else "version"
        if name in now:
            yield f"its {label} was {value}, now {now[name]}"
        elif name in stated:
            yield f"its {label} was {value}, and now the server states none"


def _differ(recorded: int | None, current: int | None) -> bool:
    return recorded is not None and current is not None and recorded != current


def _is_same(recorded: str, current: str | None) -> bool:
    """Whether two tags are equal, except for the mark that a proxy's compression adds."""
    return current is not None and recorded.removeprefix("W/") == current.removeprefix("W/")


def _moment(nanoseconds: int | None) -> str:
    seconds, rest = divmod(nanoseconds or 0, 10**9)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{rest:09d} UTC"


# Reads that verify the checksums of stored chunks

type _Read = Callable[[Source, Int64Array, Int64Array], Sequence[Buffer]]


def crc32c_of(data: Buffer) -> int:
    """CRC-32C of some bytes."""
    import google_crc32c

    return int(google_crc32c.value(np.frombuffer(data, np.uint8)))


def read_checked(
    source: Source, known: ChunkChecksums, offset: Int64Array, length: Int64Array, read: _Read
) -> list[Buffer]:
    """Read ranges after comparing the chunks that they are in with their checksums.

    For a part of a chunk, the whole chunk is read.

    Parameters
    ----------
    offset, length
        int64 (n_ranges,), as for `gridref.io.SourcePool.read_ranges`.
    read
        Reads ranges without comparing anything.

    Raises
    ------
    ChecksumError
        If the bytes of a chunk do not have its checksum, or if no chunk with a checksum holds
        them.
    """
    spans, span_of = _spans(source, known, offset, length)
    starts = np.array([start for start, _, _ in spans], np.int64)
    sizes = np.array([stop - start for start, stop, _ in spans], np.int64)
    parts = read(source, starts, sizes)
    for (start, _, rows), part in zip(spans, parts, strict=True):
        _check(source, known, rows, start, part)
    return [
        _cut(parts[number], begin - spans[number][0], n_bytes) if number >= 0 else b""
        for number, begin, n_bytes in zip(span_of, offset.tolist(), length.tolist(), strict=True)
    ]


type _Span = tuple[int, int, Int64Array]
"""First byte, end, and the numbers of the chunks with these bytes."""


def _spans(
    source: Source, known: ChunkChecksums, offset: Int64Array, length: Int64Array
) -> tuple[list[_Span], list[int]]:
    """The reads, each once, and the read that holds each range; -1 for empty ranges."""
    spans: dict[tuple[int, int], tuple[int, Int64Array]] = {}
    span_of = []
    exact = known.rows_of(offset, length).tolist()
    for row, start, n_bytes in zip(exact, offset.tolist(), length.tolist(), strict=True):
        if not n_bytes:
            span_of.append(-1)
            continue
        stop = start + n_bytes
        rows = np.array([row]) if row >= 0 else known.rows_below(start, stop)
        if not rows.size:
            raise ChecksumError(
                "the catalog has checksums for this file, but none for these bytes: its tables "
                "contradict each other. Build the catalog again",
                Place(source=source.url, start=start, stop=stop),
            )
        low = int(known.offset[rows[0]])
        high = int((known.offset[rows] + known.length[rows]).max())
        span_of.append(spans.setdefault((low, high), (len(spans), rows))[0])
    return [(low, high, rows) for (low, high), (_, rows) in spans.items()], span_of


def _check(
    source: Source, known: ChunkChecksums, rows: Int64Array, start: int, part: Buffer
) -> None:
    for row in rows.tolist():
        begin, n_bytes = int(known.offset[row]), int(known.length[row])
        found = crc32c_of(_cut(part, begin - start, n_bytes))
        if found != int(known.crc32c[row]):
            raise ChecksumError(
                f"the stored bytes of a chunk have the CRC-32C {found:08x} instead of"
                f" {int(known.crc32c[row]):08x}: the file was changed or damaged since the catalog"
                " was made, or damaged on the way over the network. Restore it, or build the "
                "catalog again",
                Place(source=source.url, start=begin, stop=begin + n_bytes),
            )


def _cut(part: Buffer, start: int, n_bytes: int) -> Buffer:
    return (
        part if start == 0 and n_bytes == len(part) else memoryview(part)[start : start + n_bytes]
    )
