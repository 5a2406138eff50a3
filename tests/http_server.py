"""Local HTTP servers: one with byte ranges and ETags that can be told to misbehave, and nginx."""

from __future__ import annotations

import gzip
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, override

import pytest

from tests.programs import program

ENDLESS_BYTES = 2**30
"""Of an answer that goes on for as long as anybody reads."""


@dataclass(frozen=True)
class _Answer:
    """What is sent for a range."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_endless: bool = False


def _faulty(fault: str, content: bytes, start: int, stop: int) -> _Answer:
    """A wrong answer to the range ``start:stop`` of a file."""
    total, size, body = len(content), stop - start, content[start:stop]
    stated = {"Content-Range": f"bytes {start}-{stop - 1}/{total}"}
    moved = (start + total // 2) % max(1, total - size)
    there = f"bytes {moved}-{moved + size - 1}/{total}"
    elsewhere = content[moved : moved + size]
    noise = bytes(255 - byte for byte in body)
    answers = {
        "another range": _Answer(206, {"Content-Range": there}, elsewhere),
        "a range of nothing said": _Answer(206, {}, elsewhere),
        "a range that is none": _Answer(206, {"Content-Range": "bytes */x"}, elsewhere),
        "all instead of a range": _Answer(200, {}, content),
        "the beginning as all": _Answer(200, {}, content[:size] if start else noise),
        "another success": _Answer(203, stated, noise),
        "compressed": _Answer(
            206, {**stated, "Content-Encoding": "gzip"}, gzip.compress(noise, mtime=0)
        ),
        "longer": _Answer(206, stated, body + noise),
        "endless": _Answer(206, stated, body, is_endless=True),
        "shorter": _Answer(206, stated, body[: size // 2]),
        "nothing": _Answer(206, stated, b""),
        "of a longer file": _Answer(
            206, {"Content-Range": f"bytes {start}-{stop - 1}/{total + 1}"}, noise
        ),
        "several parts": _Answer(
            206, {**stated, "Content-Type": "multipart/byteranges; boundary=x"}, noise
        ),
    }
    return answers[fault]


RANGE_FAULTS = (
    "another range",
    "a range of nothing said",
    "a range that is none",
    "all instead of a range",
    "the beginning as all",
    "another success",
    "compressed",
    "longer",
    "endless",
    "shorter",
    "nothing",
    "of a longer file",
    "several parts",
)
"""What can be wrong with the answer to a range."""


@dataclass
class Site:
    """What a server holds, and how it behaves.

    Attributes
    ----------
    files
        Content by path, like ``/a.nc``.
    etags
        ETag by path; none is sent for the others.
    modified
        Last-Modified by path; none is sent for the others.
    forbidden
        Paths that nobody may read.
    refuses
        Status to refuse a request with by its header fields and path; None lets it in.
    statuses
        Statuses to answer the next GET requests with, before all goes well.
    ignores_ranges
        Whether ranges are ignored, as simple servers do.
    cuts_bodies
        How many bodies to break off in the middle.
    states_length
        Whether answers say how long they are, and do not just end with the connection.
    awaits
        Answers are held back, two seconds at most, until so many requests are there at once.
    delay_seconds
        How long each answer is held back.
    most_a_second
        How many GET requests are answered within a second of the clock; to others it says that the
        client may come again in a second (503).
    failing
        Status that every request for a path gets, whatever else is set.
    redirects
        Where a path is said to be found, by path.
    redirect_status
        The status that says so.
    fault
        What is wrong with each answer to a range: one of `RANGE_FAULTS`.
    requests
        What was asked for: (method, path, range).
    headers
        The header fields of each request.
    most_at_once
        Most requests that were there at once.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str | None] = field(default_factory=dict)
    modified: dict[str, str | None] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    refuses: Callable[[Mapping[str, str], str], int | None] = lambda headers, path: None
    statuses: list[int] = field(default_factory=list)
    ignores_ranges: bool = False
    cuts_bodies: int = 0
    states_length: bool = True
    awaits: int = 0
    delay_seconds: float = 0
    most_a_second: int | None = None
    failing: dict[str, int] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    redirect_status: int = 302
    fault: str | None = None
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    most_at_once: int = 0
    url: str = ""
    n_sent: int = 0
    n_throttled: int = 0
    _second: tuple[int, int] = (0, 0)
    _n_there: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @classmethod
    def of_folder(cls, folder: Path) -> Site:
        """What serves a folder under its name, and lists nothing."""
        paths = [path for path in folder.rglob("*") if path.is_file()]
        return cls(
            {f"/{folder.name}/{path.relative_to(folder)}": path.read_bytes() for path in paths}
        )

    def is_too_much(self) -> bool:
        """Whether one more request is more than may come within a second."""
        if self.most_a_second is None:
            return False
        with self._changed:
            now = int(time.monotonic())
            second, n_requests = self._second
            self._second = now, n_requests + 1 if second == now else 1
            too_much = self._second[1] > self.most_a_second
            self.n_throttled += too_much
            return too_much

    def hold(self) -> None:
        """Count a request that is there, and hold it back."""
        with self._changed:
            self._n_there += 1
            self.most_at_once = max(self.most_at_once, self._n_there)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most_at_once >= self.awaits, timeout=2)
        time.sleep(self.delay_seconds)
        with self._changed:
            self._n_there -= 1


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    """With five, the default, connections that come together are tried again a second later."""

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients may go whenever they like."""


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    """Serve a site on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

        def do_HEAD(self) -> None:
            site.hold()
            self.answer(with_body=False)

        def do_GET(self) -> None:
            site.hold()
            self.answer(with_body=True)

        def answer(self, *, with_body: bool) -> None:
            path = self.path.partition("?")[0]
            site.requests.append((self.command, path, self.headers.get("Range")))
            site.headers.append(dict(self.headers))
            if path in site.redirects:
                self.send_response(site.redirect_status)
                self.send_header("Location", site.redirects[path])
                self.send_header("Content-Length", "0")
                return self.end_headers()
            refused = site.refuses(self.headers, self.path)  # type: ignore[arg-type]
            if refused is not None:
                return self.refuse(refused)
            if path in site.failing:
                return self.refuse(site.failing[path])
            if with_body and site.is_too_much():
                return self.refuse(503, {"Retry-After": "1"})
            if with_body and site.statuses:
                return self.refuse(site.statuses.pop(0))
            if path in site.forbidden:
                return self.refuse(403)
            content = site.files.get(path)
            if content is None:
                return self.refuse(404)
            start, stop, status = 0, len(content), 200
            range_ = self.headers.get("Range") or self.headers.get("x-ms-range") or ""
            wanted = re.fullmatch(r"bytes=(?:(\d+)-(\d*)|-(\d+))", range_)
            if wanted and not site.ignores_ranges:
                status = 206
                start = int(wanted[1]) if wanted[1] else max(0, stop - int(wanted[3]))
                stop = min(stop, int(wanted[2]) + 1) if wanted[2] else stop
                if start >= len(content):
                    return self.refuse(416)
                if with_body and site.fault:
                    return self.send_faulty(_faulty(site.fault, content, start, stop), path)
            self.send_response(status)
            if site.states_length:
                self.send_header("Content-Length", str(stop - start))
            else:
                self.send_header("Connection", "close")
            if not site.ignores_ranges:
                self.send_header("Accept-Ranges", "bytes")
            if status == 206:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
            for name, tags in (("ETag", site.etags), ("Last-Modified", site.modified)):
                if tag := tags.get(path):
                    self.send_header(name, tag)
            self.end_headers()
            if with_body:
                self.send_body(content[start:stop])
            return None

        def send_faulty(self, answer: _Answer, path: str) -> None:
            self.send_response(answer.status)
            size = ENDLESS_BYTES if answer.is_endless else len(answer.body)
            tag = site.etags.get(path)
            etag = {"ETag": tag} if tag else {}
            for name, value in {**etag, **answer.headers, "Content-Length": str(size)}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(answer.body)
                site.n_sent = len(answer.body)
                while answer.is_endless and site.n_sent < ENDLESS_BYTES:
                    site.n_sent += self.wfile.write(bytes(2**16))
            self.close_connection = answer.is_endless

        def send_body(self, body: bytes) -> None:
            if site.cuts_bodies:
                site.cuts_bodies -= 1
                self.wfile.write(body[: len(body) // 2])
                self.close_connection = True
            else:
                self.wfile.write(body)

        def refuse(self, status: int, headers: Mapping[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

    server = _Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


TYPES = (
    "text/html html; text/css css; text/javascript js; image/svg+xml svg; application/json json;"
)
"""Those of nginx's own mime.types that matter here."""
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@contextmanager
def nginx_serving(folder: Path, place: Path, locations: str = "") -> Iterator[str]:
    """Serve a folder; its own files go to `place`. Gives the address; skips without nginx.

    `locations` are further lines of the server's configuration.
    """
    nginx = program("nginx")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place.chmod(0o755)
    configuration = place / "nginx.conf"
    temporary = "\n".join(f"{name}_temp_path {place}/{name};" for name in TEMPORARY)
    configuration.write_text(
        f"daemon off; pid {place}/pid; error_log {place}/error.log;\n"
        "worker_processes 1; events {}\n"
        f"http {{ access_log {place}/access.log; {temporary}\n"
        f"types {{ {TYPES} }} default_type application/octet-stream;\n"
        f"server {{ listen 127.0.0.1:{port}; root {folder}; autoindex on;\n{locations} }} }}\n"
    )
    user = ["-g", "user root;"] if os.geteuid() == 0 else []
    process = subprocess.Popen([nginx, "-c", str(configuration), "-p", str(place), *user])
    try:
        _wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def _wait_for(port: int) -> None:
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("nginx did not start")
