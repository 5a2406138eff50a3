"""Estimate the cost of reading arrays, before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gridref.catalog.listing import referenced_chunks
from gridref.model.array import VirtualArray
from gridref.model.manifest import ChunkState

if TYPE_CHECKING:
    import pandas as pd


def reading_costs(arrays: Mapping[str, VirtualArray]) -> pd.DataFrame:
    """Compute the stored chunks, bytes and files that reading each whole array touches.

    Parameters
    ----------
    arrays
        By name; what was selected of them is what is read.

    Returns
    -------
    pandas.DataFrame
        A row for each array: `n_chunks`, `n_missing` of them, `n_bytes` and `n_files`.
    """
    import pandas as pd

    columns = ["n_chunks", "n_missing", "n_bytes", "n_files"]
    rows = {name: _cost(array) for name, array in arrays.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns, dtype="int64")


def _cost(array: VirtualArray) -> tuple[int, int, int, int]:
    n_chunks, n_missing, n_bytes = 0, 0, 0
    files: set[str] = set()
    for _, rows in referenced_chunks(array):
        n_chunks += rows.n_rows
        n_missing += int((rows.state == ChunkState.MISSING).sum())
        n_bytes += rows.stored_bytes
        used = np.unique(rows.source[rows.state == ChunkState.RANGE])
        files.update(rows.sources[number].url for number in used.tolist())
    return n_chunks, n_missing, n_bytes, len(files)
