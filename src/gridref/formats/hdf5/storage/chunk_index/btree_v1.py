"""Version 1 B-trees of chunks, a whole level at a time.

HDF5 File Format Specification v3, III.A.1. They have no checksum, so everything they say is
compared with what else is known. Keys increase in C order from the first leaf to the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gridref.cache import LRU
from gridref.errors import SourceFormatError
from gridref.formats.hdf5.storage.chunk_index.request import (
    IndexRequest,
    StoredChunks,
    check_addresses,
    numbers_inside,
)

__all__ = ["node_dtype", "walk_btree_v1"]

_CHUNK_NODE_TYPE = 1
_BATCH_BYTES = 1 << 20
_WHAT = "a node of the chunk B-tree"
_HIDDEN = "keys of the chunk B-tree do not enclose the chunks below them"
_UNORDERED = "the keys of the chunk B-tree are out of order"
_LEAF_HEAD = b"TREE" + bytes([_CHUNK_NODE_TYPE, 0])
_numbers_of_leaves = LRU[tuple[NDArray[np.int64], bool]](
    1 << 22, lambda known: 300 + 5 * known[0].nbytes
)
"""Numbers of the chunks of only leaves, and whether all are of the grid, by what their keys say."""


def walk_btree_v1(request: IndexRequest) -> StoredChunks:
    """All chunks of a version 1 B-tree, in C order.

    Raises
    ------
    SourceFormatError
        If the tree is corrupt.
    """
    leaf = _only_leaf(request)
    if leaf is not None:
        return leaf
    file = request.file
    root = np.array([request.index_address], np.uint64)
    addresses = check_addresses(file, root, 0, _WHAT)
    nodes = _NodeReader(request)
    level = nodes.root_level(addresses)
    bounds = None
    while level:
        parts = nodes.entries(addresses, level)
        _check_keys(parts, bounds)
        bounds = _bounds_of_children(parts, nodes.scale)
        children = [part.entries["child"] for part in parts]
        addresses = check_addresses(file, np.concatenate(children), 0, _WHAT)
        if not len(addresses):
            return StoredChunks(np.empty(0, np.int64), np.empty(0, np.uint64))
        level -= 1
    return _chunks(request, _leaves(request, nodes.entries(addresses, 0), bounds))


def _only_leaf(request: IndexRequest) -> StoredChunks | None:
    """All chunks of a tree that is one leaf; None where it is more, or not as it should be.

    That is how the trees of small files are, whose keys mostly are the same in all files of a
    series.
    """
    file = request.file
    dtype = node_dtype(file.offset_bytes, len(request.shape), 2 * file.chunk_btree_k)
    entry, head = dtype["entries"].base, dtype.fields["entries"][1]  # type: ignore[index]
    data = file.read_start(request.index_address, dtype.itemsize, _WHAT)
    count = int.from_bytes(data[6:8], "little")
    stop = head + count * entry.itemsize + (entry.itemsize - file.offset_bytes)
    if data[:6] != _LEAF_HEAD or count > 2 * file.chunk_btree_k or stop > len(data):
        return None
    request.budget.spend(stop, "nodes of the chunk B-tree")
    entries = np.frombuffer(data, entry, count, head)
    end = data[stop - 8 * (len(request.shape) + 1) : stop]
    number, is_checked = _known_numbers(entries["origin"].tobytes() + end, request)
    mask = np.ascontiguousarray(entries["filter_mask"]) if request.is_filtered else None
    return StoredChunks(
        number, entries["child"].astype(np.uint64), entries["length"], mask, is_checked
    )


def _known_numbers(origins: bytes, request: IndexRequest) -> tuple[NDArray[np.int64], bool]:
    """Numbers of the chunks of an only leaf, out of the origins in its keys and the one behind.

    And whether all of them are of the grid.
    """
    layout = request.layout
    key = origins, request.shape, layout.chunk_shape, layout.element_bytes

    def work_out() -> tuple[NDArray[np.int64], bool]:
        rows = np.frombuffer(origins, "<u8").reshape(-1, len(request.shape) + 1)
        scale = np.array([*layout.chunk_shape, layout.element_bytes], np.uint64)
        last, end = rows[:-1][-1:], rows[-1:] - rows[-1:] % scale
        if not _precedes(rows[:-2], rows[1:-1]).all():
            raise SourceFormatError(_UNORDERED)
        if not _precedes(last, end[: len(last)]).all():
            raise SourceFormatError(_HIDDEN)
        number = _numbers(request, rows[:-1])
        _check_order(number)
        number.flags.writeable = False
        return number, bool((number >= 0).all())

    return _numbers_of_leaves.get_or_load(key, work_out)


def _leaves(
    request: IndexRequest, parts: list[_Nodes], bounds: NDArray[np.uint64] | None
) -> list[StoredChunks]:
    _check_keys(parts, bounds)
    return [_leaf(request, part.entries) for part in parts]


@dataclass(frozen=True, slots=True)
class _Nodes:
    """What nodes that were read together say.

    Attributes
    ----------
    entries
        The entries of all nodes.
    counts
        (n,) how many of them each node has.
    ends
        (n, rank + 1) origin in the key behind each node's last entry: HDF5 finds no chunk from
        there on. It often differs from that of the last chunk in the last place alone, which
        counts bytes of an element.
    """

    entries: NDArray[np.void]
    counts: NDArray[np.int64]
    ends: NDArray[np.uint64]

    @property
    def keys(self) -> NDArray[np.uint64]:
        """(m, rank + 1) origin in the key of each entry."""
        return np.asarray(self.entries["origin"])

    @property
    def last(self) -> NDArray[np.int64]:
        """(n,) index of each node's last entry."""
        return np.cumsum(self.counts) - 1


def _check_keys(parts: list[_Nodes], bounds: NDArray[np.uint64] | None) -> None:
    """Raise unless HDF5 finds all entries: their keys lie between those of the nodes above.

    `bounds` is (n, 2, rank + 1): the keys before and behind each node; None for the root.
    """
    start = 0
    for part in parts:
        used = part.counts > 0
        last = part.keys[part.last[used]]
        wrong = not _precedes(last, part.ends[used]).all()
        ascends = _precedes(part.keys[:-1], part.keys[1:])
        ascends[part.last[used][:-1]] = True  # the next one is in another node
        if not ascends.all():
            raise SourceFormatError(_UNORDERED)
        if bounds is not None:
            low, high = bounds[start : start + len(part.counts)][used].transpose(1, 0, 2)
            first = part.keys[(part.last - part.counts + 1)[used]]
            wrong |= bool(_precedes(first, low).any()) or not _precedes(last, high).all()
        if wrong:
            raise SourceFormatError(_HIDDEN)
        start += len(part.counts)


def _bounds_of_children(parts: list[_Nodes], scale: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The keys before and behind each child of some nodes, in whole chunks, as HDF5 compares."""
    bounds_of_parts = []
    for part in parts:
        behind = np.roll(part.keys, -1, axis=0)
        used = part.counts > 0
        behind[part.last[used]] = part.ends[used]
        bounds_of_parts.append(np.stack([part.keys, behind], axis=1))
    bounds = np.concatenate(bounds_of_parts)
    return np.asarray(bounds - bounds % scale)


def _precedes(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each row comes before the other in C order."""
    result = np.zeros(len(one), bool)
    for axis in reversed(range(one.shape[1])):
        left, right = one[:, axis], other[:, axis]
        result = (left < right) | ((left == right) & result)
    return result


class _NodeReader:
    """Reads nodes in batches that are small beside the entries decoded from them."""

    def __init__(self, request: IndexRequest) -> None:
        self._request = request
        self._capacity = 2 * request.file.chunk_btree_k
        self.scale = np.array([*request.layout.chunk_shape, request.layout.element_bytes], "u8")

    def root_level(self, root: NDArray[np.int64]) -> int:
        return int(self._read(root, 0)["level"][0])

    def entries(self, addresses: NDArray[np.int64], level: int) -> list[_Nodes]:
        """The entries of all nodes, which must be of the given level, in batches."""
        batches: list[_Nodes] = []
        step = max(1, _BATCH_BYTES // self._dtype(self._capacity).itemsize)
        for start in range(0, len(addresses), step):
            part = addresses[start : start + step]
            nodes = self._read(part, self._capacity)
            counts = nodes["n_entries"].astype(np.int64)
            self._check(part, nodes, counts, level)
            if counts.max() <= self._capacity:
                batches.append(_used(nodes, counts, self._capacity, self.scale))
            else:
                batches += self._long_nodes(part, counts)
        return batches

    def _long_nodes(self, addresses: NDArray[np.int64], counts: NDArray[np.int64]) -> list[_Nodes]:
        """Entries of nodes that have more than expected, each read at its own size."""
        return [
            _used(self._read(part, count), counts[row : row + 1], count, self.scale)
            for row, count in enumerate(counts.tolist())
            for part in (addresses[row : row + 1],)
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
        return node_dtype(self._request.file.offset_bytes, len(self._request.shape), capacity)

    def _error(self, addresses: NDArray[np.int64], reason: str) -> SourceFormatError:
        place = self._request.file.place(int(addresses[0]), self._dtype(0).itemsize)
        return SourceFormatError(f"{_WHAT} {reason}", place)


@lru_cache(maxsize=64)
def node_dtype(offset_bytes: int, rank: int, capacity: int) -> np.dtype[np.void]:
    """A node of so many entries: its head, then keys and children in turn, and a last key.

    Parameters
    ----------
    offset_bytes
        Width of an address.
    rank
        Number of dimensions.
    capacity
        Number of entries.
    """
    address = f"<u{offset_bytes}"
    key = [("length", "<u4"), ("filter_mask", "<u4"), ("origin", "<u8", (rank + 1,))]
    entry = [*key, ("child", address)]
    return np.dtype(
        [
            ("signature", "S4"),
            ("type", "u1"),
            ("level", "u1"),
            ("n_entries", "<u2"),
            ("siblings", address, (2,)),
            ("entries", entry, (capacity,)),
            ("end", key),
        ]
    )


def _used(
    nodes: NDArray[np.void], counts: NDArray[np.int64], capacity: int, scale: NDArray[np.uint64]
) -> _Nodes:
    """The entries in use of nodes with room for `capacity`; the key behind them comes next."""
    rows = np.arange(len(nodes))
    ends = nodes["end"]["origin"].copy()
    short = counts < capacity
    ends[short] = nodes["entries"]["origin"][rows[short], counts[short]]
    entries = nodes["entries"][np.arange(capacity) < counts[:, None]]
    return _Nodes(entries, counts, ends - ends % scale)


def _leaf(request: IndexRequest, entries: NDArray[np.void]) -> StoredChunks:
    """Entries of leaves: the origin of each chunk, in elements, becomes its number."""
    number = _numbers(request, entries["origin"])
    mask = np.ascontiguousarray(entries["filter_mask"]) if request.is_filtered else None
    length = np.ascontiguousarray(entries["length"])
    return StoredChunks(number, entries["child"].astype(np.uint64), length, mask)


def _numbers(request: IndexRequest, origin: NDArray[np.uint64]) -> NDArray[np.int64]:
    if origin[:, -1].any():
        raise SourceFormatError("a key of the chunk B-tree does not start at a whole element")
    coords, rest = np.divmod(origin[:, :-1], np.array(request.layout.chunk_shape, np.uint64))
    if rest.any():
        axis = int(rest.any(axis=0).argmax())
        raise SourceFormatError(
            f"a key of the chunk B-tree is not the origin of a chunk (dimension {axis})"
        )
    return numbers_inside(coords.T, request.grid_shape)


def _check_order(number: NDArray[np.int64]) -> None:
    inside = number[number >= 0]
    if (inside[1:] <= inside[:-1]).any():
        raise SourceFormatError(_UNORDERED)


def _chunks(request: IndexRequest, leaves: list[StoredChunks]) -> StoredChunks:
    """All leaves together, column by column, which halves the peak of memory."""
    number = np.concatenate([leaf.number for leaf in leaves] or [np.empty(0, np.int64)])
    _check_order(number)
    return StoredChunks(
        number,
        np.concatenate([leaf.address for leaf in leaves]),
        np.concatenate([leaf.length for leaf in leaves if leaf.length is not None]),
        np.concatenate([leaf.filter_mask for leaf in leaves if leaf.filter_mask is not None])
        if request.is_filtered
        else None,
    )
