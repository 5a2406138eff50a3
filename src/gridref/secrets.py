"""Credentials and signatures in addresses: taken out of what is shown, and of what is kept."""

from __future__ import annotations

import re

__all__ = ["without_secrets", "without_signature"]

_USER = re.compile(r"(?<=://)[^/?#\s]*@")
_REST = r"(?:(?!, )[^\s'\"\])>])*"
_HTTP_QUERY = re.compile(rf"(https?://[^\s'\"?#]*)[?#]{_REST}")
_QUERY = re.compile(rf"(://[^\s'\"?#]*)\?{_REST}={_REST}")
_SPACED_QUERY = re.compile(rf"\?[^\s'\"?=&]+={_REST}")
"""One that stands behind a blank in a path."""
_WITH_QUERY = re.compile(r"((?:.*::)?https?://[^?#]*)\?([^#]*)(?:#.*)?", re.DOTALL)
_SIGNATURE = re.compile(
    r"x-amz-.*|x-goog-.*|awsaccesskeyid|googleaccessid|signature|expires|policy|key-pair-id"
    r"|s[a-z]{1,2}|skoid|sktid|skt|ske|sks|skv|.*(token|secret|password|passwd|pwd|auth|credential)"
    r".*|(api[-_]?|access[-_]?|subscription[-_]?)?key|sess(ion)?(id)?|hmac|hdnea|jwt|user(name)?",
    re.IGNORECASE,
)
"""Names in queries: AWS SigV2 and SigV4, CloudFront, Google Cloud, Azure SAS, and usual ones."""


def without_secrets(text: str) -> str:
    """A text for people without the credentials and the queries of the URLs in it."""
    if "://" not in text:
        return text
    text = _QUERY.sub(r"\1", _HTTP_QUERY.sub(r"\1", _USER.sub("", text)))
    return _SPACED_QUERY.sub("", text)


def without_signature(url: str) -> str:
    """An address that can be kept: without credentials, and what signs it in its query.

    The rest of the query stays, as it may say which file is meant.
    """
    if "://" not in url:
        return url
    url = _USER.sub("", url)
    parts = _WITH_QUERY.fullmatch(url)
    if parts is None:
        return url
    kept = [
        part for part in parts[2].split("&") if not _SIGNATURE.fullmatch(part.partition("=")[0])
    ]
    return "?".join([parts[1], "&".join(kept)]) if kept else parts[1]
