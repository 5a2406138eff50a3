"""A commit that records something of chunks beside the parts that hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from gridref.catalog.commits import (
    Access,
    Base,
    commit,
    lease,
    next_log,
    write_errors_told,
)
from gridref.catalog.document import Root
from gridref.catalog.entries import TableEntry
from gridref.catalog.snapshot import Commit
from gridref.catalog.storage import Folder
from gridref.catalog.writer import created_by, may_be_in_use, new_id, now

__all__ = ["WriteTable", "record"]

type WriteTable = Callable[[Folder, str], TableEntry]
"""Writes a table as a file of a folder."""


def record(
    access: Access,
    base: Base | None,
    kind: Literal["checksums", "statistics"],
    scan: Callable[[Base], Mapping[int, WriteTable]],
    message: str,
) -> Base:
    """Record tables of parts, again and again where other writers come between.

    Parameters
    ----------
    access, base
        As for `commit`.
    kind
        What is recorded.
    scan
        Gives the tables, by number of the part; none if there is nothing to add.
    message
        What was scanned, for people.
    """
    name = new_id()
    files: list[str] = []

    def remove() -> None:
        while files:
            access.folder.remove(files.pop())

    def change(base: Base) -> Root | None:
        remove()
        parts = list(base.root.snapshot.parts)
        found = scan(base)
        for number, write in found.items():
            files.append(f"{kind}-{name}-{number}.parquet")
            table: dict[str, Any] = {kind: write(access.folder, files[-1])}
            parts[number] = replace(parts[number], **table)
        before = base.root.snapshot
        this = Commit(name, before.id, now(), kind, message)
        snapshot = replace(before, id=name, log=next_log(before, this), parts=tuple(parts))
        return replace(base.root, snapshot=snapshot, created_by=created_by()) if found else None

    with write_errors_told(access.folder), lease(access.folder, name):
        try:
            return commit(access, change, base)
        except BaseException:
            if not may_be_in_use(access.folder, name):
                remove()
            raise
