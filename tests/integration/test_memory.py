"""Memory: bounded where much is read, and none of strangers shown."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

import gridref
from gridref.api.readable import CACHE_BYTES
from tests.command import run_code

SIDE = 2048
CHUNK_BYTES = 4 * SIDE * SIDE
N_CHUNKS = -(-10 * CACHE_BYTES // CHUNK_BYTES)
MOST_BYTES = 3 * CACHE_BYTES
"""The cache, what threads have in hand, and what the allocator keeps."""

SCAN = """
import re, sys, warnings, dask, xarray as xr
from pathlib import Path
warnings.simplefilter("ignore")

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
    done = run_code(SCAN, door, catalog)
    assert done.returncode == 0, done.stdout
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


GAPS = np.dtype(
    {"names": ["flag", "value"], "formats": ["u1", "<f8"], "offsets": [0, 8], "itemsize": 24}
)
NESTED = np.dtype(
    {"names": ["n", "inner"], "formats": ["<i2", GAPS], "offsets": [3, 8], "itemsize": 40}
)
SWAPPED = np.dtype({"names": ["a", "b"], "formats": ["u1", ">i4"], "offsets": [0, 4]})
ARRAYS = np.dtype({"names": ["a", "v"], "formats": ["u1", ("<f4", (3,))], "offsets": [0, 4]})
DTYPES = {"gaps": GAPS, "nested": NESTED, "swapped": SWAPPED, "arrays": ARRAYS}

SERVE = """
import hashlib, sys, gridref
for options in (
    {"view": "auto"},
    {"view": "portable", "chunks": {"phony_dim_0": 4}},
    {"view": "portable", "chunks": {"phony_dim_0": 4}, "compressor": "gzip"},
    {"view": "portable", "chunks": {"phony_dim_0": 4}, "shards": {"phony_dim_0": 16}},
):
    store = gridref.open_store(gridref.scan(sys.argv[1]), **options)
    for key in sorted(store.space.keys()):
        found = store.space.resolve(key)
        print(options, key, found.etag, hashlib.sha256(store.reader.read(found)).hexdigest())
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stray") / "compounds.h5"
    generator = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for name, dtype in DTYPES.items():
            values = np.frombuffer(generator.bytes(10 * dtype.itemsize), dtype)
            file.create_dataset(f"contiguous_{name}", data=values)
            chunked = file.create_dataset(f"chunked_{name}", (13,), dtype, chunks=(5,))
            chunked[:7] = values[:7]
            file.create_dataset(f"packed_{name}", data=values, chunks=(4,), compression="gzip")
        file.create_dataset("numbers", (13, 7), ">f4", chunks=(5, 3))[:4, :4] = 1.5
    return path


def served(path: Path, pattern: int) -> list[str]:
    """Digests of all keys, from a process whose allocator fills new memory with a pattern."""
    environment = {
        **os.environ,
        "MALLOC_PERTURB_": str(pattern),
        "GLIBC_TUNABLES": f"glibc.malloc.tcache_count=0:glibc.malloc.perturb={pattern}",
    }
    done = subprocess.run(
        [sys.executable, "-c", SERVE, path],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs glibc's allocator")
def test_what_memory_held_before_is_never_served(path: Path) -> None:
    first = served(path, 0x5A)
    assert len(first) > 100
    assert first == served(path, 0xC3)


@pytest.mark.parametrize("view", ["auto", "portable"])
def test_compounds_with_gaps_are_shown_packed_with_their_members(path: Path, view: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr: no specification of struct yet
        group = zarr.open_group(gridref.open_store(gridref.scan(path), view), mode="r")
        with h5py.File(path) as file:
            for name in file:
                kind = name.partition("_")[2]
                if kind not in ("gaps", "nested", "swapped"):
                    continue
                expected, read = file[name][...], group[name][...]
                assert read.dtype.names == expected.dtype.names, name
                assert read.dtype.itemsize == {"gaps": 9, "nested": 11, "swapped": 5}[kind]
                assert read.tolist() == expected.tolist() or _equal(read, expected), name


def _equal(read: np.ndarray, expected: np.ndarray) -> bool:
    """Member by member, bit for bit."""
    if read.dtype.names is None:
        return read.tobytes() == expected.astype(read.dtype).tobytes()
    return all(_equal(read[name], expected[name]) for name in read.dtype.names)
