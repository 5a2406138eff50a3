"""gridref: open any pile of HDF5, NetCDF4 and TIFF files as one Zarr cube without copying them.

Names are imported when they are first used, so that ``import gridref`` waits for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gridref.model.scan_report import draw_with

if TYPE_CHECKING:
    from gridref import errors as errors
    from gridref.api.building import build as build
    from gridref.api.building import plan as plan
    from gridref.api.catalogs import open_catalog as open_catalog
    from gridref.api.catalogs import relocate as relocate
    from gridref.api.catalogs import write_catalog as write_catalog
    from gridref.api.combining import concat as concat
    from gridref.api.combining import mosaic as mosaic
    from gridref.api.combining import stack as stack
    from gridref.api.inspect import Inspection as Inspection
    from gridref.api.inspect import inspect as inspect
    from gridref.api.keeping import Catalog as Catalog
    from gridref.api.layout.forecasts import forecast as forecast
    from gridref.api.layout.listings import files_from as files_from
    from gridref.api.layout.ways import Groups as Groups
    from gridref.api.layout.ways import Labels as Labels
    from gridref.api.layout.ways import Mosaic as Mosaic
    from gridref.api.layout.ways import Plate as Plate
    from gridref.api.layout.ways import Ragged as Ragged
    from gridref.api.layout.ways import Stack as Stack
    from gridref.api.outcomes import RunOptions as RunOptions
    from gridref.api.questions import diff as diff
    from gridref.api.results import Verification as Verification
    from gridref.api.scan import scan as scan
    from gridref.api.scan import scan_many as scan_many
    from gridref.api.verify import verify as verify
    from gridref.api.watching import watch as watch
    from gridref.combine import Combination as Combination
    from gridref.combine import CombineOptions as CombineOptions
    from gridref.combine import MosaicOptions as MosaicOptions
    from gridref.faces.duckdb import sql as sql
    from gridref.faces.exports.cf_aggregation import to_cf_aggregation as to_cf_aggregation
    from gridref.faces.exports.icechunk import from_icechunk as from_icechunk
    from gridref.faces.exports.icechunk import to_icechunk as to_icechunk
    from gridref.faces.exports.stac import to_stac as to_stac
    from gridref.faces.picture import ChunkMap as ChunkMap
    from gridref.faces.web.publishing import publish as publish
    from gridref.faces.xarray.opening import open_virtual_dataset as open_virtual_dataset
    from gridref.faces.xarray.opening import open_virtual_datatree as open_virtual_datatree
    from gridref.faces.xarray.opening import open_virtual_mfdataset as open_virtual_mfdataset
    from gridref.faces.xarray.virtual_dataset import Loading as Loading
    from gridref.faces.zarr.store import GridrefStore as GridrefStore
    from gridref.faces.zarr.store import open_store as open_store
    from gridref.formats import ScanOptions as ScanOptions
    from gridref.model.array import VirtualArray as VirtualArray
    from gridref.model.array import VirtualGroup as VirtualGroup
    from gridref.serve.views import ViewOptions as ViewOptions
    from gridref.virtualizarr import from_virtualizarr as from_virtualizarr
    from gridref.virtualizarr import to_virtualizarr as to_virtualizarr

    __version__: str

_HOMES = {
    "Catalog": "gridref.api.keeping",
    "ChunkMap": "gridref.faces.picture",
    "Combination": "gridref.combine",
    "CombineOptions": "gridref.combine",
    "Groups": "gridref.api.layout.ways",
    "GridrefStore": "gridref.faces.zarr.store",
    "Inspection": "gridref.api.inspect",
    "Labels": "gridref.api.layout.ways",
    "Loading": "gridref.faces.xarray.virtual_dataset",
    "Mosaic": "gridref.api.layout.ways",
    "MosaicOptions": "gridref.combine",
    "Plate": "gridref.api.layout.ways",
    "Ragged": "gridref.api.layout.ways",
    "RunOptions": "gridref.api.outcomes",
    "ScanOptions": "gridref.formats",
    "Verification": "gridref.api.results",
    "Stack": "gridref.api.layout.ways",
    "ViewOptions": "gridref.serve.views",
    "VirtualArray": "gridref.model.array",
    "VirtualGroup": "gridref.model.array",
    "build": "gridref.api.building",
    "concat": "gridref.api.combining",
    "diff": "gridref.api.questions",
    "files_from": "gridref.api.layout.listings",
    "forecast": "gridref.api.layout.forecasts",
    "inspect": "gridref.api.inspect",
    "mosaic": "gridref.api.combining",
    "open_catalog": "gridref.api.catalogs",
    "open_store": "gridref.faces.zarr.store",
    "open_virtual_dataset": "gridref.faces.xarray.opening",
    "open_virtual_datatree": "gridref.faces.xarray.opening",
    "open_virtual_mfdataset": "gridref.faces.xarray.opening",
    "plan": "gridref.api.building",
    "publish": "gridref.faces.web.publishing",
    "relocate": "gridref.api.catalogs",
    "scan": "gridref.api.scan",
    "scan_many": "gridref.api.scan",
    "sql": "gridref.faces.duckdb",
    "stack": "gridref.api.combining",
    "to_cf_aggregation": "gridref.faces.exports.cf_aggregation",
    "to_stac": "gridref.faces.exports.stac",
    "verify": "gridref.api.verify",
    "watch": "gridref.api.watching",
    "write_catalog": "gridref.api.catalogs",
    # Need packages that may be missing, so ``from gridref import *`` leaves them out.
    "from_icechunk": "gridref.faces.exports.icechunk",
    "from_virtualizarr": "gridref.virtualizarr",
    "to_icechunk": "gridref.faces.exports.icechunk",
    "to_virtualizarr": "gridref.virtualizarr",
}

__all__ = [
    "Catalog",
    "ChunkMap",
    "Combination",
    "CombineOptions",
    "GridrefStore",
    "Groups",
    "Inspection",
    "Labels",
    "Loading",
    "Mosaic",
    "MosaicOptions",
    "Plate",
    "Ragged",
    "RunOptions",
    "ScanOptions",
    "Stack",
    "Verification",
    "ViewOptions",
    "VirtualArray",
    "VirtualGroup",
    "__version__",
    "build",
    "concat",
    "diff",
    "errors",
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
    from gridref.faces.notebook import html_of

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
