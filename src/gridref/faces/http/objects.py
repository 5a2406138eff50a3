"""Turn a request for a key into a response: status, headers and body. Nothing is sent here."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gridref.cache import LRU, cache_bytes
from gridref.faces.http.bodies import Body, multipart, whole
from gridref.faces.http.requests import Preconditions, UnsatisfiableError, parse_range
from gridref.serve.segments import LiteralSegment, VirtualObject

METADATA_TYPE = "application/json"
CHUNK_TYPE = "application/octet-stream"
MIN_GZIP_BYTES = 1_024
_WEIGHT = re.compile(r"[01](\.[0-9]{0,3})?", re.ASCII)


@dataclass(frozen=True)
class Answer:
    """A response before it is sent.

    Attributes
    ----------
    status
        HTTP status.
    headers
        Header fields.
    body
        What is sent; None where only headers are.
    virtual_object
        The object that ranges in the body count into.
    """

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: Body | None = None
    virtual_object: VirtualObject | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Representation:
    """An object in the coding in which it is sent.

    Attributes
    ----------
    virtual_object
        The object.
    size
        Its size in bytes.
    content_type
        Media type.
    coding
        ``Content-Encoding``; empty for none.
    """

    virtual_object: VirtualObject
    size: int
    content_type: str
    coding: str = ""


def representation(
    virtual_object: VirtualObject, size: int, *, metadata: bool, headers: Mapping[str, str]
) -> Representation:
    """Choose the coding: gzip for metadata, if the client takes it and wants no range of it."""
    plain = Representation(virtual_object, size, METADATA_TYPE if metadata else CHUNK_TYPE)
    if not metadata or size < MIN_GZIP_BYTES or "range" in headers:
        return plain
    if not takes_gzip(headers.get("accept-encoding", "")):
        return plain
    (segment,) = virtual_object.segments
    assert isinstance(segment, LiteralSegment)
    data = gzipped(virtual_object.etag, segment.data)
    packed = VirtualObject((LiteralSegment(data),), f"{virtual_object.etag}-gzip")
    return replace(plain, virtual_object=packed, size=len(data), coding="gzip")


_GZIPPED = LRU[bytes](cache_bytes() // 4, len)
"""Documents by their ETag: compressed once for all requests."""


def gzipped(etag: str, data: bytes) -> bytes:
    """Compress a document, once for all requests; `etag` identifies it."""
    return _GZIPPED.get_or_load(etag, lambda: gzip.compress(data, 6, mtime=0))


def takes_gzip(accepted: str) -> bool:
    """Whether ``Accept-Encoding`` allows gzip: RFC 9110, section 12.5.3."""
    weights = dict(map(_weight_of, accepted.split(",")))
    return weights.get("gzip", weights.get("*", 0)) > 0


def _weight_of(coding: str) -> tuple[str, float]:
    """A coding and its weight; what is no number means that it is not wanted."""
    name, _, parameter = coding.partition(";")
    key, _, value = parameter.strip().lower().partition("=")
    if key.strip() != "q":
        return name.strip().lower(), 1
    return name.strip().lower(), float(value) if _WEIGHT.fullmatch(value.strip()) else 0


def answer(
    shown: Representation, method: str, headers: Mapping[str, str], cache_control: bytes
) -> Answer:
    """Answer a GET or HEAD request for an object that is there.

    Source: RFC 9110, section 13.2.2 (order of conditions), 14.2 and 15.3.7 (ranges).
    """
    etag = shown.virtual_object.etag
    common = (
        (b"etag", f'"{etag}"'.encode()),
        (b"accept-ranges", b"bytes"),
        (b"cache-control", cache_control),
        *(((b"vary", b"Accept-Encoding"),) if shown.content_type == METADATA_TYPE else ()),
    )
    conditions = Preconditions(
        headers.get("if-match"), headers.get("if-none-match"), headers.get("if-range"), etag
    )
    if conditions.status is not None:
        return Answer(conditions.status, common)
    asked = headers.get("range") if method == "GET" and conditions.range_counts else None
    try:
        ranges = parse_range(asked, shown.size)
    except UnsatisfiableError:
        return Answer(416, (*common, (b"content-range", f"bytes */{shown.size}".encode())))
    content_type = shown.content_type
    if ranges is None:
        status, body = 200, whole(0, shown.size)
    elif len(ranges) == 1:
        status, body = 206, whole(*ranges[0])
        start, stop = ranges[0]
        common += ((b"content-range", f"bytes {start}-{stop - 1}/{shown.size}".encode()),)
    else:
        status, body = 206, multipart(ranges, shown.size, content_type, etag)
        content_type = f"multipart/byteranges; boundary={etag}"
    common += (
        (b"content-type", content_type.encode()),
        (b"content-length", str(body.n_bytes).encode()),
    )
    if shown.coding:
        common += ((b"content-encoding", shown.coding.encode()),)
    return Answer(status, common, body if method == "GET" else None, shown.virtual_object)
