"""The groups and datasets of a file, each link followed once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from h5py import h5d, h5g, h5i, h5l, h5o

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.scan.hdf5.attributes import ObjectAttributes, read_attributes
from gridref.scan.hdf5.dense_checks import check_dense_storage
from gridref.scan.hdf5.files import HDF5_ERRORS, OpenFile, hdf5_errors
from gridref.scan.hdf5.object_header import HeaderMessage, read_header
from gridref.scan.hdf5.related import beside

__all__ = ["DatasetNode", "GroupNode", "SkippedNode", "dataset_node", "read_tree"]

Address = tuple[int, int]
"""Number of the file as HDF5 counts open files, and address of the object's header."""

_MAX_DEPTH = 200
_MAX_REPEATED = 10_000


@dataclass(frozen=True, eq=False)
class DatasetNode:
    """A dataset.

    Attributes
    ----------
    name, path
        Name in its group, and path in the file, like ``/model/tas``.
    file
        The file that it lies in: another one behind an external link.
    address
        Where its header lies.
    shape, maxshape
        Extents now, and as they may grow (None: without limit). None for a null dataspace.
    attributes
        Its attributes.
    messages
        Messages of its header.
    opened
        Opens it with the HDF5 library.
    """

    name: str
    path: str
    file: OpenFile
    address: Address
    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...]
    attributes: ObjectAttributes
    messages: tuple[HeaderMessage, ...]
    opened: Callable[[], Any]

    @cached_property
    def did(self) -> Any:
        """Low-level identifier of the HDF5 library."""
        return self.opened()

    @cached_property
    def creation(self) -> Any:
        """Creation properties as the HDF5 library gives them."""
        return self.did.get_create_plist()

    @property
    def is_scale(self) -> bool:
        """Whether it is a dimension scale."""
        return bool(self.attributes.records.get("CLASS") == "DIMENSION_SCALE")


@dataclass(frozen=True, eq=False)
class SkippedNode:
    """An object that is no array or group, or cannot be read.

    Attributes
    ----------
    path, reason
        Which, and why.
    error
        What to raise if nothing may be skipped; None for what is no data.
    """

    path: str
    reason: str
    error: SourceFormatError | UnsupportedFeatureError | None = None


@dataclass(frozen=True, eq=False)
class GroupNode:
    """A group, with its members in the file's order."""

    name: str
    path: str
    attributes: ObjectAttributes
    datasets: dict[str, DatasetNode] = field(default_factory=dict)
    groups: dict[str, GroupNode] = field(default_factory=dict)
    skipped: list[SkippedNode] = field(default_factory=list)

    def walk(self) -> Iterator[GroupNode]:
        """Itself and all groups below, parents first."""
        yield self
        for group in self.groups.values():
            yield from group.walk()


class _Walk:
    """State of reading one tree: what was seen, and how much more may be."""

    def __init__(self, file: OpenFile, max_objects: int) -> None:
        self.file = file
        self.max_objects = max_objects
        self.n_objects = 0
        self.n_repeated = 0
        self.seen: set[Address] = set()
        self.files: dict[int, OpenFile] = {}

    def count(self, path: str) -> None:
        self.n_objects += 1
        if self.n_objects > self.max_objects:
            raise UnsupportedFeatureError(
                f"the file holds more than {self.max_objects} objects; raise max_objects",
                self.file.place(path),
            )

    def group(
        self, gid: Any, name: str, path: str, file: OpenFile, ancestors: tuple[Address, ...]
    ) -> GroupNode:
        place = self.file.place(path or "/")
        with hdf5_errors(place, "read the group"):
            header = read_header(file.bytes, _address(gid)[1])
            check_dense_storage(file.bytes, header.messages)
            attributes = read_attributes(file, header)
            names = list(gid)
        node = GroupNode(name, path or "/", attributes)
        for member in names:
            self.count(path)
            text = member.decode("utf-8", "backslashreplace")
            found = self.member(gid, member, text, f"{path}/{text}", file, ancestors)
            if isinstance(found, DatasetNode):
                node.datasets[text] = found
            elif isinstance(found, GroupNode):
                node.groups[text] = found
            else:
                node.skipped.append(found)
        return node

    def member(
        self,
        gid: Any,
        name: bytes,
        text: str,
        path: str,
        file: OpenFile,
        ancestors: tuple[Address, ...],
    ) -> DatasetNode | GroupNode | SkippedNode:
        kind = h5l.TYPE_HARD
        try:
            kind = gid.links.get_info(name).type
            oid = self.open(gid, name, kind, file)
        except HDF5_ERRORS as error:
            return self.broken(path, kind, error)
        if isinstance(oid, h5d.DatasetID):
            return self.dataset(oid, text, path, self.file_of(oid, kind, file))
        if not isinstance(oid, h5g.GroupID):
            return SkippedNode(path, "a named datatype holds no data")
        address = _address(oid)
        if address in ancestors:
            return SkippedNode(path, "a link back to a group around it")
        if len(ancestors) >= _MAX_DEPTH:
            return SkippedNode(path, f"groups are nested more than {_MAX_DEPTH} deep")
        if address in self.seen:
            self.n_repeated += 1
            if self.n_repeated > _MAX_REPEATED:
                return SkippedNode(path, "another name of a group, after too many of them")
        self.seen.add(address)
        return self.group(oid, text, path, self.file_of(oid, kind, file), (*ancestors, address))

    def broken(self, path: str, kind: int, error: Exception) -> SkippedNode:
        """A link that cannot be followed: it leads nowhere, or its object is corrupt."""
        detail = str(error.args[0] if error.args else error)
        if kind != h5l.TYPE_HARD:
            return SkippedNode(path, f"a link that leads nowhere: {detail}")
        reason = f"cannot open the object: {detail}"
        return SkippedNode(path, reason, SourceFormatError(reason, self.file.place(path)))

    def file_of(self, oid: Any, kind: int, parent: OpenFile) -> OpenFile:
        """The file that an object lies in; only external links lead to another one."""
        if kind == h5l.TYPE_HARD:
            return parent
        number = _address(oid)[0]
        if number == _address(parent.fid)[0]:
            return parent
        if number not in self.files:
            fid = h5i.get_file_id(oid)
            self.files[number] = self.file.linked(os.path.abspath(os.fsdecode(fid.name)), fid)
        return self.files[number]

    def open(self, gid: Any, name: bytes, kind: int, file: OpenFile) -> Any:
        """Open a member of a group, in the file that it lies in."""
        if kind != h5l.TYPE_EXTERNAL or file.link_access is not None:
            return h5o.open(gid, name, lapl=file.link_access)
        filename, target = gid.links.get_val(name)
        url = beside(file.source.url, filename.decode("utf-8", "surrogateescape"))
        linked = self.file.linked(url)
        self.files[_address(linked.fid)[0]] = linked
        return h5o.open(linked.fid, target)

    def dataset(self, did: Any, name: str, path: str, file: OpenFile) -> DatasetNode | SkippedNode:
        try:
            return dataset_node(did, name, path, file)
        except SourceFormatError as error:
            return SkippedNode(path, error.reason, error)


def dataset_node(did: Any, name: str, path: str, file: OpenFile) -> DatasetNode:
    """Read the header and the attributes of a dataset.

    Raises
    ------
    SourceFormatError
        If they are corrupt.
    """
    with hdf5_errors(file.place(path), "read the dataset's header"):
        if did.get_create_plist().get_layout() == h5d.VIRTUAL:
            did = file.with_sources(did)
        shape = did.shape
        maxshape = _maxshape(did.get_space()) if shape else ()
        address = _address(did)
        header = read_header(file.bytes, address[1])
        check_dense_storage(file.bytes, header.messages)
        attributes = read_attributes(file, header)
        return DatasetNode(
            name, path, file, address, shape, maxshape, attributes, header.messages, lambda: did
        )


def _address(oid: Any) -> Address:
    stat = h5g.get_objinfo(oid)
    return stat.fileno[0], stat.objno[0]


def _maxshape(space: Any) -> tuple[int | None, ...]:
    unlimited = (1 << 64) - 1
    return tuple(
        None if extent in (-1, unlimited) else extent
        for extent in space.get_simple_extent_dims(True)
    )


def read_tree(file: OpenFile, max_objects: int) -> GroupNode:
    """Read all groups, and the headers and attributes of all datasets.

    Raises
    ------
    SourceFormatError
        If the root group cannot be read.
    UnsupportedFeatureError
        If there are more than `max_objects` objects.
    """
    with hdf5_errors(file.place("/"), "open the root group"):
        root = h5g.open(file.fid, b"/")
        address = _address(root)
    walk = _Walk(file, max_objects)
    walk.seen.add(address)
    return walk.group(root, "", "", file, (address,))
