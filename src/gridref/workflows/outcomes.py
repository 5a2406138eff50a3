"""Many files scanned in threads, in processes or one after the other: a group or error of each.

Remote files wait for servers, which threads overlap. Local ones need the processor, and another
process only pays off where it saves more than it takes to start.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import batched
from typing import Literal

from gridref.errors import GridrefError, InvalidRequestError
from gridref.formats import ScanOptions
from gridref.formats import scan as scan_file
from gridref.io import (
    MAX_REQUESTS,
    Layouts,
    absolute_url,
    counted_traffic,
    current_traffic,
    is_local,
    learning_layouts,
)
from gridref.model.array import VirtualGroup
from gridref.options import check_choices, refuses_unknown
from gridref.workflows.ahead import daemon_threads, run_ahead

__all__ = ["OnError", "Outcome", "RunOptions", "outcomes"]

OnError = Literal["raise", "skip"]
type Outcome = VirtualGroup | GridrefError
"""A file described, or why it could not be."""

FILES_PER_PROCESS = 2000
"""Starting another process pays off from about so many files on."""
FILES_PER_TASK = 64
"""Files that go to a process at a time: their groups come back with what is alike kept once."""


@refuses_unknown
@dataclass(frozen=True)
class RunOptions:
    """How many files are worked on at a time, and what becomes of those that fail.

    Attributes
    ----------
    max_in_flight
        Most remote files that are scanned at a time, over all processes. Each process sends at
        most 64 requests at a time.
    n_processes
        Processes that scan; None takes one for each core, if there are files enough. More than one
        need a main module that can be imported, as ever with `multiprocessing`.
    on_error
        What becomes of files that cannot be scanned: ``"raise"`` ends the job when all files were
        looked at, with the reasons of all that failed; ``"skip"`` leaves them out and says so.
    max_errors
        With so many failures the job ends at once.

    Raises
    ------
    InvalidRequestError
        For values that cannot be meant.
    """

    max_in_flight: int = MAX_REQUESTS
    n_processes: int | None = 1
    on_error: OnError = "raise"
    max_errors: int = 100

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("max_in_flight", "n_processes", "max_errors"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequestError(f"{name} must be >= 1, got {value}")

    def processes_for(self, n_files: int) -> int:
        """Number of processes to scan so many files in."""
        if self.n_processes is not None:
            return self.n_processes
        return max(1, min(os.cpu_count() or 1, n_files // FILES_PER_PROCESS))


def outcomes(
    addresses: Sequence[str], options: ScanOptions, run: RunOptions
) -> Iterator[tuple[str, Outcome]]:
    """The group or error of each file, in order; a bounded number of files is scanned ahead.

    Errors of the call itself, like a protocol that nobody knows, are raised.
    """
    n_processes = run.processes_for(len(addresses))
    if n_processes > 1:
        results = _in_processes(addresses, options, run.max_in_flight, n_processes)
    else:
        results = _in_threads(addresses, options, run.max_in_flight)
    return zip(addresses, results, strict=True)


def _in_threads(
    addresses: Sequence[str], options: ScanOptions, max_in_flight: int
) -> Iterator[Outcome]:
    """Remote files in threads; where all are local, one after the other."""
    scan_one = partial(_outcome, options=options, layouts=Layouts())
    n_remote = sum(not is_local(absolute_url(address)) for address in addresses)
    n_threads = min(max_in_flight, n_remote)
    if n_threads < 2:
        yield from map(scan_one, addresses)
        return
    with daemon_threads(scan_one, n_threads) as submit:
        yield from run_ahead(submit, addresses, 2 * n_threads)


def _outcome(address: str, options: ScanOptions, layouts: Layouts) -> Outcome:
    try:
        with learning_layouts(layouts):
            return scan_file(address, **vars(options))
    except InvalidRequestError:
        raise
    except GridrefError as error:
        return error


@dataclass(frozen=True)
class _Part:
    """Outcomes of the files that one process scanned, and the requests that it sent."""

    outcomes: list[Outcome]
    n_requests: int
    n_bytes: int


def _in_processes(
    addresses: Sequence[str], options: ScanOptions, max_in_flight: int, n_processes: int
) -> Iterator[Outcome]:
    context = multiprocessing.get_context("spawn")
    traffic = current_traffic()
    pool = ProcessPoolExecutor(n_processes, mp_context=context, initializer=_serve_parent)

    def submit(part: tuple[str, ...]) -> Future[_Part]:
        return pool.submit(_scan_part, part, options, max(1, max_in_flight // n_processes))

    try:
        parts = batched(addresses, FILES_PER_TASK)
        for part in run_ahead(submit, parts, 2 * n_processes):
            traffic.add(part.n_requests, part.n_bytes)
            yield from part.outcomes
    except BaseException:
        _terminate(pool)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _terminate(pool: ProcessPoolExecutor) -> None:
    """End the processes of a pool, whatever they do; Python 3.14 has a call for it."""
    processes = pool._processes or {}  # noqa: SLF001
    for process in list(processes.values()):
        process.terminate()


def _scan_part(addresses: tuple[str, ...], options: ScanOptions, max_in_flight: int) -> _Part:
    with counted_traffic() as traffic:
        results = list(_in_threads(addresses, options, max_in_flight))
    return _Part(results, traffic.n_requests, traffic.n_bytes)


def _serve_parent() -> None:
    """Leave interrupts to the parent process, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
