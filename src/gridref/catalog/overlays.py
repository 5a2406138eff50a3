"""Overlays of a catalog: how commits change their coverage, and their arrays for reading.

A commit knows which rows it keeps. Elements whose block is the same row of the same table are the
same elements, so an overlay goes on answering for them, at their new places. All others are read
from the files until `rechunk` writes them. Readers never have to ask whether an overlay is fresh.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from gridref.catalog.document import Snapshot
from gridref.catalog.entries import ArrayEntry, Layout, Segment
from gridref.catalog.overlay_entries import OverlayEntry, SheetEntry
from gridref.catalog.parts import Part
from gridref.catalog.sheet_entries import Covering
from gridref.catalog.sources import resolved_url
from gridref.catalog.tables import open_at_once
from gridref.errors import InvalidRequestError, Message, Option
from gridref.io import is_local
from gridref.model.array import Overlay, VirtualArray
from gridref.model.grid import ChunkGrid
from gridref.model.manifest import ChunkManifest
from gridref.model.overlay import Cover, Stored, merged, moved
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
    """The chunks of an array of a sheet: a `Manifest` whose rows are read on demand.

    Attributes
    ----------
    part
        The tables of the sheet.
    n_rows
        Number of chunks.
    has_objects
        Whether any chunk is in a shard, and not in the table.
    level
        What the tables call the array, if it is one of several; None if all rows are its own.
    """

    part: Part
    n_rows: int
    has_objects: bool = True
    level: str | None = None
    has_filter_masks: bool = False

    def take(self, rows: NDArray[np.int64]) -> ChunkManifest:
        """The given rows, in the given order, in memory."""
        wanted = np.asarray(rows, np.int64)
        if wanted.size == 0:
            return ChunkManifest.missing(0)
        if self.level is not None:
            held = self.part.rows(self.level)
            if held.n_chunks != self.n_rows:
                raise self.part.blocks.corrupt(f"{held.n_chunks} rows of {self.n_rows} chunks")
            wanted = wanted + held.first_chunk
        elif self.has_objects:
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
        checks = self.policy == "check" or not files.is_far
        sheets = tuple(self._sheet(each, array) for each in overlay.sheets)
        is_forced = isinstance(self.policy, int)
        return Overlay(overlay.id, sheets, overlay.served, stored, files, checks, is_forced)

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
