"""``ds.gridref`` and ``tree.gridref``: what datasets of virtual variables can become."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, override

import xarray as xr

from gridref.adapters.picture import ChunkMap
from gridref.adapters.xarray.searching import values_where
from gridref.adapters.xarray.written_groups import (
    dataset_to_group,
    tree_to_group,
    virtual_array_of,
)
from gridref.catalog import write_catalog
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.options import verb, warn_of_old_name
from gridref.workflows.costs import reading_costs

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GridrefAccessor", "GridrefTreeAccessor"]

Url = str | os.PathLike[str]


class _Written:
    """What virtual datasets and trees of them can be written as."""

    def to_group(self) -> VirtualGroup:
        """The virtual arrays, and loaded variables beside them, as a group."""
        raise NotImplementedError

    @verb(renamed={"path": "catalog"}, positional=("storage_options",))
    def to_catalog(
        self,
        catalog: Url,
        *,
        storage_options: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
        sources: Literal["absolute", "relative"] = "absolute",
    ) -> None:
        """Write a catalog, as `gridref.write_catalog` does; loaded variables are kept inside it."""
        write_catalog(self.to_group(), catalog, storage_options, extra=extra, sources=sources)

    def to_kerchunk(
        self, path: Url | None = None, *, zarr_format: Literal[2, 3] = 2
    ) -> dict[str, Any]:
        """Kerchunk references; written if a path is given, as JSON or a folder of Parquet (.parq).

        Raises
        ------
        NotRepresentableError
            Saying why, where references cannot express an array. Uneven chunks need
            ``zarr_format=3``.
        """
        from gridref.adapters.kerchunk import to_kerchunk

        return to_kerchunk(self.to_group(), path, zarr_format=zarr_format)

    def to_icechunk(self, destination: Any, **options: Any) -> str | None:
        """Write into an Icechunk repository, as `gridref.to_icechunk` does, with its options."""
        from gridref.adapters.icechunk import to_icechunk

        return to_icechunk(self.to_group(), destination, **options)


@xr.register_dataset_accessor("gridref")  # type: ignore[no-untyped-call]
class GridrefAccessor(_Written):
    """``ds.gridref``: what a dataset of virtual variables can become, and what reading it takes.

    Of datasets that ``engine="gridref"`` opened, variables that were selected from and not yet
    read are virtual as well.
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    @override
    def to_group(self) -> VirtualGroup:
        """The dataset as a group of virtual arrays."""
        return dataset_to_group(self._dataset)

    @property
    def nbytes(self) -> int:
        """Size in bytes that the virtual variables would have in memory, as they are stored."""
        return sum(array.nbytes for array in self._virtual().values())

    @property
    def nbytes_virtual(self) -> int:
        """The former name of `nbytes`."""
        warn_of_old_name("nbytes_virtual", "nbytes")
        return self.nbytes

    def plan(self) -> pd.DataFrame:
        """What reading the virtual variables takes: one row for each.

        Returns
        -------
        pandas.DataFrame
            By name: `n_chunks`, the stored chunks that are touched; `n_missing`, of them those that
            no file holds; `n_bytes`, what the others take in the files; `n_files` that hold them.
        """
        return reading_costs(self._virtual())

    def where(self, name: str, condition: str) -> xr.DataArray:
        """``ds[name].where(ds[name] > 310)``, for which only chunks are read that may hold any.

        Which those are is known where `gridref.CatalogGroup.scan_values` has looked at them; others
        are read as well. What is not read becomes missing.

        Parameters
        ----------
        name
            A virtual variable of numbers, as xarray shows it by default; it may be selected from.
        condition
            As for `gridref.CatalogGroup.find`: ``"> 310"``, or several as ``">= 0 and < 1"``.

        Returns
        -------
        xarray.DataArray
            In memory, as large as the variable.

        Raises
        ------
        InvalidRequestError
            For a condition of another form, if nothing is known of any chunk, or if the variable is
            loaded, holds no numbers, or is shown packed.
        """
        return values_where(self._dataset[name], condition)

    def chunk_map(self, name: str, width: int = 720) -> ChunkMap:
        """A drawing of the blocks and stored chunks of a virtual variable.

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
    """``tree.gridref``: what a tree of virtual datasets can become."""

    def __init__(self, tree: xr.DataTree) -> None:
        self._tree = tree

    @override
    def to_group(self) -> VirtualGroup:
        """The tree as a group with groups below."""
        return tree_to_group(self._tree)
