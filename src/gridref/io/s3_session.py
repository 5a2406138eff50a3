"""The S3 session for s3fs, which does not follow redirects.

If it followed them, credentials would be sent to any server that a redirect names. botocore finds
the region of a bucket without redirects, and its own client does not follow them either.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from aiobotocore.httpsession import AIOHTTPSession


class PlainSession(AIOHTTPSession):  # type: ignore[misc]
    """Sends each request only to the server that it is meant for."""

    async def _get_session(self, proxy_url: Any) -> Any:
        session = await super()._get_session(proxy_url)
        return SimpleNamespace(request=partial(session.request, allow_redirects=False))
