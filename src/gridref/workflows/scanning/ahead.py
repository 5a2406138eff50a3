"""Calls made ahead of time: results come in order, and few calls are ahead of their consumer."""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar

__all__ = ["daemon_threads", "run_ahead"]

type _Task = tuple[Future[Any], Callable[[], Any]]


def run_ahead[T, R](
    submit: Callable[[T], Future[R]], items: Iterable[T], n_ahead: int
) -> Iterator[R]:
    """Yield the results of a call for each item, in order, with at most `n_ahead` calls ahead.

    Parameters
    ----------
    submit
        Starts the call for an item somewhere else.
    items
        What the calls are for.
    n_ahead
        Calls that are started before the first result is taken. Those that have not begun when
        the iterator is closed never do.
    """
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(submit(item))
            if len(pending) >= n_ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


@contextmanager
def daemon_threads[T, R](call: Callable[[T], R], n_threads: int) -> Iterator[Callable[[T], Any]]:
    """Threads that call a function on each submitted item, with the submitter's context variables.

    They are daemons, unlike those of `concurrent.futures`: a program that is interrupted ends
    without waiting for the servers that they wait for. Leaving the ``with`` block does not wait
    either.
    """
    crew = _Crew(n_threads)

    def submit(item: T) -> Future[R]:
        future: Future[R] = Future()
        crew.tasks.put((future, partial(copy_context().run, call, item)))
        return future

    try:
        yield submit
    finally:
        crew.stop()


class _Crew:
    """Worker threads, and the queue of their tasks."""

    live: ClassVar[set[_Crew]] = set()

    def __init__(self, n_threads: int) -> None:
        self.tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self.stopped = False
        self.threads = [
            threading.Thread(target=self._work, name=f"gridref-scan-{number}", daemon=True)
            for number in range(n_threads)
        ]
        self.live.add(self)
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Let no thread begin another task."""
        self.live.discard(self)
        self.stopped = True
        for _ in self.threads:
            self.tasks.put(None)

    def _work(self) -> None:
        while (task := self.tasks.get()) is not None and not self.stopped:
            future, call = task
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - raised where it is asked for
                    future.set_exception(error)
            del task, future, call  # results are not kept while the thread waits


def _stop_all() -> None:
    """End idle threads at exit: they must not wake up while the interpreter shuts down."""
    for crew in list(_Crew.live):
        crew.stop()
        for thread in crew.threads:
            thread.join(_PATIENCE_SECONDS / len(crew.threads))


_PATIENCE_SECONDS = 0.5
atexit.register(_stop_all)
