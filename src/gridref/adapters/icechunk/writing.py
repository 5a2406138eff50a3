"""Groups written into Icechunk repositories."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import icechunk

from gridref.adapters.icechunk.appending import append
from gridref.adapters.icechunk.arrays import put_array
from gridref.adapters.icechunk.planning import Materialize, WritePlan, plan_writing
from gridref.adapters.icechunk.sessions import (
    Destination,
    has_content,
    put_document,
    session_for,
)
from gridref.adapters.references import INLINE_LIMIT_BYTES
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualGroup
from gridref.model.zarr_attributes import attributes_to_json
from gridref.model.zarr_metadata import group_document
from gridref.workflows.catalogs import open_catalog
from gridref.workflows.opening import reader_for

__all__ = ["to_icechunk"]


def to_icechunk(
    catalog: VirtualGroup | str | os.PathLike[str],
    destination: Destination,
    *,
    append_dim: str | None = None,
    replace: bool = False,
    materialize: Materialize = False,
    inline_limit: int = INLINE_LIMIT_BYTES,
    branch: str = "main",
    message: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> str | None:
    """Write a group into an Icechunk repository, its chunks as virtual references.

    Icechunk compares a file with the ETag or the time of change of the scan before it reads from
    it. Uneven chunks become a rectilinear grid, which zarr-python reads with
    ``zarr.config.set({"array.rectilinear_chunks": True})``.

    Parameters
    ----------
    catalog
        What was scanned, combined or opened, or the address of a catalog.
    destination
        A writable session, which is not committed; or a repository, or the address of one (it is
        made if there is none): containers for the files are set up in it, and there is one commit.
    append_dim
        Dimension along which the group is put behind what is in the repository. Arrays without it
        have to be there, with the same values.
    replace
        Whether what is in the repository is replaced, with one commit. Without, it has to be empty.
    materialize
        True: arrays that cannot be referenced are decoded and written as chunks of the repository.
        Or paths of arrays that are written so in any case.
    inline_limit
        Largest size in bytes, decoded, of an array that is written so unasked.
    branch, message
        Of the commit.
    storage_options
        Options of fsspec's filesystems of catalog, files and repository, or of several by protocol.
        Credentials are not kept in the repository.

    Returns
    -------
    str or None
        The id of the snapshot; None for a session.

    Raises
    ------
    NotRepresentableError
        Naming every array that cannot be referenced, or appended, and why.
    InvalidRequestError
        If the repository is not empty and neither `replace` nor `append_dim` is given; if a session
        lacks containers.
    SourceUnavailableError
        If the repository cannot be reached or written.

    Examples
    --------
    >>> gridref.to_icechunk("cube.gridref", "cube.icechunk")  # doctest: +SKIP
    """
    if append_dim is not None and replace:
        raise InvalidRequestError("append_dim= and replace=True contradict each other")
    if not isinstance(catalog, VirtualGroup):
        catalog = open_catalog(catalog, storage_options=storage_options)
    plan = plan_writing(catalog, reader_for(storage_options), materialize, inline_limit)
    done = "written" if append_dim is None else f"appended along {append_dim}"
    with session_for(
        destination,
        plan.urls,
        branch=branch,
        message=message or f"{done} by gridref",
        storage_options=storage_options,
    ) as writing:
        store = writing.session.store
        if append_dim is not None:
            append(store, plan, append_dim, inline_limit)
        else:
            _write(store, plan, inline_limit, replace=replace)
    return writing.snapshot


def _write(
    store: icechunk.IcechunkStore, plan: WritePlan, inline_limit: int, *, replace: bool
) -> None:
    if has_content(store):
        if not replace:
            raise InvalidRequestError(
                "there are arrays in the repository: replace=True puts these in their place, in a"
                " commit of its own; append_dim= puts them behind"
            )
        store.sync_clear()
    for path, group in plan.space.group.walk():
        put_document(store, path, group_document(attributes_to_json(group.attrs, None)))
    for path, view in plan.space.views().items():
        put_document(store, path, view.metadata.to_json())
        put_array(store, plan, path, inline_limit)
