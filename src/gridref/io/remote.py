"""Files on any fsspec filesystem."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import batched
from typing import Any

from fsspec.archive import AbstractArchiveFileSystem

from gridref.cache import LRU
from gridref.errors import GridrefError, Place, SourceUnavailableError
from gridref.forks import new_lock, tell_in_children
from gridref.io.address import open_filesystem, real_path
from gridref.io.answers import ask_described, describes_answers
from gridref.io.faults import RetryPolicy, is_transient, shown, status_of, unavailable
from gridref.io.identity import check_identity, source_of_info
from gridref.io.limit import MAX_REQUESTS, requests_in_flight, waiting, within_limit
from gridref.io.opened import note_opened
from gridref.io.traffic import current_traffic
from gridref.model.manifest import Source
from gridref.model.source_policy import SourcePolicy

__all__ = ["RemoteFiles"]

_KEPT_BYTES = 16 * 2**20
_RANGE_NOT_SATISFIABLE = 416
_one_at_a_time = new_lock()
"""Members of an archive are read through one open file, whose position threads would share."""


class RemoteFiles:
    """Reads ranges of files through fsspec, several at once where the filesystem can. Thread-safe.

    Parameters
    ----------
    storage_options
        Options of the filesystem, or a mapping of protocol to options.
    retry
        What to do about transient failures.
    """

    def __init__(
        self, storage_options: Mapping[str, Any] | None = None, retry: RetryPolicy | None = None
    ) -> None:
        self._storage_options = dict(storage_options or {})
        self._retry = retry or RetryPolicy()
        self._traffic = current_traffic()
        tell_in_children(self)
        self._located = LRU[tuple[Any, str]](_KEPT_BYTES, lambda located: 200 + 2 * len(located[1]))
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
        """Take what another reader with the same options has located."""
        self._located.put((url, None), located)

    def describe(self, url: str, policy: SourcePolicy | None = None) -> Source:
        """Size and version of a file, asked of the server and not of a kept listing."""
        filesystem, path = self.locate(url, policy)

        def ask() -> Source:
            filesystem.invalidate_cache(path.rpartition("/")[0])
            self._traffic.add(1)
            info: Mapping[str, Any] = within_limit(filesystem, "info")(path)
            if info.get("type") == "directory":
                raise IsADirectoryError(path)
            return replace(source_of_info(url, info), policy=policy)

        return self._retry.call(ask, url)

    def begin(
        self,
        url: str,
        starts: Sequence[int],
        stops: Sequence[int],
        came: list[Any] | None = None,
    ) -> tuple[Source, list[bytes]]:
        """Describe a file and read bytes of it, with one request where the answer tells both.

        The first range starts at 0. Bytes of ranges that did not come whole are empty. What `came`
        of a first attempt was asked for ahead of time, and is counted now.
        """
        if self.checks(url):
            attempts = [] if came is None else [came]
            self._traffic.add(len(starts) * len(attempts))

            def ask() -> list[Any]:
                results = _told(attempts.pop()) if attempts else self._ask(url, starts, stops)
                if isinstance(results[0], BaseException):
                    raise results[0]
                return results

            results = self._retry.call(ask, url)
            source = results[0][1]
            if source is not None and source.size_bytes is not None:
                return source, [
                    self._beginning(source, result, start, stop)
                    for result, start, stop in zip(results, starts, stops, strict=True)
                ]
        return self.describe(url), [b""] * len(starts)

    def _beginning(self, source: Source, result: Any, start: int, stop: int) -> bytes:
        """The bytes of a range, if they are all there and of that file."""
        if isinstance(result, BaseException) or result[1] is None:
            return b""
        part, current = result
        check_identity(source, current)
        self._traffic.add(0, len(part))
        whole = len(_not_too_long(source.url, part, start, stop)) == (
            min(stop, source.size_bytes or 0) - start
        )
        return bytes(part) if whole else b""

    def checks(self, url: str, policy: SourcePolicy | None = None) -> bool:
        """Whether `fetch` can compare a file with what was recorded by itself."""
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

        Every answer is compared with what was `recorded`, where the server says what it is of.
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
                    part, current = result
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
        """One result a range: bytes and the file they are of, if known; or what was raised."""
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
    """Results of which a range behind the end of its file is no bytes and no failure."""
    return [
        (b"", None)
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
    ask = within_limit(filesystem, "cat_ranges", sum(stops) - sum(starts))
    with _one_at_a_time if isinstance(filesystem, AbstractArchiveFileSystem) else nullcontext():
        results = ask([path] * len(starts), list(starts), list(stops), on_error="return")
    return [
        result if isinstance(result, BaseException) else (bytes(result), None) for result in results
    ]


def _ours(url: str, failure: BaseException, start: int, stop: int) -> GridrefError:
    """Our error for what was raised instead of the bytes of a range."""
    if isinstance(failure, GridrefError):
        return failure.located(Place(source=url, start=start, stop=stop))
    error = unavailable(url, failure, start, stop)
    error.__cause__ = shown(failure)
    return error


def _not_too_long(url: str, part: bytes, start: int, stop: int) -> bytes:
    """Refuse what a server sends that ignores byte ranges."""
    if len(part) <= stop - start:
        return part
    raise SourceUnavailableError(
        f"the server sent {len(part)} bytes for a range of {stop - start}: it ignores byte ranges."
        " Copy the file to a place that serves them",
        Place(source=url, start=start, stop=stop),
    )
