"""Files combined where they are scanned: the catalog is the one of a single process."""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import os
import pickle
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import gridref
from gridref.errors import (
    CombineError,
    FilesFailedError,
    InvalidRequestError,
    SkippedFilesWarning,
    SourceUnavailableError,
)
from tests.by_name import by_name
from tests.integration.archives import write_hdf5

distributed = pytest.importorskip("distributed")

N_FILES, N_BAD = 30, 7


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of uneven length whose packing, attributes and chunks drift."""
    folder = tmp_path_factory.mktemp("archive")
    start = 0
    for number in range(N_FILES):
        n_steps = 2 + number % 3
        values = np.random.default_rng(number).integers(0, 99, (n_steps, 5)).astype("i2")
        packing = {"scale_factor": 0.1 if number < 20 else 0.5}
        path = write_hdf5(
            folder / f"{number:03}.h5",
            {"time": np.arange(start, start + n_steps, dtype="f8"), "cell": np.arange(5.0)},
            {
                "x": (("time", "cell"), values, packing, {"chunks": (1 + number % 2, 5)}),
                "area": (["cell"], np.arange(5.0)),
            },
        )
        with h5py.File(path, "a") as file:
            file.attrs["history"] = f"written {number}"
        start += n_steps
    return folder


@pytest.fixture(autouse=True)
def few_files_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridref.api.scan.FILES_PER_TASK", 3)


class Elsewhere(ThreadPoolExecutor):
    """An executor whose tasks and results travel, as those of a cluster do.

    Attributes
    ----------
    results
        What came back, as bytes.
    """

    def __init__(self) -> None:
        super().__init__(2)
        self.results: list[bytes] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        task = pickle.dumps((fn, args, kwargs))
        return super().submit(self._travelling, task)

    def _travelling(self, task: bytes) -> Any:
        fn, args, kwargs = pickle.loads(task)
        self.results.append(pickle.dumps(fn(*args, **kwargs)))
        return pickle.loads(self.results[-1])


def known(catalog: Path, files: Path, **options: Any) -> tuple[str, list[Any], list[Any]]:
    """Digest, drifts and left-out files of a catalog that is built."""
    gridref.build(files, catalog, "time", **by_name(**options))
    group = gridref.open_catalog(catalog)
    report = sorted(group.report().to_pylist(), key=str)
    return group.info.digest, report, list(group.info.extra.get("skipped_files", []))


@pytest.fixture(scope="module")
def alone(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = known(tmp_path_factory.mktemp("alone") / "cube.gridref", archive)
    assert len(found[1]) > 3
    return found


def test_an_executor_gives_the_same_catalog(archive: Path, alone: Any, tmp_path: Path) -> None:
    with Elsewhere() as executor:
        assert known(tmp_path / "cube.gridref", archive, executor=executor) == alone
    assert len(executor.results) == N_FILES // 3


def test_columns_come_back_and_no_object_for_each_file(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_bytes = {}
    for n_files in (10, 30):
        monkeypatch.setattr("gridref.api.scan.FILES_PER_TASK", n_files)
        with Elsewhere() as executor:
            files = sorted(archive.iterdir())[:n_files]
            gridref.plan(files, "time", run=gridref.RunOptions(executor=executor))
        (result,) = executor.results
        n_bytes[n_files] = len(result)
        assert result.count(b"VirtualGroup") == 1
    assert (n_bytes[30] - n_bytes[10]) / 20 < 500


@pytest.mark.long
def test_a_cluster_that_loses_a_worker_gives_the_same_catalog(
    cluster: Any, client: Any, archive: Path, alone: Any, tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill_one(n_done: int, n_files: int) -> None:
        if not killed:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    assert known(tmp_path / "cube.gridref", archive, executor=client, progress=kill_one) == alone
    assert killed
    address = cluster.scheduler_address
    assert known(tmp_path / "again.gridref", archive, executor=address) == alone


@pytest.fixture(scope="module")
def damaged(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive with a truncated file, and one of another format."""
    folder = tmp_path_factory.mktemp("damaged")
    for path in archive.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    content = (folder / f"{N_BAD:03}.h5").read_bytes()
    (folder / f"{N_BAD:03}.h5").write_bytes(content[: len(content) // 2])
    (folder / "011.h5").write_bytes(b"<html>not found</html>")
    return folder


class Blind(Elsewhere):
    """An executor whose workers do not see a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        hidden = self.folder.rename(self.folder.with_name("hidden"))
        try:
            found = super().submit(fn, *args, **kwargs)
            found.exception()
        finally:
            hidden.rename(self.folder)
        return found


def test_workers_that_do_not_see_the_files_are_told(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    for path in sorted(archive.iterdir())[:2]:
        (tmp_path / "seen" / path.name).write_bytes(path.read_bytes())
    with Blind(tmp_path / "seen") as executor, pytest.raises(FilesFailedError) as raised:
        gridref.build(
            tmp_path / "seen", tmp_path / "c", "time", run=gridref.RunOptions(executor=executor)
        )
    assert len(raised.value.failures) == 2
    assert str(raised.value).count("workers must see the same files") == 1  # said once for both


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        (object(), "or a pool"),
        (ThreadPoolExecutor, "or a pool"),
        (None, "shut down"),
    ],
    ids=["object", "class", "shut down"],
)
def test_executors_that_cannot_work(
    executor: Any, message: str, archive: Path, tmp_path: Path
) -> None:
    if executor is None:
        executor = ThreadPoolExecutor(1)
        executor.shutdown()
    with pytest.raises(InvalidRequestError, match=message):
        gridref.build(
            archive, tmp_path / "cube.gridref", "time", run=gridref.RunOptions(executor=executor)
        )


def test_a_process_that_dies_is_told(archive: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        executor.submit(os._exit, 9)
        with pytest.raises(SourceUnavailableError, match=r"process ended .*000\.h5.*with work="):
            gridref.build(
                archive,
                tmp_path / "cube.gridref",
                "time",
                run=gridref.RunOptions(executor=executor),
            )
    assert not (tmp_path / "cube.gridref").exists()


def test_a_cluster_without_workers_is_told_and_waited_for(
    archive: Path, alone: Any, tmp_path: Path
) -> None:
    with distributed.LocalCluster(
        n_workers=0, threads_per_worker=2, processes=False, dashboard_address=":0"
    ) as cluster:
        later = threading.Timer(0.5, cluster.scale, [1])
        later.start()
        with pytest.warns(UserWarning, match="has no workers yet"):
            assert known(tmp_path / "cube.gridref", archive, executor=cluster) == alone
        later.join()
    with pytest.raises(InvalidRequestError, match="the address of a Dask scheduler, or a pool"):
        gridref.plan(archive, "time", run=gridref.RunOptions(executor=8786.0))


def test_files_that_fail_elsewhere_are_told(damaged: Path, tmp_path: Path) -> None:
    with pytest.warns(SkippedFilesWarning):
        alone = known(tmp_path / "a.gridref", damaged, on_error="skip")
    assert [Path(each["file"]).name for each in alone[2]] == ["007.h5", "011.h5"]
    with Elsewhere() as executor, pytest.warns(SkippedFilesWarning):
        again = known(tmp_path / "b.gridref", damaged, on_error="skip", executor=executor)
    assert (again[0], again[2]) == (alone[0], alone[2])
    assert {row["cause"] for row in again[1]} == {row["cause"] for row in alone[1]}
    with Elsewhere() as executor, pytest.raises(FilesFailedError, match=r"007\.h5") as raised:
        known(tmp_path / "c.gridref", damaged, executor=executor)
    assert "of 30 files" in str(raised.value)
    assert not (tmp_path / "c.gridref").exists()


def test_problems_are_those_of_one_process(archive: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = np.arange(6.0).reshape(2, 3)
    files = [*sorted(archive.iterdir()), tmp_path / "other.h5"]
    expected = gridref.plan(files, "time")
    with Elsewhere() as executor:
        found = gridref.plan(files, "time", run=gridref.RunOptions(executor=executor))
        told = {(problem.cause, problem.variable) for problem in found.problems}
        assert told == {(problem.cause, problem.variable) for problem in expected.problems}
        assert told
        assert found.report.files == expected.report.files
        with pytest.raises(CombineError, match="no file has a dimension 'nonsense'"):
            gridref.build(
                archive,
                tmp_path / "cube.gridref",
                "nonsense",
                run=gridref.RunOptions(executor=executor),
            )
    assert not (tmp_path / "cube.gridref").exists()


def pretend_to_be_old() -> None:
    importlib.metadata.version = lambda name: "0.0.1"


def pretend_no_more() -> None:
    importlib.reload(importlib.metadata)


def test_workers_of_another_version_are_refused(client: Any, archive: Path, tmp_path: Path) -> None:
    client.run(pretend_to_be_old)
    try:
        with pytest.raises(InvalidRequestError, match=r"a worker has gridref 0\.0\.1"):
            gridref.build(
                archive, tmp_path / "cube.gridref", "time", run=gridref.RunOptions(executor=client)
            )
    finally:
        client.run(pretend_no_more)
    assert not (tmp_path / "cube.gridref").exists()


def test_a_scheduler_that_goes_away_is_told(archive: Path, tmp_path: Path) -> None:
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
    )
    with cluster, pytest.raises(SourceUnavailableError, match=r"scheduler .* stopped"):
        gridref.build(
            archive,
            tmp_path / "cube.gridref",
            "time",
            run=gridref.RunOptions(executor=cluster.scheduler_address),
            progress=lambda n_done, n_files: cluster.close(),
        )
    assert not (tmp_path / "cube.gridref").exists()
