"""Sources that are gone or answer wrongly: an error of ours through every door, never fill."""

from __future__ import annotations

import os
import tarfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import pytest
import zarr
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.implementations.zip import ZipFileSystem

import gridref
from gridref.api.readable import reader_for
from gridref.errors import GridrefError, ReadError, SourceUnavailableError
from gridref.io import RetryPolicy, SourcePool, describe_source
from gridref.model.manifest import Source
from gridref.serve.reader import never_absent
from tests.attack_doors import DOORS, Read, told_at_a_door
from tests.http_server import RANGE_FAULTS, Site, serving

VALUES = np.random.default_rng(3).integers(1, 2**31, (40, 50)).astype("i4")


def write(path: Path) -> Path:
    """A file whose values are none of its fill value."""
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=VALUES, chunks=(10, 20), compression="gzip", shuffle=True)
    return path


def assert_refused(read: Read, catalog: Path) -> None:
    """Whether a door says that reading failed."""
    with told_at_a_door(GridrefError):
        read(catalog, "a")


@pytest.mark.parametrize("door", DOORS)
def test_an_archive_that_vanished(tmp_path: Path, door: str) -> None:
    archive, catalog = tmp_path / "x.zip", tmp_path / "cube.gridref"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(write(tmp_path / "a.nc"), "a.nc")
    gridref.build([f"zip://a.nc::file://{archive}"], catalog)
    np.testing.assert_array_equal(DOORS[door](catalog, "a"), VALUES)
    archive.unlink()
    ZipFileSystem.clear_instance_cache()  # as in a new process
    assert_refused(DOORS[door], catalog)
    archive.write_bytes(b"PK\x05\x06 cut")
    assert_refused(DOORS[door], catalog)


def test_threads_share_an_archive(tmp_path: Path) -> None:
    content = np.arange(200_000, dtype="<u4").tobytes()
    (tmp_path / "a.bin").write_bytes(content)
    with tarfile.open(tmp_path / "x.tar", "w") as file:
        file.add(tmp_path / "a.bin", "a.bin")
    pool, source = SourcePool(), Source(f"tar://a.bin::file://{tmp_path}/x.tar", len(content))

    def read(number: int) -> bool:
        start = number * 997 % 700_000
        return bytes(pool.read(source, start, 5000)) == content[start : start + 5000]

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(read, range(600)))


class Breaking(MemoryFileSystem):
    """A filesystem that raises what it is told to, in place of bytes."""

    protocol = "breaking"
    store: dict[str, Any] = {}  # noqa: RUF012 - fsspec's own
    pseudo_dirs = [""]  # noqa: RUF012
    error: Exception | None = None

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(path.replace("breaking://", "memory://"))

    def cat_file(self, path: str, start: Any = None, end: Any = None, **kwargs: Any) -> bytes:
        if Breaking.error is not None:
            raise Breaking.error
        return super().cat_file(path, start, end, **kwargs)

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        if Breaking.error is not None:
            raise Breaking.error
        return super().info(path, **kwargs)


@pytest.fixture
def breaking(tmp_path: Path) -> Iterator[Path]:
    """A catalog of a file on a filesystem that breaks."""
    fsspec.register_implementation("breaking", Breaking, clobber=True)
    fsspec.filesystem("breaking").pipe_file("/in/a.nc", write(tmp_path / "a.nc").read_bytes())
    gridref.build(["breaking://in/a.nc"], tmp_path / "cube.gridref")
    try:
        yield tmp_path / "cube.gridref"
    finally:
        Breaking.error = None


@pytest.mark.long(but=14)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("a.nc"),
        KeyError("a.nc"),
        IsADirectoryError("a.nc"),
        NotADirectoryError("a.nc"),
        zipfile.BadZipFile("no zip"),
        RecursionError(),
        ValueError("no size"),
    ],
    ids=repr,
)
def test_no_exception_of_a_filesystem_reads_as_fill(
    breaking: Path, door: str, error: Exception
) -> None:
    Breaking.error = error
    assert_refused(DOORS[door], breaking)
    Breaking.error = None
    np.testing.assert_array_equal(DOORS[door](breaking, "a"), VALUES)


@pytest.mark.parametrize("error", [KeyError("x"), FileNotFoundError("x"), IndexError("x")])
def test_nothing_that_means_absent_leaves_a_read(error: Exception) -> None:
    with pytest.raises(ReadError) as caught, never_absent():
        raise error
    assert caught.value.__cause__ is error


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    content = write(tmp_path / "a.nc").read_bytes()
    with serving(Site({"/a.nc": content}, {"/a.nc": '"v1"'})) as running:
        yield running


@pytest.mark.long(but=3)
@pytest.mark.parametrize("door", DOORS)
def test_wrong_answers_to_ranges(site: Site, tmp_path: Path, door: str) -> None:
    catalog = tmp_path / "cube.gridref"
    gridref.build([f"{site.url}/a.nc"], catalog)
    for fault in RANGE_FAULTS:
        site.fault = fault
        assert_refused(DOORS[door], catalog)
    site.fault = None
    np.testing.assert_array_equal(DOORS[door](catalog, "a"), VALUES)


@pytest.mark.parametrize("fault", RANGE_FAULTS)
def test_nothing_of_a_wrong_answer_is_kept(site: Site, tmp_path: Path, fault: str) -> None:
    catalog, reader = tmp_path / "cube.gridref", reader_for()
    gridref.build([f"{site.url}/a.nc"], catalog)
    array = gridref.open_catalog(catalog).arrays["a"]
    site.fault = fault
    with pytest.raises(ReadError, match=r"a\.nc"):
        reader.read(array, ...)
    site.fault = None
    np.testing.assert_array_equal(reader.read(array, ...), VALUES)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("fault", [name for name in RANGE_FAULTS if name != "of a longer file"])
def test_a_pool_never_takes_them(site: Site, fault: str, known: bool) -> None:
    source = describe_source(f"{site.url}/a.nc")
    pool = SourcePool(retry=RetryPolicy(2, 0.01), identity="check" if known else "skip")
    site.fault = fault
    with pytest.raises(ReadError, match=r"bytes 600-700"):
        pool.read(source, 600, 100)


def test_several_parts_are_never_taken_for_one_range(site: Site, tmp_path: Path) -> None:
    gridref.build([f"{site.url}/a.nc"], tmp_path / "cube")
    site.fault = "several parts"
    refused = r"several parts .*a\.nc"
    with pytest.raises(SourceUnavailableError, match=refused):
        gridref.scan(f"{site.url}/a.nc")
    with pytest.raises(SourceUnavailableError, match=refused):
        gridref.open_catalog(tmp_path / "cube")["a"][...]


def test_no_more_is_read_than_was_asked_for(site: Site) -> None:
    source = describe_source(f"{site.url}/a.nc")
    site.fault = "endless"
    with pytest.raises(SourceUnavailableError):
        SourcePool().read(source, 600, 100)
    assert site.n_sent < 64 * 2**20


def test_a_whole_file_is_taken_for_a_range_of_all_of_it(site: Site) -> None:
    source = describe_source(f"{site.url}/a.nc")
    site.ignores_ranges = True
    assert source.size_bytes is not None
    data = SourcePool().read(source, 0, source.size_bytes)
    assert bytes(data) == site.files["/a.nc"]
    with pytest.raises(SourceUnavailableError, match="ignores byte ranges"):
        SourcePool().read(source, 1, source.size_bytes - 1)


def test_a_zarr_store_whose_server_fails_has_no_missing_chunks(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=2)
    group.create_array("v", shape=(4,), chunks=(2,), dtype="i4")[:] = [1, 2, 3, 4]
    zarr.consolidate_metadata(tmp_path / "s")
    files = {
        f"/s.zarr/{path.relative_to(tmp_path / 's')}": path.read_bytes()
        for path in (tmp_path / "s").rglob("*")
        if path.is_file()
    }
    with serving(Site(files)) as site:
        array = gridref.scan(f"{site.url}/s.zarr").arrays["v"]
        np.testing.assert_array_equal(reader_for().read(array, ...), [1, 2, 3, 4])
        site.failing = {"/s.zarr/v/1": 503}
        with pytest.raises(SourceUnavailableError, match=r"s\.zarr/v/1"):
            gridref.scan(f"{site.url}/s.zarr")
        site.failing = {"/s.zarr/.zmetadata": 403}
        with pytest.raises(SourceUnavailableError, match="permission"):
            gridref.scan(f"{site.url}/s.zarr")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_pipes_devices_and_directories_are_refused_at_once(tmp_path: Path) -> None:
    catalog, source = tmp_path / "cube.gridref", write(tmp_path / "a.nc")
    gridref.build([source], catalog)
    source.unlink()
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)):
        make(source)
        for read in DOORS.values():
            assert_refused(read, catalog)
        with pytest.raises(GridrefError, match=r"a\.nc"):
            gridref.scan(source)
        os.rmdir(source) if source.is_dir() else source.unlink()
    for name in ["gridref.json", *(path.name for path in catalog.glob("chunks-*"))]:
        kept = (catalog / name).read_bytes()
        (catalog / name).unlink()
        os.mkfifo(catalog / name)
        with pytest.raises(GridrefError, match="pipe"):
            DOORS["own reader"](catalog, "a")
        (catalog / name).unlink()
        (catalog / name).write_bytes(kept)
