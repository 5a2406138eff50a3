"""Pools of workers that scan: processes of this machine, or those of another package's cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor, ProcessPoolExecutor
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gridref.errors import InvalidRequestError, SourceUnavailableError
from gridref.extras import missing_package

__all__ = ["unlike_versions", "workers"]

_UNKNOWN_WORKERS = 16
_RETRIES = 3
"""How often a task is done again of which the worker died."""


@contextmanager
def workers(
    n_processes: int, executor: Executor | None = None, scheduler: Any = None
) -> Iterator[tuple[int, Executor]]:
    """How many workers there are, about, and what gives them work.

    Parameters
    ----------
    n_processes
        Processes that are started if there is neither an executor nor a scheduler.
    executor
        Taken as it is; it is not shut down.
    scheduler
        A `distributed.Client`, or the address of a scheduler. A task whose worker dies is done
        again by another one.

    Raises
    ------
    MissingPackageError
        If the package of Dask's schedulers is not installed.
    SourceUnavailableError
        If no scheduler answers.
    """
    if executor is not None:
        yield getattr(executor, "_max_workers", None) or _UNKNOWN_WORKERS, executor
    elif scheduler is not None:
        with _dask(scheduler) as client, _told(client):
            _check_versions(client)
            n_workers = sum(client.nthreads().values()) or _UNKNOWN_WORKERS
            yield n_workers, client.get_executor(retries=_RETRIES, pure=False)
    else:
        with _processes(n_processes) as pool:
            yield n_processes, pool


@contextmanager
def _dask(scheduler: Any) -> Iterator[Any]:
    """A client; one that was made for an address is closed."""
    try:
        from distributed import Client
    except ImportError as error:
        raise missing_package("a Dask scheduler", error) from error
    if not isinstance(scheduler, str):
        yield scheduler
        return
    try:
        client: Any = Client(scheduler)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise SourceUnavailableError(f"no scheduler answers at {scheduler}: {error}") from error
    with client:
        yield client


def _check_versions(client: Any) -> None:
    """Refuse workers of another version: what travels is of this one."""
    # A function of Python's own: workers may lack any of ours.
    try:
        found: dict[str, str] = client.run(version, "gridref")
    except PackageNotFoundError as error:
        raise InvalidRequestError("a worker has no gridref: install the same everywhere") from error
    others = {own for own in found.values() if own != version("gridref")}
    if others:
        raise unlike_versions(sorted(others))


def unlike_versions(others: list[str]) -> InvalidRequestError:
    """The error for workers of other versions of gridref."""
    return InvalidRequestError(
        f"a worker has gridref {', '.join(others)}, and this process {version('gridref')}: install"
        " the same everywhere"
    )


@contextmanager
def _told(client: Any) -> Iterator[None]:
    """Say in our words what becomes of a cluster."""
    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    address = client.scheduler_info(n_workers=0).get("address", "")
    try:
        yield
    except KilledWorker as error:
        raise SourceUnavailableError(
            f"workers died over the same files {_RETRIES + 1} times, as when memory runs out: give"
            f" them more, or look at their logs ({error})"
        ) from error
    except (CancelledError, CommClosedError, TimeoutError) as error:
        raise SourceUnavailableError(
            f"the scheduler {address} went away: {str(error) or type(error).__name__}; start it"
            " again and build again, with work= only what is new is scanned"
        ) from error


@contextmanager
def _processes(n_processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with the block, at once if it fails."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(n_processes, mp_context=context, initializer=_serve_parent)
    try:
        yield pool
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


def _serve_parent() -> None:
    """Leave interrupts to the parent process, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
