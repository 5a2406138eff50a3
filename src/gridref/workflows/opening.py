"""From a catalog's address, or a group in memory, to something that answers for keys."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from gridref.catalog import CatalogGroup
from gridref.catalog import open_catalog as read_catalog
from gridref.catalog import write_catalog as put_catalog
from gridref.errors import InvalidRequestError
from gridref.io import SourcePool
from gridref.model.array import VirtualGroup
from gridref.options import verb
from gridref.serve.objects import KeySpace, ObjectReader
from gridref.serve.reader import Reader
from gridref.serve.views import ViewOptions

__all__ = [
    "CACHE_BYTES",
    "FORMER_GRID",
    "open_catalog",
    "open_group",
    "open_space",
    "reader_for",
    "rectilinear_enabled",
    "view_options",
    "write_catalog",
]

CACHE_BYTES = 256 * 2**20
"""Size of the cache of decoded chunks that the requests to one store share."""

FORMER_GRID = {"rectilinear": ("grid", {True: "rectilinear", False: "regular", None: "auto"})}
"""The option `grid` under the name and with the values that it had before."""

StorageOptions = Mapping[str, Any]


@verb(renamed={"url": "catalog"}, positional=("storage_options",))
def open_catalog(
    catalog: str | os.PathLike[str], *, storage_options: StorageOptions | None = None
) -> CatalogGroup:
    """Open a catalog.

    Only ``gridref.json`` is read, so the cost does not grow with the number of chunks. Arrays read
    their blocks, and blocks their chunks, when they are first looked at.

    Parameters
    ----------
    catalog
        Address of the catalog's directory (or of the ``gridref.json`` in it).
    storage_options
        Options of fsspec's filesystem of the catalog and of its sources, or of several by protocol:
        ``{"s3": {"anon": True}, "https": {...}}``.

    Raises
    ------
    CatalogNotFoundError
        If there is no catalog.
    CatalogVersionError
        If its format version is not known.
    CatalogCorruptError
        If it is damaged. Damaged tables raise it later, when rows are read.
    SourceUnavailableError
        If it cannot be reached or read.
    """
    return read_catalog(catalog, storage_options)


@verb(renamed={"url": "catalog"}, positional=("storage_options",))
def write_catalog(
    group: VirtualGroup,
    catalog: str | os.PathLike[str],
    *,
    storage_options: StorageOptions | None = None,
    extra: Mapping[str, Any] | None = None,
    sources: Literal["absolute", "relative"] = "absolute",
) -> str:
    """Write a catalog, or replace one in one step.

    A crash at any moment leaves the old catalog, or none where there was none.

    Parameters
    ----------
    group
        What to write. It may be a catalog that was opened from the same address.
    catalog
        Address of the directory, local or on any fsspec filesystem that can be written to.
    storage_options
        Options of fsspec's filesystem of the catalog, or of several by protocol.
    extra
        JSON values of the application's own, kept as they are.
    sources
        ``"absolute"`` stores the addresses of the sources as they are; ``"relative"`` stores them
        as seen from the catalog where both lie on one filesystem, so that both can be moved
        together.

    Returns
    -------
    str
        The content digest of the catalog.

    Raises
    ------
    InvalidRequestError
        If something that is not a catalog lies at the address, or the group holds something that a
        catalog cannot keep.
    CatalogVersionError, CatalogCorruptError
        If a catalog lies there that cannot be understood: remove it first.
    CatalogError
        If writing fails: no room, no permission.
    SourceUnavailableError
        If a remote filesystem cannot be reached or refuses.
    """
    return put_catalog(group, catalog, storage_options, extra=extra, sources=sources)


def open_group(
    catalog: str | os.PathLike[str] | VirtualGroup, storage_options: StorageOptions | None = None
) -> VirtualGroup:
    """The group behind a catalog's address; a group is handed through."""
    if isinstance(catalog, VirtualGroup):
        return catalog
    return read_catalog(os.fspath(catalog), storage_options)


def reader_for(
    storage_options: StorageOptions | None = None, *, cache_bytes: int = CACHE_BYTES
) -> Reader:
    """A reader of source files."""
    return Reader(SourcePool(storage_options), cache_bytes=cache_bytes)


def rectilinear_enabled() -> bool:
    """Whether this process' zarr-python reads rectilinear chunk grids."""
    zarr = sys.modules.get("zarr")
    return bool(zarr is not None and zarr.config.get("array.rectilinear_chunks", False))


def view_options(options: Mapping[str, Any]) -> ViewOptions:
    """Options of a view as users write them; ``grid="auto"`` follows zarr-python if it is loaded.

    Raises
    ------
    InvalidRequestError
        For values that cannot be meant.
    """
    asked = ViewOptions(**options)
    if asked.grid != "auto":
        return asked
    return replace(asked, grid="rectilinear" if rectilinear_enabled() else "regular")


def open_space(
    group: VirtualGroup, options: ViewOptions, storage_options: StorageOptions | None
) -> tuple[KeySpace, ObjectReader]:
    """The keys of a group under a view, and what reads them.

    Raises
    ------
    InvalidRequestError
        If chunks or shards are asked for along a dimension that no array has.
    """
    asked = {*(options.chunks or {})}
    if isinstance(options.shards, Mapping):
        asked |= {*options.shards}
    known = {dim for array in group.all_arrays().values() for dim in array.dims} if asked else set()
    if not asked <= known:
        raise InvalidRequestError(
            f"no array has a dimension {', '.join(sorted(asked - known))}; there are"
            f" {', '.join(sorted(known))}"
        )
    return KeySpace(group, options), ObjectReader(reader_for(storage_options))
