"""What differs on Windows and macOS, simulated: drives, slashes, no positioned reads, no fork."""

from __future__ import annotations

import multiprocessing
import ntpath
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import BaseContext
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import zarr

import gridref
from gridref.api import workers
from gridref.api.aggregations import fragment_address
from gridref.catalog import folder, sources
from gridref.errors import CatalogError, InvalidRequestError
from gridref.faces.web.publishing import publish
from gridref.formats.hdf5 import files
from gridref.io import address, local
from gridref.model import source_policy
from tests.integration.archives import assert_shows, built, month


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses are those of Windows."""
    system = SimpleNamespace(
        path=ntpath, sep="\\", fspath=os.fspath, environ={}, PathLike=os.PathLike
    )
    for module in (address, sources):
        monkeypatch.setattr(module, "os", system)
    monkeypatch.setattr(source_policy, "_HAS_DRIVES", True)


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize(
    ("given", "url"),
    [
        (r"C:\data\a.nc", "C:/data/a.nc"),
        ("C:/data/../a.nc", "C:/a.nc"),
        (r"\\server\share\a.nc", "//server/share/a.nc"),
        ("file:///C:/data/a.nc", "C:/data/a.nc"),
        ("s3://bucket/a.nc", "s3://bucket/a.nc"),
    ],
)
def test_addresses_have_slashes(given: str, url: str) -> None:
    assert address.absolute_url(given) == url
    assert address.is_local(url) == ("s3" not in url)


@pytest.mark.usefixtures("windows")
def test_names_beside_a_file() -> None:
    assert address.beside("C:/data/a.tif", r"sub\b.tif") == "C:/data/sub/b.tif"


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize(
    ("url", "stored"),
    [
        ("C:/data/a.nc", "../data/a.nc"),
        ("C:/cubes/one.gridref/a.nc", "one.gridref/a.nc"),
        ("D:/data/a.nc", "D:/data/a.nc"),  # a catalog cannot be relative to another drive
        ("//server/share/a.nc", "//server/share/a.nc"),
        ("https://host/a.nc", "https://host/a.nc"),
    ],
)
def test_relative_addresses_come_back(url: str, stored: str) -> None:
    assert sources.relative_url(url, "C:/cubes") == stored
    assert sources.resolved_url(stored, "C:/cubes") == url


@pytest.mark.usefixtures("windows")
def test_folders_on_a_drive_can_be_allowed() -> None:
    policy = address.policy_for("C:/cubes/one.gridref", r"D:\data")
    assert policy.allows("D:/data/a.nc")
    assert policy.allows("C:/cubes/one.gridref/a.nc")
    assert not policy.allows("D:/database/a.nc")
    assert not policy.allows("D:/data/../a.nc")
    assert not policy.allows("E:/data/a.nc")


@pytest.mark.usefixtures("windows")
def test_files_that_others_name_have_addresses_with_slashes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As policies compare them."""
    found = SimpleNamespace(**{name: getattr(ntpath, name) for name in ntpath.__all__})
    found.isfile = lambda path: "else" not in path
    system = SimpleNamespace(path=found, environ={}, pathsep=";", sep="\\")
    monkeypatch.setattr(files, "os", system)
    assert files.linked_file("C:/data/a.h5", r"C:\other\b.h5") == "C:/other/b.h5"
    assert files.linked_file("C:/data/a.h5", r"sub\b.h5") == "C:/data/sub/b.h5"
    assert files.linked_file("C:/data/a.h5", r"C:\else\b.h5") == "C:/data/b.h5"
    assert fragment_address("C:/data/a.nc", "file:///D:/b%20c.nc") == "D:/b c.nc"


def test_a_drive_is_no_folder_elsewhere() -> None:
    with pytest.raises(InvalidRequestError, match="neither absolute nor a URL"):
        source_policy.checked_prefix("C:/data")


def test_files_are_opened_as_bytes() -> None:
    """Windows would end a file at the first byte 26, and drop bytes 13."""
    flags = local.opening_flags(SimpleNamespace(O_BINARY=0x8000, O_NOINHERIT=0x80))
    assert flags == 0x8080
    assert local.opening_flags(SimpleNamespace()) == 0


def test_reads_of_one_descriptor_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = np.random.default_rng(0).integers(0, 256, 200_000).astype("u1").tobytes()
    (tmp_path / "a").write_bytes(content)
    monkeypatch.setattr(local, "_HAS_PREAD", False)
    file = local.OpenFile(str(tmp_path / "a"))

    def read(start: int) -> bool:
        return local.read_fully(file, start, start + 999) == content[start : start + 999]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(0, 199_000, 97)))
    assert local.read_fully(file, 199_990, 300_000) == content[199_990:]
    assert local.read_fully(file, 300_000, 300_001) == b""


STRIPPED = """
import multiprocessing, os, sys
for name in ("fork", "forkpty", "register_at_fork", "pread", "preadv", "getuid", "geteuid",
             "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "RWF_NOWAIT", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
os.process_cpu_count = os.cpu_count  # as where there is no sched_getaffinity
sys.modules["fcntl"] = None
sys.modules["uvloop"] = None
import gridref
from gridref.catalog import folder
assert folder.fcntl is None
gridref.build(sys.argv[1:3], "cube.gridref", "time", checksums=True)
gridref.open_catalog("cube.gridref").append(sys.argv[3])
print(gridref.verify("cube.gridref", all=True).differences)
"""


def test_a_catalog_is_built_where_there_is_no_fork_no_lock_and_no_positioned_read(
    tmp_path: Path,
) -> None:
    files = [month(tmp_path, number) for number in range(3)]
    done = subprocess.run(
        [sys.executable, "-c", STRIPPED, *files],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "()", done.stderr
    assert_shows(tmp_path / "cube.gridref", files)


def test_a_root_that_is_being_read_is_replaced_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows refuses to replace a file, and to remove one, while somebody has it open."""
    files = [month(tmp_path, number) for number in range(2)]
    cube = built(files[:1], tmp_path / "cube.gridref")
    refused = []
    replace = os.replace

    def busy(path: str, old: str) -> None:
        if len(refused) < 3:
            refused.append(old)
            raise PermissionError(13, "in use", old)
        replace(path, old)

    monkeypatch.setattr(os, "replace", busy)
    with pytest.raises(CatalogError, match="in use"):
        cube.append(files[1])
    assert len(refused) == 1
    monkeypatch.setattr(folder, "_ON_WINDOWS", True)
    cube.append(files[1])
    assert len(refused) == 3
    monkeypatch.undo()
    assert_shows(tmp_path / "cube.gridref", files)


def test_a_table_that_is_being_read_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(path: str) -> None:
        raise PermissionError(13, "in use", path)

    (tmp_path / "chunks.parquet").touch()
    monkeypatch.setattr(os, "unlink", busy)
    catalog = folder.open_folder(str(tmp_path))
    with pytest.raises(PermissionError):
        catalog.remove("chunks.parquet")
    monkeypatch.setattr(folder, "_ON_WINDOWS", True)
    catalog.remove("chunks.parquet")
    assert (tmp_path / "chunks.parquet").exists()


def test_workers_are_started_anew_where_they_cannot_be_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    get_context = multiprocessing.get_context

    def noting(method: str | None = None) -> BaseContext:
        started.append(method)
        return get_context(method)

    monkeypatch.setattr(workers, "sys", SimpleNamespace(platform="win32"))
    monkeypatch.setattr(multiprocessing, "get_context", noting)
    files = [month(tmp_path, number) for number in range(3)]
    run = gridref.RunOptions(executor=2)
    gridref.build(files, tmp_path / "cube.gridref", "time", run=run)
    assert started == ["spawn"]
    assert_shows(tmp_path / "cube.gridref", files)


@pytest.mark.parametrize("write", ["copy", "publish"])
def test_names_that_a_filesystem_takes_for_one_are_refused(
    write: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS and Windows: the second array would be the first one's chunks."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["T"] = np.arange(3)
        file["t"] = np.arange(3) * 10
    cube = tmp_path / "cube.gridref"
    gridref.build([tmp_path / "a.h5"], cube, relative=True)

    def written() -> None:
        if write == "copy":
            gridref.copy(cube, tmp_path / "copy.zarr")
        else:
            publish(cube, tmp_path / "site", base_url="https://host/", prefixes={
                str(tmp_path): "https://host/data"
            })  # fmt: skip

    with monkeypatch.context() as patched:
        patched.setattr(local, "_ignores_case", lambda folder: True)
        with pytest.raises(InvalidRequestError, match="would be the same file"):
            written()
        assert not (tmp_path / "copy.zarr" / "zarr.json").exists()
    written()
    if write == "copy":
        assert zarr.open_group(tmp_path / "copy.zarr")["t"][...].tolist() == [0, 10, 20]
