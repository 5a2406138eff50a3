"""Open catalogs, files and groups in memory for reading.

`open_group` and `open_space` turn an address into a group and into its Zarr keys. `readable` gives
the arrays of a group access to their sources.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from numpy.typing import NDArray

from gridref.catalog import Trust, open_catalog
from gridref.errors import CatalogError, GroupNotFoundError, InvalidRequestError, Place
from gridref.io import Allow, SourcePool
from gridref.model.array import LazyArrays, VirtualArray, VirtualGroup
from gridref.model.indexing import isel
from gridref.options import near_names
from gridref.serve.conventions import with_conventions
from gridref.serve.names import IN_ZARR, with_shown_names
from gridref.serve.object_reader import ObjectReader
from gridref.serve.objects import KeySpace
from gridref.serve.reader import Reader
from gridref.serve.views import View, ViewOptions

# Groups, views and keys behind an address

CACHE_BYTES = 256 * 2**20
"""Size of the cache of decoded chunks that the requests to one store share."""

StorageOptions = Mapping[str, Any]


def open_group(
    catalog: str | os.PathLike[str] | VirtualGroup,
    storage_options: StorageOptions | None = None,
    allow: Allow | Trust = None,
    snapshot: str | None = None,
    *,
    digest: str | None = None,
) -> VirtualGroup:
    """The group behind a catalog's address; a group is handed through.

    Parameters
    ----------
    catalog, storage_options, allow, snapshot
        As for `gridref.open_store`.
    digest
        What the catalog's digest has to be; None takes any. Pickles say it, and the snapshot: what
        they were made of is not to be taken for what a rebuilt catalog holds.

    Raises
    ------
    CatalogError
        If there is no usable catalog, or one of another digest.
    InvalidRequestError
        If there is no such snapshot; if something is allowed to a group that was opened before, or
        a snapshot of it asked for.
    """
    if isinstance(catalog, VirtualGroup):
        for name, given in (("allow", allow), ("snapshot", snapshot)):
            if given is not None:
                raise InvalidRequestError(
                    f"{name}= is for the address of a catalog: this one was opened already, with"
                    " its own"
                )
        return catalog
    address = os.fspath(catalog)
    try:
        group = open_catalog(address, storage_options, allow, snapshot)
    except InvalidRequestError:
        if digest is None:
            raise
        group = open_catalog(address, storage_options, allow)  # built anew, of the same perhaps
    if digest not in (None, group.info.digest):
        raise CatalogError(
            "the catalog was built anew since what refers to it was pickled: open it again",
            Place(source=group.info.url),
        )
    return group


def group_path(group: str | None) -> str:
    """The path of a group as `VirtualGroup.walk` has it: ``""`` is the root.

    Raises
    ------
    InvalidRequestError
        If it is no text.
    """
    if not isinstance(group, str | None):
        raise InvalidRequestError(f"group must be a string or None, got {group!r}")
    return (group or "").strip("/")


def subgroup(root: VirtualGroup, group: str | None) -> VirtualGroup:
    """The group at a path below another one.

    Raises
    ------
    GroupNotFoundError
        If there is none.
    """
    groups = dict(root.walk())
    virtual_group = groups.get(group_path(group))
    if virtual_group is None:
        known = sorted(filter(None, groups))
        near = near_names(group_path(group), known) if known else ": there are none"
        raise GroupNotFoundError(f"no group {group!r}{near}")
    return virtual_group


def reader_for(
    storage_options: StorageOptions | None = None, *, cache_bytes: int = CACHE_BYTES
) -> Reader:
    """A reader of source files."""
    return Reader(SourcePool(storage_options), cache_bytes=cache_bytes)


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
    known = {dim for array in group.all_arrays().values() for dim in array.dims} if asked else set()
    if not asked <= known:
        raise InvalidRequestError(
            f"no array has a dimension {', '.join(sorted(asked - known))}; there are"
            f" {', '.join(sorted(known))}"
        )
    shown = with_conventions(with_shown_names(group, IN_ZARR))
    return KeySpace(shown, options), ObjectReader(reader_for(storage_options))


# Arrays that can be read, as `gridref.scan` and `open_catalog` return them


@dataclass(frozen=True)
class Sources:
    """The sources that arrays were opened with: equal if their options are.

    Attributes
    ----------
    storage_options
        Options of fsspec's filesystems.
    """

    storage_options: Mapping[str, Any] | None = field(default=None, hash=False, repr=False)

    @cached_property
    def reader(self) -> Reader:
        """The reader of these sources; made when the first values are asked for."""
        return reader_for(self.storage_options)


@dataclass(frozen=True)
class SourceAccess:
    """How one array is read.

    Attributes
    ----------
    sources
        Shared by all arrays that were opened together.
    name
        Path of the array, for messages.
    """

    sources: Sources
    name: str | None = None

    def read(self, array: VirtualArray, selection: Any = None) -> NDArray[Any]:
        """The values of a selection."""
        return self.sources.reader.read(array, selection, name=self.name)

    def isel(self, array: VirtualArray, selection: Mapping[str, Any]) -> VirtualArray:
        """The array of a selection by dimension name."""
        return isel(array, selection)


def readable[G: VirtualGroup](group: G, sources: Sources, path: str = "") -> G:
    """The group with arrays that can be read, at any depth; lazy arrays stay lazy."""
    prefix = f"{path}/" if path else ""
    groups = {
        name: readable(below, sources, f"{prefix}{name}") for name, below in group.groups.items()
    }
    arrays = LazyArrays(group.arrays, partial(_with_access, group.arrays, sources, prefix))
    return replace(group, arrays=arrays, groups=groups)


def _with_access(
    arrays: Mapping[str, VirtualArray], sources: Sources, prefix: str, name: str
) -> VirtualArray:
    return arrays[name].with_changes(access=SourceAccess(sources, f"{prefix}{name}"))
