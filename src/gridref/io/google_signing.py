"""Options of gcsfs that sign each request with the credentials that hold then.

gcsfs takes middlewares for its HTTP session, so that requests are signed, and sent again if they
are refused, as those of other servers are. Over gRPC it asks which kind a bucket is of.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import google.auth.credentials

from gridref.io.credentials import Credentials
from gridref.io.filesystems import HttpClient

_ENDPOINT = "https://storage.googleapis.com"


class _Signing(google.auth.credentials.Credentials):
    """Google's credentials, in whose place those stand that hold when gRPC signs a request."""

    valid = True

    def __init__(self, credentials: Credentials) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._credentials = credentials

    def apply(self, headers: dict[str, str], token: str | None = None) -> None:
        """Nothing, as the HTTP session signs."""

    def refresh(self, request: Any) -> None:
        """Nothing, as there is no token that could be old."""

    def before_request(self, request: Any, method: str, url: str, headers: dict[str, str]) -> None:
        """Sign a request of gRPC."""
        headers["authorization"] = f"Bearer {self._credentials.current().options['token']}"


@lru_cache(maxsize=256)
def _signing(credentials: Credentials) -> _Signing:
    """Always the same, as fsspec's filesystems are."""
    return _Signing(credentials)


def google_options(own: Mapping[str, Any], credentials: Credentials) -> dict[str, Any]:
    """The options of gcsfs, for a provider that returns tokens."""
    endpoint = own.get("endpoint_url") or _ENDPOINT
    send = HttpClient.of(endpoint, None, credentials).send
    return {
        **own,
        "endpoint_url": endpoint,
        "session_kwargs": {"middlewares": (send,), **own.get("session_kwargs", {})},
        "token": _signing(credentials),
    }
