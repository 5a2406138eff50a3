"""Many small parts become one, so that opening a catalog does not grow with its commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gridref.catalog.arrays import ParquetBlocks
from gridref.catalog.entries import ArrayEntry, GroupEntry, Interned, PartEntry
from gridref.catalog.part_writer import write_part
from gridref.catalog.segments import Layout, Segment
from gridref.catalog.snapshot import Snapshot
from gridref.catalog.storage import TablePlace
from gridref.model.array import VirtualArray
from gridref.model.grid import ChunkGrid, GridAxis

__all__ = ["compacted", "parts_to_merge"]

MERGED_PARTS = 16
"""So many small parts become one."""


def parts_to_merge(parts: Sequence[PartEntry]) -> frozenset[int]:
    """Numbers of the last parts that are to become one; none most of the time.

    Older ones are taken along where they are not much larger than what is merged, so that of n
    commits there are about ``16 log n`` parts, and each row is written again ``log n`` times.
    """
    if len(parts) < MERGED_PARTS or len(parts) % MERGED_PARTS:
        return frozenset()
    rows = [part.chunks.n_rows + part.blocks.n_rows for part in parts]
    first = len(parts) - MERGED_PARTS + 1
    while first and rows[first - 1] <= 2 * sum(rows[first:]):
        first -= 1
    return frozenset(range(first, len(parts)))


def compacted(
    snapshot: Snapshot, arrays: Mapping[str, VirtualArray], folder: TablePlace, name: str
) -> Snapshot:
    """The same content, with some parts written as one under the name of a commit."""
    merged = parts_to_merge(snapshot.parts)
    entries = snapshot.root.all_arrays()
    boxes: dict[str, Segment] = {}
    for path, entry in entries.items() if merged else ():
        box = _box(snapshot.shared.layouts[entry.layout], merged, len(snapshot.parts))
        if box is not None:
            boxes[path] = box
    if not boxes:
        return snapshot
    new = {path: _in_box(arrays[path], box) for path, box in boxes.items()}
    urls, prefixes = snapshot.source_urls, snapshot.prefixes
    part = write_part(folder, name, new, urls, prefixes, keep_statistics=True)
    shared = Interned(snapshot.shared.axes, snapshot.shared.encodings)
    moved: dict[str, ArrayEntry] = {}
    for path, entry in entries.items():
        layout = snapshot.shared.layouts[entry.layout]
        if path in boxes:
            others = tuple(each for each in layout if each.part not in merged)
            layout = (*others, boxes[path])
        moved[path] = replace(entry, layout=shared.layout(layout))
    return replace(
        snapshot,
        root=_with_entries(snapshot.root, moved, ""),
        shared=shared,
        parts=(*snapshot.parts, part.entry),
        prefixes=part.prefixes,
    )


def _box(layout: Layout, merged: frozenset[int], part: int) -> Segment | None:
    """The box that the segments in some parts fill together, as one of a new part."""
    mine = [segment for segment in layout if segment.part in merged]
    if not mine:
        return None
    starts = np.array([segment.start for segment in mine], np.int64)
    stops = starts + np.array([segment.shape for segment in mine], np.int64)
    low, shape = starts.min(axis=0), stops.max(axis=0) - starts.min(axis=0)
    if int(shape.prod()) != sum(segment.n_blocks for segment in mine):
        return None
    zeros = (0,) * len(low)
    return Segment(part, zeros, tuple(low.tolist()), tuple(shape.tolist()))


def _in_box(array: VirtualArray, box: Segment) -> VirtualArray:
    """The blocks of an array in a box, as an array of their own."""
    held = array.block_source
    assert isinstance(held, ParquetBlocks)  # an array of a catalog, as it was opened
    axes = [
        GridAxis.from_edges(axis.edges()[blocks])
        for axis, blocks in zip(array.grid.axes, box.box, strict=True)
    ]
    return array.replace(grid=ChunkGrid(tuple(axes)), blocks=held.within(box))


def _with_entries(group: GroupEntry, entries: Mapping[str, ArrayEntry], prefix: str) -> GroupEntry:
    groups = {
        name: _with_entries(below, entries, f"{prefix}{name}/")
        for name, below in group.groups.items()
    }
    arrays = {name: entries[f"{prefix}{name}"] for name in group.arrays}
    return replace(group, groups=groups, arrays=arrays)
