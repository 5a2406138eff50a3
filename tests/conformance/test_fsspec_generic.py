"""fsspec's own tests of getting, and its generic methods compared with those of local files.

fsspec's tests first write files of names of their own, so they run on an object space that can be
filled. Those of copying, putting, piping and opening for writing cannot apply: we only read.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.tests.abstract import AbstractFixtures, AbstractGetTests

import gridref
from gridref.faces.fsspec import GridrefFileSystem
from gridref.model.array import VirtualGroup
from tests.conformance.filled_space import FilledSpace
from tests.integration.archives import write_months


class FilledFileSystem(GridrefFileSystem):
    """The filesystem under test; only what fsspec's tests use to prepare files writes past it."""

    def __init__(self) -> None:
        super().__init__(VirtualGroup())
        self.space: Any = FilledSpace()

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Nothing: folders are what lies in them."""

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Nothing."""

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        self.space.held[path] = b""

    def pipe(self, path: str, value: bytes, **kwargs: Any) -> None:
        self.space.held[path] = value

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        for key in self.space.keys(path):
            del self.space.held[key]


class TestGet(AbstractFixtures, AbstractGetTests):
    @pytest.fixture
    def fs(self) -> FilledFileSystem:
        return FilledFileSystem()

    @pytest.fixture
    def fs_path(self) -> str:
        return "folder"

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


VIEWS: dict[str, dict[str, Any]] = {
    "auto": {},
    "portable": {"view": "portable"},
    "shards": {"view": "portable", "shards": "auto"},
}


@pytest.fixture(scope="module", params=VIEWS)
def copied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[fsspec.AbstractFileSystem, LocalFileSystem, str]:
    """The filesystem, local files, and where a copy of all keys lies among them."""
    folder = tmp_path_factory.mktemp("copied")
    gridref.build(write_months(folder, lengths=[31, 28]), folder / "c.gridref", "time")
    fs = fsspec.filesystem("gridref", fo=str(folder / "c.gridref"), **VIEWS[request.param])
    fs.get("", str(folder / "copy"), recursive=True)
    return fs, LocalFileSystem(), str(folder / "copy")


Copied = tuple[fsspec.AbstractFileSystem, LocalFileSystem, str]


def relative(paths: Any, root: str) -> Any:
    """Paths of local files as ours have them."""
    return sorted(str(path).removeprefix(root).strip("/") for path in paths)


def kinds(details: dict[str, dict[str, Any]], root: str = "") -> dict[str, tuple[str, int | None]]:
    """Type, and size if it is a file, by path."""
    return {
        path.removeprefix(root).strip("/"): (
            entry["type"],
            entry["size"] if entry["type"] == "file" else None,
        )
        for path, entry in details.items()
    }


def test_all_keys_are_copied(copied: Copied) -> None:
    fs, local, root = copied
    files = fs.find("")
    assert len(files) > 10
    assert relative(local.find(root), root) == sorted(files)
    for path in files:
        assert fs.cat_file(path) == Path(root, path).read_bytes()
    assert fs.cat(files) == {path: Path(root, path).read_bytes() for path in files}


def test_listings(copied: Copied) -> None:
    fs, local, root = copied
    for folder in ["", "tas", "tas/c"]:
        there = f"{root}/{folder}".rstrip("/")
        assert sorted(fs.ls(folder, detail=False)) == relative(local.ls(there, False), root)
        ours = {entry["name"]: entry for entry in fs.ls(folder)}
        theirs = {entry["name"]: entry for entry in local.ls(there, detail=True)}
        assert kinds(ours) == kinds(theirs, root)
        for options in ({}, {"maxdepth": 1}, {"withdirs": True}, {"maxdepth": 2, "withdirs": True}):
            found = local.find(there, detail=True, **options)
            ours = fs.find(folder, detail=True, **options)
            assert kinds(ours).items() - {("", ("directory", None))} == (
                kinds(found, root).items() - {("", ("directory", None))}
            )
        assert fs.du(folder) == sum(Path(path).stat().st_size for path in local.find(there))


def test_walks(copied: Copied) -> None:
    fs, local, root = copied
    for options in ({}, {"maxdepth": 1}, {"topdown": False}):
        ours = {path: (sorted(a), sorted(b)) for path, a, b in fs.walk("", **options)}
        theirs = {
            path.removeprefix(root).strip("/"): (sorted(a), sorted(b))
            for path, a, b in local.walk(root, **options)
        }
        assert ours == theirs


@pytest.mark.parametrize(
    "pattern",
    ["*", "*/zarr.json", "**", "**/zarr.json", "tas/c/*", "tas/c/**", "t*", "?as/*", "[tp]*/c/*",
     "tas/{c,zarr.json}", "nothing*"],
)  # fmt: skip
def test_patterns(copied: Copied, pattern: str) -> None:
    fs, local, root = copied
    assert sorted(path for path in fs.glob(pattern) if path) == [
        path for path in relative(local.glob(f"{root}/{pattern}"), root) if path
    ]


@pytest.mark.parametrize("path", ["", "tas", "tas/zarr.json", "tas/nothing", "nothing", "tas/"])
def test_what_is_there(copied: Copied, path: str) -> None:
    fs, local, root = copied
    for question in ("exists", "isdir", "isfile"):
        assert getattr(fs, question)(path) == getattr(local, question)(f"{root}/{path}"), question
    if fs.exists(path):
        theirs = local.info(f"{root}/{path}")
        assert kinds({path: fs.info(path)}) == kinds({f"/{path}": theirs})
    else:
        for method in (fs.info, fs.ls, fs.cat_file, fs.open):
            with pytest.raises(FileNotFoundError):
                method(path)


RANGES = [(0, 5), (3, None), (None, 7), (-6, None), (-6, -2), (2, -2), (None, None), (5, 5), (0, 0),
          (10**6, None), (4, 10**6)]  # fmt: skip


def test_ranges(copied: Copied) -> None:
    fs, local, root = copied
    for path in fs.find(""):
        for start, end in RANGES:
            expected = Path(root, path).read_bytes()[start:end]
            assert fs.cat_file(path, start=start, end=end) == expected, (path, start, end)
    paths = fs.find("tas")
    starts, ends = [2] * len(paths), [9] * len(paths)
    assert fs.cat_ranges(paths, starts, ends) == local.cat_ranges(
        [f"{root}/{path}" for path in paths], starts, ends
    )
    assert fs.head("tas/zarr.json", 20) == local.head(f"{root}/tas/zarr.json", 20)
    assert fs.tail("tas/zarr.json", 20) == local.tail(f"{root}/tas/zarr.json", 20)


def test_open_files(copied: Copied) -> None:
    fs, local, root = copied
    for path in fs.find("tas"):
        with fs.open(path, block_size=64) as ours, local.open(f"{root}/{path}") as theirs:
            for offset, whence in ((5, io.SEEK_SET), (3, io.SEEK_CUR), (-9, io.SEEK_END)):
                assert ours.seek(offset, whence) == theirs.seek(offset, whence)
                assert ours.read(4) == theirs.read(4)
                assert ours.tell() == theirs.tell()
            parts = bytearray(7), bytearray(7)
            ours.seek(1)
            theirs.seek(1)
            assert ours.readinto(parts[0]) == theirs.readinto(parts[1])
            assert parts[0] == parts[1]
            assert ours.read() == theirs.read()
            assert ours.read(1) == b""
    with fs.open("tas/zarr.json", "r") as ours:
        assert ours.read() == Path(root, "tas/zarr.json").read_text(encoding="utf-8")
