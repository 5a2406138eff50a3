"""Commits: a snapshot becomes the next one in one step, or nothing has happened."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from gridref.catalog.compaction import compacted, parts_to_merge
from gridref.catalog.content import Hash, joined
from gridref.catalog.document import FORMAT_VERSIONS, ROOT_FILE, Root
from gridref.catalog.drafts import Drafts
from gridref.catalog.entries import (
    ArrayEntry,
    ArrayRows,
    ChunkCounts,
    Interned,
    PartEntry,
    array_entry,
)
from gridref.catalog.former import snapshot_file
from gridref.catalog.group import CatalogGroup
from gridref.catalog.growth import BEFORE, NEW, GrownArray
from gridref.catalog.part_writer import WrittenPart, recounted, write_part
from gridref.catalog.parts import Part
from gridref.catalog.reader import group_of
from gridref.catalog.segments import Layout, whole
from gridref.catalog.snapshot import Commit, Snapshot
from gridref.catalog.storage import Folder, OvertakenError
from gridref.catalog.sweeping import lease_file, sweep, tables_of
from gridref.catalog.trust import Trust
from gridref.catalog.writer import created_by, group_entry, has_commit, may_be_in_use, new_id, now
from gridref.errors import CatalogConflictError, CatalogError, GridrefError, Place
from gridref.model.array import VirtualGroup

__all__ = [
    "LOG_COMMITS",
    "Access",
    "Base",
    "Change",
    "commit",
    "lease",
    "next_log",
    "publish_root",
    "read_base",
    "write_errors_told",
]

LOG_COMMITS = 64
"""Commits that a snapshot lists; earlier ones are listed by their own."""
MOST_ATTEMPTS = 8
"""How often a change is made again because another one came between."""


@dataclass(frozen=True, eq=False)
class Access:
    """How a catalog is reached.

    Attributes
    ----------
    folder
        Where it lies.
    storage_options
        fsspec options, or a mapping of protocol to options.
    trust
        What it may read.
    """

    folder: Folder
    storage_options: Mapping[str, Any] | None
    trust: Trust

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
    root
        Its root file.
    version
        Which version of that file it is.
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
        Addresses of files of which nothing is used any more.
    amends
        Whether the snapshot is left out of the history, as if it had never been.
    is_alike
        Whether all values are as before, so that what is known of them stays known.
    """

    operation: str
    message: str
    group: VirtualGroup
    arrays: Mapping[str, GrownArray]
    changes: Mapping[str, Any] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    amends: bool = False
    is_alike: bool = False


def read_base(access: Access) -> Base:
    """The current snapshot of a catalog, to be changed."""
    content, version = access.folder.read_version(ROOT_FILE)
    root = Root.from_bytes(content, access.folder.address(ROOT_FILE))
    return Base(access, root, version, access.opened(root))


def commit(
    access: Access,
    change: Callable[[Base], Change | Root | None],
    base: Base | None = None,
) -> Base:
    """Change a catalog, again and again where other writers come between.

    Parameters
    ----------
    change
        Says what becomes of a snapshot: a change of its arrays, or another root; None for nothing.
    base
        The current snapshot, where it is known.

    Returns
    -------
    Base
        The snapshot as it is now.

    Raises
    ------
    CatalogConflictError
        If what another writer did meanwhile makes the change impossible, or others are always
        quicker.
    """
    base = base or read_base(access)
    between: list[Commit] = []
    with write_errors_told(access.folder):
        for _ in range(MOST_ATTEMPTS):
            try:
                wanted = change(base)
                if wanted is None:
                    return base
                if isinstance(wanted, Root):
                    return publish_root(base, wanted)
                return _commit_once(base, wanted)
            except OvertakenError:
                now_there = read_base(access)
                between = _since(base, now_there)
                base = now_there
            except GridrefError as error:
                if not between:
                    raise
                why = f"{type(error).__name__}: {error}"
                raise _conflict(access.folder, between, why) from error
    raise _conflict(access.folder, between, f"{MOST_ATTEMPTS} attempts were overtaken")


@contextmanager
def write_errors_told(folder: Folder) -> Iterator[None]:
    """Turn errors of the system into those of a catalog that cannot be written."""
    try:
        yield
    except OSError as error:
        raise CatalogError(
            f"the catalog cannot be written: {error.strerror or error}", Place(source=folder.url)
        ) from error


def _since(before: Base, after: Base) -> list[Commit]:
    log = after.root.snapshot.log
    known = {each.id for each in before.root.snapshot.log}
    return [each for each in log if each.id not in known] or [log[-1]]


def _conflict(folder: Folder, between: list[Commit], why: str) -> CatalogConflictError:
    others = "; ".join(f"{each.id} ({each.operation}: {each.message})" for each in between[-3:])
    return CatalogConflictError(
        f"another writer changed the catalog meanwhile, {others}, and the change does not fit what"
        f" is there now: {why}",
        Place(source=folder.url),
    )


def _commit_once(base: Base, change: Change) -> Base:
    name = new_id()
    sweep(base.folder, base.root)
    drafts = Drafts(base.folder)
    with lease(base.folder, name):
        snapshot = base.root.snapshot
        new = {path: grown.new for path, grown in change.arrays.items() if grown.new is not None}
        part = None
        if new:
            part = write_part(
                drafts,
                name,
                new,
                snapshot.source_urls,
                () if _is_anew(change) else snapshot.prefixes,
                keep_secrets=change.is_alike,  # what was to be left out was left out before
                keep_statistics=change.is_alike,
            )
        try:
            following = _following(base, change, part, name)
            root = replace(
                base.root,
                snapshot=following,
                created_by=created_by(),
                format_version=FORMAT_VERSIONS[-1],
            )
            root = _with_content(base, root, change, drafts)
            root = _compacted(base, root, f"{name}c", drafts)
            drafts.publish(tables_of(root))
            done = publish_root(base, root, drafts.held)
        except BaseException:
            if not may_be_in_use(base.folder, name):
                for file in drafts.written:
                    base.folder.remove(file)
            raise
        for file in drafts.written - tables_of(root):
            base.folder.remove(file)  # written as one with others right away: in no snapshot
        return done


def _is_anew(change: Change) -> bool:
    """Whether all rows are written, so that no table of before is part of the next snapshot."""
    laid = [grown.laid for grown in change.arrays.values()]
    return all(own is not None and all(each.part == NEW for each in own) for own in laid)


def _following(base: Base, change: Change, part: WrittenPart | None, name: str) -> Snapshot:
    """The next snapshot; arrays whose content has to be counted anew have none yet."""
    before = base.root.snapshot
    old = before.root.all_arrays()
    parts = (*_parts_kept(base, change), *([part.entry] if part else []))
    shared = Interned()
    entries: dict[str, ArrayEntry] = {}
    for path, grown in change.arrays.items():
        old_layout = before.shared.layouts[old[path].layout] if path in old else ()
        layout = grown.layout(old_layout, len(before.parts))
        counts, content = _counted(
            grown, before, old.get(path), part.rows.get(path) if part else None
        )
        entries[path] = array_entry(grown.shown, path, shared, layout, counts, content)
    parent = before.log[-1].parent if change.amends else before.id
    this = Commit(name, parent, now(), change.operation, change.message)
    following = replace(
        before,
        id=name,
        log=(*before.log[:-1], this) if change.amends else next_log(before, this),
        root=group_entry(change.group, "", entries),
        shared=shared,
        parts=parts,
        prefixes=part.prefixes if part else before.prefixes,
        **{"ends": before.ends if change.is_alike else {}, **change.changes},
    )
    return _without_unused(following)


def next_log(before: Snapshot, this: Commit) -> tuple[Commit, ...]:
    """The log of the snapshot that a commit makes of another one."""
    return (*before.log, this)[-LOG_COMMITS:]


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


def publish_root(base: Base, root: Root, held: Mapping[str, bytes] | None = None) -> Base:
    """Put a root file in the place of another one.

    Parameters
    ----------
    held
        Content of those of its tables that are in memory.

    Raises
    ------
    OvertakenError
        If it is another one by now.
    """
    folder, before = base.folder, base.root
    former: dict[str, bytes] = {}
    if root.snapshot.log[-1].parent == before.snapshot.id and before.format_version > 1:
        kept = Root(before.snapshot, {}, before.created_by).to_bytes()
        former[snapshot_file(before.snapshot.id)] = gzip.compress(kept, mtime=0)
    written = root.to_bytes()
    try:
        version = folder.publish_over(ROOT_FILE, written, base.version, former)
    except OvertakenError:
        # Or it was ourselves: a put whose answer was lost has been repeated.
        content, version = folder.read_version(ROOT_FILE)
        if content != written:
            there = read_base(base.access)
            is_new = root.snapshot.id != before.snapshot.id
            if not (is_new and has_commit(there.root.snapshot, root.snapshot.id)):
                raise
            return there  # and others have committed since
    return Base(base.access, root, version, base.access.opened(root, base.group.parts, held))


@contextmanager
def lease(folder: Folder, name: str) -> Iterator[None]:
    """Show others that the files of a commit are being written."""
    with folder.hold(lease_file(name)):
        yield
