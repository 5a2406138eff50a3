"""The accessors ``ds.gridref`` and ``tree.gridref`` of virtual datasets and trees.

They plan reads, draw chunk maps, and write catalogs, references and Icechunk repositories.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, override

import numpy as np
import xarray as xr

from gridref.api.each_chunk import with_renamed_sources
from gridref.api.overlays import reading_costs
from gridref.catalog.commit import write_catalog
from gridref.catalog.statistics import Bound, boxes, parse_condition
from gridref.combine.rules.packing import Packing
from gridref.errors import InvalidRequestError
from gridref.faces.picture import ChunkMap
from gridref.faces.xarray.duck_array import VirtualDuckArray
from gridref.faces.xarray.lazy import attributes_now, is_lazy
from gridref.faces.xarray.virtual_dataset import (
    ORIGINAL,
    Url,
    dataset_to_group,
    tree_to_group,
    virtual_array_of,
)
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import PACKING_ATTRIBUTES
from gridref.options import verb

if TYPE_CHECKING:
    import pandas as pd


# Values that match a condition: only chunks that may hold some are read

_HOLDS = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
}


def values_where(array: xr.DataArray, condition: str) -> xr.DataArray:
    """``array.where(array > 310)``, in memory, of a virtual array: see `GridrefAccessor.where`."""
    bounds = parse_condition(condition)
    virtual = virtual_array_of(array.variable)
    if virtual is None:
        raise InvalidRequestError(f"{array.name} is loaded, not virtual: use where(), it is there")
    raw = sorted(array.attrs.keys() & set(PACKING_ATTRIBUTES))
    if raw or array.dtype.kind not in "iuf":
        why = f"has {', '.join(raw)} as attributes" if raw else f"is shown as {array.dtype}"
        raise InvalidRequestError(
            f"{array.name} {why}: statistics exist for unpacked numbers only"
            " (mask_and_scale=True), and not of times"
        )
    now = virtual.with_changes(attrs=attributes_now(array.variable, virtual))
    if is_lazy(array.variable) and Packing.of(now) != Packing.of(virtual):
        raise InvalidRequestError(
            f"{array.name} is unpacked by other attributes than its files have, and than statistics"
            " were made with: save() the dataset, and scan the values of that catalog"
        )
    nothing = xr.DataArray(np.zeros(0, array.dtype))
    filled = np.full(array.shape, np.nan, _kept(nothing, bounds).dtype)
    for box in boxes(virtual, bounds) if array.size else ():
        filled[tuple(box[str(dim)] for dim in array.dims)] = _kept(array.isel(box), bounds).values
    return array.copy(data=filled)


def _kept(array: xr.DataArray, bounds: list[Bound]) -> xr.DataArray:
    """The values of a piece that meet all bounds."""
    piece = array.load()
    for bound in bounds:
        piece = piece.where(_HOLDS[bound.operator](array, bound.number))
    return piece


# The accessors


class _Written:
    """Exports of virtual datasets and trees."""

    def to_group(self) -> VirtualGroup:
        """Return virtual arrays and loaded variables as a group."""
        raise NotImplementedError

    @verb()
    def save(
        self,
        catalog: Url,
        *,
        storage_options: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
        sources: Literal["absolute", "relative"] = "absolute",
    ) -> None:
        """Write a catalog; loaded variables are kept inside it."""
        write_catalog(self.to_group(), catalog, storage_options, extra=extra, sources=sources)

    def to_kerchunk(
        self, path: Url | None = None, *, zarr_format: Literal[2, 3] = 2
    ) -> dict[str, Any]:
        """Make kerchunk references; write them to a path, as JSON or a folder of Parquet (.parq).

        Raises
        ------
        NotRepresentableError
            If references cannot express an array, with the reason. Uneven chunks need
            ``zarr_format=3``.
        """
        from gridref.faces.exports.kerchunk import to_kerchunk

        return to_kerchunk(self.to_group(), path, zarr_format=zarr_format)

    def to_icechunk(self, destination: Any, **options: Any) -> str | None:
        """Write into an Icechunk repository, as `gridref.interchange.to_icechunk` does."""
        from gridref.faces.exports.icechunk import to_icechunk

        return to_icechunk(self.to_group(), destination, **options)


@xr.register_dataset_accessor("gridref")  # type: ignore[no-untyped-call]
class GridrefAccessor(_Written):
    """``ds.gridref``: exports of a dataset of virtual variables, and the cost of reading it.

    Of datasets that ``engine="gridref"`` opened, variables that were selected from and not yet
    read are virtual as well.
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    @override
    def to_group(self) -> VirtualGroup:
        """The dataset as a group of virtual arrays."""
        return dataset_to_group(self._dataset)

    def rename_paths(self, new: str | Callable[[str], str]) -> xr.Dataset:
        """Return the dataset with other addresses of its files. Reads check their sizes only.

        Times of change and ETags are different there.

        Parameters
        ----------
        new
            The address of all files, or a function that gives it for each present one, a URI.

        Raises
        ------
        InvalidRequestError
            For a dataset that the engine opened.
        """
        renamed = self._dataset.copy()
        for variable in renamed.variables.values():
            variable.encoding.pop(ORIGINAL, None)  # loaded from the former files
            if is_lazy(variable):
                if virtual_array_of(variable) is not None:
                    raise InvalidRequestError(
                        "paths are renamed in datasets of gridref.open_virtual_dataset, not in"
                        " those of the engine; gridref relocate changes those of a catalog"
                    )
            elif isinstance(duck := variable.data, VirtualDuckArray):
                variable.data = duck.like(with_renamed_sources(duck.array, new))
        return renamed

    @property
    def nbytes(self) -> int:
        """Size in bytes of the stored elements of the virtual variables in memory."""
        return sum(array.nbytes for array in self._virtual().values())

    def plan(self) -> pd.DataFrame:
        """Compute the cost of reading the virtual variables, a row for each.

        Returns
        -------
        pandas.DataFrame
            By name: `n_chunks`, the stored chunks that are touched; `n_missing`, those that no file
            holds; `n_bytes`, the size of the others in the files; `n_files`, the number of these
            files.
        """
        return reading_costs(self._virtual())

    def where(self, name: str, condition: str) -> xr.DataArray:
        """``ds[name].where(ds[name] > 310)``, which reads only chunks that may hold such values.

        `gridref.Catalog.scan_values` records what chunks may hold. Chunks without statistics
        are read too. Elements that are not read become missing.

        Parameters
        ----------
        name
            A virtual variable of numbers, as xarray shows it by default. It may be a selection.
        condition
            As for `gridref.Catalog.find`: ``"> 310"``, or several as ``">= 0 and < 1"``.

        Returns
        -------
        xarray.DataArray
            In memory, as large as the variable.

        Raises
        ------
        InvalidRequestError
            For a condition of another form, if no chunk has statistics, or if the variable is
            loaded, holds no numbers, or is shown packed.
        """
        return values_where(self._dataset[name], condition)

    def chunk_map(self, name: str, width: int = 720) -> ChunkMap:
        """Draw the blocks and stored chunks of a virtual variable.

        Raises
        ------
        InvalidRequestError
            If there is no virtual variable of that name, or nothing to draw.
        """
        arrays = self._virtual()
        if name not in arrays:
            raise InvalidRequestError(f"{name} is not virtual; there are {', '.join(arrays)}")
        return ChunkMap(arrays[name], name, width)

    def _virtual(self) -> dict[str, VirtualArray]:
        variables = self._dataset.variables.items()
        arrays = {str(name): virtual_array_of(variable) for name, variable in variables}
        return {name: array for name, array in arrays.items() if array is not None}


@xr.register_datatree_accessor("gridref")  # type: ignore[no-untyped-call]
class GridrefTreeAccessor(_Written):
    """``tree.gridref``: exports of a tree of virtual datasets."""

    def __init__(self, tree: xr.DataTree) -> None:
        self._tree = tree

    @override
    def to_group(self) -> VirtualGroup:
        """The tree as a group with groups below."""
        return tree_to_group(self._tree)
