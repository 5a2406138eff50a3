"""gridref: open any pile of HDF5, NetCDF4 and TIFF files as one Zarr cube without copying them.

Names are imported when they are first used, so that ``import gridref`` does not wait for zarr and
xarray.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gridref import errors

if TYPE_CHECKING:
    from gridref.adapters.xarray.opening import explain as explain
    from gridref.adapters.xarray.opening import open_virtual_dataset as open_virtual_dataset
    from gridref.adapters.xarray.opening import open_virtual_datatree as open_virtual_datatree
    from gridref.adapters.xarray.opening import open_virtual_mfdataset as open_virtual_mfdataset
    from gridref.adapters.zarr.store import GridrefStore as GridrefStore
    from gridref.adapters.zarr.store import open_store as open_store
    from gridref.catalog import open_catalog as open_catalog
    from gridref.catalog import write_catalog as write_catalog
    from gridref.combine import concat as concat
    from gridref.formats import scan as scan
    from gridref.model.array import VirtualArray as VirtualArray
    from gridref.model.array import VirtualGroup as VirtualGroup
    from gridref.workflows.building import build as build
    from gridref.workflows.building import scan_many as scan_many
    from gridref.workflows.verifying import verify as verify

_HOMES = {
    "GridrefStore": "gridref.adapters.zarr.store",
    "VirtualArray": "gridref.model.array",
    "VirtualGroup": "gridref.model.array",
    "build": "gridref.workflows.building",
    "concat": "gridref.combine",
    "explain": "gridref.adapters.xarray.opening",
    "open_catalog": "gridref.catalog",
    "open_store": "gridref.adapters.zarr.store",
    "open_virtual_dataset": "gridref.adapters.xarray.opening",
    "open_virtual_datatree": "gridref.adapters.xarray.opening",
    "open_virtual_mfdataset": "gridref.adapters.xarray.opening",
    "scan": "gridref.formats",
    "scan_many": "gridref.workflows.building",
    "verify": "gridref.workflows.verifying",
    "write_catalog": "gridref.catalog",
}

__all__ = [
    "GridrefStore",
    "VirtualArray",
    "VirtualGroup",
    "build",
    "concat",
    "errors",
    "explain",
    "open_catalog",
    "open_store",
    "open_virtual_dataset",
    "open_virtual_datatree",
    "open_virtual_mfdataset",
    "scan",
    "scan_many",
    "verify",
    "write_catalog",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gridref' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
