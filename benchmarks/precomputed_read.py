"""Reading neuroglancer precomputed volumes: gridref beside tensorstore.

Run with ``python -m benchmarks.precomputed_read [--length N]``. The first part opens volumes of
each encoding, in chunk files and in shards, and reads all of them. The second part opens a sharded
volume of ten million chunks, whose voxels are holes of sparse files, and reads a cut-out of it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore

import gridref
from benchmarks._timing import best_of

ENCODINGS: dict[str, dict[str, Any]] = {
    "raw": {"encoding": "raw"},
    "jpeg": {"encoding": "jpeg"},
    "png": {"encoding": "png"},
    "compressed_segmentation": {
        "encoding": "compressed_segmentation",
        "compressed_segmentation_block_size": [8, 8, 8],
    },
}
SHARDING = {
    "@type": "neuroglancer_uint64_sharded_v1",
    "preshift_bits": 6,
    "minishard_bits": 6,
    "shard_bits": 11,
    "hash": "identity",
    "minishard_index_encoding": "gzip",
    "data_encoding": "raw",
}
SIDE, CHUNK = 216, 8
"""Chunks along each axis of the large volume, and voxels along each axis of a chunk."""
CUT_OUT = (slice(900, 964), slice(500, 700), slice(100, 300))


def labels(length: int) -> np.ndarray[Any, Any]:
    """Blobs of some hundred labels, along z, y, x."""
    z, y, x = (axis / 17 for axis in np.ogrid[:length, :length, :length])
    waves = np.sin(x) + np.sin(y + 0.3 * x) + np.sin(z + 0.2 * y)
    return np.asarray((waves * 40).astype(int) % 251)


def opened(folder: Path, **more: Any) -> Any:
    """A volume in tensorstore, without its cache."""
    kvstore = {"driver": "file", "path": str(folder)}
    spec = {"driver": "neuroglancer_precomputed", "kvstore": kvstore, **more}
    return tensorstore.open(spec).result()


def write_volume(folder: Path, values: np.ndarray[Any, Any], **scale: Any) -> Path:
    """Write a volume with chunks of 64 voxels along each axis."""
    size = list(values.shape[::-1])
    metadata = {"type": "image", "data_type": values.dtype.name, "num_channels": 1}
    scale |= {"size": size, "chunk_size": [64, 64, 64], "resolution": [8, 8, 8]}
    volume = opened(folder, multiscale_metadata=metadata, scale_metadata=scale, create=True)
    volume[...] = values.T[..., np.newaxis]
    return folder


def write_large(folder: Path) -> Path:
    """Write a volume of ten million chunks: indexes, and holes for voxels."""
    from gridref.formats.precomputed import chunk_ids, minishards, read_info

    size = [SIDE * CHUNK] * 3
    scale = {"key": "8", "size": size, "chunk_sizes": [[CHUNK] * 3], "resolution": [8, 8, 8]}
    info = {"type": "image", "data_type": "uint8", "num_channels": 1}
    document = {**info, "scales": [{**scale, "encoding": "raw", "sharding": SHARDING}]}
    (folder / "8").mkdir(parents=True)
    (folder / "info").write_text(json.dumps(document))
    (known,) = read_info((folder / "info").read_bytes()).scales
    ids = np.sort(chunk_ids((SIDE, SIDE, SIDE), np.arange(SIDE**3)))
    places = minishards(known.sharding, ids)
    ids = ids[np.argsort(places, kind="stable")]
    used, counts = np.unique(places, return_counts=True)
    parts = dict(zip(used.tolist(), np.split(ids, np.cumsum(counts)[:-1]), strict=True))
    for shard in {place >> 6 for place in parts}:
        _write_shard(
            folder / "8" / f"{shard:03x}.shard", [parts.get(shard << 6 | n) for n in range(64)]
        )
    return folder


def _write_shard(path: Path, minishard_ids: list[Any]) -> None:
    n_bytes = CHUNK**3
    stop = sum(len(ids) for ids in minishard_ids if ids is not None) * n_bytes
    index, tail, first = np.full((64, 2), stop, "<u8"), [], 0
    for number, ids in enumerate(minishard_ids):
        if ids is not None:
            columns = np.zeros((3, len(ids)), "<u8")
            columns[0], columns[1, 0], columns[2] = (
                np.diff(ids, prepend=ids[:1] * 0),
                first,
                n_bytes,
            )
            first += len(ids) * n_bytes
            tail.append(gzip.compress(columns.tobytes(), 1))
            index[number] = stop, stop + len(tail[-1])
            stop += len(tail[-1])
    with open(path, "wb") as file:
        file.write(index.tobytes())
        file.truncate(1024 + first)
        file.seek(1024 + first)
        file.write(b"".join(tail))


def tools(folder: Path, cut: tuple[slice, ...]) -> dict[str, Callable[[], Any]]:
    """Opening a volume and reading a cut-out, by tool."""
    return {
        "gridref": lambda: gridref.scan(folder)["0"]["image"][(slice(None), *cut)],
        "tensorstore": lambda: opened(folder)[cut[::-1]].read().result(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=256, help="voxels along each axis")
    length = parser.parse_args().length
    print(f"Python {platform.python_version()}, {platform.machine()}")
    with tempfile.TemporaryDirectory() as made_folder:
        folder = Path(made_folder)
        values = labels(length)
        print(f"open and read {length}^3 voxels, ms")
        for name, encoding in ENCODINGS.items():
            dtype = "uint32" if name == "compressed_segmentation" else "uint8"
            for sharding in (None, {**SHARDING, "preshift_bits": 1, "shard_bits": 1}):
                where = folder / f"{name}{sharding is None}"
                more = {} if sharding is None else {"sharding": sharding}
                write_volume(where, values.astype(dtype), **encoding, **more)
                calls = tools(where, (slice(None),) * 3)
                assert (calls["gridref"]() == calls["tensorstore"]().T).all()
                times = best_of(calls, 3)
                kind = "chunk files" if sharding is None else "shards"
                shown = "".join(f"{tool} {each * 1e3:8.1f}   " for tool, each in times.items())
                print(f"  {name:24} {kind:12} {shown}")
        large = write_large(folder / "large")
        print(f"a sharded volume of {SIDE**3} chunks, ms")
        opening = {"gridref": lambda: gridref.scan(large), "tensorstore": lambda: opened(large)}
        for what, calls in {"open": opening, "and read": tools(large, CUT_OUT)}.items():
            times = best_of(calls, 3)
            print(f"  {what:37}", *(f"{tool} {each * 1e3:8.1f}  " for tool, each in times.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
