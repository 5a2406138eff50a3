"""The garbage collector, paused while a library with a global lock waits for remote bytes.

h5py holds one lock while it reads from a file object, and takes the same lock to free an object. If
the fsspec thread that fetches the bytes collects an h5py object as garbage, the two threads wait
for each other forever (h5py documentation, "Python file-like objects").

Python can pause its collector only for the whole process. Without the pause,
``tests/integration/test_remote_garbage.py`` hangs. Only `verify` needs it, for remote HDF5 files
that are too large to be read whole.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gridref.forks import new_lock

_lock = new_lock()
_n_pauses = 0
_was_enabled = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause automatic garbage collection in all threads. Enter it before the lock is taken."""
    global _n_pauses, _was_enabled  # noqa: PLW0603 - the collector is the process's
    with _lock:
        if _n_pauses == 0:
            _was_enabled = gc.isenabled()
        _n_pauses += 1
        gc.disable()
    try:
        _finish_running_collection()
        yield
    finally:
        with _lock:
            _n_pauses -= 1
            if _n_pauses == 0 and _was_enabled:
                gc.enable()


def _finish_running_collection() -> None:
    """Wait until fsspec's thread has ended a collection that it may be in."""
    fsspec: Any = sys.modules.get("fsspec.asyn")
    loop = fsspec and fsspec.loop[0]
    if loop is not None and loop.is_running():
        fsspec.sync(loop, _nothing)


async def _nothing() -> None:
    pass
