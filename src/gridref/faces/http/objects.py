"""Turn a request for a key into a response: status, headers and body. Nothing is sent here."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import imagecodecs

from gridref.cache import LRU, cache_bytes
from gridref.faces.http.bodies import Body, multipart, whole
from gridref.faces.http.requests import Preconditions, UnsatisfiableError, parse_range
from gridref.serve.segments import LiteralSegment, VirtualObject
from gridref.serve.tasks import Buffer

METADATA_TYPE = "application/json"
CHUNK_TYPE = "application/octet-stream"
MIN_GZIP_BYTES = 1_024
MOST_PACKED_BYTES = 64 * 2**20
"""Of a chunk that is compressed on its way: it is in memory as a whole."""
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
    size
        Its size in bytes.
    content_type
        Media type.
    coding
        ``Content-Encoding``; empty for none.
    varies
        Whether other clients may get it in another coding.
    """

    virtual_object: VirtualObject
    size: int
    content_type: str
    coding: str = ""
    varies: bool = False


def representation(
    virtual_object: VirtualObject, size: int, *, metadata: bool, headers: Mapping[str, str]
) -> Representation:
    """Choose the coding: gzip for metadata, if the client takes it and wants no range of it."""
    kind = METADATA_TYPE if metadata else CHUNK_TYPE
    plain = Representation(virtual_object, size, kind, varies=metadata)
    if not metadata or size < MIN_GZIP_BYTES or "range" in headers:
        return plain
    if not takes_gzip(headers.get("accept-encoding", "")):
        return plain
    (segment,) = virtual_object.segments
    assert isinstance(segment, LiteralSegment)
    return _coded(plain, gzipped(virtual_object.etag, segment.data), "gzip")


def packed_chunk(
    shown: Representation, read: Callable[[], Buffer], headers: Mapping[str, str]
) -> Representation:
    """A chunk in the coding that the client takes; as it is if large, or if a range is wanted."""
    shown = replace(shown, varies=True)
    coding = value_coding(headers.get("accept-encoding", ""))
    if not coding or "range" in headers or not MIN_GZIP_BYTES <= shown.size <= MOST_PACKED_BYTES:
        return shown
    return _coded(shown, packed(shown.virtual_object.etag, read, coding), coding)


def _coded(plain: Representation, data: bytes, coding: str) -> Representation:
    shown = VirtualObject((LiteralSegment(data),), f"{plain.virtual_object.etag}-{coding}")
    return replace(plain, virtual_object=shown, size=len(data), coding=coding)


_PACKED = LRU[bytes](cache_bytes() // 4, len)
"""Bodies by their ETag and coding: compressed once for all requests."""


def gzipped(etag: str, data: bytes) -> bytes:
    """Compress a document, once for all requests; `etag` identifies it."""
    return _PACKED.get_or_load(("", etag), lambda: gzip.compress(data, 6, mtime=0))


def packed(etag: str, read: Callable[[], Buffer], coding: str) -> bytes:
    """Compress values, which are read for it, fast and once for all requests."""
    return _PACKED.get_or_load((coding, etag), lambda: compressed(read(), coding))


def compressed(data: Buffer, coding: str) -> bytes:
    """Values in a coding of `value_coding`, at the level that takes the least time."""
    encode = imagecodecs.zstd_encode if coding == "zstd" else imagecodecs.gzip_encode
    return bytes(encode(data, level=1))


def value_coding(accepted: str) -> str:
    """The coding for values that ``Accept-Encoding`` allows: zstd, else gzip, else none (empty).

    Zstandard's first level needs a window of 512 KiB, and clients need not take more than 8 MiB
    (RFC 9659).
    """
    weights = _weights(accepted)
    return next((each for each in ("zstd", "gzip") if weights.get(each, weights.get("*", 0))), "")


def takes_gzip(accepted: str) -> bool:
    """Whether ``Accept-Encoding`` allows gzip: RFC 9110, section 12.5.3."""
    weights = _weights(accepted)
    return weights.get("gzip", weights.get("*", 0)) > 0


def _weights(accepted: str) -> dict[str, float]:
    return dict(map(_weight_of, accepted.split(",")))


def _weight_of(coding: str) -> tuple[str, float]:
    """A coding and its weight; what is not a number means that it is not wanted."""
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
        *(((b"vary", b"Accept-Encoding"),) if shown.varies else ()),
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
