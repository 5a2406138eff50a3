"""The HTTP server: statuses, headers, ranges, connections and any request, against uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, urlencode, urlparse, urlsplit

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridref.catalog.commit import write_catalog
from gridref.errors import InvalidRequestError, SourceNotAllowedError
from gridref.faces.http import create_app
from gridref.faces.http.server import GuardedConnection
from gridref.faces.http.site import Site, SiteOptions
from gridref.limits import Limits
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.joining import concatenate
from gridref.model.manifest import ChunkManifest, Source
from gridref.testing.builders import chunked_array
from tests.uvicorn_server import running

VALUES = np.arange(20 * 6, dtype="i4").reshape(20, 6)


def file_array(path, *, n_chunks=4, chunk_bytes=4_000):
    """An array of bytes whose chunks lie in one file, one after the other."""
    data = np.random.default_rng(1).integers(0, 255, n_chunks * chunk_bytes, "u1")
    path.write_bytes(data.tobytes())
    status = path.stat()
    manifest = ChunkManifest.from_columns(
        [Source(str(path), status.st_size, status.st_mtime_ns)],
        offset=np.arange(n_chunks) * chunk_bytes,
        length=chunk_bytes,
    )
    encoding = Encoding((chunk_bytes,), np.dtype("u1"), (bytes_codec(np.dtype("u1")),))
    return data, VirtualArray.of_one_block(
        data.shape, data.dtype, encoding=encoding, manifest=manifest, dims=("x",)
    )


@pytest.fixture(scope="module")
def cube():
    parts = [
        chunked_array(VALUES, (5, 3), ("t", "x"), compressed=True, absent=a) for a in ((), (0,))
    ]
    group = VirtualGroup({"a": concatenate(parts, 0)}, attrs={"long": "x" * 3000})
    with running(create_app({"cube": group}, shards="blocks")) as url:
        yield url


@pytest.fixture(scope="module")
def shard(cube):
    response = httpx.get(f"{cube}/cube/native/a/c/0/0")
    assert response.status_code == 200
    return response.content


@pytest.mark.parametrize(
    ("header", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-9", 5, 10),
        ("bytes=7-", 7, None),
        ("bytes=-20", -20, None),
        ("bytes=0-99999999", 0, None),
        ("bytes=-99999999", 0, None),
        (f"bytes=0-{'9' * 5000}", 0, None),
        (f"bytes=-{'9' * 30}", 0, None),
        (f"bytes={'0' * 30}5-9", 5, 10),
        ("BYTES = 3-4", 3, 5),
    ],
)
def test_single_ranges(cube, shard, header, start, stop):
    response = httpx.get(f"{cube}/cube/native/a/c/0/0", headers={"Range": header})
    assert response.status_code == 206
    assert response.content == shard[start:stop]
    first, last = response.headers["content-range"].split(" ")[1].split("/")[0].split("-")
    assert shard[int(first) : int(last) + 1] == response.content
    assert response.headers["content-range"].endswith(f"/{len(shard)}")
    assert "content-encoding" not in response.headers


@pytest.mark.parametrize(
    "header",
    [
        "bytes=9-5",
        "bytes=abc",
        "bytes=--5",
        "lines=0-3",
        "bytes=1-2,x",
        "bytes",
        "bytes=0x1-2",
        "-",
    ],
)
def test_malformed_ranges_are_ignored(cube, shard, header):
    response = httpx.get(f"{cube}/cube/native/a/c/0/0", headers={"Range": header})
    assert (response.status_code, response.content) == (200, shard)


@pytest.mark.parametrize(
    "header",
    [
        "bytes=99999999-",
        "bytes=-0",
        f"bytes={','.join(['0-1'] * 1000)}",
        f"bytes={','.join(f'{i}-{i}' for i in range(200))}",
        "bytes=999999999999999999-",
        f"bytes={','.join(f'{i}-{i + 3}' for i in range(5000))}",
        f"bytes={'9' * 5000}-",
    ],
)
def test_absurd_ranges_are_refused(cube, shard, header):
    response = httpx.get(f"{cube}/cube/native/a/c/0/0", headers={"Range": header})
    assert response.status_code == 416
    assert response.headers["content-range"] == f"bytes */{len(shard)}"


def test_several_ranges(cube, shard):
    response = httpx.get(f"{cube}/cube/native/a/c/0/0", headers={"Range": "bytes=50-59,0-4,-3"})
    assert response.status_code == 206
    kind, boundary = response.headers["content-type"].split("; boundary=")
    assert kind == "multipart/byteranges"
    parts = response.content.split(f"--{boundary}".encode())[1:-1]
    bodies = [part.split(b"\r\n\r\n", 1)[1].removesuffix(b"\r\n") for part in parts]
    assert bodies == [shard[50:60], shard[0:5], shard[-3:]]


def test_overlapping_ranges_are_sent_once(cube, shard):
    response = httpx.get(f"{cube}/cube/native/a/c/0/0", headers={"Range": "bytes=5-20,0-10,8-9"})
    assert response.status_code == 206
    assert response.content == shard[0:21]


def test_conditions(cube):
    url = f"{cube}/cube/native/a/c/0/0"
    etag = httpx.head(url).headers["etag"]

    def status(**headers):
        return httpx.get(
            url, headers={k.replace("_", "-"): v for k, v in headers.items()}
        ).status_code

    assert status(if_match=etag) == 200
    assert status(if_match="*") == 200
    assert status(if_match='"other"') == 412
    assert status(if_match=f"W/{etag}") == 412
    assert status(if_none_match=etag) == 304
    assert status(if_none_match=f'"x", W/{etag}') == 304
    assert status(if_none_match="*") == 304
    assert status(if_none_match='"other"') == 200
    assert status(if_range=etag, range="bytes=0-3") == 206
    assert status(if_range='"other"', range="bytes=0-3") == 200
    assert status(if_range="Sat, 29 Oct 1994 19:43:31 GMT", range="bytes=0-3") == 200
    assert status(if_match='"other"', range="bytes=0-3") == 412


def test_fields_of_one_name_are_one_list(cube):
    url = f"{cube}/cube/native/a/c/0/0"
    etag = httpx.head(url).headers["etag"]
    for name, status in (("If-None-Match", 304), ("If-Match", 200)):
        for tags in ((etag, '"other"'), ('"other"', etag)):
            assert httpx.get(url, headers=[(name, tag) for tag in tags]).status_code == status


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("cube/native/a/c/0/0", {}, 404),  # an absent chunk, which may come
        ("cube/native/a/c/0/1", {"If-Match": '"other"'}, 412),
        ("cube/native/a/c/0/1", {"Range": "bytes=999-"}, 416),
        ("cube@former/native/a/c/0/1", {}, 409),
        ("", {}, 200),
        ("cube/native/a/c/0/1", {}, 200),
    ],
)
def test_caches_keep_no_refusal(path, headers, status):
    absent = chunked_array(VALUES, (20, 3), ("t", "x"), absent=(0,))
    app = create_app({"cube": VirtualGroup({"a": absent})}, max_age=60, access_log=False)
    response = ask(app, "GET", f"/{path}", headers)
    assert response.status_code == status
    kept = path.startswith("cube") and status == 200
    assert response.headers["cache-control"] == ("public, max-age=60" if kept else "no-cache")
    assert "content-length" in response.headers


def test_head_says_what_get_sends(cube):
    for key in ("zarr.json", "a/zarr.json", "a/c/0/0"):
        for view in ("native", "portable"):
            head = httpx.head(f"{cube}/cube/{view}/{key}", headers={"Accept-Encoding": "identity"})
            full = httpx.get(f"{cube}/cube/{view}/{key}", headers={"Accept-Encoding": "identity"})
            assert head.content == b""
            assert int(head.headers["content-length"]) == len(full.content)
            assert head.headers["etag"] == full.headers["etag"]


def test_gzip_is_for_metadata_only(cube):
    with httpx.Client(headers={"Accept-Encoding": "gzip"}) as client:
        packed = client.get(f"{cube}/cube/native/zarr.json")
        assert packed.headers["content-encoding"] == "gzip"
        plain = client.get(f"{cube}/cube/native/zarr.json", headers={"Accept-Encoding": "gzip;q=0"})
        assert "content-encoding" not in plain.headers
        assert packed.json() == plain.json()
        assert packed.headers["etag"] != plain.headers["etag"]
        assert packed.headers["vary"] == "Accept-Encoding"
        part = client.get(f"{cube}/cube/native/zarr.json", headers={"Range": "bytes=0-9"})
        assert "content-encoding" not in part.headers
        assert "content-encoding" not in client.get(f"{cube}/cube/native/a/c/0/0").headers


@pytest.mark.parametrize(
    "key",
    [
        "a/c/9/9",
        "a/c/00/0",
        "a/c/0",
        "a/c/-1/0",
        "a/c/0/0/0",
        "a/c/%D9%A0/0",
        "b/zarr.json",
        ".zgroup",
        "a/.zarray",
        "..%2f..%2fetc/passwd",
        "../../../../etc/passwd",
        "a/c/../../zarr.json",
        "%00",
        "a/c/0/0%00",
        "a//c/0/0",
        "A/c/0/0",
        "a/c/0/0/",
        "a/c/99999999999999999999/0",
    ],
)
def test_what_is_no_key_is_not_found(cube, key):
    address = urlparse(cube)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(
            f"GET /cube/native/{key} HTTP/1.1\r\n".encode()
            + b"Host: localhost\r\nConnection: close\r\n\r\n"
        )
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 404"), answer[:200]
    assert b"root:" not in answer


def test_missing_chunks_are_absent(tmp_path):
    array = chunked_array(VALUES, (5, 3), ("t", "x"), absent=(0,))
    app = create_app({"m": VirtualGroup({"a": array})}, chunks={"t": 5, "x": 3})
    with running(app) as url:
        for view in ("native", "portable"):
            assert httpx.get(f"{url}/m/{view}/a/c/0/0").status_code == 404
            assert httpx.get(f"{url}/m/{view}/a/c/0/1").status_code == 200


def test_web_pages_may_read_where_they_are_allowed(cube):
    group, origin = VirtualGroup({}), {"Origin": "https://example.org"}
    response = httpx.get(f"{cube}/cube/native/zarr.json", headers=origin)
    assert "access-control-allow-origin" not in response.headers  # the loopback device
    for allowed, told in (
        (["*"], "*"),
        (["https://example.org/"], "https://example.org"),
        (["https://example.com"], None),
    ):
        with running(create_app({"m": group}, allow_origin=allowed)) as url:
            response = httpx.get(f"{url}/m/native/zarr.json", headers=origin)
            assert response.headers.get("access-control-allow-origin") == told
            assert ("Origin" in response.headers.get("vary", "")) == (allowed != ["*"])
            if told == "*":
                assert "ETag" in response.headers["access-control-expose-headers"]
                asks = {**origin, "Access-Control-Request-Headers": "range"}
                preflight = httpx.options(f"{url}/m/native/zarr.json", headers=asks)
                assert preflight.status_code == 204
                assert "Range" in preflight.headers["access-control-allow-headers"]


def test_no_page_of_others_may_read_unless_it_is_named():
    app = create_app({"m": VirtualGroup({})})

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app)  # as one that listens at a public address
        async with httpx.AsyncClient(
            transport=transport, base_url="http://192.0.2.7:8000"
        ) as client:
            origin = {"Origin": "https://example.org"}
            return await client.get("/m/portable/zarr.json", headers=origin)

    response = asyncio.run(asked())
    assert response.status_code == 200
    assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH", "TRACE", "BREW"])
def test_it_is_read_only(cube, method):
    response = httpx.request(method, f"{cube}/cube/native/zarr.json")
    if method == "BREW":  # httptools knows the registered methods only
        assert response.status_code in (400, 405)
        return
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, HEAD, OPTIONS"


def test_pages(cube):
    assert httpx.get(f"{cube}/healthz").text == "ok\n"
    assert httpx.get(cube).json()["catalogs"]["cube"]["native"] == "/cube/native"
    assert "<a href=" in httpx.get(cube, headers={"Accept": "text/html"}).text
    assert httpx.get(f"{cube}/cube").json()["native"]["a"]["view"] == "native"
    httpx.get(f"{cube}/cube/native/a/c/0/0", headers={"Range": "bytes=0-0"})
    metrics = httpx.get(f"{cube}/metrics").text
    assert 'gridref_http_requests_total{route="native",method="GET",status="206"}' in metrics
    assert httpx.get(f"{cube}/nowhere").status_code == 404


def test_a_failing_source_is_a_502_that_names_it(tmp_path):
    _, array = file_array(tmp_path / "data.bin")
    with running(create_app({"c": VirtualGroup({"a": array})})) as url:
        assert httpx.get(f"{url}/c/native/a/c/0").status_code == 200
        (tmp_path / "data.bin").write_bytes(b"other")
        for view in ("native", "portable"):
            response = httpx.get(f"{url}/c/{view}/a/c/0")
            assert response.status_code == 502
            assert "data.bin" in response.json()["reason"]
            assert str(tmp_path) not in response.text
            assert response.headers["cache-control"] == "no-store"
        assert httpx.get(f"{url}/c/native/a/c/0", headers={"Range": "bytes=0-3"}).status_code == 502
        assert httpx.get(f"{url}/c/native/a/zarr.json").status_code == 200


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    ("view", "shards", "ranges"),
    [
        ("native", "blocks", None),
        ("native", None, None),
        ("portable", "blocks", None),
        ("native", "blocks", "bytes=0-20000000,21000000-47000000"),
    ],
)
def test_a_source_that_fails_half_way_breaks_the_connection(tmp_path, view, shards, ranges):
    chunk = 12 * 2**20
    _, array = file_array(tmp_path / "data.bin", n_chunks=4, chunk_bytes=chunk)
    app = create_app({"c": VirtualGroup({"a": array})}, shards=shards)
    reads = []
    inner = app.site.pool.read_ranges

    def failing(source, offsets, lengths):
        reads.append(offsets)
        if len(reads) > 2:
            (tmp_path / "data.bin").write_bytes(b"cut")
        return inner(source, offsets, lengths)

    app.site.pool.read_ranges = failing
    headers = {} if ranges is None else {"Range": ranges}
    with running(app) as url, pytest.raises(httpx.RemoteProtocolError, match="complete"):
        httpx.get(f"{url}/c/{view}/a/c/0", headers=headers)
    assert app.metrics.render({}).count("gridref_http_aborted_total 1") == 1


def test_clients_that_leave_half_way_stop_the_reading(tmp_path):
    size = 64 * 2**20
    _, array = file_array(tmp_path / "data.bin", n_chunks=1, chunk_bytes=size)
    app = create_app({"c": VirtualGroup({"a": array})})
    with running(app) as url:
        address = urlparse(url)
        for _ in range(10):
            with socket.create_connection((address.hostname, address.port)) as connection:
                connection.sendall(b"GET /c/native/a/c/0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert connection.recv(100).startswith(b"HTTP/1.1 200")
        wait_until(lambda: httpx.get(f"{url}/metrics").text.count('status="200"} 10'))
        assert httpx.get(f"{url}/c/native/a/c/0").status_code == 200
    assert app.site.pool.n_bytes < 5 * size
    assert "gridref_http_aborted_total 0" in app.metrics.render({})


def test_large_shards_are_streamed(tmp_path):
    data, array = file_array(tmp_path / "data.bin", n_chunks=5, chunk_bytes=7 * 2**20)
    with running(create_app({"c": VirtualGroup({"a": array})}, shards="blocks")) as url:
        for view in ("native", "portable"):
            whole = httpx.get(f"{url}/c/{view}/a/c/0").content
            assert whole[: data.size] == data.tobytes()
            part = httpx.get(f"{url}/c/{view}/a/c/0", headers={"Range": "bytes=1000-29999999"})
            assert part.content == data.tobytes()[1000:30_000_000]


def test_compressed_chunks_have_a_size(tmp_path):
    array = chunked_array(VALUES, (5, 3), ("t", "x"))
    app = create_app({"c": VirtualGroup({"a": array})}, compressor="zstd")
    with running(app) as url:
        head = httpx.head(f"{url}/c/portable/a/c/0/0")
        full = httpx.get(f"{url}/c/portable/a/c/0/0")
        part = httpx.get(f"{url}/c/portable/a/c/0/0", headers={"Range": "bytes=-4"})
    assert int(head.headers["content-length"]) == len(full.content)
    assert part.content == full.content[-4:]


def test_sources_elsewhere_are_never_touched(tmp_path, monkeypatch):
    inside, outside = tmp_path / "in", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    os.symlink(outside / "other.bin", inside / "link.bin")
    for name, path in (("named", outside / "secret.bin"), ("linked", inside / "link.bin")):
        _, array = file_array(path)
        write_catalog(VirtualGroup({"a": array}), inside / f"{name}.gridref")
    monkeypatch.setenv("GRIDREF_STATE", str(tmp_path / "of a stranger"))

    def statuses(allow):
        with running(create_app([inside], allow=allow)) as url:
            asked = [httpx.get(f"{url}/{name}/native/a/c/0") for name in ("named", "linked")]
        refused = [answer for answer in asked if answer.status_code == 502]
        for answer in refused:
            assert "see --allow" in answer.json()["reason"]
            assert str(tmp_path) not in answer.text
        return [answer.status_code for answer in asked]

    for allow in (None, [], [str(inside)], [str(tmp_path / "out")]):
        assert statuses(allow) == [502, 502], allow
    for allow in ([str(outside)], outside, "*"):
        assert statuses(allow) == [200, 200], allow


@pytest.mark.long(but=1)
@pytest.mark.parametrize("link", ["a catalog", "a root file", "a table"])
def test_catalogs_that_are_linked_into_a_served_folder_need_to_be_allowed(tmp_path, link):
    served, private = tmp_path / "served", tmp_path / "private"
    served.mkdir()
    group = VirtualGroup({"a": VirtualArray.from_numpy(VALUES, ("t", "x"))})
    write_catalog(group, served / "own.gridref")
    write_catalog(group, private / "b.gridref")
    if link == "a catalog":
        (served / "b.gridref").symlink_to(private / "b.gridref")
    else:
        shutil.copytree(private / "b.gridref", served / "b.gridref")
        pattern = "gridref.json" if link == "a root file" else "*chunks*"
        (copy,) = (served / "b.gridref").glob(pattern)
        copy.unlink()
        copy.symlink_to(private / "b.gridref" / copy.name)

    def status(app):
        with running(app) as url:
            assert httpx.get(f"{url}/own/native/a/c/0/0").status_code == 200
            return httpx.get(f"{url}/b/native/a/c/0/0").status_code

    for allow in (None, str(served)):
        if link == "a table":
            assert status(create_app([served], allow=allow)) == 502
            continue
        with pytest.raises(SourceNotAllowedError, match=r"allow=.*private"):
            create_app([served], allow=allow)
    assert status(create_app([served], allow=private)) == 200
    (served / "b.gridref").rename(tmp_path / "b.gridref")
    site = Site([served], SiteOptions())
    (tmp_path / "b.gridref").rename(served / "b.gridref")
    site.refresh()
    if link == "a table":
        assert not site.problems
    else:
        assert [*site.catalogs] == ["own"]
        assert "see --allow" in site.problems["b"]
    # A folder that is itself a link, and links within it, lead nowhere else.
    (tmp_path / "linked").symlink_to(served)
    (served / "c.gridref").symlink_to("own.gridref")
    (served / "b.gridref").rename(tmp_path / "b.gridref")
    with running(create_app([tmp_path / "linked"])) as url:
        assert httpx.get(f"{url}/c/native/a/c/0/0").status_code == 200


def wait_until(check):
    """Until pytest's own timeout, at worst."""
    while not check():
        time.sleep(0.05)


def test_a_directory_of_catalogs_is_watched(tmp_path, monkeypatch):
    folder, data = tmp_path / "catalogs", tmp_path / "data"
    folder.mkdir()
    data.mkdir()
    values, array = file_array(data / "1.bin")
    write_catalog(VirtualGroup({"a": array}), folder / "one.gridref")
    with running(create_app([folder], reload_seconds=0.05)) as url:
        assert list(httpx.get(url).json()["catalogs"]) == ["one"]
        before = httpx.get(f"{url}/one/native/zarr.json").headers["etag"]
        write_catalog(VirtualGroup({"a": array, "b": array}), folder / "one.gridref")
        wait_until(lambda: httpx.get(f"{url}/one/native/zarr.json").headers["etag"] != before)
        assert httpx.get(f"{url}/one/native/b/c/0").content == values[:4000].tobytes()

        write_catalog(VirtualGroup({"a": array}), folder / "two.gridref")
        (tmp_path / "elsewhere").mkdir()
        _, secret = file_array(tmp_path / "elsewhere/secret.bin")
        monkeypatch.setattr("gridref.catalog.writing.remember", lambda *_: None)
        write_catalog(VirtualGroup({"a": secret}), folder / "bad.gridref")
        wait_until(lambda: len(httpx.get(url).json()["catalogs"]) == 3)
        assert httpx.get(f"{url}/two/native/a/c/0").status_code == 200
        # somebody else put it there: it may not read what the operator never allowed
        assert httpx.get(f"{url}/bad/native/a/c/0").status_code == 502


def test_catalogs_share_the_memory_for_decoded_chunks():
    values = {name: np.full((4, 50), number, "<f4") for number, name in enumerate("abc")}
    arrays = {
        name: chunked_array(each, (4, 50), ("y", "x"), compressed=True)
        for name, each in values.items()
    }
    groups = {name: VirtualGroup({"v": array}) for name, array in arrays.items()}
    app = create_app(groups, chunks={"y": 2})
    app.site.reader.reader.cache.max_bytes = 2 * 4 * 50 * 4  # that of two chunks
    with running(app) as url:
        for name, each in values.items():
            chunk = httpx.get(f"{url}/{name}/portable/v/c/1/0").content
            assert chunk == each[2:].tobytes()
        assert "\ngridref_decoded_cache_bytes 1600\n" in httpx.get(f"{url}/metrics").text


def test_a_catalog_that_breaks_stays_as_it_was(tmp_path):
    _, array = file_array(tmp_path / "1.bin")
    address = tmp_path / "one.gridref"
    write_catalog(VirtualGroup({"a": array}), address)
    with running(create_app([address], reload_seconds=0.05)) as url:
        assert httpx.get(f"{url}/one/native/a/c/0").status_code == 200
        (address / "gridref.json").write_text("{}")
        wait_until(lambda: httpx.get(url).json()["problems"])
        assert str(tmp_path) not in httpx.get(url).text
        assert httpx.get(f"{url}/one/native/a/c/0").status_code == 200


@pytest.fixture(scope="module")
def named():
    app = create_app({"m": VirtualGroup({})}, allow_host=["cube.example.org"])
    with running(app) as url:
        yield urlparse(url)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (["localhost"], 200),
        (["LOCALHOST:80"], 200),
        (["127.0.0.1:9"], 200),
        (["[::1]:8000"], 200),
        (["app.localhost"], 200),
        (["cube.example.org"], 200),
        (["evil.example.org"], 421),
        (["169.254.169.254"], 421),
        ([], 400),
        (["localhost", "localhost"], 400),
        (["localhost/x"], 400),
        (["local host"], 400),
    ],
)
def test_it_answers_to_names_that_it_knows(named, fields, status):
    head = "".join(f"Host: {field}\r\n" for field in fields)
    with socket.create_connection((named.hostname, named.port)) as connection:
        connection.sendall(f"GET /healthz HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
        assert connection.recv(100).startswith(f"HTTP/1.1 {status}".encode())


@pytest.mark.parametrize(
    ("accepted", "is_packed"),
    [
        ("gzip", True),
        ("br;q=1, gzip;q=0.001", True),
        ("*", True),
        ("gzip; q=0", False),
        ("gzip;q=0.0", False),
        ("gzip;Q=0.000, *", False),
        ("*;q=0", False),
        ("gzip;q=-1", False),
        ("identity", False),
    ],
)
def test_weights_of_codings(cube, accepted, is_packed):
    response = httpx.get(f"{cube}/cube/native/zarr.json", headers={"Accept-Encoding": accepted})
    assert (response.headers.get("content-encoding") == "gzip") == is_packed


def test_names_of_catalogs_may_not_collide(tmp_path):
    _, array = file_array(tmp_path / "1.bin")
    for folder in ("x", "y"):
        write_catalog(VirtualGroup({"a": array}), tmp_path / folder / "c.gridref")
    with pytest.raises(InvalidRequestError, match="two catalogs are named 'c'"):
        create_app([tmp_path / "x/c.gridref", tmp_path / "y/c.gridref"])
    with pytest.raises(InvalidRequestError, match="healthz"):
        create_app({"healthz": VirtualGroup({"a": array})})


def test_a_thousand_connections(cube):
    address = urlparse(cube)
    request = b"GET /cube/native/a/c/0/0 HTTP/1.1\r\nHost: localhost\r\nRange: bytes=-4\r\n\r\n"
    connections = [socket.create_connection((address.hostname, address.port)) for _ in range(1000)]
    try:
        for connection in connections:
            connection.sendall(request)
        answers = [connection.recv(4096) for connection in connections]
    finally:
        for connection in connections:
            connection.close()
    assert all(answer.startswith(b"HTTP/1.1 206") for answer in answers)


@pytest.mark.long
def test_slow_clients_do_not_hold_up_others(tmp_path):
    _, array = file_array(tmp_path / "data.bin", n_chunks=4, chunk_bytes=16 * 2**20)
    with running(create_app({"c": VirtualGroup({"a": array})}, shards="blocks")) as url:
        address = urlparse(url)
        slow = []
        for _ in range(40):
            connection = socket.create_connection((address.hostname, address.port))
            connection.sendall(b"GET /c/native/a/c/0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            slow.append(connection)
        with ThreadPoolExecutor(4) as threads:
            answers = list(
                threads.map(lambda _: httpx.get(f"{url}/c/native/zarr.json", timeout=5), range(8))
            )
            chunk = {"Range": "bytes=5000000-5999999"}
            data = httpx.get(f"{url}/c/native/a/c/0", headers=chunk, timeout=5)
        assert all(answer.status_code == 200 for answer in answers)
        assert data.status_code == 206
        for connection in slow:
            connection.close()


def test_requests_that_never_end_do_not_hold_up_others(cube):
    address = urlparse(cube)
    slow = []
    for number in range(200):
        connection = socket.create_connection((address.hostname, address.port))
        connection.sendall(b"GET /cube/native/zarr.json HTTP/1.1\r\nX: "[: 5 + number % 40])
        slow.append(connection)
    try:
        assert httpx.get(f"{cube}/cube/native/zarr.json", timeout=5).status_code == 200
    finally:
        for connection in slow:
            connection.close()


@pytest.mark.parametrize(
    "request_bytes",
    [
        (
            b"GET /cube/native/zarr.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        ),
        (
            b"GET /cube/native/zarr.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
            b"Content-Length: 6\r\n\r\nhello!"
        ),
        (
            b"GET /cube/native/zarr.json HTTP/1.1\r\nHost: localhost\r\n"
            b"Transfer-Encoding: xchunked\r\n\r\n"
        ),
        b"GET /cube/native/zarr.json HTTP/1.1\r\n Host: localhost\r\n\r\n",
        b"GET http://other/cube/native/zarr.json HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
    ],
)
def test_smuggling_shapes_do_no_harm(cube, request_bytes):
    address = urlparse(cube)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.settimeout(2)
        connection.sendall(request_bytes)
        try:
            answer = connection.recv(65536)
        except TimeoutError:
            answer = b""
    assert not answer.startswith(b"HTTP/1.1 5")
    assert httpx.get(f"{cube}/healthz").status_code == 200


HIDDEN = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        (b"Content-Length: %d\r\n" % len(HIDDEN), HIDDEN),
        (b"Transfer-Encoding: chunked\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)),
        (b"content-length: %d\r\nConnection: keep-alive\r\n" % len(HIDDEN), HIDDEN),
        (b"Content-Length: 0%d\r\n" % len(HIDDEN), HIDDEN),
    ],
)
def test_a_body_is_not_the_next_request(cube, fields, body):
    address = urlparse(cube)
    request = b"GET /cube/native/a/zarr.json HTTP/1.1\r\nHost: localhost\r\n"
    last = request + b"Connection: close\r\n\r\n"
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.settimeout(5)
        connection.sendall(request + fields + b"\r\n" + body + last)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.count(b"HTTP/1.1 200") == 2
    assert b"\r\n\r\nok\n" not in answer


@pytest.mark.parametrize(
    "fields",
    [
        b"Content-Length: +5\r\n",
        b"Content-Length: 5, 6\r\n",
        b"Content-Length: 0x5\r\n",
        b"Content-Length : 5\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: identity, chunked\r\nContent-Length: 5\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b"X: y\rContent-Length: 5\r\n",
        b"X: \x00\r\n",
        b"X: y\r\n z: folded\r\n",
    ],
)
def test_lengths_that_can_be_read_in_two_ways_hide_no_request(cube, fields):
    address = urlparse(cube)
    request = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n" + fields + b"\r\nhello"
    answer = b""
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.settimeout(5)
        with contextlib.suppress(OSError):  # the server may close it at any moment
            connection.sendall(request + HIDDEN)
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                answer += part
    assert b"HTTP/1.1 5" not in answer
    assert answer.count(b"HTTP/1.1 ") <= 2
    assert b"\r\n\r\nok\n" not in answer


def test_requests_are_logged_as_json(cube, caplog):
    import logging

    with caplog.at_level(logging.INFO, "gridref.access"):
        httpx.get(f"{cube}/cube/native/a/c/0/0", headers={"Range": "bytes=0-1"})
    entry = json.loads(caplog.records[-1].message)
    assert (entry["status"], entry["bytes"], entry["range"]) == (206, 2, "bytes=0-1")


LARGE = np.arange(2**22, dtype="<i4")


class Impatient(GuardedConnection):
    lower = Limits(
        request_head_seconds=0.4,
        stalled_seconds=0.4,
        peer_connections=5,
        request_body_bytes=2**17,
    )
    limits = staticmethod(lambda: Impatient.lower)


@pytest.fixture(scope="module")
def impatient():
    group = VirtualGroup({"a": chunked_array(LARGE, (2**22,), ("x",))})
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
def test_long_heads_are_refused(impatient, where, at_once):
    long = b"x" * 100_000
    head = {
        "field": b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + long,
        "fields": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20_000,
        "address": b"GET /" + long,
        "name": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + long,
    }[where]
    ends = b"" if where in ("address", "name") or not at_once else b"\r\n\r\n"
    with connect(impatient) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head + ends)
        assert answer_of(connection).startswith(b"HTTP/1.1 431 ")


def test_heads_that_are_not_too_long_are_answered(impatient):
    for _ in range(3):
        assert (
            httpx.get(f"{impatient}/healthz", headers={"X-Long": "x" * 30_000}).status_code == 200
        )
    with httpx.Client() as client:  # one connection
        for _ in range(10):
            assert (
                client.get(f"{impatient}/healthz", headers={"X-Long": "x" * 9_000}).status_code
                == 200
            )
        assert client.post(f"{impatient}/healthz", content=b"x" * 90_000).status_code == 405
        assert client.get(f"{impatient}/healthz").status_code == 200


@pytest.mark.parametrize(
    "sent", [b"", b"GET /healthz HTT", b"GET / HTTP/1.1\r\nHost: localhost\r\n"]
)
def test_requests_that_do_not_come_end_the_connection(impatient, sent):
    with connect(impatient) as connection:
        connection.sendall(sent)
        assert answer_of(connection).startswith(b"HTTP/1.1 408 ")


def test_heads_that_come_byte_by_byte_end_the_connection(impatient):
    with connect(impatient) as connection, contextlib.suppress(ConnectionError):
        for _ in range(100):
            connection.sendall(b"\r\n")
            time.sleep(0.05)
        pytest.fail("the connection is open yet")


def test_bodies_without_end_end_the_connection(impatient):
    with connect(impatient) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
        )
        for _ in range(400):
            connection.sendall(bytes(2**16))
        pytest.fail("the connection takes everything")


def test_peers_that_do_not_read_are_left(impatient):
    with connect(impatient, receive_bytes=4096) as connection:
        connection.sendall(b"GET /c/native/a/c/0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(2)
        assert len(answer_of(connection)) < LARGE.nbytes
    with httpx.stream("GET", f"{impatient}/c/native/a/c/0") as response:
        n_bytes = 0
        for part in response.iter_raw(2**20):  # slow, but it reads
            time.sleep(0.05)
            n_bytes += len(part)
    assert n_bytes == LARGE.nbytes


def test_too_many_connections_of_a_peer_are_refused(impatient):
    with contextlib.ExitStack() as held:
        for _ in range(5):
            held.enter_context(connect(impatient))
        with connect(impatient) as connection:
            assert answer_of(connection).startswith(b"HTTP/1.1 429 ")
    deadline = time.monotonic() + 20
    while httpx.get(f"{impatient}/healthz").status_code != 200:
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


NUMBERS = np.arange(60, dtype="i4").reshape(10, 6)
GROUP = VirtualGroup(
    {"a": chunked_array(NUMBERS, (5, 3), ("t", "x"), absent=(1,))},
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
                "m": VirtualArray.from_numpy(NUMBERS[:5].astype("f8"), ("lat", "lon")),
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
def test_whatever_is_asked_of_a_failing_source_names_it_or_needs_it_not(
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
