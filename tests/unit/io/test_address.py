from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import fsspec
import pytest

from gridref.errors import InvalidRequestError, SourceUnavailableError
from gridref.io import (
    DataNames,
    absolute_url,
    beside,
    catalog_options,
    expand_urls,
    is_local,
    options_for,
)
from gridref.io.address import open_filesystem
from gridref.io.s3_session import PlainSession


def test_absolute_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    here = str(Path.cwd())
    assert absolute_url("a.nc") == f"{here}/a.nc"
    assert absolute_url(Path("x/../a.nc")) == f"{here}/a.nc"
    assert absolute_url("file:///data/a.nc") == "/data/a.nc"
    assert absolute_url("~/a.nc") == "/home/someone/a.nc"
    for url in (
        "s3://bucket/a.nc",
        "https://host/a.nc?x=1",
        "zip://a.nc::/tmp/x.zip",
        "memory://a",
    ):
        assert absolute_url(url) == url
        assert not is_local(url)
    with pytest.raises(InvalidRequestError, match="empty"):
        absolute_url("")


@pytest.mark.parametrize(
    ("url", "name", "expected"),
    [
        ("/data/a.tif", "b.tif", "/data/b.tif"),
        ("/data/a.tif", "./sub/b c.tif", "/data/sub/b c.tif"),
        ("/data/a.tif", "/else/b.tif", "/else/b.tif"),
        ("/data/a.tif", "s3://bucket/b.tif", "s3://bucket/b.tif"),
        ("https://host/data/a.tif?sig=x/y", "b c.tif", "https://host/data/b%20c.tif"),
        ("s3://bucket/data/a.tif", "./b.tif", "s3://bucket/data/b.tif"),
        ("memory://a.tif", "b.tif", "memory://b.tif"),
        ("zip://in/a.tif::https://h/x.zip?y", "b.tif", "zip://in/b.tif::https://h/x.zip?y"),
        ("simplecache::s3://b/d/a.tif", "b.tif", "simplecache::s3://b/d/b.tif"),
        ("s3://bucket/d/e/a.tif", "../x/./y/../b.tif", "s3://bucket/d/x/b.tif"),
        ("s3://bucket/d/a.tif", "../b.tif", "s3://bucket/b.tif"),
        ("s3://bucket/d/a.tif", "../../b.tif", "s3://bucket/../b.tif"),
        ("s3://bucket/d//a.tif", "e//b.tif", "s3://bucket/d//e//b.tif"),
        ("s3://bucket/d/a.tif", "/else/b.tif", "/else/b.tif"),
        ("https://host/d/e/a.tif", "../b.tif", "https://host/d/b.tif"),
        ("https://host/d/e/a.tif", "/else/b.tif", "https://host/else/b.tif"),
        ("https://host/d/a.tif", "b:c#1?.tif", "https://host/d/b%3Ac%231%3F.tif"),
    ],
)
def test_names_beside_a_file(url: str, name: str, expected: str) -> None:
    assert beside(url, name) == expected


def test_options_by_protocol_or_plain() -> None:
    by_protocol = {"gs": {"anon": True}, "memory": {}}
    assert options_for("gs://b/a", by_protocol) == {"anon": True}
    assert options_for("/a", by_protocol) == {}
    assert options_for("zip://a::gs://b/x.zip", by_protocol) == by_protocol
    assert options_for("gs://b/a", {"client_kwargs": {"region": "x"}}) == {
        "client_kwargs": {"region": "x"}
    }
    assert options_for("gs://b/a", None) == {}
    s3 = options_for("s3://b/a", {"config_kwargs": {"user_agent": "x"}})
    assert s3["config_kwargs"] == {"user_agent": "x", "http_session_cls": PlainSession}
    http = options_for("https://h/a", {"https": {"client_kwargs": {"trust_env": True}}})
    assert http["client_kwargs"]["trust_env"]
    assert http["client_kwargs"]["timeout"].sock_read


def test_options_of_the_catalog_alone() -> None:
    options = {"catalog": {"anon": False}, "gs": {"anon": True}}
    assert catalog_options(options) == {"anon": False}
    assert options_for("gs://b/a", options) == {"anon": True}
    assert options_for("/a", {"catalog": {"anon": False}}) == {}
    assert options_for("zip://a::gs://b/x.zip", options) == {"gs": {"anon": True}}
    assert catalog_options({"gs": {"anon": True}}) == {"gs": {"anon": True}}
    assert catalog_options(None) == {}


def test_options_of_both_forms_at_once_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="those of s3 and, beside them, anon"):
        options_for("s3://b/a", {"s3": {"anon": True}, "anon": True})


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    for name in (
        "f10.nc",
        "f2.nc",
        "F1.NC",
        "notes.txt",
        "sub/deep/g.tiff",
        ".hidden.nc",
        ".x/h.nc",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return tmp_path


def expand(patterns: Any) -> list[str]:
    return expand_urls(patterns, names=DataNames(suffixes=(".nc", ".h5", ".tiff")))


def names(urls: list[str], root: Path) -> list[str]:
    return [str(Path(url).relative_to(root)) for url in urls]


def test_a_directory_gives_its_data_files_in_natural_order(archive: Path) -> None:
    assert names(expand(archive), archive) == ["F1.NC", "f2.nc", "f10.nc", "sub/deep/g.tiff"]


def test_a_marker_beside_data_is_a_stray_file(archive: Path) -> None:
    marked = DataNames((".nc",), ("info",))
    (archive / "info").write_bytes(b"read me")
    (archive / "sub" / "info").write_bytes(b"{}")
    found = names(expand_urls(archive, names=marked), archive)
    assert found == ["F1.NC", "f2.nc", "f10.nc", "sub"]


def test_globs_and_files_keep_their_order_and_come_once(archive: Path) -> None:
    urls = expand([archive / "notes.txt", f"{archive}/f*.nc", str(archive / "f2.nc")])
    assert names(urls, archive) == ["notes.txt", "f2.nc", "f10.nc"]
    assert names(expand(f"{archive}/**/*.tiff"), archive) == ["sub/deep/g.tiff"]
    assert names(expand(f"{archive}/su*"), archive) == ["sub/deep/g.tiff"]


def test_a_file_whose_name_looks_like_a_glob(tmp_path: Path) -> None:
    (tmp_path / "a[1].nc").write_bytes(b"")
    assert names(expand(tmp_path / "a[1].nc"), tmp_path) == ["a[1].nc"]


def test_remote_patterns() -> None:
    filesystem = fsspec.filesystem("memory")
    for name in ("a2.nc", "a10.nc", "b.txt", "sub/c.h5"):
        filesystem.pipe_file(f"/expand/{name}", b"")
    assert expand("memory://expand/a*.nc") == [
        "memory:///expand/a2.nc",
        "memory:///expand/a10.nc",
    ]
    assert expand("memory://expand") == [
        "memory:///expand/a2.nc",
        "memory:///expand/a10.nc",
        "memory:///expand/sub/c.h5",
    ]
    assert expand("memory://expand/b.txt") == ["memory://expand/b.txt"]


@pytest.mark.parametrize(
    "pattern", ["{}/zz*.nc", "{}/zz.nc", "memory://zz/*.nc", "memory://zz/q.nc"]
)
def test_a_pattern_that_matches_nothing_is_named(tmp_path: Path, pattern: str) -> None:
    wanted = pattern.format(tmp_path)
    with pytest.raises(InvalidRequestError) as caught:
        expand([wanted])
    assert wanted in str(caught.value)


def test_a_directory_without_data_says_what_it_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"no file in this directory ends in \.nc"):
        expand(tmp_path)
    with pytest.raises(InvalidRequestError, match="no files given"):
        expand([])


def test_many_addresses_with_a_query_are_taken_without_asking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gridref.io.address.open_filesystem", None)  # whoever asks needs one
    signed = [f"https://example.org/{name}.nc?X-Amz-Signature={name}%2A*[?" for name in "ab"]
    assert expand(signed) == signed


@pytest.mark.parametrize("pattern", ["a.nc", "*.nc", "folder/", "folder"])
def test_a_host_that_cannot_be_reached_is_no_missing_file(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridref.io.faults.time.sleep", lambda seconds: None)
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/{pattern}"
        with pytest.raises(SourceUnavailableError, match=r"no server answers at 127\.0\.0\.1"):
            expand_urls(url)


@pytest.mark.parametrize("n_characters", [100, 20_000])
def test_messages_do_not_repeat_absurdly_long_addresses(tmp_path: Path, n_characters: int) -> None:
    name = "n" * n_characters
    for wanted in (f"{name}.nc", f"{tmp_path}/*{name}.nc", f"http://127.0.0.1:9/{name}.nc"):
        with pytest.raises((InvalidRequestError, SourceUnavailableError)) as caught:
            expand_urls(wanted)
        text = str(caught.value)
        assert "n" * 100 in text
        assert text.count("n") <= max(2 * n_characters, 700)
        assert len(text) < 1500


@pytest.mark.parametrize("url", ["https://host/a::b.nc", "simplecache::s3://bucket/a::b.nc"])
def test_names_like_chains_are_told(url: str) -> None:
    with pytest.raises(InvalidRequestError, match="'::' joins the addresses of filesystems"):
        open_filesystem(url, None)
