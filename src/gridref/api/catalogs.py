"""Open, write and relocate catalogs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from gridref.api.building import catalog_access
from gridref.api.keeping import Catalog, Keeper
from gridref.api.opening import Sources, readable
from gridref.catalog import open_catalog as read_catalog
from gridref.catalog import write_catalog as put_catalog
from gridref.catalog.opening import PendingPolicy
from gridref.io import Allow
from gridref.model.array import VirtualGroup
from gridref.model.manifest import Identity
from gridref.options import verb


@verb()
def open_catalog(
    catalog: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow = None,
    snapshot: str | None = None,
    identity: Identity | None = None,
    prefixes: Mapping[str, str] | None = None,
    pending: PendingPolicy = "fill",
) -> Catalog:
    """Open a catalog.

    Only ``gridref.json`` is read, so the cost does not grow with the number of chunks. Arrays read
    their blocks, and blocks their chunks, when they are first needed.

    Parameters
    ----------
    catalog
        Address of the catalog's directory (or of the ``gridref.json`` in it).
    storage_options
        Options of fsspec's filesystem of the catalog and of its sources, or of several by protocol:
        ``{"s3": {"anon": True}, "https": {...}}``.
    allow
        Folders and URLs below which the catalog may read sources; ``"*"`` allows everything.
        Sources in its own folder are always allowed. By default, so is everything that
        ``GRIDREF_ALLOW`` in the environment names, and every source if this user built the catalog.
    snapshot
        Id of a former snapshot, or a tag, to open in place of the current one.
    identity
        How to check that a source is the file that was scanned: ``"strict"``, ``"size"`` or
        ``"content"``, as in `gridref.build`. By default as recorded in the catalog.
    prefixes
        Present locations of sources: recorded folders with the new ones, ``{"s3://old/":
        "https://new/"}``. The longest folder that matches an address counts.
    pending
        What to do when elements are read that were declared ahead and that no file holds yet.
        ``"fill"``: return the fill value. ``"raise"``: raise `BlockPendingError`.

    Raises
    ------
    InvalidRequestError
        If there is no such snapshot, the identity is unknown, or a folder of `prefixes` has no
        source.
    CatalogNotFoundError
        If there is no catalog.
    CatalogVersionError
        If its format version is unknown.
    CatalogCorruptError
        If it is damaged. Damaged tables raise it later, when rows are read.
    SourceUnavailableError
        If it cannot be reached or read.
    """
    group = readable(
        read_catalog(
            catalog,
            storage_options,
            allow,
            snapshot,
            identity=identity,
            prefixes=prefixes,
            pending=pending,
        ),
        Sources(storage_options),
    )
    # What a changed view of the catalog writes would be written as if it lay there.
    is_fixed = bool(prefixes) or pending == "raise"
    return Catalog.of(group, Keeper(group.info.url, storage_options, allow, is_fixed=is_fixed))


@verb()
def write_catalog(
    group: VirtualGroup,
    catalog: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    sources: Literal["absolute", "relative"] = "absolute",
    keep_secrets: bool = False,
) -> str:
    """Write a catalog, or replace one in one step.

    A crash at any moment leaves the old catalog, or none if there was none.

    Parameters
    ----------
    group
        What to write. It may be a catalog that was opened from the same address.
    catalog
        Address of the directory, local or on any fsspec filesystem that can be written to.
    storage_options
        Options of fsspec's filesystem of the catalog, or of several by protocol.
    extra
        JSON values of the application, kept as they are.
    sources
        ``"absolute"`` stores the addresses of the sources as they are. ``"relative"`` stores them
        relative to the catalog if both are on one filesystem. Both can then be moved together.
    keep_secrets
        Keep credentials and signatures in the addresses of files (``user:password@``, presigned
        queries). By default they are left out, and reading needs `storage_options`.

    Returns
    -------
    str
        The content digest of the catalog.

    Raises
    ------
    InvalidRequestError
        If the address holds something other than a catalog, or the group holds something that a
        catalog cannot store.
    CatalogVersionError, CatalogCorruptError
        If the address holds a catalog that cannot be read: remove it first.
    CatalogError
        If writing fails: no room, no permission.
    SourceUnavailableError
        If a remote filesystem cannot be reached or refuses.
    """
    return put_catalog(
        group, catalog, storage_options, extra=extra, sources=sources, keep_secrets=keep_secrets
    )


@verb()
def relocate(
    catalog: str | os.PathLike[str],
    prefixes: Mapping[str, str],
    *,
    identity: Identity | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """Change the recorded location of the source files. No source is read.

    This is a commit, which can be rolled back. To use new locations without writing them, give
    `open_catalog` the same `prefixes`.

    Parameters
    ----------
    catalog
        Address of the catalog's directory.
    prefixes
        Recorded folders with the new ones: ``{"s3://old/": "https://new/"}``. The longest folder
        that matches an address counts.
    identity
        How later reads check that a source is the file that was scanned, as in `build`: copies may
        have another time of change or ETag. By default as before.
    storage_options
        Options of fsspec's filesystem of the catalog, or of several by protocol.

    Returns
    -------
    str
        The content digest of the catalog.

    Raises
    ------
    InvalidRequestError
        For an unknown identity, or a folder of `prefixes` without a source.
    CatalogError, SourceUnavailableError
        If the catalog cannot be read or written.
    """
    keeper = Keeper(catalog_access(catalog, storage_options).folder.url, storage_options)
    return keeper.relocate(prefixes, identity).info.digest
