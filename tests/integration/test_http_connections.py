"""Connections to the server that cost more than they should, and catalogs that are replaced."""

import contextlib
import socket
import time
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from gridref.api.catalog import write_catalog
from gridref.faces.http import create_app
from gridref.faces.http.server import GuardedConnection
from gridref.model.array import VirtualGroup
from gridref.testing.builders import chunked_array
from tests.uvicorn_server import running

VALUES = np.arange(2**22, dtype="<i4")


class Impatient(GuardedConnection):
    head_seconds = 0.4
    stalled_seconds = 0.4
    most_of_a_peer = 5
    most_body_bytes = 2**17


@pytest.fixture(scope="module")
def url():
    group = VirtualGroup({"a": chunked_array(VALUES, (2**22,), ("x",))})
    with running(create_app({"c": group}), Impatient) as url:
        yield url


def connect(url, receive_bytes=None):
    parts = urlsplit(url)
    connection = socket.socket()
    if receive_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(20)
    connection.connect((parts.hostname, parts.port))
    return contextlib.closing(connection)


def answer_of(connection):
    """All that comes until the server closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(2**16):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("where", ["field", "fields", "address", "name"])
def test_long_heads_are_refused(url, where, at_once):
    long = b"x" * 100_000
    head = {
        "field": b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + long,
        "fields": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20_000,
        "address": b"GET /" + long,
        "name": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + long,
    }[where]
    ends = b"" if where in ("address", "name") or not at_once else b"\r\n\r\n"
    with connect(url) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head + ends)
        assert answer_of(connection).startswith(b"HTTP/1.1 431 ")


def test_heads_that_are_not_too_long_are_answered(url):
    for _ in range(3):
        assert httpx.get(f"{url}/healthz", headers={"X-Long": "x" * 30_000}).status_code == 200
    with httpx.Client() as client:  # one connection
        for _ in range(10):
            assert client.get(f"{url}/healthz", headers={"X-Long": "x" * 9_000}).status_code == 200
        assert client.post(f"{url}/healthz", content=b"x" * 90_000).status_code == 405
        assert client.get(f"{url}/healthz").status_code == 200


@pytest.mark.parametrize(
    "sent", [b"", b"GET /healthz HTT", b"GET / HTTP/1.1\r\nHost: localhost\r\n"]
)
def test_requests_that_do_not_come_end_the_connection(url, sent):
    with connect(url) as connection:
        connection.sendall(sent)
        assert answer_of(connection).startswith(b"HTTP/1.1 408 ")


def test_heads_that_come_byte_by_byte_end_the_connection(url):
    with connect(url) as connection, contextlib.suppress(ConnectionError):
        for _ in range(100):
            connection.sendall(b"\r\n")
            time.sleep(0.05)
        pytest.fail("the connection is open yet")


def test_bodies_without_end_end_the_connection(url):
    with connect(url) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
        )
        for _ in range(400):
            connection.sendall(bytes(2**16))
        pytest.fail("the connection takes everything")


def test_peers_that_do_not_read_are_left(url):
    with connect(url, receive_bytes=4096) as connection:
        connection.sendall(b"GET /c/native/a/c/0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(2)
        assert len(answer_of(connection)) < VALUES.nbytes
    with httpx.stream("GET", f"{url}/c/native/a/c/0") as response:
        n_bytes = 0
        for part in response.iter_raw(2**20):  # slow, but it reads
            time.sleep(0.05)
            n_bytes += len(part)
    assert n_bytes == VALUES.nbytes


def test_too_many_connections_of_a_peer_are_refused(url):
    with contextlib.ExitStack() as held:
        for _ in range(5):
            held.enter_context(connect(url))
        with connect(url) as connection:
            assert answer_of(connection).startswith(b"HTTP/1.1 429 ")
    deadline = time.monotonic() + 20
    while httpx.get(f"{url}/healthz").status_code != 200:
        assert time.monotonic() < deadline


def test_a_catalog_under_its_digest_never_changes(tmp_path):
    address = tmp_path / "one.gridref"

    def build(number):
        array = chunked_array(np.full(12, number, "<i4"), (4,), ("x",))
        write_catalog(VirtualGroup({"a": array}), address)

    def value(path):
        answer = httpx.get(f"{url}{path}/native/a/c/0")
        return answer.status_code, answer.content[0] if answer.status_code == 200 else answer.text

    def rebuilt(number):
        build(number)
        while value("/one") != (200, number):
            time.sleep(0.05)
        return httpx.get(url).json()["catalogs"]["one"]["pinned"]

    build(1)
    with running(create_app([address], reload_seconds=0.05)) as url:
        pinned = [httpx.get(url).json()["catalogs"]["one"]["pinned"]]
        etag = httpx.get(f"{url}{pinned[0]}/native/zarr.json").headers["etag"]
        pinned += [rebuilt(number) for number in (2, 3, 4)]
        assert len({*pinned}) == 4
        for path, number in zip(pinned, (1, 2, 3, 4), strict=True):
            assert value(path)[0] == 409 or value(path) == (200, number)
        assert value(pinned[3]) == (200, 4)
        assert httpx.get(f"{url}{pinned[0]}/native/zarr.json").headers["etag"] == etag
        assert "one@" in httpx.get(f"{url}{pinned[0]}/native/").text
        rebuilt(5)
        status, text = value(pinned[0])
        assert (status, "rebuilt" in text) == (409, True)
        assert value("/one@000000000000")[0] == 409
        assert value("/two@000000000000")[0] == 404
        chunk = httpx.get(f"{url}/one/native/a/c/0")
        rebuilt(6)
        asked = {"If-Match": chunk.headers["etag"]}
        assert httpx.get(f"{url}/one/native/a/c/0", headers=asked).status_code == 412
