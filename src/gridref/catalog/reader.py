"""Opening a catalog: only ``gridref.json`` is read; rows follow when they are needed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Literal, override

from gridref.catalog.arrays import ParquetBlocks, ParquetManifest
from gridref.catalog.damage import refusing_damage
from gridref.catalog.document import ROOT_FILE, Root
from gridref.catalog.entries import ArrayEntry, GroupEntry, PartEntry
from gridref.catalog.former import root_at
from gridref.catalog.group import CatalogGroup, CatalogInfo
from gridref.catalog.parts import Part, open_part
from gridref.catalog.pending import refusing_pending
from gridref.catalog.relative import resolved_url
from gridref.catalog.segments import Layout
from gridref.catalog.snapshot import Snapshot
from gridref.catalog.source_rules import SourceRules
from gridref.catalog.storage import Folder, open_folder
from gridref.catalog.trust import Trust
from gridref.catalog.values import attributes_from_json
from gridref.errors import Place
from gridref.forks import new_lock
from gridref.io import Allow, absolute_url, catalog_options
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import Identity
from gridref.options import check_choice
from gridref.secrets import without_secrets

__all__ = ["PendingPolicy", "group_of", "open_catalog"]

type PendingPolicy = Literal["fill", "raise"]
"""What becomes of reading elements that were declared, and that no file has brought yet."""


def open_catalog(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow | Trust = None,
    snapshot: str | None = None,
    *,
    identity: Identity | None = None,
    prefixes: Mapping[str, str] | None = None,
    pending: PendingPolicy = "fill",
) -> CatalogGroup:
    """Open a catalog, whose arrays cannot be read yet: see `gridref.open_catalog`."""
    check_choice("pending", pending, ("fill", "raise"))
    storage_options = catalog_options(storage_options)
    address = absolute_url(url).removesuffix(f"/{ROOT_FILE}")
    folder = open_folder(address, storage_options)
    content = folder.read(ROOT_FILE)
    root = Root.from_bytes(content, folder.address(ROOT_FILE))
    if snapshot is not None:
        root = root_at(folder, root, snapshot)
    rules = SourceRules.of(identity or root.snapshot.identity, prefixes)
    trust = Trust.of(folder.url, allow, rules.folders)
    return group_of(root, folder, storage_options, trust, rules, pending=pending)


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
) -> CatalogGroup:
    """The group that a snapshot of a catalog holds.

    Parts that are `known` are used again, and tables that are `held` in memory are not read.
    """
    snapshot = root.snapshot
    rules = rules or SourceRules(snapshot.identity)
    if snapshot.prefixes:
        rules.check_used(resolved_url(prefix, folder.url) for prefix in snapshot.prefixes)
    is_open = {part.blocks.address: part for part in known}

    def opened(entry: PartEntry) -> Part:
        part = is_open.get(folder.address(entry.blocks.file))
        if part is not None and part.fits(entry, snapshot.prefixes):
            return part
        return open_part(folder, entry, snapshot.prefixes, storage_options, trust, rules, held)

    parts = tuple(map(opened, snapshot.parts))
    contents = _Contents(snapshot, parts, folder.address(ROOT_FILE), pending == "raise")
    group = _group(snapshot.root, contents, "")
    return CatalogGroup(
        arrays=group.arrays,
        groups=group.groups,
        attrs=group.attrs,
        unlimited_dims=group.unlimited_dims,
        info=_info(root, folder.url),
        snapshot=snapshot,
        parts=parts,
        trust=trust,
    )


def _info(root: Root, url: str) -> CatalogInfo:
    snapshot = root.snapshot
    tables = [part.tables for part in snapshot.parts]
    entries = snapshot.root.all_arrays().values()
    with refusing_damage("the description of an array", Place(source=without_secrets(url))):
        n_blocks = sum(math.prod(snapshot.grid_shape(entry)) for entry in entries)
        checked = [
            all(snapshot.parts[segment.part].checksums is not None for segment in layout)
            for layout in snapshot.shared.layouts
        ]
        n_checksums = sum(entry.counts.n_chunks for entry in entries if checked[entry.layout])
    return CatalogInfo(
        url=without_secrets(url),
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
    loading: Lock = field(default_factory=new_lock)
    _layouts: dict[int, tuple[tuple[Part, ...], Layout]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Contents, (self.snapshot, self.parts, self.address, self.refuses_pending)

    def layout(self, number: int) -> tuple[tuple[Part, ...], Layout]:
        """The parts that a layout uses, and the layout counting into these."""
        if number not in self._layouts:
            layout = self.snapshot.shared.layouts[number]
            used = {part: i for i, part in enumerate(dict.fromkeys(s.part for s in layout))}
            own = tuple(replace(segment, part=used[segment.part]) for segment in layout)
            self._layouts[number] = tuple(self.parts[part] for part in used), own
        return self._layouts[number]


class _LazyArrays(Mapping[str, VirtualArray]):
    """The arrays of a group, made when they are first asked for."""

    def __init__(self, entries: Mapping[str, ArrayEntry], contents: _Contents, path: str) -> None:
        self._entries = entries
        self._contents = contents
        self._path = path
        self._made: dict[str, VirtualArray] = {}

    @override
    def __getitem__(self, name: str) -> VirtualArray:
        made = self._made.get(name)
        if made is None:
            entry = self._entries[name]
            path = f"{self._path}/{name}" if self._path else name
            made = self._made.setdefault(name, _array(entry, self._contents, path))
        return made

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    @override
    def __len__(self) -> int:
        return len(self._entries)

    @override
    def __contains__(self, name: object) -> bool:
        return name in self._entries


def _group(entry: GroupEntry, contents: _Contents, path: str) -> VirtualGroup:
    groups = {
        name: _group(child, contents, f"{path}/{name}" if path else name)
        for name, child in entry.groups.items()
    }
    place = Place(source=contents.address, variable=path or "/")
    with refusing_damage("the attributes of a group", place):
        attrs = attributes_from_json(entry.attrs)
    arrays = _LazyArrays(entry.arrays, contents, path)
    return VirtualGroup(arrays, groups, attrs, unlimited_dims=entry.unlimited_dims)


def _array(entry: ArrayEntry, contents: _Contents, path: str) -> VirtualArray:
    place = Place(source=contents.address, variable=path)
    with refusing_damage("the description of an array", place):
        described = entry.described(contents.snapshot.shared)
        parts, layout = contents.layout(entry.layout)
        grid_shape = described["grid"].grid_shape
        n_encodings = len(described["encodings"])
        blocks = ParquetBlocks(parts, layout, path, grid_shape, n_encodings, contents.loading)
        masks = entry.counts.has_filter_masks
        manifests = tuple(ParquetManifest(part, path, masks) for part in parts)
        array = VirtualArray(**described, manifests=manifests, block_source=blocks)
        if contents.refuses_pending:
            return refusing_pending(array, path, contents.snapshot.pending)
        return array
