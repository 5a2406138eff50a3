"""Parse range and conditional headers. Pure.

Source: RFC 9110, sections 8.8.3 (entity tags), 13 (conditional requests) and 14 (range requests).
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

MAX_RANGES = 128
"""Most ranges of one request; more are refused, as RFC 9110, section 14.2 allows."""
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
        If no range is inside the object, or there are more than `MAX_RANGES`.
    """
    if header is None:
        return None
    unit, separator, text = header.partition("=")
    if unit.strip().lower() != "bytes" or not separator:
        return None
    specs = [spec.strip() for spec in text.split(",")] if len(header) <= MAX_HEADER else []
    if not 0 < len(specs) <= MAX_RANGES:
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
    merged = [ascending[0]]
    for start, stop in ascending[1:]:
        if start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return tuple(merged)


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
    if_match, if_none_match, if_range
        The headers; None where absent.
    etag
        The object's entity tag, without quotes.
    """

    if_match: str | None
    if_none_match: str | None
    if_range: str | None
    etag: str

    @property
    def status(self) -> int | None:
        """412 or 304, where the object is not to be sent; else None."""
        if self.if_match is not None and not tag_matches(self.if_match, self.etag, weak=False):
            return 412
        if self.if_none_match is not None and tag_matches(self.if_none_match, self.etag, weak=True):
            return 304
        return None

    @property
    def range_counts(self) -> bool:
        """Whether a ``Range`` header is to be heeded; a date in ``If-Range`` never matches."""
        if self.if_range is None:
            return True
        return self.if_range.strip() != "*" and tag_matches(self.if_range, self.etag, weak=False)
