"""The public functions `scan` and `scan_many`.

They take what `gridref.api.outcomes` yields for each file, and raise one error for all that fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gridref.api.outcomes import RunOptions, outcomes, scan_described
from gridref.api.readable import Sources, readable
from gridref.errors import (
    FilesFailedError,
    GridrefError,
    Message,
    Option,
    Place,
    SourceUnavailableError,
)
from gridref.formats import ScanOptions, expand_files
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.options import options_of, verb

# Failures: collected, and reported together at the end


class Failures:
    """Files that could not be scanned, each with its reason.

    Parameters
    ----------
    options
        Whether they end the job, and how many are too many.
    can_skip
        Whether the call has these options, so that an error may name them.
    """

    def __init__(self, options: RunOptions, *, can_skip: bool = True) -> None:
        self._options = options
        self._can_skip = can_skip
        self._found: list[tuple[str, GridrefError]] = []

    @property
    def fatal(self) -> bool:
        """Whether the job will end with an error: what is scanned from now on is not needed."""
        return bool(self._found) and self._options.on_error == "raise"

    def add(self, address: str, error: GridrefError) -> None:
        """Note a failure.

        Raises
        ------
        GridrefError
            If there are ``max_errors`` by now: something is wrong with the job and not with a file.
        """
        if self._options.is_elsewhere(1) and _is_about_workers(error, address):
            error.reason += "; it is here: workers must see the same files under the same names"
        self._found.append((address, error))
        if len(self._found) >= self._options.max_errors:
            self._raise(
                Message(
                    "the job stopped at this number (",
                    Option("max_errors", self._options.max_errors),
                    ")",
                )
            )

    def close(self, n_files: int) -> None:
        """End the job with an error if it must: all of `n_files` were tried.

        Raises
        ------
        GridrefError
            The failure, or a `FilesFailedError` with all, if they end the job or nothing is left.
        """
        if self._found and (self.fatal or len(self._found) == n_files):
            others_are_fine = len(self._found) < n_files
            self._raise(f"of {n_files} files", hint=others_are_fine and self._can_skip)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The failures as entries of a scan report."""
        return tuple(
            Finding("/", Fate.FAILED, _reason(error, address), address)
            for address, error in self._found
        )

    def _raise(self, why: str, *, hint: bool = False) -> None:
        errors = [error.located(Place(source=address)) for address, error in self._found]
        if len(errors) > 1:
            remedy = Message("; ", Option("on_error", "skip"), " leaves them out and reports them")
            raise FilesFailedError(errors, Message(why, remedy) if hint else why)
        if hint:
            errors[0].reason = Message(
                errors[0].reason,
                "; ",
                Option("on_error", "skip"),
                f" leaves it out {why} and reports it",
            )
        raise errors[0]


def _is_about_workers(error: GridrefError, address: str) -> bool:
    """Whether a worker does not read a local file that this process does."""
    return isinstance(error, SourceUnavailableError) and os.access(address, os.R_OK)


def _reason(error: GridrefError, address: str) -> str:
    """The message without the address of the file, which is reported beside it."""
    if error.place.source != address:
        return error.message
    where = str(replace(error.place, source=None))
    return Message(error.reason, f" [{where}]") if where else error.reason


# The calls `scan` and `scan_many`

Address = str | os.PathLike[str]
"""A local path, or a URL that fsspec opens."""
Files = Address | Iterable[Address]
"""Paths, URLs, globs or directories."""
Progress = Callable[[int, int], None]
"""Called with how much is done, and of how much."""


@verb(ScanOptions)
def scan(
    file: Address, *, storage_options: Mapping[str, Any] | None = None, **options: Any
) -> VirtualGroup:
    """Scan a file: find its arrays and their chunks, without copying them.

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
        Its ``report`` lists every object found: taken, inlined, or skipped and why. A corrupt array
        that no other array depends on is left out, and a `LeftOutWarning` names it.

    Raises
    ------
    SourceFormatError
        If the file is of no known format, is truncated or corrupt.
    UnsupportedFeatureError
        If an object cannot be served faithfully.
    SourceUnavailableError
        If the file does not exist or cannot be read.
    """
    settings = ScanOptions(**options, storage_options=storage_options)
    group = scan_described(file, settings)
    _warn_of_left_out(group.report.with_fate(Fate.DAMAGED))
    return readable(group, Sources(storage_options))


@verb(RunOptions, ScanOptions)
def scan_many(
    files: Files,
    *,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> list[VirtualGroup]:
    """Scan files, and return a group for each, in order.

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
        out of the list, and a `LeftOutWarning` lists them with the reasons.

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
    _warn_of_left_out(failures.findings)
    return groups


def _warn_of_left_out(findings: Sequence[Finding]) -> None:
    if findings:
        from gridref.api.summary import warn_of_left_out

        warn_of_left_out(ScanReport(tuple(findings)))


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
        Collects the files that could not be scanned.

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
