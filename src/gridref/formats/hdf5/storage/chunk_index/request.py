"""What all walkers of chunk indexes are given, and what they hand back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.data_layout import ChunkedLayout
from gridref.formats.hdf5.format.superblock import Hdf5Bytes
from gridref.model.grid import chunk_counts

__all__ = ["IndexRequest", "ReadBudget", "StoredChunks", "check_addresses", "numbers_inside"]

_MAX_GRID = 2**62


class ReadBudget:
    """Ends walks in circles: the parts of an index never take more bytes than the file has."""

    def __init__(self, file: Hdf5Bytes) -> None:
        self._left = file.end_address

    def spend(self, n_bytes: int, structure: str) -> None:
        """Raise if, with `n_bytes` more, the index is larger than the file."""
        self._left -= n_bytes
        if self._left < 0:
            raise SourceFormatError(f"{structure} overlap: the index would be larger than the file")


@dataclass(frozen=True, slots=True)
class StoredChunks:
    """What a chunk index says, not yet compared with the file and the grid.

    Attributes
    ----------
    number
        int64, C-order number of each chunk inside the grid; negative, or too large, for those
        outside of it.
    address
        uint64, where it lies.
    length
        uint64 or uint32, stored size; None where all have the size of an unfiltered chunk.
    filter_mask
        uint32, filters that were not applied; None if all were.
    is_checked
        The numbers are known to increase, and to lie inside the grid.
    """

    number: NDArray[np.int64]
    address: NDArray[np.uint64]
    length: NDArray[np.unsignedinteger] | None = None
    filter_mask: NDArray[np.uint32] | None = None
    is_checked: bool = False

    def inside(self, n_chunks: int) -> StoredChunks:
        """Those of the grid of `n_chunks`.

        An index may list others: of a file that grows while it is read, or that an early version of
        the library wrote. HDF5 does not look for them.
        """
        number = self.number
        if not len(number) or (int(number.min()) >= 0 and int(number.max()) < n_chunks):
            return self
        kept = (number >= 0) & (number < n_chunks)
        return StoredChunks(
            number[kept],
            self.address[kept],
            None if self.length is None else self.length[kept],
            None if self.filter_mask is None else self.filter_mask[kept],
        )


@dataclass(frozen=True)
class IndexRequest:
    """A chunk index to walk.

    Attributes
    ----------
    file
        The file.
    layout
        The dataset's layout.
    shape, max_shape
        The dataset's shape, and how far it may grow along each dimension (None: endlessly).
    is_filtered
        Whether the dataset has any filter.
    """

    file: Hdf5Bytes
    layout: ChunkedLayout
    shape: tuple[int, ...]
    max_shape: tuple[int | None, ...]
    is_filtered: bool
    budget: ReadBudget = field(init=False)

    def __post_init__(self) -> None:
        rank = len(self.layout.chunk_shape)
        if len(self.shape) != rank or len(self.max_shape) != rank:
            raise SourceFormatError(
                f"the data layout has {rank} dimensions, the dataset has {len(self.shape)}"
            )
        if self.n_chunks > _MAX_GRID:
            raise UnsupportedFeatureError(
                f"the dataset of shape {self.shape} is declared to have {self.n_chunks} chunks"
            )
        object.__setattr__(self, "budget", ReadBudget(self.file))

    @cached_property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return chunk_counts(self.shape, self.layout.chunk_shape)

    @property
    def max_grid_shape(self) -> tuple[int | None, ...]:
        """Number of chunks along each dimension if the dataset grows as far as it may."""
        return tuple(
            None if extent is None else -(-extent // length)
            for extent, length in zip(self.max_shape, self.layout.chunk_shape, strict=True)
        )

    @cached_property
    def n_chunks(self) -> int:
        """Number of chunks of the whole grid, stored or not."""
        return math.prod(self.grid_shape)

    @property
    def index_address(self) -> int:
        """Where the index lies; there is one."""
        address = self.layout.index_address
        if address is None:
            raise SourceFormatError("the dataset has no chunk index")
        return address


def check_addresses(
    file: Hdf5Bytes, addresses: NDArray[np.unsignedinteger], length: int, structure: str
) -> NDArray[np.int64]:
    """Addresses as int64, after a check that `length` bytes at each lie inside the file."""
    if len(addresses):
        file.check_range(int(addresses.max()), length, structure)
    return addresses.astype(np.int64)


def numbers_inside(
    coords: Sequence[NDArray[Any]] | NDArray[Any], grid_shape: tuple[int, ...]
) -> NDArray[np.int64]:
    """C-order numbers of chunks by their coords, an array of each dimension; -1 outside."""
    number = np.zeros(len(coords[0]), np.int64)
    outside = np.zeros(len(number), bool)
    for coord, n_chunks in zip(coords, grid_shape, strict=True):
        outside |= coord >= n_chunks
        number = number * n_chunks + np.where(outside, 0, coord).astype(np.int64)
    number[outside] = -1
    return number
