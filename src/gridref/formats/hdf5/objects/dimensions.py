"""Names and sizes of dimensions, as netCDF4 and h5netcdf find them.

Sources: "netCDF-4 file format specification" (dimension scales, ``_Netcdf4Dimid``,
``_Netcdf4Coordinates``, phony dimensions), HDF5 Dimension Scale Specification 1.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gridref.cache import LRU
from gridref.formats.hdf5.objects.tree import Address, DatasetNode, GroupNode
from gridref.formats.options import PhonyDims

__all__ = ["Dimension", "DimensionNames", "is_not_a_variable", "name_dimensions"]

_KEPT_BYTES = 1 << 23
_NOT_A_VARIABLE = "This is a netCDF dimension but not a netCDF variable."


@dataclass(frozen=True)
class Dimension:
    """A dimension that a group declares.

    Attributes
    ----------
    name
        Its name.
    size
        Its size; of an unlimited one, the largest extent of the variables that have it.
    dimid
        netCDF4's number of it; None for phony ones.
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
    """Whether a dimension scale stands for a dimension without a variable."""
    return _NOT_A_VARIABLE in str(dataset.attributes.records.get("NAME", ""))


def name_dimensions(root: GroupNode, mode: PhonyDims) -> DimensionNames:
    """Find names and sizes of the dimensions of every dataset; once for files that are alike."""
    key = _all_that_is_told(root, mode)
    known = None if key is None else _known.get(key)
    if known is not None:
        return known
    naming = _Naming(root, mode)
    naming.declare(root, {})
    named = DimensionNames(naming.names, naming.sizes, naming.unlimited)
    return named if key is None else _known.put(key, named)


_known = LRU[DimensionNames](_KEPT_BYTES, lambda named: 2000 * (1 + len(named.names)))


def _all_that_is_told(root: GroupNode, mode: PhonyDims) -> tuple[Any, ...] | None:
    """What names and sizes follow from, with places in the tree for addresses; None if unusual."""
    groups = [(group, list(group.datasets.values())) for group in root.walk()]
    everything = [dataset for _, datasets in groups for dataset in datasets]
    places = {dataset.address: place for place, dataset in enumerate(everything)}
    if len(places) < len(everything):
        return None
    told: list[Any] = [mode]
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
    """Whether a ``DIMENSION_LIST`` is what it should be."""
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
        """Resolve ``DIMENSION_LIST``, and note how far the dataset reaches along each scale."""
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
        """The scale that is meant, or an empty name if it is not in the tree."""
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
