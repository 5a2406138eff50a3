"""Work of clusters and of earlier runs: the catalog and its values are the same."""

from __future__ import annotations

import hashlib
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from traceback import format_exception
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.scan import scan_many
from gridref.errors import InvalidRequestError
from gridref.io import counted_traffic
from tests.by_name import by_name
from tests.http_server import Site, serving
from tests.integration.archives import write_hdf5
from tests.s3_server import SECRET, bearer_only

N_FILES = 60


@pytest.fixture(scope="module")
def sixty_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    for number in range(N_FILES):
        write(folder, number)
    return folder


def write(folder: Path, number: int) -> None:
    values = np.random.default_rng(number).random((2, 4))
    x = ["time"], values, {"values": np.arange(3)}, {"chunks": (1, 4)}
    time = np.arange(number * 2, number * 2 + 2.0)
    write_hdf5(folder / f"{number:03}.h5", {"time": time}, {"x": x})


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
def test_a_job_that_was_killed_goes_on(sixty_files: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    command = [
        sys.executable,
        "-m",
        "gridref",
        "build",
        str(sixty_files),
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
    fresh, n_all = built(sixty_files, tmp_path / "other")
    values, n_rest = built(sixty_files, work)
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
    sixty_files: Path, tmp_path: Path, damage: str
) -> None:
    work = tmp_path / "work"
    built(sixty_files, work)
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
    values, _ = built(sixty_files, work)
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


def test_other_options_are_other_results(sixty_files: Path, tmp_path: Path) -> None:
    file = sixty_files / "000.h5"
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


def test_a_work_folder_that_is_a_file_is_told(sixty_files: Path, tmp_path: Path) -> None:
    (tmp_path / "work").write_text("")
    with pytest.raises(InvalidRequestError, match="work="):
        built(sixty_files, tmp_path / "work")


def test_a_full_disk_ends_the_job_and_leaves_out_no_file(sixty_files: Path, tmp_path: Path) -> None:
    """It is no fault of the file that was scanned, so that nothing is skipped for it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        with pytest.raises(
            InvalidRequestError, match="cannot write scan results to this folder: File too large"
        ):
            built(sixty_files, tmp_path / "work", on_error="skip")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not entries(tmp_path / "work")
    assert not (tmp_path / "cube.gridref").exists()
    values, _ = built(sixty_files, tmp_path / "work")
    assert_is_the_archive(values)


def test_an_executor_of_ones_own_scans(sixty_files: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as executor:
        values, _ = built(sixty_files, tmp_path / "work", executor=executor)
        assert executor.submit(int).result() == 0  # it was not shut down
    assert_is_the_archive(values)


def test_encodings_that_other_processes_found_are_equal_to_ours(sixty_files: Path) -> None:
    mine = gridref.scan(sixty_files / "000.h5")
    theirs, *_ = scan_many([sixty_files / "000.h5", sixty_files / "001.h5"], executor=2)
    assert mine["x"].encodings[0] == theirs["x"].encodings[0]


pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks"),
]

N_DAYS = (31, 28, 31)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cube")
    random = np.random.default_rng(0)
    paths = [folder / f"{month}.nc" for month in range(len(N_DAYS))]
    for path, n_days in zip(paths, N_DAYS, strict=True):
        with h5py.File(path, "w") as file:
            data = random.normal(size=(n_days, 40, 50)).astype("f4")
            v = file.create_dataset("v", data=data, chunks=(1, 40, 50), compression=1, shuffle=True)
            v.dims[0].label = "time"
    gridref.build(paths, folder / "cube.gridref", concat_dim="phony_dim_0")
    return folder / "cube.gridref"


def values_by_h5py(catalog: Path) -> Any:
    parts = []
    for month in range(len(N_DAYS)):
        with h5py.File(catalog.parent / f"{month}.nc") as file:
            parts.append(file["v"][...])
    return np.concatenate(parts)


DOORS: dict[str, Callable[[Path], xr.Dataset]] = {
    "address": lambda catalog: xr.open_zarr(
        f"gridref::file://{catalog}", storage_options={"chunks": {"phony_dim_0": 20}}
    ),
    "portable address": lambda catalog: xr.open_zarr(
        f"gridref::file://{catalog}",
        storage_options={"view": "portable", "chunks": {"phony_dim_0": 20}},
    ),
    "store": lambda catalog: xr.open_zarr(gridref.open_store(catalog, chunks={"phony_dim_0": 20})),
    "engine": lambda catalog: xr.open_dataset(catalog, chunks={"phony_dim_0": 20}),
    "group": lambda catalog: xr.open_dataset(
        gridref.open_catalog(catalog), engine="gridref", chunks={"phony_dim_0": 20}
    ),
}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("door", DOORS)
def test_workers_compute_what_h5py_reads(client: Any, catalog: Path, door: str) -> None:
    v = DOORS[door](catalog)["v"]
    expected = values_by_h5py(catalog)
    assert len(v.chunks[0]) > 1
    whole, highest = client.compute([v, v.isel(phony_dim_0=slice(3, None, 7)).max("phony_dim_0")])
    assert np.array_equal(whole.result().values, expected)
    assert np.array_equal(highest.result().values, expected[3::7].max(axis=0))


def test_stores_arrays_and_groups_travel(client: Any, catalog: Path) -> None:
    import zarr

    expected = values_by_h5py(catalog)
    store = gridref.open_store(catalog)
    opened = gridref.open_catalog(catalog)
    travelling = {
        "store": (lambda store: zarr.open_group(store, mode="r")["v"][5:9], store),
        "zarr array": (lambda array: array[5:9], zarr.open_group(store, mode="r")["v"]),
        "virtual array": (lambda array: np.asarray(array[5:9]), opened["v"]),
        "lazy dataset": (lambda ds: ds["v"][5:9].values, xr.open_dataset(catalog)),
    }
    for name, (read, argument) in travelling.items():
        found = client.submit(read, argument, pure=False).result()
        assert np.array_equal(found, expected[5:9]), name


def test_a_worker_refuses_a_catalog_that_was_built_anew(client: Any, tmp_path: Path) -> None:
    def build(value: int) -> None:
        with h5py.File(tmp_path / f"{value}.h5", "w") as file:
            file["v"] = np.full(10, value)
        shutil.rmtree(tmp_path / "cube.gridref", ignore_errors=True)
        gridref.build(tmp_path / f"{value}.h5", tmp_path / "cube.gridref")

    build(1)
    ds = xr.open_zarr(f"gridref::file://{tmp_path / 'cube.gridref'}", chunks=None).chunk()
    build(2)
    with pytest.raises(RuntimeError, match="deserialization") as raised:
        client.compute(ds["v"].sum()).result()
    assert "the catalog was rebuilt after" in "".join(format_exception(raised.value))


def test_workers_ask_for_new_credentials(client: Any, catalog: Path, tmp_path: Path) -> None:
    site = Site.of_folder(catalog.parent)
    site.refuses = bearer_only(1)
    secret = SECRET  # what is of this module, workers cannot import

    def provider() -> dict[str, str]:
        return {"token": f"{secret}-{time.time_ns()}"}

    def read(array: Any) -> Any:
        first = np.asarray(array[:1])
        time.sleep(1.1)
        return np.concatenate([first, np.asarray(array[1:])])

    with serving(site):
        urls = [f"{site.url}/{catalog.parent.name}/{month}.nc" for month in range(len(N_DAYS))]
        options = {"http": {"credential_provider": provider}}
        cube = tmp_path / "cube.gridref"
        gridref.build(
            urls,
            cube,
            "phony_dim_0",
            storage_options=options,
            run=gridref.RunOptions(executor=client),
        )
        ds = xr.open_dataset(cube, chunks={"phony_dim_0": 20}, storage_options=options)
        whole, waited = (
            client.compute(ds["v"]),
            client.submit(read, gridref.open_catalog(cube, storage_options=options)["v"]),
        )
        expected = values_by_h5py(catalog)
        assert np.array_equal(whole.result().values, expected)
        assert np.array_equal(waited.result(), expected)
