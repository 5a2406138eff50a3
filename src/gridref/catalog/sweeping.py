"""What writers that died left behind, and what nothing needs any more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from gridref.catalog.document import ROOT_FILE, Root
from gridref.catalog.former import root_at, snapshot_file
from gridref.catalog.part_writer import PART_FILE
from gridref.catalog.storage import Folder
from gridref.errors import InvalidRequestError

__all__ = [
    "lease_file",
    "needed_tables",
    "sweep",
    "tables_of",
    "unfinished_prune",
]

_LEASE = re.compile(r"\.commit-([0-9a-f]{16})\.lock$")
_SNAPSHOT = re.compile(r"snapshot-([0-9a-f]{16})\.json\.gz$")


def lease_file(name: str) -> str:
    """The file that is held while a commit is written."""
    return f".commit-{name}.lock"


def sweep(folder: Folder, root: Root) -> None:
    """Remove what commits and prunes of processes that died left behind, where that can be told.

    Parameters
    ----------
    folder, root
        A catalog, and its root file as it was a while ago.
    """
    names = set(folder.names() or ()) if folder.has_locks else set[str]()
    if dead := unfinished_prune(root, names):
        _finish_prune(folder, root, dead, names)
    leases = {file: held[1] for file in names if (held := _LEASE.match(file))}
    free = {file: name for file, name in leases.items() if folder.abandoned(file)}
    if free:
        _sweep_commits(folder, free, names)


def _sweep_commits(folder: Folder, free: Mapping[str, str], names: set[str]) -> None:
    """Remove the tables of commits whose leases nobody holds, by file, and the leases."""
    # Read now: a lease may be free because its commit has just ended well.
    root = Root.from_bytes(folder.read(ROOT_FILE), folder.address(ROOT_FILE))
    committed = {each.id for each in root.snapshot.log}
    for file, name in free.items():
        stated = tables_of(root)
        if name in committed:
            with suppress(InvalidRequestError):  # it was pruned: nothing is told of it any more
                stated |= tables_of(root_at(folder, root, name))
        for part in names - stated:
            match = PART_FILE.match(part)
            if match and match[1] == name:
                folder.remove(part)
        folder.remove(file)


def unfinished_prune(root: Root, names: set[str]) -> list[str]:
    """Snapshots that were pruned by a process that died before all was removed."""
    return [name for name in root.pruned if snapshot_file(name) in names]


def _finish_prune(folder: Folder, root: Root, dead: Iterable[str], names: set[str]) -> None:
    there = (match[1] for file in names if (match := _SNAPSHOT.match(file)))
    live = [root.snapshot.id, *(name for name in there if name not in root.pruned)]
    needed = needed_tables(folder, root, live, names)
    for name in dead:
        try:
            tables = tables_of(root_at(folder, replace(root, pruned=()), name))
        except InvalidRequestError:  # the prune goes on after all
            continue
        for file in (*(tables - needed), snapshot_file(name)):
            folder.remove(file)


def needed_tables(folder: Folder, root: Root, kept: Iterable[str], names: set[str]) -> set[str]:
    """Files of the parts of the snapshots that stay."""
    needed: set[str] = set()
    for name in kept:
        if name == root.snapshot.id or snapshot_file(name) in names:
            needed |= tables_of(root_at(folder, root, name))
    return needed


def tables_of(root: Root) -> set[str]:
    """The files of the parts of a snapshot."""
    return {table.file for part in root.snapshot.parts for table in part.tables}
