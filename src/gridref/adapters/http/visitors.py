"""Whom a server answers: under which names it may be asked, and which web pages may read from it.

A web page anywhere may send requests to servers on its visitor's machine, and a name of its own
may lead there (DNS rebinding). So a server answers to the names that it knows only, and no page of
another origin may read what it says unless that origin was named.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Visitors"]

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
        """From what users write."""
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
            return 400, "a request needs one Host field\n"
        name = match[1].strip("[]").rstrip(".")
        if {"*", name} & self.hosts or _is_loopback(name) or name == _address(scope):
            return None
        return 421, "this server is not known under that name: see --allow-host\n"

    def headers(self, scope: Mapping[str, Any]) -> tuple[tuple[bytes, bytes], ...]:
        """What lets web pages read a response; nothing where they may not."""
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
