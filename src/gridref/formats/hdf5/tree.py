"""Find the groups, datasets and dimensions of an HDF5 file.

`read_tree` takes an open file and returns its groups and datasets as a tree. It follows each link
once. `name_dimensions` gives the dimensions of all datasets the names and sizes that netCDF4 and
h5netcdf give them.

Sources: "netCDF-4 file format specification" (dimension scales, ``_Netcdf4Dimid``,
``_Netcdf4Coordinates``, phony dimensions), HDF5 Dimension Scale Specification 1.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from gridref.errors import Message, ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.attributes import ObjectAttributes, read_attributes
from gridref.formats.hdf5.files import Location, Nowhere, OpenFile, follow_link
from gridref.formats.hdf5.headers import DATATYPE, LAYOUT, ObjectHeader
from gridref.formats.hdf5.links import Link, LinkKind, is_group
from gridref.formats.hdf5.mappings import dataset_extents
from gridref.formats.hdf5.messages import DataLayout, data_layout_of
from gridref.formats.options import PhonyDims
from gridref.learned import FORMS
from gridref.limits import beyond, limits
from gridref.model.array import MAX_GROUP_DEPTH

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
        """The place of its data."""
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
        """Read a group and all its members."""
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
    unlimited
        Whether it may grow.
    """

    name: str
    size: int
    dimid: int | None = None
    unlimited: bool = False


def is_not_a_variable(dataset: DatasetNode) -> bool:
    """Whether a dimension scale represents a dimension without a variable."""
    return _NOT_A_VARIABLE in str(dataset.attributes.records.get("NAME", ""))


def name_dimensions(root: GroupNode, mode: PhonyDims) -> DimensionNames:
    """Find names and sizes of the dimensions of every dataset; once for similar files."""
    datasets = [dataset for group in root.walk() for dataset in group.datasets.values()]
    numbers: dict[Address, int] = {}
    for number, dataset in enumerate(datasets):
        numbers.setdefault(dataset.address, number)
    key = DimensionNames, mode, _described(root, numbers)
    known: DimensionNames | None = FORMS.get(key)
    return known or FORMS.put(key, DimensionNames(*key[1:]), 3000 * (1 + len(datasets)))


class _Variable(NamedTuple):
    """A dataset, as far as dimensions depend on it.

    Attributes
    ----------
    name
        Its name in its group.
    number
        Its place among all datasets of the tree; that of its first name if it has several.
    shape, maxshape, is_scale
        As in `DatasetNode`.
    dimids
        The integers in ``_Netcdf4Dimid``.
    coordinates
        Those in ``_Netcdf4Coordinates``; None without that attribute.
    scales
        Along each axis the numbers of the scales that ``DIMENSION_LIST`` lists, -1 for objects
        that are not in the tree. None without a valid list.
    """

    name: str
    number: int
    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...]
    is_scale: bool
    dimids: tuple[int, ...]
    coordinates: tuple[int, ...] | None
    scales: tuple[tuple[int, ...], ...] | None


class _Group(NamedTuple):
    """A group, as far as dimensions depend on it."""

    path: str
    variables: tuple[_Variable, ...]
    groups: tuple[_Group, ...]

    def walk(self) -> Iterator[_Group]:
        """Itself and all groups below, parents first."""
        yield self
        for group in self.groups:
            yield from group.walk()


def _described(group: GroupNode, numbers: Mapping[Address, int]) -> _Group:
    variables = [
        _Variable(
            name,
            numbers[dataset.address],
            dataset.shape,
            dataset.maxshape,
            dataset.is_scale,
            _integers(dataset.attributes.records.get("_Netcdf4Dimid")) or (),
            _integers(dataset.attributes.records.get("_Netcdf4Coordinates")),
            _scales(dataset, numbers),
        )
        for name, dataset in group.datasets.items()
    ]
    groups = [_described(child, numbers) for child in group.groups.values()]
    return _Group(group.path, tuple(variables), tuple(groups))


def _scales(
    dataset: DatasetNode, numbers: Mapping[Address, int]
) -> tuple[tuple[int, ...], ...] | None:
    listed: Any = dataset.attributes.records.get("DIMENSION_LIST")
    if not _is_list(listed) or dataset.shape is None or len(listed) != len(dataset.shape):
        return None
    if not all(map(_is_list, listed)):
        return None
    file = dataset.address[0]
    return tuple(
        [
            tuple([numbers.get((file, to), -1) if isinstance(to, int) else -1 for to in references])
            for references in listed
        ]
    )


class DimensionNames:
    """Dimensions of the datasets. They follow from a tree alone: similar files share them.

    Attributes
    ----------
    sizes
        Sizes by path of the dataset: larger than its extents where an unlimited dimension grew.
    unlimited
        Names of the unlimited dimensions by path of the group that declares them.
    """

    def __init__(self, mode: PhonyDims, root: _Group) -> None:
        self.mode = mode
        self.names: dict[str, tuple[str, ...]] = {}
        self.sizes: dict[str, tuple[int, ...]] = {}
        self.unlimited: dict[str, frozenset[str]] = {}
        self.max_dimid = -1
        self.n_phony = 0
        self.name_of: dict[int, str] = {-1: ""}
        self.grown: dict[int, int] = {}
        for group in root.walk():
            for variable in group.variables:
                self.name_of.setdefault(variable.number, variable.name)
                for axis, scales in enumerate(variable.scales or ()):
                    extent = (variable.shape or ())[axis]
                    for scale in scales:
                        self.grown[scale] = max(self.grown.get(scale, 0), extent)
        self.declare(root, {})

    def declare(self, group: _Group, outer: Mapping[str, Dimension]) -> None:
        """Find a group's own dimensions, then name its datasets', then go into its groups.

        Numbers are given in this order, as h5netcdf gives them when it opens all groups.
        """
        own: dict[str, Dimension] = {}
        anonymous: Counter[int] = Counter()
        for variable in group.variables:
            if variable.is_scale:
                own[variable.name] = self.dimension(variable)
            elif variable.shape and not any(variable.scales or ()):
                anonymous |= Counter(variable.shape)
        fixed = Counter(dim.size for dim in own.values() if not dim.unlimited)
        for size, n_needed in anonymous.items():
            for _ in range(fixed[size], n_needed):
                number = self.n_phony + (self.max_dimid + 1 if self.mode == "sort" else 0)
                own[f"phony_dim_{number}"] = Dimension(f"phony_dim_{number}", size)
                self.n_phony += 1
        self.unlimited[group.path] = frozenset(
            name for name, dimension in own.items() if dimension.unlimited
        )
        scope = {**outer, **own}
        for variable in group.variables:
            if variable.shape is not None:
                path = f"{group.path.rstrip('/')}/{variable.name}"
                names = self.lookup(variable, variable.shape, own, scope)
                self.names[path] = names
                self.sizes[path] = tuple(
                    max(extent, scope[name].size)
                    if name in scope and scope[name].unlimited
                    else extent
                    for name, extent in zip(names, variable.shape, strict=True)
                )
        for child in group.groups:
            self.declare(child, scope)

    def dimension(self, scale: _Variable) -> Dimension:
        self.max_dimid += 1
        dimid = scale.dimids[0] if scale.dimids else self.max_dimid
        unlimited = scale.maxshape == (None,)
        size = scale.shape[0] if scale.shape else 0
        if unlimited:
            size = max(size, self.grown.get(scale.number, 0))
        return Dimension(scale.name, size, dimid, unlimited)

    def lookup(
        self,
        variable: _Variable,
        shape: tuple[int, ...],
        own: Mapping[str, Dimension],
        scope: Mapping[str, Dimension],
    ) -> tuple[str, ...]:
        if variable.is_scale and variable.coordinates is not None:
            by_dimid = {dim.dimid: dim.name for dim in scope.values() if dim.dimid is not None}
            dimids = variable.coordinates
            if len(dimids) == len(shape) and all(dimid in by_dimid for dimid in dimids):
                return tuple(by_dimid[dimid] for dimid in dimids)
        scales = variable.scales or ((),) * len(shape)
        if len(shape) == 1 and not any(scales) and variable.name in scope:
            return (variable.name,)
        return self.labelled(variable.name, shape, scales, own)

    def labelled(
        self,
        variable: str,
        shape: tuple[int, ...],
        scales: tuple[tuple[int, ...], ...],
        own: Mapping[str, Dimension],
    ) -> tuple[str, ...]:
        """Names from scales; an axis without one takes the group's next dimension of its size."""
        taken: Counter[int] = Counter()
        names = []
        for axis, extent in enumerate(shape):
            name = self.name_of[scales[axis][-1]] if scales[axis] else ""
            if not name:
                candidates = [dim.name for dim in own.values() if dim.size == extent]
                used = taken[extent]
                taken[extent] += 1
                name = candidates[used] if used < len(candidates) else f"{variable}_axis_{axis}"
            names.append(name)
        return tuple(names)


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
