"""Reading byte ranges of a source of whose stored chunks there are checksums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gridref.errors import ChecksumError, Place
from gridref.io.protocols import Buffer
from gridref.model.chunk_checksums import ChunkChecksums
from gridref.model.manifest import Source
from gridref.typing import Int64Array

__all__ = ["crc32c_of", "read_checked"]

type _Read = Callable[[Source, Int64Array, Int64Array], Sequence[Buffer]]


def crc32c_of(data: Buffer) -> int:
    """CRC-32C of some bytes."""
    import google_crc32c

    return int(google_crc32c.value(bytes(data)))


def read_checked(
    source: Source, known: ChunkChecksums, offset: Int64Array, length: Int64Array, read: _Read
) -> list[Buffer]:
    """Read ranges after comparing the chunks that they lie in with their checksums.

    Of a part of a chunk the whole chunk is read.

    Parameters
    ----------
    known
        The checksums of its chunks.
    offset, length
        int64 (n_ranges,), as for `gridref.io.SourcePool.read_ranges`.
    read
        Reads ranges without comparing anything.

    Raises
    ------
    ChecksumError
        If the bytes of a chunk are not those that the checksum was taken of, or no chunk with a
        checksum holds them.
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
"""First byte, end, and numbers of the chunks whose bytes these are."""


def _spans(
    source: Source, known: ChunkChecksums, offset: Int64Array, length: Int64Array
) -> tuple[list[_Span], list[int]]:
    """What is read, each once, and in which of it each range lies; -1 for empty ones."""
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
                "the catalog has checksums of the file's chunks, but none of these bytes: its"
                " tables contradict each other. Build it again",
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
                " was made, or came wrong over the network. Restore it, or build the catalog again",
                Place(source=source.url, start=begin, stop=begin + n_bytes),
            )


def _cut(part: Buffer, start: int, n_bytes: int) -> Buffer:
    return (
        part if start == 0 and n_bytes == len(part) else memoryview(part)[start : start + n_bytes]
    )
