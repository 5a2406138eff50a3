"""Open an address as a group, and show it as the keys of a Zarr view."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gridref.api.readable import reader_for
from gridref.catalog import CatalogGroup, Trust, open_catalog
from gridref.catalog.overlays import OverlayPolicy
from gridref.errors import (
    CatalogError,
    GroupNotFoundError,
    InvalidRequestError,
    Message,
    Option,
    Place,
)
from gridref.io import Allow
from gridref.model.array import VirtualGroup, dims_of
from gridref.options import near_names
from gridref.serve.conventions import with_conventions
from gridref.serve.names import IN_ZARR, with_shown_names
from gridref.serve.views import View, ViewOptions

if TYPE_CHECKING:
    from gridref.serve.object_reader import ObjectReader
    from gridref.serve.objects import KeySpace

StorageOptions = Mapping[str, Any]


def open_group(
    catalog: str | os.PathLike[str] | VirtualGroup,
    storage_options: StorageOptions | None = None,
    allow: Allow | Trust = None,
    snapshot: str | None = None,
    overlay: OverlayPolicy | None = None,
    *,
    digest: str | None = None,
) -> VirtualGroup:
    """The group behind a catalog's address; a group is handed through.

    Parameters
    ----------
    catalog, storage_options, allow, snapshot
        As for `gridref.open_store`.
    overlay
        As for `gridref.open_catalog`, for opened catalogs, too; None changes nothing there.
    digest
        What the catalog's digest has to be; None takes any. Pickles say it, and the snapshot: what
        they were made of is not to be taken for what a rebuilt catalog holds.

    Raises
    ------
    CatalogError
        If there is no usable catalog, or one of another digest.
    InvalidRequestError
        If there is no such snapshot; if something is allowed to a group that was opened before, or
        a snapshot of it asked for; if overlays are asked for of a group that is no catalog.
    """
    if isinstance(catalog, VirtualGroup):
        for name, given in (("allow", allow), ("snapshot", snapshot)):
            if given is not None:
                raise InvalidRequestError(
                    f"{name}= is for the address of a catalog: this one was opened already, with"
                    " its own"
                )
        return catalog if overlay is None else _with_overlays(catalog, overlay)
    policy: OverlayPolicy = "auto" if overlay is None else overlay
    opened = partial(open_catalog, os.fspath(catalog), storage_options, allow, overlay=policy)
    try:
        group = opened(snapshot)
    except InvalidRequestError:
        if digest is None:
            raise
        group = opened()  # built anew, of the same perhaps
    if digest not in (None, group.info.digest):
        raise CatalogError(
            "the catalog was rebuilt after this object was pickled: open the catalog again",
            Place(source=group.info.url),
        )
    return group


def _with_overlays(group: VirtualGroup, overlay: OverlayPolicy) -> VirtualGroup:
    """An opened catalog with the overlays that reads may use chosen anew."""
    if not isinstance(group, CatalogGroup):
        raise InvalidRequestError(Message(Option("overlay", overlay), " is for catalogs"))
    return group.with_overlays(overlay)


def group_path(group: str | None) -> str:
    """The path of a group as `VirtualGroup.walk` has it: ``""`` is the root."""
    if not isinstance(group, str | None):
        raise InvalidRequestError(f"group must be a string or None, got {group!r}")
    return (group or "").strip("/")


def subgroup(root: VirtualGroup, group: str | None) -> VirtualGroup:
    """The group at a path below another one."""
    groups = dict(root.walk())
    virtual_group = groups.get(group_path(group))
    if virtual_group is None:
        known = sorted(filter(None, groups))
        near = near_names(group_path(group), known) if known else ": there are none"
        raise GroupNotFoundError(f"there is no group {group!r}{near}")
    return virtual_group


def rectilinear_enabled() -> bool:
    """Whether this process' zarr-python reads rectilinear chunk grids."""
    zarr = sys.modules.get("zarr")
    return bool(zarr is not None and zarr.config.get("array.rectilinear_chunks", False))


def view_options(options: Mapping[str, Any], *, in_process: bool = False) -> ViewOptions:
    """Options of a view as users write them; ``grid="auto"`` follows zarr-python if it is loaded.

    With `in_process`, what is opened is read by this process' zarr-python: ``view="auto"`` is the
    direct view, unless chunks are asked for that only the others have: uneven, compressed, sharded.

    Raises
    ------
    InvalidRequestError
        For values that cannot be meant.
    """
    asked = ViewOptions(**options)
    special = asked.grid == "rectilinear" or asked.compressor or asked.shards
    if in_process and asked.view is View.AUTO and not special:
        asked = replace(asked, view=View.DIRECT)
    if asked.grid != "auto":
        return asked
    return replace(asked, grid="rectilinear" if rectilinear_enabled() else "regular")


def open_space(
    group: VirtualGroup, options: ViewOptions, storage_options: StorageOptions | None
) -> tuple[KeySpace, ObjectReader]:
    """The keys of a group shown with these options, and the reader of their values.

    Raises
    ------
    InvalidRequestError
        If chunks or shards are asked for along a dimension that no array has.
    NotRepresentableError
        If Zarr could not tell two names apart.
    """
    asked = {*(options.chunks or {})}
    if isinstance(options.shards, Mapping):
        asked |= {*options.shards}
    known = dims_of(group.all_arrays().values()) if asked else set()
    if not asked <= known:
        raise InvalidRequestError(
            f"no array has a dimension {', '.join(sorted(asked - known))}; there are"
            f" {', '.join(sorted(known))}"
        )
    from gridref.serve.object_reader import ObjectReader
    from gridref.serve.objects import KeySpace

    reader = reader_for(storage_options)
    shown = with_conventions(with_shown_names(group, IN_ZARR), reader.read)
    return KeySpace(shown, options), ObjectReader(reader)
