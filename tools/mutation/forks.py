"""Work in forked processes, which end with the one that started them."""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["end", "fork", "results_of", "wait_for_the_end"]

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>


def fork() -> int:
    with warnings.catch_warnings():
        # Nothing was run in this process, so that threads of libraries are idle.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        os.setsid()
    return child


def wait_for_the_end() -> None:
    """In a child: the parent ends it, and the processes that it started."""
    while True:
        signal.pause()


def end(child: int) -> None:
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)


def results_of(shares: Iterable[Callable[[], Iterable[Any]]]) -> Iterator[Any]:
    """What the shares of some work yield, as it comes; each runs in a process of its own."""
    children = dict(map(_started, shares))
    try:
        while children:
            for stream in select.select([*children], [], [])[0]:
                try:
                    yield pickle.load(stream)
                except EOFError:
                    end(children.pop(stream))
                    stream.close()
    finally:
        for child in children.values():
            end(child)


def _started(share: Callable[[], Iterable[Any]]) -> tuple[Any, int]:
    reading, writing = os.pipe()
    child = fork()
    if child:
        os.close(writing)
        return os.fdopen(reading, "rb"), child
    try:
        with os.fdopen(writing, "wb") as stream:
            for result in share():
                pickle.dump(result, stream)
                stream.flush()
    except Exception:
        traceback.print_exc()  # results that are missing say nothing
        raise
    finally:
        wait_for_the_end()
    raise AssertionError("unreachable")
