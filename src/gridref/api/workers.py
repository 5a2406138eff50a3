"""Pools of workers that scan: processes of this machine, or of another package's cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.context import BaseContext
from typing import Any

from gridref import errors
from gridref.errors import InvalidRequestError, Message, Option, SourceUnavailableError
from gridref.extras import needed_for
from gridref.secrets import shown_address

_UNKNOWN_WORKERS = 16
_PRELOADED = ["gridref.formats.hdf5.groups", "gridref.api.scan"]
_RETRIES = 3
"""How often to retry a task after its worker died."""


@contextmanager
def workers(executor: Any) -> Iterator[Pool]:
    """How many workers there are, about, and what gives them work.

    Parameters
    ----------
    executor
        A number of processes, which are started; a `distributed.Client`, a cluster, or the address
        of a Dask scheduler; or any other pool with ``submit``, which is not shut down. On Dask, a
        task whose worker dies is done again by another one.

    Raises
    ------
    InvalidRequestError
        For something else, and workers of another version of gridref.
    MissingPackageError
        If the package of Dask's schedulers is not installed.
    SourceUnavailableError
        If no scheduler answers.
    """
    if isinstance(executor, int):
        with _processes(executor) as pool:
            yield executor, pool
    elif isinstance(executor, str) or _is_of_dask(executor):
        with _dask(executor) as client:
            with told():
                _check_versions(client)
                n_workers = _n_workers(client)
            yield n_workers, client.get_executor(retries=_RETRIES, pure=False)
    elif isinstance(executor, type) or not callable(getattr(executor, "submit", None)):
        raise InvalidRequestError(
            "executor must be a number of processes, the address of a Dask scheduler, or a pool"
            f" with submit(), got {executor!r}"
        )
    else:
        yield getattr(executor, "_max_workers", None) or _UNKNOWN_WORKERS, executor


type Pool = tuple[int, Executor]
"""How many workers there are, about, and what gives them work."""


def is_here(executor: Any) -> bool:
    """Whether an executor that was asked for is this process."""
    return executor is None or (isinstance(executor, int) and executor == 1)


@contextmanager
def pool_of(executor: Any) -> Iterator[Pool | None]:
    """The workers of an executor; None where it is this process."""
    if is_here(executor):
        yield None
        return
    with workers(executor) as pool:
        yield pool


def _is_of_dask(executor: Any) -> bool:
    """Whether it is a `distributed.Client` or a cluster."""
    return hasattr(executor, "scheduler_info") or hasattr(executor, "scheduler_address")


@contextmanager
def _dask(scheduler: Any) -> Iterator[Any]:
    """A client of Dask; one that was made here is closed."""
    with needed_for("a Dask scheduler"):
        from distributed import Client
    if isinstance(scheduler, Client):
        yield scheduler
        return
    address = getattr(scheduler, "scheduler_address", scheduler)
    try:
        client: Any = Client(scheduler, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, RuntimeError) as error:
        raise SourceUnavailableError(
            f"no Dask scheduler answers at {shown_address(address)}: {error}"
        ) from error
    with client:
        yield client


def _n_workers(client: Any) -> int:
    """Threads of all workers; where none are there yet, a guess, and a warning."""
    n_threads = sum(client.nthreads().values())
    if not n_threads:
        warnings.warn(
            "the scheduler has no workers yet: scanning starts when workers have joined",
            skip_file_prefixes=(os.path.dirname(errors.__file__),),
        )
    return n_threads or _UNKNOWN_WORKERS


def _check_versions(client: Any) -> None:
    """Refuse workers of another version: what travels is of this one."""
    # A function of Python's own: workers may lack any of ours.
    try:
        found: dict[str, str] = client.run(version, "gridref")
    except PackageNotFoundError as error:
        raise InvalidRequestError(
            "a worker has no gridref: install the same version everywhere"
        ) from error
    others = {own for own in found.values() if own != version("gridref")}
    if others:
        raise unlike_versions(sorted(others))


def unlike_versions(others: list[str]) -> InvalidRequestError:
    """The error for workers of other versions of gridref."""
    return InvalidRequestError(
        f"a worker has gridref {', '.join(others)}, and this process {version('gridref')}: "
        "install the same version everywhere"
    )


@dataclass(frozen=True)
class Task:
    """What workers do, in messages.

    Attributes
    ----------
    did, over
        What a worker did when it ended, and what it did that over.
    """

    did: str
    over: str
    go_on: str


_SCANNING = Task(
    "scanned",
    "files",
    Message("Build again, with ", Option("work"), " only what is new is scanned"),
)


@contextmanager
def told(files: Sequence[str] = (), task: Task = _SCANNING) -> Iterator[None]:
    """Report errors of workers in our words, with the files concerned."""
    which = f" ({files[0]} … {files[-1]})" if files else ""
    try:
        yield
    except BrokenExecutor as error:
        said = f"a worker process ended while it {task.did}{which}, as when memory runs out. "
        raise SourceUnavailableError(Message(said, task.go_on)) from error
    except _killed() as error:
        raise SourceUnavailableError(
            f"workers died {_RETRIES + 1} times at the same {task.over}{which}, perhaps for lack "
            "of memory: give them more memory, or look at their logs"
        ) from error
    except _lost() as error:
        raise SourceUnavailableError(
            Message("the scheduler or executor stopped: start it again. ", task.go_on)
        ) from error
    except RuntimeError as error:
        if "after shutdown" not in str(error):
            raise
        raise InvalidRequestError("the executor is shut down: give a new one") from error


def _killed() -> tuple[type[Exception], ...]:
    """What Dask raises of a task whose workers died; nothing where it is not in use."""
    dask = sys.modules.get("distributed")
    return () if dask is None else (dask.KilledWorker,)


def _lost() -> tuple[type[BaseException], ...]:
    """What is raised where an executor gives up its tasks, or Dask's scheduler is gone."""
    dask = sys.modules.get("distributed")
    own = () if dask is None else (dask.comm.core.CommClosedError, TimeoutError)
    return (CancelledError, *own)


@contextmanager
def _processes(n_processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with the block, at once if it fails."""
    pool = ProcessPoolExecutor(
        n_processes,
        mp_context=_context(),
        initializer=_serve_parent,
        initargs=(dict(os.environ),),
    )
    try:
        with _interrupts_held():
            pool.submit(os.getpid)  # starts them all
        yield pool
    except BaseException:
        _terminate(pool)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _context() -> BaseContext:
    """How processes are started: as copies of one that has imported what they need, if possible.

    Of this process none are made: it may run threads.
    """
    # Elsewhere the system's own libraries cannot be copied; in a child that was forked, the process
    # to be copied belongs to its parent.
    if sys.platform != "linux" or _serving.setdefault("pid", os.getpid()) != os.getpid():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


_serving: dict[str, int] = {}


def _terminate(pool: ProcessPoolExecutor) -> None:
    """End the processes of a pool, whatever they do; Python 3.14 has a call for it."""
    processes = pool._processes or {}  # noqa: SLF001
    for process in list(processes.values()):
        process.terminate()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Keep an interrupt back until the end; processes that are started are never interrupted.

    They inherit what is held back, and would else end with a traceback while they still import.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve_parent(environment: dict[str, str]) -> None:
    """Take the parent process's environment of now, leave interrupts to it, and end with it."""
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
