"""Version 2 B-trees of chunks, a whole level at a time.

HDF5 File Format Specification v3, III.A.2 (records of types 10 and 11) and VII.E: indexes of
datasets that grow without limit along several dimensions. Inner nodes hold chunks, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gridref.errors import SourceFormatError
from gridref.scan.hdf5.chunk_index.blocks import (
    BATCH_BYTES,
    CHECKSUM_BYTES,
    join_chunks,
    read_checked,
    stored_size,
    verify_rows,
)
from gridref.scan.hdf5.chunk_index.request import (
    IndexRequest,
    StoredChunks,
    WalkerUnsupported,
    check_addresses,
)

__all__ = ["walk_btree_v2"]

_UNFILTERED_RECORD, _FILTERED_RECORD = 10, 11
_NODE_PREFIX_BYTES = 6
_WHAT = "a node of the chunk B-tree"


@dataclass(frozen=True, slots=True)
class _Level:
    """What nodes of one level look like; level 0 are the leaves."""

    max_records: int
    max_total: int  # of records in a node and below it
    pointer_bytes: int
    count_bytes: int  # of the number of records in a child, inside a pointer
    total_bytes: int  # of the number of records in a child and below it


@dataclass(frozen=True, slots=True)
class _Tree:
    """The header of the tree."""

    record_type: int
    record: np.dtype[np.void]
    node_bytes: int
    levels: tuple[_Level, ...]
    root: int
    root_records: int
    n_total: int


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Nodes of one level, and how many records each has."""

    addresses: NDArray[np.int64]
    counts: NDArray[np.int64]


def walk_btree_v2(request: IndexRequest) -> StoredChunks:
    """All chunks of a version 2 B-tree.

    Raises
    ------
    SourceFormatError
        If the tree is corrupt.
    WalkerUnsupported
        If it is of an unknown version or type.
    """
    tree = _read_header(request)
    if tree.root == request.file.undefined_address or not tree.n_total:
        return join_chunks([])
    root = check_addresses(request.file, np.array([tree.root], np.uint64), 0, _WHAT)
    nodes = _Nodes(root, np.array([tree.root_records], np.int64))
    found: list[StoredChunks] = []
    for depth in reversed(range(len(tree.levels))):
        chunks, nodes = _read_level(request, tree, depth, nodes)
        found += chunks
    joined = join_chunks(found)
    if len(joined.number) != tree.n_total:
        raise SourceFormatError(
            f"the chunk B-tree holds {len(joined.number)} chunks instead of the {tree.n_total} "
            "it declares"
        )
    return joined


def _read_header(request: IndexRequest) -> _Tree:
    file = request.file
    n_bytes = 16 + file.offset_bytes + 2 + file.length_bytes + CHECKSUM_BYTES
    what = "the header of the chunk B-tree"
    cursor = read_checked(request, request.index_address, n_bytes, what)
    cursor.expect(b"BTHD", "signature")
    version, record_type = cursor.take(1), cursor.take(1)
    if version != 0 or record_type not in (_UNFILTERED_RECORD, _FILTERED_RECORD):
        raise WalkerUnsupported(f"the B-tree has version {version} and records of {record_type}")
    node_bytes, record_bytes, depth = cursor.take(4), cursor.take(2), cursor.take(2)
    cursor.take_bytes(2)  # when to split and merge nodes
    root, root_records = cursor.take(file.offset_bytes), cursor.take(2)
    n_total = cursor.take(file.length_bytes)
    if n_total > request.n_chunks:
        raise SourceFormatError(
            f"the chunk B-tree declares {n_total} chunks, the dataset has {request.n_chunks}"
        )
    record = _record(request, record_type, record_bytes)
    levels = _levels(file.offset_bytes, node_bytes, record_bytes, depth)
    return _Tree(record_type, record, node_bytes, levels, root, root_records, n_total)


def _record(request: IndexRequest, record_type: int, record_bytes: int) -> np.dtype[np.void]:
    """A record: address, perhaps stored size and filter mask, and the chunk's coords."""
    if (record_type == _FILTERED_RECORD) != request.is_filtered:
        raise SourceFormatError(
            "the chunk B-tree and the filters of the dataset contradict each other"
        )
    rank = len(request.shape)
    width = record_bytes - request.file.offset_bytes - 4 - 8 * rank
    filtered = [("length", "u1", (width,)), ("filter_mask", "<u4")]
    if request.is_filtered and not 0 < width <= 8:
        raise SourceFormatError(f"the chunk B-tree has records of {record_bytes} bytes")
    dtype = np.dtype(
        [
            ("address", f"<u{request.file.offset_bytes}"),
            *(filtered if request.is_filtered else []),
            ("coords", "<u8", (rank,)),
        ]
    )
    if dtype.itemsize != record_bytes:
        raise SourceFormatError(f"the chunk B-tree has records of {record_bytes} bytes")
    return dtype


def _levels(
    offset_bytes: int, node_bytes: int, record_bytes: int, depth: int
) -> tuple[_Level, ...]:
    """Sizes of the nodes of each level; pointers are only as wide as the counts they hold."""
    overhead = _NODE_PREFIX_BYTES + CHECKSUM_BYTES
    most = max(0, node_bytes - overhead) // record_bytes
    levels = [_Level(most, most, 0, 0, 0)]
    count_bytes = _width(most)
    for level in range(1, depth + 1):
        total_bytes = _width(levels[-1].max_total) if level > 1 else 0
        pointer_bytes = offset_bytes + count_bytes + total_bytes
        room = max(0, node_bytes - overhead - pointer_bytes)
        most = room // (record_bytes + pointer_bytes)
        total = (most + 1) * levels[-1].max_total + most
        levels.append(_Level(most, total, pointer_bytes, count_bytes, total_bytes))
        if not most or total_bytes > 8:
            raise SourceFormatError(
                f"the chunk B-tree has {depth + 1} levels of nodes of {node_bytes} bytes"
            )
    return tuple(levels)


def _width(limit: int) -> int:
    """Bytes that numbers up to `limit` take."""
    return max(1, -(-limit.bit_length() // 8))


def _read_level(
    request: IndexRequest, tree: _Tree, depth: int, nodes: _Nodes
) -> tuple[list[StoredChunks], _Nodes]:
    """The chunks in nodes of one level, and the nodes below them."""
    level = tree.levels[depth]
    is_bad = (nodes.counts > level.max_records) | (nodes.counts < 1)
    if is_bad.any():
        place = request.file.place(int(nodes.addresses[is_bad][0]), tree.node_bytes)
        raise SourceFormatError(f"{_WHAT} has an impossible number of chunks", place)
    request.budget.spend(tree.node_bytes * len(nodes.addresses), "nodes of the chunk B-tree")
    found: list[StoredChunks] = []
    children: list[_Nodes] = []
    step = max(1, BATCH_BYTES // tree.node_bytes)
    for start in range(0, len(nodes.addresses), step):
        part = _Nodes(nodes.addresses[start : start + step], nodes.counts[start : start + step])
        rows = _read_nodes(request, tree, depth, part)
        found.append(_chunks(request, tree, level, rows, part.counts))
        if depth:
            children.append(_children(request, tree, level, rows, part.counts))
    none = np.empty(0, np.int64)
    below = _Nodes(
        np.concatenate([none, *(child.addresses for child in children)]),
        np.concatenate([none, *(child.counts for child in children)]),
    )
    return found, below


def _read_nodes(request: IndexRequest, tree: _Tree, depth: int, nodes: _Nodes) -> NDArray[np.uint8]:
    rows = request.file.read_rows(nodes.addresses, tree.node_bytes, _WHAT)
    prefix = (b"BTIN" if depth else b"BTLF") + bytes([0, tree.record_type])
    is_bad = (rows[:, :_NODE_PREFIX_BYTES] != np.frombuffer(prefix, np.uint8)).any(axis=1)
    if is_bad.any():
        place = request.file.place(int(nodes.addresses[is_bad][0]), tree.node_bytes)
        raise SourceFormatError(f"{_WHAT} is not one of level {depth}", place)
    used = _NODE_PREFIX_BYTES + nodes.counts * tree.record.itemsize
    if depth:
        used = used + (nodes.counts + 1) * tree.levels[depth].pointer_bytes
    verify_rows(request.file, rows, used, nodes.addresses, _WHAT)
    return rows


def _chunks(
    request: IndexRequest,
    tree: _Tree,
    level: _Level,
    rows: NDArray[np.uint8],
    counts: NDArray[np.int64],
) -> StoredChunks:
    stop = _NODE_PREFIX_BYTES + level.max_records * tree.record.itemsize
    body = np.ascontiguousarray(rows[:, _NODE_PREFIX_BYTES:stop]).view(tree.record)
    records = body[np.arange(level.max_records) < counts[:, None]]
    number = np.zeros(len(records), np.int64)
    for axis, n_chunks in enumerate(request.grid_shape):
        place = records["coords"][:, axis]
        if (place >= n_chunks).any():
            raise SourceFormatError("the chunk B-tree lists a chunk outside of the dataset")
        number = number * n_chunks + place.astype(np.int64)
    address = records["address"].astype(np.uint64)
    if not request.is_filtered:
        return StoredChunks(number, address)
    mask = np.ascontiguousarray(records["filter_mask"])
    return StoredChunks(number, address, stored_size(records["length"]), mask)


def _children(
    request: IndexRequest,
    tree: _Tree,
    level: _Level,
    rows: NDArray[np.uint8],
    counts: NDArray[np.int64],
) -> _Nodes:
    """Pointers follow the records, wherever these end: one more than there are records."""
    columns = np.arange((level.max_records + 1) * level.pointer_bytes)
    start = _NODE_PREFIX_BYTES + counts * tree.record.itemsize
    places = np.minimum(start[:, None] + columns, rows.shape[1] - 1)
    pointers = np.take_along_axis(rows, places, axis=1).reshape(
        len(rows), level.max_records + 1, level.pointer_bytes
    )
    pointers = pointers[np.arange(level.max_records + 1) <= counts[:, None]]
    stop = request.file.offset_bytes
    addresses = stored_size(pointers[:, :stop])
    child_counts = stored_size(pointers[:, stop : stop + level.count_bytes])
    # Nodes are checked against the counts later, so a count need not be in range yet.
    return _Nodes(check_addresses(request.file, addresses, 0, _WHAT), child_counts.astype(np.int64))
