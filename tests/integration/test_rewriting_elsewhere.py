"""Copies and overlays that workers write: of a Dask cluster, and processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gridref
from tests.command import run_command
from tests.integration.test_copying import same
from tests.integration.test_overlays import SERIES, Cube, read_without_warnings

distributed = pytest.importorskip("distributed")
icechunk = pytest.importorskip("icechunk")

MAPS: dict[str, Any] = {"chunks": {"time": 2}, "shards": {"time": 4}}
"""Six shards, each of which can be written by itself."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster


@pytest.fixture
def cube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cube:
    """A cube that is written in several units, although it is small."""
    monkeypatch.setattr("gridref.api.rewriting.plan._UNIT_BYTES", 1)
    return Cube(tmp_path)


@pytest.fixture
def two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is written through intermediate files."""
    monkeypatch.setattr("gridref.api.rewriting.plan._WORTH_A_PASS", 0.5)


def processes_of(client: Any) -> set[int]:
    return set(client.run(os.getpid).values())


def test_workers_of_dask_copy_a_cube(cube: Cube, tmp_path: Path, cluster: Any) -> None:
    done: list[int] = []
    report = gridref.copy(
        cube.url,
        tmp_path / "copy.zarr",
        **MAPS,
        executor=cluster.scheduler_address,
        progress=lambda number, of: done.append(number / of),
    )
    same(cube.url, tmp_path / "copy.zarr")
    tas = report.arrays["tas"]
    assert (tas.n_objects, tas.n_adopted, tas.n_decoded) == (6, 0, 24)
    assert len(done) == 6 + 6 + 1 + 1  # objects of tas, time, lat and lon
    assert done[-1] == 1
    assert not [path for path in (tmp_path / "copy.zarr").iterdir() if path.name[0] == "."]


def test_intermediate_files_are_where_all_workers_reach_them(
    cube: Cube, tmp_path: Path, cluster: Any, two_passes: None
) -> None:
    report = gridref.copy(cube.url, tmp_path / "copy.zarr", executor=cluster, **MAPS)
    same(cube.url, tmp_path / "copy.zarr")
    assert report.arrays["tas"].has_two_passes
    assert not [path for path in (tmp_path / "copy.zarr").iterdir() if path.name[0] == "."]


def test_workers_of_dask_write_an_overlay(cube: Cube, cluster: Any) -> None:
    with distributed.Client(cluster) as client:
        catalog = cube.open().rechunk(
            "tas", SERIES, shards={"time": 24, "lat": 5, "lon": 5}, executor=client
        )
    assert "in 9 shards" in catalog.report.lines[0]
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), cube.values)
    assert cube.open().verify(all=True).ok


def test_a_worker_that_dies_is_no_loss(cube: Cube, tmp_path: Path, cluster: Any) -> None:
    with distributed.Client(cluster) as client:
        alive = processes_of(client)

        def kill(done: int, of: int) -> None:
            if len(alive) == 2:
                with suppress(ProcessLookupError):
                    os.kill(alive.pop(), signal.SIGKILL)

        gridref.copy(cube.url, tmp_path / "copy.zarr", executor=client, progress=kill, **MAPS)
        assert len(alive) == 1
    same(cube.url, tmp_path / "copy.zarr")


def test_processes_by_commands(cube: Cube, tmp_path: Path) -> None:
    done = run_command(
        "rechunk", cube.url, "tas", "--chunks", "time=-1,lat=5,lon=5", "--executor", "2"
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(read_without_warnings(cube.open(overlay=0)), cube.values)


def test_repositories_are_written_by_workers(cube: Cube, tmp_path: Path, cluster: Any) -> None:
    target, options = tmp_path / "copy.icechunk", {"chunks": SERIES, "shards": "none"}

    def interrupt(done: int, of: int) -> None:
        if done == of:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gridref.copy(cube.url, target, executor=cluster, progress=interrupt, **options)
    report = gridref.copy(cube.url, target, executor=cluster, **options)
    assert 0 < report.n_adopted < report.n_objects  # arrays that were whole are committed
    assert report.arrays["tas"].n_objects == 9
    storage = icechunk.local_filesystem_storage(str(target))
    session = icechunk.Repository.open(storage).readonly_session(branch="main")
    same(cube.url, session.store, consolidated=False)


def test_repositories_are_written_by_processes_and_threads(cube: Cube, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as threads:
        for name, executor in {"processes": 2, "threads": threads}.items():
            target = tmp_path / f"{name}.icechunk"
            gridref.copy(cube.url, target, executor=executor, spill=tmp_path / name, **MAPS)
            storage = icechunk.local_filesystem_storage(str(target))
            session = icechunk.Repository.open(storage).readonly_session(branch="main")
            same(cube.url, session.store, consolidated=False)
