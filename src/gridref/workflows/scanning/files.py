"""Files described: one of them, or many, several at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gridref.errors import GridrefError
from gridref.formats import ScanOptions, expand_files
from gridref.model.array import VirtualGroup
from gridref.options import options_of, verb
from gridref.workflows.reading import Sources, readable
from gridref.workflows.scanning.failures import Failures
from gridref.workflows.scanning.outcomes import RunOptions, outcomes, scan_described

__all__ = ["Address", "Files", "Progress", "scan", "scan_each", "scan_many"]

Address = str | os.PathLike[str]
"""A local path, or a URL that fsspec opens."""
Files = Address | Iterable[Address]
"""Paths, URLs, globs or directories."""
Progress = Callable[[int, int], None]
"""Called with how much is done, and of how much."""


@verb(ScanOptions, renamed={"url": "file"}, positional=("storage_options", "on_unsupported"))
def scan(
    file: Address, *, storage_options: Mapping[str, Any] | None = None, **options: Any
) -> VirtualGroup:
    """Describe a file: where its arrays' chunks lie, without copying them.

    Parameters
    ----------
    file
        A local path or any URL that fsspec opens.
    storage_options
        Options of fsspec's filesystem of a remote file, or of several by protocol:
        ``{"s3": {"anon": True}}``.
    **options
        Fields of `ScanOptions`, like ``on_unsupported="skip"``.

    Returns
    -------
    VirtualGroup
        With a ``report`` of every object found: taken, inlined, or skipped and why.

    Raises
    ------
    SourceFormatError
        If the file is of no known format, is truncated or corrupt.
    UnsupportedFeatureError
        If an object cannot be served faithfully.
    SourceUnavailableError
        If the file is not there or cannot be read.
    """
    settings = ScanOptions(**options, storage_options=storage_options)
    return readable(scan_described(file, settings), Sources(storage_options))


@verb(RunOptions, ScanOptions, renamed={"urls": "files"})
def scan_many(
    files: Files,
    *,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> list[VirtualGroup]:
    """Describe files, one group each, in their order.

    Parameters
    ----------
    files
        Paths, URLs, globs or directories.
    storage_options
        Options of fsspec's filesystem of remote files, or of several by protocol:
        ``{"s3": {"anon": True}}``.
    progress
        Called with the number of files done, and of all files.
    **options
        Fields of `RunOptions`, like ``max_in_flight=16``, and of `ScanOptions`, like
        ``on_unsupported="skip"``. With ``on_error="skip"`` files that cannot be scanned are left
        out of the list, and a `SkippedFilesWarning` says which and why.

    Raises
    ------
    InvalidRequestError
        If a path or pattern matches nothing.
    ScanError, SourceUnavailableError
        As `scan` raises them, if one file fails.
    FilesFailedError
        With the reasons of all, if several do.
    """
    addresses = expand_files(files, storage_options)
    settings = ScanOptions(**options_of(ScanOptions, options), storage_options=storage_options)
    run = RunOptions(**options_of(RunOptions, options))
    failures = Failures(run)
    sources = Sources(storage_options)
    scanned = scan_each(addresses, settings, run, failures=failures, progress=progress)
    groups = [readable(group, sources) for _, group in scanned]
    failures.warn()
    return groups


def scan_each(
    addresses: Sequence[str],
    options: ScanOptions,
    run: RunOptions | None = None,
    *,
    failures: Failures | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[str, VirtualGroup]]:
    """Scan files, several at a time; yield (address, group) in order, without those that failed.

    Parameters
    ----------
    addresses, options, run, progress
        As for `scan_many`.
    failures
        Where those are noted that could not be.

    Raises
    ------
    GridrefError
        As `Failures.add` and `Failures.close` do.
    """
    run = run or RunOptions()
    failures = failures or Failures(run, can_skip=False)
    done = 0
    for done, (address, outcome) in enumerate(outcomes(addresses, options, run), start=1):
        if isinstance(outcome, GridrefError):
            failures.add(address, outcome)
        if progress is not None:
            progress(done, len(addresses))
        if not isinstance(outcome, GridrefError) and not failures.fatal:
            yield address, outcome
    failures.close(done)
