"""The snapshots of a catalog: list, tag, roll back and prune them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gridref.catalog.commit import Base, Step, following, tables_of
from gridref.catalog.document import Commit, Pruned, Root, root_at, snapshot_file
from gridref.catalog.folder import Folder
from gridref.catalog.sheet_folders import unneeded_sheets
from gridref.catalog.writing import PART_FILE
from gridref.errors import InvalidRequestError, Message, Option, Place

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*$")


def history(folder: Folder, root: Root) -> Iterator[Commit]:
    """The commits of a catalog, the last one first, as far as they are kept."""
    while True:
        log = root.snapshot.log
        yield from reversed(log)
        if log[0].parent is None:
            return
        try:
            root = root_at(folder, root, log[0].parent)
        except InvalidRequestError:
            return


def tagged(base: Base, name: str, snapshot: str | None) -> Root:
    """Give a snapshot a name; None for the current one."""
    if not _TAG.match(name) or re.fullmatch(r"[0-9a-f]{16}", name):
        raise InvalidRequestError(
            f"a tag may have letters, digits, dots, dashes and underscores only, got {name!r}"
        )
    target = root_at(base.folder, base.root, snapshot or base.root.snapshot.id).snapshot
    return replace(base.root, tags={**base.root.tags, name: target.id})


def untagged(base: Base, name: str) -> Root:
    """Remove a tag."""
    if name not in base.root.tags:
        raise InvalidRequestError(f"no tag {name!r}; there are {', '.join(sorted(base.root.tags))}")
    tags = {tag: snapshot for tag, snapshot in base.root.tags.items() if tag != name}
    return replace(base.root, tags=tags)


def rolled_back(base: Base, to: str | None) -> Root:
    """Make a snapshot that holds what a former one did; None for the one before."""
    target = root_at(base.folder, base.root, to or _one_back(base)).snapshot
    # Former snapshots have no copies of tables. Those of sheets that are still there are known.
    known = {sheet.name: sheet for each in base.root.snapshot.overlays for sheet in each.sheets}
    target = replace(target, overlays=tuple(each.with_copies(known) for each in target.overlays))
    return following(base, target, "rollback", f"to {target.id}", restores=target.id)


def _one_back(base: Base) -> str:
    """The snapshot before the current one; a rollback counts as the snapshot that it restored."""
    parents: dict[str, str | None] = {}
    shown = base.root.snapshot.log[-1].restores or base.root.snapshot.id
    for commit in history(base.folder, base.root):
        parents[commit.id] = commit.parent
        if commit.id == shown:
            break
    parent = parents.get(shown)
    if parent is None:
        raise InvalidRequestError(
            "there is no snapshot before this one", Place(source=base.folder.url)
        )
    return parent


def pruned(base: Base, plan: Pruned) -> Step:
    """Remove what a plan lists, now that the root file says that the snapshots are going."""
    root = replace(base.root, pruned=plan.snapshots)
    return Step(lambda _: root, gone=plan.files)


def prune_plan(base: Base, keep: int, grace_seconds: float) -> Pruned:
    """Find old files that neither recent nor tagged snapshots need, and old snapshots.

    Parameters
    ----------
    keep
        How many of the last snapshots stay.
    grace_seconds
        Least age of a snapshot or file to remove, by the clock of its filesystem.
    """
    if keep < 1:
        raise InvalidRequestError(
            Message(
                "the current snapshot is always kept, so keep must be at least 1, got ",
                Option("keep", keep),
            )
        )
    folder, root = base.folder, base.root
    names = set(folder.names())
    ages = _Ages(folder, grace_seconds)
    kept = dict.fromkeys([root.snapshot.id, *root.tags.values()])
    dead: list[str] = []
    for number, commit in enumerate(history(folder, root)):
        file = snapshot_file(commit.id)
        if number < keep or commit.id in kept or not ages.is_old(file):
            kept[commit.id] = None
        elif file in names:
            dead.append(commit.id)
    # What a prune left that died, where no writer knows of that.
    unfinished = [name for name in root.pruned if snapshot_file(name) in names]
    dead += [name for name in unfinished if name not in dead]
    roots = [
        root_at(folder, root, name)
        for name in kept
        if name == root.snapshot.id or snapshot_file(name) in names
    ]
    needed = {table for each in roots for table in tables_of(each)}
    unneeded = [file for file in sorted(names) if PART_FILE.match(file) and file not in needed]
    old = [file for file in unneeded if ages.is_old(file)]
    options = base.access.storage_options
    sheets = tuple(unneeded_sheets(folder, roots, grace_seconds, options))
    # Snapshots last: while its file exists, the other files to remove are known.
    return Pruned(tuple(dead), (*old, *map(snapshot_file, dead)), sheets)


class _Ages:
    """Ages of files, by the clock of the filesystem that they are on."""

    def __init__(self, folder: Folder, grace_seconds: float) -> None:
        self._folder = folder
        self._grace = grace_seconds

    def is_old(self, file: str) -> bool:
        """Whether a file is known to be older than the time of grace."""
        age = self._folder.age(file)
        return age is not None and age >= self._grace
