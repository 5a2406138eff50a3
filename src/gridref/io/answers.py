"""Byte ranges of a file, with the file's size and version out of the same answers.

A question of its own for size and version would cost as long as a range does. Where fsspec hides
what comes with a range, its filesystems' connections are used as their own ``_cat_file`` does.

An answer is taken for the range only if it says that it is: status 206 and the very range in
``Content-Range`` (RFC 9110, sections 14.4 and 15.3.7). Of a body no more is read than
was asked for.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from gridref.errors import Place, SourceUnavailableError
from gridref.io.identity import source_of_info
from gridref.io.limit import seconds_for
from gridref.model.manifest import Source

__all__ = ["Answer", "ask_described", "asked", "describes_answers"]

type Answer = tuple[bytes, Source]
"""The bytes of a range, and the file as it is now."""

_PARTIAL, _WHOLE = 206, 200
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII)


def describes_answers(filesystem: Any) -> bool:
    """Whether `ask_described` knows a filesystem."""
    return type(filesystem).__name__ in _ASKERS and not getattr(filesystem, "asynchronous", False)


def ask_described(
    filesystem: Any, path: str, url: str, starts: Sequence[int], stops: Sequence[int]
) -> list[Answer | BaseException]:
    """Ask for half-open ranges, all at once; each gives an answer, or the error it raised."""
    from fsspec.asyn import sync

    answers: list[Answer | BaseException] = sync(
        filesystem.loop, asked, filesystem, path, url, starts, stops
    )
    return answers


async def asked(
    filesystem: Any, path: str, url: str, starts: Sequence[int], stops: Sequence[int]
) -> list[Answer | BaseException]:
    """What `ask_described` returns, for who is on the event loop of the filesystem.

    Each range has the time that `seconds_for` gives all of them: a server that sends a byte now
    and then is as bad as one that sends none.
    """
    ask = _ASKERS[type(filesystem).__name__]
    limit = seconds_for(sum(stops) - sum(starts))

    async def ask_one(start: int, stop: int) -> Answer | BaseException:
        try:
            async with asyncio.timeout(limit):
                return await ask(filesystem, path, url, start, stop)
        except Exception as error:  # noqa: BLE001 - handed on as the result of the range
            return error

    if len(starts) == 1:  # the usual case, without a task of its own
        return [await ask_one(starts[0], stops[0])]
    return await asyncio.gather(*map(ask_one, starts, stops))


async def _ask_http(filesystem: Any, path: str, url: str, start: int, stop: int) -> Answer:
    settings = dict(filesystem.kwargs)
    headers = {
        "Accept-Encoding": "identity",
        **settings.pop("headers", {}),
        "Range": f"bytes={start}-{stop - 1}",
    }
    session = await filesystem.set_session()
    address = filesystem.encode_url(path)
    async with session.get(address, headers=headers, **settings) as response:
        response.raise_for_status()
        total = _checked(url, response.status, response.headers, start, stop)
        body = await _read_at_most(response.content, stop - start)
        if len(body) > stop - start:
            # The rest may be endless: the connection is not used again.
            response.close()
        version_headers = {name: response.headers.get(name) for name in _VERSION_HEADERS}
    return body, _described(url, total, version_headers)


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
    answered = response.get("ResponseMetadata", {})
    stated = {
        "Content-Range": response.get("ContentRange") or "",
        "Content-Length": str(response.get("ContentLength", "")),
    }
    total = _checked(url, answered.get("HTTPStatusCode", 0), stated, start, stop)
    body = await _read_at_most(response["Body"], stop - start)
    return body, _described(url, total, response)


async def _read_at_most(stream: Any, n_bytes: int) -> bytes:
    """The body, or one byte more than was asked for of one that is longer."""
    parts, missing = [], n_bytes + 1
    while missing > 0:
        part = await stream.read(missing)
        if not part:
            break
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _checked(
    url: str, status: int, headers: Mapping[str, str], start: int, stop: int
) -> int | None:
    """Size of the file, of an answer that is what was asked for; None where it is not said.

    All of a file is taken for a range that begins with it and reaches to its end or beyond.

    Raises
    ------
    SourceUnavailableError
        For any other answer.
    """
    place = Place(source=url, start=start, stop=stop)
    if headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
        raise SourceUnavailableError(
            f"the server sent the range compressed ({headers['Content-Encoding']}): its numbers of"
            " bytes are not those of the file. Switch that off at the server or its proxy",
            place,
        )
    length = headers.get("Content-Length", "")
    if status == _WHOLE and start == 0 and length.isdecimal() and int(length) <= stop:
        return int(length)
    if status != _PARTIAL:
        raise SourceUnavailableError(
            f"the server answered status {status} and not a range: it ignores byte ranges. Copy the"
            " file to a place that serves them",
            place,
        )
    stated = headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(stated.strip())
    total = int(match[3]) if match and match[3] != "*" else None
    end = stop if total is None else min(stop, total)
    if match is None or int(match[1]) != start or int(match[2]) != end - 1:
        raise SourceUnavailableError(
            f"the server answered with another range ({stated[:80]!r}) than was asked for: it, or a"
            " proxy before it, does not serve byte ranges faithfully",
            place,
        )
    return total


_VERSION_HEADERS = ("ETag", "Content-MD5", "Digest", "Last-Modified")
_ASKERS: dict[str, Callable[[Any, str, str, int, int], Awaitable[Answer]]] = {
    "HTTPFileSystem": _ask_http,
    "S3FileSystem": _ask_s3,
}


def _described(url: str, size: int | None, version_info: Mapping[str, Any]) -> Source:
    """The file, out of its size and what tells its version."""
    version = {name: value for name, value in version_info.items() if name in _KNOWN and value}
    return source_of_info(url, {**({} if size is None else {"size": size}), **version})


_KNOWN = frozenset({*_VERSION_HEADERS, "LastModified", "VersionId"})
