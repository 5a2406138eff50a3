"""Listing the chunks of a dataset: gridref beside h5py's chunk_iter, virtualizarr and kerchunk.

Run with ``python -m benchmarks.hdf5_chunk_index [--chunks N] [--only NAME ...]``. Each file holds
one dataset with very many tiny chunks, so that nearly all time goes into its chunk index. Times are
the best of three for gridref and chunk_iter, and of one run for the slower ones; all open the file
anew. gridref's time includes the dense manifest.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from benchmarks._peers import parsed_by
from gridref.formats.hdf5.bytes import read_superblock
from gridref.formats.hdf5.chunks import IndexRequest, walk_chunks
from gridref.formats.hdf5.headers import ChunkedLayout
from gridref.model.manifest import ChunkManifest, Source
from tests.hdf5_bytes import LocalReader, read_data_layout


@dataclass(frozen=True)
class Variant:
    """A kind of chunk index, and how to make h5py write it."""

    libver: str
    endless: tuple[int, ...] = ()
    compression: str | None = None


VARIANTS = {
    "btree-v1": Variant("earliest"),
    "btree-v1 gzip": Variant("earliest", compression="gzip"),
    "fixed-array": Variant("latest"),
    "fixed-array gzip": Variant("latest", compression="gzip"),
    "extensible-array": Variant("latest", endless=(0,)),
    "btree-v2": Variant("latest", endless=(0, 1, 2)),
    "btree-v2 gzip": Variant("latest", endless=(0, 1, 2), compression="gzip"),
}


def build(path: Path, variant: Variant, n_chunks: int) -> None:
    """Write a 3-D dataset of `n_chunks` allocated chunks of 8 elements."""
    side = round(n_chunks ** (1 / 3))
    grid = (-(-n_chunks // side**2), side, side)
    shape = tuple(2 * n for n in grid)
    limits = tuple(
        h5py.h5s.UNLIMITED if axis in variant.endless else n for axis, n in enumerate(shape)
    )
    with h5py.File(path, "w", libver=variant.libver) as file:
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_chunk((2, 2, 2))
        dcpl.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        if variant.compression:
            dcpl.set_shuffle()
            dcpl.set_deflate(1)
        elif variant.libver == "latest" and not variant.endless:
            dcpl.set_alloc_time(h5py.h5d.ALLOC_TIME_INCR)  # else there is no index at all
        space = h5py.h5s.create_simple(shape, limits)
        dataset = h5py.Dataset(h5py.h5d.create(file.id, b"data", h5py.h5t.NATIVE_INT8, space, dcpl))
        if dcpl.get_alloc_time() == h5py.h5d.ALLOC_TIME_INCR:
            dataset[...] = 1


def by_gridref(path: Path) -> ChunkManifest:
    with h5py.File(path, "r") as file, LocalReader(path) as reader:
        dataset = file["data"]
        view = read_superblock(reader)
        layout = read_data_layout(view, h5py.h5o.get_info(dataset.id).addr)
        assert isinstance(layout, ChunkedLayout)
        table = walk_chunks(
            IndexRequest(
                view,
                layout,
                shape=dataset.shape,
                max_shape=dataset.maxshape,
                is_filtered=dataset.id.get_create_plist().get_nfilters() > 0,
            )
        )
        return table.to_manifest(Source(str(path), reader.size_bytes))


def by_chunk_iter(path: Path) -> list[Any]:
    found: list[Any] = []
    with h5py.File(path, "r") as file:
        file["data"].id.chunk_iter(found.append)
    return found


def by_virtualizarr(path: Path) -> Any:
    from virtualizarr.parsers import HDFParser

    return parsed_by(HDFParser())(path)


def by_kerchunk(path: Path) -> Any:
    from kerchunk.hdf import SingleHdf5ToZarr

    return SingleHdf5ToZarr(str(path), inline_threshold=0).translate()


def seconds_of(call: Callable[[Path], Any], path: Path, repeats: int) -> float:
    """Best time of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call(path)
        times.append(time.perf_counter() - start)
    return min(times)


def peak_bytes(path: Path) -> tuple[int, int]:
    """Peak memory of one run in a fresh process: by tracemalloc, and growth of resident size."""
    module = "benchmarks.hdf5_chunk_index"
    sizes = []
    for way in ("traced", "resident"):
        command = [sys.executable, "-m", module, "--measure", way, str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        sizes.append(int(done.stdout))
    return sizes[0], sizes[1]


def measure(way: str, path: Path) -> int:
    """Memory of one run in this process, on top of what it has after a run on a small file."""
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.h5"
        build(small, VARIANTS["btree-v1"], 8)
        by_gridref(small)
    if way == "traced":
        tracemalloc.start()
        by_gridref(path)
        return tracemalloc.get_traced_memory()[1]
    before = resident_peak()
    by_gridref(path)
    return resident_peak() - before


def resident_peak() -> int:
    """Greatest resident size of this process so far (Linux), not counting its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def run(names: list[str], n_chunks: int) -> None:
    """Print the table."""
    print(f"{platform.platform()}, Python {platform.python_version()}, h5py {h5py.__version__}")
    print(
        f"{'index':18} {'chunks':>9} {'gridref':>9} {'chunk_iter':>17} {'virtualizarr':>17} ",
        end="",
    )
    print(f"{'kerchunk':>17} {'peak B/chunk':>13}")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "chunks.h5"
            build(path, VARIANTS[name], n_chunks)
            stored = by_gridref(path).n_rows
            own = seconds_of(by_gridref, path, 3)
            others = [
                seconds_of(by_chunk_iter, path, 3),
                seconds_of(by_virtualizarr, path, 1),
                seconds_of(by_kerchunk, path, 1),
            ]
            traced, resident = peak_bytes(path)
        cells = " ".join(f"{seconds:8.2f}s {seconds / own:6.1f}x" for seconds in others)
        memory = f"{traced / stored:5.0f} / {resident / stored:.0f}"
        print(f"{name:18} {stored:9} {own:8.3f}s {cells} {memory:>13}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(measure(options.measure[0], Path(options.measure[1])))
    else:
        run(options.only, options.chunks)


if __name__ == "__main__":
    main()
