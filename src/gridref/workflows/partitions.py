"""Files that are combined where they are scanned: what comes back is columns, not files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from gridref.combine import (
    BATCH_GROUPS,
    Combination,
    CombinedPart,
    CombineOptions,
    combine_part,
    combine_parts,
)
from gridref.errors import GridrefError
from gridref.formats import ScanOptions
from gridref.io import keeps_at_hand
from gridref.workflows.opening import reader_for
from gridref.workflows.scanning.failures import Failures
from gridref.workflows.scanning.files import Progress
from gridref.workflows.scanning.outcomes import RunOptions, each_part, scan_here

__all__ = ["combine_elsewhere"]


@dataclass(frozen=True)
class _Partition:
    """Neighbouring files combined, and those that could not be scanned.

    Attributes
    ----------
    part
        None if no file could be scanned, or one that could not ends the job.
    failed
        Addresses and errors.
    """

    part: CombinedPart | None
    failed: tuple[tuple[str, GridrefError], ...]


def combine_elsewhere(
    addresses: Sequence[str],
    dim: str,
    scanning: ScanOptions,
    rules: CombineOptions,
    run: RunOptions,
    *,
    failures: Failures,
    progress: Progress | None = None,
) -> Combination:
    """Scan files and combine them along a dimension, neighbours where they are scanned.

    Parameters
    ----------
    addresses, dim, scanning, rules, run
        The files, the dimension and all options. `rules` travel, so that they hold no functions.
    failures
        Where those are noted that could not be scanned.
    progress
        Called with the number of files done, and of all files.

    Raises
    ------
    GridrefError
        As `gridref.workflows.scanning.files.scan_each` does.
    """
    task = partial(_combine_here, dim=dim, scanning=scanning, rules=rules, run=run.on_worker())
    found = each_part(addresses, run, task, BATCH_GROUPS)

    def parts() -> Iterator[CombinedPart]:
        n_done = 0
        for files, partition in found:
            for address, error in partition.failed:
                failures.add(address, error)
            n_done += len(files)
            if progress is not None:
                progress(n_done, len(addresses))
            if partition.part is not None and not failures.fatal:
                yield partition.part
        failures.close(n_done)

    read = reader_for(scanning.storage_options).read
    return combine_parts(parts(), dim, read=read, options=rules)


@keeps_at_hand
def _combine_here(
    addresses: tuple[str, ...],
    max_in_flight: int,
    *,
    dim: str,
    scanning: ScanOptions,
    rules: CombineOptions,
    run: RunOptions,
) -> _Partition:
    found = scan_here(addresses, max_in_flight, options=scanning, work=run.work)
    pairs = list(zip(addresses, found, strict=True))
    failed = tuple((address, own) for address, own in pairs if isinstance(own, GridrefError))
    groups = [own for _, own in pairs if not isinstance(own, GridrefError)]
    if not groups or (failed and run.on_error == "raise"):
        return _Partition(None, failed)
    read = reader_for(scanning.storage_options).read
    return _Partition(combine_part(groups, dim, read=read, options=rules), failed)
