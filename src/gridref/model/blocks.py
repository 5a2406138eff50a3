"""The blocks of an array as columns: the window of a stored array that each block shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError
from gridref.model.columns import taken
from gridref.model.grid import chunk_counts
from gridref.typing import Int64Array

MISSING_BLOCK = -1
"""Encoding id of a block that no file holds: it reads as the array's fill value."""


class BlockSource(Protocol):
    """Blocks of an array, in memory or read when they are first needed.

    `BlockTable` is one; a catalog's arrays have another, so that opening it reads no rows.
    """

    @property
    def n_blocks(self) -> int:
        """Number of blocks, known without reading them."""
        ...

    def load(self) -> BlockTable:
        """The blocks in memory: the same table every time. Safe for threads."""
        ...


@dataclass(frozen=True, eq=False)
class BlockTable:
    """The blocks of an array, one row each, in C order of the outer grid.

    Attributes
    ----------
    encoding
        int32 (n_blocks,), index into the array's encodings, or `MISSING_BLOCK`.
    manifest
        int32 (n_blocks,), index into the array's manifests.
    first_row
        int64 (n_blocks,), manifest row of the stored chunk at coords (0, 0, ...).
    row_stride
        int64 (n_blocks, ndim), manifest rows from a stored chunk to the next along each axis.
    stored_shape
        int64 (n_blocks, ndim), shape of the stored array in elements.
    origin, step
        int64 (n_blocks, ndim), the window: stored element ``origin + step * i``.

    Raises
    ------
    InvalidRequestError
        If columns differ in their number of rows.
    """

    encoding: NDArray[np.int32]
    manifest: NDArray[np.int32]
    first_row: Int64Array
    row_stride: Int64Array
    stored_shape: Int64Array
    origin: Int64Array
    step: Int64Array

    def __post_init__(self) -> None:
        n_blocks = len(self.encoding)
        for name, column in vars(self).items():
            if len(column) != n_blocks:
                raise InvalidRequestError(
                    f"block column {name} has {len(column)} rows, not {n_blocks}"
                )

    @classmethod
    def single(cls, stored_shape: Sequence[int], chunk_shape: Sequence[int]) -> Self:
        """One block that shows all of a stored array whose chunk rows are in C order from row 0."""
        ndim = len(stored_shape)
        n_chunks = chunk_counts(stored_shape, chunk_shape)
        strides = [math.prod(n_chunks[axis + 1 :]) for axis in range(ndim)]

        def row(values: Sequence[int]) -> Int64Array:
            return np.array(values, dtype=np.int64).reshape(1, ndim)

        return cls(
            np.zeros(1, np.int32),
            np.zeros(1, np.int32),
            np.zeros(1, np.int64),
            row(strides),
            row(stored_shape),
            row([0] * ndim),
            row([1] * ndim),
        )

    @classmethod
    def missing(cls, n_blocks: int, ndim: int) -> Self:
        """Blocks that no file holds."""
        zeros = np.zeros((n_blocks, ndim), np.int64)
        return cls(
            np.full(n_blocks, MISSING_BLOCK, np.int32),
            np.zeros(n_blocks, np.int32),
            np.zeros(n_blocks, np.int64),
            zeros,
            zeros,
            zeros,
            zeros + 1,
        )

    def __len__(self) -> int:
        return len(self.encoding)

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.encoding)

    def load(self) -> BlockTable:
        """Itself: see `BlockSource`."""
        return self

    def take(self, rows: NDArray[Any]) -> BlockTable:
        """Some of the rows, in the given order."""
        return BlockTable(*(taken(column, rows) for column in vars(self).values()))

    def manifest_row(
        self, block: Any, chunk: Iterable[Any], axes: Iterable[int] | None = None
    ) -> Int64Array:
        """Manifest row of stored chunks: ``first_row + sum(k * row_stride)``.

        Parameters
        ----------
        block
            Block of each chunk: int64, or a slice for one chunk of each of those blocks.
        chunk
            Chunk coords ``k``, one int64 array an axis; they broadcast against `block`.
        axes
            Axes of the coords in `chunk`, by default all; ``k`` is 0 along the others.
        """
        row: Int64Array = self.first_row[block]
        all_axes = range(self.row_stride.shape[1])
        for axis, k in zip(all_axes if axes is None else axes, chunk, strict=True):
            row = row + k * self.row_stride[block, axis]
        return row


@dataclass(frozen=True)
class AxisTable:
    """Properties of blocks that depend on their index along one axis only.

    Each field is an int64 array with one element for each block coordinate along the axis.
    """

    chunk_length: Int64Array
    origin: Int64Array
    step: Int64Array


def common_along(values: Int64Array, present: NDArray[np.bool_], axis: int) -> Int64Array | None:
    """The value at each index along `axis`, if all present blocks there agree; None if not."""
    if not values.size:
        return np.ones(values.shape[axis], np.int64)
    # Steps [[1, 1], [9, 2]] of 2 x 2 blocks, along axis 0, where the block of the 9 is missing: the
    # first present ones are [1, 2], and no present one differs: the result is [1, 2].
    moved = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    mask = np.moveaxis(present, axis, 0).reshape(moved.shape)
    first = moved[np.arange(len(moved)), np.argmax(mask, axis=1)]
    if ((moved != first[:, np.newaxis]) & mask).any():
        return None
    return first
