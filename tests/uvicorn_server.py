"""The HTTP application under a real uvicorn on the loopback device, stopped when a test ends."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

import uvicorn

from gridref.faces.http import create_app
from gridref.faces.http.server import GuardedConnection

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
"""Header fields of a browser that asks for a page."""


class _Server(uvicorn.Server):
    """Looks every hundredth of a second whether it is to end, not every tenth: tests start many."""

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # noqa: ASYNC110 (uvicorn has a flag, no event)
            await asyncio.sleep(0.01)


@contextlib.contextmanager
def running(app: Any, http: Any = GuardedConnection) -> Iterator[str]:
    """Serve an ASGI application; gives its address, like ``http://127.0.0.1:40123``."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http=http,
        access_log=False,
        log_level="critical",
        backlog=4096,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    server = _Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        give_up = time.monotonic() + 20
        while not server.started:
            if not thread.is_alive() or time.monotonic() > give_up:
                raise RuntimeError("the server did not start")
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()


@contextlib.contextmanager
def running_elsewhere(catalogs: Mapping[str, str]) -> Iterator[str]:
    """Serve catalogs from another process: some clients hold the GIL while they wait."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(dict(catalogs), theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("stop")
        process.join(20)


def _serve(catalogs: dict[str, str], pipe: Connection) -> None:
    with running(create_app(catalogs)) as url:
        pipe.send(url)
        pipe.recv()


def rows_of(page: str, title: str = "Overlays") -> list[list[str]]:
    """Cells of the table below a title of a page."""
    table = page.partition(f"<h2>{title}</h2>")[2].partition("</table>")[0]
    rows = table.partition("<tbody>")[2].split("<tr>")[1:]
    return [re.findall(r"<t[hd][^>]*>([^<]*)", row) for row in rows]
