"""Turn a request for a key into a response, whose body is read as it is sent."""

from __future__ import annotations

import asyncio
import gzip
import itertools
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial

import imagecodecs

from gridref.cache import LRU, cache_bytes
from gridref.faces.http.requests import (
    Fields,
    Preconditions,
    RangeSet,
    Request,
    UnsatisfiableError,
    parse_range,
)
from gridref.serve.object_reader import ObjectReader
from gridref.serve.pages import (
    DecodedRunSegment,
    DecodedSegment,
    LiteralSegment,
    RewrappedSegment,
    VirtualObject,
)
from gridref.serve.tasks import Buffer

METADATA_TYPE = "application/json"
CHUNK_TYPE = "application/octet-stream"
MIN_GZIP_BYTES = 1_024
MOST_PACKED_BYTES = 64 * 2**20
"""Of a chunk that is compressed on its way: it is in memory as a whole."""


# Bodies

SOURCE_WINDOW_BYTES = 2**20
"""Bytes of sources read at a time; the next window is read while one is sent."""
DECODED_WINDOW_BYTES = 8 * 2**20
"""The same for chunks that are decompressed. Windows hold whole chunks."""


@dataclass(frozen=True)
class Body:
    """Consecutive pieces of an object, which are sent window by window.

    Attributes
    ----------
    pieces
        Literal bytes, and half-open ranges of the object.
    """

    virtual_object: VirtualObject
    reader: ObjectReader
    pieces: tuple[bytes | tuple[int, int], ...]

    @property
    def n_bytes(self) -> int:
        """Size of all pieces."""
        return sum(len(p) if isinstance(p, bytes) else p[1] - p[0] for p in self.pieces)

    def at_hand(self) -> Buffer | None:
        """All bytes, if they are one range that nothing has to be read for."""
        (piece, *others) = self.pieces or (b"",)
        if others or isinstance(piece, bytes):
            return None
        return self.reader.at_hand(self.virtual_object, *piece)

    def windows(self) -> list[bytes | tuple[int, int]]:
        """The pieces, cut where the object has a multiple of what is read at a time."""
        window_bytes = _window_bytes_for(self.virtual_object)
        cut: list[bytes | tuple[int, int]] = []
        for piece in self.pieces:
            if isinstance(piece, bytes):
                cut.append(piece)
                continue
            start, stop = piece
            inner = range(start // window_bytes * window_bytes + window_bytes, stop, window_bytes)
            cut += itertools.pairwise([start, *inner, stop])
        return cut

    async def parts(self, threads: Executor) -> AsyncGenerator[list[Buffer]]:
        """The bytes of each window, one window being read ahead."""
        read = partial(self.reader.read_parts, self.virtual_object)
        loop = asyncio.get_running_loop()

        def begin(window: bytes | tuple[int, int]) -> asyncio.Future[list[Buffer]]:
            if isinstance(window, bytes):
                ready: asyncio.Future[list[Buffer]] = loop.create_future()
                ready.set_result([window])
                return ready
            return loop.run_in_executor(threads, read, *window)

        ahead: asyncio.Future[list[Buffer]] | None = None
        windows = self.windows()
        try:
            for number, window in enumerate(windows):
                current = begin(window) if ahead is None else ahead
                ahead = None
                parts = await current
                if number + 1 < len(windows):
                    ahead = begin(windows[number + 1])
                yield parts
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)


def _window_bytes_for(virtual_object: VirtualObject) -> int:
    """How much of an object to read at a time: decoded chunks are not decoded twice."""
    for segment in virtual_object.segments:
        if isinstance(segment, DecodedSegment | RewrappedSegment):
            return max(DECODED_WINDOW_BYTES, virtual_object.n_bytes or 0)
        if isinstance(segment, DecodedRunSegment):
            size = max(1, segment.chunk_bytes)
            plain = all(len(encoding.codecs) == 1 for encoding in segment.view.array.encodings)
            most = SOURCE_WINDOW_BYTES if plain else DECODED_WINDOW_BYTES
            return max(size, most // size * size)
    return SOURCE_WINDOW_BYTES


# Answers


@dataclass(frozen=True)
class Answer:
    """A response before it is sent.

    Attributes
    ----------
    body
        What is at hand; pieces of an object, which are read; or what is worked out piece by piece.
        None where only headers are sent.
    """

    status: int
    headers: Fields = ()
    body: bytes | Body | Iterator[bytes] | None = None

    @classmethod
    def of(cls, body: bytes, content_type: str, *fields: tuple[bytes, bytes]) -> Answer:
        """What is there."""
        return cls(200, ((b"content-type", content_type.encode()), *fields), body)

    @classmethod
    def plain(cls, status: int, text: str, *fields: tuple[bytes, bytes]) -> Answer:
        """A line of text."""
        headers = ((b"content-type", b"text/plain; charset=utf-8"), *fields)
        return cls(status, headers, f"{text}\n".encode())


@dataclass(frozen=True, eq=False)
class Representation:
    """An object in the coding in which it is sent.

    Attributes
    ----------
    coding
        ``Content-Encoding``; empty for none.
    varies
        Whether other clients may get it in another coding.
    """

    virtual_object: VirtualObject
    size: int
    content_type: str
    coding: str = ""
    varies: bool = False


def representation(
    virtual_object: VirtualObject, size: int, request: Request, *, metadata: bool
) -> Representation:
    """Choose the coding: gzip for metadata, if the client takes it and wants no range of it."""
    kind = METADATA_TYPE if metadata else CHUNK_TYPE
    plain = Representation(virtual_object, size, kind, varies=metadata)
    if not metadata or size < MIN_GZIP_BYTES or "range" in request.headers:
        return plain
    if not request.takes("gzip"):
        return plain
    (segment,) = virtual_object.segments
    assert isinstance(segment, LiteralSegment)
    return _coded(plain, gzipped(virtual_object.etag, segment.data), "gzip")


def packed_chunk(
    shown: Representation, read: Callable[[], Buffer], request: Request
) -> Representation:
    """A chunk in the coding that the client takes; as it is if large, or if a range is wanted."""
    shown = replace(shown, varies=True)
    coding, is_whole = request.value_coding, "range" not in request.headers
    if not coding or not is_whole or not MIN_GZIP_BYTES <= shown.size <= MOST_PACKED_BYTES:
        return shown
    key = (coding, shown.virtual_object.etag)
    data = _PACKED.get_or_load(key, lambda: compressed(read(), coding))
    return _coded(shown, data, coding)


def _coded(plain: Representation, data: bytes, coding: str) -> Representation:
    shown = VirtualObject((LiteralSegment(data),), f"{plain.virtual_object.etag}-{coding}")
    return replace(plain, virtual_object=shown, size=len(data), coding=coding)


_PACKED = LRU[bytes](cache_bytes() // 4, len)
"""Bodies by their ETag and coding: compressed once for all requests."""


def gzipped(etag: str, data: bytes) -> bytes:
    """Compress a document, once for all requests; `etag` identifies it."""
    return _PACKED.get_or_load(("", etag), lambda: gzip.compress(data, 6, mtime=0))


def compressed(data: Buffer, coding: str) -> bytes:
    """Values in a coding of `Request.value_coding`, at the level that takes the least time."""
    encode = imagecodecs.zstd_encode if coding == "zstd" else imagecodecs.gzip_encode
    return bytes(encode(data, level=1))


def answer(
    shown: Representation, request: Request, reader: ObjectReader, cache_control: bytes
) -> Answer:
    """Answer a GET or HEAD request for an object that is there.

    Source: RFC 9110, section 13.2.2 (order of conditions), 14.2 and 15.3.7 (ranges).
    """
    etag, is_get = shown.virtual_object.etag, request.method == "GET"
    found: Fields = (
        (b"etag", f'"{etag}"'.encode()),
        (b"accept-ranges", b"bytes"),
        *(((b"vary", b"Accept-Encoding"),) if shown.varies else ()),
    )
    common = (*found, (b"cache-control", cache_control))
    conditions = Preconditions(request.headers, etag)
    if conditions.status == 304:
        return Answer(304, common)
    if conditions.status is not None:
        return Answer(conditions.status, found, b"")
    asked = request.headers.get("range") if is_get and conditions.range_counts else None
    try:
        ranges = parse_range(asked, shown.size)
    except UnsatisfiableError:
        return Answer(416, (*found, (b"content-range", f"bytes */{shown.size}".encode())), b"")
    content_type, status = shown.content_type, 200 if ranges is None else 206
    if ranges is None:
        ranges = ((0, shown.size),) if shown.size else ()
    elif len(ranges) == 1:
        start, stop = ranges[0]
        common += ((b"content-range", f"bytes {start}-{stop - 1}/{shown.size}".encode()),)
    if len(ranges) < 2:
        body = Body(shown.virtual_object, reader, ranges)
    else:
        body = _multipart(shown, reader, ranges, etag)
        content_type = f"multipart/byteranges; boundary={etag}"
    common += (
        (b"content-type", content_type.encode()),
        (b"content-length", str(body.n_bytes).encode()),
    )
    if shown.coding:
        common += ((b"content-encoding", shown.coding.encode()),)
    return Answer(status, common, body if is_get else None)


def _multipart(
    shown: Representation, reader: ObjectReader, ranges: RangeSet, boundary: str
) -> Body:
    """Several ranges as ``multipart/byteranges``: RFC 9110, section 14.6."""
    pieces: list[bytes | tuple[int, int]] = []
    for number, (start, stop) in enumerate(ranges):
        head = (
            f"{'' if number == 0 else '\r\n'}--{boundary}\r\n"
            f"Content-Type: {shown.content_type}\r\n"
            f"Content-Range: bytes {start}-{stop - 1}/{shown.size}\r\n\r\n"
        )
        pieces += [head.encode(), (start, stop)]
    pieces.append(f"\r\n--{boundary}--\r\n".encode())
    return Body(shown.virtual_object, reader, tuple(pieces))
