"""Globs and prefixes over an object store: listed at once, whole, and as they are now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from s3fs import S3FileSystem

from gridref.api.scan import scan_many
from gridref.errors import InvalidRequestError, SourceUnavailableError
from gridref.formats import expand_files
from tests.s3_server import BUCKET, Bucket, s3_bucket

KEYS = [
    f"data/{year}/{name}" for year in range(2001, 2013) for name in ("tas.nc", "pr.nc", "x.txt")
]
KEYS += ["data/top.nc", "data/2001/deep/tas.nc", "other/2001/tas.nc"]
ROOT = f"s3://{BUCKET}"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_bucket() as bucket:
        for key in KEYS:
            bucket.put(key, b"")
        bucket.put("data/2002/", b"")  # what a console makes for a folder
        yield bucket


class Listed:
    """What was listed, and how many listings were in flight together at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refused: str = "") -> None:
        self.most = self._going = 0
        self._ask, self._refused = S3FileSystem._lsdir, refused  # noqa: SLF001
        listed = self

        async def spied(self: Any, path: str, *args: Any, **kwargs: Any) -> Any:
            return await listed.ask(self, path, *args, **kwargs)

        monkeypatch.setattr(S3FileSystem, "_lsdir", spied)

    async def ask(self, filesystem: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        if self._refused and path.rstrip("/").endswith(self._refused):
            raise PermissionError(path)
        self._going += 1
        self.most = max(self.most, self._going)
        await asyncio.sleep(0.01)
        try:
            return await self._ask(filesystem, path, *args, **kwargs)
        finally:
            self._going -= 1


@pytest.mark.long(but=3)
@pytest.mark.parametrize(
    "pattern",
    [
        "data/*/tas.nc", "data/200?/*.nc", "*/2001/tas.nc", "data/2001/*.nc", "data/*.nc",
        "data/20[01]1/t*.nc", "data/*/deep/*.nc", "da*/20*/p*.nc", "data/**/tas.nc",
    ],
)  # fmt: skip
def test_globs_find_what_fsspec_finds(bucket: Bucket, pattern: str) -> None:
    filesystem = S3FileSystem(**bucket.options["s3"], skip_instance_cache=True)
    expected = {f"s3://{name}" for name in filesystem.glob(f"{BUCKET}/{pattern}")}
    assert {*expand_files(f"{ROOT}/{pattern}", bucket.options)} == expected
    assert expected


@pytest.mark.parametrize("what", ["data/*/tas.nc", "data/", "data"])
def test_prefixes_are_listed_together(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    listed = Listed(monkeypatch)
    found = expand_files(f"{ROOT}/{what}", bucket.options)
    assert len(found) == (12 if "*" in what else 26)
    assert listed.most >= 10


@pytest.mark.parametrize("root", [ROOT, "memory://"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("stores/*.zarr", ["a.zarr", "b.zarr"]),
        ("stores", ["a.zarr", "b.zarr", "c.nc", "deep/d.zarr"]),
        ("stores/deep/", ["deep/d.zarr"]),
    ],
)
def test_folders_of_data_are_one_each(
    bucket: Bucket, root: str, given: str, expected: list[str]
) -> None:
    for key in ("a.zarr/zarr.json", "b.zarr/c/0.zarr/1", "c.nc", "d.txt", "deep/d.zarr/.zgroup"):
        bucket.put(f"stores/{key}", b"")
        fsspec.filesystem("memory").pipe(f"stores/{key}", b"")
    found = expand_files(f"{root}/{given}", bucket.options)
    assert found == [f"{root}/stores/{name}" for name in expected]


@pytest.mark.parametrize("name", ["a?b.nc", "a*b.nc", "a[1].nc"])
def test_names_with_wildcards_are_files_first(bucket: Bucket, name: str) -> None:
    for key in ("a b.nc", "a1.nc", name):
        bucket.put(f"named/{name}/{key}", b"")
    assert expand_files(f"{ROOT}/named/{name}/{name}", bucket.options) == [
        f"{ROOT}/named/{name}/{name}"
    ]


def test_what_came_since_is_found(bucket: Bucket) -> None:
    for what in ("new/*.nc", "new/"):
        name = f"new/{what.count('*')}.nc"
        bucket.put("new/old.nc", b"")
        before = expand_files(f"{ROOT}/{what}", bucket.options)
        bucket.put(name, b"")
        assert expand_files(f"{ROOT}/{what}", bucket.options) == sorted([*before, f"{ROOT}/{name}"])


@pytest.mark.parametrize("what", ["data/*/tas.nc", "data/"])
def test_a_prefix_that_cannot_be_listed_is_never_left_out(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    Listed(monkeypatch, refused="data/2005")
    with pytest.raises(SourceUnavailableError):
        scan_many(f"{ROOT}/{what}", storage_options=bucket.options)


def test_nothing_is_an_error(bucket: Bucket) -> None:
    for what in ("data/*/none.nc", "none/*/x.nc", "none/"):
        with pytest.raises(InvalidRequestError, match="no file matches"):
            expand_files(f"{ROOT}/{what}", bucket.options)
