"""Call functions ahead of time in threads, and yield their results in order.

Threads that compute slow each other down. So only as many work at a time as keep the processor
busy, and a thread that waits for a server lets another one work.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from gridref.forks import tell_in_children
from gridref.io.context import waiting, working

# Threads, few of which compute at a time

_LONG_SECONDS = 0.05
"""A thread that works for so long may be waiting for something, and nobody knows."""
_PATIENCE_SECONDS = 0.5

type _Begin = Callable[[Callable[[], None]], None]


@dataclass(eq=False)
class _Task:
    future: Future[Any]
    call: Callable[[], Any]
    begin: _Begin | None

    def run(self) -> None:
        if self.future.set_running_or_notify_cancel():
            try:
                self.future.set_result(self.call())
            except BaseException as error:  # noqa: BLE001 - raised where it is asked for
                self.future.set_exception(error)


class Crew:
    """Threads, started when there is work for them. Thread-safe.

    Parameters
    ----------
    n_threads
        Most threads, and most tasks that are begun and not done.
    n_busy
        Most threads that work at a time, without those that wait for a server or take long.
    """

    _live: ClassVar[set[Crew]] = set()

    def __init__(self, n_threads: int, n_busy: int) -> None:
        self._n_threads, self._most_busy = n_threads, n_busy
        self.after_fork()
        tell_in_children(self)
        self._submitted: deque[_Task] = deque()
        self._ready: deque[_Task] = deque()
        self._n_begun = self._n_busy = self._n_idle = 0
        self._taken_at = 0.0
        self._fills, self._stopped = True, False
        self._live.add(self)

    def after_fork(self) -> None:
        """Forget threads of the parent process, and what they hold."""
        self._threads: set[threading.Thread] = set()
        self._changed = threading.Condition()

    def submit(
        self, future: Future[Any], call: Callable[[], Any], begin: _Begin | None = None
    ) -> None:
        """Set a future by a call; by `begin` is found out first when that can be done."""
        with self._changed:
            if not self._threads:
                self._start()
            self._submitted.append(_Task(future, call, begin))
        self._begin_more()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let another thread work while this one waits for a server."""
        with self._changed:
            self._n_busy -= 1
            self._call_one()
        try:
            yield
        finally:
            with self._changed:
                self._n_busy += 1

    def stop(self) -> None:
        """Let no thread begin another task."""
        self._live.discard(self)
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _begin_more(self) -> None:
        """Begin tasks, several together: what begins them on the event loop is woken up once.

        Not under the lock: to begin may wait for the event loop, which takes it.
        """
        begun = []
        with self._changed:
            self._fills |= self._n_begun <= 3 * self._n_threads // 4
            while self._submitted and self._fills:
                begun.append(self._submitted.popleft())
                self._n_begun += 1
                self._fills = self._n_begun < self._n_threads
        for task in begun:
            self._begin(task, partial(self._is_ready, task))

    @staticmethod
    def _begin(task: _Task, is_ready: Callable[[], None]) -> None:
        if task.begin is None:
            return is_ready()
        try:
            task.begin(is_ready)
        except Exception:  # noqa: BLE001 - the task runs into it, too, and says so
            is_ready()

    def _is_ready(self, task: _Task) -> None:
        with self._changed:
            self._ready.append(task)
            self._call_one()

    def _call_one(self) -> None:
        """Have one more thread work, if there is work for it."""
        if self._stopped or not self._ready:
            return
        if self._n_idle:
            if self._n_busy < self._most_busy:
                self._changed.notify()
        elif len(self._threads) < self._n_threads:
            with suppress(RuntimeError):  # the system allows no more: those that are there do it
                self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name="gridref-scan", daemon=True)
        thread.start()
        self._threads.add(thread)

    def _work(self) -> None:
        while (task := self._taken()) is not None:
            task.run()
            del task  # results are not kept while the thread waits
            with self._changed:
                self._n_busy -= 1
                self._n_begun -= 1
            self._begin_more()

    def _taken(self) -> _Task | None:
        """A task to work on, once there is one; None where the thread is to end."""
        with self._changed:
            while not self._may_take():
                self._n_idle += 1
                was_called = self._changed.wait(_LONG_SECONDS)
                self._n_idle -= 1
                if self._stopped or (not was_called and self._n_idle and not self._may_take()):
                    self._threads.discard(threading.current_thread())
                    return None
            self._n_busy += 1
            self._taken_at = time.monotonic()
            task = self._ready.popleft()
            self._call_one()
            return task

    def _may_take(self) -> bool:
        if self._stopped or not self._ready:
            return False
        is_long = time.monotonic() - self._taken_at > _LONG_SECONDS
        return is_long or self._n_busy < self._most_busy


def _stop_all() -> None:
    """End idle threads at exit: they must not wake up while the interpreter shuts down."""
    for crew in list(Crew._live):  # noqa: SLF001
        crew.stop()
        for thread in list(crew._threads):  # noqa: SLF001
            thread.join(_PATIENCE_SECONDS / crew._n_threads)  # noqa: SLF001


atexit.register(_stop_all)


class DaemonThreads(Executor):
    """Threads as an executor. Calls have the context variables of who submits them.

    They are daemons, unlike those of `concurrent.futures`: a program that is interrupted ends
    without waiting for the servers that they wait for. Leaving the ``with`` block does not wait
    either.

    Parameters
    ----------
    n_threads
        Most calls that are begun and not done.
    n_busy
        Most threads that do not wait for a server; more only where they take long. By default all.
    begin
        Called with the last argument of a call, and with what it calls when the call can be made.
    """

    def __init__(
        self,
        n_threads: int,
        n_busy: int | None = None,
        begin: Callable[[Any, Callable[[], None]], None] | None = None,
    ) -> None:
        self._crew, self._start = Crew(n_threads, n_busy or n_threads), begin

    def submit[**P, R](self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        call = working(waits=self._crew.aside)(fn)
        future: Future[R] = Future()
        started = None if self._start is None else partial(self._start, args[-1])
        self._crew.submit(future, partial(copy_context().run, call, *args, **kwargs), started)
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Let no thread begin another call; do not wait."""
        self._crew.stop()


def map_ahead[T, R](
    executor: Executor, function: Callable[[T], R], items: Iterable[T], n_ahead: int
) -> Iterator[R]:
    """Yield what a function returns for each item, in order, with at most `n_ahead` calls ahead.

    Parameters
    ----------
    executor
        Any `concurrent.futures.Executor`.
    function, items
        What is called, and with what.
    n_ahead
        Calls that are started before the first result is taken. Those that have not begun when
        the iterator is closed never do.
    """
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(executor.submit(function, item))
            if len(pending) >= n_ahead:
                yield _result(pending.popleft())
        while pending:
            yield _result(pending.popleft())
    finally:
        for future in pending:
            future.cancel()


def in_threads[T, R](
    function: Callable[[T], R], items: Collection[T], n_threads: int = 16
) -> Iterator[R]:
    """Yield what a function that waits for servers returns for each item, in order.

    Parameters
    ----------
    n_threads
        Most calls at a time. This thread makes them if that is one, or there is one item.
    """
    n_threads = min(n_threads, len(items))
    if n_threads < 2:
        yield from map(function, items)
        return
    with DaemonThreads(n_threads) as threads:
        yield from map_ahead(threads, function, items, 2 * n_threads)


def _result[R](future: Future[R]) -> R:
    """Wait for a result, and let another thread work meanwhile."""
    with waiting():
        return future.result()
