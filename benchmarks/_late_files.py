"""A server of files that answers late and takes next to no processor time, on one event loop.

One that gives each connection a thread takes more of two cores than what is measured.
"""

from __future__ import annotations

import asyncio
import re
import time
from multiprocessing.connection import Connection
from pathlib import Path

_RANGE = re.compile(rb"\r\nrange: bytes=(\d+)-(\d*)\r\n", re.IGNORECASE)


class Files:
    """What is served, and what was asked for."""

    def __init__(self, folder: str, n_files: int, delay_seconds: float) -> None:
        paths = sorted(Path(folder).iterdir())
        contents = [path.read_bytes() for path in paths]
        self.contents = {
            f"/{n:05}{paths[0].suffix}".encode(): contents[n % len(contents)]
            for n in range(n_files)
        }
        self.delay_seconds = delay_seconds
        self.most_a_second: int | None = None
        self._second = (0, 0)
        self.forget()

    def forget(self) -> None:
        """Count from now on."""
        self.n_requests = self.n_there = self.most_at_once = 0

    def is_too_much(self) -> bool:
        """Whether one more request is more than may come within a second."""
        now = int(time.monotonic())
        self._second = now, self._second[1] + 1 if self._second[0] == now else 1
        return self.most_a_second is not None and self._second[1] > self.most_a_second

    def answer(self, head: bytes) -> bytes:
        """The answer to a request for a range of a file, or for all of it."""
        method, path, _ = head.split(b" ", 2)
        content = self.contents.get(path)
        if content is None:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        if self.is_too_much():
            return (
                b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
            )
        wanted = _RANGE.search(head)
        start = int(wanted[1]) if wanted else 0
        stop = min(len(content), int(wanted[2]) + 1) if wanted and wanted[2] else len(content)
        lines = [
            b"HTTP/1.1 206 Partial Content" if wanted else b"HTTP/1.1 200 OK",
            b"Content-Length: %d" % (stop - start),
            b"Accept-Ranges: bytes",
            b'ETag: "%s"' % path,
            b"Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT",
        ]
        if wanted:
            lines.append(b"Content-Range: bytes %d-%d/%d" % (start, stop - 1, len(content)))
        body = b"" if method == b"HEAD" else content[start:stop]
        return b"\r\n".join([*lines, b"", body])


class Late(asyncio.Protocol):
    """One connection."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.unread += data
        while b"\r\n\r\n" in self.unread:
            head, _, self.unread = self.unread.partition(b"\r\n\r\n")
            files = self.files
            files.n_requests += 1
            files.n_there += 1
            files.most_at_once = max(files.most_at_once, files.n_there)
            asyncio.get_running_loop().call_later(
                files.delay_seconds, self.send, files.answer(head + b"\r\n")
            )

    def send(self, answer: bytes) -> None:
        self.files.n_there -= 1
        self.transport.write(answer)


def serve_files(folder: str, n_files: int, delay_seconds: float, pipe: Connection) -> None:
    """Serve the files of a folder under many names.

    A number that comes through the pipe is how many requests are answered a second from then on;
    to whatever else is true, it answers what was asked for since it was last told to.
    """
    asyncio.run(_serve(Files(folder, n_files, delay_seconds), pipe))


async def _serve(files: Files, pipe: Connection) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Late(files), "127.0.0.1", backlog=256)
    pipe.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    while told := await loop.run_in_executor(None, pipe.recv):
        if told is not True:
            files.most_a_second = told
        pipe.send((files.n_requests, files.most_at_once))
        files.forget()
