"""Blosc2 arrays that the library ``blosc2`` writes and reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import blosc2
import numpy as np
from numpy.typing import NDArray

SHAPE = (10, 7, 5)


def numbers(dtype: str = "<i4", shape: tuple[int, ...] = SHAPE, seed: int = 5) -> NDArray[Any]:
    """Values of which half are zero."""
    random = np.random.default_rng(seed)
    values = random.integers(1, 120, shape) * random.integers(0, 2, shape)
    return values.astype(dtype)


def write_array(
    path: Path,
    values: NDArray[Any],
    chunks: tuple[int, ...] = (4, 4, 5),
    blocks: tuple[int, ...] = (2, 3, 4),
    *,
    sparse: bool = False,
    attrs: dict[str, Any] | None = None,
    **params: Any,
) -> Path:
    """Write an array; `params` are of the compression. A sparse one is a folder."""
    cparams = {"codec": blosc2.Codec.ZSTD, "clevel": 5, **params}
    array = blosc2.asarray(
        values,
        chunks=chunks,
        blocks=blocks,
        cparams=cparams,
        urlpath=str(path),
        contiguous=not sparse,
        mode="w",
    )
    for name, value in (attrs or {}).items():
        array.schunk.vlmeta[name] = value
    return path


def read_array(path: Path) -> NDArray[Any]:
    """The values as ``blosc2`` reads them."""
    return np.asarray(blosc2.open(str(path), mode="r")[...])
