"""N5 containers that tensorstore writes, and blocks as bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import tensorstore
from numpy.typing import NDArray

COMPRESSIONS: dict[str, Mapping[str, Any]] = {
    "raw": {"type": "raw"},
    "gzip": {"type": "gzip", "level": 4},
    "zlib": {"type": "gzip", "useZlib": True},
    "bzip2": {"type": "bzip2", "blockSize": 3},
    "xz": {"type": "xz"},
    "blosc": {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 2},
    "blosc zstd": {"type": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 1},
    "zstd": {"type": "zstd", "level": 3},
}
"""Those that tensorstore writes."""

TYPES = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
TYPES = (*TYPES, "float32", "float64")


def numbers(dtype: str, shape: tuple[int, ...] = (10, 7, 5), seed: int = 5) -> NDArray[Any]:
    """Values of which half are zero."""
    random = np.random.default_rng(seed)
    return (random.integers(1, 120, shape) * random.integers(0, 2, shape)).astype(dtype)


def write_dataset(
    path: Path,
    values: NDArray[Any],
    block_shape: tuple[int, ...] = (4, 3, 5),
    compression: Mapping[str, Any] = COMPRESSIONS["gzip"],
    **attrs: Any,
) -> Path:
    """Write a dataset; tensorstore leaves out blocks of zeros, and pads those at the end."""
    metadata = {
        "dimensions": list(values.shape),
        "blockSize": list(block_shape),
        "dataType": values.dtype.name,
        "compression": dict(compression),
    }
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(path)}, "metadata": metadata}
    tensorstore.open(spec, create=True).result()[...] = values
    if attrs:
        write_attributes(path, **{**json.loads((path / "attributes.json").read_text()), **attrs})
    return path


def write_attributes(path: Path, **attrs: Any) -> Path:
    """Write the attributes of a group."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "attributes.json").write_text(json.dumps(attrs))
    return path


def read_dataset(path: Path) -> NDArray[Any]:
    """The values as tensorstore reads them."""
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(path)}}
    return np.asarray(tensorstore.open(spec).result().read().result())


def block(values: NDArray[Any], mode: int = 0, shape: tuple[int, ...] | None = None) -> bytes:
    """An uncompressed block; `shape` is what the header says if it is not that of the values."""
    held = values.shape if shape is None else shape
    stored = values.astype(values.dtype.newbyteorder(">")).tobytes(order="F")
    return struct.pack(f">HH{len(held)}I", mode, len(held), *held) + stored


def lz4_stream(data: bytes, n_bytes: int = 50) -> bytes:
    """Parts of at most so many bytes, as lz4-java writes them but for their checksums."""
    stream = b""
    for start in range(0, len(data), n_bytes):
        part = data[start : start + n_bytes]
        stored = imagecodecs.lz4_encode(part)
        method = 0x20 if len(stored) < len(part) else 0x10
        stored = stored if method == 0x20 else part
        stream += struct.pack("<8sB3i", b"LZ4Block", method, len(stored), len(part), 0) + stored
    return stream + struct.pack("<8sB3i", b"LZ4Block", 0x10, 0, 0, 0)
