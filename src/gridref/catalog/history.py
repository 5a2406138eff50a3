"""The snapshots of a catalog: list, tag, roll back and prune them, with the folders of sheets."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from gridref.catalog.commit import Base, Step, following, tables_of
from gridref.catalog.document import Commit, Pruned, Root, root_at, snapshot_file
from gridref.catalog.folder import Folder, open_folder
from gridref.catalog.sheet_entries import INSIDE, NAMES
from gridref.catalog.writing import PART_FILE
from gridref.errors import InvalidRequestError, Message, Option, Place
from gridref.io import is_local

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
        known = ", ".join(sorted(base.root.tags)) or "none"
        raise InvalidRequestError(f"no tag {name!r}; there are {known}")
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

    def is_old(file: str) -> bool:
        age = folder.age(file)
        return age is not None and age >= grace_seconds

    kept = dict.fromkeys([root.snapshot.id, *root.tags.values()])
    dead: list[str] = []
    for number, commit in enumerate(history(folder, root)):
        file = snapshot_file(commit.id)
        if number < keep or commit.id in kept or not is_old(file):
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
    old = [file for file in unneeded if is_old(file)]
    options = base.access.storage_options
    sheets = tuple(unneeded_sheets(folder, roots, grace_seconds, options))
    # Snapshots last: while its file exists, the other files to remove are known.
    return Pruned(tuple(dead), (*old, *map(snapshot_file, dead)), sheets)


# Folders of sheets that no snapshot names

_OBJECT = re.compile(r"c(\.\d+)*|zarr\.json")
"""Names of files in the folder of a sheet, and in those of its levels."""
_LEVEL = re.compile("[1-9][0-9]?")
"""Names of the folders of levels of an overview."""
_DRAFTS = ".gridref-writing"
"""The folder in it of files that are being written."""
SPILL = "spill"
"""The folder in that one of intermediate files."""


type StorageOptions = Mapping[str, Any] | None


def unneeded_sheets(
    folder: Folder, roots: Iterable[Root], grace_seconds: float, storage_options: StorageOptions
) -> Iterator[str]:
    """Folders of sheets below a catalog's that no snapshot names, and that are old enough.

    Folders elsewhere are not looked at: they may be somebody else's.
    """
    named = {
        (each.id, sheet.name)
        for root in roots
        for each in root.snapshot.beside
        for sheet in each.sheets
    }
    if not is_local(folder.url):
        yield from _unneeded_far(folder, named, grace_seconds, storage_options)
        return
    for overlay in _folders(folder.address(INSIDE)):
        for sheet in _folders(overlay.path):
            is_named = (overlay.name, sheet.name) in named
            if not is_named and _age(sheet.path) >= grace_seconds:
                yield f"{INSIDE}/{overlay.name}/{sheet.name}"


def _folders(path: str) -> list[os.DirEntry[str]]:
    """Folders with names as overlays and sheets have them; links are not followed."""
    if os.path.islink(path):
        return []
    with suppress(OSError), os.scandir(path) as found:
        listed = sorted(found, key=lambda each: each.name)
        return [e for e in listed if NAMES.fullmatch(e.name) and e.is_dir(follow_symlinks=False)]
    return []


def _age(path: str) -> float:
    """Seconds since anything in a folder, or in those of its levels, was written."""
    newest = os.stat(path).st_mtime
    for folder in (path, *_levels(path)):
        with os.scandir(folder) as found:
            for entry in found:
                newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
    return time.time() - newest


def _unneeded_far(
    folder: Folder,
    named: Container[tuple[str, str]],
    grace_seconds: float,
    storage_options: StorageOptions,
) -> Iterator[str]:
    """The same on an object store, whose objects have to be known to be old."""
    names = partial(_names_far, folder, storage_options)
    for overlay in filter(NAMES.fullmatch, names(INSIDE)):
        for sheet in filter(NAMES.fullmatch, names(f"{INSIDE}/{overlay}")):
            path = f"{INSIDE}/{overlay}/{sheet}"
            if (overlay, sheet) not in named:
                held = (path, *_levels_far(folder, storage_options, path))
                ages = [
                    folder.age(f"{each}/{name}")
                    for each in held
                    for name in filter(_OBJECT.fullmatch, names(each))
                ]
                if ages and all(age is not None and age >= grace_seconds for age in ages):
                    yield path


def _names_far(folder: Folder, storage_options: StorageOptions, path: str) -> list[str]:
    """Names of what is in a folder below a catalog's, on an object store."""
    return sorted(open_folder(folder.address(path), storage_options).names())


def _levels(path: str) -> list[str]:
    """Folders of the levels of a sheet; links are not followed."""
    with os.scandir(path) as found:
        return [
            each.path
            for each in found
            if _LEVEL.fullmatch(each.name) and each.is_dir(follow_symlinks=False)
        ]


def _levels_far(folder: Folder, storage_options: StorageOptions, sheet: str) -> list[str]:
    """Folders of the levels of a sheet on an object store."""
    names = _names_far(folder, storage_options, sheet)
    return [f"{sheet}/{name}" for name in filter(_LEVEL.fullmatch, names)]


def remove_sheets(folder: Folder, sheets: Iterable[str], storage_options: StorageOptions) -> None:
    """Remove folders of sheets with what writers put there; other files stay, with the folder."""
    for sheet in sheets:
        if not is_local(folder.url):
            for path in (sheet, *_levels_far(folder, storage_options, sheet)):
                for name in filter(_OBJECT.fullmatch, _names_far(folder, storage_options, path)):
                    folder.remove(f"{path}/{name}")
            continue
        path = folder.address(sheet)
        with suppress(OSError):
            for level in _levels(path):
                _remove_objects(level)
                with suppress(OSError):
                    os.rmdir(level)
            _remove_objects(path)
            os.rmdir(path)
            os.rmdir(os.path.dirname(path))
            os.rmdir(os.path.dirname(os.path.dirname(path)))


def _remove_objects(path: str) -> None:
    """Remove the files of an array, and what killed runs were writing."""
    for name in os.listdir(path):
        drafts = os.path.join(path, _DRAFTS)
        if _OBJECT.fullmatch(name):
            os.unlink(os.path.join(path, name))
        elif name == _DRAFTS and not os.path.islink(drafts):
            shutil.rmtree(os.path.join(drafts, SPILL), ignore_errors=True)
            for draft in os.listdir(drafts):
                os.unlink(os.path.join(drafts, draft))
            os.rmdir(drafts)
