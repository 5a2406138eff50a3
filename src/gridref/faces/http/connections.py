"""Close connections that cost more than they should.

These are long or slow heads of requests, bodies, peers that do not read, and too many connections
of one peer. Sources: RFC 6585, sections 4 and 5 (429, 431), and RFC 9110, section 15.5.9 (408).

uvicorn's options do not cover this: `timeout_keep_alive` starts only after the first answer,
`limit_concurrency` counts the connections of all peers together, and only its slower h11 protocol
bounds the head of a request. An ASGI middleware sees a request when its head is complete, and
cannot abort a connection. Without this class, all 15 attacks in
``tests/integration/test_http_connections.py`` succeed. uvicorn's h11 protocol stops the long heads,
but no connection that is idle or does not read, no endless body, and not the peer with too many
connections.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from http import HTTPStatus
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class GuardedConnection(HttpToolsProtocol):
    """A connection of uvicorn's that is closed when it goes beyond a limit."""

    most_head_bytes: ClassVar[int] = 64 * 2**10
    """Of the head of a request, with its address."""
    most_body_bytes: ClassVar[int] = 2**20
    """Of the body of a request, which nobody looks at."""
    head_seconds: ClassVar[float] = 20
    """In which the head of a request has to come, from the connection or its first byte on."""
    stalled_seconds: ClassVar[float] = 60
    """For which a peer may take nothing of an answer."""
    most_of_a_peer: ClassVar[int] = 2048
    """Connections of one address."""

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
        if self._of_peers[self._peer] > self.most_of_a_peer:
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
            if self._head_bytes > self.most_head_bytes:
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
        if n_bytes > self.most_head_bytes:
            self._refuse(431, "the head of the request is too long")
        if not self._refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass over a body, as nothing here takes one; not for ever."""
        self._body_bytes += len(body)
        if self._body_bytes > self.most_body_bytes:
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
        self._stall = self.loop.call_later(self.stalled_seconds, self._look_after, n_waiting)

    def _look_after(self, n_waited: int) -> None:
        """Leave a peer for which as much waits as before."""
        n_waiting = self.transport.get_write_buffer_size()
        if n_waiting < n_waited:
            self._await_reader(n_waiting)
        else:
            self.transport.abort()

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(
            self.head_seconds, self._refuse, 408, "no whole request came in time"
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
