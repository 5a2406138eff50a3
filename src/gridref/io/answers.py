"""Byte ranges together with what the server says of the file they are of.

A question of its own for size and version would cost as long as a range does. Where fsspec hides
what comes with a range, its filesystems' connections are used as their own ``_cat_file`` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from gridref.io.identity import source_of_info
from gridref.model.manifest import Source

__all__ = ["Answer", "ask_described", "describes_answers"]

type Answer = tuple[bytes, Source]
"""The bytes of a range, and the file as it is now."""


def describes_answers(filesystem: Any) -> bool:
    """Whether `ask_described` knows a filesystem."""
    return type(filesystem).__name__ in _ASKERS and not getattr(filesystem, "asynchronous", False)


def ask_described(
    filesystem: Any, path: str, url: str, starts: Sequence[int], stops: Sequence[int]
) -> list[Answer | BaseException]:
    """One answer a half-open range, or what was raised instead; all are asked for at once."""
    from fsspec.asyn import sync

    ask = _ASKERS[type(filesystem).__name__]

    async def ask_all() -> list[Answer | BaseException]:
        return await asyncio.gather(
            *(ask(filesystem, path, url, a, b) for a, b in zip(starts, stops, strict=True)),
            return_exceptions=True,
        )

    found: list[Answer | BaseException] = sync(filesystem.loop, ask_all)
    return found


async def _ask_http(filesystem: Any, path: str, url: str, start: int, stop: int) -> Answer:
    settings = dict(filesystem.kwargs)
    headers = {**settings.pop("headers", {}), "Range": f"bytes={start}-{stop - 1}"}
    session = await filesystem.set_session()
    address = filesystem.encode_url(path)
    async with session.get(address, headers=headers, **settings) as response:
        body = await response.read()
        response.raise_for_status()
        found = {name: response.headers.get(name) for name in _VERSION_HEADERS}
        size = response.headers.get("Content-Range") or ""
        if response.status == 200 and "Content-Encoding" not in response.headers:
            size = str(len(body))
    return body, _described(url, size, found)


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
    body = await response["Body"].read()
    return body, _described(url, response.get("ContentRange", ""), response)


_VERSION_HEADERS = ("ETag", "Content-MD5", "Digest", "Last-Modified")
_ASKERS: dict[str, Callable[[Any, str, str, int, int], Awaitable[Answer]]] = {
    "HTTPFileSystem": _ask_http,
    "S3FileSystem": _ask_s3,
}


def _described(url: str, content_range: str, found: Mapping[str, Any]) -> Source:
    """The file, out of a size or ``Content-Range`` and what tells its version."""
    total = content_range.rpartition("/")[2]
    size = {"size": int(total)} if total.isdecimal() else {}
    version = {name: value for name, value in found.items() if name in _KNOWN and value}
    return source_of_info(url, {**size, **version})


_KNOWN = frozenset({*_VERSION_HEADERS, "LastModified", "VersionId"})
