"""JPEG 2000 files for tests, written by GDAL, and their tile-parts."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.errors import NotGeoreferencedWarning

__all__ = ["codestream_of", "image_of", "read_jp2", "tile_parts", "with_parts", "write_jp2"]


def image_of(shape: tuple[int, ...], dtype: str = "u2", seed: int = 0) -> NDArray[Any]:
    """An image with structure, within 12 bits."""
    random = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    smooth = np.cumsum(random.integers(-3, 4, shape), axis=-1) + 100
    return np.clip(smooth, max(info.min, -2000), min(info.max, 4000)).astype(dtype)


def write_jp2(path: Path, image: NDArray[Any], tile: int = 64, **options: Any) -> Path:
    """Write bands without loss, in square tiles."""
    bands, height, width = image.shape
    settings: dict[str, Any] = {
        "driver": "JP2OpenJPEG",
        "blockxsize": tile,
        "blockysize": tile,
        "REVERSIBLE": "YES",
        "QUALITY": "100",
        "RESOLUTIONS": 3,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(
            path,
            "w",
            count=bands,
            height=height,
            width=width,
            dtype=image.dtype.name,
            **settings | options,
        ) as file:
            file.write(image)
    path.with_name(f"{path.name}.aux.xml").unlink(missing_ok=True)
    return path


def read_jp2(path: Path, **options: Any) -> NDArray[Any]:
    """All bands, or those of an overview."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, **options) as file:
            values: NDArray[Any] = file.read()
            return values


def codestream_of(data: bytes) -> int:
    """Where the codestream of a file begins."""
    return data.index(b"\xff\x4f\xff\x51")


def tile_parts(data: bytes) -> list[tuple[int, int, int]]:
    """Tile, first byte and end of each tile-part of a file."""
    at = codestream_of(data) + 2
    while data[at : at + 2] != b"\xff\x90":
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    found = []
    while data[at : at + 2] == b"\xff\x90":
        tile, length = struct.unpack(">HI", data[at + 4 : at + 10])
        found.append((tile, at, at + length))
        at += length
    return found


def with_parts(data: bytes, order: Sequence[int]) -> bytes:
    """A file with its tile-parts in another order."""
    parts = tile_parts(data)
    moved = b"".join(data[parts[number][1] : parts[number][2]] for number in order)
    return data[: parts[0][1]] + moved + data[parts[-1][2] :]
