"""Connections and listings of fsspec's filesystems.

`HttpClient` makes HTTP sessions that control which redirects are followed and which headers go
along.

An object store lists a prefix page by page, each page after the one before. `glob_files` and
`find_files` therefore list several prefixes at the same time. fsspec's own `glob` lists one after
the other, and leaves out prefixes that cannot be listed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from fsspec.asyn import sync
from fsspec.utils import glob_translate

from gridref.errors import InvalidRequestError, Place
from gridref.io.credentials import MOST_REFUSALS, Answer, Credentials, refused_after_all
from gridref.io.faults import MAX_REQUESTS
from gridref.model.source_policy import SourcePolicy, split_http

# HTTP sessions: which redirects are followed, and which headers go along

_HARMLESS = frozenset({"accept", "accept-encoding", "host", "if-match", "range", "user-agent"})


@dataclass(frozen=True)
class HttpClient:
    """Makes aiohttp's sessions, for fsspec's option ``get_client``; one for each server.

    The user gave headers and credentials for one server. They are not sent to another one that it
    redirects to.

    Attributes
    ----------
    server
        Protocol, name and port of the server.
    policy
        The allowed targets of redirects; any if None.
    credentials
        Sent with each request, and renewed when the server refuses them.
    """

    server: str
    policy: SourcePolicy | None = None
    credentials: Credentials | None = None

    @classmethod
    def of(
        cls, url: str, policy: SourcePolicy | None, credentials: Credentials | None = None
    ) -> HttpClient:
        """The client for the server of a URL."""
        try:
            parts = split_http(url)
        except ValueError as error:
            raise InvalidRequestError(f"no address: {error}", Place(source=url)) from None
        server = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        return cls(server, policy, credentials)

    async def __call__(self, **options: Any) -> Any:
        """A session that sends all requests by `send`, those after redirects included."""
        import aiohttp

        return aiohttp.ClientSession(middlewares=(self.send,), **options)

    async def send(self, request: Any, pass_on: Callable[[Any], Awaitable[Any]]) -> Any:
        """Send a request of aiohttp's.

        Raises
        ------
        SourceNotAllowedError
            If the target of a redirect may not be read.
        SourceUnavailableError
            If the server refuses the credentials, and new ones as well.
        """
        url = request.url
        if self.policy is not None:
            server, path = str(url.origin()), url.raw_path_qs
            self.policy.require(server + path.replace("::", "%3A%3A"))  # it is no chain
        if url.origin() != type(url)(self.server).origin():
            for name in [name for name in request.headers if name.lower() not in _HARMLESS]:
                del request.headers[name]
        elif self.credentials is not None:
            return await _with_credentials(self.credentials, request, pass_on)
        return await pass_on(request)


CREDENTIALS = frozenset({"headers", "params", "sas_token", "token"})
"""The names of HTTP credentials: header fields, parts of the query, and tokens of obstore."""
_UNAUTHORISED, _FORBIDDEN = 401, 403


async def _with_credentials(
    credentials: Credentials, request: Any, pass_on: Callable[[Any], Awaitable[Any]]
) -> Any:
    """The answer to a request that is sent again with new credentials while it is refused."""
    url = request.url
    answer: Answer | None = await credentials.current_on_loop()
    status = 0
    for _ in range(MOST_REFUSALS):
        if answer is None:
            break
        headers, query = http_credentials(answer.options)
        request.headers.update(headers)
        request.url = url.update_query(query) if query else url
        response = await pass_on(request)
        status = response.status
        if status not in (_UNAUTHORISED, _FORBIDDEN):
            return response
        response.release()
        answer = await credentials.after_on_loop(answer, is_plain=status == _FORBIDDEN)
    else:
        credentials.no_use()
    raise refused_after_all(str(url), f"status {status}")


def http_credentials(options: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """The header fields, and the parts of the query, that credentials stand in."""
    headers, query = dict(options.get("headers") or {}), dict(options.get("params") or {})
    if options.get("token"):
        headers["Authorization"] = f"Bearer {options['token']}"
    if options.get("sas_token"):
        query |= parse_qsl(options["sas_token"].removeprefix("?"))
    return headers, query


# Listings of object stores: many prefixes at the same time, never from a cache

_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
_MOST_FOLDERS = 256
"""More prefixes than these are listed by one listing of their parent: each may hold little."""
_MAGIC = re.compile(r"[*?\[]")

Infos = list[dict[str, Any]]


def is_object_store(filesystem: Any) -> bool:
    """Whether a filesystem lists prefixes, and waits on fsspec's event loop."""
    names = filesystem.protocol
    known = {names} if isinstance(names, str) else {*names}
    return bool(known & _OBJECT_STORES) and filesystem.async_impl and not filesystem.asynchronous


type IsData = Callable[[str], bool]
"""Whether a folder is one piece of data, which is not looked into."""


def glob_files(filesystem: Any, pattern: str, is_data: IsData) -> list[str]:
    """The objects of an object store, and folders of data, that match a pattern without ``**``.

    Raises
    ------
    OSError
        If any prefix that may hold matches cannot be listed.
    """
    return _run(filesystem, _globbed(_Lister(filesystem), pattern, is_data))


def find_files(filesystem: Any, path: str, is_data: IsData) -> list[str]:
    """All objects of an object store below a path; raises as `glob_files` does.

    Of a folder of data right below it, the name with a slash stands for its objects.
    """
    return _run(filesystem, _found(_Lister(filesystem), path.rstrip("/"), is_data))


def _run(filesystem: Any, work: Coroutine[Any, Any, list[str]]) -> list[str]:
    async def listed() -> list[str]:
        return await work

    filesystem.invalidate_cache()  # an earlier listing may be out of date
    names: list[str] = sync(filesystem.loop, listed)
    return names


class _Lister:
    """Lists prefixes, a limited number at a time."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem
        self._going = asyncio.Semaphore(MAX_REQUESTS)

    async def inside(self, folder: str, stem: str = "") -> Infos:
        """The entries of a folder that begin with `stem`; none if the folder does not exist."""
        async with self._going:
            try:
                if not stem:
                    infos = await self._filesystem._ls(folder, detail=True)  # noqa: SLF001
                else:
                    infos = await self._find(folder, maxdepth=1, withdirs=True, prefix=stem)
            except FileNotFoundError:
                return []
        return [info for info in infos if info["name"].rstrip("/") != folder.rstrip("/")]

    async def below(self, folder: str) -> Infos:
        """All objects below a folder."""
        async with self._going:
            return await self._find(folder)

    async def _find(self, folder: str, **options: Any) -> Infos:
        found = await self._filesystem._find(folder, detail=True, **options)  # noqa: SLF001
        return list(found.values())


async def _all(listings: Iterable[Coroutine[Any, Any, Infos]]) -> Infos:
    parts: Sequence[Infos] = await asyncio.gather(*listings)
    return [info for part in parts for info in part]


async def _globbed(lister: _Lister, pattern: str, is_data: IsData) -> list[str]:
    parts = pattern.split("/")
    n_fixed = next(n for n, part in enumerate(parts) if _MAGIC.search(part))
    folders = ["/".join(parts[:n_fixed])]
    for part in parts[n_fixed:-1]:
        if not _MAGIC.search(part):
            folders = [f"{folder}/{part}" for folder in folders]
            continue
        folders = _like(part, await _inside_all(lister, folders, part), is_folder=True)
    infos = await _inside_all(lister, folders, parts[-1])
    data = filter(is_data, _like(parts[-1], infos, is_folder=True))
    return [*_like(parts[-1], infos, is_folder=False), *data]


async def _inside_all(lister: _Lister, folders: Sequence[str], part: str) -> Infos:
    stem = _MAGIC.split(part, maxsplit=1)[0]
    return await _all(lister.inside(folder, stem) for folder in folders)


def _like(part: str, infos: Infos, *, is_folder: bool) -> list[str]:
    """The folders, or objects, whose last name is like a part of a pattern."""
    pattern = re.compile(glob_translate(part))
    names = [
        info["name"].rstrip("/") for info in infos if (info["type"] == "directory") == is_folder
    ]
    return [name for name in names if pattern.match(name.rpartition("/")[2])]


async def _found(lister: _Lister, folder: str, is_data: IsData) -> list[str]:
    infos = await lister.inside(folder)
    within = [info["name"].rstrip("/") for info in infos if info["type"] == "directory"]
    folders = [name for name in within if not is_data(name)]
    if len(folders) > _MOST_FOLDERS:
        return [info["name"] for info in await lister.below(folder)]
    files = [info["name"] for info in infos if info["type"] != "directory"]
    files += [f"{name}/" for name in within if is_data(name)]
    if len(folders) == 1:
        return [*files, *await _found(lister, folders[0], is_data)]
    return [*files, *(info["name"] for info in await _all(map(lister.below, folders)))]
