"""A cube of ten times the cache goes through dask in bounded memory."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

import gridref
from gridref.api.readable import CACHE_BYTES

SIDE = 2048
CHUNK_BYTES = 4 * SIDE * SIDE
N_CHUNKS = -(-10 * CACHE_BYTES // CHUNK_BYTES)
MOST_BYTES = 3 * CACHE_BYTES
"""The cache, what threads have in hand, and what the allocator keeps."""

SCAN = """
import re, sys, dask, xarray as xr
from pathlib import Path

def bytes_in_use(name):
    (line,) = re.findall(name + r":\\s*(\\d+)", Path("/proc/self/status").read_text())
    return int(line) * 1024

def opened(door, catalog):
    if door == "engine":
        return xr.open_dataset(catalog, chunks={"phony_dim_0": 1, "phony_dim_1": 1024})
    pieces = {"chunks": {"phony_dim_0": 1, "phony_dim_1": 1024}, "view": door}
    return xr.open_zarr(f"gridref::file://{catalog}", storage_options=pieces)

v = opened(*sys.argv[1:])["v"]
with dask.config.set(scheduler="threads", num_workers=2):
    v[:1].max().compute()
    before = bytes_in_use("VmRSS")
    highest = v.max(("phony_dim_1", "phony_dim_2")).values
print(bytes_in_use("VmHWM") - before, *highest.tolist())
"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    stored = [zlib.compress(np.full((SIDE, SIDE), k, "<f4"), 1) for k in range(3)]
    with h5py.File(folder / "large.h5", "w") as file:
        shape, chunks = (N_CHUNKS, SIDE, SIDE), (1, SIDE, SIDE)
        v = file.create_dataset("v", shape, "<f4", chunks=chunks, compression="gzip")
        for k in range(N_CHUNKS):
            v.id.write_direct_chunk((k, 0, 0), stored[k % 3])
    gridref.build(folder / "large.h5", folder / "large.gridref")
    return folder / "large.gridref"


@pytest.mark.long(but=1)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("door", ["engine", "direct", "portable"])
def test_a_scan_through_dask_keeps_no_more_than_the_cache(catalog: Path, door: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCAN, door, str(catalog)],
        check=True,
        capture_output=True,
        text=True,
    )
    grown, *highest = done.stdout.split()
    assert list(map(float, highest)) == [k % 3 for k in range(N_CHUNKS)]
    assert int(grown) < MOST_BYTES < N_CHUNKS * CHUNK_BYTES / 3


LIMITED = """
import resource, sys
import gridref
catalog = gridref.open_catalog(sys.argv[1])["v"]
resource.setrlimit(resource.RLIMIT_AS, [int(sys.argv[2])] * 2)
try:
    print(catalog[:40].nbytes)
except gridref.errors.GridrefError as error:
    print("memory" in str(error))
"""


@pytest.mark.long(but=2)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other limits elsewhere")
@pytest.mark.parametrize("room_mb", [800, 1000, 1100, 1300, 1500])
def test_little_address_space_ends_in_an_error_of_ours(catalog, room_mb):
    command = [sys.executable, "-c", LIMITED, str(catalog), str(room_mb * 10**6)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.strip() in ("True", str(40 * CHUNK_BYTES)), done.stderr
