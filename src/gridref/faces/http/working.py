"""Run long work in few threads, as long as the client waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gridref.typing import Receive

N_WORKERS = 6
"""Threads; most of them wait for those that read and decode."""
MOST_WAITING = 256
"""Pieces of work that wait for a thread, of all clients together."""

type GoesOn = Callable[[], bool]
"""Whether a client still waits for the answer."""


class TooBusyError(Exception):
    """Too many clients wait already: status 503."""


class Workers:
    """Threads for work that clients wait for."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(N_WORKERS, thread_name_prefix="gridref-work")
        self._n_waiting = 0

    async def run[Result](
        self, receive: Receive, work: Callable[[GoesOn], Result]
    ) -> Result | None:
        """Do some work; None if the client goes away meanwhile.

        Parameters
        ----------
        receive
            Tells that the client is gone, as ASGI has it.
        work
            Asks now and then whether to go on, and gives up by an error if not.

        Raises
        ------
        TooBusyError
            If too much work waits.
        """
        if self._n_waiting >= MOST_WAITING:
            raise TooBusyError
        given_up = threading.Event()
        gone = asyncio.create_task(disconnected(receive))
        self._n_waiting += 1
        loop = asyncio.get_running_loop()
        working = loop.run_in_executor(self._threads, work, lambda: not given_up.is_set())
        working.add_done_callback(self._done)
        try:
            await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            given_up.set()
            working.cancel()
            gone.cancel()

    async def step[Result](self, work: Callable[[], Result]) -> Result:
        """Do a small part of some work, whose caller looks after the client."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _done(self, working: asyncio.Future[Any]) -> None:
        self._n_waiting -= 1
        with contextlib.suppress(asyncio.CancelledError):
            working.exception()  # of work that nobody waits for any more

    def shutdown(self) -> None:
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def disconnected(receive: Receive) -> None:
    """Wait until a client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
