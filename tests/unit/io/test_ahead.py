"""Threads of a crew: few work at a time, others wait for servers, and nothing waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from gridref.io import ahead
from gridref.io.ahead import Crew, DaemonThreads, in_threads

_TIMEOUT = 20


@contextmanager
def crew_of(n_threads: int, n_busy: int) -> Iterator[Crew]:
    crew = Crew(n_threads, n_busy)
    try:
        yield crew
    finally:
        crew.stop()


def submitted(crew: Crew, call: Callable[[], Any], *begin: Any) -> Future[Any]:
    future: Future[Any] = Future()
    crew.submit(future, call, *begin)
    return future


def results(futures: list[Future[Any]]) -> list[Any]:
    return [future.result(_TIMEOUT) for future in futures]


def test_tasks_that_need_the_processor_are_done_one_after_the_other() -> None:
    lock, most = threading.Lock(), []

    def work() -> None:
        most.append(lock.acquire(blocking=False))
        lock.release()

    with crew_of(8, 1) as crew:
        results([submitted(crew, work) for _ in range(100)])
    assert all(most)


def test_whoever_waits_for_a_server_lets_others_work() -> None:
    together = threading.Barrier(6, timeout=_TIMEOUT)

    def work() -> None:
        with crew.aside():
            together.wait()

    # No more than six: when one of many ends, a crew waits for a second one before it begins more.
    with crew_of(6, 1) as crew:
        results([submitted(crew, work) for _ in range(6)])


def test_whoever_waits_and_does_not_say_so_holds_nobody_up_for_long() -> None:
    together = threading.Barrier(3, timeout=_TIMEOUT)
    with crew_of(3, 1) as crew:
        results([submitted(crew, together.wait) for _ in range(3)])


def test_no_more_tasks_are_begun_than_there_may_be_threads() -> None:
    begun: list[Callable[[], None]] = []
    with crew_of(4, 1) as crew:
        futures = [submitted(crew, lambda: None, begun.append) for _ in range(6)]
        assert len(begun) == 4
        for number in range(6):
            begun[number]()
            futures[number].result(_TIMEOUT)
    assert len(begun) == 6


def test_a_failure_is_the_result_of_its_task_alone() -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    with crew_of(2, 1) as crew:
        failed, done = submitted(crew, fail), submitted(crew, lambda: 1)
        assert isinstance(failed.exception(_TIMEOUT), KeyboardInterrupt)
        assert done.result(_TIMEOUT) == 1


def test_after_the_end_nothing_is_begun() -> None:
    with crew_of(2, 1) as crew:
        pass
    future = submitted(crew, lambda: 1)
    crew.stop()
    assert not future.done()


def test_what_cannot_be_begun_is_worked_on_all_the_same() -> None:
    def fail(_: Callable[[], None]) -> None:
        raise OSError

    with crew_of(2, 1) as crew:
        assert submitted(crew, lambda: 1, fail).result(_TIMEOUT) == 1


def test_where_no_more_threads_may_be_those_that_are_there_do_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with crew_of(8, 8) as crew:
        submitted(crew, lambda: 1).result(_TIMEOUT)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        results([submitted(crew, lambda: 1) for _ in range(20)])


def test_an_error_waits_for_no_call_that_waits_for_a_server() -> None:
    server = threading.Event()

    def call(number: int) -> None:
        if number == 0:
            raise ConnectionError
        server.wait(_TIMEOUT)

    began = time.monotonic()
    with pytest.raises(ConnectionError):
        list(in_threads(call, range(4)))
    assert time.monotonic() - began < _TIMEOUT / 2
    server.set()


def test_a_thread_that_waits_for_others_lets_the_next_one_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ahead, "_LONG_SECONDS", 2 * _TIMEOUT)  # nobody is taken for slow
    together = threading.Barrier(4, timeout=_TIMEOUT)

    def scan(_: int) -> list[int]:
        return list(in_threads(lambda _: together.wait(), range(2)))

    with DaemonThreads(2, n_busy=1) as threads:
        results([threads.submit(scan, number) for number in range(2)])


def test_results_come_in_order_and_few_items_need_no_thread() -> None:
    assert list(in_threads(lambda n: -n, range(100), 8)) == [-n for n in range(100)]
    here = threading.get_ident()
    for items, n_threads in ((range(1), 8), (range(3), 1)):
        assert {*in_threads(lambda _: threading.get_ident(), items, n_threads)} == {here}
