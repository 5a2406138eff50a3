"""Read chunk B-trees of HDF5 datasets, and walk any chunk index.

Version 1 B-trees have no checksum, so everything in them is compared with what else is known about
the dataset. Their keys increase in C order from the first leaf to the last.
Source: HDF5 File Format Specification v3, III.A.1.

Version 2 B-trees index datasets that grow without limit along several dimensions. Their inner nodes
hold chunks, too.
Source: HDF5 File Format Specification v3, III.A.2 (records of types 10 and 11) and VII.E.

`walk_chunks` takes an `IndexRequest`, calls the walker for its kind of index, and returns the
checked table of chunks. To get the layout: pass a reader of the file to `read_superblock`, then the
address of the dataset's object header (`h5py.h5o.get_info(dataset.id).addr`) to `data_layout_of`.
Anything that is impossible in a valid file is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.chunk_index import (
    BATCH_BYTES,
    ChunkTable,
    IndexRequest,
    StoredChunks,
    check_addresses,
    checked_table,
    chunk_dtype,
    join_chunks,
    numbers_inside,
    stored_size,
    verify_rows,
    walk_extensible_array,
    walk_fixed_array,
    walk_implicit,
    walk_single_chunk,
)
from gridref.formats.hdf5.heaps import (
    NODE_PREFIX_BYTES,
    BTreeV2,
    NodeLevel,
    read_btree_v2,
)
from gridref.formats.hdf5.messages import ChunkIndexKind
from gridref.learned import FORMS

# Version 1 B-trees of chunks, a whole level at a time

_CHUNK_NODE_TYPE = 1
_BATCH_BYTES = 1 << 20
_WHAT = "a node of the chunk B-tree"
_HIDDEN = "keys of the chunk B-tree do not enclose the chunks below them"
_UNORDERED = "the keys of the chunk B-tree are out of order"
_LEAF_HEAD = b"TREE" + bytes([_CHUNK_NODE_TYPE, 0])


def walk_btree_v1(request: IndexRequest) -> StoredChunks:
    """All chunks of a version 1 B-tree, in C order."""
    only = read_leaf(request)
    if only is not None:
        leaf, entries = only
        return _stored(request, entries, leaf.number, is_checked=leaf.is_inside)
    file = request.file
    root = np.array([request.index_address], np.uint64)
    addresses = check_addresses(file, root, _WHAT)
    nodes = _NodeReader(request)
    level = nodes.root_level(addresses)
    bounds = None
    while level:
        parts = nodes.entries(addresses, level)
        _check_keys(parts, bounds)
        bounds = _bounds_of_children(parts, nodes.scale)
        children = [part.entries["child"] for part in parts]
        addresses = check_addresses(file, np.concatenate(children), _WHAT)
        if not len(addresses):
            return join_chunks([])
        level -= 1
    leaves = nodes.entries(addresses, 0)
    _check_keys(leaves, bounds)
    chunks = join_chunks(
        _stored(request, part.entries, _numbers(request, part.keys)) for part in leaves
    )
    _check_order(chunks.number)
    return chunks


@dataclass(frozen=True, eq=False)
class Leaf:
    """What follows from a chunk B-tree of one leaf; one object for all similar ones.

    Attributes
    ----------
    kind
        By what similar ones are found in `FORMS`, with all their bytes but places and sizes.
    dtype
        All of the leaf that is used.
    number
        int64, C-order number of each chunk inside the grid; negative for those outside it.
    is_inside
        The numbers increase, and are inside the grid.
    """

    kind: tuple[Any, ...]
    dtype: np.dtype[np.void]
    number: NDArray[np.int64]
    is_inside: bool


def read_leaf(request: IndexRequest) -> tuple[Leaf, NDArray[np.void]] | None:
    """A tree that is one leaf, and its entries; None if it is more, or not valid.

    That is how the trees of small files are, whose keys mostly are the same in all files of a
    series.
    """
    file, layout = request.file, request.layout
    rank, capacity = len(request.shape), 2 * file.chunk_btree_k
    n_bytes = node_dtype(file.offset_bytes, rank, capacity).itemsize
    data = file.read_start(request.index_address, n_bytes, _WHAT)
    count = int.from_bytes(data[6:8], "little")
    if data[:6] != _LEAF_HEAD or count > capacity:
        return None
    dtype = node_dtype(file.offset_bytes, rank, count)
    if dtype.itemsize > len(data):
        return None
    data = data[: dtype.itemsize]
    request.budget.spend(len(data), "nodes of the chunk B-tree")
    entries = np.frombuffer(data, dtype)[0]["entries"]
    bounds = request.shape, layout.chunk_shape, layout.element_bytes
    kind = Leaf, file.offset_bytes, request.is_filtered, *bounds
    leaf: Leaf | None = FORMS.find(kind, data)
    return leaf or _learnt(request, kind, dtype, data), entries


def _learnt(
    request: IndexRequest, kind: tuple[Any, ...], dtype: np.dtype[np.void], data: bytes
) -> Leaf:
    nodes, reader = np.frombuffer(data, dtype), _NodeReader(request)
    counts = nodes["n_entries"].astype(np.int64)
    part = _used(nodes, counts, int(counts[0]), reader.scale)
    _check_keys([part], None)
    number = _numbers(request, part.keys)
    _check_order(number)
    number.flags.writeable = False
    leaf = Leaf(kind, dtype, number, bool((number >= 0).all()))
    holes = [*_differing(dtype, request)]
    return FORMS.keep(kind, data, holes, leaf, 1000 + 5 * number.nbytes)


def _differing(dtype: np.dtype[np.void], request: IndexRequest) -> Iterator[slice]:
    """Bytes of a leaf that differ in similar ones: addresses of chunks, and sizes if filtered."""
    fields: Any = dtype.fields
    (entries, first), (key, end) = fields["entries"][:2], fields["end"][:2]
    names = ("length", "child") if request.is_filtered else ("child",)
    for start in range(first, end, entries.base.itemsize):
        for field, at in (entries.base.fields[name][:2] for name in names):
            yield slice(start + at, start + at + field.itemsize)
    yield slice(end, end + key.itemsize - key["origin"].itemsize)  # size and filters of no chunk


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The content of nodes that were read together.

    Attributes
    ----------
    counts
        (n,) how many of them each node has.
    ends
        (n, rank + 1) origin in the key after each node's last entry: HDF5 finds no chunk from
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
    """Raise unless HDF5 finds all entries: their keys are between those of the nodes above.

    `bounds` is (n, 2, rank + 1): the keys before and after each node; None for the root.
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
    """The keys before and after each child of some nodes, in whole chunks, as HDF5 compares."""
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
    """A node of so many entries: its head, then keys and children in turn, and a last key."""
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
    """The entries in use of nodes with room for `capacity`; the key after them comes next."""
    rows = np.arange(len(nodes))
    ends = nodes["end"]["origin"].copy()
    short = counts < capacity
    ends[short] = nodes["entries"]["origin"][rows[short], counts[short]]
    entries = nodes["entries"][np.arange(capacity) < counts[:, None]]
    return _Nodes(entries, counts, ends - ends % scale)


def _stored(
    request: IndexRequest,
    entries: NDArray[np.void],
    number: NDArray[np.int64],
    *,
    is_checked: bool = False,
) -> StoredChunks:
    """The chunks that entries of leaves list."""
    mask = np.ascontiguousarray(entries["filter_mask"]) if request.is_filtered else None
    length = np.ascontiguousarray(entries["length"])
    return StoredChunks(number, entries["child"].astype(np.uint64), length, mask, is_checked)


def _numbers(request: IndexRequest, origin: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Numbers of chunks whose origins are given in elements."""
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


# Version 2 B-trees of chunks, a whole level at a time

_UNFILTERED_RECORD, _FILTERED_RECORD = 10, 11


@dataclass(frozen=True, slots=True)
class _NodesV2:
    """Nodes of one level, and how many records each has."""

    addresses: NDArray[np.int64]
    counts: NDArray[np.int64]


def walk_btree_v2(request: IndexRequest) -> StoredChunks:
    """All chunks of a version 2 B-tree."""
    tree = _read_header(request)
    record = _record(request, tree)
    if tree.root is None or not tree.n_records:
        return join_chunks([])
    root = check_addresses(request.file, np.array([tree.root], np.uint64), _WHAT)
    nodes = _NodesV2(root, np.array([tree.root_records], np.int64))
    chunks_of_levels: list[StoredChunks] = []
    for depth in reversed(range(len(tree.levels))):
        chunks, nodes = _read_level(request, tree, record, depth, nodes)
        chunks_of_levels += chunks
    joined = join_chunks(chunks_of_levels)
    if len(joined.number) != tree.n_records:
        raise SourceFormatError(
            f"the chunk B-tree holds {len(joined.number)} chunks instead of the {tree.n_records} "
            "it declares"
        )
    return joined


def _read_header(request: IndexRequest) -> BTreeV2:
    tree = read_btree_v2(request.file, request.index_address, "the chunk B-tree")
    kinds = (_UNFILTERED_RECORD, _FILTERED_RECORD)
    if tree.version != 0 or tree.record_type not in kinds:
        raise UnsupportedFeatureError(
            f"the B-tree has version {tree.version} and records of {tree.record_type}"
        )
    return tree


def _record(request: IndexRequest, tree: BTreeV2) -> np.dtype[np.void]:
    """A record: address, perhaps stored size and filter mask, and the chunk's coords."""
    if (tree.record_type == _FILTERED_RECORD) != request.is_filtered:
        raise SourceFormatError(
            "the chunk B-tree and the filters of the dataset contradict each other"
        )
    coords = ("coords", "<u8", (len(request.shape),))
    return chunk_dtype(request, tree.record_bytes, "the chunk B-tree has records", coords)


def _read_level(
    request: IndexRequest, tree: BTreeV2, record: np.dtype[np.void], depth: int, nodes: _NodesV2
) -> tuple[list[StoredChunks], _NodesV2]:
    """The chunks in nodes of one level, and the nodes below them."""
    level = tree.levels[depth]
    is_bad = (nodes.counts > level.max_records) | (nodes.counts < 1)
    if is_bad.any():
        place = request.file.place(int(nodes.addresses[is_bad][0]), tree.node_bytes)
        raise SourceFormatError(f"{_WHAT} has an impossible number of chunks", place)
    request.budget.spend(tree.node_bytes * len(nodes.addresses), "nodes of the chunk B-tree")
    chunks: list[StoredChunks] = []
    children: list[_NodesV2] = []
    step = max(1, BATCH_BYTES // tree.node_bytes)
    for start in range(0, len(nodes.addresses), step):
        part = _NodesV2(nodes.addresses[start : start + step], nodes.counts[start : start + step])
        rows = _read_nodes(request, tree, depth, part)
        chunks.append(_chunks_of_records(request, record, level, rows, part.counts))
        if depth:
            children.append(_children(request, tree, level, rows, part.counts))
    none = np.empty(0, np.int64)
    below = _NodesV2(
        np.concatenate([none, *(child.addresses for child in children)]),
        np.concatenate([none, *(child.counts for child in children)]),
    )
    return chunks, below


def _read_nodes(
    request: IndexRequest, tree: BTreeV2, depth: int, nodes: _NodesV2
) -> NDArray[np.uint8]:
    rows = request.file.read_rows(nodes.addresses, tree.node_bytes, _WHAT)
    prefix = (b"BTIN" if depth else b"BTLF") + bytes([0, tree.record_type])
    is_bad = (rows[:, :NODE_PREFIX_BYTES] != np.frombuffer(prefix, np.uint8)).any(axis=1)
    if is_bad.any():
        place = request.file.place(int(nodes.addresses[is_bad][0]), tree.node_bytes)
        raise SourceFormatError(f"{_WHAT} is not one of level {depth}", place)
    used = NODE_PREFIX_BYTES + nodes.counts * tree.record_bytes
    if depth:
        used = used + (nodes.counts + 1) * tree.levels[depth].pointer_bytes
    verify_rows(request.file, rows, used, nodes.addresses, _WHAT)
    return rows


def _chunks_of_records(
    request: IndexRequest,
    record: np.dtype[np.void],
    level: NodeLevel,
    rows: NDArray[np.uint8],
    counts: NDArray[np.int64],
) -> StoredChunks:
    stop = NODE_PREFIX_BYTES + level.max_records * record.itemsize
    body = np.ascontiguousarray(rows[:, NODE_PREFIX_BYTES:stop]).view(record)
    records = body[np.arange(level.max_records) < counts[:, None]]
    if not _ascend(records["coords"]):
        raise SourceFormatError(f"{_WHAT} is out of order: HDF5 would not find all chunks")
    number = numbers_inside(records["coords"].T, request.grid_shape)
    address = records["address"].astype(np.uint64)
    if not request.is_filtered:
        return StoredChunks(number, address)
    mask = np.ascontiguousarray(records["filter_mask"])
    return StoredChunks(number, address, stored_size(records["length"]), mask)


def _ascend(coords: NDArray[np.uint64]) -> bool:
    """Whether (n, rank) coords ascend, the first axis before the others, by which HDF5 searches."""
    before, after = coords[:-1], coords[1:]
    differs = before != after
    first = differs.argmax(axis=1)[:, None]
    rises = np.take_along_axis(before, first, 1) < np.take_along_axis(after, first, 1)
    return bool(rises.all())


def _children(
    request: IndexRequest,
    tree: BTreeV2,
    level: NodeLevel,
    rows: NDArray[np.uint8],
    counts: NDArray[np.int64],
) -> _NodesV2:
    """Pointers follow the records directly: one more than there are records."""
    columns = np.arange((level.max_records + 1) * level.pointer_bytes)
    start = NODE_PREFIX_BYTES + counts * tree.record_bytes
    pointer_columns = np.minimum(start[:, None] + columns, rows.shape[1] - 1)
    pointers = np.take_along_axis(rows, pointer_columns, axis=1).reshape(
        len(rows), level.max_records + 1, level.pointer_bytes
    )
    pointers = pointers[np.arange(level.max_records + 1) <= counts[:, None]]
    stop = request.file.offset_bytes
    addresses = stored_size(pointers[:, :stop])
    child_counts = stored_size(pointers[:, stop : stop + level.count_bytes])
    # Nodes are checked against the counts later, so a count need not be in range yet.
    checked = check_addresses(request.file, addresses, _WHAT)
    return _NodesV2(checked, child_counts.astype(np.int64))


# The chunks of a dataset, by whichever index it has

_WALKERS = {
    ChunkIndexKind.BTREE_V1: walk_btree_v1,
    ChunkIndexKind.SINGLE_CHUNK: walk_single_chunk,
    ChunkIndexKind.IMPLICIT: walk_implicit,
    ChunkIndexKind.FIXED_ARRAY: walk_fixed_array,
    ChunkIndexKind.EXTENSIBLE_ARRAY: walk_extensible_array,
    ChunkIndexKind.BTREE_V2: walk_btree_v2,
}


def walk_chunks(request: IndexRequest) -> ChunkTable:
    """All chunks that a dataset holds.

    Where the layout says that partial chunks are stored without filters, their filter mask is
    `ALL_FILTERS_OFF`, whatever the index states.
    """
    layout = request.layout
    if layout.index_address is None:
        return checked_table(request, join_chunks([]))
    walker = _WALKERS.get(layout.kind)
    if walker is None:
        raise UnsupportedFeatureError(f"chunks are indexed by {layout.kind.name}")
    try:
        return checked_table(request, walker(request))
    except SourceFormatError as error:
        # Where no single part is wrong, at least say where the index begins.
        start = request.file.place(layout.index_address).start
        raise error.located(Place(start=start)) from None
