"""What a server may read, and what its messages may show; no server needed."""

import numpy as np
import pytest

from gridref.adapters.http.policy import AllowedSources, folders_of, public_text, without_secrets
from gridref.adapters.http.requests import Preconditions, UnsatisfiableError, parse_range
from gridref.errors import Place, SourceUnavailableError
from gridref.model.manifest import Source


class Everything:
    def read_ranges(self, source, offsets, lengths):
        return [b""]

    def at_hand(self, source, offset, length):
        return b""

    def read_into(self, source, offset, buffer):
        return True


@pytest.mark.parametrize(
    ("prefix", "url", "allowed"),
    [
        ("s3://bucket/data", "s3://bucket/data/a.nc", True),
        ("s3://bucket/data/", "s3://bucket/data/a.nc", True),
        ("s3://bucket/data", "s3://bucket/database/a.nc", False),
        ("s3://bucket/data", "s3://bucket/data/../secret.nc", False),
        ("s3://bucket/data", "s3://bucket/data/%2e%2e/secret.nc", False),
        ("s3://bucket", "s3://bucket-of-others/a.nc", False),
        ("https://host", "https://host.evil.org/a.nc", False),
        ("https://host", "https://host@evil.org/a.nc", False),
        ("/data", "/data/a.nc", True),
        ("/data", "/database/a.nc", False),
        ("/data", "/data/../etc/passwd", False),
        ("/data", "file:///data/../etc/passwd", False),
        ("/data", "https://data/a.nc", False),
    ],
)
def test_prefixes(prefix, url, allowed):
    reader = AllowedSources(Everything(), [prefix])
    ranges = np.zeros(1, np.int64), np.ones(1, np.int64)
    if allowed:
        assert reader.read_ranges(Source(url), *ranges) == [b""]
        assert reader.at_hand(Source(url), 0, 1) == b""
        assert reader.read_into(Source(url), 0, memoryview(bytearray(1)))
    else:
        with pytest.raises(SourceUnavailableError, match="--allow-source"):
            reader.read_ranges(Source(url), *ranges)
        with pytest.raises(SourceUnavailableError, match="--allow-source"):
            reader.at_hand(Source(url), 0, 1)
        with pytest.raises(SourceUnavailableError, match="--allow-source"):
            reader.read_into(Source(url), 0, memoryview(bytearray(1)))


def test_nothing_is_allowed_by_default():
    with pytest.raises(SourceUnavailableError):
        AllowedSources(Everything(), []).read_ranges(Source("/a"), np.zeros(1), np.zeros(1))


def test_folders_that_a_catalog_was_built_from():
    sources = [Source("s3://b/x/1.nc"), Source("s3://b/x/2.nc"), Source("s3://b/y/1.nc")]
    assert folders_of(sources) == {"s3://b/x", "s3://b/y"}


def test_a_source_in_the_root_folder_allows_itself_only():
    reader = AllowedSources(Everything(), folders_of([Source("/one.nc")]))
    ranges = np.zeros(1, np.int64), np.ones(1, np.int64)
    assert reader.read_ranges(Source("/one.nc"), *ranges) == [b""]
    for other in ("/two.nc", "/etc/passwd", "/one.nc.txt"):
        with pytest.raises(SourceUnavailableError):
            reader.read_ranges(Source(other), *ranges)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            SourceUnavailableError("gone: '/my data/x/a.nc'", Place(source="/my data/x/a.nc")),
            "gone: 'a.nc' [file a.nc]",
        ),
        (SourceUnavailableError("cannot read file:///srv/x/a.nc"), "cannot read a.nc"),
        (SourceUnavailableError("no https://u:p@h/x/a.nc?k=1"), "no https://h/x/a.nc"),
        (FileNotFoundError(2, "No such file", "/my data/b/root.json"), "'root.json'"),
    ],
)
def test_folders_of_this_machine_are_not_shown(error, shown):
    assert public_text(error).endswith(shown)


def test_messages_show_no_secrets():
    text = "cannot read [file https://user:pw@host/a.nc?sig=abc, chunk (0)]: is it there?"
    assert without_secrets(text) == "cannot read [file https://host/a.nc, chunk (0)]: is it there?"


def test_ranges_are_cut_and_merged():
    assert parse_range("bytes=0-4,10-12", 100) == ((0, 5), (10, 13))
    assert parse_range("bytes=10-12,0-4", 100) == ((10, 13), (0, 5))
    assert parse_range("bytes=0-4,4-9,200-", 100) == ((0, 10),)
    assert parse_range(None, 100) is None
    with pytest.raises(UnsatisfiableError):
        parse_range("bytes=0-0", 0)


def test_tags():
    assert Preconditions('"a", "b"', None, None, "b").status is None
    assert Preconditions(None, None, "*", "b").range_counts is False
