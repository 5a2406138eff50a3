"""Whatever is asked, the server answers as HTTP wants it, and never with a 5xx of its own.

The one 5xx there is, 502, says which source failed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode, urlparse

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridref.faces.http import create_app
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.manifest import ChunkManifest, Source
from gridref.testing.builders import chunked_array
from tests.uvicorn_server import running

VALUES = np.arange(60, dtype="i4").reshape(10, 6)
GROUP = VirtualGroup(
    {"a": chunked_array(VALUES, (5, 3), ("t", "x"), absent=(1,))},
    {"g": VirtualGroup({"s": chunked_array(np.float64(3.5).reshape(()), (), ())})},
)
APPS = [
    create_app({"cube": GROUP}, shards=shards, chunks={"t": 5, "x": 3}, compressor=compressor)
    for shards, compressor in ((None, None), ("blocks", None), (None, "zstd"))
]

PLACES = {"lat": np.linspace(80, -80, 5), "lon": np.linspace(0, 300, 6)}
VALUES_APP = create_app(
    {
        "cube": VirtualGroup(
            {
                **GROUP.arrays,
                "m": VirtualArray.from_numpy(VALUES[:5].astype("f8"), ("lat", "lon")),
                **{
                    name: VirtualArray.from_numpy(labels, (name,), {"units": f"degrees_{way}"})
                    for (name, labels), way in zip(PLACES.items(), ("north", "east"), strict=True)
                },
            },
            GROUP.groups,
        )
    }
)

PART = st.one_of(
    st.sampled_from(
        ["cube", "native", "portable", "a", "g", "s", "c", "0", "1", "zarr.json", "..", ".", ""]
    ),
    st.text(max_size=6),
    st.integers(-3, 10**25).map(str),
)
PATH = st.lists(PART, max_size=7).map("/".join)
KEY = st.sampled_from(["a/c/0/0", "a/c/1/1", "a/zarr.json", "zarr.json", "g/s/c", "g/zarr.json"])
NUMBER = st.one_of(st.just(""), st.integers(0, 200).map(str), st.integers(0, 10**30).map(str))
SPEC = st.one_of(
    st.tuples(NUMBER, NUMBER).map("-".join), st.text("0123456789-, bytes=", max_size=12)
)
RANGE = st.tuples(
    st.sampled_from(["bytes=", "bytes =", "Bytes=", "lines=", ""]),
    st.lists(SPEC, min_size=1, max_size=200).map(",".join),
).map("".join)
TAG = st.sampled_from(['"x"', 'W/"x"', "*", "", "ETAG", 'W/ETAG, "y"', '"', "\x7f"])


def ask(app: Any, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            url = httpx.URL("http://localhost").copy_with(raw_path=path.encode())
            return await client.request(method, url, headers=headers)

    return asyncio.run(go())


@given(app=st.sampled_from(APPS), path=PATH, method=st.sampled_from(["GET", "HEAD", "PUT", "X"]))
def test_any_path(app: Any, path: str, method: str) -> None:
    response = ask(app, method, f"/{quote(path)}", {"accept-encoding": "identity"})
    assert response.status_code in (200, 404, 405)
    if method == "HEAD":
        assert response.content == b""


@given(
    app=st.sampled_from(APPS),
    view=st.sampled_from(["native", "portable"]),
    key=KEY,
    method=st.sampled_from(["GET", "HEAD"]),
    headers=st.fixed_dictionaries(
        {}, optional={"range": RANGE, "if-match": TAG, "if-none-match": TAG, "if-range": TAG}
    ),
)
def test_any_headers(app: Any, view: str, key: str, method: str, headers: dict[str, str]) -> None:
    path = f"/cube/{view}/{key}"
    whole = ask(app, "GET", path, {"accept-encoding": "identity"})
    if whole.status_code == 404:  # shards put other keys in place of these
        return
    etag = whole.headers["etag"]
    headers = {name: value.replace("ETAG", etag) for name, value in headers.items()}
    response = ask(app, method, path, {"accept-encoding": "identity", **headers})
    status = response.status_code
    assert status in (200, 206, 304, 412, 416)
    assert response.headers["etag"] == etag
    if method == "HEAD" or status in (304, 412, 416):
        assert response.content == b""
    elif status == 200:
        assert response.content == whole.content
    elif "content-range" in response.headers:
        span = response.headers["content-range"].removeprefix("bytes ").split("/")[0]
        first, last = map(int, span.split("-"))
        assert response.content == whole.content[first : last + 1]
        assert 0 <= first <= last < len(whole.content)
    else:
        assert response.headers["content-type"].startswith("multipart/byteranges")
        assert int(response.headers["content-length"]) == len(response.content)


def gone_array() -> VirtualArray:
    """An array whose file is not there."""
    return VirtualArray.of_one_block(
        (10, 6),
        np.dtype("i4"),
        encoding=Encoding((5, 3), np.dtype("i4"), (bytes_codec(np.dtype("i4")),)),
        manifest=ChunkManifest.from_columns(
            [Source("/gone/away.nc", 240, 1)], offset=np.arange(4) * 60, length=60
        ),
        dims=("t", "x"),
    )


BROKEN = [
    create_app(
        {"cube": VirtualGroup({"a": gone_array()})},
        shards=shards,
        chunks={"t": 5, "x": 3},
        compressor=compressor,
        access_log=False,
    )
    for shards, compressor in ((None, None), ("blocks", None), (None, "zstd"), (None, "gzip"))
]


@given(
    app=st.sampled_from(BROKEN),
    view=st.sampled_from(["native", "portable"]),
    key=KEY,
    method=st.sampled_from(["GET", "HEAD"]),
    headers=st.fixed_dictionaries({}, optional={"range": RANGE, "if-match": TAG, "if-range": TAG}),
)
def test_a_failing_source_is_a_502_that_names_it(
    app: Any, view: str, key: str, method: str, headers: dict[str, str]
) -> None:
    response, aborted = None, ""
    try:
        response = ask(app, method, f"/cube/{view}/{key}", headers)
    except ConnectionAbortedError as error:
        aborted = str(error)
    if response is None:  # a part was sent before, like the index of a shard
        assert "/gone/away.nc" in aborted
        return
    assert response.status_code in (200, 206, 304, 404, 412, 416, 502)
    if response.status_code == 502 and method == "GET":
        assert "away.nc" in response.json()["reason"]
        assert "gone/" not in response.text
        assert response.headers["cache-control"] == "no-store"
    if response.status_code == 200 and method == "GET":
        assert key.endswith("zarr.json")


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with running(APPS[1]) as url:
        parsed = urlparse(url)
        yield str(parsed.hostname), int(parsed.port or 0)


LINE = st.one_of(
    st.sampled_from(
        [
            b"GET /cube/native/a/zarr.json HTTP/1.1",
            b"HEAD /cube/portable/a/c/0/0 HTTP/1.0",
            b"OPTIONS * HTTP/1.1",
            b"Host: localhost",
            b"Content-Length: 3",
            b"Transfer-Encoding: chunked",
            b"Range: bytes=0-1,5-",
            b"Connection: upgrade",
            b"Upgrade: h2c",
            b"",
            b"0",
        ]
    ),
    st.binary(max_size=30),
)


@pytest.mark.long
@given(lines=st.lists(LINE, max_size=12), end=st.sampled_from([b"\r\n", b"\n", b"\r\n\r\n"]))
def test_any_bytes(address: tuple[str, int], lines: list[bytes], end: bytes) -> None:
    with socket.create_connection(address) as connection:
        connection.settimeout(10)
        try:
            connection.sendall(end.join([*lines, b""]))
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        except ConnectionError:
            answer = b""
    assert b"HTTP/1.1 5" not in answer
    assert httpx.get(f"http://{address[0]}:{address[1]}/healthz").status_code == 200


NAMES = st.sampled_from(["at", "t", "x", "most", "along", "format", "style", "limits", "snapshot"])
GIVEN = st.one_of(
    st.sampled_from(["", ":", ":,:", "1,:", "::0,:", "::3,2", "0,1", "csv", "t", "gray_r", "1,2"]),
    st.text("0123456789:,/-.eE+ nait_T", max_size=12),
    st.text(max_size=4),
)


ADDRESSES = [
    "look/a",
    "look/m",
    "look/g/s",
    "series/a",
    "series/m",
    "series/g/s",
    "tiles/a/0/0/0.png",
    "tiles/m/0/0/0.png",
    "tiles/m/tilejson.json",
    "tiles/m/99/99/999999999.png",
]


@given(
    address=st.sampled_from(ADDRESSES),
    query=st.dictionaries(NAMES | st.just("lat") | st.just("lon"), GIVEN, max_size=3),
)
def test_any_query_of_values(address: str, query: dict[str, str]) -> None:
    path = f"/cube/{address}?{urlencode(query)}"
    response = ask(VALUES_APP, "GET", path, {"accept-encoding": "identity"})
    known = (200, 400, 404, 409, 413) if "snapshot" in query else (200, 400, 413)
    assert response.status_code in known, response.text
    if response.status_code in (400, 413):
        assert response.text.strip()
