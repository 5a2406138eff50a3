"""Which addresses a policy allows; nothing is opened."""

import pytest

from gridref.errors import InvalidRequestError, SourceNotAllowedError
from gridref.model.source_policy import (
    EVERYTHING,
    SourcePolicy,
    checked_prefix,
    common_folders,
)

HTTP = "https://host/data"


@pytest.mark.parametrize(
    ("prefix", "address", "allowed"),
    [
        ("s3://bucket/data", "s3://bucket/data/a.nc", True),
        ("s3://bucket/data/", "s3://bucket/data/a.nc", True),
        ("s3://bucket/data/a.nc", "s3://bucket/data/a.nc", True),
        ("s3://bucket/data", "s3://bucket/database/a.nc", False),
        ("s3://bucket/data", "s3://bucket/data/../secret.nc", False),
        ("s3://bucket/data", "s3://bucket/data/%2e%2e/secret.nc", False),
        ("s3://bucket", "s3://bucket-of-others/a.nc", False),
        ("s3://bucket", "gs://bucket/a.nc", False),
        ("https://host", "https://host/a.nc", True),
        ("https://host", "https://HOST:443/a.nc?signature=1", True),
        ("https://host", "https://user:password@host/a.nc", True),
        ("https://host", "http://host/a.nc", False),
        ("https://host", "https://host:8443/a.nc", False),
        ("https://host", "https://host.evil.org/a.nc", False),
        ("https://host", "https://host@evil.org/a.nc", False),
        ("https://host", "https://evil.org\\@host/a.nc", False),
        ("https://host", "https://host\t.evil.org/a.nc", False),
        ("https://host", "http://169.254.169.254/latest/meta-data", False),
        (HTTP, "https://host/data/a.nc", True),
        (HTTP, "https://host/database/a.nc", False),
        (HTTP, "https://host/data/../admin", False),
        (HTTP, "https://host/data/%2e%2E/admin", False),
        (HTTP, "https://host/data/%252e%252e/admin", False),
        (HTTP, "https://host/data/..\\admin", False),
        ("https://host/d%61ta%20s/é", "https://host/data%20s/%C3%A9/a.nc", True),
        ("https://host/a+b", "https://host/a%2Bb/a.nc", True),
        (HTTP, "https://host/data%2Fa.nc", False),
        ("https://host/%FE", "https://host/%FF/a.nc", False),
        ("https://münchen.example/data", "https://xn--mnchen-3ya.example/data/a.nc", True),
        ("/data", "/data/a.nc", True),
        ("/data", "/database/a.nc", False),
        ("/data", "/data/../etc/passwd", False),
        ("/data", "https://data/a.nc", False),
        ("/data", "etc/passwd", False),
        ("/data", "file:///data/a.nc", True),
        ("/data", "file:///etc/passwd", False),
        ("/data", "zip://a.nc::/data/b.zip", True),
        ("/data", "zip://a.nc::file:///data/b.zip", True),
        ("/data", "zip://a.nc::/etc/b.zip", False),
        ("/data", "zip://a.nc::zip://b.zip::/data/c.zip", True),
        (HTTP, "tar://a.nc::https://host/data/b.tar", True),
        (HTTP, "tar://a.nc::https://host/b.tar", False),
        (HTTP, "simplecache::https://host/data/a.nc", False),
        (f"simplecache::{HTTP}", "simplecache::https://host/data/a.nc", True),
        (f"simplecache::{HTTP}", "blockcache::https://host/data/a.nc", False),
        (HTTP, "dir://a::https://host/data/a.nc", False),
        (HTTP, "reference://a::https://host/data/a.json", False),
        (HTTP, "gridref::https://host/data/a.gridref", False),
        ("/data", "reference:///data/a.json", False),
        (EVERYTHING, "https://anywhere/../a.nc", True),
        (EVERYTHING, "/etc/hostname", True),
        (EVERYTHING, "zip://a::s3://b/c", True),
        (EVERYTHING, "simplecache::s3://b/c", True),
        (EVERYTHING, "reference://a::s3://b/c", False),
        (EVERYTHING, "dir://a::file:///b", False),
    ],
)
def test_prefixes(prefix, address, allowed):
    policy = SourcePolicy("cube.gridref", (checked_prefix(prefix),))
    assert policy.allows(address) is allowed
    if not allowed:
        with pytest.raises(SourceNotAllowedError):
            policy.require(address)


def test_nothing_is_allowed_by_default():
    assert not SourcePolicy("cube.gridref").allows("/a")


@pytest.mark.parametrize(
    "prefix", ["a/b", "https://host/../x", "reference::/x", "", "https://ho st"]
)
def test_what_cannot_be_a_prefix(prefix):
    with pytest.raises(InvalidRequestError, match="is no prefix"):
        checked_prefix(prefix)


def test_hidden_files_of_the_own_folder_are_not_allowed():
    policy = SourcePolicy("/home/me/x/cube.gridref", visible_below="/home/me/x")
    assert policy.allows("/home/me/x/a.nc")
    assert policy.allows("/home/me/x/b/a.nc")
    assert not policy.allows("/home/me/x/.ssh/id")
    assert not policy.allows("/home/me/x/b/.netrc")
    assert not policy.allows("/home/me/a.nc")
    assert SourcePolicy("c", ("/home/me/x",)).allows("/home/me/x/.hidden/a.nc")


def test_the_error_says_what_to_allow_without_secrets():
    needed = common_folders(["https://u:p@h/a/1.nc?sig=x", "https://u:p@h/b/2.nc", "/data/y/3.nc"])
    assert needed == ("https://h/", "/data/y/")
    policy = SourcePolicy("https://u:p@h/cube.gridref?token=t", needed=needed)
    with pytest.raises(SourceNotAllowedError) as raised:
        policy.require("https://u:p@evil/a.nc?sig=x")
    text = str(raised.value)
    assert "allow=['https://h/', '/data/y/']" in text
    assert "https://evil/a.nc" in text
    assert "https://h/cube.gridref" in text
    assert not {"u:p", "sig", "token"} & {part for part in ("u:p", "sig", "token") if part in text}


@pytest.mark.parametrize(
    ("addresses", "folders"),
    [
        (["/data/2020/a.nc", "/data/2021/b.nc"], ("/data/",)),
        (["/data/2020/a.nc", "/data/2020/b.nc"], ("/data/2020/",)),
        (["/data/a.nc", "/scratch/b.nc"], ("/data/", "/scratch/")),
        (["/one.nc"], ("/one.nc",)),
        (["s3://b/x/1.nc", "s3://b/y/1.nc", "s3://c/1.nc"], ("s3://b/", "s3://c/")),
        (["https://h/a.nc"], ("https://h/",)),
        (["zip://a.nc::/data/x/b.zip"], ("/data/x/",)),
        (["simplecache::https://h/x/a.nc"], ("simplecache::https://h/x/",)),
    ],
)
def test_common_folders_allow_all(addresses, folders):
    assert common_folders(addresses) == folders
    policy = SourcePolicy("c", tuple(map(checked_prefix, folders)))
    assert all(map(policy.allows, addresses))
