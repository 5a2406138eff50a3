"""The groups, datasets and dimensions of an HDF5 file.

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
from typing import Any

import numpy as np

from gridref.errors import Message, ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.attributes import ObjectAttributes, read_attributes
from gridref.formats.hdf5.files import Location, Nowhere, OpenFile, follow_link
from gridref.formats.hdf5.headers import HeaderMessage, ObjectHeader
from gridref.formats.hdf5.links import Link, LinkKind, is_group
from gridref.formats.hdf5.mappings import dataset_extents
from gridref.formats.options import PhonyDims
from gridref.learned import FORMS
from gridref.model.array import MAX_GROUP_DEPTH

# The groups and datasets of a file

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
        The file that it is in: another file if an external link leads to it.
    address
        Address of its header.
    shape, maxshape
        Extents, and greatest extents (None: without limit). None for a null dataspace.
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
        return self.header.messages

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

    Attributes
    ----------
    path, reason
        Which, and why.
    error
        The error to raise if nothing may be skipped; None for objects without data.
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
        if self.n_path_bytes > _MAX_PATH_BYTES + 8 * self.file.scan_file.size:
            raise _TooMuchError("paths in the file are too long", self.file.place())

    def group(
        self, here: Location, name: str, path: str, ancestors: tuple[Address, ...]
    ) -> GroupNode:
        """Read a group and all its members.

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
            if {_DATATYPE, _LAYOUT} <= header.kinds:
                return self.dataset(here, name, path)
            if _DATATYPE in header.kinds:
                return SkippedNode(path, NAMED_DATATYPE)
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


# Names and sizes of dimensions, as in netCDF4 and h5netcdf

_NOT_A_VARIABLE = "This is a netCDF dimension but not a netCDF variable."


@dataclass(frozen=True)
class Dimension:
    """A dimension that a group declares.

    Attributes
    ----------
    name
        Its name.
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


@dataclass(frozen=True)
class DimensionNames:
    """Dimensions of the datasets.

    Attributes
    ----------
    names
        Dimension names by path of the dataset.
    sizes
        Sizes by path of the dataset: larger than its extents where an unlimited dimension grew.
    unlimited
        Names of the unlimited dimensions by path of the group that declares them.
    """

    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    unlimited: Mapping[str, frozenset[str]] = field(default_factory=dict)


def is_not_a_variable(dataset: DatasetNode) -> bool:
    """Whether a dimension scale represents a dimension without a variable."""
    return _NOT_A_VARIABLE in str(dataset.attributes.records.get("NAME", ""))


def name_dimensions(root: GroupNode, mode: PhonyDims) -> DimensionNames:
    """Find names and sizes of the dimensions of every dataset; once for similar files."""
    key = _all_that_is_told(root, mode)
    known: DimensionNames | None = None if key is None else FORMS.get(key)
    if known is not None:
        return known
    naming = _Naming(root, mode)
    naming.declare(root, {})
    named = DimensionNames(naming.names, naming.sizes, naming.unlimited)
    return named if key is None else FORMS.put(key, named, 2000 * (1 + len(named.names)))


def _all_that_is_told(root: GroupNode, mode: PhonyDims) -> tuple[Any, ...] | None:
    """All that determines names and sizes, with paths for addresses; None if unusual."""
    groups = [(group, list(group.datasets.values())) for group in root.walk()]
    everything = [dataset for _, datasets in groups for dataset in datasets]
    places = {dataset.address: place for place, dataset in enumerate(everything)}
    if len(places) < len(everything):
        return None
    told: list[Any] = [DimensionNames, mode]
    for group, datasets in groups:
        told.append((group.path, len(group.groups), len(datasets)))
        for dataset in datasets:
            own, number = dataset.attributes, dataset.address[0]
            listed = own.records.get("DIMENSION_LIST", [])
            if own.told is None or not _is_addresses(listed):
                return None
            scales = [tuple([places.get((number, to), -1) for to in axis]) for axis in listed]
            width = dataset.file.bytes.length_bytes
            shapes = dataset.shape, dataset.maxshape
            told.append((dataset.name, *shapes, width, own.told, *scales))
    return tuple(told)


def _is_addresses(listed: Any) -> bool:
    """Whether a ``DIMENSION_LIST`` is a list of lists of addresses."""
    return isinstance(listed, list) and all(isinstance(axis, list) for axis in listed)


class _Naming:
    def __init__(self, root: GroupNode, mode: PhonyDims) -> None:
        self.mode = mode
        self.names: dict[str, tuple[str, ...]] = {}
        self.sizes: dict[str, tuple[int, ...]] = {}
        self.unlimited: dict[str, frozenset[str]] = {}
        self.max_dimid = -1
        self.n_phony = 0
        self.by_address: dict[Address, DatasetNode] = {}
        self.scales: dict[str, list[tuple[DatasetNode | str, ...]]] = {}
        self.grown: dict[Address, int] = {}
        datasets = [dataset for group in root.walk() for dataset in group.datasets.values()]
        for dataset in datasets:
            self.by_address.setdefault(dataset.address, dataset)
        for dataset in datasets:
            self.collect_scales(dataset)

    def collect_scales(self, dataset: DatasetNode) -> None:
        """Resolve ``DIMENSION_LIST``, and record the extent of the dataset along each scale."""
        listed: Any = dataset.attributes.records.get("DIMENSION_LIST")
        if not _is_list(listed) or dataset.shape is None or len(listed) != len(dataset.shape):
            return
        if not all(map(_is_list, listed)):
            return
        resolved = []
        for axis, references in enumerate(listed):
            scales = tuple(self.resolve(reference, dataset) for reference in references)
            for scale in scales:
                if isinstance(scale, DatasetNode):
                    reach = max(self.grown.get(scale.address, 0), dataset.shape[axis])
                    self.grown[scale.address] = reach
            resolved.append(scales)
        self.scales[dataset.path] = resolved

    def resolve(self, reference: Any, dataset: DatasetNode) -> DatasetNode | str:
        """The scale of a reference, or an empty name if it is not in the tree."""
        if not isinstance(reference, int):
            return ""
        return self.by_address.get((dataset.address[0], reference), "")

    def declare(self, group: GroupNode, outer: Mapping[str, Dimension]) -> None:
        """Find a group's own dimensions, then name its datasets', then go into its groups.

        Numbers are given in this order, as h5netcdf gives them when it opens all groups.
        """
        own: dict[str, Dimension] = {}
        anonymous: Counter[int] = Counter()
        for name, dataset in group.datasets.items():
            if dataset.is_scale:
                own[name] = self.dimension(name, dataset)
            elif dataset.shape and not any(self.scales.get(dataset.path, ())):
                anonymous |= Counter(dataset.shape)
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
        for dataset in group.datasets.values():
            self.name(dataset, own, scope)
        for child in group.groups.values():
            self.declare(child, scope)

    def dimension(self, name: str, scale: DatasetNode) -> Dimension:
        self.max_dimid += 1
        known = _integers(scale.attributes.records.get("_Netcdf4Dimid"))
        dimid = known[0] if known else self.max_dimid
        unlimited = scale.maxshape == (None,)
        size = scale.shape[0] if scale.shape else 0
        if unlimited:
            size = max(size, self.grown.get(scale.address, 0))
        return Dimension(name, size, dimid, unlimited)

    def name(
        self, dataset: DatasetNode, own: Mapping[str, Dimension], scope: Mapping[str, Dimension]
    ) -> None:
        shape = dataset.shape
        if shape is None:
            return
        names = self.lookup(dataset, shape, own, scope)
        self.names[dataset.path] = names
        self.sizes[dataset.path] = tuple(
            max(extent, scope[name].size) if name in scope and scope[name].unlimited else extent
            for name, extent in zip(names, shape, strict=True)
        )

    def lookup(
        self,
        dataset: DatasetNode,
        shape: tuple[int, ...],
        own: Mapping[str, Dimension],
        scope: Mapping[str, Dimension],
    ) -> tuple[str, ...]:
        records = dataset.attributes.records
        if dataset.is_scale and "_Netcdf4Coordinates" in records:
            by_dimid = {dim.dimid: dim.name for dim in scope.values() if dim.dimid is not None}
            dimids = _integers(records["_Netcdf4Coordinates"])
            if len(dimids) == len(shape) and all(dimid in by_dimid for dimid in dimids):
                return tuple(by_dimid[dimid] for dimid in dimids)
        scales = self.scales.get(dataset.path, [()] * len(shape))
        if len(shape) == 1 and not any(scales) and dataset.name in scope:
            return (dataset.name,)
        return self.labelled(dataset.name, shape, scales, own)

    def labelled(
        self,
        variable: str,
        shape: tuple[int, ...],
        scales: list[tuple[DatasetNode | str, ...]],
        own: Mapping[str, Dimension],
    ) -> tuple[str, ...]:
        """Names from scales; an axis without one takes the group's next dimension of its size."""
        taken: Counter[int] = Counter()
        names = []
        for axis, extent in enumerate(shape):
            scale = scales[axis][-1] if scales[axis] else ""
            name = scale.name if isinstance(scale, DatasetNode) else scale
            if not name:
                candidates = [dim.name for dim in own.values() if dim.size == extent]
                used = taken[extent]
                taken[extent] += 1
                name = candidates[used] if used < len(candidates) else f"{variable}_axis_{axis}"
            names.append(name)
        return tuple(names)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _integers(value: Any) -> list[int]:
    """The integers of a record; none if it holds anything else."""
    values = np.asarray(value).reshape(-1)
    return [int(number) for number in values] if values.dtype.kind in "iu" else []
