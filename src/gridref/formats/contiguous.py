"""Describe contiguous data as stored chunks, without moving any bytes.

Formats keep arrays as one run of elements in C order. Large ones are split, so that reading a few
elements does not read all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gridref.errors import Place, SourceFormatError
from gridref.model.encoding import EdgePolicy
from gridref.model.grid import chunk_runs
from gridref.model.manifest import ChunkManifest, Source


def contiguous_chunks(
    shape: Sequence[int], itemsize: int, source: Source, offset: int, max_chunk_bytes: int
) -> tuple[tuple[int, ...], ChunkManifest]:
    """Chunk shape and chunks of contiguous data that begins at byte `offset` of a file.

    Raises
    ------
    SourceFormatError
        If it reaches beyond the end of the file.
    """
    require_inside(source, offset, offset + math.prod(shape) * itemsize)
    chunk_shape = split_contiguous(shape, itemsize, max_chunk_bytes)
    start, count = chunk_runs(shape, chunk_shape)
    manifest = ChunkManifest.from_columns(
        [source], offset=offset + start * itemsize, length=count * itemsize
    )
    return chunk_shape, manifest


def require_inside(source: Source, start: int, stop: int) -> None:
    """Refuse data that reaches beyond the end of its file."""
    size = source.size_bytes
    if size is not None and stop > size:
        place = Place(source=source.url, start=start, stop=stop)
        raise SourceFormatError(
            f"the data reaches beyond the end of the file of {size} bytes", place
        )


def edge_policy(shape: Sequence[int], chunk_shape: Sequence[int]) -> EdgePolicy:
    """Truncated, unless chunks divide the shape: then the grid is regular."""
    regular = all(extent % length == 0 for extent, length in zip(shape, chunk_shape, strict=True))
    return EdgePolicy.PADDED if regular else EdgePolicy.TRUNCATED


def split_contiguous(shape: Sequence[int], itemsize: int, max_bytes: int) -> tuple[int, ...]:
    """Choose chunks of at most `max_bytes` with contiguous elements in C order.

    All axes after the one that is cut stay whole, and those before it have chunks of one element.
    """
    chunk = [max(1, extent) for extent in shape]
    for axis, extent in enumerate(chunk):
        row_bytes = max(1, itemsize) * math.prod(chunk[axis + 1 :])
        if row_bytes * extent <= max_bytes:
            break
        chunk[axis] = _chunk_length(extent, max(1, max_bytes // row_bytes))
        if row_bytes <= max_bytes:
            break
    return tuple(chunk)


def _chunk_length(extent: int, longest: int) -> int:
    """A divisor of `extent` between a quarter of `longest` and `longest`, else `longest`."""
    for n_chunks in range(-(-extent // longest), 4 * extent // longest + 1):
        if extent % n_chunks == 0:
            return extent // n_chunks
    return longest
