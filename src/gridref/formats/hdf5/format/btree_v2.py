"""Version 2 B-trees: what their headers say, and all records of small ones.

HDF5 File Format Specification v3, III.A.2. Trees of chunks, which may be very large, are walked by
`gridref.formats.hdf5.storage.chunk_index.btree_v2`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gridref.errors import SourceFormatError
from gridref.formats.hdf5.format.superblock import FieldCursor, Hdf5Bytes

__all__ = ["NODE_PREFIX_BYTES", "BTreeV2", "NodeLevel", "read_btree_v2", "records_of"]

NODE_PREFIX_BYTES = 6
_CHECKSUM_BYTES = 4
_MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class NodeLevel:
    """What nodes of one level look like; level 0 are the leaves.

    Attributes
    ----------
    max_records, max_total
        Most records of a node, and of a node and all below it.
    pointer_bytes, count_bytes
        Size of a pointer to a child, and of the number of records of the child in it.
    """

    max_records: int
    max_total: int
    pointer_bytes: int = 0
    count_bytes: int = 0


@dataclass(frozen=True, slots=True)
class BTreeV2:
    """The header of a tree.

    Attributes
    ----------
    version, record_type
        Versions of the format and of the records.
    record_bytes, node_bytes
        Sizes of a record and of a node.
    levels
        From the leaves to the root.
    root, root_records
        Where the root lies (None: nowhere), and how many records it holds.
    n_records
        Of the whole tree.
    """

    version: int
    record_type: int
    record_bytes: int
    node_bytes: int
    levels: tuple[NodeLevel, ...]
    root: int | None
    root_records: int
    n_records: int


def read_btree_v2(file: Hdf5Bytes, address: int, structure: str) -> BTreeV2:
    """Read the header of a tree; `structure` names the tree in errors.

    Raises
    ------
    SourceFormatError
        If it is corrupt.
    """
    structure = f"the header of {structure}"
    n_bytes = 16 + file.offset_bytes + 2 + file.length_bytes + _CHECKSUM_BYTES
    cursor = file.read_checked(address, n_bytes, structure)
    cursor.expect(b"BTHD", "signature")
    version, record_type = cursor.take(1), cursor.take(1)
    node_bytes, record_bytes, depth = cursor.take(4), cursor.take(2), cursor.take(2)
    cursor.take_bytes(2)  # when to split and merge nodes
    root, root_records = cursor.take(file.offset_bytes), cursor.take(2)
    n_records = cursor.take(file.length_bytes)
    if not record_bytes or depth > _MAX_DEPTH:
        raise cursor.error(f"has records of {record_bytes} bytes and is {depth} levels deep")
    levels = _levels(cursor, file.offset_bytes, node_bytes, record_bytes, depth)
    is_empty = root == file.undefined_address
    if is_empty and n_records:
        raise cursor.error(f"declares {n_records} records, but has none")
    return BTreeV2(
        version,
        record_type,
        record_bytes,
        node_bytes,
        levels,
        None if is_empty else root,
        root_records,
        n_records,
    )


def _levels(
    cursor: FieldCursor, offset_bytes: int, node_bytes: int, record_bytes: int, depth: int
) -> tuple[NodeLevel, ...]:
    """Sizes of the nodes of each level; pointers are only as wide as the counts they hold."""
    overhead = NODE_PREFIX_BYTES + _CHECKSUM_BYTES
    most = max(0, node_bytes - overhead) // record_bytes
    levels = [NodeLevel(most, most)]
    count_bytes = _width(most)
    for level in range(1, depth + 1):
        total_bytes = _width(levels[-1].max_total) if level > 1 else 0
        pointer_bytes = offset_bytes + count_bytes + total_bytes
        room = max(0, node_bytes - overhead - pointer_bytes)
        most = room // (record_bytes + pointer_bytes)
        total = (most + 1) * levels[-1].max_total + most
        levels.append(NodeLevel(most, total, pointer_bytes, count_bytes))
        if not most or total_bytes > 8:
            raise cursor.error(f"declares {depth + 1} levels of nodes of {node_bytes} bytes")
    return tuple(levels)


def _width(limit: int) -> int:
    """Bytes that numbers up to `limit` take."""
    return max(1, -(-limit.bit_length() // 8))


def records_of(
    file: Hdf5Bytes, address: int, structure: str, *, record_type: int, record_bytes: int
) -> list[bytes]:
    """All records of a tree, in its order.

    Parameters
    ----------
    record_type, record_bytes
        What its records must be.

    Raises
    ------
    SourceFormatError
        If it is corrupt, or its records are others.
    """
    tree = read_btree_v2(file, address, structure)
    if (tree.version, tree.record_type, tree.record_bytes) != (0, record_type, record_bytes):
        raise SourceFormatError(
            f"{structure} has records of type {tree.record_type} and {tree.record_bytes} bytes"
            f" instead of type {record_type} and {record_bytes} bytes",
            file.place(address),
        )
    if tree.root is None or not tree.n_records:
        return []
    if tree.n_records * record_bytes > file.end_address:
        raise SourceFormatError(
            f"{structure} declares {tree.n_records} records, more than the file can hold",
            file.place(address),
        )
    walk = _Walk(file, tree, structure)
    records = list(walk.records(tree.root, tree.root_records, len(tree.levels) - 1))
    if len(records) != tree.n_records:
        raise SourceFormatError(
            f"{structure} holds {len(records)} records instead of the {tree.n_records} it declares",
            file.place(address),
        )
    return records


class _Walk:
    def __init__(self, file: Hdf5Bytes, tree: BTreeV2, structure: str) -> None:
        self.file = file
        self.tree = tree
        self.structure = f"a node of {structure}"
        self.n_left = tree.n_records

    def records(self, address: int, n_records: int, depth: int) -> Iterator[bytes]:
        """The records in a node and below it, children between them."""
        file, level, width = self.file, self.tree.levels[depth], self.tree.record_bytes
        self.n_left -= n_records
        if not 0 < n_records <= level.max_records or self.n_left < 0:
            place = file.place(address, self.tree.node_bytes)
            raise SourceFormatError(f"{self.structure} has an impossible number of records", place)
        pointers = NODE_PREFIX_BYTES + n_records * width
        used = pointers + ((n_records + 1) * level.pointer_bytes if depth else 0)
        cursor = file.read_checked(address, used + _CHECKSUM_BYTES, self.structure)
        cursor.expect(b"BTIN" if depth else b"BTLF", "signature")
        cursor.expect(bytes([0, self.tree.record_type]), "version and record type")
        data = cursor.data
        children = [
            (
                int.from_bytes(data[start : start + file.offset_bytes], "little"),
                int.from_bytes(
                    data[start + file.offset_bytes :][: level.count_bytes],
                    "little",
                ),
            )
            for start in range(pointers, len(data), level.pointer_bytes or 1)
        ]
        for number in range(n_records):
            if depth:
                yield from self.records(*children[number], depth - 1)
            start = NODE_PREFIX_BYTES + number * width
            yield data[start : start + width]
        if depth:
            yield from self.records(*children[n_records], depth - 1)
