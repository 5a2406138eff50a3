"""S3 sessions for s3fs: redirects are not followed, and credentials are renewed.

If `PlainSession` followed redirects, credentials would be sent to any server that a redirect names.
botocore finds the region of a bucket without redirects, and its own client does not follow them
either.

`session_of` makes a session that signs each request with the credentials that hold then. A request
that is refused is sent again with new ones.

Source: Amazon S3 API Reference, "Error responses"; botocore's events ``needs-retry``.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

from aiobotocore.credentials import AioCredentials, ReadOnlyCredentials
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession

from gridref.io.credentials import MOST_REFUSALS, Answer, Credentials, refused_after_all

KEYS = ("key", "secret", "token")
"""The options of s3fs that are credentials."""

_EXPIRED = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidToken",
        "InvalidTokenId",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
"""Codes of errors of credentials. Answers to HEAD have no code but the status."""
_REFUSED = frozenset({400, 401, 403})
_PLAIN = frozenset({"403", "AccessDenied", "Forbidden"})


class PlainSession(AIOHTTPSession):  # type: ignore[misc]
    """Sends each request only to the server that it is meant for."""

    async def _get_session(self, proxy_url: Any) -> Any:
        session = await super()._get_session(proxy_url)
        return SimpleNamespace(request=partial(session.request, allow_redirects=False))


_signed_with: ContextVar[Answer | None] = ContextVar("gridref_signed_with", default=None)
"""What the current task signed its last request with."""


class _Signing(AioCredentials):  # type: ignore[misc]
    """botocore's credentials, in whose place those stand that hold when a request is signed."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__("", "", method="gridref")
        self._credentials = credentials

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """What a request is signed with."""
        answer = await self._credentials.current_on_loop()
        _signed_with.set(answer)
        return ReadOnlyCredentials(*(answer.options.get(name) for name in KEYS))


@lru_cache(maxsize=256)
def session_of(credentials: Credentials) -> AioSession:
    """The session for some credentials; always the same, as fsspec's filesystems are."""
    session = AioSession()
    session._credentials = _Signing(credentials)  # noqa: SLF001 - botocore sets keys alone

    async def retried(
        response: Any = None, attempts: int = 0, request_dict: Any = None, **_: Any
    ) -> int | None:
        """How long to wait before a refused request is sent again; None if this is no refusal."""
        if response is None or response[0].status_code not in _REFUSED:
            return None
        code = str(response[1].get("Error", {}).get("Code", ""))
        refused = _signed_with.get()
        if refused is None or not (code in _EXPIRED or code in _PLAIN or code.isdecimal()):
            return None
        is_plain = code in _PLAIN
        if attempts < MOST_REFUSALS:
            new = await credentials.after_on_loop(refused, is_plain=is_plain)
            if new is not None:
                return 0
        elif is_plain:
            credentials.no_use()
        raise refused_after_all(_address(request_dict), code)

    session.register("needs-retry.s3", retried)
    return session


def _address(request: Any) -> str:
    """The address of what a request is for."""
    signing = (request or {}).get("context", {}).get("s3_redirect", {})
    bucket, key = signing.get("bucket") or "", signing.get("params", {}).get("Key", "")
    return f"s3://{bucket}/{key}"
