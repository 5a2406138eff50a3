"""Neuroglancer precomputed volumes for tests, written and read by tensorstore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore
from numpy.typing import NDArray

__all__ = ["ENCODINGS", "sharding", "volume_values", "voxels", "write_volume"]

ENCODINGS: dict[str, dict[str, Any]] = {
    "raw": {"encoding": "raw"},
    "png": {"encoding": "png"},
    "jpeg": {"encoding": "jpeg", "jpeg_quality": 90},
    "compressed_segmentation": {
        "encoding": "compressed_segmentation",
        "compressed_segmentation_block_size": [8, 4, 2],
    },
}


def voxels(dtype: str, shape: Sequence[int], n_values: int = 200) -> NDArray[Any]:
    """Values of the axes channel, z, y, x: blobs of some labels, with all bits of the type."""
    random = np.random.default_rng(3)
    labels = random.integers(0, 2**63, n_values, np.uint64).astype(f"u{np.dtype(dtype).itemsize}")
    if np.dtype(dtype).kind == "f":
        labels = random.random(n_values)
    axes = np.ogrid[tuple(slice(0, extent) for extent in shape)]
    waves = sum(np.sin(axis / (3 + number)) for number, axis in enumerate(axes))
    number = np.abs(np.asarray(waves) * n_values / 8).astype(int) % n_values
    return labels[number].astype(dtype)


def sharding(**changes: Any) -> dict[str, Any]:
    """Parameters of shards."""
    return {
        "@type": "neuroglancer_uint64_sharded_v1",
        "preshift_bits": 1,
        "minishard_bits": 2,
        "shard_bits": 2,
        "hash": "identity",
        "minishard_index_encoding": "gzip",
        "data_encoding": "gzip",
        **changes,
    }


def write_volume(
    folder: Path,
    *scales: NDArray[Any],
    chunk: Sequence[int] = (8, 8, 8),
    offset: Sequence[int] = (0, 0, 0),
    encoding: Mapping[str, Any] = ENCODINGS["raw"],
    kind: str = "image",
    **scale_metadata: Any,
) -> Path:
    """Write arrays of the axes channel, z, y, x as scales of 4, 8, ... nm; x, y, z elsewhere."""
    for number, values in enumerate(scales):
        spec = {
            "driver": "neuroglancer_precomputed",
            "kvstore": {"driver": "file", "path": str(folder)},
            "multiscale_metadata": {
                "type": kind,
                "data_type": values.dtype.name,
                "num_channels": values.shape[0],
            },
            "scale_metadata": {
                "size": list(values.shape[:0:-1]),
                "voxel_offset": list(offset),
                "resolution": [4 * 2**number, 4 * 2**number, 40],
                "chunk_size": list(chunk),
                **encoding,
                **scale_metadata,
            },
            "create": True,
        }
        tensorstore.open(spec).result()[...] = values.T
    return folder


def volume_values(folder: Path, scale: int = 0) -> NDArray[Any]:
    """What tensorstore reads of a scale, with the axes channel, z, y, x."""
    spec = {
        "driver": "neuroglancer_precomputed",
        "kvstore": {"driver": "file", "path": str(folder)},
        "scale_index": scale,
    }
    values: NDArray[Any] = np.asarray(tensorstore.open(spec, read=True).result().read().result()).T
    return values
