"""The ASGI application: keys, headers, allowed hosts, log and counters.

Pages and their data are in `routes`.

A web page anywhere may send requests to servers on its visitor's machine, and a name of its own
may lead there (DNS rebinding). So a server answers only requests to names that it knows, and a page
of another origin may read the answers only if that origin was allowed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import re
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gridref.catalog.overlays import OverlayPolicy
from gridref.codecs import codec_named
from gridref.errors import CatalogError, GridrefError, InvalidRequestError
from gridref.faces.http import values
from gridref.faces.http.objects import (
    METADATA_TYPE,
    Answer,
    Body,
    answer,
    packed_chunk,
    representation,
)
from gridref.faces.http.requests import Fields, Request
from gridref.faces.http.routes import (
    answer_for,
    as_json,
    folder_page,
    nothing_here,
    pack_viewer,
    problem,
)
from gridref.faces.http.site import VIEWS, ServedCatalog, Site, SiteOptions, public_text
from gridref.faces.web.part import GoesOn
from gridref.io import Allow
from gridref.model.array import VirtualGroup
from gridref.options import verb
from gridref.secrets import without_secrets
from gridref.serve.pages import VirtualObject
from gridref.serve.tasks import Buffer
from gridref.serve.views import ViewOptions
from gridref.typing import ASGIApp, Message, Receive, Scope, Send

# Counters of one process, in the Prometheus text format (version 0.0.4)

_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)


class Metrics:
    """Counts requests. Safe for threads."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets = [0] * (len(_BUCKETS) + 1)
        self._seconds = 0.0
        self._sent_bytes = 0
        self._aborted = 0
        self._lock = threading.Lock()

    def count(self, route: str, method: str, status: int, n_bytes: int, seconds: float) -> None:
        """Count an answered request."""
        with self._lock:
            self._requests[route, method, status] += 1
            self._buckets[bisect_left(_BUCKETS, seconds)] += 1
            self._seconds += seconds
            self._sent_bytes += n_bytes

    def count_aborted(self) -> None:
        """Count a response that was broken off because a source failed half way."""
        with self._lock:
            self._aborted += 1

    def render(self, gauges: dict[str, tuple[str, float]]) -> str:
        """The text, with further values by name: their help and their value."""
        with self._lock:
            lines = _head("gridref_http_requests_total", "counter", "Answered requests.")
            lines += [
                f'gridref_http_requests_total{{route="{route}",method="{method}",status="{status}"}}'
                f" {count}"
                for (route, method, status), count in sorted(self._requests.items())
            ]
            lines += self._histogram()
            lines += _value(
                "gridref_http_sent_bytes_total", "Bytes of bodies sent.", self._sent_bytes
            )
            lines += _value(
                "gridref_http_aborted_total",
                "Responses broken off because a source failed half way.",
                self._aborted,
            )
        for name, (help_text, value) in gauges.items():
            lines += _value(name, help_text, value)
        return "\n".join(lines) + "\n"

    def _histogram(self) -> list[str]:
        name = "gridref_http_request_seconds"
        lines = _head(name, "histogram", "Time from request to the end of the response.")
        total = 0
        for bound, count in zip((*_BUCKETS, "+Inf"), self._buckets, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [*lines, f"{name}_sum {self._seconds:.6f}", f"{name}_count {total}"]


def _head(name: str, kind: str, help_text: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def _value(name: str, help_text: str, value: float) -> list[str]:
    kind = "counter" if name.endswith("_total") else "gauge"
    return [*_head(name, kind, help_text), f"{name} {value}"]


# Allowed hosts and origins

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d*)?", re.ASCII)
_EXPOSED = b"Accept-Ranges, Content-Length, Content-Range, ETag"


@dataclass(frozen=True)
class Visitors:
    """Names and origins that are allowed.

    Attributes
    ----------
    hosts
        Names that requests may use in ``Host``, besides those of the loopback device and the
        address at which they arrived; ``"*"`` allows all.
    origins
        Origins of web pages that may read, like ``https://example.org``; ``"*"`` allows all.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    @classmethod
    def of(cls, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> Visitors:
        """Parse what users write."""
        return cls(
            frozenset(host.lower().strip("[]") for host in hosts),
            frozenset(origin.rstrip("/") for origin in origins),
        )

    def refusal(self, scope: Mapping[str, Any]) -> tuple[int, str] | None:
        """Status and reason for which a request is not answered; None where it is.

        Source: RFC 9112, section 3.2 (missing, doubled and malformed fields are 400), and
        RFC 9110, section 15.5.20 (421).
        """
        fields = [value for name, value in scope["headers"] if name == b"host"]
        match = _HOST.fullmatch(fields[0].decode("latin-1").lower()) if len(fields) == 1 else None
        if match is None:
            return 400, "a request needs one Host field"
        name = match[1].strip("[]").rstrip(".")
        if {"*", name} & self.hosts or _is_loopback(name) or name == _address(scope):
            return None
        return 421, "this server is not known under that name: see --allow-host"

    def headers(self, scope: Mapping[str, Any]) -> tuple[tuple[bytes, bytes], ...]:
        """Headers that let web pages read a response; none if they may not."""
        if not self.origins:
            return ()
        exposed = (b"access-control-expose-headers", _EXPOSED)
        if "*" in self.origins:
            return ((b"access-control-allow-origin", b"*"), exposed)
        origin = dict(scope["headers"]).get(b"origin", b"")
        vary = (b"vary", b"Origin")
        if origin.decode("latin-1") not in self.origins:
            return (vary,)
        return ((b"access-control-allow-origin", origin), exposed, vary)


def _address(scope: Mapping[str, Any]) -> str:
    """The server's own address of a connection; that of the loopback device for local sockets."""
    server = scope.get("server")
    return str(server[0]).lower() if server and server[1] is not None else "127.0.0.1"


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


# The application

ACCESS_LOG = logging.getLogger("gridref.access")
ERROR_LOG = logging.getLogger("gridref.http")
N_THREADS = 32
METHODS = "GET, HEAD, OPTIONS"

_COMMON = ((b"x-content-type-options", b"nosniff"),)
_NOT_FOR_LONG = (b"cache-control", b"no-cache")
"""What says nothing else: an absent chunk may come, and caches keep what has no such field."""
_PREFLIGHT = (
    (b"access-control-allow-methods", METHODS.encode()),
    (b"access-control-allow-headers", b"Range, If-Match, If-None-Match, If-Range, Cache-Control"),
    (b"access-control-max-age", b"86400"),
    (b"allow", METHODS.encode()),
)


_REBUILT = "there is no such snapshot, or the catalog was rebuilt since: open it again"


@verb(ViewOptions, hidden=("view",))
def create_app(
    catalogs: Iterable[str | os.PathLike[str]] | Mapping[str, str | VirtualGroup],
    *,
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow = None,
    allow_host: Iterable[str] = (),
    allow_origin: Iterable[str] = (),
    overlay: OverlayPolicy = "auto",
    max_age: int = 0,
    reload_seconds: float = 2.0,
    access_log: bool = True,
    **shown: Any,
) -> ASGIApp:
    """Make the application that serves catalogs.

    Parameters
    ----------
    catalogs
        Addresses of catalogs, or local directories of catalogs; or catalogs and groups by name.
    storage_options
        fsspec options for the catalogs and their sources.
    allow
        As for `gridref.open_catalog`, for catalogs that are opened by their addresses, now and
        whenever they change.
    allow_host
        Host names that requests may use, besides those of the loopback device and the address at
        which a request arrives; ``"*"`` allows any.
    allow_origin
        Origins of web pages that may read, like ``https://example.org``; ``"*"`` allows all. By
        default none but the server's own pages.
    overlay
        As for `gridref.open_catalog`. With a number, the native view shows the chunks of this
        overlay, where it holds all of an array.
    max_age
        Seconds for which clients may use an answer without asking again; 0 makes them always ask.
    reload_seconds
        Seconds between checks for changed catalogs; 0 never checks.
    access_log
        Whether to log each request, as one JSON object, to the logger ``gridref.access``.
    **shown
        Fields of `ViewOptions`: ``shards``, ``grid`` and ``index_location`` of both views,
        ``chunks`` and ``compressor`` of the portable one. Grids are regular by default.

    Raises
    ------
    CatalogError
        If a catalog cannot be opened.
    InvalidRequestError
        For bad options, or names of catalogs that collide.
    """
    options = SiteOptions(storage_options, allow, shown, overlay)
    visitors = Visitors.of(allow_host, allow_origin)
    return GridrefApp(Site(catalogs, options), visitors, max_age, reload_seconds, access_log)


class GridrefApp:
    """An ASGI application that shows a `Site` to visitors; the rest is as for `create_app`."""

    def __init__(
        self,
        site: Site,
        visitors: Visitors,
        max_age: int,
        reload_seconds: float,
        access_log: bool,
    ) -> None:
        self.site = site
        self.metrics = Metrics()
        self._visitors = visitors
        self._reload_seconds = reload_seconds
        self._access_log = access_log
        self._cache_control = (f"public, max-age={max_age}" if max_age else "no-cache").encode()
        self._threads = ThreadPoolExecutor(N_THREADS, thread_name_prefix="gridref-http")
        self._workers = Workers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection's event, as ASGI has it."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._request(scope, receive, send)
        else:
            raise NotImplementedError(f"gridref does not speak {scope['type']}")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        watcher = asyncio.create_task(self._watch()) if self._reload_seconds else None
        self._threads.submit(_prepare)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if watcher is not None:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._workers.shutdown()
        await send({"type": "lifespan.shutdown.complete"})

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._reload_seconds)
            await asyncio.to_thread(self.site.refresh)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()
        sender = _Sender(scope["method"], send, self._visitors.headers(scope))
        route, request = "other", Request.of(scope)
        try:
            refusal = self._visitors.refusal(scope)
            if refusal is not None:
                await sender.send(Answer.plain(*refusal))
            else:
                route, response = await self._answered(request, receive)
                await self._deliver(response, receive, sender)
        except GridrefError as error:
            route = "error"
            await self._failed(error, request, sender)
        finally:
            seconds = time.perf_counter() - start
            self.metrics.count(
                route, _known(request.method), sender.status, sender.n_bytes, seconds
            )
            if self._access_log:
                _log(scope, request, sender, seconds)

    async def _answered(self, request: Request, receive: Receive) -> tuple[str, Answer | None]:
        """The name of the route, for the counters, and the answer; None if the client is gone."""
        if request.method == "OPTIONS":
            return "other", Answer(204, _PREFLIGHT)
        if request.method not in ("GET", "HEAD"):
            allowed = (b"allow", METHODS.encode())
            return "other", Answer.plain(405, "this server is read-only", allowed)
        name, _, rest = request.path.removeprefix("/").partition("/")
        name += _choices(request)
        catalog = self.site.find(name)
        if catalog is None and "@" in name:
            try:
                catalog = await self._in_thread(self.site.snapshot, name)
            except InvalidRequestError as error:
                return "other", Answer.plain(400, str(error.reason))
        if catalog is None and self.site.was_rebuilt(name):
            return "other", Answer.plain(409, _REBUILT)
        view, _, key = rest.partition("/")
        if catalog is not None and view in values.KINDS:
            work = partial(values.answer, catalog, request, self._cache_control)
            try:
                return "values", await self._workers.run(receive, work)
            except TooBusyError:
                busy = "too many wait for values here: ask again in a second"
                return "values", Answer.plain(503, busy, (b"retry-after", b"1"))
        if catalog is None or view not in VIEWS:
            return "page", await self._page(request, catalog)
        key = catalog.asked_key(key)
        virtual_object = catalog.spaces[view].peek(key)
        if virtual_object is None:
            virtual_object = await self._in_thread(catalog.spaces[view].resolve, key)
        if virtual_object is not None:
            return view, await self._object(request, catalog, key, virtual_object)
        path = key.rstrip("/")
        is_folder = (key.endswith("/") or not key) and await self._in_thread(
            catalog.spaces[view].is_dir, path
        )
        if is_folder:
            return view, await self._in_thread(folder_page, catalog, view, path)
        return view, await self._in_thread(nothing_here, self.site, catalog, request)

    async def _object(
        self, request: Request, catalog: ServedCatalog, key: str, virtual_object: VirtualObject
    ) -> Answer:
        size, reader = virtual_object.n_bytes, catalog.reader
        if size is None:
            size = await self._in_thread(reader.size, virtual_object)
        is_metadata = key.rpartition("/")[2] == "zarr.json"
        shown = representation(virtual_object, size, request, metadata=is_metadata)
        if not is_metadata and "compressed" in request.query:
            whole = partial(reader.read_buffer, virtual_object)
            shown = await self._in_thread(packed_chunk, shown, whole, request)
        return answer(shown, request, reader, self._cache_control)

    async def _page(self, request: Request, catalog: ServedCatalog | None) -> Answer:
        if request.path == "/healthz":
            return Answer.plain(200, "ok")
        if request.path == "/metrics":
            text = self.metrics.render(self._gauges())
            return Answer.of(text.encode(), "text/plain; version=0.0.4; charset=utf-8")
        page: Answer | None = await self._in_thread(answer_for, self.site, catalog, request)
        return page or await self._in_thread(nothing_here, self.site, catalog, request)

    async def _deliver(self, response: Answer | None, receive: Receive, sender: _Sender) -> None:
        """Send an answer: what is at hand, else piece by piece."""
        if response is None:
            return
        body = response.body
        if isinstance(body, Body):
            ready = body.at_hand()
            if ready is not None:
                await sender.send(response, ready)
            else:
                await self._stream(receive, sender, response, body.parts(self._threads))
        elif body is None or isinstance(body, bytes):
            await sender.send(response, body)
        elif sender.is_head:
            await sender.send(response)
        else:
            await self._stream(receive, sender, response, self._steps(body))

    async def _stream(
        self,
        receive: Receive,
        sender: _Sender,
        response: Answer,
        windows: AsyncGenerator[list[Buffer]],
    ) -> None:
        """Send a body window by window; the first is read before anything is sent."""
        gone = asyncio.create_task(disconnected(receive))
        try:
            async with contextlib.aclosing(windows) as parts:
                async for buffers in parts:
                    if gone.done():
                        return
                    await sender.part(response, buffers)
            await sender.finish(response)
        finally:
            gone.cancel()

    async def _steps(self, parts: Iterator[bytes]) -> AsyncGenerator[list[Buffer]]:
        """What is worked out, piece by piece in other threads."""
        while (part := await self._workers.step(partial(next, parts, None))) is not None:
            yield [part]

    def _gauges(self) -> dict[str, tuple[str, float]]:
        pool = self.site.pool
        return {
            "gridref_catalogs": ("Catalogs shown.", len(self.site.catalogs)),
            "gridref_catalog_problems": (
                "Catalogs that could not be opened again.",
                len(self.site.problems),
            ),
            "gridref_source_requests_total": ("Reads sent to sources.", pool.n_requests),
            "gridref_source_bytes_total": ("Bytes read from sources.", pool.n_bytes),
            "gridref_decoded_cache_bytes": (
                "Bytes of decoded chunks kept.",
                self.site.reader.reader.cache.n_bytes,
            ),
        }

    async def _failed(self, error: GridrefError, request: Request, sender: _Sender) -> None:
        """A 502 that says what failed; once bytes are out, the connection is broken instead."""
        name = request.path.removeprefix("/").partition("/")[0]
        if isinstance(error, CatalogError) and self.site.is_former(name) and not sender.started:
            await sender.send(Answer.plain(409, _REBUILT))  # its tables went with it
            return
        ERROR_LOG.error("%s %s: %s", request.method, request.path, error)
        if sender.started:
            self.metrics.count_aborted()
            raise ConnectionAbortedError(without_secrets(str(error))) from error
        reason = public_text(error)
        if request.by_browser:
            page = problem(request, 502, "This could not be read", reason)
        else:
            body = as_json({"error": type(error).__name__, "reason": reason})
            page = Answer.of(body, METADATA_TYPE, (b"cache-control", b"no-store"))
        await sender.send(replace(page, status=502))

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)


class _Sender:
    """Sends one response, and remembers what went out."""

    def __init__(self, method: str, send: Send, headers: Fields) -> None:
        self._send = send
        self._common = (*headers, *_COMMON)
        self.is_head = method == "HEAD"
        self.status = 500
        self.n_bytes = 0
        self.started = False

    async def start(self, response: Answer) -> None:
        self.started = True
        self.status = response.status
        headers = [*response.headers, *self._common]
        if not any(name == b"cache-control" for name, _ in headers):
            headers.append(_NOT_FOR_LONG)
        if isinstance(response.body, bytes):
            headers.append((b"content-length", str(len(response.body)).encode()))
        await self._send(
            {"type": "http.response.start", "status": response.status, "headers": headers}
        )

    async def send(self, response: Answer, body: Buffer | None = None) -> None:
        """A response whose body is at hand, by default in itself."""
        await self.start(response)
        if body is None and isinstance(response.body, bytes):
            body = response.body
        data = b"" if self.is_head or body is None else bytes(body)
        self.n_bytes += len(data)
        await self._send({"type": "http.response.body", "body": data})

    async def part(self, response: Answer, buffers: list[Buffer]) -> None:
        """Some of a body; the first part sends the headers."""
        if not self.started:
            await self.start(response)
        for buffer in buffers:
            self.n_bytes += len(buffer)
            message: Message = {"type": "http.response.body", "body": buffer, "more_body": True}
            await self._send(message)

    async def finish(self, response: Answer) -> None:
        """The end of a body sent in parts."""
        if not self.started:
            await self.start(response)
        await self._send({"type": "http.response.body", "body": b""})


def _prepare() -> None:
    """Load and compress what takes a moment, before a first visitor waits for it."""
    codec_named("numcodecs.zlib")
    pack_viewer()


def _choices(request: Request) -> str:
    """The snapshot and overlay that a query names, as a name of a catalog has them."""
    query = request.query
    snapshot = f"@{request.option('snapshot')}" if "snapshot" in query else ""
    return snapshot + (f"@overlay={request.option('overlay')}" if "overlay" in query else "")


def _known(method: str) -> str:
    """The method, for counters: a client must not be able to make up new ones."""
    return method if method in ("GET", "HEAD", "OPTIONS") else "other"


def _log(scope: Scope, request: Request, sender: _Sender, seconds: float) -> None:
    client = scope.get("client") or ("", 0)
    record = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "client": client[0],
        "method": request.method,
        "path": request.path,
        "range": request.headers.get("range", ""),
        "status": sender.status,
        "bytes": sender.n_bytes,
        "ms": round(seconds * 1000, 2),
    }
    ACCESS_LOG.info(json.dumps(record))


# Long work in few threads, as long as the client waits for it

N_WORKERS = 6
"""Threads; most of them wait for those that read and decode."""
MOST_WAITING = 256
"""Pieces of work that wait for a thread, of all clients together."""


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
