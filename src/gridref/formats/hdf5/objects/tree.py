"""The groups and datasets of a file, each link followed once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gridref.errors import ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.links import Link, LinkKind, is_group
from gridref.formats.hdf5.format.object_header import HeaderMessage, ObjectHeader
from gridref.formats.hdf5.objects.attributes import ObjectAttributes, read_attributes
from gridref.formats.hdf5.objects.files import OpenFile
from gridref.formats.hdf5.objects.mappings import dataset_extents
from gridref.formats.hdf5.objects.paths import Location, Nowhere, follow_link
from gridref.model.names import MAX_GROUP_DEPTH

__all__ = ["DatasetNode", "GroupNode", "SkippedNode", "dataset_node", "read_tree"]

Address = tuple[int, int]
"""Number of the file among those that are open, and address of the object's header."""

_DATATYPE, _LAYOUT = 0x03, 0x08
_MAX_REPEATED = 10_000
_MAX_PATH_BYTES = 1 << 24


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
    header
        Its header.
    """

    name: str
    path: str
    file: OpenFile
    address: Address
    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...]
    attributes: ObjectAttributes
    header: ObjectHeader

    @property
    def messages(self) -> tuple[HeaderMessage, ...]:
        """Messages of its header."""
        return self.header.messages

    @property
    def is_scale(self) -> bool:
        """Whether it is a dimension scale."""
        said: Any = self.attributes.records.get("CLASS", "")
        if isinstance(said, str):
            return said == "DIMENSION_SCALE"
        said = np.asarray(said)  # a compound, in bad files
        is_text = said.size == 1 and said.dtype.kind in "OTU"
        return is_text and str(said.reshape(-1)[0]) == "DIMENSION_SCALE"


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
    error: ScanError | None = None


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


class _TooMuchError(UnsupportedFeatureError):
    """The whole file is refused, not just one object."""


class _Walk:
    """State of reading one tree: the objects read so far, and the limits on how many are read."""

    def __init__(self, file: OpenFile, max_objects: int) -> None:
        self.file = file
        self.max_objects = max_objects
        self.n_objects = 0
        self.n_repeated = 0
        self.n_path_bytes = 0
        self.seen: set[Address] = set()
        self.datasets: dict[Address, DatasetNode] = {}

    def count(self, path: str, n_target_bytes: int) -> None:
        self.n_objects += 1
        self.n_path_bytes += len(path) + n_target_bytes
        if self.n_objects > self.max_objects:
            raise _TooMuchError(
                f"the file holds more than {self.max_objects} objects; raise max_objects",
                self.file.place(path),
            )
        if self.n_path_bytes > _MAX_PATH_BYTES + 8 * self.file.scan_file.size:
            raise _TooMuchError("paths in the file are too long", self.file.place())

    def group(
        self, here: Location, name: str, path: str, ancestors: tuple[Address, ...]
    ) -> GroupNode:
        """Read a group, and all that is in it.

        Raises
        ------
        SourceFormatError
            If its header, attributes or links are corrupt.
        """
        file, header = here.file, here.file.header(here.address)
        node = GroupNode(name, path or "/", read_attributes(file, header))
        links = file.links(here.address).listed
        file.prefetch(links)
        for link in links:
            text = link.name.decode("utf-8", "backslashreplace")
            below = f"{path}/{text}"
            self.count(below, len(link.target))
            child = self.member(here, link, text, below, ancestors)
            if isinstance(child, DatasetNode):
                node.datasets[text] = child
            elif isinstance(child, GroupNode):
                node.groups[text] = child
            else:
                node.skipped.append(child)
        return node

    def member(
        self, group: Location, link: Link, name: str, path: str, ancestors: tuple[Address, ...]
    ) -> DatasetNode | GroupNode | SkippedNode:
        if not name or "/" in name:
            return self.broken(path, SourceFormatError("a link whose name is no name"))
        try:
            there = follow_link(group, link)
            if isinstance(there, Nowhere):
                return SkippedNode(path, f"a link that leads nowhere: {there.reason}")
            header = there.file.header(there.address)
        except UnsupportedFeatureError as error:
            return self.broken(path, error)
        except ScanError as error:
            if link.kind != LinkKind.HARD:
                return SkippedNode(path, f"a link that leads nowhere: {error.reason}")
            return self.broken(path, error)
        try:
            return self.object(there, header, name, path, ancestors)
        except _TooMuchError:
            raise
        except ScanError as error:
            return self.broken(path, error)

    def broken(self, path: str, error: ScanError) -> SkippedNode:
        """An object that is corrupt, or holds what cannot be read."""
        error.located(self.file.place(path))
        return SkippedNode(path, f"cannot open the object: {error.reason}", error)

    def object(
        self,
        here: Location,
        header: ObjectHeader,
        name: str,
        path: str,
        ancestors: tuple[Address, ...],
    ) -> DatasetNode | GroupNode | SkippedNode:
        if not is_group(header):
            if {_DATATYPE, _LAYOUT} <= header.kinds:
                return self.dataset(here, name, path)
            if _DATATYPE in header.kinds:
                return SkippedNode(path, "a named datatype holds no data")
            raise SourceFormatError("an object is neither dataset, group nor datatype")
        address = here.file.number, here.address
        if address in ancestors:
            return SkippedNode(path, "a link back to a group around it")
        if len(ancestors) >= MAX_GROUP_DEPTH:
            raise UnsupportedFeatureError(f"groups are nested more than {MAX_GROUP_DEPTH} deep")
        if address in self.seen:
            self.n_repeated += 1
            if self.n_repeated > _MAX_REPEATED:
                raise UnsupportedFeatureError("another name of a group, after too many of them")
        self.seen.add(address)
        return self.group(here, name, path, (*ancestors, address))

    def dataset(self, here: Location, name: str, path: str) -> DatasetNode:
        """A dataset, read once for all its names."""
        address = here.file.number, here.address
        known = self.datasets.get(address)
        if known is not None:
            return replace(known, name=name, path=path)
        node = self.datasets[address] = dataset_node(here, name, path)
        return node


def dataset_node(here: Location, name: str, path: str) -> DatasetNode:
    """Read the header and the attributes of a dataset.

    Raises
    ------
    SourceFormatError
        If they are corrupt.
    """
    file, header = here.file, here.file.header(here.address)
    address = file.number, here.address
    space = dataset_extents(file, header)
    attributes = read_attributes(file, header)
    return DatasetNode(name, path, file, address, space.shape, space.maxshape, attributes, header)


def read_tree(file: OpenFile, max_objects: int) -> GroupNode:
    """Read all groups, and the headers and attributes of all datasets.

    Raises
    ------
    SourceFormatError
        If the root group cannot be read.
    UnsupportedFeatureError
        If there are more than `max_objects` objects.
    """
    root = Location(file, file.bytes.root)
    walk = _Walk(file, max_objects)
    address = file.number, root.address
    walk.seen.add(address)
    try:
        return walk.group(root, "", "", (address,))
    except ScanError as error:
        raise error.located(file.place("/")) from None
