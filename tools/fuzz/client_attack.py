"""Hostile clients of the server: strange requests, of which none may end or confuse it."""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlparse

import httpx

from gridref.faces.http import create_app
from tests.uvicorn_server import running
from tools.fuzz.catalog_attack import make_catalog

__all__ = ["ClientAttack"]

SECONDS = 10
_PARTS = (
    "a", "b", "cube", "native", "portable", "zarr.json", "c", "0", "1", "..", ".", "", "%2e%2e",
    "%00", "%ff", "\\", "etc", "passwd", "cube@sha256:00", "@", "*", "?", "#", ";", "x" * 5000,
)  # fmt: skip
_PATHS = ("cube/portable/a/c/0/0", "cube/native/a/c/0/0", "cube/portable/zarr.json", "")
_METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "TRACE", "get", "G" * 300, "")
_HEADERS = (
    "Range: bytes=0-0", "Range: bytes=-1", "Range: bytes=5-2", "Range: bytes=0-9999999999999999999",
    f"Range: bytes={'0-0,' * 2000}1-1", "If-Match: *", 'If-Match: "x"', "If-None-Match: *",
    "Accept-Encoding: gzip;q=0, *;q=0", "Accept-Encoding: zstd;q=9", "Host: evil.example",
    "Host: localhost", "Origin: http://evil.example", "Content-Length: 5", "Content-Length: -1",
    "Transfer-Encoding: chunked", "Connection: close", "Expect: 100-continue", "X: " + "y" * 70_000,
    "Bad header", ": x", "X\0: y", "Upgrade: websocket",
)  # fmt: skip


class ClientAttack:
    """Sends bytes to a server, which has to go on answering, and to tell nothing of its folders."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.address = urlparse(url)
        self.expected = httpx.get(f"{url}/cube/portable/a/c/0/0").content
        assert self.expected

    def __call__(self, seed: int) -> str | None:
        """One attempt: what broke, if anything did."""
        rng = random.Random(seed)
        answer = self._send(_request(rng))
        status = re.match(rb"HTTP/1\.[01] (\d\d\d)", answer)
        if answer and (status is None or int(status[1]) >= 500):
            return f"answered {answer[:100]!r}"
        if str(self.folder).encode() in answer or b"Traceback" in answer:
            return "it tells of its folders"
        if seed % 20:
            return None
        found = httpx.get(f"{self.url}/cube/portable/a/c/0/0", timeout=SECONDS).content
        return None if found == self.expected else "other bytes for the next client"

    def _send(self, request: bytes) -> bytes:
        assert self.address.hostname is not None
        assert self.address.port is not None
        with socket.create_connection((self.address.hostname, self.address.port), 5) as client:
            client.settimeout(2)
            try:
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
                answer = b""
                while part := client.recv(1 << 16):
                    answer += part
            except OSError:
                return b""
            return answer


def _request(rng: random.Random) -> bytes:
    if rng.random() < 0.1:
        return rng.randbytes(rng.randrange(2000))
    path = "/".join(rng.choice(_PARTS) for _ in range(rng.randrange(9)))
    if rng.random() < 0.5:
        path = rng.choice(_PATHS)
    lines = [f"{rng.choice(_METHODS)} /{path} HTTP/{rng.choice(('1.1', '1.0', '2.0', '9'))}"]
    if rng.random() < 0.7:
        lines = [f"GET /{path} HTTP/1.1", "Host: localhost", "Connection: close"]
    lines += rng.choices(_HEADERS, k=rng.randrange(5))
    raw = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n"
    if rng.random() < 0.2:
        raw = raw[: rng.randrange(len(raw))]
    return raw


@contextmanager
def client_attack(folder: Path) -> Iterator[ClientAttack]:
    """A server with a catalog, and what attacks it."""
    folder.mkdir()
    with running(create_app({"cube": str(make_catalog(folder))})) as url:
        yield ClientAttack(folder, url)
