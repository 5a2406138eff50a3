"""Ways into a NetCDF4 file that xarray's own tests are sent through.

The tests write with netCDF4 or h5netcdf and read back with functions that they take from their own
module; here these functions are replaced, for files that gridref scans, by each of our doors.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import xarray as xr

import gridref

__all__ = ["DOORS", "GROUPS", "TREES", "is_hdf5_path", "through"]

_OF_THE_OTHER_ENGINES = (
    "auto_complex",
    "engine",
    "format",
    "lock",
    "autoclose",
    "invalid_netcdf",
    "phony_dims",
    "decode_vlen_strings",
    "driver",
    "driver_kwds",
    "backend_kwargs",
)
"""Options of xarray's own engines that have no meaning for another one."""


def is_hdf5_path(target: Any) -> bool:
    """Whether something is the path of an HDF5 file."""
    if not isinstance(target, str | os.PathLike):
        return False
    path = os.fspath(target)
    return isinstance(path, str) and os.path.isfile(path) and bool(h5py.is_hdf5(path))


def through(door: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """A reading function that sends HDF5 files through a door, and all else elsewhere."""

    def read(target: Any, *args: Any, **options: Any) -> Any:
        if not is_hdf5_path(target):
            return otherwise(target, *args, **options)
        kept = {k: v for k, v in options.items() if k not in _OF_THE_OTHER_ENGINES}
        return door(os.fspath(target), *args, **kept)

    return read


def engine_dataset(path: str, **options: Any) -> xr.Dataset:
    """Through the xarray engine."""
    return xr.open_dataset(gridref.scan(path), engine="gridref", **options)


def engine_tree(path: str, **options: Any) -> xr.DataTree:
    """All groups through the xarray engine."""
    return xr.open_datatree(gridref.scan(path), engine="gridref", **options)


def zarr_dataset(path: str, **options: Any) -> xr.Dataset:
    """Through a Zarr store."""
    store = gridref.open_store(gridref.scan(path))
    return xr.open_dataset(store, engine="zarr", consolidated=False, **options)


def zarr_tree(path: str, **options: Any) -> xr.DataTree:
    """All groups through a Zarr store."""
    store = gridref.open_store(gridref.scan(path))
    return xr.open_datatree(store, engine="zarr", consolidated=False, **options)


def virtual_dataset(path: str, group: str | None = None, **options: Any) -> xr.Dataset:
    """Through a virtual dataset that became a catalog."""
    catalog = _catalog_beside(path)
    gridref.open_virtual_dataset(path, group).gridref.save(catalog)
    return xr.open_dataset(catalog, engine="gridref", **options)


def virtual_tree(path: str, **options: Any) -> xr.DataTree:
    """All groups through virtual datasets that became a catalog."""
    catalog = _catalog_beside(path)
    gridref.open_virtual_datatree(path).gridref.save(catalog)
    return xr.open_datatree(catalog, engine="gridref", **options)


def _catalog_beside(path: str) -> str:
    """A new place for a catalog, in the temporary folder of the file."""
    return tempfile.mkdtemp(dir=Path(path).parent) + "/c.gridref"


def engine_groups(path: str, **options: Any) -> dict[str, xr.Dataset]:
    """All groups through the xarray engine, by path."""
    return xr.open_groups(gridref.scan(path), engine="gridref", **options)


def zarr_groups(path: str, **options: Any) -> dict[str, xr.Dataset]:
    """All groups through a Zarr store, by path."""
    return xr.open_groups(
        gridref.open_store(gridref.scan(path)), engine="zarr", consolidated=False, **options
    )


DOORS: Mapping[str, Callable[..., xr.Dataset]] = {
    "engine": engine_dataset,
    "zarr": zarr_dataset,
    "virtual": virtual_dataset,
}
TREES: Mapping[str, Callable[..., xr.DataTree]] = {
    "engine": engine_tree,
    "zarr": zarr_tree,
    "virtual": virtual_tree,
}
GROUPS: Mapping[str, Callable[..., dict[str, xr.Dataset]]] = {
    "engine": engine_groups,
    "zarr": zarr_groups,
    "virtual": engine_groups,
}
