"""A process forked after a read goes on reading, through every door."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import h5py
import numpy as np
import pytest
import xarray as xr

import gridref
from gridref.api.workers import workers
from gridref.cache import LRU
from gridref.forks import new_lock
from gridref.io import RetryPolicy, SourcePool, describe_source
from tests.http_server import Site, serving

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]

SECONDS = 60
"""After which a child that hangs is ended."""


def in_child(work: Callable[[], bool]) -> bool:
    """Whether work that is done in a forked process succeeds there, in time."""
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        done = False
        try:
            done = bool(work())
        finally:
            os._exit(0 if done else 1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


@pytest.fixture
def values(tmp_path: Path) -> Any:
    values = np.random.default_rng(0).normal(size=(64, 30, 40))
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_dataset("v", data=values, chunks=(1, 30, 40), compression=1)
    gridref.build(tmp_path / "f.h5", tmp_path / "c.gridref")
    return values


def doors(folder: Path) -> dict[str, xr.Dataset]:
    address = f"gridref::file://{folder / 'c.gridref'}"
    return {
        "engine": xr.open_dataset(folder / "c.gridref"),
        "direct": xr.open_zarr(address, chunks=None),
        "portable": xr.open_zarr(address, chunks=None, storage_options={"view": "portable"}),
    }


def test_local_files_through_every_door(tmp_path: Path, values: Any) -> None:
    for name, cube in doors(tmp_path).items():
        assert np.array_equal(cube["v"][:40].values, values[:40])
        assert in_child(lambda cube=cube: np.array_equal(cube["v"][20:].values, values[20:])), name


def test_remote_files(tmp_path: Path, values: Any) -> None:
    site = Site({"/f.h5": (tmp_path / "f.h5").read_bytes()})
    with serving(site):
        gridref.build(f"{site.url}/f.h5", tmp_path / "remote.gridref")
        cube = xr.open_dataset(tmp_path / "remote.gridref")
        assert np.array_equal(cube["v"][:10].values, values[:10])
        assert in_child(lambda: np.array_equal(cube["v"][10:].values, values[10:]))


def test_connections_that_a_child_drops_stay_open_in_its_parent() -> None:
    site = Site({"/f.bin": bytes(range(100))})
    options = {"client_kwargs": {"timeout": aiohttp.ClientTimeout(sock_read=3)}}
    with serving(site):
        source = describe_source(f"{site.url}/f.bin")
        pools = [SourcePool(options, retry=RetryPolicy(n_attempts=1))]
        assert bytes(pools[0].read(source, 3, 1)) == b"\x03"

        def drop() -> bool:
            pools.clear()
            return gc.collect() > 0

        assert in_child(drop)
        # A connection that the child took from its parent, too, waits here until its time is over.
        assert bytes(pools[0].read(source, 5, 1)) == b"\x05"


def test_a_pool_of_forked_processes(tmp_path: Path, values: Any) -> None:
    cube = xr.open_dataset(tmp_path / "c.gridref")
    cube["v"][:40].load()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        sums = pool.map_async(_sum, [(tmp_path, n) for n in range(4)]).get(SECONDS)
    assert sums == [float(values[n].sum()) for n in range(4)]


def _sum(task: tuple[Path, int]) -> float:
    folder, number = task
    return float(xr.open_dataset(folder / "c.gridref")["v"][number].values.sum())


def test_locks_and_loads_of_other_threads_are_not_taken_over() -> None:
    lock, cache = new_lock(), LRU[bytes](100, len)
    holds, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        def load() -> bytes:
            holds.set()
            go_on.wait()
            return b"parent"

        with lock:
            cache.get_or_load("key", load)

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait()
    try:
        assert in_child(lambda: lock.acquire(timeout=1))
        assert in_child(lambda: cache.get_or_load("key", lambda: b"child") == b"child")
    finally:
        go_on.set()
        thread.join()


def test_a_child_of_a_process_that_used_workers_starts_its_own() -> None:
    def answered() -> bool:
        with workers(1) as (_, pool):
            return pool.submit(abs, -3).result() == 3

    assert answered()
    assert in_child(answered)
