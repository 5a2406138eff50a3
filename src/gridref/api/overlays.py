"""List overlays and overviews of a catalog, drop an overlay, and estimate the cost of reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gridref.catalog.commit import Base
from gridref.catalog.document import Root
from gridref.catalog.group import CatalogGroup
from gridref.catalog.listing import referenced_chunks
from gridref.catalog.overlays import is_current, stored_in_files
from gridref.catalog.sheet_entries import INSIDE, OverlayEntry, OverviewEntry, Where
from gridref.catalog.sources import resolved_url
from gridref.catalog.written_overlays import dropped
from gridref.errors import InvalidRequestError, number_of
from gridref.model.array import VirtualArray
from gridref.model.manifest import ChunkState
from gridref.model.overlay import Coords
from gridref.model.projection import Progression, normalize_selection
from gridref.options import check_names
from gridref.secrets import shown_address
from gridref.serve.choosing import choose, estimates

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class OverlayInfo:
    """An overlay of an array.

    Attributes
    ----------
    number
        Its number among the overlays of the array.
    id, array
        Its name, and the path of the array.
    chunks
        Chunk lengths along each dimension; -1 for all of it.
    where
        First and last label along each dimension that it covers in part.
    covered
        Which part of the elements of the array it answers for, from 0 to 1.
    n_objects, n_bytes
        Number of its shards, and stored size of its chunks.
    n_sheets
        Number of sheets: each call that wrote something has made one.
    is_unfinished
        Whether a sheet was begun and is not finished: the same call continues it.
    to
        Address of its folder.
    """

    number: int
    id: str
    array: str
    chunks: Coords
    where: Where
    covered: float
    n_objects: int
    n_bytes: int
    n_sheets: int
    is_unfinished: bool
    to: str

    @property
    def chunks_in_words(self) -> str:
        """Chunk lengths as commands and pages show them: ``all x 20 x 20``."""
        return " x ".join({-1: "all", 0: "any"}.get(n, str(n)) for n in self.chunks)

    @property
    def where_in_words(self) -> str:
        """Labels between which it lies: ``lat 40 to 60``; empty for all of the array."""
        return ", ".join(f"{dim} {low} to {high}" for dim, (low, high) in self.where.items())


def overlays_of(group: CatalogGroup) -> tuple[OverlayInfo, ...]:
    """The overlays of a catalog, by array."""
    found = []
    for path in dict.fromkeys(each.array for each in group.snapshot.overlays):
        for number, entry in enumerate(entries_of(group, path)):
            shape = group.snapshot.root.all_arrays()[path].document["shape"]
            n_covered = sum(cover.n_elements for cover in entry.served)
            found.append(
                OverlayInfo(
                    number,
                    entry.id,
                    path,
                    entry.chunks,
                    entry.where,
                    n_covered / max(1, math.prod(shape)),
                    *entry.written_size,
                    sum(sheet.part is not None for sheet in entry.sheets),
                    entry.is_unfinished,
                    shown_address(resolved_url(entry.to, group.info.url)),
                )
            )
    return tuple(found)


@dataclass(frozen=True)
class OverviewInfo:
    """The coarser levels of an array.

    Attributes
    ----------
    array
        Path of the array.
    method
        How elements are made of those of the array.
    factor, n_levels
        How much coarser each level is than the one before, and number of levels.
    is_shown
        Whether all elements that it is made of are the same. Else its levels are not there, and the
        call that wrote it writes what is missing.
    n_objects, n_bytes
        Number of its shards, and stored size of their chunks.
    is_unfinished
        Whether a sheet was begun and is not finished: the same call continues it.
    to
        Address of its folder.
    """

    array: str
    method: str
    factor: int
    n_levels: int
    is_shown: bool
    n_objects: int
    n_bytes: int
    is_unfinished: bool
    to: str

    @property
    def levels_in_words(self) -> str:
        """Its levels as commands and pages show them: ``mean, 4 levels by 2``."""
        levels = number_of(self.n_levels, "level")
        return f"{self.method}, {levels} by {self.factor}"


def overviews_of(group: CatalogGroup) -> tuple[OverviewInfo, ...]:
    """The overviews of the images of a catalog, in the order of their making."""
    if not group.snapshot.overviews:
        return ()
    known = group.from_files().all_arrays()
    found = []
    for entry in group.snapshot.overviews:
        array = known[entry.array]
        if array.ndim < 2:  # labels, which the levels of an image have
            continue
        found.append(
            OverviewInfo(
                entry.array,
                entry.method,
                max(entry.factors),
                entry.n_levels,
                is_current(entry, array),
                *entry.written_size,
                entry.is_unfinished,
                shown_address(resolved_url(entry.to, group.info.url)),
            )
        )
    return tuple(found)


def out_of_date(group: CatalogGroup) -> list[tuple[OverviewInfo, OverviewEntry]]:
    """The overviews of images in the catalog's folder whose levels are not shown."""
    own = {each.array: each for each in group.snapshot.overviews if each.to == INSIDE}
    every = [each for each in overviews_of(group) if not each.is_shown]
    return [(each, own[each.array]) for each in every if each.array in own]


def entries_of(group: CatalogGroup, path: str) -> list[OverlayEntry]:
    """The overlays of an array, by number."""
    return [each for each in group.snapshot.overlays if each.array == path]


def entry_of(group: CatalogGroup, path: str, which: int | str) -> OverlayEntry:
    """The overlay of an array with a number, or a name.

    Raises
    ------
    InvalidRequestError
        If there is none.
    """
    entries = entries_of(group, path)
    for number, entry in enumerate(entries):
        if which in (number, entry.id):
            return entry
    known = ", ".join(f"{number} ({each.id})" for number, each in enumerate(entries)) or "none"
    raise InvalidRequestError(f"{path} has no overlay {which!r}; there are {known}")


def drop(base: Base, array: str, which: int | str) -> Root:
    """The catalog without an overlay of an array."""
    path = array.strip("/")
    entry = entry_of(base.group, path, which)
    return dropped(base, [entry.id], f"{path}: {entry.id}")


# What reads cost

_COST_SCHEMA = pa.schema(
    [
        pa.field("layout", pa.string(), nullable=False),
        pa.field("n_chunks", pa.int64(), nullable=False),
        pa.field("n_requests", pa.int64(), nullable=False),
        pa.field("stored_bytes", pa.int64(), nullable=False),
        pa.field("decoded_bytes", pa.int64(), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("chosen", pa.bool_(), nullable=False),
    ]
)


def explained(group: CatalogGroup, path: str, selection: Mapping[str, Any]) -> pa.Table:
    """What a selection costs from the files, and with each overlay, and which is used."""
    check_names("the catalog", [path], group.all_arrays(), kind="array")
    array = group.all_arrays()[path]
    check_names("the array", selection, array.dims, kind="dimension")
    selections = [
        normalize_selection(selection.get(dim, slice(None)), extent, axis)
        for axis, (dim, extent) in enumerate(zip(array.dims, array.shape, strict=True))
    ]
    if not all(each.count if isinstance(each, Progression) else len(each) for each in selections):
        return _COST_SCHEMA.empty_table()
    choice = choose(array, selections)
    chosen = {None} if choice is None else {each.id for each in choice.overlays}
    number = {each.id: n for n, each in enumerate(entries_of(group, path))}
    files = stored_in_files(group.snapshot, group.info.url, path, array)
    rows = [
        {
            "layout": "files" if name is None else f"overlay {number[name]}",
            **vars(cost),
            "chosen": name in chosen,
        }
        for name, cost in estimates(array, files, selections)
    ]
    return pa.Table.from_pylist(rows, _COST_SCHEMA)


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
