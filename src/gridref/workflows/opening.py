"""From a catalog's address, or a group in memory, to something that answers for keys."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from gridref.catalog import open_catalog
from gridref.errors import InvalidRequestError
from gridref.io import SourcePool
from gridref.model.array import VirtualGroup
from gridref.model.shard import IndexLocation
from gridref.serve.objects import KeySpace, ObjectReader
from gridref.serve.reader import Reader
from gridref.serve.views import View, ViewOptions

__all__ = [
    "CACHE_BYTES",
    "open_group",
    "open_space",
    "reader_for",
    "rectilinear_enabled",
    "view_options",
]

CACHE_BYTES = 256 * 2**20
"""Size of the cache of decoded chunks that the requests to one store share."""

StorageOptions = Mapping[str, Any]


def open_group(
    source: str | os.PathLike[str] | VirtualGroup, storage_options: StorageOptions | None = None
) -> VirtualGroup:
    """The group behind a catalog's address; a group is handed through."""
    if isinstance(source, VirtualGroup):
        return source
    return open_catalog(os.fspath(source), storage_options)


def reader_for(
    storage_options: StorageOptions | None = None, *, cache_bytes: int = CACHE_BYTES
) -> Reader:
    """A reader of source files."""
    return Reader(SourcePool(storage_options), cache_bytes=cache_bytes)


def rectilinear_enabled() -> bool:
    """Whether this process' zarr-python reads rectilinear chunk grids."""
    zarr = sys.modules.get("zarr")
    return bool(zarr is not None and zarr.config.get("array.rectilinear_chunks", False))


def view_options(
    view: str | View = View.AUTO,
    *,
    rectilinear: bool | None = None,
    chunks: Mapping[str, int] | None = None,
    compressor: str | None = None,
    shards: str | Mapping[str, int] | None = None,
    grid: str = "auto",
    index_location: str = "end",
) -> ViewOptions:
    """Options of a view, as users write them.

    `grid` is ``"regular"``, ``"rectilinear"`` (uneven chunk grids may be shown) or ``"auto"``,
    which follows `rectilinear`; and that, if None, what zarr-python's
    ``array.rectilinear_chunks`` is now.

    Raises
    ------
    InvalidRequestError
        For an unknown view, compressor, grid, kind of shards or place of their index.
    """
    if grid not in ("auto", "regular", "rectilinear"):
        raise InvalidRequestError(f"grid must be auto, regular or rectilinear, got {grid!r}")
    if index_location not in ("start", "end"):
        raise InvalidRequestError(f"index_location must be start or end, got {index_location!r}")
    try:
        chosen = View(view)
    except ValueError:
        names = ", ".join(member.value for member in View)
        raise InvalidRequestError(f"view must be one of {names}, got {view!r}") from None
    if grid != "auto":
        rectilinear = grid == "rectilinear"
    if rectilinear is None:
        rectilinear = rectilinear_enabled()
    return ViewOptions(
        chosen, rectilinear, chunks, compressor, shards, IndexLocation(index_location)
    )


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
