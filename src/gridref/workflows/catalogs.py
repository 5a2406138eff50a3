"""Catalogs opened, so that their arrays can be read, and written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from gridref.catalog import ROOT_FILE, CatalogGroup, Trust
from gridref.catalog import open_catalog as read_catalog
from gridref.catalog import write_catalog as put_catalog
from gridref.catalog.commits import Access, Base, Change, commit
from gridref.catalog.growth import written
from gridref.catalog.reader import PendingPolicy, group_of
from gridref.catalog.source_rules import SourceRules
from gridref.catalog.storage import open_folder
from gridref.errors import InvalidRequestError
from gridref.io import Allow, absolute_url, catalog_options
from gridref.model.array import VirtualGroup
from gridref.model.manifest import Identity
from gridref.options import verb
from gridref.secrets import without_secrets
from gridref.workflows.growing.keeping import Keeper
from gridref.workflows.reading import Sources, readable

__all__ = ["open_catalog", "relocate", "write_catalog"]


@verb(renamed={"url": "catalog"}, positional=("storage_options",))
def open_catalog(
    catalog: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow = None,
    snapshot: str | None = None,
    identity: Identity | None = None,
    prefixes: Mapping[str, str] | None = None,
    pending: PendingPolicy = "fill",
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
    allow
        Folders and URLs below which the catalog may read sources; ``"*"`` is everything. What lies
        in its own folder it always may. By default also what ``GRIDREF_ALLOW`` in the environment
        names, and everything, if this user built the catalog.
    snapshot
        Id of a former snapshot, or a tag, to open in place of the current one.
    identity
        What makes a source the file that was scanned: ``"strict"``, ``"size"`` or ``"content"``, as
        in `gridref.build`; by default what the catalog says.
    prefixes
        Where sources lie now: folders as the catalog has them, with what stands there now,
        ``{"s3://old/": "https://new/"}``. The longest that fits counts.
    pending
        What becomes of reading elements that were declared ahead, and that no file has brought yet:
        ``"fill"`` reads the fill value, ``"raise"`` is a `BlockPendingError`.

    Raises
    ------
    InvalidRequestError
        If there is no such snapshot; for an identity that is not known,
        or a folder that no source lies in.
    CatalogNotFoundError
        If there is no catalog.
    CatalogVersionError
        If its format version is not known.
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
    if prefixes or pending == "raise":  # what is written then would be written as if it lay there
        return group
    return replace(group, keeper=Keeper(group.info.url, storage_options, allow))


@verb(renamed={"url": "catalog"}, positional=("storage_options",))
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
    keep_secrets
        Keep credentials and signatures that stand in the addresses of files (``user:password@``,
        presigned queries). By default they are left out, and reading needs `storage_options`.

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
    """Write down that the sources of a catalog lie elsewhere now. No source is read.

    It is a commit, and can be rolled back. To open a catalog so without writing, give
    `open_catalog` the same `prefixes`.

    Parameters
    ----------
    catalog
        Address of the catalog's directory.
    prefixes
        Folders as the catalog has them, with what stands there now: ``{"s3://old/":
        "https://new/"}``. The longest that fits counts.
    identity
        What makes a source the file that was scanned from now on, as in `build`: copies may have
        another time of change or ETag. By default as before.
    storage_options
        Options of fsspec's filesystem of the catalog, or of several by protocol.

    Returns
    -------
    str
        The content digest of the catalog.

    Raises
    ------
    InvalidRequestError
        For an identity that is not known, or a folder that no source lies in.
    CatalogError, SourceUnavailableError
        If the catalog cannot be read or written.
    """
    options = catalog_options(storage_options)
    url = absolute_url(catalog).removesuffix(f"/{ROOT_FILE}")
    access = Access(open_folder(url, options), options, Trust.of(url, None))

    def change(base: Base) -> Change:
        rules = SourceRules.of(identity or base.root.snapshot.identity, prefixes)
        group = group_of(base.root, access.folder, options, access.trust, rules)
        _check_moved(base.group, group, prefixes)
        arrays = {path: written(array) for path, array in group.all_arrays().items()}
        said = ", ".join(f"{old} to {new}" for old, new in prefixes.items())
        own = {"identity": rules.identity}
        return Change("relocate", without_secrets(said), group, arrays, own, is_alike=True)

    return commit(access, change).root.snapshot.digest


def _check_moved(before: CatalogGroup, after: CatalogGroup, prefixes: Mapping[str, str]) -> None:
    """Refuse prefixes by which no source is moved."""
    sources = before.source_list
    pairs = zip(sources, after.source_list, strict=True)
    if not any(old.url != new.url for old, new in pairs):
        raise InvalidRequestError(
            f"no source lies in {' or '.join(map(repr, prefixes))}; there is {sources[0].url!r}"
            if sources
            else "the catalog has no sources"
        )
