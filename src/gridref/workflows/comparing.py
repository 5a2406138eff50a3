"""What two catalogs differ in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gridref.catalog import CatalogGroup, Change, compare_catalogs, open_catalog
from gridref.options import verb

__all__ = ["diff"]


@verb()
def diff(
    catalog: str | os.PathLike[str] | CatalogGroup,
    other: str | os.PathLike[str] | CatalogGroup,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Change, ...]:
    """Say what became different from one catalog to another. No source is read.

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
        compared by the elements that they hold; a chunk is changed if it lies elsewhere, in a file
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
