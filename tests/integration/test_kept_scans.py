"""Jobs that go on where another ended, and work that others do: the catalog is the same."""

from __future__ import annotations

import hashlib
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest

import gridref
from gridref.api.scan import scan_many
from gridref.errors import InvalidRequestError
from gridref.io import counted_traffic
from tests.by_name import by_name

N_FILES = 60


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    for number in range(N_FILES):
        write(folder, number)
    return folder


def write(folder: Path, number: int) -> None:
    with h5py.File(folder / f"{number:03}.h5", "w") as file:
        file["time"] = np.arange(number * 2, number * 2 + 2.0)
        file["time"].make_scale()
        file.create_dataset("x", data=np.random.default_rng(number).random((2, 4)), chunks=(1, 4))
        file["x"].dims[0].attach_scale(file["time"])
        file["x"].attrs["values"] = np.arange(3)


def built(archive: Path, work: Path, **options: object) -> tuple[dict[str, np.ndarray], int]:
    """All values of the catalog, and how many requests the scans sent."""
    catalog = work.parent / "cube.gridref"
    with counted_traffic() as traffic:
        gridref.build(archive, catalog, "time", **by_name(work=work, overwrite=True, **options))
    group = gridref.open_catalog(catalog)
    assert group["x"].attrs["values"].tolist() == [0, 1, 2]
    return {name: array[...] for name, array in group.arrays.items()}, traffic.n_requests


def assert_is_the_archive(values: dict[str, np.ndarray], n_files: int = N_FILES) -> None:
    expected = [np.random.default_rng(number).random((2, 4)) for number in range(n_files)]
    np.testing.assert_array_equal(values["x"], np.concatenate(expected))
    np.testing.assert_array_equal(values["time"], np.arange(2.0 * n_files))


def entries(work: Path) -> list[Path]:
    return sorted(path for path in work.glob("*/*") if path.is_file())


@pytest.mark.long
def test_a_job_that_was_killed_goes_on(archive: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    command = [
        sys.executable,
        "-m",
        "gridref",
        "build",
        str(archive),
        "-o",
        str(tmp_path / "x.gridref"),
    ]
    command += ["--concat-dim", "time", "--work", str(work), "--quiet"]
    job = subprocess.Popen(command)
    try:
        while len(entries(work)) < 5 and job.poll() is None:
            time.sleep(0.001)
    finally:
        os.kill(job.pid, signal.SIGKILL)
        job.wait()
    n_kept = len(entries(work))
    assert n_kept >= 5
    fresh, n_all = built(archive, tmp_path / "other")
    values, n_rest = built(archive, work)
    assert_is_the_archive(values)
    assert_is_the_archive(fresh)
    # What is read for labels and the like, and of each file that was not scanned.
    assert n_rest < n_all - n_kept


def test_only_what_is_new_is_scanned(tmp_path: Path) -> None:
    folder, work = tmp_path / "archive", tmp_path / "work"
    folder.mkdir()
    for number in range(4):
        write(folder, number)
    _, n_first = built(folder, work)
    _, n_again = built(folder, work)
    write(folder, 4)
    values, n_more = built(folder, work)
    assert_is_the_archive(values, 5)
    assert n_again < n_more < n_first
    (folder / "004.h5").unlink()
    write(folder, 3)  # written again, with the same bytes
    values, n_changed = built(folder, work)
    assert_is_the_archive(values, 4)
    assert n_again < n_changed < n_first


@pytest.mark.long(but=2)
@pytest.mark.parametrize("damage", ["cut", "flipped", "of another version", "emptied", "hostile"])
def test_entries_that_cannot_be_read_are_scanned_again(
    archive: Path, tmp_path: Path, damage: str
) -> None:
    work = tmp_path / "work"
    built(archive, work)
    for path in entries(work):
        data = path.read_bytes()
        path.write_bytes(
            {
                "cut": data[:-10],
                "flipped": data[:-10] + bytes([data[-10] ^ 1]) + data[-9:],
                "of another version": data.replace(b"gridref scan 1", b"gridref scan 9", 1),
                "emptied": b"",
                "hostile": hostile(tmp_path, data),
            }[damage]
        )
    values, _ = built(archive, work)
    assert_is_the_archive(values)
    assert not (tmp_path / "run").exists()


def hostile(folder: Path, entry: bytes) -> bytes:
    """An entry as it should be, but for a call of ``os.mkdir`` in it."""

    class Call:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(folder / "run"),)

    body = zlib.compress(pickle.dumps(Call()))
    header = entry[: entry.index(b"\n") + 1]
    return header + hashlib.blake2b(body, digest_size=16).digest() + body


def test_files_that_need_others_are_always_scanned(tmp_path: Path) -> None:
    folder, work = tmp_path / "archive", tmp_path / "work"
    folder.mkdir()
    with h5py.File(tmp_path / "far.h5", "w") as file:
        file["x"] = np.arange(3.0)
    with h5py.File(folder / "a.h5", "w") as file:
        file["x"] = h5py.ExternalLink("../far.h5", "x")
    gridref.build(folder, tmp_path / "a.gridref", run=gridref.RunOptions(work=work), allow=tmp_path)
    with h5py.File(tmp_path / "far.h5", "w") as file:
        file["x"] = np.arange(5.0)
    gridref.build(folder, tmp_path / "b.gridref", run=gridref.RunOptions(work=work), allow=tmp_path)
    assert gridref.open_catalog(tmp_path / "b.gridref")["x"][...].tolist() == [0, 1, 2, 3, 4]


def test_other_options_are_other_results(archive: Path, tmp_path: Path) -> None:
    file = archive / "000.h5"
    for limit in (8, 1 << 20):
        gridref.build(
            file,
            tmp_path / f"{limit}.gridref",
            scan=gridref.ScanOptions(max_chunk_bytes=limit),
            run=gridref.RunOptions(work=tmp_path / "w"),
        )
    shapes = [
        gridref.open_catalog(tmp_path / f"{limit}.gridref")["time"].encodings[0].chunk_shape
        for limit in (8, 1 << 20)
    ]
    assert shapes == [(1,), (2,)]


def test_a_work_folder_that_is_a_file_is_told(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "work").write_text("")
    with pytest.raises(InvalidRequestError, match="work="):
        built(archive, tmp_path / "work")


def test_a_full_disk_ends_the_job_and_leaves_out_no_file(archive: Path, tmp_path: Path) -> None:
    """It is no fault of the file that was scanned, so that nothing is skipped for it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        with pytest.raises(
            InvalidRequestError, match="cannot write scan results to this folder: File too large"
        ):
            built(archive, tmp_path / "work", on_error="skip")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not entries(tmp_path / "work")
    assert not (tmp_path / "cube.gridref").exists()
    values, _ = built(archive, tmp_path / "work")
    assert_is_the_archive(values)


def test_an_executor_of_ones_own_scans(archive: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as executor:
        values, _ = built(archive, tmp_path / "work", executor=executor)
        assert executor.submit(int).result() == 0  # it was not shut down
    assert_is_the_archive(values)


def test_encodings_that_other_processes_found_are_equal_to_ours(archive: Path) -> None:
    mine = gridref.scan(archive / "000.h5")
    theirs, *_ = scan_many([archive / "000.h5", archive / "001.h5"], executor=2)
    assert mine["x"].encodings[0] == theirs["x"].encodings[0]


@pytest.mark.long
def test_a_cluster_scans_and_a_worker_that_dies_costs_nothing(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("gridref.api.outcomes.FILES_PER_TASK", 4)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        killed: list[int] = []

        def kill_one(n_done: int, n_files: int) -> None:
            if not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        values, _ = built(archive, tmp_path / "work", executor=client, progress=kill_one)
        assert_is_the_archive(values)
        assert killed
        values, _ = built(archive, tmp_path / "again", executor=cluster.scheduler_address)
        assert_is_the_archive(values)
