"""Overlays and overviews of a catalog: how commits change their coverage, and arrays for reading.

A commit knows which rows it keeps. Elements whose block is the same row of the same table are the
same elements, so an overlay goes on answering for them, at their new places. All others are read
from the files until `rechunk` writes them. Readers never have to ask whether an overlay is fresh.

Levels of an overview are shown, in groups ``overview_1``, ..., only while they are whole: if any
element that one is made of changed, none of the overview's levels is there, until `overviews` has
written what is missing. They are no arrays of the snapshot: commits, exports and comparisons never
see them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.document import Snapshot
from gridref.catalog.entries import ArrayEntry, Layout, Segment
from gridref.catalog.parts import ParquetManifest, Part
from gridref.catalog.sheet_entries import Covering, OverlayEntry, OverviewEntry, SheetEntry
from gridref.catalog.sources import resolved_url
from gridref.catalog.tables import open_at_once
from gridref.catalog.values import attributes_from_json
from gridref.errors import InvalidRequestError, Message, Option
from gridref.io import is_local
from gridref.model.array import Overlay, VirtualArray, VirtualGroup, path_in
from gridref.model.conventions import MissingValues, grid_mapping_of, text_of
from gridref.model.grid import ChunkGrid
from gridref.model.indexing import isel
from gridref.model.joining import lay_out
from gridref.model.manifest import ChunkManifest
from gridref.model.ome_zarr import CONVENTION, with_coarser_levels
from gridref.model.overlay import Cover, Stored, group_of_level, level_shape, merged, moved
from gridref.model.pixels import Affine
from gridref.typing import Int64Array

# What a commit makes of the coverage. Pure

_MOST_MOVES = 4096
"""With more boxes that moved apart, an overlay is not followed any further."""


def carried(before: Snapshot, after: Snapshot, *, is_alike: bool) -> dict[str, Any]:
    """The overlays and overviews of a snapshot as the next one has them, as members of it.

    Parameters
    ----------
    before, after
        The snapshots.
    is_alike
        Whether all elements are as before, whatever tables they are in.
    """
    old, new = before.root.all_arrays(), after.root.all_arrays()
    moves: dict[str, tuple[Cover, ...]] = {}

    def kept[E: Covering[Any]](every: Iterable[E]) -> Iterator[E]:
        for each in every:
            path = each.array
            if path not in new or each.ndim != len(new[path].document["shape"]):
                continue
            if path not in moves:
                pair = _Described.of(before, old[path]), _Described.of(after, new[path])
                moves[path] = _moves(*pair, is_alike=is_alike)
            yield each.covering(moved(each.coverage, moves[path]))

    return {
        "overlays": tuple(kept(before.overlays)),
        "overviews": tuple(kept(before.overviews)),
    }


@dataclass(frozen=True, eq=False)
class _Described:
    """An array of a snapshot.

    Attributes
    ----------
    entry
        Its description.
    described
        What a `VirtualArray` is made of.
    segments
        By name of a table of blocks the segments in it.
    """

    entry: ArrayEntry
    described: Mapping[str, Any]
    segments: Mapping[str, Sequence[Segment]]

    @classmethod
    def of(cls, snapshot: Snapshot, entry: ArrayEntry) -> _Described:
        """The array of an entry."""
        segments: dict[str, list[Segment]] = {}
        layout: Layout = snapshot.shared.layouts[entry.layout]
        for segment in layout:
            segments.setdefault(snapshot.parts[segment.part].blocks.file, []).append(segment)
        return cls(entry, entry.described(snapshot.shared), segments)

    @property
    def grid(self) -> ChunkGrid:
        """Of its blocks."""
        grid: ChunkGrid = self.described["grid"]
        return grid


def _moves(old: _Described, new: _Described, *, is_alike: bool) -> tuple[Cover, ...]:
    """Boxes of elements of an array that are elements it had before: from `first` to `start`."""
    encodings = old.described["encodings"]
    decoded_alike = (
        old.entry.document["data_type"] == new.entry.document["data_type"]
        and old.entry.document["fill_value"] == new.entry.document["fill_value"]
        and new.described["encodings"][: len(encodings)] == encodings
        and old.grid.ndim == new.grid.ndim
    )
    if not decoded_alike or 0 in old.grid.shape or 0 in new.grid.shape:
        return ()
    if is_alike and old.grid == new.grid:
        zeros = (0,) * old.grid.ndim
        return (Cover(0, zeros, zeros, old.grid.shape),)
    edges = [[axis.edges() for axis in grid.axes] for grid in (old.grid, new.grid)]
    found: list[Cover] = []
    for file, segments in old.segments.items():
        for one, other in itertools.product(segments, new.segments.get(file, ())):
            found += _moves_of(one, other, *edges)
            if len(found) > _MOST_MOVES:
                return ()
    return merged(found)


def _moves_of(
    old: Segment, new: Segment, old_edges: Sequence[Int64Array], new_edges: Sequence[Int64Array]
) -> Iterator[Cover]:
    """Boxes of elements of blocks that are in both segments, and as long in both arrays."""
    runs: list[list[tuple[int, int, int]]] = []
    every = zip(old.first, old.start, new.first, new.start, old.shape, new.shape, strict=True)
    for axis, (first, start, new_first, new_start, n, new_n) in enumerate(every):
        low, high = max(first, new_first), min(first + n, new_first + new_n)
        if low >= high:
            return
        was, now = start + low - first, new_start + low - new_first
        runs.append(_equal_runs(old_edges[axis], was, new_edges[axis], now, high - low))
    for box in itertools.product(*runs):
        first, start, shape = zip(*box, strict=True)
        yield Cover(0, first, start, shape)


def _equal_runs(
    old: Int64Array, was: int, new: Int64Array, now: int, n: int
) -> list[tuple[int, int, int]]:
    """Runs of blocks of equal lengths: first element before and now, and number of elements."""
    lengths = old[was : was + n]
    equal = lengths == new[now : now + n]
    bounds = np.flatnonzero(np.diff(np.concatenate([[False], equal, [False]])))
    before, after = int(old[:was].sum()), int(new[:now].sum())
    old_starts = np.concatenate([[before], before + np.cumsum(lengths)])
    new_starts = np.concatenate([[after], after + np.cumsum(new[now : now + n])])
    return [
        (int(old_starts[low]), int(new_starts[low]), int(old_starts[high] - old_starts[low]))
        for low, high in bounds.reshape(-1, 2).tolist()
    ]


# Overlays for reading

type OverlayPolicy = Literal["auto", "none", "check"] | int
"""Which overlays reads may use: ``"auto"``: those that are faster; ``"check"``: the same, and ask
remote files whether they are unchanged; a number: this one wherever it covers anything."""


def check_policy(policy: OverlayPolicy) -> None:
    """Refuse what says nothing about overlays.

    Raises
    ------
    InvalidRequestError
        Saying what does.
    """
    is_number = type(policy) is int and policy >= 0
    if not is_number and policy not in ("auto", "none", "check"):
        raise InvalidRequestError(
            Message(Option("overlay", policy), ' must be "auto", "none", "check" or a number')
        )


def policy_of(text: str) -> OverlayPolicy:
    """Which overlays reads may use, as commands and addresses write it: a number, or a word.

    Raises
    ------
    InvalidRequestError
        If it is neither.
    """
    is_number = text.isdecimal() and len(text) < 10  # Python refuses numbers of 4,301 digits
    policy = int(text) if is_number else cast("OverlayPolicy", text)
    check_policy(policy)
    return policy


@dataclass(frozen=True, eq=False)
class SheetManifest:
    """All chunks of the tables of a sheet: a `Manifest` whose rows are read on demand.

    Attributes
    ----------
    n_rows
        Number of chunks.
    has_objects
        Whether any chunk is in a shard, and not in the table.
    """

    part: Part
    n_rows: int
    has_objects: bool = True
    has_filter_masks: bool = False

    def take(self, rows: NDArray[np.int64]) -> ChunkManifest:
        """The given rows, in the given order, in memory."""
        wanted = np.asarray(rows, np.int64)
        if wanted.size == 0:
            return ChunkManifest.missing(0)
        if self.has_objects:
            checksums = self.part.sources.checksums
            tables = [self.part.chunks.table, self.part.sources.table]
            open_at_once([*tables, *([] if checksums is None else [checksums.table])])
        return self.part.chunks.take(wanted)


@dataclass(frozen=True, eq=False)
class OverlayOpener:
    """Makes the overlays of arrays of a catalog.

    Attributes
    ----------
    snapshot
        The snapshot.
    folder_url
        Address of the catalog.
    parts
        The opened tables of each sheet, by its name.
    policy
        Which overlays reads may use.
    """

    snapshot: Snapshot
    folder_url: str
    parts: Mapping[str, Part]
    policy: OverlayPolicy = "auto"

    def of(self, path: str, array: VirtualArray) -> VirtualArray:
        """An array with its overlays, in place of those that it has."""
        mine = [each for each in self.snapshot.overlays if each.array == path]
        if isinstance(self.policy, int):
            mine = mine[self.policy : self.policy + 1]
        elif self.policy == "none":
            mine = []
        overlays = tuple(self._opened(each, array) for each in mine if each.served)
        return array.with_changes(overlays=overlays) if overlays or array.overlays else array

    def _opened(self, overlay: OverlayEntry, array: VirtualArray) -> Overlay:
        files = stored_in_files(self.snapshot, self.folder_url, overlay.array, array)
        largest = max(
            (each for each in overlay.sheets if each.part is not None),
            key=lambda sheet: sheet.stored_bytes,
        )
        stored = Stored(
            largest.chunks,
            tuple(map(min, largest.shards, largest.shape)),
            _mean(largest.stored_bytes, largest.grid.n_chunks),
            largest.n_objects > 0 and not is_local(resolved_url(overlay.to, self.folder_url)),
        )
        prefixes = (resolved_url(each, self.folder_url) for each in self.snapshot.prefixes)
        asks_servers = self.policy == "check"
        checks = asks_servers or any(map(is_local, prefixes))
        sheets = tuple(self._sheet(each, array) for each in overlay.sheets)
        is_forced = isinstance(self.policy, int)
        return Overlay(
            overlay.id, sheets, overlay.served, stored, files, checks, asks_servers, is_forced
        )

    def _sheet(self, sheet: SheetEntry, array: VirtualArray) -> VirtualArray:
        """A sheet as an array; one that is still being written has only missing chunks.

        No served box names such a sheet.
        """
        manifest: Any = ChunkManifest.missing(sheet.grid.n_chunks)
        if sheet.part is not None:
            part = self.parts[sheet.name]
            manifest = SheetManifest(part, sheet.grid.n_chunks, has_objects=sheet.n_objects > 0)
        return VirtualArray.of_one_block(
            sheet.shape,
            array.dtype,
            encoding=sheet.encoding,
            manifest=manifest,
            dims=array.dims,
            fill_value=array.fill_value,
        )


def stored_in_files(snapshot: Snapshot, folder_url: str, path: str, array: VirtualArray) -> Stored:
    """How the files of an array are stored, as far as a catalog says without its tables."""
    entry = snapshot.root.all_arrays()[path]
    blocks = tuple(max(1, -(-axis.extent // max(1, axis.n_chunks))) for axis in array.grid.axes)
    chunk_shape = array.encodings[0].chunk_shape if array.encodings else blocks
    prefixes = [resolved_url(prefix, folder_url) for prefix in snapshot.prefixes]
    return Stored(
        tuple(map(min, chunk_shape, blocks)),
        blocks,
        _mean(entry.counts.stored_bytes, entry.counts.n_chunks),
        not all(map(is_local, prefixes)),
    )


def _mean(stored_bytes: int, n_chunks: int) -> float:
    """The stored size of a chunk on average; that of nothing is a byte."""
    return max(1.0, stored_bytes / max(1, n_chunks))


# Coarser levels for reading

CELL_METHODS = {
    "mean": "mean",
    "min": "minimum",
    "max": "maximum",
    "mode": "mode",
    "nearest": "point",
}
"""What the CF conventions call a method (appendix E)."""
_RESAMPLING = {"mean": "average"}
"""What the convention "multiscales" calls a method, where that is another name."""


@dataclass(frozen=True, eq=False)
class OverviewOpener:
    """Adds the levels of arrays to the groups of a catalog.

    Attributes
    ----------
    snapshot
        The snapshot.
    parts
        The opened tables of each sheet, by its overview and name.
    """

    snapshot: Snapshot
    parts: Mapping[tuple[str, str], Part]

    def added[G: VirtualGroup](self, group: G, path: str = "") -> G:
        """A group of the catalog, and those below it, with the levels that are whole."""
        if not self.snapshot.overviews:
            return group
        groups = {
            name: self.added(below, path_in(path, name)) for name, below in group.groups.items()
        }
        mine = [each for each in self.snapshot.overviews if each.array.rpartition("/")[0] == path]
        current = {
            name: each
            for each in mine
            if (name := each.array.rpartition("/")[2]) in group.arrays
            and is_current(each, group.arrays[name])
        }
        images = {
            name: each for name, each in current.items() if not group.arrays[name].is_index(name)
        }
        for level in range(1, max((each.n_levels for each in images.values()), default=0) + 1):
            if group_of_level(level) not in groups:
                groups[group_of_level(level)] = self._group(group, images, current, level)
        attrs: Mapping[str, Any] = {**group.attrs, **_multiscales(group, images)}
        for entry in self.snapshot.overviews:
            attrs = _listed_in_ome(attrs, entry, groups, path)
        own: Any = replace(group, groups=groups, attrs=attrs)
        shown: G = own
        return shown

    def _group(
        self,
        group: VirtualGroup,
        images: Mapping[str, OverviewEntry],
        current: Mapping[str, OverviewEntry],
        level: int,
    ) -> VirtualGroup:
        """A level of all arrays of a group that have it, with labels and grid mapping."""
        arrays: dict[str, VirtualArray] = {}
        lengths: dict[str, int] = {}
        for name, entry in images.items():
            if level > entry.n_levels:
                continue
            base = group.arrays[name]
            array = self.level(entry, level, base)
            if any(lengths.setdefault(d, n) != n for d, n in zip(array.dims, array.shape)):  # noqa: B905
                continue
            arrays[name] = array
            for dim, shown, factor in zip(base.dims, array.dims, entry.factors, strict=True):
                labels = group.arrays.get(dim)
                if factor == 1 and labels is not None and labels.dims == (dim,):
                    arrays[dim] = labels
                label = current.get(dim)
                if label is not None and label.factors == (factor,) and level <= label.n_levels:
                    assert labels is not None
                    arrays[shown] = self.level(label, level, labels)
            mapping = grid_mapping_of(base.attrs)
            if mapping in group.arrays:
                windows = entry.windows(level)
                arrays[mapping] = _scaled(group.arrays[mapping], windows)
        return VirtualGroup(arrays)

    def level(self, entry: OverviewEntry, level: int, base: VirtualArray) -> VirtualArray:
        """A level of an array that has all of it."""
        windows = entry.windows(level)
        shape = level_shape(base.shape, windows)
        pieces, corners = [], []
        for cover in entry.level_covers(level, base.shape):
            sheet = entry.sheets[cover.sheet]
            stored = sheet.levels[level - 1]
            whole = VirtualArray.of_one_block(
                level_shape(sheet.shape, windows),
                stored.encoding.dtype,
                encoding=stored.encoding,
                manifest=ParquetManifest(
                    self.parts[entry.id, sheet.name], entry.paths[level - 1], has_filter_masks=False
                ),
                dims=base.dims,
                fill_value=level_fill(base, stored.encoding.dtype),
            )
            inside = {axis: slice(*along) for axis, along in enumerate(cover.sheet_box)}
            pieces.append(isel(whole, inside))
            corners.append(cover.start)
        dims = tuple(
            f"{dim}_{level}" if factor > 1 else dim
            for dim, factor in zip(base.dims, entry.factors, strict=True)
        )
        attrs = _attributes(base, entry, level, dims)
        array = pieces[0] if len(pieces) == 1 else lay_out(pieces, corners, shape)
        return array.with_changes(dims=dims, attrs=attrs)


def is_current(entry: OverviewEntry, array: VirtualArray) -> bool:
    """Whether an overview has all levels of an array as it is, by the same missing values."""
    return entry.is_whole(array.shape) and entry.missing == MissingValues.of(array).key


def level_fill(array: VirtualArray, dtype: np.dtype[Any]) -> Any:
    """What chunks of a level hold that are not stored."""
    return array.fill_value if array.dtype == dtype else dtype.type(0)


def without_overviews[G: VirtualGroup](group: G, snapshot: Snapshot) -> G:
    """A group of a catalog with the arrays of its snapshot only."""
    if not snapshot.overviews:
        return group
    return _only(group, snapshot.root)


def _only[G: VirtualGroup](group: G, entry: Any) -> G:
    groups = {name: _only(group.groups[name], below) for name, below in entry.groups.items()}
    attrs = attributes_from_json(entry.attrs)
    own: Any = replace(group, groups=groups, attrs=attrs)
    only: G = own
    return only


def _attributes(
    base: VirtualArray, entry: OverviewEntry, level: int, dims: tuple[str, ...]
) -> dict[str, Any]:
    """Those of the array, with what was done."""
    attrs = dict(base.attrs)
    for name in ("actual_range", "bounds", "coordinates", "DIMENSION_LABELS"):
        attrs.pop(name, None)
    if base.is_index(entry.array):
        return attrs
    coarse = [dim for dim, factor in zip(dims, entry.factors, strict=True) if factor > 1]
    method = "".join(f"{dim}: " for dim in coarse) + CELL_METHODS[entry.method]
    attrs["cell_methods"] = f"{text_of(attrs, 'cell_methods')} {method}".strip()
    sizes = "x".join(str(n) for n in entry.windows(level))
    attrs["gridref_overview"] = (
        f"{entry.method} of {sizes} elements of {entry.array}; equal weights, missing values"
        " left out, integers rounded half to even"
    )
    return attrs


def _scaled(mapping: VirtualArray, windows: tuple[int, ...]) -> VirtualArray:
    """A grid mapping whose pixels are so many times larger."""
    affine = Affine.of(mapping.attrs)
    if affine is None or len(windows) < 2:
        return mapping
    rows, columns = windows[-2:]
    return affine.scaled(columns, rows).stated_in(mapping)


def _listed_in_ome(
    attrs: Mapping[str, Any], entry: OverviewEntry, groups: Mapping[str, VirtualGroup], path: str
) -> Mapping[str, Any]:
    """Attributes of a group at a path, whose images of OME-Zarr have the levels that are shown."""
    head = f"{path}/" if path else ""
    if not entry.array.startswith(head):
        return attrs
    name, *levels = (each.removeprefix(head) for each in (entry.array, *entry.paths))
    below, _, inner = levels[0].partition("/")
    if below not in groups or inner not in groups[below]:
        return attrs
    windows = {level: entry.windows(number) for number, level in enumerate(levels, 1)}
    return with_coarser_levels(attrs, name, windows)


def _multiscales(group: VirtualGroup, images: Mapping[str, OverviewEntry]) -> dict[str, Any]:
    """What the convention "multiscales" says of levels; nothing if the group says it already."""
    if not images or "multiscales" in group.attrs:
        return {}
    layout: list[dict[str, Any]] = []
    for name, entry in images.items():
        layout.append({"asset": name})
        for level in range(1, entry.n_levels + 1):
            scale = [float(n) for n in entry.windows(level)]
            layout.append(
                {
                    "asset": f"{group_of_level(level)}/{name}",
                    "derived_from": name,
                    "transform": {"scale": scale, "translation": [0.0] * len(scale)},
                    "resampling_method": _RESAMPLING.get(entry.method, entry.method),
                }
            )
    known = group.attrs.get("zarr_conventions")
    conventions = [*(known if isinstance(known, list) else ()), CONVENTION]
    return {"multiscales": {"layout": layout}, "zarr_conventions": conventions}
