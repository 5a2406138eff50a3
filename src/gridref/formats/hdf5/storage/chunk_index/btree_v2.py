"""Version 2 B-trees of chunks, a whole level at a time.

HDF5 File Format Specification v3, III.A.2 (records of types 10 and 11) and VII.E: indexes of
datasets that grow without limit along several dimensions. Inner nodes hold chunks, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.btree_v2 import (
    NODE_PREFIX_BYTES,
    BTreeV2,
    NodeLevel,
    read_btree_v2,
)
from gridref.formats.hdf5.storage.chunk_index.blocks import (
    BATCH_BYTES,
    join_chunks,
    stored_size,
    verify_rows,
)
from gridref.formats.hdf5.storage.chunk_index.request import (
    IndexRequest,
    StoredChunks,
    check_addresses,
    numbers_inside,
)

__all__ = ["walk_btree_v2"]

_UNFILTERED_RECORD, _FILTERED_RECORD = 10, 11
_WHAT = "a node of the chunk B-tree"


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
    UnsupportedFeatureError
        If it is of an unknown version or type.
    """
    tree = _read_header(request)
    record = _record(request, tree.record_type, tree.record_bytes)
    if tree.root is None or not tree.n_records:
        return join_chunks([])
    root = check_addresses(request.file, np.array([tree.root], np.uint64), 0, _WHAT)
    nodes = _Nodes(root, np.array([tree.root_records], np.int64))
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


def _read_level(
    request: IndexRequest, tree: BTreeV2, record: np.dtype[np.void], depth: int, nodes: _Nodes
) -> tuple[list[StoredChunks], _Nodes]:
    """The chunks in nodes of one level, and the nodes below them."""
    level = tree.levels[depth]
    is_bad = (nodes.counts > level.max_records) | (nodes.counts < 1)
    if is_bad.any():
        place = request.file.place(int(nodes.addresses[is_bad][0]), tree.node_bytes)
        raise SourceFormatError(f"{_WHAT} has an impossible number of chunks", place)
    request.budget.spend(tree.node_bytes * len(nodes.addresses), "nodes of the chunk B-tree")
    chunks: list[StoredChunks] = []
    children: list[_Nodes] = []
    step = max(1, BATCH_BYTES // tree.node_bytes)
    for start in range(0, len(nodes.addresses), step):
        part = _Nodes(nodes.addresses[start : start + step], nodes.counts[start : start + step])
        rows = _read_nodes(request, tree, depth, part)
        chunks.append(_chunks(request, record, level, rows, part.counts))
        if depth:
            children.append(_children(request, tree, level, rows, part.counts))
    none = np.empty(0, np.int64)
    below = _Nodes(
        np.concatenate([none, *(child.addresses for child in children)]),
        np.concatenate([none, *(child.counts for child in children)]),
    )
    return chunks, below


def _read_nodes(
    request: IndexRequest, tree: BTreeV2, depth: int, nodes: _Nodes
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


def _chunks(
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
) -> _Nodes:
    """Pointers follow the records, wherever these end: one more than there are records."""
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
    return _Nodes(check_addresses(request.file, addresses, 0, _WHAT), child_counts.astype(np.int64))
