"""A commit that records statistics of chunks beside the parts that hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from gridref.catalog.commits import (
    Access,
    Base,
    commit,
    lease,
    may_be_current,
    next_log,
    write_errors_told,
)
from gridref.catalog.document import Root
from gridref.catalog.snapshot import Commit
from gridref.catalog.statistics import ChunkStatistics, write_statistics
from gridref.catalog.writer import created_by, new_id, now

__all__ = ["record_statistics"]


def record_statistics(
    access: Access,
    base: Base | None,
    scan: Callable[[Base], Mapping[int, ChunkStatistics]],
    message: str,
) -> Base:
    """Record statistics, again and again where other writers come between.

    Parameters
    ----------
    access, base
        As for `commit`.
    scan
        Gives the statistics of all chunk rows of parts, by number of the part; none if there is
        nothing to add.
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
        for number, statistics in found.items():
            files.append(f"statistics-{name}-{number}.parquet")
            entry = write_statistics(access.folder, files[-1], statistics)
            parts[number] = replace(parts[number], statistics=entry)
        before = base.root.snapshot
        this = Commit(name, before.id, now(), "statistics", message)
        snapshot = replace(before, id=name, log=next_log(before, this), parts=tuple(parts))
        return replace(base.root, snapshot=snapshot, created_by=created_by()) if found else None

    with write_errors_told(access.folder), lease(access.folder, name):
        try:
            return commit(access, change, base)
        except BaseException:
            if not may_be_current(access.folder, name):
                remove()
            raise
