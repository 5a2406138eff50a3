"""Commit a change to a catalog: a snapshot becomes the next in one step, or nothing happens.

`write_catalog` writes a new catalog. `commit` calls the function that makes a change, writes the
change's tables and replaces the root file. If another writer was first, `commit` does this again on
the new snapshot. Small parts are merged in the same commit, and tables that were just written are
not read again.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal

import numpy as np

from gridref.catalog.document import (
    ROOT_FILE,
    Commit,
    Root,
    Snapshot,
    SourceUrls,
    merged_drifts,
    snapshot_file,
    unzipped,
)
from gridref.catalog.entries import (
    ArrayEntry,
    ArrayRows,
    ChunkCounts,
    GroupEntry,
    Interned,
    Layout,
    PartEntry,
    Segment,
    TableEntry,
    array_entry,
    attributes_to_json,
    whole,
)
from gridref.catalog.folder import (
    Folder,
    OvertakenError,
    ReplaceRoot,
    TablePlace,
    WritableFile,
    open_folder,
    write_errors_told,
)
from gridref.catalog.group import CatalogGroup
from gridref.catalog.growth import BEFORE, NEW, GrownArray, placed, written
from gridref.catalog.opening import ParquetBlocks, group_of
from gridref.catalog.overlays import carried
from gridref.catalog.parts import Part
from gridref.catalog.sources import Trust
from gridref.catalog.writing import (
    PART_FILE,
    Hash,
    WrittenPart,
    joined,
    part_files,
    recounted,
    write_part,
)
from gridref.errors import (
    CatalogConflictError,
    CatalogError,
    CatalogNotFoundError,
    GridrefError,
    InvalidRequestError,
    Place,
    number_of,
)
from gridref.io import Allow, absolute_url, catalog_options
from gridref.limits import MAX_GROUP_DEPTH
from gridref.model.array import VirtualArray, VirtualGroup, path_in
from gridref.model.conventions import LabelEnds
from gridref.model.grid import ChunkGrid, GridAxis
from gridref.options import check_choice

# A new catalog: tables first, the root file last, in one step

LEFT_OVER_SECONDS = 24 * 3600
"""Age from which on a table that no catalog names is taken for left over."""
_OTHER_FILE = re.compile(rf"\.{re.escape(ROOT_FILE)}\.\d+\.tmp$|snapshot-[0-9a-f]+\.json\.gz$")
_LOCK_FILE = f".{ROOT_FILE}.lock"


def write_catalog(
    group: VirtualGroup,
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    extra: Mapping[str, Any] | None = None,
    sources: SourceUrls = "absolute",
    recipe: Mapping[str, Any] | None = None,
    keep_secrets: bool = False,
    ends: LabelEnds | None = None,
) -> str:
    """Write a catalog, or replace one in one step: see `gridref.api.catalog.write_catalog`.

    The tables are written under new names, then ``gridref.json``, which names them, is put in
    place, then the tables of the catalog that was there before are removed. A crash at any moment
    leaves the old catalog, or none where there was none. What crashes left behind more than a day
    ago is removed too.
    """
    if isinstance(group, CatalogGroup):
        group = group.from_files()
    change = new_content(
        group,
        "write",
        extra=extra or {},
        sources=sources,
        recipe=recipe,
        keep_secrets=keep_secrets,
        ends=ends or {},
    )
    return put_catalog(Access.of(url, storage_options), change).root.snapshot.digest


def new_content(
    group: VirtualGroup,
    operation: str,
    *,
    extra: Mapping[str, Any],
    sources: SourceUrls,
    recipe: Mapping[str, Any] | None,
    keep_secrets: bool,
    ends: LabelEnds,
) -> Change:
    """A change to something else than there was, all of whose rows are written."""
    check_choice("sources", sources, ("absolute", "relative"))
    try:
        json.dumps(extra, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"extra must be strict JSON: {error}") from error
    own = {
        "source_urls": sources,
        "extra": dict(extra),
        "recipe": recipe,
        "drifts": merged_drifts((), group.report.rows),
        "pending": {},
        "ends": ends,
    }
    arrays = {path: written(array) for path, array in group.all_arrays().items()}
    said = f"{number_of(len(arrays), 'array')} written"
    return Change(operation, said, group, arrays, own, keep_secrets=keep_secrets)


def put_catalog(access: Access, change: Change) -> Base:
    """Write a catalog, as `write_catalog` does; return it as it is then, without reading it."""
    name, folder = new_id(), access.folder
    with write_errors_told("the catalog", folder.url, CatalogError):
        try:
            with folder.changing(ROOT_FILE, None, part_files(name)) as replace_root:
                before = _to_be_replaced(folder)
                part = _written(folder, name, change, _NOTHING)
                snapshot = _following(_NOTHING, (), replace(change, amends=True), part, name)
                snapshot = replace(snapshot, identity=part.identity)
                root = Root(snapshot, {}, created_by())
                version = replace_root(root.to_bytes(), {}, before)
        except BaseException:
            folder.unmake()
            raise
    return Base(access, root, version, access.opened(root))


def new_id() -> str:
    """A name that no other snapshot has."""
    return uuid.uuid4().hex[:16]


def now() -> str:
    """The time, as commits state it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _to_be_replaced(folder: Folder) -> list[str]:
    """Tables of the catalog in a folder, and what interrupted writes left there.

    Nothing in a folder that is not there, or empty. What is left over does not count as content.
    """
    names = [name for name in folder.names() if name != _LOCK_FILE]
    ours = [name for name in names if PART_FILE.match(name) or _OTHER_FILE.match(name)]
    current = []
    if ROOT_FILE in names:
        current = _tables_named(folder, names)
    elif len(ours) < len(names):
        others = sorted(set(names) - set(ours))
        raise InvalidRequestError(
            f"the folder is not a catalog and not empty (it holds {others[0]!r}): choose another "
            "folder",
            Place(source=folder.url),
        )
    # Other files that were made lately may be tables that another process is writing right now.
    old = [n for n in ours if n not in current and (folder.age(n) or 0) > LEFT_OVER_SECONDS]
    return [*current, *old]


def _tables_named(folder: Folder, names: Sequence[str]) -> list[str]:
    """Tables that the snapshots of the catalog in a folder name, and the files of these."""
    former = [name for name in names if name.startswith("snapshot-")]
    try:
        contents = [
            folder.read(ROOT_FILE),
            *(unzipped(folder.read(f), folder.address(f)) for f in former),
        ]
    except CatalogNotFoundError:
        return []
    roots = [Root.from_bytes(content, folder.address(ROOT_FILE)) for content in contents]
    parts = dict.fromkeys(part for root in roots for part in root.snapshot.all_parts)
    files = [table.file for part in parts for table in part.tables]
    return [*(file for file in files if PART_FILE.match(file)), *former]


def group_entry(group: VirtualGroup, path: str, entries: Mapping[str, ArrayEntry]) -> GroupEntry:
    """The description of a group, and of those below it."""
    if path.count("/") >= MAX_GROUP_DEPTH:
        raise InvalidRequestError(f"groups are nested more than {MAX_GROUP_DEPTH} deep")
    return GroupEntry(
        attributes_to_json(group.attrs, path),
        {n: group_entry(child, path_in(path, n), entries) for n, child in group.groups.items()},
        {name: entries[path_in(path, name)] for name in group.arrays},
        group.unlimited_dims,
    )


@cache
def created_by() -> str:
    """Name and version of the writer."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"gridref {version('gridref')}"
    except PackageNotFoundError:
        return "gridref"


_NOTHING = Snapshot("0" * 16, (Commit("0" * 16, None, "", "", ""),))
"""What a new catalog takes the place of."""


# Drafts: tables of a commit that may not be wanted

_HELD_BYTES = 2**20
"""Larger tables are written where they belong at once."""


class Drafts:
    """A `TablePlace` that holds small tables in memory until they are published.

    Attributes
    ----------
    url
        Address of the catalog.
    written
        Names of those that were too large, and are in the folder.
    """

    def __init__(self, folder: Folder) -> None:
        self.url = folder.url
        self.held: dict[str, bytes] = {}
        self.written: set[str] = set()
        self._folder = folder

    def create(self, name: str) -> WritableFile:
        """A new table to write."""
        return _Draft(name, self)

    def create_written(self, name: str) -> WritableFile:
        """A new table in the folder."""
        self.written.add(name)
        return self._folder.create(name)

    def publish(self, names: Collection[str]) -> None:
        """Write some of those in memory into the folder; the others are forgotten."""
        for name in [*self.held]:
            if name not in names:
                del self.held[name]
                continue
            file = self.create_written(name)
            try:
                file.write(self.held[name])
            finally:
                file.close()


class _Draft:
    """A file that is held in memory while it is small."""

    def __init__(self, name: str, drafts: Drafts) -> None:
        self._name = name
        self._drafts = drafts
        self._content = bytearray()
        self._file: WritableFile | None = None

    def write(self, content: bytes, /) -> int:
        if self._file is not None:
            return self._file.write(content)
        self._content += content
        if len(self._content) > _HELD_BYTES:
            self._file = self._drafts.create_written(self._name)
            self._file.write(bytes(self._content))
        return len(content)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        else:
            self._drafts.held[self._name] = bytes(self._content)


# Merging of small parts: the cost of opening does not grow with commits

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
    # Rows of before are written again as they stand: what was to be left out is not in them.
    part = write_part(folder, name, new, urls, prefixes, keep_secrets=True, keep_statistics=True)
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
    return array.with_changes(grid=ChunkGrid(tuple(axes)), blocks=held.within(box))


def _with_entries(group: GroupEntry, entries: Mapping[str, ArrayEntry], prefix: str) -> GroupEntry:
    groups = {
        name: _with_entries(below, entries, f"{prefix}{name}/")
        for name, below in group.groups.items()
    }
    arrays = {name: entries[f"{prefix}{name}"] for name in group.arrays}
    return replace(group, groups=groups, arrays=arrays)


# Commits: a snapshot becomes the next one in one step, or nothing happens

LOG_COMMITS = 64
"""Commits that a snapshot lists; earlier ones are listed by their own."""
MOST_ATTEMPTS = 64
"""How often a change is made again because another one came between. Of 16 writers the last one is
overtaken 15 times."""


@dataclass(frozen=True, eq=False)
class Access:
    """How a catalog is reached.

    Attributes
    ----------
    storage_options
        fsspec options, or a mapping of protocol to options.
    trust
        What it may read.
    """

    folder: Folder
    storage_options: Mapping[str, Any] | None
    trust: Trust

    @classmethod
    def of(
        cls,
        url: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None,
        allow: Allow = None,
    ) -> Access:
        """Access to the catalog at an address."""
        options = catalog_options(storage_options)
        folder = open_folder(absolute_url(url).removesuffix(f"/{ROOT_FILE}"), options)
        return cls(folder, options, Trust.of(folder.url, allow))

    def opened(
        self, root: Root, known: Sequence[Part] = (), held: Mapping[str, bytes] | None = None
    ) -> CatalogGroup:
        """What a snapshot holds; tables in memory are not read."""
        return group_of(root, self.folder, self.storage_options, self.trust, known=known, held=held)


@dataclass(frozen=True, eq=False)
class Base:
    """What a change starts from.

    Attributes
    ----------
    access
        How the catalog is reached.
    group
        What it holds.
    """

    access: Access
    root: Root
    version: str
    group: CatalogGroup

    @property
    def folder(self) -> Folder:
        """Of the catalog."""
        return self.access.folder


@dataclass(frozen=True, eq=False)
class Change:
    """What a commit makes of a snapshot.

    Attributes
    ----------
    operation, message
        What it is called, and what it did, for people.
    group
        The tree of groups with their attributes, and the names of arrays.
    arrays
        Every array by path.
    changes
        Other members of the snapshot that change.
    gone
        Addresses of files that nothing uses any more.
    amends
        Whether the snapshot is left out of the history, as if it had never been.
    is_alike
        Whether all values are as before, so that what is known of them stays known.
    keep_secrets
        Whether credentials and signatures in addresses of files are kept.
    """

    operation: str
    message: str
    group: VirtualGroup
    arrays: Mapping[str, GrownArray]
    changes: Mapping[str, Any] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    amends: bool = False
    is_alike: bool = False
    keep_secrets: bool = False


@dataclass(frozen=True, eq=False)
class Step:
    """What a commit writes.

    Attributes
    ----------
    write
        Writes tables, and gives the root that names them.
    new
        Names of files that it may write.
    gone
        Files that are removed when the root is in place.
    """

    write: Callable[[Drafts], Root]
    new: Collection[str] = ()
    gone: Collection[str] = ()


type Wanted = Change | Step | Root | None
"""What is to become of a snapshot; None for nothing."""


def read_base(access: Access, known: Sequence[Part] = ()) -> Base:
    """The current snapshot of a catalog, to be changed; known parts are used again."""
    content, version = access.folder.read_version(ROOT_FILE)
    root = Root.from_bytes(content, access.folder.address(ROOT_FILE))
    return Base(access, root, version, access.opened(root, known))


def commit(
    access: Access,
    change: Callable[[Base], Wanted],
    base: Base | None = None,
) -> Base:
    """Change a catalog; try again if another writer was first.

    That a change does nothing, or is impossible, is believed of the newest snapshot only.

    Parameters
    ----------
    change
        Takes a snapshot and returns a change of its arrays, what else is to be written, or only a
        root; None changes nothing.
    base
        The last snapshot that is known; others may have made newer ones.

    Returns
    -------
    Base
        The snapshot as it is now.

    Raises
    ------
    CatalogConflictError
        If a change by another writer makes this one impossible, or others are first every time.
    """
    is_newest = base is None
    base = base or read_base(access)
    between: list[Commit] = []
    with write_errors_told("the catalog", access.folder.url, CatalogError), ExitStack() as held:
        for _ in range(MOST_ATTEMPTS):
            try:
                wanted = change(base)
                if wanted is not None:
                    return _taken(base, _step_of(base, wanted))
                if is_newest:
                    return base
                now_there = read_base(access, base.group.parts)
                if now_there.version == base.version:
                    return base
            except OvertakenError:
                if not between:
                    held.enter_context(access.folder.turn())
                now_there = read_base(access, base.group.parts)
                between = _since(base, now_there)
            except GridrefError as error:
                if between:
                    why = f"{type(error).__name__}: {error}"
                    raise _conflict(access.folder, between, why) from error
                if is_newest:
                    raise
                now_there = read_base(access, base.group.parts)
                if now_there.version == base.version:
                    raise
            base, is_newest = now_there, True
    raise _conflict(access.folder, between, f"{MOST_ATTEMPTS} attempts were overtaken")


def _since(before: Base, after: Base) -> list[Commit]:
    log = after.root.snapshot.log
    known = {each.id for each in before.root.snapshot.log}
    return [each for each in log if each.id not in known] or [log[-1]]


def _conflict(folder: Folder, between: list[Commit], why: str) -> CatalogConflictError:
    others = "; ".join(f"{each.id} ({each.operation}: {each.message})" for each in between[-3:])
    return CatalogConflictError(
        f"another writer changed the catalog in the meantime, {others}, and this change no longer "
        f"fits: {why}",
        Place(source=folder.url),
    )


def _taken(base: Base, step: Step) -> Base:
    """Write what a step makes, and put its root in the place of the one before.

    Raises
    ------
    OvertakenError
        If it is another one by now.
    """
    with base.folder.changing(ROOT_FILE, base.version, step.new) as replace_root:
        drafts = Drafts(base.folder)
        root = step.write(drafts)
        tables = tables_of(root)
        drafts.publish(tables)
        # Some were written as one with others right away, and are in no snapshot.
        return _replaced(base, root, drafts, replace_root, [*step.gone, *(drafts.written - tables)])


def _replaced(
    base: Base, root: Root, drafts: Drafts, replace_root: ReplaceRoot, gone: Collection[str]
) -> Base:
    """Put a root file in place; a put whose answer was lost may have been repeated."""
    before = base.root
    former: dict[str, bytes] = {}
    if root.snapshot.log[-1].parent == before.snapshot.id:
        overlays = tuple(each.former for each in before.snapshot.overlays)
        kept = Root(replace(before.snapshot, overlays=overlays), {}, before.created_by).to_bytes()
        former[snapshot_file(before.snapshot.id)] = gzip.compress(kept, mtime=0)
    written = root.to_bytes()
    try:
        version = replace_root(written, former, gone)
    except OvertakenError:
        content, version = base.folder.read_version(ROOT_FILE)
        if content != written:
            there = read_base(base.access)
            is_new = root.snapshot.id != before.snapshot.id
            if not (is_new and root.snapshot.id in {each.id for each in there.root.snapshot.log}):
                raise
            return there  # and others have committed since
    return Base(base.access, root, version, base.access.opened(root, base.group.parts, drafts.held))


def tables_of(root: Root) -> set[str]:
    """The files of the parts of a snapshot."""
    return {table.file for part in root.snapshot.all_parts for table in part.tables}


def _step_of(base: Base, change: Change | Step | Root) -> Step:
    """What a change writes."""
    if isinstance(change, Step):
        return change
    if isinstance(change, Root):
        return Step(lambda _: change)
    name = new_id()
    merged = f"{name}c"

    def write(drafts: Drafts) -> Root:
        before, parts = base.root.snapshot, _parts_kept(base, change)
        is_written = any(grown.new is not None for grown in change.arrays.values())
        part = _written(drafts, name, change, before) if is_written else None
        snapshot = _without_unused(_following(before, parts, change, part, name))
        snapshot = replace(snapshot, **carried(before, snapshot, is_alike=change.is_alike))
        root = replace(base.root, snapshot=snapshot, created_by=created_by())
        root = _with_content(base, root, change, drafts)
        return _compacted(base, root, merged, drafts)

    return Step(write, (*part_files(name), *part_files(merged)))


def _written(folder: TablePlace, name: str, change: Change, before: Snapshot) -> WrittenPart:
    """Write the rows that a change adds."""
    return write_part(
        folder,
        name,
        {path: grown.new for path, grown in change.arrays.items() if grown.new is not None},
        change.changes.get("source_urls", before.source_urls),
        () if _is_anew(change) else before.prefixes,
        # Of values that are as before, what was to be left out was left out before.
        keep_secrets=change.is_alike or change.keep_secrets,
        keep_statistics=change.is_alike,
    )


def _is_anew(change: Change) -> bool:
    """Whether all rows are written, so that no table of before is part of the next snapshot."""
    laid = [grown.laid for grown in change.arrays.values()]
    return all(own is not None and all(each.part == NEW for each in own) for own in laid)


def _following(
    before: Snapshot,
    parts: Sequence[PartEntry],
    change: Change,
    part: WrittenPart | None,
    name: str,
) -> Snapshot:
    """The next snapshot; arrays whose content has to be counted anew have none yet."""
    old = before.root.all_arrays()
    shared = Interned()
    entries: dict[str, ArrayEntry] = {}

    @cache  # many arrays are alike, and layouts grow with commits
    def layout_of(laid: Layout | None, number: int | None) -> Layout:
        held = () if number is None else before.shared.layouts[number]
        return placed(laid, held, len(parts))

    for path, grown in change.arrays.items():
        layout = layout_of(grown.laid, old[path].layout if path in old else None)
        counts, content = _counted(
            grown, before, old.get(path), part.rows.get(path) if part else None
        )
        entries[path] = array_entry(grown.shown, path, shared, layout, counts, content)
    this = Commit(name, before.id, now(), change.operation, change.message)
    if change.amends:
        this = replace(this, parent=before.log[-1].parent)
    return replace(
        before,
        id=name,
        log=(*(before.log[:-1] if change.amends else before.log), this)[-LOG_COMMITS:],
        root=group_entry(change.group, "", entries),
        shared=shared,
        parts=(*parts, *([part.entry] if part else [])),
        prefixes=part.prefixes if part else before.prefixes,
        **{"ends": before.ends if change.is_alike else {}, **change.changes},
    )


def following(
    base: Base,
    content: Snapshot,
    operation: str,
    message: str,
    *,
    name: str | None = None,
    restores: str | None = None,
) -> Root:
    """The root whose next snapshot has some content."""
    before, name = base.root.snapshot, name or new_id()
    this = Commit(name, before.id, now(), operation, message, restores)
    snapshot = replace(content, id=name, log=(*before.log, this)[-LOG_COMMITS:])
    return replace(base.root, snapshot=snapshot, created_by=created_by())


def _parts_kept(base: Base, change: Change) -> list[PartEntry]:
    """The parts of the snapshot before, without what is not used or not known any more."""
    before = base.root.snapshot
    entries = list(before.parts)
    for number, (entry, part) in enumerate(zip(entries, base.group.parts, strict=True)):
        if change.gone:
            listed = enumerate(part.sources.sources)
            unused = {i for i, source in listed if source.url in change.gone} | set(entry.unused)
            entries[number] = replace(entry, unused=tuple(sorted(unused)))
    old = before.root.all_arrays()
    for path, grown in change.arrays.items():
        if grown.is_altered and path in old:
            for segment in before.shared.layouts[old[path].layout]:
                entries[segment.part] = replace(entries[segment.part], statistics=None)
    return entries


def _counted(
    grown: GrownArray, before: Snapshot, old: ArrayEntry | None, rows: ArrayRows | None
) -> tuple[ChunkCounts, str]:
    """Counts and content of an array, as far as they follow from those that are known."""
    if grown.laid is None and old is not None:
        return old.counts, old.content
    shape = grown.shown.grid.grid_shape
    if rows is not None and grown.laid == whole(NEW, shape):
        return rows.counts, rows.content
    if rows is None or old is None or not old.content or grown.is_altered:
        return _UNKNOWN
    if not _follow(grown.laid or (), shape, before.grid_shape(old), rows.grid_shape):
        return _UNKNOWN
    hashes = {
        BEFORE: Hash.parse(old.content, math.prod(before.grid_shape(old))),
        NEW: Hash.parse(rows.content, rows.n_blocks),
    }
    in_order = sorted(grown.laid or (), key=lambda segment: segment.start)
    content = joined([hashes[segment.part] for segment in in_order])
    return old.counts.plus(rows.counts), str(content)


def _follow(
    laid: Layout, shape: tuple[int, ...], old: tuple[int, ...], new: tuple[int, ...]
) -> bool:
    """Whether a layout is all blocks of before and all new ones, in C order after each other."""
    wholes = {(BEFORE, old), (NEW, new)}
    if len(laid) != 2 or {(segment.part, segment.shape) for segment in laid} != wholes:
        return False
    if sum(segment.n_blocks for segment in laid) != math.prod(shape):
        return False
    cut = [axis for axis, n in enumerate(shape) if any(each.shape[axis] != n for each in laid)]
    return all(n == 1 for n in shape[: cut[0]])


_UNKNOWN = (ChunkCounts(), "")
"""Counts and content that need the rows."""


def _without_unused(snapshot: Snapshot) -> Snapshot:
    """The snapshot without parts that no layout counts into."""
    used = sorted({segment.part for layout in snapshot.shared.layouts for segment in layout})
    number = {part: i for i, part in enumerate(used)}
    layouts = [
        tuple(replace(segment, part=number[segment.part]) for segment in layout)
        for layout in snapshot.shared.layouts
    ]
    shared = replace(snapshot.shared, layouts=layouts)
    return replace(snapshot, shared=shared, parts=tuple(snapshot.parts[i] for i in used))


def _with_content(base: Base, root: Root, change: Change, drafts: Drafts) -> Root:
    """The root with counts and content of those arrays whose rows have to be read for them."""
    entries = root.snapshot.root.all_arrays()
    unknown = [path for path, entry in entries.items() if not entry.content]
    if not unknown:
        return root
    opened = base.access.opened(root, base.group.parts, drafts.held).all_arrays()
    arrays = {path: opened[path] for path in unknown}
    found = recounted(base.folder, arrays, root.snapshot.source_urls)
    counted = {
        path: replace(entries[path], counts=rows.counts, content=rows.content)
        for path, rows in found.items()
    }
    tree = group_entry(change.group, "", {**entries, **counted})
    return replace(root, snapshot=replace(root.snapshot, root=tree))


def _compacted(base: Base, root: Root, name: str, drafts: Drafts) -> Root:
    """The root with some small parts written as one, where there are many."""
    if not parts_to_merge(root.snapshot.parts):
        return root
    arrays = base.access.opened(root, base.group.parts, drafts.held).all_arrays()
    snapshot = compacted(root.snapshot, arrays, drafts, name)
    return replace(root, snapshot=_without_unused(snapshot))


# Commits that add tables about chunks to existing parts

type WriteTable = Callable[[TablePlace, str], TableEntry]
"""Writes a table as a file of a folder."""


def recording(
    kind: Literal["checksums", "statistics"],
    scan: Callable[[Base], Mapping[int, WriteTable]],
    message: str,
) -> Callable[[Base], Step | None]:
    """A change that adds tables to parts.

    Parameters
    ----------
    scan
        Gives the tables, by number of the part; none if there is nothing to add.
    message
        What was scanned, for people.
    """

    def change(base: Base) -> Step | None:
        found = scan(base)
        name = new_id()
        files = {number: f"{kind}-{name}-{number}.parquet" for number in found}

        def write(drafts: Drafts) -> Root:
            before = base.root.snapshot
            parts = list(before.parts)
            for number, write_table in found.items():
                table: dict[str, Any] = {kind: write_table(drafts, files[number])}
                parts[number] = replace(parts[number], **table)
            return following(base, replace(before, parts=tuple(parts)), kind, message, name=name)

        return Step(write, files.values()) if found else None

    return change
