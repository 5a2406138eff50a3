"""Checksums of sources: of everything, or of ranges that are spread evenly over a file.

A checksum is written ``blake2b:all:<hex>`` or ``blake2b:16x4096:<hex>``: of 16 ranges of 4096 bytes
each, the first at the beginning and the last at the end. Of a file that is not larger than these,
both read everything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import batched
from typing import Literal

from gridref.errors import InvalidRequestError

__all__ = ["Coverage", "ReadRanges", "checksum_of", "coverage_of"]

type Coverage = Literal["sampled", "all"]
"""What of a file a checksum is of."""

type ReadRanges = Callable[[Sequence[int], Sequence[int]], Sequence[bytes]]
"""Takes starts and stops of half-open ranges."""

_N_RANGES, _RANGE_BYTES = 16, 4096
_SAMPLED = f"{_N_RANGES}x{_RANGE_BYTES}"
_PIECE_BYTES = 8 * 2**20


def checksum_of(size_bytes: int, read: ReadRanges, coverage: Coverage = "sampled") -> str:
    """The checksum of a file.

    Parameters
    ----------
    coverage
        Whether ranges of it are read, or all of it.
    """
    digest = hashlib.blake2b(digest_size=16)
    ranges = _sampled(size_bytes) if coverage == "sampled" else _everything(size_bytes)
    for some in batched(ranges, _N_RANGES if coverage == "sampled" else 1):
        starts, stops = zip(*some, strict=True)
        for part in read(starts, stops):
            digest.update(part)
    return f"blake2b:{_SAMPLED if coverage == 'sampled' else 'all'}:{digest.hexdigest()}"


def coverage_of(checksum: str) -> Coverage:
    """What of a file a checksum is of.

    Raises
    ------
    InvalidRequestError
        For a checksum of a kind that is not known.
    """
    for coverage, name in (("sampled", _SAMPLED), ("all", "all")):
        if checksum.startswith(f"blake2b:{name}:"):
            return coverage  # type: ignore[return-value]
    raise InvalidRequestError(f"a checksum of a kind that is not known: {checksum!r}")


def _sampled(size_bytes: int) -> Iterator[tuple[int, int]]:
    if size_bytes <= _N_RANGES * _RANGE_BYTES:
        yield from _everything(size_bytes)
        return
    room = size_bytes - _RANGE_BYTES
    for number in range(_N_RANGES):
        start = room * number // (_N_RANGES - 1)
        yield start, start + _RANGE_BYTES


def _everything(size_bytes: int) -> Iterator[tuple[int, int]]:
    for start in range(0, size_bytes, _PIECE_BYTES):
        yield start, min(size_bytes, start + _PIECE_BYTES)
