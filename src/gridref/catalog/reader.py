"""Opening a catalog: only ``gridref.json`` is read; rows follow when they are needed."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, override

import pyarrow as pa

from gridref.catalog.arrays import ParquetBlocks, ParquetManifest
from gridref.catalog.chunk_listing import list_chunks, listed_sources
from gridref.catalog.damage import refusing_damage
from gridref.catalog.document import ROOT_FILE, Root
from gridref.catalog.entries import ArrayEntry, GroupEntry
from gridref.catalog.former import root_at
from gridref.catalog.parts import Part, open_part
from gridref.catalog.segments import Layout
from gridref.catalog.snapshot import Commit, Pruned, Snapshot
from gridref.catalog.source_rules import SourceRules
from gridref.catalog.storage import Folder, open_folder, resolved_url
from gridref.catalog.trust import Trust
from gridref.catalog.values import attributes_from_json
from gridref.errors import InvalidRequestError, Place
from gridref.io import Allow, absolute_url, catalog_options
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.manifest import Identity, Source
from gridref.options import check_names
from gridref.secrets import without_secrets

__all__ = ["CatalogGroup", "CatalogInfo", "open_catalog"]


@dataclass(frozen=True)
class CatalogInfo:
    """What a catalog says of itself.

    Attributes
    ----------
    url
        Its address.
    digest
        SHA-256 of its content, ``sha256:...``. It changes exactly when the catalog is rebuilt with
        another content.
    format_version
        Version of the format that it is written in.
    created_by
        Name and version of what wrote it.
    n_sources, n_blocks, n_chunks
        Rows in its tables.
    table_bytes
        Size of its tables.
    extra
        JSON values of the application's own.
    snapshot
        Name of the snapshot that is shown.
    tags
        Snapshots that have a name.
    """

    url: str
    digest: str
    format_version: int
    created_by: str
    n_sources: int
    n_blocks: int
    n_chunks: int
    table_bytes: int
    extra: Mapping[str, Any]
    snapshot: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


class CatalogKeeper(Protocol):
    """Changes a catalog that was opened."""

    def append(self, files: Any, **options: Any) -> CatalogGroup:
        """Add files."""
        ...

    def history(self) -> tuple[Commit, ...]:
        """The commits."""
        ...

    def tag(self, name: str, snapshot: str | None) -> CatalogGroup:
        """Name a snapshot."""
        ...

    def untag(self, name: str) -> CatalogGroup:
        """Take a name away."""
        ...

    def rollback(self, to: str | None) -> CatalogGroup:
        """Go back."""
        ...

    def prune(self, *, keep: int, grace_seconds: float, dry_run: bool) -> Pruned:
        """Remove snapshots."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CatalogGroup(VirtualGroup):
    """The root group of a catalog.

    Attributes
    ----------
    info
        What the catalog says of itself.
    snapshot
        The snapshot that is shown.
    parts
        Its parts.
    trust
        What it may read.
    keeper
        What changes the catalog; None where it was opened only to be read.
    """

    info: CatalogInfo
    snapshot: Snapshot
    parts: tuple[Part, ...]
    trust: Trust
    keeper: CatalogKeeper | None = None

    def decided_trust(self) -> Trust:
        """What it may read, for a process on another machine."""
        return self.trust.decided(part.sources.stored for part in self.parts)

    def append(self, files: Any, **options: Any) -> CatalogGroup:
        """Add files, in one step; what is there already is not scanned again, nor written.

        The rules of drift hold for the files and what is there, as in `gridref.build`, with the
        options that the catalog was built with.

        Parameters
        ----------
        files
            Paths, URLs, globs or directories. Those that are in the catalog are left out, and the
            report says so.
        **options
            ``at="label"`` puts files by the labels of their index coordinate: at the end, at the
            front, or between what is there; ``"start"`` and ``"end"`` say where. ``progress`` is
            called with the number of files scanned, and of all. Options of `gridref.build` change
            those that the catalog was built with.

        Returns
        -------
        CatalogGroup
            The catalog as it is then; this one goes on showing what it did.

        Raises
        ------
        CombineError
            If the files do not fit: all problems at once, and nothing is written.
        ScanError, SourceUnavailableError
            If a file cannot be described.
        SourceChangedError
            If a file is in the catalog and has changed since.
        CatalogConflictError
            If another writer's change makes this one impossible.
        CatalogError
            If the catalog cannot be written.
        """
        return self._kept().append(files, **options)

    def history(self) -> tuple[Commit, ...]:
        """The commits that led to the catalog as it is now, the last one first."""
        return self._kept().history()

    def tag(self, name: str, snapshot: str | None = None) -> CatalogGroup:
        """Give a snapshot a name, under which it opens, and which keeps it from being pruned.

        Parameters
        ----------
        name
            Letters, digits, dots, dashes and underscores. It may have been another snapshot's.
        snapshot
            Id of a snapshot, or a tag; by default the current one.
        """
        return self._kept().tag(name, snapshot)

    def untag(self, name: str) -> CatalogGroup:
        """Take a name from a snapshot."""
        return self._kept().untag(name)

    def rollback(self, to: str | None = None) -> CatalogGroup:
        """Make the catalog what it was, by a commit that can be rolled back too.

        Parameters
        ----------
        to
            Id or tag of a snapshot; by default the one before.
        """
        return self._kept().rollback(to)

    def prune(
        self, *, keep: int = 1, grace_seconds: float = 24 * 3600, dry_run: bool = False
    ) -> Pruned:
        """Remove snapshots, and the files that only they need.

        Parameters
        ----------
        keep
            How many of the last snapshots stay. Tagged ones always do.
        grace_seconds
            Nothing is removed that is younger, by the clock of where it lies: others may be
            writing, or reading, it.
        dry_run
            Say what would be removed, and remove nothing.
        """
        return self._kept().prune(keep=keep, grace_seconds=grace_seconds, dry_run=dry_run)

    def _kept(self) -> CatalogKeeper:
        if self.keeper is None:
            raise InvalidRequestError("open the catalog by gridref.open_catalog to change it")
        return self.keeper

    def chunks(
        self,
        array: str | None = None,
        *,
        state: str | Collection[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The stored chunks, one row for each that a block shows, in the order of the blocks.

        Parameters
        ----------
        array
            Path of an array; None lists those of all arrays.
        state
            Only chunks of this state, or of these.
        columns
            Only these columns, in this order.

        Returns
        -------
        pyarrow.Table
            ``path`` of the array; ``chunk``, chunk coords, counted over all blocks; ``block``,
            coords of the block; ``start`` and ``stop``, the elements of the array that the chunk
            holds, half-open; ``state``: ``"range"``, ``"inline"``, ``"missing"`` or ``"pending"``;
            ``source``, ``offset`` and ``length`` of a range; ``stored_bytes``, 0 where nothing is
            stored; ``decoded_bytes``, null for strings of any length. A block that no file holds is
            one row.

        Raises
        ------
        InvalidRequestError
            For an array, state or column that there is not.
        CatalogCorruptError
            If a table is damaged.
        """
        return self.chunk_batches(array, state=state, columns=columns).read_all()

    def chunk_batches(
        self,
        array: str | None = None,
        *,
        state: str | Collection[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        """The rows of `chunks` in batches of at most 65,536, made as one goes on reading."""
        arrays = self.all_arrays()
        if array is not None:
            path = array.strip("/")
            check_names("the catalog", [path], arrays, kind="array")
            arrays = {path: arrays[path]}
        return list_chunks(arrays, state, columns)

    def sources(self) -> pa.Table:
        """All files that chunks lie in, as they were when they were scanned.

        Returns
        -------
        pyarrow.Table
            ``url``, ``size_bytes``, ``mtime_ns`` and ``etag``; null where it is not known.
        """
        return listed_sources(self.source_list)

    @property
    def source_list(self) -> Sequence[Source]:
        """The same files as `sources`, each once."""
        listed = (source for part in self.parts for source in part.sources.sources)
        return tuple(dict.fromkeys(listed))

    @override
    def replace(self, **changes: Any) -> VirtualGroup:
        """A copy with some attributes replaced: a group in memory, no more that of a catalog."""
        own = {part.name: getattr(self, part.name) for part in fields(VirtualGroup)}
        return VirtualGroup(**{**own, **changes})

    def __dask_tokenize__(self) -> tuple[str, ...]:
        return "gridref.CatalogGroup", self.info.url, self.info.digest

    @override
    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}; catalog: {self.info.url}>"


def open_catalog(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow | Trust = None,
    snapshot: str | None = None,
    *,
    identity: Identity | None = None,
    prefixes: Mapping[str, str] | None = None,
) -> CatalogGroup:
    """Open a catalog, whose arrays cannot be read yet: see `gridref.open_catalog`."""
    storage_options = catalog_options(storage_options)
    address = absolute_url(url).removesuffix(f"/{ROOT_FILE}")
    folder = open_folder(address, storage_options)
    content = folder.read(ROOT_FILE)
    root = Root.from_bytes(content, folder.address(ROOT_FILE))
    if snapshot is not None:
        root = root_at(folder, root, snapshot)
    rules = SourceRules.of(identity or root.snapshot.identity, prefixes)
    trust = Trust.of(folder.url, allow, rules.folders)
    return group_of(root, folder, storage_options, trust, rules)


def group_of(
    root: Root,
    folder: Folder,
    storage_options: Mapping[str, Any] | None,
    trust: Trust,
    rules: SourceRules | None = None,
    *,
    known: Sequence[Part] = (),
) -> CatalogGroup:
    """The group that a snapshot of a catalog holds; parts that are open already are used again."""
    snapshot = root.snapshot
    rules = rules or SourceRules(snapshot.identity)
    if snapshot.prefixes:
        rules.check_used(resolved_url(prefix, folder.url) for prefix in snapshot.prefixes)
    is_open = {part.blocks.address: part for part in known if part.fits(snapshot.prefixes)}
    parts = tuple(
        is_open.get(folder.address(entry.blocks.file))
        or open_part(folder, entry, snapshot.prefixes, storage_options, trust, rules)
        for entry in snapshot.parts
    )
    contents = _Contents(snapshot, parts, folder.address(ROOT_FILE))
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
    tables = [part.tables for part in root.snapshot.parts]
    n_sources, n_blocks, n_chunks = (sum(t[i].n_rows for t in tables) for i in range(3))
    return CatalogInfo(
        url=without_secrets(url),
        digest=root.snapshot.digest,
        format_version=root.format_version,
        created_by=root.created_by,
        n_sources=n_sources,
        n_blocks=n_blocks,
        n_chunks=n_chunks,
        table_bytes=sum(table.n_bytes for part in tables for table in part),
        extra=root.snapshot.extra,
        snapshot=root.snapshot.id,
        tags=root.tags,
    )


@dataclass(frozen=True, eq=False)
class _Contents:
    """What the arrays of a catalog share."""

    snapshot: Snapshot
    parts: tuple[Part, ...]
    address: str
    _layouts: dict[int, tuple[tuple[Part, ...], Layout]] = field(default_factory=dict)

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
        blocks = ParquetBlocks(parts, layout, path, grid_shape, len(described["encodings"]))
        masks = entry.counts.has_filter_masks
        manifests = tuple(ParquetManifest(part, path, masks) for part in parts)
        return VirtualArray(**described, manifests=manifests, block_source=blocks)
