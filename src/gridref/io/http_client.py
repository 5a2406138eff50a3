"""How fsspec's HTTP filesystem is connected: where redirects may lead, and what goes along."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from gridref.model.source_policy import SourcePolicy

__all__ = ["HttpClient"]

_HARMLESS = frozenset({"accept", "accept-encoding", "host", "if-match", "range", "user-agent"})


@dataclass(frozen=True)
class HttpClient:
    """Makes aiohttp's sessions, for fsspec's option ``get_client``; one for each server.

    Headers and credentials were given for the server that the user named. They do not go along
    where it redirects to another one.

    Attributes
    ----------
    server
        Protocol, name and port of the server.
    policy
        Where it may redirect to; anywhere if None.
    """

    server: str
    policy: SourcePolicy | None = None

    @classmethod
    def of(cls, url: str, policy: SourcePolicy | None) -> HttpClient:
        """That for the server of a URL."""
        parts = urlsplit(url)
        return cls(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", policy)

    async def __call__(self, **options: Any) -> Any:
        """A session whose requests pass `send` first, each that follows a redirect too."""
        import aiohttp

        return aiohttp.ClientSession(middlewares=(self.send,), **options)

    async def send(self, request: Any, pass_on: Callable[[Any], Awaitable[Any]]) -> Any:
        """Send a request of aiohttp's.

        Raises
        ------
        SourceNotAllowedError
            If a redirect leads to where nothing may be read.
        """
        url = request.url
        if url.origin() != _origin_of(self.server):
            if self.policy is not None:
                self.policy.require(str(url))
            for name in [name for name in request.headers if name.lower() not in _HARMLESS]:
                del request.headers[name]
        return await pass_on(request)


@lru_cache(maxsize=64)
def _origin_of(server: str) -> Any:
    from yarl import URL

    return URL(server).origin()
