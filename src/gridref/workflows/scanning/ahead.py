"""Calls made ahead of time: results come in order, and few calls are ahead of their consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any

from gridref.io import tell_waits
from gridref.workflows.scanning.crew import Crew

__all__ = ["daemon_threads", "run_ahead"]


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
def daemon_threads[T, R](
    call: Callable[[T], R],
    n_threads: int,
    n_busy: int | None = None,
    begin: Callable[[T, Callable[[], None]], None] | None = None,
) -> Iterator[Callable[[T], Any]]:
    """Threads that call a function on each submitted item, with the submitter's context variables.

    They are daemons, unlike those of `concurrent.futures`: a program that is interrupted ends
    without waiting for the servers that they wait for. Leaving the ``with`` block does not wait
    either.

    Parameters
    ----------
    call
        Called with an item.
    n_threads
        Most items that are begun and not done.
    n_busy
        Most threads that do not wait for a server; more only where they take long. By default all.
    begin
        Called with an item and with what it calls when the item can be worked on.
    """
    crew = Crew(n_threads, n_busy or n_threads)

    def submit(item: T) -> Future[R]:
        context = copy_context()
        tell_waits(context, crew.aside)
        future: Future[R] = Future()
        started = None if begin is None else partial(begin, item)
        crew.submit(future, partial(context.run, call, item), started)
        return future

    try:
        yield submit
    finally:
        crew.stop()
