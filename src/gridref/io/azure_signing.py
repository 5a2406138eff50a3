"""Options of adlfs that sign each request with the credentials that hold then.

Azure's client asks a policy for headers and query before each request, but does not let it send a
refused request again. So credentials are renewed by their time of expiry alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from azure.storage.blob._shared.authentication import SharedKeyCredentialPolicy

from gridref.io.credentials import Credentials
from gridref.io.filesystems import http_credentials


class _Signing(SharedKeyCredentialPolicy):
    """The policy that the client takes as it is, in place of credentials."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__("", "")  # type: ignore[no-untyped-call]
        self._credentials = credentials

    async def on_request(self, request: Any) -> None:
        """Sign a request."""
        answer = await self._credentials.current_on_loop()
        headers, query = http_credentials(answer.options)
        request.http_request.headers.update(headers)
        quoted = {name: quote(value, safe="") for name, value in query.items()}
        request.http_request.format_parameters(quoted)


@lru_cache(maxsize=256)
def _signing(credentials: Credentials) -> _Signing:
    """Always the same, as fsspec's filesystems are."""
    return _Signing(credentials)


def azure_options(own: Mapping[str, Any], credentials: Credentials) -> dict[str, Any]:
    """The options of adlfs, for a provider that returns tokens or shared access signatures."""
    return {**own, "credential": _signing(credentials)}
