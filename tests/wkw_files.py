"""WKW datasets that the library ``wkw`` writes and reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import wkw
from numpy.typing import NDArray

KINDS = {"raw": 1, "LZ4": 2, "LZ4HC": 3}
TYPES = ("u1", "u2", "u4", "u8", "f4", "f8", "i1", "i2", "i4", "i8")


def voxels(dtype: str, shape: tuple[int, ...] = (1, 16, 16, 16), seed: int = 3) -> NDArray[Any]:
    """Values of which half are zero."""
    random = np.random.default_rng(seed)
    values = random.integers(1, 120, shape) * random.integers(0, 2, shape)
    return np.asfortranarray(values.astype(dtype))


def write_mag(
    path: Path,
    *cubes: tuple[tuple[int, int, int], NDArray[Any]],
    kind: str = "raw",
    block_length: int = 4,
    file_blocks: int = 4,
) -> Path:
    """Write cubes of whole files, each with its first voxel, as one magnification."""
    first = cubes[0][1]
    header = wkw.Header(
        first.dtype.type,
        num_channels=first.shape[0],
        block_len=block_length,
        file_len=file_blocks,
        block_type=KINDS[kind],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with wkw.Dataset.create(str(path), header) as dataset:
        for corner, values in cubes:
            dataset.write(corner, values)
    return path


def read_mag(path: Path, start: Any, stop: Any) -> NDArray[Any]:
    """The voxels of a box as ``wkw`` reads them."""
    with wkw.Dataset.open(str(path)) as dataset:
        shape = np.array(stop) - np.array(start)
        return np.asarray(dataset.read(tuple(map(int, start)), tuple(map(int, shape))))


def write_properties(path: Path, layers: list[dict[str, Any]], **more: Any) -> Path:
    """Write ``datasource-properties.json``."""
    path.mkdir(parents=True, exist_ok=True)
    document = {"id": {"name": path.name, "team": "lab"}, "dataLayers": layers, **more}
    (path / "datasource-properties.json").write_text(json.dumps(document))
    return path
