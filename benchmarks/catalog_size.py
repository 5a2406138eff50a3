"""Size and speed of catalogs: ``python benchmarks/catalog_size.py [n_files [chunks_per_file]]``."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gridref.catalog import open_catalog
from gridref.catalog.commit import write_catalog
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import BlockTable
from gridref.model.encoding import Codec, Encoding
from gridref.model.grid import ChunkGrid
from gridref.model.manifest import ChunkManifest, Source


def archive(n_files: int, per_file: int) -> VirtualGroup:
    """One array over files whose chunks lie back to back, but for a gap after each 64th."""
    rng = np.random.default_rng(0)
    dtype = np.dtype("float32")
    codecs = (Codec.of("bytes", endian="little"), Codec.of("numcodecs.zlib", level=4))
    manifests = []
    for i in range(n_files):
        length = rng.normal(120_000, 6_000, per_file).astype(np.int64)
        gap = np.where(np.arange(per_file) % 64, 0, 2048)
        offset = 4096 + np.cumsum(length + gap) - length - gap
        source = Source(f"/data/archive/tas_{i:05d}.nc", int(offset[-1] + length[-1]), i * 10**9)
        manifests.append(ChunkManifest.from_columns([source], offset=offset, length=length))
    one = BlockTable.single((per_file, 100, 100), (1, 100, 100))
    blocks = BlockTable(
        np.zeros(n_files, np.int32),
        np.arange(n_files, dtype=np.int32),
        np.zeros(n_files, np.int64),
        *(
            np.repeat(getattr(one, name), n_files, axis=0)
            for name in ("row_stride", "stored_shape", "origin", "step")
        ),
    )
    grid = ChunkGrid.from_edges([[per_file] * n_files, [100], [100]])
    encodings = (Encoding((1, 100, 100), dtype, codecs),)
    fill = np.float32(0)
    array = VirtualArray(
        grid, dtype, fill, ("time", "y", "x"), {}, encodings, tuple(manifests), blocks
    )
    return VirtualGroup({"tas": array})


def timed(label: str, action: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    result = action()
    print(f"{label:28} {(time.perf_counter() - began) * 1e3:10.2f} ms")
    return result


def main(n_files: int = 1000, per_file: int = 1000) -> None:
    n_chunks = n_files * per_file
    group = archive(n_files, per_file)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cube.gridref"
        timed("write", lambda: write_catalog(group, path))
        sizes = {file.name.partition("-")[0]: file.stat().st_size for file in path.iterdir()}
        total = sum(sizes.values())
        print(f"{n_chunks} chunks: {total} bytes, {total / n_chunks:.2f} a chunk, {sizes}")
        opened = timed("open", lambda: open_catalog(path))
        array = timed("array", lambda: opened.arrays["tas"])
        timed("blocks", lambda: array.blocks.first_row)
        timed("one chunk", lambda: array.manifests[0].take(np.array([n_chunks // 2])))
        timed("the next chunk", lambda: array.manifests[0].take(np.array([n_chunks // 2 + 1])))
        timed("all chunks", lambda: array.manifests[0].take(np.arange(n_chunks)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
