"""A catalog of 1,000,000,000 chunks: ``python -m benchmarks.billion_chunks [n_parts [n_chunks]]``.

One part of `n_chunks` is written, and linked under the names of `n_parts`: the root file then
names tables of a thousand million rows. They are of one file, whose chunks are of one size, so that
tables are smaller than real ones, which take 2 bytes a chunk. Said are what opening takes, and the
first chunk of the last part, in a process that has read a small catalog before, and so has loaded
all modules: on the local disk, and over HTTP with each answer 25 ms late.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import gridref
from benchmarks._figures import Figure
from benchmarks.append import LATE_SECONDS, in_own_process
from gridref.api.catalog import write_catalog
from gridref.catalog.commit import group_entry, new_id
from gridref.catalog.document import Root
from gridref.catalog.entries import ChunkCounts, Interned, PartEntry, Segment, array_entry
from gridref.catalog.growth import NoBlocks
from gridref.catalog.writing import Hash, joined
from gridref.io import describe_source
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.encoding import Encoding, bytes_codec
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.model.manifest import ChunkManifest, Source

N_ELEMENTS = 250
DTYPE = np.dtype("f4")


@dataclass(frozen=True)
class Rows:
    """A `Manifest` of chunks of one size, back to back in one file, made as they are asked for."""

    source: Source
    n_rows: int
    has_filter_masks: bool = False

    def take(self, rows: NDArray[np.int64]) -> ChunkManifest:
        length = N_ELEMENTS * DTYPE.itemsize
        return ChunkManifest.from_columns([self.source], offset=rows * length, length=length)


def write(folder: Path, n_parts: int, n_chunks: int) -> None:
    """A catalog and the file that its chunks lie in."""
    folder.mkdir(exist_ok=True)
    data = folder / "data.bin"
    data.touch()
    os.truncate(data, n_chunks * N_ELEMENTS * DTYPE.itemsize)
    array = VirtualArray.of_one_block(
        (n_chunks, N_ELEMENTS),
        DTYPE,
        encoding=Encoding((1, N_ELEMENTS), DTYPE, (bytes_codec(DTYPE),)),
        manifest=Rows(describe_source(str(data)), n_chunks),
        dims=("time", "x"),
    )
    began = time.perf_counter()
    write_catalog(VirtualGroup({"v": array}), folder / "cube.gridref", sources="relative")
    print(f"{n_chunks} rows written in {time.perf_counter() - began:.0f} s")
    repeat(folder / "cube.gridref", array, n_parts, n_chunks)


def repeat(catalog: Path, array: VirtualArray, n_parts: int, n_chunks: int) -> None:
    """Make a catalog of one part one of many, all of which hold the same rows."""
    file = catalog / "gridref.json"
    root = Root.from_bytes(file.read_bytes(), str(file))
    snapshot = root.snapshot
    (part,), entry = snapshot.parts, snapshot.root.arrays["v"]
    axis = GridAxis.from_edges([n_chunks] * n_parts)
    grid = ChunkGrid((axis, *array.grid.axes[1:]))
    shared = Interned()
    content = joined([Hash.parse(entry.content, 1)] * n_parts)
    counts = ChunkCounts(n_parts * n_chunks, 0, 0, n_parts * entry.counts.stored_bytes)
    layout = tuple(Segment(i, (0, 0), (i, 0), (1, 1)) for i in range(n_parts))
    shown = array.with_changes(grid=grid, blocks=NoBlocks(n_parts))
    described = array_entry(shown, "v", shared, layout, counts, str(content))
    group = group_entry(VirtualGroup({"v": shown}), "", {"v": described})
    parts = (part, *(linked(catalog, part) for _ in range(n_parts - 1)))
    many = replace(snapshot, root=group, shared=shared, parts=parts)
    vars(many).pop("digest", None)
    file.write_bytes(replace(root, snapshot=many).to_bytes())


def linked(catalog: Path, part: PartEntry) -> PartEntry:
    """The same tables under other names."""
    name = new_id()
    tables = {}
    for kind in ("sources", "blocks", "chunks"):
        entry = getattr(part, kind)
        tables[kind] = replace(entry, file=f"{kind}-{name}.parquet")
        os.link(catalog / entry.file, catalog / tables[kind].file)
    return PartEntry(**tables)


def opened(*urls: str) -> tuple[float, float]:
    """Open catalogs and read a chunk of the last part of each; see `open_one` of the last one."""
    return [open_one(url) for url in urls][-1]


def open_one(url: str) -> tuple[float, float]:
    """Seconds until the first chunk is read, and the most MB of memory."""
    began, began_cpu = time.perf_counter(), time.process_time()
    catalog = gridref.open_catalog(url, allow="http://127.0.0.1/*" if "://" in url else None)
    done = time.perf_counter()
    array = catalog["v"]
    assert array[array.shape[0] - 1].shape == (N_ELEMENTS,)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = time.perf_counter() - began
    print(
        f"{catalog.info.n_chunks} chunks: open {done - began:.3f} s, with the first chunk"
        f" {seconds:.3f} s, of the processor"
        f" {time.process_time() - began_cpu:.3f} s; {memory:.0f} MB"
    )
    return seconds, memory


def figures(n_parts: int = 40, n_chunks: int = 25_000_000) -> Iterator[Figure]:
    """All of it, as rows."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name) / "small", 1, 10)
        write(Path(name) / "large", n_parts, n_chunks)
        local = in_own_process(opened, f"{name}/small/cube.gridref", f"{name}/large/cube.gridref")
        command = [sys.executable, "-m", "benchmarks._slow_server", name, str(LATE_SECONDS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            site = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            late = in_own_process(
                opened, f"{site}/small/cube.gridref", f"{site}/large/cube.gridref"
            )
            server.terminate()
    what = f"first chunk of {n_parts * n_chunks:,}"
    yield Figure(f"{what}, local", local[0], "<= 0.5 s", "s")
    yield Figure(f"{what}, 25 ms a request", late[0], "<= 0.5 s", "s")
    yield Figure(f"{what}, memory", late[1], "<= 300 MB", "MB")


def main(*sizes: int) -> None:
    list(figures(*sizes))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
