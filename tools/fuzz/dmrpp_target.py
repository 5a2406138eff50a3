"""What is tried of a mutated DMR++ document: its scan, and the values of what it takes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import GridrefError
from gridref.io import SourcePool
from gridref.model.array import VirtualArray
from gridref.model.manifest import ChunkState
from gridref.serve.reader import Reader
from tools.fuzz.timed_scan import WrongDataError, scan_in_time

__all__ = ["check"]

_SECONDS = 20
_MOST_BYTES = 1 << 20


def check(path: Path) -> None:
    """Scan a document, and read the small arrays of it: values, or an error of ours.

    Raises
    ------
    WrongDataError
        If the scan takes long, or uncompressed contiguous data are not the bytes of the granule.
    """
    group = scan_in_time(path, _SECONDS)
    if group is None:
        return
    with SourcePool() as pool:
        reader = Reader(pool)
        for name, array in group.all_arrays().items():
            if math.prod(array.shape) * max(1, array.dtype.itemsize) > _MOST_BYTES:
                continue
            try:
                values = np.asarray(reader.read(array, (...,)))
            except GridrefError:
                continue
            if values.shape != array.shape:
                raise WrongDataError(f"{name} reads as {values.shape}, not {array.shape}")
            _check_bytes(name, array, values)


def _check_bytes(name: str, array: VirtualArray, values: NDArray[Any]) -> None:
    """Compare numbers of one uncompressed chunk with the bytes of the granule, in either order."""
    plain = [codec.name for each in array.encodings for codec in each.codecs] == ["bytes"]
    if not plain or array.dtype.kind not in "iuf" or array.n_blocks != 1:
        return
    rows = array.manifests[0].take(np.arange(array.manifests[0].n_rows))
    if rows.n_rows != 1 or rows.state[0] != ChunkState.RANGE:
        return
    if array.encodings[0].chunk_shape != array.shape:
        return
    with Path(rows.sources[0].url).open("rb") as file:
        file.seek(int(rows.offset[0]))
        raw = file.read(int(rows.length[0]))
    if raw not in (values.tobytes(), values.byteswap().tobytes()):
        raise WrongDataError(f"{name} holds other bytes than the granule")
