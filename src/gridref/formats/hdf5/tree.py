"""Find the groups, datasets and dimensions of an HDF5 file.

`read_tree` takes an open file and returns its groups and datasets as a tree. It follows each link
once. `DimensionNames` gives the dimensions of all datasets the names and sizes that netCDF4 and
h5netcdf give them.

Sources: "netCDF-4 file format specification" (dimension scales, ``_Netcdf4Dimid``,
``_Netcdf4Coordinates``, phony dimensions), HDF5 Dimension Scale Specification 1.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gridref.errors import Message, ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.attributes import ObjectAttributes, read_attributes
from gridref.formats.hdf5.files import Location, Nowhere, OpenFile, follow_link
from gridref.formats.hdf5.headers import DATATYPE, LAYOUT, DataLayout, ObjectHeader, data_layout_of
from gridref.formats.hdf5.links import Link, LinkKind, is_group
from gridref.formats.hdf5.virtual import dataset_extents
from gridref.formats.scanner import PhonyDims
from gridref.limits import MAX_GROUP_DEPTH, beyond, limits

# The groups and datasets of a file

Address = tuple[int, int]
"""Number of the file among those that are open, and address of the object's header."""


@dataclass(frozen=True, eq=False)
class DatasetNode:
    """A dataset.

    Attributes
    ----------
    name, path
        Name in its group, and path in the file, like ``/model/tas``.
    file
        The file that it is in: another file if an external link leads to it.
    address
        Address of its header.
    shape, maxshape
        Extents, and greatest extents (None: without limit). None for a null dataspace.
    """

    name: str
    path: str
    file: OpenFile
    address: Address
    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...]
    attributes: ObjectAttributes
    header: ObjectHeader

    @cached_property
    def layout(self) -> DataLayout:
        return data_layout_of(self.file.bytes, self.header.messages, self.header.address)

    @property
    def is_scale(self) -> bool:
        said: Any = self.attributes.records.get("CLASS", "")
        if isinstance(said, str):
            return said == "DIMENSION_SCALE"
        said = np.asarray(said)  # a compound, in bad files
        is_text = said.size == 1 and said.dtype.kind in "OTU"
        return is_text and str(said.reshape(-1)[0]) == "DIMENSION_SCALE"


NAMED_DATATYPE = "a named datatype holds no data"
"""Reason of `SkippedNode` for objects without data."""


@dataclass(frozen=True, eq=False)
class SkippedNode:
    """An object that is neither an array nor a group, or cannot be read.

    An object without data has no error; others raise theirs if nothing may be skipped.
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
    """State of reading one tree: the objects read so far, and the limits on their number."""

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
        if self.n_path_bytes > limits().path_bytes + 8 * self.file.scan_file.size:
            what = f"paths in the file have {self.n_path_bytes} bytes so far"
            raise _TooMuchError(beyond("path_bytes", what), self.file.place())

    def group(
        self, here: Location, name: str, path: str, ancestors: tuple[Address, ...]
    ) -> GroupNode:
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
            return self.broken(
                path, SourceFormatError("a link has an empty name, or a name with a slash")
            )
        try:
            there = follow_link(group, link)
            if isinstance(there, Nowhere):
                return SkippedNode(path, Message("a link that leads nowhere: ", there.reason))
            header = there.file.header(there.address)
        except UnsupportedFeatureError as error:
            return self.broken(path, error)
        except ScanError as error:
            if link.kind != LinkKind.HARD:
                return SkippedNode(path, Message("a link that leads nowhere: ", error.reason))
            return self.broken(path, error)
        try:
            return self.object(there, header, name, path, ancestors)
        except _TooMuchError:
            raise
        except ScanError as error:
            return self.broken(path, error)

    def broken(self, path: str, error: ScanError) -> SkippedNode:
        """An object that is corrupt or cannot be read."""
        error.located(self.file.place(path))
        return SkippedNode(path, Message("cannot open the object: ", error.reason), error)

    def object(
        self,
        here: Location,
        header: ObjectHeader,
        name: str,
        path: str,
        ancestors: tuple[Address, ...],
    ) -> DatasetNode | GroupNode | SkippedNode:
        if not is_group(header):
            if {DATATYPE, LAYOUT} <= header.kinds:
                return self.dataset(here, name, path)
            if DATATYPE in header.kinds:
                return SkippedNode(path, NAMED_DATATYPE)
            raise SourceFormatError("an object is neither dataset, group nor datatype")
        address = here.file.number, here.address
        if address in ancestors:
            return SkippedNode(path, "a link back to a group around it")
        if len(ancestors) >= MAX_GROUP_DEPTH:
            raise UnsupportedFeatureError(f"groups are nested more than {MAX_GROUP_DEPTH} deep")
        if address in self.seen:
            self.n_repeated += 1
            if self.n_repeated > limits().repeated_groups:
                what = f"another name of a group, after {self.n_repeated - 1} of them"
                raise UnsupportedFeatureError(beyond("repeated_groups", what))
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
    """Read the header and the attributes of a dataset."""
    file, header = here.file, here.file.header(here.address)
    address = file.number, here.address
    space = dataset_extents(file, header)
    attributes = read_attributes(file, header)
    return DatasetNode(name, path, file, address, space.shape, space.maxshape, attributes, header)


def read_tree(file: OpenFile, max_objects: int) -> GroupNode:
    """Read all groups, and the headers and attributes of all datasets."""
    root = Location(file, file.bytes.root)
    walk = _Walk(file, max_objects)
    address = file.number, root.address
    walk.seen.add(address)
    try:
        return walk.group(root, "", "", (address,))
    except ScanError as error:
        raise error.located(file.place("/")) from None


# Names and sizes of dimensions, as in netCDF4 and h5netcdf

_NOT_A_VARIABLE = "This is a netCDF dimension but not a netCDF variable."


@dataclass(frozen=True)
class Dimension:
    """A dimension that a group declares.

    Attributes
    ----------
    size
        Its size; for an unlimited one, the largest extent of its variables.
    dimid
        Its number in netCDF4; None for phony dimensions.
    """

    name: str
    size: int
    dimid: int | None = None
    unlimited: bool = False

    def may_have(self, extent: int) -> bool:
        """Whether a dataset of this extent may be along the dimension."""
        return extent == self.size or (self.unlimited and extent < self.size)


def is_not_a_variable(dataset: DatasetNode) -> bool:
    """Whether a dimension scale represents a dimension without a variable."""
    return _NOT_A_VARIABLE in str(dataset.attributes.records.get("NAME", ""))


class DimensionNames:
    """Names and sizes of the dimensions of every dataset.

    Attributes
    ----------
    names, sizes
        By path of the dataset. A size is larger than the extent where an unlimited dimension grew.
    unlimited
        Names of the unlimited dimensions by path of the group that declares them.
    """

    def __init__(self, root: GroupNode, mode: PhonyDims) -> None:
        self.mode = mode
        self.names: dict[str, tuple[str, ...]] = {}
        self.sizes: dict[str, tuple[int, ...]] = {}
        self.unlimited: dict[str, frozenset[str]] = {}
        self._max_dimid = -1
        self._n_phony = 0
        self._name_of: dict[Address, str] = {}
        self._scales: dict[str, Sequence[Sequence[Address]]] = {}
        self._grown: dict[Address, int] = {}
        datasets = [dataset for group in root.walk() for dataset in group.datasets.values()]
        by_dimid = {
            dimid: [dataset.address]
            for dataset in datasets
            if dataset.is_scale
            for dimid in _integers(dataset.attributes.records.get("_Netcdf4Dimid")) or ()
        }
        for dataset in datasets:
            self._name_of.setdefault(dataset.address, dataset.name)
            self._scales[dataset.path] = listed = _scales(dataset)
            # A scale of several dimensions has netCDF4's numbers instead of a list.
            dimids = _integers(dataset.attributes.records.get("_Netcdf4Coordinates")) or ()
            numbered = [by_dimid.get(dimid, []) for dimid in dimids]
            for extent, scales in zip(dataset.shape or (), listed or numbered, strict=False):
                for scale in scales:
                    self._grown[scale] = max(self._grown.get(scale, 0), extent)
        self._declare(root, {})

    def _declare(self, group: GroupNode, outer: Mapping[str, Dimension]) -> None:
        """Find a group's own dimensions, then name its datasets', then go into its groups.

        Numbers are given in this order, as h5netcdf gives them when it opens all groups.
        """
        own: dict[str, Dimension] = {}
        anonymous: Counter[int] = Counter()
        for name, dataset in group.datasets.items():
            if dataset.is_scale:
                own[name] = self._dimension(dataset)
            elif dataset.shape and not any(self._scales[dataset.path]):
                anonymous |= Counter(dataset.shape)
        fixed = Counter(dim.size for dim in own.values() if not dim.unlimited)
        for size, n_needed in anonymous.items():
            for _ in range(fixed[size], n_needed):
                number = self._n_phony + (self._max_dimid + 1 if self.mode == "sort" else 0)
                own[f"phony_dim_{number}"] = Dimension(f"phony_dim_{number}", size)
                self._n_phony += 1
        self.unlimited[group.path] = frozenset(
            name for name, dimension in own.items() if dimension.unlimited
        )
        scope = {**outer, **own}
        for dataset in group.datasets.values():
            if dataset.shape is not None:
                names = self._lookup(dataset, dataset.shape, own, scope)
                self.names[dataset.path] = names
                self.sizes[dataset.path] = tuple(
                    max(extent, scope[name].size)
                    if name in scope and scope[name].unlimited
                    else extent
                    for name, extent in zip(names, dataset.shape, strict=True)
                )
        for child in group.groups.values():
            self._declare(child, scope)

    def _dimension(self, scale: DatasetNode) -> Dimension:
        self._max_dimid += 1
        dimids = _integers(scale.attributes.records.get("_Netcdf4Dimid"))
        unlimited = scale.maxshape[:1] == (None,)
        size = scale.shape[0] if scale.shape else 0
        if unlimited:
            size = max(size, self._grown.get(scale.address, 0))
        return Dimension(scale.name, size, dimids[0] if dimids else self._max_dimid, unlimited)

    def _lookup(
        self,
        dataset: DatasetNode,
        shape: tuple[int, ...],
        own: Mapping[str, Dimension],
        scope: Mapping[str, Dimension],
    ) -> tuple[str, ...]:
        dimids = _integers(dataset.attributes.records.get("_Netcdf4Coordinates"))
        if dimids is not None and dataset.is_scale:
            by_dimid = {dim.dimid: dim.name for dim in scope.values() if dim.dimid is not None}
            if len(dimids) == len(shape) and all(dimid in by_dimid for dimid in dimids):
                return tuple(by_dimid[dimid] for dimid in dimids)
        labels = [
            self._name_of.get(listed[-1]) if listed else None
            for listed in self._scales[dataset.path]
        ]
        own_names = [f"{dataset.name}_axis_{axis}" for axis in range(len(shape))]
        if any(labels):
            # Not another dimension of that size: it may be one that another axis has, and other
            # ones in other files. h5netcdf refuses such datasets.
            return tuple(label or name for label, name in zip(labels, own_names, strict=True))
        named = scope.get(dataset.name)
        if len(shape) == 1 and named is not None and named.may_have(shape[0]):
            return (dataset.name,)
        free = {
            size: iter([dim.name for dim in own.values() if dim.size == size]) for size in shape
        }
        return tuple(next(free[size], name) for size, name in zip(shape, own_names, strict=True))


def _scales(dataset: DatasetNode) -> Sequence[Sequence[Address]]:
    """Along each axis the scales that ``DIMENSION_LIST`` lists; none without a valid list."""
    listed: Any = dataset.attributes.records.get("DIMENSION_LIST")
    if not _is_list(listed) or dataset.shape is None or len(listed) != len(dataset.shape):
        return ()
    if not all(map(_is_list, listed)):
        return ()
    file = dataset.address[0]
    return [
        [(file, to if isinstance(to, int) else -1) for to in references] for references in listed
    ]


def _is_list(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _integers(value: Any) -> tuple[int, ...] | None:
    """The integers of a record, none if it holds anything else; None if it is not there."""
    if value is None:
        return None
    if isinstance(value, np.integer):
        return (int(value),)
    values = np.asarray(value).reshape(-1)
    return tuple(values.tolist()) if values.dtype.kind in "iu" else ()
