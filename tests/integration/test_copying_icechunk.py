"""`gridref.copy` into Icechunk repositories: real chunks, read by xarray through Icechunk."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.icechunk_target import SessionSink
from gridref.errors import InvalidRequestError, MissingPackageError
from tests.command import run_command
from tests.integration.growing import month
from tests.integration.test_copying import same
from tests.integration.test_icechunk import kinds

SERIES = {"chunks": {"time": -1, "lat": 2, "lon": 2}}


@pytest.fixture(scope="module")
def cube(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cube")
    for number in range(4):
        month(folder, number)
    gridref.build(str(folder / "*.nc"), folder / "cube.gridref", "time")
    return folder / "cube.gridref"


def repository(path: Path) -> icechunk.Repository:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))


def session(path: Path) -> icechunk.Session:
    return repository(path).readonly_session(branch="main")


@pytest.mark.parametrize(
    "options",
    [
        {},
        SERIES,
        {"shards": "none", "codec": "shuffle-zstd"},
        {"grid": "rectilinear", "codec": "none"},
    ],
    ids=str,
)
def test_xarray_sees_the_same_cube_without_the_files(
    cube: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    target = tmp_path / "copy.icechunk"
    report = gridref.copy(cube, target, **options)
    same(cube, session(target).store, consolidated=False)
    found = kinds(session(target), "/tas")
    assert "native" in found
    assert "virtual" not in found
    assert repository(target).list_branches() == {"main"}
    assert report.n_objects == sum(array.n_objects for array in report.arrays.values()) > 0
    said = [each.message for each in repository(target).ancestry(branch="main")]
    assert said[::-1][1:3] == ["gridref copy: begun", f"gridref copy: {next(iter(report.arrays))}"]


def test_groups_texts_and_scalars(tmp_path: Path) -> None:
    name = ("x", np.array(["a", "bé", ""], object))
    tree = xr.DataTree.from_dict(
        {"/": xr.Dataset({"crs": ((), 7)}, attrs={"title": "a"}), "/b/c": xr.Dataset({"n": name})}
    )
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    gridref.build(tmp_path / "tree.nc", tmp_path / "tree.gridref")
    gridref.copy(tmp_path / "tree.gridref", tmp_path / "repository", to="icechunk")
    store = session(tmp_path / "repository").store
    found = xr.open_datatree(store, engine="zarr", consolidated=False, chunks=None)
    expected = xr.open_datatree(tmp_path / "tree.gridref", engine="gridref")
    xr.testing.assert_identical(found.load(), expected.load())


def test_a_copy_that_is_interrupted_goes_on_behind_its_last_array(
    cube: Path, tmp_path: Path
) -> None:
    target = tmp_path / "copy.icechunk"
    n_steps = sum(1 for _ in gridref.copy(cube, target, dry_run=True, **SERIES).arrays)

    def interrupt(done: int, of: int) -> None:
        if done == n_steps:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gridref.copy(cube, target, progress=interrupt, **SERIES)
    assert len(repository(target).list_branches()) == 2
    with pytest.raises(InvalidRequestError, match="unfinished copy of another source"):
        gridref.copy(cube, target)
    report = gridref.copy(cube, target, **SERIES)
    assert report.n_adopted > 0
    same(cube, session(target).store, consolidated=False)
    assert repository(target).list_branches() == {"main"}


def test_a_large_array_is_committed_now_and_then(
    cube: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By several threads that write meanwhile; what was committed is not written again."""
    target = tmp_path / "copy.icechunk"
    options: dict[str, Any] = {"shards": "none", "chunks": {"time": 1}, "n_threads": 4}
    monkeypatch.setattr("gridref.api.icechunk_target.COMMIT_SECONDS", 0)
    put = SessionSink.put
    names: list[str] = []

    def interrupted(self: SessionSink, name: str, parts: Any) -> bool:
        names.append(name)
        if sum(name.startswith("tas/c/") for name in names) > 10:
            raise KeyboardInterrupt
        return put(self, name, parts)

    monkeypatch.setattr(SessionSink, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gridref.copy(cube, target, **options)
    monkeypatch.setattr(SessionSink, "put", put)
    report = gridref.copy(cube, target, **options)
    assert 0 < report.arrays["tas"].n_adopted <= 10
    same(cube, session(target).store, consolidated=False)


def test_what_is_there_is_left_alone(cube: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.icechunk"
    gridref.copy(cube, target)
    before = repository(target).lookup_branch("main")
    with pytest.raises(InvalidRequestError, match="target is not empty"):
        gridref.copy(cube, target, **SERIES)
    assert repository(target).lookup_branch("main") == before
    shutil.copytree(cube, tmp_path / "other.icechunk")
    with pytest.raises(InvalidRequestError, match="target is not empty"):
        gridref.copy(cube, tmp_path / "other.icechunk")
    assert gridref.open_catalog(tmp_path / "other.icechunk")["tas"].size


def test_somebody_who_writes_meanwhile_is_not_overwritten(cube: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.icechunk"

    def write(done: int, of: int) -> None:
        if done == of:
            other = repository(target).writable_session("main")
            xr.Dataset({"mine": 1}).to_zarr(other.store, consolidated=False)
            other.commit("mine")

    with pytest.raises(InvalidRequestError, match="the copy was put on the branch gridref-copy-"):
        gridref.copy(cube, target, progress=write)
    assert list(xr.open_zarr(session(target).store, consolidated=False)) == ["mine"]


def test_the_command_takes_a_repository(cube: Path, tmp_path: Path) -> None:
    target = tmp_path / "repository"
    done = run_command("copy", str(cube), str(target), "--to", "icechunk", "--quiet")
    assert done.returncode == 0, done.stderr
    same(cube, session(target).store, consolidated=False)


def test_without_icechunk_the_extra_is_named(
    cube: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "icechunk", None)
    monkeypatch.delitem(sys.modules, "gridref.api.icechunk_target", raising=False)
    with pytest.raises(MissingPackageError, match=r"pip install 'gridref\[interchange\]'"):
        gridref.copy(cube, tmp_path / "copy.icechunk")
