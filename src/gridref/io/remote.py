"""Files on any fsspec filesystem, and the answers of their servers.

`ask_described` requests byte ranges and returns, with the bytes, the size and version of the file
from the same answers: a separate request for them would take as long as one for a range. fsspec
hides these headers, so this module uses the connections of its filesystems in the same way as their
own ``_cat_file``.

An answer is accepted only if it states the requested range: status 206 and exactly this range in
``Content-Range`` (RFC 9110, sections 14.4 and 15.3.7). A body is never read beyond the requested
size.

`RemoteFiles` reads ranges of files on any filesystem, with retries and checks.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import batched
from typing import Any

from gridref.cache import LRU, cache_bytes
from gridref.errors import GridrefError, Place, SourceUnavailableError, number_of
from gridref.forks import new_lock, tell_in_children
from gridref.io.address import absolute_url, is_local, open_filesystem, real_path
from gridref.io.context import Beginning, Layouts, current_traffic, note_opened, waiting
from gridref.io.faults import (
    MAX_REQUESTS,
    RetryPolicy,
    is_transient,
    requests_in_flight,
    shown,
    status_of,
    unavailable,
    within_limit,
)
from gridref.io.identity import check_identity, source_of_info
from gridref.limits import limits
from gridref.model.manifest import Source
from gridref.model.source_policy import SourcePolicy

# Byte ranges, with the size and version of the file from the same answers

type Answer = tuple[bytes, Source, bool]
"""The bytes of a range, the file as it is now, and whether the server sent the range as one."""

_PARTIAL, _WHOLE = 206, 200
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII)


def describes_answers(filesystem: Any) -> bool:
    """Whether `ask_described` knows a filesystem."""
    return type(filesystem).__name__ in _ASKERS and not getattr(filesystem, "asynchronous", False)


def ask_described(
    filesystem: Any, path: str, url: str, starts: Sequence[int], stops: Sequence[int]
) -> list[Answer | BaseException]:
    """Ask for half-open ranges, all at once; each gives an answer, or the error it raised."""
    from fsspec.asyn import sync

    answers: list[Answer | BaseException] = sync(
        filesystem.loop, asked, filesystem, path, url, starts, stops
    )
    return answers


async def asked(
    filesystem: Any, path: str, url: str, starts: Sequence[int], stops: Sequence[int]
) -> list[Answer | BaseException]:
    """The answers of `ask_described`, for callers on the event loop of the filesystem.

    Each range has the time that `Limits.seconds_for` gives all of them: a server that sends a byte
    now and then is as bad as one that sends none.
    """
    import asyncio

    ask = _ASKERS[type(filesystem).__name__]
    limit = limits().seconds_for(sum(stops) - sum(starts))

    async def ask_one(start: int, stop: int) -> Answer | BaseException:
        try:
            async with asyncio.timeout(limit):
                answer = await ask(filesystem, path, url, start, stop)
            body, source, _ = answer
            if start + len(body) < min(stop, source.size_bytes or 0):
                raise ConnectionAbortedError(errno.ECONNABORTED, "the answer was cut on its way")
            return answer
        except Exception as error:  # noqa: BLE001 - handed on as the result of the range
            return error

    if len(starts) == 1:  # the usual case, without a task of its own
        return [await ask_one(starts[0], stops[0])]
    return await asyncio.gather(*map(ask_one, starts, stops))


async def _ask_http(filesystem: Any, path: str, url: str, start: int, stop: int) -> Answer:
    settings = dict(filesystem.kwargs)
    headers = {
        "Accept-Encoding": "identity",
        **settings.pop("headers", {}),
        "Range": f"bytes={start}-{stop - 1}",
    }
    session = await filesystem.set_session()
    address = filesystem.encode_url(path)
    async with session.get(address, headers=headers, **settings) as response:
        response.raise_for_status()
        total = _checked(url, response.status, response.headers, start, stop)
        body = await _read_at_most(response.content, stop - start)
        if len(body) > stop - start:
            # The rest may be endless: the connection is not used again.
            response.close()
        version_headers = {name: response.headers.get(name) for name in _VERSION_HEADERS}
    return body, _described(url, total, version_headers), response.status == _PARTIAL


async def _ask_s3(filesystem: Any, path: str, url: str, start: int, stop: int) -> Answer:
    bucket, key, version = filesystem.split_path(path)
    chosen = {"VersionId": version} if version else {}
    response = await filesystem._call_s3(  # noqa: SLF001 - there is no other way to the headers
        "get_object",
        Bucket=bucket,
        Key=key,
        Range=f"bytes={start}-{stop - 1}",
        **chosen,
        **filesystem.req_kw,
    )
    answered = response.get("ResponseMetadata", {})
    stated = {
        "Content-Range": response.get("ContentRange") or "",
        "Content-Length": str(response.get("ContentLength", "")),
    }
    status = answered.get("HTTPStatusCode", 0)
    total = _checked(url, status, stated, start, stop)
    body = await _read_at_most(response["Body"], stop - start)
    return body, _described(url, total, response), status == _PARTIAL


async def _read_at_most(stream: Any, n_bytes: int) -> bytes:
    """The body; if it is longer than requested, only one byte more than that."""
    parts, missing = [], n_bytes + 1
    while missing > 0:
        part = await stream.read(missing)
        if not part:
            break
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _checked(
    url: str, status: int, headers: Mapping[str, str], start: int, stop: int
) -> int | None:
    """Size of the file, from an answer with the requested range; None if it is not stated.

    All of a file is taken for a range that begins with it and reaches to its end or beyond.
    """
    place = Place(source=url, start=start, stop=stop)
    if headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
        raise SourceUnavailableError(
            f"the server sent the range compressed ({headers['Content-Encoding']}): byte "
            "positions then differ from those of the file. Switch compression off at the server "
            "or its proxy",
            place,
        )
    length = headers.get("Content-Length", "")
    if status == _WHOLE and start == 0 and length.isdecimal() and int(length) <= stop:
        return int(length)
    if status != _PARTIAL:
        raise SourceUnavailableError(
            f"the server ignores byte ranges (it answered status {status}). Copy the"
            " file to a place that serves them",
            place,
        )
    if headers.get("Content-Type", "").lower().startswith("multipart/byteranges"):
        raise SourceUnavailableError(
            "the server answered one range request with several parts (multipart/byteranges). "
            "Copy the file to a place that serves byte ranges",
            place,
        )
    stated = headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(stated.strip())
    total = int(match[3]) if match and match[3] != "*" else None
    end = stop if total is None else min(stop, total)
    if match is None or int(match[1]) != start or int(match[2]) != end - 1:
        raise SourceUnavailableError(
            f"the server answered with another range ({stated[:80]!r}) than was asked for: it, or a"
            " proxy before it, does not serve byte ranges faithfully",
            place,
        )
    return total


_VERSION_HEADERS = ("ETag", "Last-Modified")
_ASKERS: dict[str, Callable[[Any, str, str, int, int], Awaitable[Answer]]] = {
    "HTTPFileSystem": _ask_http,
    "S3FileSystem": _ask_s3,
}


def _described(url: str, size: int | None, version_info: Mapping[str, Any]) -> Source:
    """The file, from its size and the headers that identify its version."""
    version = {name: value for name, value in version_info.items() if name in _KNOWN and value}
    return source_of_info(url, {**({} if size is None else {"size": size}), **version})


_KNOWN = frozenset({*_VERSION_HEADERS, "LastModified", "VersionId"})


# Files on any fsspec filesystem

_RANGE_NOT_SATISFIABLE = 416
_one_at_a_time = new_lock()
"""For members of an archive: they share one open file, whose position threads would share."""


class RemoteFiles:
    """Reads ranges of files through fsspec, several at once where the filesystem can. Thread-safe.

    Parameters
    ----------
    storage_options
        Options of the filesystem, or a mapping of protocol to options.
    retry
        How to retry transient failures.
    """

    came_whole = False
    """Whether the server sent all of the last file, and not the requested range."""

    def __init__(
        self, storage_options: Mapping[str, Any] | None = None, retry: RetryPolicy | None = None
    ) -> None:
        self._storage_options = dict(storage_options or {})
        self._retry = retry or RetryPolicy()
        self._traffic = current_traffic()
        tell_in_children(self)
        self._located = LRU[tuple[Any, str]](
            cache_bytes() // 4, lambda located: 200 + 2 * len(located[1])
        )
        self._servers: dict[tuple[str, SourcePolicy | None], Any] = {}
        self._by_address = any("://" in name for name in self._storage_options)

    def after_fork(self) -> None:
        """Open filesystems anew: their connections belong to the parent's event loop."""
        self._located.clear()
        self._servers.clear()

    def locate(self, url: str, policy: SourcePolicy | None = None) -> tuple[Any, str]:
        """Filesystem, and path in it, of a URL that a policy allows."""
        note_opened(url)
        return self._located.get_or_load((url, policy), lambda: self._located_anew(url, policy))

    def _located_anew(self, url: str, policy: SourcePolicy | None) -> tuple[Any, str]:
        """Files of one HTTP server have one filesystem, which takes long to find."""
        server = None if self._by_address else _http_server(url)
        if server is None:
            return open_filesystem(url, self._storage_options, policy)
        if policy is not None:
            policy.require(real_path(url))
        if (server, policy) not in self._servers:
            filesystem, _ = open_filesystem(url, self._storage_options, policy)
            self._servers[server, policy] = filesystem
        return self._servers[server, policy], url

    def keep_located(self, url: str, located: tuple[Any, str]) -> None:
        """Take over the filesystems that another reader with the same options has located."""
        self._located.put((url, None), located)

    def describe(self, url: str, policy: SourcePolicy | None = None) -> Source:
        """Size and version of a file, from the server and not from a kept listing.

        An HTTP server is asked for one byte, because later ranges come with the same headers.
        """
        filesystem, path = self.locate(url, policy)
        by_range = url.startswith("http") and self.checks(url, policy)

        def ask() -> Source:
            if by_range:
                part, source = self._first_byte(url, policy)
                if source is not None and source.size_bytes is not None:
                    self._traffic.add(0, len(part))
                    return replace(source, policy=policy)
            filesystem.invalidate_cache(path.rpartition("/")[0])
            self._traffic.add(1)
            info: Mapping[str, Any] = within_limit(filesystem, "info")(path)
            if info.get("type") == "directory":
                raise IsADirectoryError(path)
            return replace(source_of_info(url, info), policy=policy)

        return self._retry.call(ask, url)

    def _first_byte(self, url: str, policy: SourcePolicy | None) -> tuple[bytes, Source | None]:
        """The first byte, and the file as the answer describes it; no source without a range.

        Empty files have no range, and servers that ignore ranges send none.
        """
        result = self._ask(url, [0], [1], policy)[0]
        if isinstance(result, SourceUnavailableError):
            return b"", None
        if isinstance(result, BaseException):
            raise result
        part: bytes
        source: Source | None
        part, source, _ = result
        return part, source

    def begin(
        self,
        url: str,
        starts: Sequence[int],
        stops: Sequence[int],
        came: list[Any] | None = None,
        policy: SourcePolicy | None = None,
    ) -> tuple[Source, list[bytes]]:
        """Describe a file and read bytes of it, with one request where the answer holds both.

        The first range starts at 0. Bytes of ranges that did not come whole are empty. What `came`
        of a first attempt was requested ahead of time, and is counted now.
        """
        if self.checks(url, policy):
            attempts = [] if came is None else [came]
            self._traffic.add(len(starts) * len(attempts))

            def ask() -> list[Any]:
                if attempts:
                    results = _told(attempts.pop())
                else:
                    results = self._ask(url, starts, stops, policy)
                if isinstance(results[0], BaseException):
                    raise results[0]
                return results

            results = self._retry.call(ask, url)
            source = results[0][1]
            if source is not None and source.size_bytes is not None:
                self.came_whole = not results[0][2]
                return replace(source, policy=policy), [
                    self._beginning(source, result, start, stop)
                    for result, start, stop in zip(results, starts, stops, strict=True)
                ]
        return self.describe(url, policy), [b""] * len(starts)

    def _beginning(self, source: Source, result: Any, start: int, stop: int) -> bytes:
        """The bytes of a range, if they are complete and from that file."""
        if isinstance(result, BaseException) or result[1] is None:
            return b""
        part, current, _ = result
        check_identity(source, current)
        self._traffic.add(0, len(part))
        whole = len(_not_too_long(source.url, part, start, stop)) == (
            min(stop, source.size_bytes or 0) - start
        )
        return bytes(part) if whole else b""

    def checks(self, url: str, policy: SourcePolicy | None = None) -> bool:
        """Whether `fetch` itself can compare a file with the recorded source."""
        return describes_answers(self.locate(url, policy)[0])

    def fetch(
        self,
        url: str,
        starts: Sequence[int],
        stops: Sequence[int],
        recorded: Source | None = None,
        policy: SourcePolicy | None = None,
    ) -> list[bytes]:
        """The bytes of half-open ranges; fewer only where the file ends.

        Every answer is compared with what was `recorded`, if the server states a version.
        """
        parts: dict[int, bytes] = {}
        pending = list(range(len(starts)))
        pauses = self._retry.pauses()
        while pending:
            failures: dict[int, BaseException] = {}
            for some in batched(pending, MAX_REQUESTS):
                results = self._ask(
                    url, [starts[i] for i in some], [stops[i] for i in some], policy
                )
                for i, result in zip(some, results, strict=True):
                    if isinstance(result, BaseException):
                        failures[i] = result
                        continue
                    part, current, _ = result
                    if recorded is not None and current is not None:
                        check_identity(recorded, current)
                    parts[i] = _not_too_long(url, part, starts[i], stops[i])
                    self._traffic.add(0, len(parts[i]))
            pending = list(failures)
            if pending:
                pause = pauses.after(failures.values())
                if pause is None:
                    lasting = [i for i in pending if not is_transient(failures[i])]
                    i = (lasting or pending)[0]
                    raise _ours(url, failures[i], starts[i], stops[i])
                with waiting():
                    time.sleep(pause)
        return [parts[i] for i in range(len(starts))]

    def _ask(
        self,
        url: str,
        starts: Sequence[int],
        stops: Sequence[int],
        policy: SourcePolicy | None = None,
    ) -> list[Any]:
        """One result for each range: its bytes and their file, if known; or the exception."""
        filesystem, path = self.locate(url, policy)
        self._traffic.add(len(starts))
        with requests_in_flight.going(len(starts)):
            try:
                if describes_answers(filesystem):
                    results: list[Any] = ask_described(filesystem, path, url, starts, stops)
                else:
                    results = _plain(filesystem, path, starts, stops)
            except Exception as error:  # noqa: BLE001 - handed on as the result of every range
                return [error] * len(starts)
        return _told(results)


def _told(results: list[Any]) -> list[Any]:
    """Results; a range beyond the end of its file gives no bytes and is no failure."""
    return [
        (b"", None, True)
        if isinstance(result, Exception) and status_of(result) == _RANGE_NOT_SATISFIABLE
        else result
        for result in results
    ]


def _http_server(url: str) -> str | None:
    """Protocol, name and port of the server of an HTTP address; None for others, and for chains."""
    if not url.startswith(("http://", "https://")) or "::" in url:
        return None
    return url[: url.find("/", 8)] if "/" in url[8:] else None


def _plain(filesystem: Any, path: str, starts: Sequence[int], stops: Sequence[int]) -> list[Any]:
    from fsspec.archive import AbstractArchiveFileSystem

    ask = within_limit(filesystem, "cat_ranges", sum(stops) - sum(starts))
    with _one_at_a_time if isinstance(filesystem, AbstractArchiveFileSystem) else nullcontext():
        results = ask([path] * len(starts), list(starts), list(stops), on_error="return")
    return [
        result if isinstance(result, BaseException) else (bytes(result), None, True)
        for result in results
    ]


def _ours(url: str, failure: BaseException, start: int, stop: int) -> GridrefError:
    """The error of gridref for an exception raised instead of the bytes of a range."""
    if isinstance(failure, GridrefError):
        return failure.located(Place(source=url, start=start, stop=stop))
    error = unavailable(url, failure, start, stop)
    error.__cause__ = shown(failure, url)
    return error


def _not_too_long(url: str, part: bytes, start: int, stop: int) -> bytes:
    """Refuse the answers of a server that ignores byte ranges."""
    if len(part) <= stop - start:
        return part
    raise SourceUnavailableError(
        f"for a range of {stop - start}, the server sent {number_of(len(part), 'byte')}: it ignores"
        " byte ranges. Copy the file to a place that serves them",
        Place(source=url, start=start, stop=stop),
    )


# Beginnings of files, requested before the scan. Waking up a thread for an answer costs more
# processor time than the request itself: these are sent from the event loop, which wakes up none.


class Beginnings:
    """Requests the beginnings of files, and keeps each until it is taken. Thread-safe.

    Parameters
    ----------
    storage_options
        As for `open_for_scan`.
    layouts
        The expected places of reads in files.
    """

    def __init__(self, storage_options: Mapping[str, Any] | None, layouts: Layouts) -> None:
        self._files = RemoteFiles(storage_options)
        self._layouts = layouts
        self._came: dict[str, Beginning] = {}

    def ask(self, address: str, then: Callable[[], None], first_bytes: int = 0) -> None:
        """Request the beginning of a file; `then` is called when it has arrived or failed.

        The beginning is `first_bytes` until something is known about files beside it.

        Nothing is requested if answers do not describe the file, or if too many requests are in
        flight: the scan requests it then. Failures are kept, too: they count as the first attempt.
        """
        url = absolute_url(address)
        try:
            located = None if is_local(url) else self._files.locate(url)
        except GridrefError:
            located = None
        if located is None or not describes_answers(located[0]):
            return then()
        starts, stops = self._layouts.ranges(url, first_bytes=first_bytes)
        if not requests_in_flight.begin(len(starts)):
            return then()

        async def fetch() -> None:
            try:
                results = await asked(*located, url, starts, stops)
                self._came[url] = Beginning(located, starts, stops, results)
            finally:
                requests_in_flight.end(len(starts))
                then()

        loop = located[0].loop
        loop.call_soon_threadsafe(lambda: _keep(loop.create_task(fetch())))
        return None

    def take(self, url: str) -> Beginning | None:
        """Take what arrived of a file; each beginning can be taken once."""
        return self._came.pop(url, None)


_running: set[Any] = set()
"""Tasks: an event loop itself keeps no references to them."""


def _keep(task: Any) -> None:
    _running.add(task)
    task.add_done_callback(_running.discard)
