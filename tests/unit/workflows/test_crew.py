"""Threads of a crew: few work at a time, others wait for servers, and nothing waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from gridref.api.ahead import Crew

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

    with crew_of(6, 1) as crew:
        results([submitted(crew, work) for _ in range(12)])


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
