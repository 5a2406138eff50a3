"""Bodies of responses: consecutive pieces of an object, sent window by window."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from gridref.faces.http.requests import RangeSet
from gridref.serve.segments import (
    DecodedRunSegment,
    DecodedSegment,
    RewrappedSegment,
    VirtualObject,
)
from gridref.serve.tasks import Buffer

SOURCE_WINDOW_BYTES = 2**20
"""Bytes of sources read at a time; the next window is read while one is sent."""
DECODED_WINDOW_BYTES = 8 * 2**20
"""The same for chunks that are decompressed. Windows hold whole chunks."""

Read = Callable[[int, int], list[Buffer]]


@dataclass(frozen=True)
class Body:
    """What a response's body consists of.

    Attributes
    ----------
    pieces
        Literal bytes, and half-open ranges of the object.
    n_bytes
        Size of all pieces.
    """

    pieces: tuple[bytes | tuple[int, int], ...]
    n_bytes: int

    def windows(self, window_bytes: int) -> list[bytes | tuple[int, int]]:
        """The pieces, those of the object cut where it has a multiple of `window_bytes`."""
        cut: list[bytes | tuple[int, int]] = []
        for piece in self.pieces:
            if isinstance(piece, bytes):
                cut.append(piece)
                continue
            start, stop = piece
            inner = range(start // window_bytes * window_bytes + window_bytes, stop, window_bytes)
            cut += itertools.pairwise([start, *inner, stop])
        return cut

    async def parts(
        self, read: Read, threads: Executor, window_bytes: int
    ) -> AsyncGenerator[list[Buffer]]:
        """The bytes of each window, one window being read ahead."""
        loop = asyncio.get_running_loop()

        def begin(window: bytes | tuple[int, int]) -> asyncio.Future[list[Buffer]]:
            if isinstance(window, bytes):
                ready: asyncio.Future[list[Buffer]] = loop.create_future()
                ready.set_result([window])
                return ready
            return loop.run_in_executor(threads, read, *window)

        ahead: asyncio.Future[list[Buffer]] | None = None
        windows = self.windows(window_bytes)
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


def whole(start: int, stop: int) -> Body:
    """One range of the object."""
    return Body(((start, stop),) if start < stop else (), stop - start)


def multipart(ranges: RangeSet, size: int, content_type: str, boundary: str) -> Body:
    """Several ranges as ``multipart/byteranges``: RFC 9110, section 14.6."""
    pieces: list[bytes | tuple[int, int]] = []
    for number, (start, stop) in enumerate(ranges):
        head = (
            f"{'' if number == 0 else '\r\n'}--{boundary}\r\nContent-Type: {content_type}\r\n"
            f"Content-Range: bytes {start}-{stop - 1}/{size}\r\n\r\n"
        )
        pieces += [head.encode(), (start, stop)]
    pieces.append(f"\r\n--{boundary}--\r\n".encode())
    n_bytes = sum(len(p) if isinstance(p, bytes) else p[1] - p[0] for p in pieces)
    return Body(tuple(pieces), n_bytes)


def window_bytes_for(virtual_object: VirtualObject) -> int:
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
