"""The xarray engine ``gridref``: datasets that read with our planner, without Zarr.

Input is the address of a catalog or of files. Output is a dataset or tree with lazy variables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import xarray as xr
from xarray.backends import AbstractDataStore, BackendEntrypoint
from xarray.backends.common import datatree_from_dict_with_io_cleanup
from xarray.backends.store import StoreBackendEntrypoint
from xarray.core import indexing

import gridref.faces.xarray.accessors  # noqa: F401 - registers `ds.gridref`
from gridref.api.building import DataAddress, open_data
from gridref.api.job import Job
from gridref.api.opening import group_path, subgroup
from gridref.api.readable import reader_for
from gridref.catalog.overlays import OverlayPolicy
from gridref.faces.xarray.lazy import LazyVirtualArray, shown_attributes, variable_encoding
from gridref.io import Allow, SourcePool
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.options import given_options, option_values, options_of, refuses_unknown, verb
from gridref.secrets import shown_address
from gridref.serve.reader import Reader


@dataclass(eq=False)
class GroupDataStore(AbstractDataStore):
    """The arrays of one group before decoding, as xarray's backends give them.

    Attributes
    ----------
    path
        Where the group is.
    source
        The address of the catalog, if there is one.
    """

    group: VirtualGroup
    reader: Reader
    path: str
    source: str | None

    def get_variables(self) -> Mapping[str, xr.Variable]:
        """Variables that read lazily."""
        return {name: self._variable(name, array) for name, array in self.group.arrays.items()}

    def get_attrs(self) -> Mapping[str, Any]:
        return dict(self.group.attrs)

    def get_encoding(self) -> Mapping[str, Any]:
        """Dimensions that may grow, and the address."""
        source = {} if self.source is None else {"source": self.source}
        return {"unlimited_dims": set(self.group.unlimited_dims), **source}

    def close(self) -> None:
        """Close the source files; later reads open them again."""
        if isinstance(self.reader.ranges, SourcePool):
            self.reader.ranges.close()

    def _variable(self, name: str, array: VirtualArray) -> xr.Variable:
        path = f"{self.path}/{name}" if self.path else name
        lazy = indexing.LazilyIndexedArray(LazyVirtualArray(array, self.reader, path))
        encoding = variable_encoding(array, self.source)
        return xr.Variable(array.dims, lazy, shown_attributes(array), encoding)


@refuses_unknown
@dataclass(frozen=True)
class Decoding:
    """How xarray decodes values: as for `xarray.open_dataset`."""

    mask_and_scale: Any = True
    decode_times: Any = True
    concat_characters: Any = True
    decode_coords: Any = True
    use_cftime: Any = None
    decode_timedelta: Any = None
    drop_variables: str | Iterable[str] | None = None


@refuses_unknown
@dataclass(frozen=True)
class Access:
    """How a catalog, or files, are accessed: as for `gridref.open_catalog`."""

    storage_options: Mapping[str, Any] | None = None
    allow: Allow = None
    snapshot: str | None = None
    overlay: OverlayPolicy | None = None


class GridrefBackendEntrypoint(BackendEntrypoint):
    """Open gridref catalogs: ``xr.open_dataset("cube.gridref")``.

    With ``engine="gridref"``, it also opens files and lists of files, with the options of
    `gridref.build`.
    """

    description = "Open gridref catalogs (.gridref): archives of many files as one cube"
    open_dataset_parameters: ClassVar[tuple[str, ...] | None] = (
        "filename_or_obj",
        "group",
        *(option.name for kind in (Decoding, Access) for option in fields(kind)),
    )
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether this is a `VirtualGroup`, or a path that ends in ``.gridref``."""
        if isinstance(filename_or_obj, VirtualGroup):
            return True
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        return os.fspath(filename_or_obj).rstrip("/").endswith(".gridref")

    @verb(Decoding, Access, Job)
    def open_dataset(  # type: ignore[override]
        self, filename_or_obj: DataAddress, *, group: str | None = None, **options: Any
    ) -> xr.Dataset:
        """Open one group of a catalog, of a file, or of files combined as `gridref.build` does."""
        root, show = _opened(filename_or_obj, options)
        return show(group_path(group), subgroup(root, group))

    @verb(Decoding, Access, Job)
    def open_groups_as_dict(  # type: ignore[override]
        self, filename_or_obj: DataAddress, *, group: str | None = None, **options: Any
    ) -> dict[str, xr.Dataset]:
        """Open a group and all groups below it, by path."""
        root, show = _opened(filename_or_obj, options)
        start = group_path(group)
        return {
            "/" + path.removeprefix(start).strip("/"): show(path, member)
            for path, member in subgroup(root, group).walk(start)
        }

    def open_datatree(self, filename_or_obj: DataAddress, **options: Any) -> xr.DataTree:  # type: ignore[override]
        """Open a group and all groups below it, as a tree."""
        return datatree_from_dict_with_io_cleanup(
            self.open_groups_as_dict(filename_or_obj, **options)
        )


def _opened(
    data: DataAddress, options: Mapping[str, Any]
) -> tuple[VirtualGroup, Callable[[str, VirtualGroup], xr.Dataset]]:
    """The root, and a function that shows a group of it, which is at a path."""
    access = Access(**options_of(Access, options))
    decoding = given_options(Decoding(**options_of(Decoding, options)))
    root = open_data(data, **option_values(access), job=Job(**options_of(Job, options)))
    reader = reader_for(access.storage_options)
    source = shown_address(os.fspath(data)) if isinstance(data, str | os.PathLike) else None

    def show(path: str, group: VirtualGroup) -> xr.Dataset:
        store = GroupDataStore(group, reader, path, source)
        return StoreBackendEntrypoint().open_dataset(store, **decoding)

    return root, show
