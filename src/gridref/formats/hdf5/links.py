"""Read links of HDF5 groups.

`read_links` takes the header of a group and returns its links. Old groups have a symbol table: a
version 1 B-tree of symbol nodes, with the names in a local heap. New groups have link messages, in
the header or, if there are many, in a fractal heap.

Source: HDF5 File Format Specification v3, III.A.1 "Version 1 B-trees", III.A.2 "Version 2
B-trees" (records of type 5), III.B "Group Symbol Table Nodes", III.C "Symbol Table Entry", III.D
"Local Heaps", IV.A.2.c "Link Info", IV.A.2.g "Link", IV.A.2.r "Symbol Table Message".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, partial
from typing import NamedTuple

from gridref.errors import SourceFormatError
from gridref.formats.hdf5.bytes import FieldCursor, Hdf5Bytes, lookup3
from gridref.formats.hdf5.headers import (
    LINK,
    LINK_INFO,
    SYMBOL_TABLE,
    HeaderMessage,
    ObjectHeader,
)
from gridref.formats.hdf5.heaps import FractalHeap, LocalHeap, records_of
from gridref.learned import FORMS

# The links of a group, in old and in new groups

_GROUP_MESSAGES = frozenset({LINK_INFO, SYMBOL_TABLE})
_NAME_INDEX, _RECORD_BYTES, _HASH_BYTES = 5, 11, 4
_FIRST_NODE_BYTES, _FIRST_SYMBOLS_BYTES = 544, 328
_SYMBOLIC = 2
_MAX_LEVELS = 32


class LinkKind(IntEnum):
    """The kinds of links; other numbers are links that programs define for themselves."""

    HARD = 0
    SOFT = 1
    EXTERNAL = 64


class Link(NamedTuple):
    """A link.

    Attributes
    ----------
    kind
        A `LinkKind`, or another number.
    address
        For a hard link: address of the object's header.
    target
        For a soft or external link: path of the object.
    file_name
        For an external link: the file in which to look up the path.
    order
        Number of links created before it, if the group tracks that.
    """

    name: bytes
    kind: int
    address: int = 0
    target: bytes = b""
    file_name: bytes = b""
    order: int = 0


@dataclass(frozen=True)
class GroupLinks:
    """All links of a group.

    Attributes
    ----------
    listed
        In h5py's order: in the order of their creation if the group tracks it, else by name.
    """

    stored: tuple[Link, ...]
    listed: tuple[Link, ...]

    @cached_property
    def by_name(self) -> dict[bytes, Link]:
        return {link.name: link for link in self.stored}


def is_group(header: ObjectHeader) -> bool:
    """Whether an object is a group."""
    return not header.kinds.isdisjoint(_GROUP_MESSAGES)


def read_links(file: Hdf5Bytes, header: ObjectHeader) -> GroupLinks:
    """The links of the group with this header."""
    info = header.first(LINK_INFO)
    tracked = False
    if info is not None:
        links, tracked = _new_links(file, header, info)
    else:
        table = header.first(SYMBOL_TABLE)
        links = [] if table is None else _old_links(file, table)
    if len({link.name for link in links}) < len(links):
        raise SourceFormatError("two links have the same name", file.place(header.address))
    by_order = sorted(links, key=lambda link: link.order if tracked else link.name)
    return GroupLinks(tuple(links), tuple(by_order))


def _new_links(
    file: Hdf5Bytes, header: ObjectHeader, info: HeaderMessage
) -> tuple[list[Link], bool]:
    """Links of a new group, and whether it tracks the order of their creation."""
    place = file.place(info.address, len(info.data))
    cursor = FieldCursor(info.data, "the link info message", place)
    cursor.expect(b"\0", "version")
    flags = cursor.take(1)
    tracked = bool(flags & 1)
    cursor.take_bytes(8 if tracked else 0)
    heap, index = cursor.take(file.offset_bytes), cursor.take(file.offset_bytes)
    if heap != file.undefined_address:
        return _dense_links(file, heap, index), tracked
    return [
        _link(file, message.data, message.address)
        for message in header.messages
        if message.kind == LINK
    ], tracked


def _dense_links(file: Hdf5Bytes, heap_address: int, index: int) -> list[Link]:
    heap, width = FractalHeap(file, heap_address), file.offset_bytes
    records = records_of(
        file,
        index,
        "the index of links",
        record_type=_NAME_INDEX,
        record_bytes=_RECORD_BYTES,
    )
    messages = [heap.get(record[_HASH_BYTES:]) for record in records]
    # Similar groups have all in common but the addresses that end the messages of hard links.
    key = _dense_links, width, *records, *[message[:-width] for message in messages]
    heads: tuple[tuple[bytes, int], ...] | None = FORMS.get(key)
    if heads is None:
        links = [_link(file, message, heap_address) for message in messages]
        hashes = [record[_HASH_BYTES - 1 :: -1] for record in records]
        # HDF5 finds a link by the hash of its name.
        if hashes != sorted(hashes) or hashes != [_hash(link.name) for link in links]:
            raise SourceFormatError("the index of links is not in order", file.place(index))
        heads = tuple([_hard_link_head(message, width) for message in messages])
        if not all(name for name, _ in heads):
            return links
        FORMS.put(key, heads, 1000 + sum(500 + len(message) for message in messages))
    return [
        Link(name, LinkKind.HARD, int.from_bytes(message[-width:], "little"), order=order)
        for (name, order), message in zip(heads, messages, strict=True)
    ]


def _hash(name: bytes) -> bytes:
    """The hash of a name, the highest byte first."""
    return lookup3(name).to_bytes(4, "big")


def _link(file: Hdf5Bytes, data: bytes, address: int) -> Link:
    """Decode a link message."""
    width = file.offset_bytes
    name, order = _hard_link_head(data, width)
    if name:
        return Link(name, LinkKind.HARD, int.from_bytes(data[-width:], "little"), order=order)
    cursor = FieldCursor(data, "a link message", partial(file.place, address))
    cursor.expect(b"\1", "version")
    flags = cursor.take(1)
    kind = cursor.take(1) if flags & 0x08 else LinkKind.HARD
    order = cursor.take(8) if flags & 0x04 else 0
    cursor.take_bytes(1 if flags & 0x10 else 0)  # the character set of the name
    name = cursor.take_bytes(cursor.take(1 << (flags & 0x03)))
    if not name:
        raise cursor.error("has no name")
    if kind == LinkKind.HARD:
        return Link(name, kind, address=cursor.take(file.offset_bytes), order=order)
    value = cursor.take_bytes(cursor.take(2))
    if kind == LinkKind.SOFT:
        return Link(name, kind, target=value.partition(b"\0")[0], order=order)
    if kind == LinkKind.EXTERNAL:
        file_name, _, target = value[1:].partition(b"\0")
        if value[:1] != b"\0":
            raise cursor.error("leads to another file in an unknown way")
        target = target.partition(b"\0")[0]
        return Link(name, kind, target=target, file_name=file_name, order=order)
    return Link(name, kind, order=order)


def _hard_link_head(data: bytes, width: int) -> tuple[bytes, int]:
    """Name and order in the message of a hard link, which an address of this width ends.

    There is no name if the message is another one.
    """
    data = data[:-width]
    if len(data) <= 2:
        return b"", 0
    version, flags = data[:2]
    start = 2 + (8 if flags & 0x04 else 0) + (1 if flags & 0x10 else 0)
    stop = start + (1 << (flags & 0x03))
    name = data[stop:]
    if version != 1 or flags & 0x08 or int.from_bytes(data[start:stop], "little") != len(name):
        return b"", 0
    return name, int.from_bytes(data[2:10], "little") if flags & 0x04 else 0


@dataclass(frozen=True, slots=True)
class _SymbolNode:
    """A node of symbols, and the bounds of its links' names."""

    address: int
    after: int
    until: int


def _old_links(file: Hdf5Bytes, table: HeaderMessage) -> list[Link]:
    place = file.place(table.address, len(table.data))
    cursor = FieldCursor(table.data, "the symbol table message", place)
    tree, heap = cursor.take(file.offset_bytes), LocalHeap(file, cursor.take(file.offset_bytes))
    links: list[Link] = []
    for node in _symbol_nodes(file, tree):
        node_links = list(_symbols(file, node.address, heap))
        if not node_links:
            continue
        names = [link.name for link in node_links]
        after = heap.text(node.after)
        # HDF5 finds a link by the names around it.
        if names != sorted(names) or not after < names[0] <= names[-1] <= heap.text(node.until):
            raise SourceFormatError(
                "names in the symbol table are not in order", file.place(node.address)
            )
        links += node_links
    return links


def _symbol_nodes(file: Hdf5Bytes, root: int) -> list[_SymbolNode]:
    """The nodes of symbols below a version 1 B-tree, in order."""
    structure = "a node of the group's B-tree"
    nodes = [_SymbolNode(root, 0, 0)]
    seen = {root}
    level = None
    while level != 0:
        below: list[_SymbolNode] = []
        expected = None if level is None else level - 1
        for node in nodes:
            level, children = _tree_node(file, node.address, structure)
            if level > _MAX_LEVELS or (expected is not None and level != expected):
                raise SourceFormatError(
                    f"{structure} has the level {level}", file.place(node.address)
                )
            below += children
        addresses = {child.address for child in below}
        if len(addresses) < len(below) or not seen.isdisjoint(addresses):
            raise SourceFormatError(f"{structure} occurs twice", file.place(nodes[0].address))
        seen |= addresses
        nodes = below
        level = level if nodes else 0
    return nodes


def _tree_node(file: Hdf5Bytes, address: int, structure: str) -> tuple[int, list[_SymbolNode]]:
    """Level and children of a node."""
    head = file.read_start(address, _FIRST_NODE_BYTES, structure)
    cursor = FieldCursor(head, structure, file.place(address))
    cursor.expect(b"TREE\0", "signature and type")
    level, n_children = cursor.take(1), cursor.take(2)
    cursor.take_bytes(2 * file.offset_bytes)  # neighbours
    start = cursor.position
    n_bytes = start + n_children * (file.length_bytes + file.offset_bytes) + file.length_bytes
    if n_bytes > len(head):
        cursor = file.read_fields(address, n_bytes, structure)
        cursor.take_bytes(start)
    children = []
    after = cursor.take(file.length_bytes)
    for _ in range(n_children):
        child, until = cursor.take(file.offset_bytes), cursor.take(file.length_bytes)
        children.append(_SymbolNode(child, after, until))
        after = until
    return level, children


def _symbols(file: Hdf5Bytes, address: int, heap: LocalHeap) -> Iterator[Link]:
    structure = "a node of symbols"
    data = file.read_start(address, _FIRST_SYMBOLS_BYTES, structure)
    cursor = FieldCursor(data, structure, file.place(address))
    cursor.expect(b"SNOD\1", "signature and version")
    cursor.take(1)
    n_symbols = cursor.take(2)
    n_bytes = 8 + n_symbols * (file.length_bytes + file.offset_bytes + 24)
    if n_bytes > len(data):
        cursor = file.read_fields(address, n_bytes, structure)
        cursor.take_bytes(8)
    for _ in range(n_symbols):
        # A length, though the specification calls it an offset (``H5G__ent_decode``).
        name = heap.text(cursor.take(file.length_bytes))
        header, cached, _ = cursor.take(file.offset_bytes), cursor.take(4), cursor.take(4)
        scratch = cursor.take_bytes(16)
        if cached > _SYMBOLIC:
            raise cursor.error(f"has an entry of the unknown kind {cached}")
        if cached == _SYMBOLIC:
            target = heap.text(int.from_bytes(scratch[:4], "little"))
            yield Link(name, LinkKind.SOFT, target=target)
        else:
            yield Link(name, LinkKind.HARD, address=header)
