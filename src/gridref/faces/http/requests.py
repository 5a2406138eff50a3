"""What a request asks for: its path and query, ranges, conditions and codings. Pure.

Source: RFC 9110, sections 8.8.3 (entity tags), 12.5.3 (codings), 13 (conditional requests) and 14
(range requests).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import parse_qs

from gridref.faces.web.frame import Links
from gridref.limits import limits
from gridref.model.grid import joined_ranges
from gridref.typing import Scope

type Fields = tuple[tuple[bytes, bytes], ...]
"""Header fields."""


@dataclass(frozen=True)
class Request:
    """What a client asks for.

    Attributes
    ----------
    path
        Its path, decoded.
    query
        Its parameters. Of each the last one counts.
    headers
        Header fields by their names in small letters.
    origin
        The address of the server, as the client has it.
    """

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    origin: str

    @classmethod
    def of(cls, scope: Scope) -> Request:
        """From an ASGI scope."""
        headers: dict[str, str] = {}
        for field in scope["headers"]:
            name, value = (each.decode("latin-1") for each in field)
            # Several fields of one name are one list (RFC 9110, section 5.2).
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return cls(
            scope["method"],
            scope["path"],
            parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True),
            headers,
            f"{scope.get('scheme', 'http')}://{headers.get('host', '')}",
        )

    def option(self, name: str, default: str = "") -> str:
        """What the query says; the last word counts."""
        return self.query.get(name, [default])[-1]

    @property
    def by_browser(self) -> bool:
        """Whether pages are wanted; programs ask for any type, or for none."""
        return "text/html" in self.headers.get("accept", "")

    @property
    def links(self) -> Links:
        """Where things are, as seen from the page."""
        return Links.of_page(self.path)

    @cached_property
    def _weights(self) -> dict[str, float]:
        return dict(map(_weight_of, self.headers.get("accept-encoding", "").split(",")))

    def takes(self, coding: str) -> bool:
        """Whether ``Accept-Encoding`` allows a coding."""
        return self._weights.get(coding, self._weights.get("*", 0)) > 0

    @property
    def value_coding(self) -> str:
        """The coding for values that the client takes: zstd, else gzip, else none (empty).

        Zstandard's first level needs a window of 512 KiB, and clients need not take more than 8 MiB
        (RFC 9659).
        """
        return next(filter(self.takes, ("zstd", "gzip")), "")


_WEIGHT = re.compile(r"[01](\.[0-9]{0,3})?", re.ASCII)


def _weight_of(coding: str) -> tuple[str, float]:
    """A coding and its weight; what is not a number means that it is not wanted."""
    name, _, parameter = coding.partition(";")
    key, _, value = parameter.strip().lower().partition("=")
    if key.strip() != "q":
        return name.strip().lower(), 1
    return name.strip().lower(), float(value) if _WEIGHT.fullmatch(value.strip()) else 0


# Ranges and conditions

MAX_HEADER = 8_192

_SPEC = re.compile(r"(\d*)-(\d*)", re.ASCII)
_BEYOND = 10**18
"""Past the end of any object."""
_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')

type RangeSet = tuple[tuple[int, int], ...]
"""Half-open byte ranges in the requested order, without overlap."""


class UnsatisfiableError(Exception):
    """No byte of the object is asked for, or far too many ranges are: status 416."""


def parse_range(header: str | None, size: int) -> RangeSet | None:
    """The byte ranges that a ``Range`` header asks for.

    Returns
    -------
    tuple or None
        The ranges, cut at the object's end; overlapping ones are merged. None where the header is
        absent, of another unit or malformed, and so to be ignored.

    Raises
    ------
    UnsatisfiableError
        If no range is inside the object, or there are too many.
    """
    if header is None:
        return None
    unit, separator, text = header.partition("=")
    if unit.strip().lower() != "bytes" or not separator:
        return None
    specs = [spec.strip() for spec in text.split(",")] if len(header) <= MAX_HEADER else []
    if not 0 < len(specs) <= limits().request_ranges:
        raise UnsatisfiableError
    ranges = []
    for spec in specs:
        match = _SPEC.fullmatch(spec)
        if match is None or spec == "-":
            return None
        first, last = match.groups()
        if first and last and _position(last) < _position(first):
            return None
        ranges.append(_resolve(first, last, size))
    inside = [(start, stop) for start, stop in ranges if start < stop]
    if not inside:
        raise UnsatisfiableError
    return _merged(inside)


def _resolve(first: str, last: str, size: int) -> tuple[int, int]:
    if not first:
        return max(0, size - _position(last)), size
    return _position(first), min(size, _position(last) + 1 if last else size)


def _position(digits: str) -> int:
    """A number of any length, cut to a bounded number of digits."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= 18 else _BEYOND


def _merged(ranges: list[tuple[int, int]]) -> RangeSet:
    """The ranges as they are; in ascending order with overlaps merged, if any overlap."""
    ascending = sorted(ranges)
    if all(a[1] <= b[0] for a, b in itertools.pairwise(ascending)):
        return tuple(ranges)
    return joined_ranges(ranges)


def tag_matches(header: str, etag: str, *, weak: bool) -> bool:
    """Whether a list of entity tags holds `etag` (without quotes), or is ``*``."""
    if header.strip() == "*":
        return True
    return any(match[2] == etag and (weak or match[1] is None) for match in _TAG.finditer(header))


@dataclass(frozen=True)
class Preconditions:
    """What the conditional headers of a GET or HEAD request say.

    Attributes
    ----------
    headers
        Header fields by their names in small letters.
    etag
        The object's entity tag, without quotes.
    """

    headers: Mapping[str, str]
    etag: str

    @property
    def status(self) -> int | None:
        """412 or 304, where the object is not to be sent; else None."""
        wanted, known = self.headers.get("if-match"), self.headers.get("if-none-match")
        if wanted is not None and not tag_matches(wanted, self.etag, weak=False):
            return 412
        if known is not None and tag_matches(known, self.etag, weak=True):
            return 304
        return None

    @property
    def range_counts(self) -> bool:
        """Whether a ``Range`` header is to be heeded; a date in ``If-Range`` never matches."""
        stated = self.headers.get("if-range")
        if stated is None:
            return True
        return stated.strip() != "*" and tag_matches(stated, self.etag, weak=False)
