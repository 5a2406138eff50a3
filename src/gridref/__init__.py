"""gridref: open any pile of HDF5, NetCDF4 and TIFF files as one Zarr cube without copying them.

Names are imported when they are first used, so that ``import gridref`` waits for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gridref.model.display import draw_with

if TYPE_CHECKING:
    from gridref import errors as errors
    from gridref.adapters.cf_aggregation import to_cf_aggregation as to_cf_aggregation
    from gridref.adapters.duckdb import sql as sql
    from gridref.adapters.icechunk import from_icechunk as from_icechunk
    from gridref.adapters.icechunk import to_icechunk as to_icechunk
    from gridref.adapters.picture import ChunkMap as ChunkMap
    from gridref.adapters.publishing import publish as publish
    from gridref.adapters.stac import to_stac as to_stac
    from gridref.adapters.xarray.opening import open_virtual_dataset as open_virtual_dataset
    from gridref.adapters.xarray.opening import open_virtual_datatree as open_virtual_datatree
    from gridref.adapters.xarray.opening import open_virtual_mfdataset as open_virtual_mfdataset
    from gridref.adapters.xarray.virtual_dataset import Loading as Loading
    from gridref.adapters.zarr.store import GridrefStore as GridrefStore
    from gridref.adapters.zarr.store import open_store as open_store
    from gridref.combine import Combination as Combination
    from gridref.combine import CombineOptions as CombineOptions
    from gridref.combine import MosaicOptions as MosaicOptions
    from gridref.formats import ScanOptions as ScanOptions
    from gridref.model.array import VirtualArray as VirtualArray
    from gridref.model.array import VirtualGroup as VirtualGroup
    from gridref.serve.views import ViewOptions as ViewOptions
    from gridref.virtualizarr import from_virtualizarr as from_virtualizarr
    from gridref.virtualizarr import to_virtualizarr as to_virtualizarr
    from gridref.workflows.building import build as build
    from gridref.workflows.building import explain as explain
    from gridref.workflows.building import plan as plan
    from gridref.workflows.catalogs import open_catalog as open_catalog
    from gridref.workflows.catalogs import relocate as relocate
    from gridref.workflows.catalogs import write_catalog as write_catalog
    from gridref.workflows.combining import concat as concat
    from gridref.workflows.combining import mosaic as mosaic
    from gridref.workflows.combining import stack as stack
    from gridref.workflows.comparing import diff as diff
    from gridref.workflows.layout.forecasts import forecast as forecast
    from gridref.workflows.layout.inventory import files_from as files_from
    from gridref.workflows.layout.layouts import Layout as Layout
    from gridref.workflows.scanning.files import scan as scan
    from gridref.workflows.scanning.files import scan_many as scan_many
    from gridref.workflows.scanning.inspecting import Inspection as Inspection
    from gridref.workflows.scanning.inspecting import inspect as inspect
    from gridref.workflows.scanning.outcomes import RunOptions as RunOptions
    from gridref.workflows.verifying.arrays import Verification as Verification
    from gridref.workflows.verifying.arrays import verify as verify
    from gridref.workflows.watching import watch as watch

    __version__: str

_HOMES = {
    "ChunkMap": "gridref.adapters.picture",
    "Combination": "gridref.combine",
    "CombineOptions": "gridref.combine",
    "GridrefStore": "gridref.adapters.zarr.store",
    "Inspection": "gridref.workflows.scanning.inspecting",
    "Layout": "gridref.workflows.layout.layouts",
    "Loading": "gridref.adapters.xarray.virtual_dataset",
    "MosaicOptions": "gridref.combine",
    "RunOptions": "gridref.workflows.scanning.outcomes",
    "ScanOptions": "gridref.formats",
    "Verification": "gridref.workflows.verifying.arrays",
    "ViewOptions": "gridref.serve.views",
    "VirtualArray": "gridref.model.array",
    "VirtualGroup": "gridref.model.array",
    "build": "gridref.workflows.building",
    "concat": "gridref.workflows.combining",
    "diff": "gridref.workflows.comparing",
    "explain": "gridref.workflows.building",
    "files_from": "gridref.workflows.layout.inventory",
    "forecast": "gridref.workflows.layout.forecasts",
    "inspect": "gridref.workflows.scanning.inspecting",
    "mosaic": "gridref.workflows.combining",
    "open_catalog": "gridref.workflows.catalogs",
    "open_store": "gridref.adapters.zarr.store",
    "open_virtual_dataset": "gridref.adapters.xarray.opening",
    "open_virtual_datatree": "gridref.adapters.xarray.opening",
    "open_virtual_mfdataset": "gridref.adapters.xarray.opening",
    "plan": "gridref.workflows.building",
    "publish": "gridref.adapters.publishing",
    "relocate": "gridref.workflows.catalogs",
    "scan": "gridref.workflows.scanning.files",
    "scan_many": "gridref.workflows.scanning.files",
    "sql": "gridref.adapters.duckdb",
    "stack": "gridref.workflows.combining",
    "to_cf_aggregation": "gridref.adapters.cf_aggregation",
    "to_stac": "gridref.adapters.stac",
    "verify": "gridref.workflows.verifying.arrays",
    "watch": "gridref.workflows.watching",
    "write_catalog": "gridref.workflows.catalogs",
    # Need packages that may be missing, so ``from gridref import *`` leaves them out.
    "from_icechunk": "gridref.adapters.icechunk",
    "from_virtualizarr": "gridref.virtualizarr",
    "to_icechunk": "gridref.adapters.icechunk",
    "to_virtualizarr": "gridref.virtualizarr",
}

__all__ = [
    "ChunkMap",
    "Combination",
    "CombineOptions",
    "GridrefStore",
    "Inspection",
    "Layout",
    "Loading",
    "MosaicOptions",
    "RunOptions",
    "ScanOptions",
    "Verification",
    "ViewOptions",
    "VirtualArray",
    "VirtualGroup",
    "__version__",
    "build",
    "concat",
    "diff",
    "errors",
    "explain",
    "files_from",
    "forecast",
    "inspect",
    "mosaic",
    "open_catalog",
    "open_store",
    "open_virtual_dataset",
    "open_virtual_datatree",
    "open_virtual_mfdataset",
    "plan",
    "publish",
    "relocate",
    "scan",
    "scan_many",
    "sql",
    "stack",
    "to_cf_aggregation",
    "to_stac",
    "verify",
    "watch",
    "write_catalog",
]


def _html_of(shown: Any) -> str:
    from gridref.adapters.notebook import html_of

    return html_of(shown)


draw_with(_html_of)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version

        return version("gridref")
    if name in ("errors", "virtualizarr"):
        return import_module(f"gridref.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gridref' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
