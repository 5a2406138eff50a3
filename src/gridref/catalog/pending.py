"""Elements that were declared ahead and have no file yet.

By default they read as the fill value. `refusing_pending` makes reading them an error instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gridref.errors import BlockPendingError, Message, Option
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK, BlockTable
from gridref.model.manifest import ChunkManifest, Source
from gridref.model.source_policy import SourcePolicy
from gridref.typing import Int64Array

type Ranges = tuple[tuple[int, int], ...]
"""Half-open ranges of elements along a dimension, ascending and apart."""
type Pending = Mapping[str, Ranges]
"""Ranges by dimension."""


def checked_pending(document: Mapping[str, Sequence[Sequence[int]]]) -> Pending:
    """Read ranges from their JSON form in a catalog."""
    ranges = {
        str(dim): tuple((start, stop) for start, stop in found) for dim, found in document.items()
    }
    for found in ranges.values():
        flat = [number for each in found for number in each]
        if not all(type(n) is int and n >= 0 for n in flat) or sorted({*flat}) != flat:
            raise ValueError(f"elements that are pending are {found!r}")
    return ranges


def joined_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges in ascending order, those that touch as one."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return tuple(joined)


def is_pending(dims: Sequence[str], starts: Int64Array, pending: Pending) -> NDArray[np.bool_]:
    """Bool (n,), whether what begins at elements int64 (n, ndim) was declared, as far as they say.

    It still may be in a file.
    """
    found = np.zeros(len(starts), bool)
    for axis, dim in enumerate(dims):
        bounds = np.array(pending.get(dim, ()), np.int64).reshape(-1)
        # Between a start and its stop the number of bounds that are passed is odd.
        found |= np.searchsorted(bounds, starts[:, axis], side="right") % 2 == 1
    return found


def refusing_pending(array: VirtualArray, path: str, pending: Pending) -> VirtualArray:
    """The array with blocks whose reading is an error in place of those that are pending."""
    if not array.encodings or not set(array.dims) & pending.keys():
        return array
    number = len(array.manifests)
    blocks = _Refusing(array, pending, number)
    manifests = (*array.manifests, _rows(array, path))
    return array.with_changes(manifests=manifests, blocks=blocks)


@dataclass(frozen=True, eq=False)
class _Refusing:
    """Blocks of an array, those that are pending of a manifest that cannot be had."""

    array: VirtualArray
    pending: Pending
    number: int

    @property
    def n_blocks(self) -> int:
        return self.array.n_blocks

    def load(self) -> BlockTable:
        """The blocks in memory."""
        return self._loaded

    @cached_property
    def _loaded(self) -> BlockTable:
        blocks = self.array.blocks
        grid = self.array.grid
        starts = [axis.starts(np.arange(axis.n_chunks)) for axis in grid.axes]
        first = np.stack(np.meshgrid(*starts, indexing="ij"), axis=-1).reshape(-1, grid.ndim)
        absent = blocks.encoding == MISSING_BLOCK
        rows = np.flatnonzero(absent & is_pending(self.array.dims, first, self.pending))
        shapes = self.array.block_shapes()[rows]
        columns = {name: column.copy() for name, column in vars(blocks).items()}
        columns["encoding"][rows] = 0
        columns["manifest"][rows] = self.number
        columns["first_row"][rows] = 0
        columns["row_stride"][rows] = 0
        columns["stored_shape"][rows] = shapes
        columns["origin"][rows] = 0
        columns["step"][rows] = 1
        return BlockTable(**columns)


@dataclass(frozen=True)
class _NotThere(SourcePolicy):
    """What refuses to open the file of what is still to come."""

    def require(self, address: str) -> None:
        """Raises BlockPendingError."""
        raise BlockPendingError(
            Message(
                f"these elements of {self.named_by} were declared ahead, and no file with them "
                "has been added yet. Append the file, or open the catalog with ",
                Option("pending", "fill"),
                " to read the fill value",
            )
        )


def _rows(array: VirtualArray, path: str) -> ChunkManifest:
    """A reference that can be listed and planned with, but not read."""
    encoding = array.encodings[0]
    n_bytes = math.prod(encoding.chunk_shape) * max(1, encoding.dtype.itemsize)
    source = Source(f"/{path} (pending)", policy=_NotThere(repr(path)))
    return ChunkManifest.from_columns([source], offset=[0], length=[n_bytes])
