"""Copy a cube of maps into Zarr: as maps, and as series; time and most memory, beside the peers.

Run with ``python -m benchmarks.copying [--maps N] [--memory SIZE] [--rechunker PYTHON]``. A map is
8 MB of float32 with two decimals, a chunk of an HDF5 file (shuffle and zlib). Each copy is made by
a process of its own. xarray and Dask read through gridref, too, so that only planning and writing
differ. rechunker needs zarr 2: name the Python of an environment that has it. It reads a Zarr array
of the same chunks, whose writing is not counted, as it cannot read HDF5. All write the same codec:
Blosc with zstd 1 and shuffle; gridref in shards, the others a file for each chunk.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import batched
from pathlib import Path

import h5py
import imagecodecs
import numpy as np

import gridref
from benchmarks._timing import run_script

SHAPE = (1000, 2000)
GRIDREF = """
import sys, gridref
source, target, memory, *chunks = sys.argv[1:]
dims = "phony_dim_0", "phony_dim_1", "phony_dim_2"
report = gridref.copy(source, target, chunks=dict(zip(dims, map(int, chunks))), memory=memory)
print("decodes", report.arrays["v"].decodes)
"""
XARRAY = """
import sys, warnings, dask, xarray as xr
warnings.simplefilter("ignore")
source, target, memory, *chunks = sys.argv[1:]
dims = "phony_dim_0", "phony_dim_1", "phony_dim_2"
data = xr.open_zarr(f"gridref::file://{source}", chunks={})
data = data.chunk(dict(zip(dims, map(int, chunks))))
for variable in data.variables.values():
    variable.encoding.clear()
from zarr.codecs import BloscCodec
blosc = BloscCodec(cname="zstd", clevel=1, shuffle="shuffle", typesize=4)
data.to_zarr(target, zarr_format=3, encoding={"v": {"compressors": [blosc]}})
"""
BOUNDED = """
import logging, sys
logging.disable(logging.CRITICAL)
import dask
from dask.distributed import Client
dask.config.set({"array.rechunk.method": "p2p"})
client = Client(n_workers=1, threads_per_worker=2, memory_limit=sys.argv[3], dashboard_address=None)
"""
"""A worker of Dask that keeps to the memory, by way of the disk: put before `XARRAY`."""
RECHUNKER = """
import sys, numcodecs, zarr
from rechunker import rechunk
source, target, memory, *chunks = sys.argv[1:]
array = zarr.open_array(source, mode="r")
chunks = tuple(n if k == -1 else k for n, k in zip(array.shape, map(int, chunks)))
options = {"compressor": numcodecs.Blosc("zstd", 1, numcodecs.Blosc.SHUFFLE)}
plan = rechunk(
    array, chunks, memory, target, target_options=options, temp_store=target + ".tmp"
)
plan.execute(scheduler="threads")
"""


def cube(folder: Path, n_maps: int) -> None:
    """A file of maps, and its catalog."""
    random = np.random.default_rng(0)
    smooth = 280 + 20 * np.sin(np.linspace(0, 9, SHAPE[0]))[:, np.newaxis]
    noise = [random.normal(0, 0.3, SHAPE).ravel() for _ in range(8)]

    def stored(k: int) -> bytes:
        """A map that is like no other one: as HDF5 with shuffle and zlib stores it."""
        rolled = np.roll(noise[k % len(noise)], 1_037_389 * k).reshape(SHAPE)
        values = np.round(smooth + 5 * np.sin(k / 58) + rolled, 2).astype("<f4")
        planes = values.view("u1").reshape(-1, 4).T.tobytes()
        return bytes(imagecodecs.deflate_encode(planes, 4))

    with h5py.File(folder / "maps.h5", "w") as file, ThreadPoolExecutor(2) as threads:
        v = file.create_dataset(
            "v", (n_maps, *SHAPE), "<f4", chunks=(1, *SHAPE), compression="gzip", shuffle=True
        )
        for some in batched(range(n_maps), 16):
            for k, chunk in zip(some, threads.map(stored, some), strict=True):
                v.id.write_direct_chunk((k, 0, 0), chunk)
    gridref.build(folder / "maps.h5", folder / "maps.gridref")


def plain(source: Path, folder: Path) -> None:
    """A Zarr array (version 2) of the chunks of a cube, as they are stored."""
    folder.mkdir()
    codec = {"id": "zlib", "level": 4}
    filters = [{"id": "shuffle", "elementsize": 4}]
    with h5py.File(source) as file:
        v = file["v"]
        described = {"zarr_format": 2, "shape": v.shape, "chunks": v.chunks, "dtype": "<f4"}
        described |= {"filters": filters, "compressor": codec, "fill_value": 0, "order": "C"}
        (folder / ".zarray").write_text(json.dumps(described))
        for k in range(len(v)):
            (folder / f"{k}.0.0").write_bytes(v.id.read_direct_chunk((k, 0, 0))[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--maps", type=int, default=250)
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--rechunker", help="Python with rechunker and zarr 2")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cube(folder, asked.maps)
        gigabytes = asked.maps * SHAPE[0] * SHAPE[1] * 4 / 1e9
        ways = {
            "gridref copy": (sys.executable, GRIDREF, folder / "maps.gridref"),
            "xarray, to_zarr": (sys.executable, XARRAY, folder / "maps.gridref"),
        }
        if asked.rechunker:
            plain(folder / "maps.h5", folder / "plain.zarr")
            ways["rechunker"] = (asked.rechunker, RECHUNKER, folder / "plain.zarr")
        for shown, chunks in {"series": (-1, 50, 50), "maps": (1, *SHAPE)}.items():
            print(f"{gigabytes:.1f} GB of maps as {shown}, {asked.memory}:")
            for way, (python, script, source) in ways.items():
                target = folder / "copy.zarr"
                run = run_script(script, source, target, asked.memory, *chunks, python=python)
                told = run.failure or f"{run.worked:.1f} s of the processor {run.output}"
                print(f"  {way:16} {run.seconds:6.1f} s, {run.peak:.2f} GB, {told}", flush=True)
                for each in folder.glob("copy.zarr*"):
                    shutil.rmtree(each)


if __name__ == "__main__":
    main()
