"""Contiguous data, split into chunks where it lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gridref.errors import SourceFormatError
from gridref.formats.hdf5.objects.dtypes import ElementType
from gridref.formats.hdf5.objects.tree import DatasetNode
from gridref.model.encoding import EdgePolicy, Encoding
from gridref.model.grid import chunk_runs
from gridref.model.manifest import ChunkManifest

__all__ = ["contiguous_chunks", "split_contiguous"]


def contiguous_chunks(
    dataset: DatasetNode, element: ElementType, offset: int, max_chunk_bytes: int
) -> tuple[Encoding, ChunkManifest]:
    """Reference contiguous data that begins at byte `offset`.

    Raises
    ------
    SourceFormatError
        If it reaches beyond the end of the file.
    """
    shape = (dataset.shape or ()) + element.subshape
    itemsize = element.itemsize
    stop = offset + math.prod(shape) * itemsize
    size = dataset.file.source.size_bytes
    if size is not None and stop > size:
        place = replace(dataset.file.place(dataset.path), start=offset, stop=stop)
        raise SourceFormatError(
            f"the data reaches beyond the end of the file of {size} bytes", place
        )
    chunk_shape = split_contiguous(shape, itemsize, max_chunk_bytes)
    start, count = chunk_runs(shape, chunk_shape)
    manifest = ChunkManifest.from_columns(
        [dataset.file.source], offset=offset + start * itemsize, length=count * itemsize
    )
    return Encoding(
        chunk_shape, element.dtype, element.codecs, edge_policy(shape, chunk_shape)
    ), manifest


def edge_policy(shape: Sequence[int], chunk_shape: Sequence[int]) -> EdgePolicy:
    """Truncated where chunks do not divide the shape; the grid is regular where they do."""
    regular = all(extent % length == 0 for extent, length in zip(shape, chunk_shape, strict=True))
    return EdgePolicy.PADDED if regular else EdgePolicy.TRUNCATED


def split_contiguous(shape: Sequence[int], itemsize: int, max_bytes: int) -> tuple[int, ...]:
    """Choose chunks of at most `max_bytes` whose elements lie side by side in C order.

    All axes behind the one that is cut stay whole, and those before it have chunks of one element.
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
