"""Scan files: one by one, in threads, or in processes.

For remote files, threads wait for servers at the same time. Local files need the processor: other
processes help only if they save more than they take to start. `outcomes` yields a group or an
error for each file; the calls `scan` and `scan_many` raise one error for all that
fail.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from itertools import batched
from typing import Any, Literal

from gridref.api.kept_scans import KeptScans
from gridref.api.readable import Sources, readable
from gridref.errors import (
    FilesFailedError,
    GridrefError,
    InvalidRequestError,
    Message,
    Option,
    Place,
    SourceUnavailableError,
)
from gridref.formats import ScanOptions, data_names, expand_files, first_bytes, scan_with
from gridref.io import (
    MAX_REQUESTS,
    Beginnings,
    DataNames,
    Layouts,
    absolute_url,
    counted_traffic,
    current_traffic,
    is_local,
    naming_near_paths,
    working,
)
from gridref.io.ahead import DaemonThreads, map_ahead
from gridref.model.array import VirtualGroup
from gridref.model.manifest import Source
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.options import Shown, check_choices, options_of, refuses_unknown, verb

# A group or an error for each file

__version__ = version("gridref")


OnError = Literal["raise", "skip"]
type Outcome = VirtualGroup | GridrefError
"""The group of a scanned file, or the error."""

_AGGREGATION = {"aggregated_dimensions", "aggregated_data"}
"""The attributes of CF aggregation variables."""

FILES_PER_PROCESS = 2000
"""Number of files for which another process pays off."""
FILES_PER_TASK = 64
"""Files that go to a process at a time: their groups come back with what is alike kept once."""
_TASKS_PER_WORKER = 4
"""Tasks are larger where each worker still gets so many: what one that dies was doing is lost."""


@refuses_unknown
@dataclass(frozen=True, repr=False)
class RunOptions(Shown):
    """How many files are scanned at a time, and what happens to files that fail.

    Attributes
    ----------
    max_in_flight
        Maximum number of remote files that are scanned at a time, by all processes together. Each
        process sends at most 64 requests at a time.
    executor
        What scans the files. A number of processes; None takes one for each core, if there are
        enough files.
        Several processes need a main module that can be imported, as always with `multiprocessing`.
        Or the address of a Dask scheduler, a `distributed.Client` or a cluster, whose workers scan.
        Or a `concurrent.futures.Executor`, also of Ray, Lithops or MPI pools with that interface.
        It is not shut down.
    on_error
        What to do with files that cannot be scanned. ``"raise"``: try all files, then raise an
        error that lists every failure. ``"skip"``: leave the file out and report it.
    max_errors
        Number of failures at which the job ends at once.
    work
        Local folder to keep the results of scans in. The next run scans only files that are new or
        changed, by their size and ETag or time of change.

    Raises
    ------
    InvalidRequestError
        For values that make no sense.
    """

    max_in_flight: int = MAX_REQUESTS
    executor: Any = field(default=1, hash=False)
    on_error: OnError = "raise"
    max_errors: int = 100
    work: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_choices(self)
        if self.work is not None:
            object.__setattr__(self, "work", os.path.abspath(os.fspath(self.work)))
        for name in ("max_in_flight", "executor", "max_errors"):
            value = getattr(self, name)
            if isinstance(value, int) and value < 1:
                raise InvalidRequestError(Message(Option(name, value), " must be >= 1"))

    def executor_for(self, n_files: int) -> Any:
        """Who scans this number of files: a number of processes, or what was given."""
        if self.executor is not None:
            return self.executor
        return max(1, min(os.cpu_count() or 1, n_files // FILES_PER_PROCESS))

    def on_worker(self) -> RunOptions:
        """The options as they travel to a worker."""
        return replace(self, executor=1)

    def is_elsewhere(self, n_files: int) -> bool:
        """Whether this number of files is scanned in other processes."""
        return bool(self.executor_for(n_files) != 1)


def outcomes(
    addresses: Sequence[str], options: ScanOptions, run: RunOptions
) -> Iterator[tuple[str, Outcome]]:
    """The group or error of each file, in order; a bounded number of files is scanned ahead.

    Errors of the call itself, like a protocol that nobody knows, are raised.
    """
    if run.is_elsewhere(len(addresses)):
        results = _elsewhere(addresses, options, run)
    else:
        results = _in_threads(addresses, options, run.max_in_flight, run.work)
    return zip(addresses, results, strict=True)


def scan_described(address: str | os.PathLike[str], options: ScanOptions) -> VirtualGroup:
    """Describe a file, and those that its aggregation variables name; raises as `scan` does."""
    group = scan_with(address, options)
    if all(_AGGREGATION.isdisjoint(array.attrs) for array in group.all_arrays().values()):
        return group
    from gridref.api.aggregations import with_aggregations  # few files need what it imports

    return with_aggregations(group, os.fspath(address), options, _scan_fragments)


def _scan_fragments(addresses: Sequence[str], options: ScanOptions) -> Iterator[Outcome]:
    """Scan the files of fragments, without resolving aggregations in them."""
    return _in_threads(addresses, options, MAX_REQUESTS, None, scan_with)


def _in_threads(
    addresses: Sequence[str],
    options: ScanOptions,
    max_in_flight: int,
    work: str | os.PathLike[str] | None,
    scan: Callable[[str, ScanOptions], VirtualGroup] = scan_described,
) -> Iterator[Outcome]:
    """Remote files in threads; where all are local, one after the other."""
    kept = None if work is None else KeptScans(os.fspath(work), options)
    layouts = Layouts()
    ahead = Beginnings(options.storage_options, layouts)
    scan_one = partial(
        _outcome, options=options, layouts=layouts, ahead=ahead, kept=kept, scan=scan
    )
    n_remote = sum(not is_local(absolute_url(address)) for address in addresses)
    n_threads = min(max_in_flight, n_remote)
    if n_threads < 2:
        yield from map(scan_one, addresses)
        return
    if options.parser is not None:  # nobody knows what it reads, and when it waits
        n_busy, begin = n_threads, None
    else:
        n_busy, begin = 1, partial(_ask_ahead, ahead=ahead, kept=kept, names=data_names())
    with DaemonThreads(n_threads, n_busy, begin) as threads:
        yield from map_ahead(threads, scan_one, addresses, 2 * n_threads)


def _ask_ahead(
    address: str,
    then: Callable[[], None],
    *,
    ahead: Beginnings,
    kept: KeptScans | None,
    names: DataNames,
) -> None:
    """Ask for the beginning of a file that will surely be opened."""
    if names.is_folder(absolute_url(address)) or (kept is not None and kept.may_have(address)):
        then()
    else:
        ahead.ask(address, then, first_bytes(address))


def _outcome(
    address: str,
    options: ScanOptions,
    layouts: Layouts,
    ahead: Beginnings,
    kept: KeptScans | None,
    scan: Callable[[str, ScanOptions], VirtualGroup],
) -> Outcome:
    try:
        known = None if kept is None else kept.get(address)
        if known is not None:
            return known
        opened: dict[str, Source | None] = {}
        started = time.perf_counter()
        with working(layouts=layouts, beginning=ahead.take, opened=opened):
            group = scan(address, options)
        if kept is not None:
            kept.put(address, opened, group, time.perf_counter() - started)
        return group
    except InvalidRequestError:
        raise
    except GridrefError as error:
        return error


@dataclass(frozen=True)
class _Done[T]:
    """What a task gave that ran elsewhere, its requests, and its version of gridref."""

    result: T
    n_requests: int
    n_bytes: int
    version: str


def each_part[T](
    addresses: Sequence[str],
    run: RunOptions,
    task: Callable[[tuple[str, ...], int], T],
    max_files: int | None = None,
) -> Iterator[tuple[tuple[str, ...], T]]:
    """Work on files elsewhere, some at a time: in processes, or on the workers of an executor.

    Parameters
    ----------
    addresses, run
        The files, and who works on them.
    task
        Called there with some files and how many of them may be in flight. It travels.
    max_files
        Most files of a task, where there are enough for all workers; by default few.

    Yields
    ------
    tuple
        Files, and what the task gave for them, in order.

    Raises
    ------
    InvalidRequestError
        If a worker has another version of gridref.
    """
    from gridref.api.workers import told, unlike_versions, workers  # multiprocessing is much

    traffic = current_traffic()
    with workers(run.executor_for(len(addresses))) as (n_workers, pool):
        max_in_flight = max(1, run.max_in_flight // n_workers)
        fair = len(addresses) // (_TASKS_PER_WORKER * n_workers)
        n_files = max(FILES_PER_TASK, min(max_files or FILES_PER_TASK, fair))
        parts = list(batched(addresses, n_files))
        counted = partial(_counted, task, max_in_flight)
        done_ahead = map_ahead(pool, counted, parts, 2 * n_workers)
        for part in parts:
            with told(part):
                done = next(done_ahead)
            if done.version != __version__:
                raise unlike_versions([done.version])
            traffic.add(done.n_requests, done.n_bytes)
            yield part, done.result


def _counted[T](
    task: Callable[[tuple[str, ...], int], T], max_in_flight: int, part: tuple[str, ...]
) -> _Done[T]:
    with counted_traffic() as traffic:
        result = task(part, max_in_flight)
    return _Done(result, traffic.n_requests, traffic.n_bytes, __version__)


def _elsewhere(
    addresses: Sequence[str], options: ScanOptions, run: RunOptions
) -> Iterator[Outcome]:
    task = partial(scan_here, options=options, work=run.work)
    for _, outcomes_of_part in each_part(addresses, run, task):
        yield from outcomes_of_part


def scan_here(
    addresses: tuple[str, ...],
    max_in_flight: int,
    *,
    options: ScanOptions,
    work: str | os.PathLike[str] | None,
) -> list[Outcome]:
    """The group or error of each file, scanned in this process."""
    return list(_in_threads(addresses, options, max_in_flight, work))


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
    with naming_near_paths(absolute_url(file)):
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
