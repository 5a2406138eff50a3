"""Version 1 B-trees of chunks, a whole level at a time.

HDF5 File Format Specification v3, III.A.1. They have no checksum, so everything they say is
compared with what else is known. Keys increase in C order from the first leaf to the last.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gridref.errors import SourceFormatError
from gridref.scan.hdf5.chunk_index.request import (
    IndexRequest,
    StoredChunks,
    check_addresses,
)

__all__ = ["walk_btree_v1"]

_CHUNK_NODE_TYPE = 1
_BATCH_BYTES = 1 << 20
_WHAT = "a node of the chunk B-tree"


def walk_btree_v1(request: IndexRequest) -> StoredChunks:
    """All chunks of a version 1 B-tree, in C order.

    Raises
    ------
    SourceFormatError
        If the tree is corrupt.
    """
    file = request.file
    root = np.array([request.index_address], np.uint64)
    addresses = check_addresses(file, root, 0, _WHAT)
    nodes = _NodeReader(request)
    level = nodes.root_level(addresses)
    while level:
        children = [entries["child"] for entries in nodes.entries(addresses, level)]
        addresses = check_addresses(file, np.concatenate(children), 0, _WHAT)
        level -= 1
    return _chunks(request, [_leaf(request, part) for part in nodes.entries(addresses, 0)])


class _NodeReader:
    """Reads nodes in batches that are small against what they say."""

    def __init__(self, request: IndexRequest) -> None:
        self._request = request
        self._capacity = 2 * request.file.chunk_btree_k

    def root_level(self, root: NDArray[np.int64]) -> int:
        return int(self._read(root, 0)["level"][0])

    def entries(self, addresses: NDArray[np.int64], level: int) -> list[NDArray[np.void]]:
        """The entries of all nodes, which must be of the given level, one array a batch."""
        found: list[NDArray[np.void]] = []
        step = max(1, _BATCH_BYTES // self._dtype(self._capacity).itemsize)
        for start in range(0, len(addresses), step):
            part = addresses[start : start + step]
            nodes = self._read(part, self._capacity)
            counts = nodes["n_entries"].astype(np.int64)
            self._check(part, nodes, counts, level)
            if counts.max() <= self._capacity:
                found.append(nodes["entries"][np.arange(self._capacity) < counts[:, None]])
            else:
                found += self._long_nodes(part, counts)
        return found

    def _long_nodes(
        self, addresses: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> list[NDArray[np.void]]:
        """Entries of nodes that have more than expected, each read at its own size."""
        return [
            self._read(addresses[row : row + 1], count)["entries"].reshape(-1)
            for row, count in enumerate(counts.tolist())
        ]

    def _check(
        self,
        addresses: NDArray[np.int64],
        nodes: NDArray[np.void],
        counts: NDArray[np.int64],
        level: int,
    ) -> None:
        """All must be nodes of this level, inside the file, and together not larger than it."""
        fits = (
            (nodes["signature"] == b"TREE")
            & (nodes["type"] == _CHUNK_NODE_TYPE)
            & (nodes["level"] == level)
        )
        if not fits.all():
            raise self._error(addresses[~fits], f"is not a chunk node of level {level}")
        empty = self._dtype(0).itemsize
        used = empty + counts * (self._dtype(1).itemsize - empty)
        is_cut = addresses + used > self._request.file.end_address
        if is_cut.any():
            raise self._error(addresses[is_cut], "lies outside of the file")
        self._request.budget.spend(int(used.sum()), "nodes of the chunk B-tree")

    def _read(self, addresses: NDArray[np.int64], capacity: int) -> NDArray[np.void]:
        dtype = self._dtype(capacity)
        rows = self._request.file.read_row_starts(addresses, dtype.itemsize, _WHAT)
        return rows.reshape(-1).view(dtype)

    def _dtype(self, capacity: int) -> np.dtype[np.void]:
        return _node_dtype(self._request.file.offset_bytes, len(self._request.shape), capacity)

    def _error(self, addresses: NDArray[np.int64], reason: str) -> SourceFormatError:
        place = self._request.file.place(int(addresses[0]), self._dtype(0).itemsize)
        return SourceFormatError(f"{_WHAT} {reason}", place)


@lru_cache(maxsize=64)
def _node_dtype(offset_bytes: int, rank: int, capacity: int) -> np.dtype[np.void]:
    """A node of so many entries: its head, then keys and children in turn.

    The key behind the last child is of no use here.
    """
    address = f"<u{offset_bytes}"
    entry = [
        ("length", "<u4"),
        ("filter_mask", "<u4"),
        ("origin", "<u8", (rank + 1,)),
        ("child", address),
    ]
    return np.dtype(
        [
            ("signature", "S4"),
            ("type", "u1"),
            ("level", "u1"),
            ("n_entries", "<u2"),
            ("siblings", address, (2,)),
            ("entries", entry, (capacity,)),
        ]
    )


def _leaf(request: IndexRequest, entries: NDArray[np.void]) -> StoredChunks:
    """Entries of leaves: the origin of each chunk, in elements, becomes its number."""
    number = np.zeros(len(entries), np.int64)
    origin = entries["origin"]
    if origin[:, -1].any():
        raise SourceFormatError("a key of the chunk B-tree does not start at a whole element")
    axes = zip(request.shape, request.layout.chunk_shape, request.grid_shape, strict=True)
    for axis, (extent, chunk_length, n_chunks) in enumerate(axes):
        start = origin[:, axis]
        place = start // np.uint64(chunk_length)
        if (place * np.uint64(chunk_length) != start).any() or (start >= extent).any():
            raise SourceFormatError(
                f"a key of the chunk B-tree is not the origin of a chunk (dimension {axis})"
            )
        number = number * n_chunks + place.astype(np.int64)
    mask = np.ascontiguousarray(entries["filter_mask"]) if request.is_filtered else None
    length = np.ascontiguousarray(entries["length"])
    return StoredChunks(number, entries["child"].astype(np.uint64), length, mask)


def _chunks(request: IndexRequest, leaves: list[StoredChunks]) -> StoredChunks:
    """All leaves together, column by column, which halves the peak of memory."""
    number = np.concatenate([leaf.number for leaf in leaves] or [np.empty(0, np.int64)])
    if (number[1:] <= number[:-1]).any():
        raise SourceFormatError("the keys of the chunk B-tree are out of order")
    return StoredChunks(
        number,
        np.concatenate([leaf.address for leaf in leaves]),
        np.concatenate([leaf.length for leaf in leaves if leaf.length is not None]),
        np.concatenate([leaf.filter_mask for leaf in leaves if leaf.filter_mask is not None])
        if request.is_filtered
        else None,
    )
