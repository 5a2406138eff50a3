"""Open a catalog: read ``gridref.json`` only. Rows are read when they are first needed.

Output is a group whose arrays have lazy manifests (`ParquetManifest`) and blocks (`ParquetBlocks`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from threading import Lock
from typing import Any, Literal

import numpy as np

from gridref.catalog.document import (
    ROOT_FILE,
    CatalogReport,
    Pending,
    Root,
    Snapshot,
    is_pending,
    is_replaced,
    read_root,
)
from gridref.catalog.entries import (
    ArrayEntry,
    GroupEntry,
    Layout,
    PartEntry,
    Segment,
    whole,
)
from gridref.catalog.folder import Folder, open_folder
from gridref.catalog.group import CatalogGroup, CatalogInfo
from gridref.catalog.overlays import OverlayOpener, OverlayPolicy, OverviewOpener, check_policy
from gridref.catalog.parts import LOST_ROW, ParquetManifest, Part, open_part
from gridref.catalog.sheet_entries import Sheet, SheetEntry
from gridref.catalog.sources import SourceRules, Trust, resolved_url
from gridref.catalog.tables import open_at_once
from gridref.catalog.values import attributes_from_json, refusing_damage
from gridref.errors import (
    BlockPendingError,
    CatalogCorruptError,
    Message,
    Option,
    Place,
)
from gridref.forks import new_lock
from gridref.io import Allow, absolute_url, catalog_options, is_local
from gridref.model.array import LazyArrays, VirtualArray, VirtualGroup, path_in
from gridref.model.blocks import MISSING_BLOCK, BlockTable
from gridref.model.manifest import ChunkManifest, Identity, Source
from gridref.model.scan_report import ScanReport
from gridref.model.source_policy import SourcePolicy
from gridref.options import check_choice
from gridref.pickling import Picklable
from gridref.secrets import shown_address

# Blocks that are read from parts when first needed

_LOST_EXTENT = 2**40
"""Extent of their stored arrays."""


class ParquetBlocks:
    """The blocks of one array of a catalog, read when they are first asked for.

    A `gridref.model.array.BlockSource`. Thread-safe; a pickle holds no rows.

    Parameters
    ----------
    parts
        The parts that hold any of them, in the order of the array's manifests.
    layout
        Where they are in these parts, which its numbers count into.
    grid_shape
        Number of blocks along each dimension.
    n_encodings
        Number of its encodings, which rows count into.
    loading
        Held while blocks are read; the arrays of a catalog share one, as there can be many.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        layout: Layout,
        path: str,
        grid_shape: tuple[int, ...],
        n_encodings: int,
        loading: Lock | None = None,
    ) -> None:
        self._parts = parts
        self._layout = layout
        self._path = path
        self._grid_shape = grid_shape
        self._n_encodings = n_encodings
        self._loading = loading or new_lock()
        self._loaded: BlockTable | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        own = (self._parts, self._layout, self._path, self._grid_shape, self._n_encodings)
        return ParquetBlocks, own

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return math.prod(self._grid_shape)

    def within(self, box: Segment) -> ParquetBlocks:
        """The blocks in a box of them; tables of others are not read."""
        zeros = (0,) * len(box.shape)
        layout = replace(box, first=box.start, start=zeros).through(self._layout)
        return ParquetBlocks(self._parts, layout, self._path, box.shape, self._n_encodings)

    def load(self) -> BlockTable:
        """The blocks in memory.

        Raises
        ------
        CatalogCorruptError
            If the table is damaged.
        """
        if self._loaded is None:
            with self._loading:
                if self._loaded is None:
                    with refusing_damage("the layout of an array", Place(variable=self._path)):
                        self._loaded = self._read()
        return self._loaded

    def _read(self) -> BlockTable:
        """All blocks; those of a part whose table is lost or damaged raise when they are read."""
        whole_part = self._layout == whole(0, self._grid_shape) != ()
        with suppress(CatalogCorruptError):
            if whole_part and self._parts[0].rows(self._path).grid_shape == self._grid_shape:
                return self._parts[0].block_rows(self._path, self._n_encodings)
        missing = BlockTable.missing(self.n_blocks, len(self._grid_shape))
        table = BlockTable(*(column.copy() for column in vars(missing).values()))
        used = [self._parts[number] for number in {segment.part for segment in self._layout}]
        open_at_once(part.blocks for part in used)
        read: dict[int, _Rows] = {}
        for segment in self._layout:
            if segment.part not in read:
                read[segment.part] = self._rows(self._parts[segment.part])
            self._copy(segment, read[segment.part], table)
        return table

    def _rows(self, part: Part) -> _Rows:
        try:
            return part.rows(self._path).grid_shape, part.block_rows(self._path, self._n_encodings)
        except CatalogCorruptError:
            return None

    def _copy(self, segment: Segment, rows: _Rows, table: BlockTable) -> None:
        """Put the blocks of a segment in their places."""
        if rows is None:
            rows = segment.shape, self._lost(segment.n_blocks)
            segment = replace(segment, first=(0,) * len(segment.shape))
        shape, source = rows
        segment.check_inside(shape, self._grid_shape)
        taken, box = segment.source_box, segment.box
        for name, column in vars(source).items():
            rest = column.shape[1:]
            boxed = column.reshape(*shape, *rest)[taken]
            getattr(table, name).reshape(*self._grid_shape, *rest)[box] = boxed
        table.manifest.reshape(self._grid_shape)[box] = segment.part

    def _lost(self, n_blocks: int) -> BlockTable:
        """Blocks whose contents are unknown. An array without encodings has none.

        They seem to be one large chunk each, whose row cannot be had.
        """
        lost = BlockTable.missing(n_blocks, len(self._grid_shape))
        if not self._n_encodings:
            return lost
        return replace(
            lost,
            encoding=np.zeros_like(lost.encoding),
            first_row=np.full_like(lost.first_row, LOST_ROW),
            stored_shape=np.full_like(lost.stored_shape, _LOST_EXTENT),
            step=np.ones_like(lost.step),
        )


type _Rows = tuple[tuple[int, ...], BlockTable] | None
"""Blocks of a part with the shape of their grid; None where they are lost."""


# Declared elements without a file: read as the fill value, unless that is to be an error


def refusing_pending(array: VirtualArray, path: str, pending: Pending) -> VirtualArray:
    """The array with blocks whose reading is an error in place of those that are pending."""
    if not array.encodings or not set(array.dims) & pending.keys():
        return array
    number = len(array.manifests)
    blocks = _Refusing(array, pending, number)
    manifests = (*array.manifests, _pending_rows(array, path))
    return array.with_changes(manifests=manifests, blocks=blocks)


@dataclass(frozen=True, eq=False)
class _Refusing(Picklable):
    """Blocks of an array, those that are pending of a manifest that cannot be had."""

    array: VirtualArray
    pending: Pending
    number: int

    @property
    def n_blocks(self) -> int:
        return self.array.n_blocks

    def load(self) -> BlockTable:
        """The blocks in memory."""
        return self._loaded

    @cached_property
    def _loaded(self) -> BlockTable:
        blocks = self.array.blocks
        grid = self.array.grid
        starts = [axis.starts(np.arange(axis.n_chunks)) for axis in grid.axes]
        first = np.stack(np.meshgrid(*starts, indexing="ij"), axis=-1).reshape(-1, grid.ndim)
        absent = blocks.encoding == MISSING_BLOCK
        rows = np.flatnonzero(absent & is_pending(self.array.dims, first, self.pending))
        shapes = self.array.block_shapes()[rows]
        columns = {name: column.copy() for name, column in vars(blocks).items()}
        columns["encoding"][rows] = 0
        columns["manifest"][rows] = self.number
        columns["first_row"][rows] = 0
        columns["row_stride"][rows] = 0
        columns["stored_shape"][rows] = shapes
        columns["origin"][rows] = 0
        columns["step"][rows] = 1
        return BlockTable(**columns)


@dataclass(frozen=True)
class _NotThere(SourcePolicy):
    """What refuses to open the file of what is still to come."""

    def require(self, address: str) -> None:
        """Raises BlockPendingError."""
        raise BlockPendingError(
            Message(
                f"these elements of {self.named_by} were declared ahead, and no file with them "
                "has been added yet. Append the file, or open the catalog with ",
                Option("pending", "fill"),
                " to read the fill value",
            )
        )


def _pending_rows(array: VirtualArray, path: str) -> ChunkManifest:
    """A reference that can be listed and planned with, but not read."""
    encoding = array.encodings[0]
    n_bytes = math.prod(encoding.chunk_shape) * max(1, encoding.dtype.itemsize)
    source = Source(f"/{path} (pending)", policy=_NotThere(repr(path)))
    return ChunkManifest.from_columns([source], offset=[0], length=[n_bytes])


# Opening: from the root file to a group

type PendingPolicy = Literal["fill", "raise"]
"""What to do when elements are read that were declared, and that no file holds yet."""


def open_catalog(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow | Trust = None,
    snapshot: str | None = None,
    *,
    identity: Identity | None = None,
    prefixes: Mapping[str, str] | None = None,
    pending: PendingPolicy = "fill",
    overlay: OverlayPolicy = "auto",
) -> CatalogGroup:
    """Open a catalog, whose arrays cannot be read yet: see `gridref.open_catalog`."""
    check_choice("pending", pending, ("fill", "raise"))
    check_policy(overlay)
    storage_options = catalog_options(storage_options)
    address = absolute_url(url).removesuffix(f"/{ROOT_FILE}")
    folder = open_folder(address, storage_options)
    root = read_root(folder, snapshot)
    rules = SourceRules.of(identity or root.snapshot.identity, prefixes)
    trust = Trust.of(folder.url, allow, rules.folders)
    group = group_of(root, folder, storage_options, trust, rules, pending=pending, overlay=overlay)
    if overlay == "none" or (pending == "raise" and root.snapshot.pending):
        return group
    return group.levels.added(group)


def group_of(
    root: Root,
    folder: Folder,
    storage_options: Mapping[str, Any] | None,
    trust: Trust,
    rules: SourceRules | None = None,
    *,
    known: Sequence[Part] = (),
    held: Mapping[str, bytes] | None = None,
    pending: PendingPolicy = "fill",
    overlay: OverlayPolicy = "auto",
) -> CatalogGroup:
    """The group that a snapshot of a catalog holds.

    Parts that are `known` are used again, and tables that are `held` in memory are not read.
    """
    snapshot = root.snapshot
    rules = rules or SourceRules(snapshot.identity)
    if snapshot.prefixes:
        rules.check_used(resolved_url(prefix, folder.url) for prefix in snapshot.prefixes)
    is_open = {part.blocks.address: part for part in known}
    gone = partial(is_replaced, folder.url, storage_options, snapshot.id)

    def opened(entry: PartEntry) -> Part:
        part = is_open.get(folder.address(entry.blocks.file))
        if part is not None and part.fits(entry, snapshot.prefixes):
            return part
        return open_part(
            folder, entry, snapshot.prefixes, storage_options, trust, rules, gone, held
        )

    parts = tuple(map(opened, snapshot.parts))

    def opened_sheet(sheet: Sheet, entry: PartEntry) -> Part:
        # Its chunks have checksums. A copy of a local one may have another time of change.
        is_near = all(is_local(resolved_url(each, folder.url)) for each in sheet.prefixes)
        own = replace(rules, identity="size" if is_near else "strict")
        copies = {**(sheet.held if isinstance(sheet, SheetEntry) else {}), **(held or {})}
        return open_part(folder, entry, sheet.prefixes, storage_options, trust, own, gone, copies)

    sheets = {
        sheet.name: opened_sheet(sheet, sheet.part)
        for each in snapshot.overlays
        for sheet in each.sheets
        if sheet.part is not None
    }
    made = {
        (each.id, sheet.name): opened_sheet(sheet, sheet.part)
        for each in snapshot.overviews
        for sheet in each.sheets
        if sheet.part is not None
    }
    opener = OverlayOpener(snapshot, folder.url, sheets, overlay)
    contents = _Contents(snapshot, parts, folder.address(ROOT_FILE), pending == "raise", opener)
    group = _group(snapshot.root, contents, "")
    return CatalogGroup(
        arrays=group.arrays,
        groups=group.groups,
        attrs=group.attrs,
        unlimited_dims=group.unlimited_dims,
        report=CatalogReport.of(ScanReport(), snapshot.drifts),
        info=_info(root, folder.url),
        snapshot=snapshot,
        parts=parts,
        opener=opener,
        levels=OverviewOpener(snapshot, made),
        _trust=trust,
    )


def _info(root: Root, url: str) -> CatalogInfo:
    snapshot = root.snapshot
    tables = [part.tables for part in snapshot.parts]
    entries = snapshot.root.all_arrays().values()
    with refusing_damage("the description of an array", Place(source=url)):
        n_blocks = sum(math.prod(snapshot.grid_shape(entry)) for entry in entries)
        checked = [
            all(snapshot.parts[segment.part].checksums is not None for segment in layout)
            for layout in snapshot.shared.layouts
        ]
        n_checksums = sum(entry.counts.n_chunks for entry in entries if checked[entry.layout])
    return CatalogInfo(
        url=shown_address(url),
        digest=root.snapshot.digest,
        format_version=root.format_version,
        created_by=root.created_by,
        n_sources=sum(part.sources.n_rows - len(part.unused) for part in snapshot.parts),
        n_blocks=n_blocks,
        n_chunks=sum(entry.counts.n_chunks for entry in entries),
        table_bytes=sum(table.n_bytes for part in tables for table in part),
        extra=root.snapshot.extra,
        snapshot=root.snapshot.id,
        tags=root.tags,
        n_checksums=n_checksums,
    )


@dataclass(frozen=True, eq=False)
class _Contents:
    """What the arrays of a catalog share."""

    snapshot: Snapshot
    parts: tuple[Part, ...]
    address: str
    refuses_pending: bool
    overlays: OverlayOpener
    loading: Lock = field(default_factory=new_lock)
    _layouts: dict[int, tuple[tuple[Part, ...], Layout]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        own = (self.snapshot, self.parts, self.address, self.refuses_pending, self.overlays)
        return _Contents, own

    def layout(self, number: int) -> tuple[tuple[Part, ...], Layout]:
        """The parts that a layout uses, and the layout counting into these."""
        if number not in self._layouts:
            layout = self.snapshot.shared.layouts[number]
            used = {part: i for i, part in enumerate(dict.fromkeys(s.part for s in layout))}
            own = tuple(replace(segment, part=used[segment.part]) for segment in layout)
            self._layouts[number] = tuple(self.parts[part] for part in used), own
        return self._layouts[number]


def _group(entry: GroupEntry, contents: _Contents, path: str) -> VirtualGroup:
    groups = {
        name: _group(child, contents, path_in(path, name)) for name, child in entry.groups.items()
    }
    place = Place(source=contents.address, variable=path or "/")
    with refusing_damage("the attributes of a group", place):
        attrs = attributes_from_json(entry.attrs)
    arrays = LazyArrays(entry.arrays, partial(_array, entry.arrays, contents, path))
    return VirtualGroup(arrays, groups, attrs, unlimited_dims=entry.unlimited_dims)


def _array(
    entries: Mapping[str, ArrayEntry], contents: _Contents, group: str, name: str
) -> VirtualArray:
    entry, path = entries[name], path_in(group, name)
    place = Place(source=contents.address, variable=path)
    with refusing_damage("the description of an array", place):
        described = entry.described(contents.snapshot.shared)
        parts, layout = contents.layout(entry.layout)
        grid_shape = described["grid"].grid_shape
        n_encodings = len(described["encodings"])
        if any(len(segment.shape) != len(grid_shape) for segment in layout):
            raise ValueError(f"the layout of another rank than {len(grid_shape)}")
        blocks = ParquetBlocks(parts, layout, path, grid_shape, n_encodings, contents.loading)
        masks = entry.counts.has_filter_masks
        manifests = tuple(ParquetManifest(part, path, masks) for part in parts)
        array = VirtualArray(**described, manifests=manifests, block_source=blocks)
        if contents.refuses_pending:
            array = refusing_pending(array, path, contents.snapshot.pending)
        return contents.overlays.of(path, array)
