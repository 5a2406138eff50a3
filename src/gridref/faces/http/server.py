"""Run the application under uvicorn, on connections that are closed if they cost too much."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from gridref.errors import InvalidRequestError
from gridref.faces.http.app import create_app
from gridref.limits import limits
from gridref.typing import ASGIApp

# Connections


class GuardedConnection(HttpToolsProtocol):
    """A connection of uvicorn's that is closed when it goes beyond a limit.

    These are long or slow heads of requests, bodies, peers that do not read, and too many
    connections of one peer. Sources: RFC 6585, sections 4 and 5 (429, 431), and RFC 9110, section
    15.5.9 (408).

    uvicorn's options do not cover this: `timeout_keep_alive` starts only after the first answer,
    `limit_concurrency` counts the connections of all peers together, and only its slower h11
    protocol bounds the head of a request. An ASGI middleware sees a request when its head is
    complete, and cannot abort a connection. Without this class, all 15 attacks in
    ``tests/integration/test_http_requests.py`` succeed. uvicorn's h11 protocol stops the long
    heads, but no connection that is idle or does not read, no endless body, and not the peer with
    too many connections.
    """

    limits = staticmethod(limits)
    _of_peers: ClassVar[Counter[str]] = Counter()

    def connection_made(self, transport: Any) -> None:
        """Count the connection, and wait for a request."""
        super().connection_made(transport)
        self._head_bytes = self._body_bytes = 0
        self._head_is_open = True
        self._refused = False
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._peer = self.client[0] if self.client else ""
        self._of_peers[self._peer] += 1
        if self._of_peers[self._peer] > self.limits().peer_connections:
            self._refuse(429, "too many connections")
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no more."""
        self._of_peers[self._peer] -= 1
        if not self._of_peers[self._peer]:
            del self._of_peers[self._peer]
        self._cancel()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes apart, as long as the head of a request is not too long."""
        if self._refused:
            return
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()
        super().data_received(data)
        if self._head_is_open:
            self._head_bytes += len(data)
            if self._head_bytes > self.limits().request_head_bytes:
                self._refuse(431, "the head of the request is too long")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._head_is_open = True
        self._head_bytes = self._body_bytes = 0

    def on_headers_complete(self) -> None:
        """Let a request be answered, if its head is not too long."""
        self._head_is_open = False
        self._cancel()
        n_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if n_bytes > self.limits().request_head_bytes:
            self._refuse(431, "the head of the request is too long")
        if not self._refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass over a body, as nothing here takes one; not for ever."""
        self._body_bytes += len(body)
        if self._body_bytes > self.limits().request_body_bytes:
            self._refused = True
            self.transport.close()
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The end of a request."""
        if not self._refused:
            super().on_message_complete()

    def pause_writing(self) -> None:
        """Give a peer that does not read some time."""
        super().pause_writing()
        if self._stall is None:
            self._await_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """It reads."""
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        super().resume_writing()

    def _await_reader(self, n_waiting: int) -> None:
        self._stall = self.loop.call_later(
            self.limits().stalled_seconds, self._look_after, n_waiting
        )

    def _look_after(self, n_waited: int) -> None:
        """Leave a peer for which as much waits as before."""
        n_waiting = self.transport.get_write_buffer_size()
        if n_waiting < n_waited:
            self._await_reader(n_waiting)
        else:
            self.transport.abort()

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(
            self.limits().request_head_seconds, self._refuse, 408, "no whole request came in time"
        )

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: int, reason: str) -> None:
        """Say why, and close the connection."""
        self._refused = True
        self._cancel()
        if self.transport.is_closing():
            return
        self.transport.write(
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            "content-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
            f"content-length: {len(reason) + 1}\r\n\r\n{reason}\n".encode()
        )
        self.transport.close()


# Memory of a server process: buffers of bodies are used again

KEPT_BYTES = 64 * 2**20
"""Freed memory that the process keeps at the end of each of its heaps."""
LARGEST_KEPT_BYTES = 32 * 2**20
"""Larger buffers are the system's own pages, as glibc bounds it."""
N_ARENAS = 2
"""Heaps of the process, which bounds what is kept in all."""

# Numbers of the parameters: mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> bool:
    """Tell glibc's allocator to keep the memory that large buffers leave.

    By default it gives most of it back at once, and the system clears each page again when the
    next buffer is filled. Sending stored chunks of 4 MiB over 16 or 64 connections takes a third
    less processor time with memory that is kept, and 5 to 14 % less of it at the peak
    (docs/measurements.md, ``benchmarks.server_memory``).

    Returns
    -------
    bool
        Whether the allocator took it; False where there is no glibc.

    References
    ----------
    The manual page mallopt(3).
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = (
        (_MMAP_THRESHOLD, LARGEST_KEPT_BYTES),
        (_TRIM_THRESHOLD, KEPT_BYTES),
        (_ARENA_MAX, N_ARENAS),
    )
    taken = [mallopt(parameter, value) == 1 for parameter, value in settings]
    return all(taken)


# The server

_SETTINGS = "GRIDREF_SERVE_SETTINGS"
GRACE_SECONDS = 10
BACKLOG = 4096


def serve(
    catalogs: Iterable[str | os.PathLike[str]],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    on_ready: Callable[[str], object] | None = None,
    **options: Any,
) -> None:
    """Serve catalogs until SIGINT or SIGTERM; responses that have begun are finished first.

    Parameters
    ----------
    catalogs
        Addresses of catalogs, or local directories of catalogs.
    host, port
        Where to listen; loopback only by default. Port 0 takes any free port.
    workers
        Number of processes. Each has its own cache and counters.
    on_ready
        Called with the server's address, like ``http://127.0.0.1:8000/``, once it listens there.
    **options
        As for `create_app`.

    Raises
    ------
    CatalogError
        If a catalog cannot be opened.
    InvalidRequestError
        For bad options, or if it cannot listen.
    """
    if workers < 1:
        raise InvalidRequestError(f"workers must be >= 1, got {workers}")
    _log_to_stderr()
    keep_freed_memory()
    named = [os.fspath(catalog) for catalog in catalogs]
    options["allow_host"] = [*options.get("allow_host", ()), host]
    # Everything wrong with the catalogs and options shows here, before any process is started.
    app: Any = create_app(named, **options)
    if workers > 1:
        os.environ[_SETTINGS] = json.dumps({"catalogs": named, "options": options}, default=list)
        app = "gridref.faces.http.server:app_from_environment"
    config = uvicorn.Config(
        app,
        http=GuardedConnection,
        factory=workers > 1,
        workers=workers,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_SECONDS,
        log_level="warning",
    )
    with listening(host, port) as listener:
        if on_ready is not None:
            on_ready(address_of(listener, host))
        if workers > 1:
            Multiprocess(config, sockets=[listener]).run()
        else:
            with contextlib.suppress(KeyboardInterrupt):
                uvicorn.Server(config).run(sockets=[listener])


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; clients that connect wait until they are served.

    Raises
    ------
    InvalidRequestError
        If there is no such port or host, or it is taken.
    """
    if not 0 <= port <= 65_535:
        raise InvalidRequestError(f"a port is a number from 0 to 65535, got {port}")
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        raise InvalidRequestError(f"cannot listen at {host}, port {port}: {error}") from error
    listener.set_inheritable(True)
    return listener


def address_of(listener: socket.socket, host: str) -> str:
    """The address for users, with the port that was really taken."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}/"


def app_from_environment() -> ASGIApp:
    """The application of a worker process that `serve` started."""
    _log_to_stderr()
    keep_freed_memory()
    settings = json.loads(os.environ[_SETTINGS])
    app: ASGIApp = create_app(settings["catalogs"], **settings["options"])
    return app


def _log_to_stderr() -> None:
    """One JSON object a line for requests, as they are; plain lines for errors."""
    for name, form in (("gridref.access", "%(message)s"), ("gridref.http", "error: %(message)s")):
        logger = logging.getLogger(name)
        if not logger.handlers:
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(logging.Formatter(form))
            logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    logging.getLogger("uvicorn.error").addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn's is not about an answer that was broken off, which is logged."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, ConnectionAbortedError)
