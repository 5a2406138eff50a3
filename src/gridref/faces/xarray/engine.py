"""The xarray engine ``gridref``: datasets that read with our planner, without Zarr.

Input is the address of a catalog or of files. Output is a dataset or tree with lazy variables.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import xarray as xr
from xarray.backends import AbstractDataStore, BackendEntrypoint
from xarray.backends.common import datatree_from_dict_with_io_cleanup
from xarray.backends.store import StoreBackendEntrypoint
from xarray.core import indexing

import gridref.faces.xarray.accessors  # noqa: F401 - registers `ds.gridref`
from gridref.api.building import DataAddress, Job, open_data
from gridref.api.layout.layouts import AnyLayout, Order
from gridref.api.opening import group_path, subgroup
from gridref.api.readable import reader_for
from gridref.api.scan import RunOptions
from gridref.catalog.overlays import OverlayPolicy
from gridref.combine import CombineOptions
from gridref.faces.xarray.lazy import LazyVirtualArray, variable_encoding
from gridref.formats import ScanOptions
from gridref.io import Allow, SourcePool
from gridref.model.array import CF_FLAGS, VirtualArray, VirtualGroup
from gridref.options import check_names, options_of, verb
from gridref.secrets import shown_address
from gridref.serve.reader import Reader


class GroupDataStore(AbstractDataStore):
    """The arrays of one group before decoding, as xarray's backends give them."""

    def __init__(
        self, group: VirtualGroup, reader: Reader, path: str = "", source: str | None = None
    ) -> None:
        self.group = group
        self.reader = reader
        self.path = path
        self.source = source

    def get_variables(self) -> Mapping[str, xr.Variable]:
        """Variables that read lazily."""
        return {name: self._variable(name, array) for name, array in self.group.arrays.items()}

    def get_attrs(self) -> Mapping[str, Any]:
        return dict(self.group.attrs)

    def get_dimensions(self) -> Mapping[str, int]:
        """Dimension lengths by name."""
        return {
            dim: extent
            for array in self.group.arrays.values()
            for dim, extent in zip(array.dims, array.shape, strict=True)
        }

    def get_encoding(self) -> Mapping[str, Any]:
        """Dimensions that may grow, and the address of the catalog, if there is one."""
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
        return xr.Variable(array.dims, lazy, _attributes(array), encoding)


class GridrefBackendEntrypoint(BackendEntrypoint):
    """Open gridref catalogs: ``xr.open_dataset("cube.gridref")``.

    With ``engine="gridref"``, it also opens files and lists of files, with the options of
    `gridref.build`.
    """

    description = "Open gridref catalogs (.gridref): archives of many files as one cube"
    open_dataset_parameters: ClassVar[tuple[str, ...] | None] = (
        "filename_or_obj",
        "mask_and_scale",
        "decode_times",
        "concat_characters",
        "decode_coords",
        "drop_variables",
        "use_cftime",
        "decode_timedelta",
        "group",
        "storage_options",
        "allow",
        "snapshot",
        "overlay",
    )
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether this is a `VirtualGroup`, or a path that ends in ``.gridref``."""
        if isinstance(filename_or_obj, VirtualGroup):
            return True
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        return os.fspath(filename_or_obj).rstrip("/").endswith(".gridref")

    @verb()
    def open_dataset(  # type: ignore[override]
        self,
        filename_or_obj: DataAddress,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        allow: Allow = None,
        snapshot: str | None = None,
        overlay: OverlayPolicy | None = None,
        concat_dim: str | Sequence[str] | None = None,
        order: Order = "label",
        layout: AnyLayout | None = None,
        combine: CombineOptions | None = None,
        scan: ScanOptions | None = None,
        run: RunOptions | None = None,
    ) -> xr.Dataset:
        """Open one group of a catalog, of a file, or of files combined as `gridref.build` does."""
        path = group_path(group)
        root = open_data(
            filename_or_obj,
            storage_options,
            allow=allow,
            snapshot=snapshot,
            overlay=overlay,
            job=Job(concat_dim, order, layout, combine, scan, run),
        )
        virtual_group = subgroup(root, group)
        return StoreBackendEntrypoint().open_dataset(
            GroupDataStore(
                virtual_group, reader_for(storage_options), path, _address(filename_or_obj)
            ),
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=drop_variables,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )

    def open_groups_as_dict(  # type: ignore[override]
        self,
        filename_or_obj: DataAddress,
        *,
        drop_variables: str | Iterable[str] | None = None,
        group: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        allow: Allow = None,
        snapshot: str | None = None,
        overlay: OverlayPolicy | None = None,
        **options: Any,
    ) -> dict[str, xr.Dataset]:
        """Open a group and all groups below it, by path."""
        of_files = options_of(Job, options)
        decoding = {name: value for name, value in options.items() if name not in of_files}
        check_names("open_groups_as_dict()", decoding, self.open_dataset_parameters or ())
        start = group_path(group)
        job = Job(**of_files)
        root = open_data(
            filename_or_obj,
            storage_options,
            allow=allow,
            snapshot=snapshot,
            overlay=overlay,
            job=job,
        )
        below = subgroup(root, group).walk(start)
        reader, address = reader_for(storage_options), _address(filename_or_obj)
        return {
            "/" + path.removeprefix(start).strip("/"): StoreBackendEntrypoint().open_dataset(
                GroupDataStore(member, reader, path, address),
                drop_variables=drop_variables,
                **decoding,
            )
            for path, member in below
        }

    def open_datatree(  # type: ignore[override]
        self,
        filename_or_obj: DataAddress,
        **options: Any,
    ) -> xr.DataTree:
        """Open a group and all groups below it, as a tree."""
        return datatree_from_dict_with_io_cleanup(
            self.open_groups_as_dict(filename_or_obj, **options)
        )


def _attributes(array: VirtualArray) -> dict[str, Any]:
    """Attributes of the file, without names of an enumeration: xarray has them in the encoding."""
    made = array.enumeration is not None and not array.enumeration.own_flags
    return {name: value for name, value in array.attrs.items() if not (made and name in CF_FLAGS)}


def _address(source: DataAddress) -> str | None:
    return shown_address(os.fspath(source)) if isinstance(source, str | os.PathLike) else None
