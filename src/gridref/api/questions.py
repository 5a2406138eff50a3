"""Compare two catalogs, and compute what a read would cost."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gridref.catalog import CatalogGroup, Change, compare_catalogs, open_catalog
from gridref.catalog.listing import referenced_chunks
from gridref.model.array import VirtualArray
from gridref.model.manifest import ChunkState
from gridref.options import verb

if TYPE_CHECKING:
    import pandas as pd


# The cost of reading arrays, before anything is read


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


# Differences between two catalogs


@verb()
def diff(
    catalog: str | os.PathLike[str] | CatalogGroup,
    other: str | os.PathLike[str] | CatalogGroup,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Change, ...]:
    """List the changes from one catalog to another. No source is read.

    Parameters
    ----------
    catalog, other
        Addresses of catalogs, or catalogs that were opened.
    storage_options
        Options of fsspec's filesystem of the catalogs, or of several by protocol.

    Returns
    -------
    tuple of Change
        Groups, arrays and sources that were added, removed or changed: shapes, dtypes, attributes,
        block lengths, encodings, and how many chunks. Empty if there is no difference. Chunks are
        compared by the elements that they hold; a chunk is changed if it is elsewhere, in a file
        of another address or size, or is decoded otherwise.

    Raises
    ------
    CatalogError, SourceUnavailableError
        If a catalog cannot be read.
    """
    groups = [
        each if isinstance(each, CatalogGroup) else open_catalog(each, storage_options)
        for each in (catalog, other)
    ]
    return tuple(compare_catalogs(*groups))
