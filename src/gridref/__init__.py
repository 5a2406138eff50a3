"""gridref: open archives of HDF5, NetCDF, GRIB, TIFF and other files as one cube, without a copy.

Names are imported when they are first used, so that ``import gridref`` waits for nothing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gridref.model.scan_report import draw_with

if TYPE_CHECKING:
    from gridref import errors as errors
    from gridref import interchange as interchange
    from gridref.api.building import build as build
    from gridref.api.building import plan as plan
    from gridref.api.catalog import Catalog as Catalog
    from gridref.api.catalog import open_catalog as open_catalog
    from gridref.api.combining import concat as concat
    from gridref.api.combining import mosaic as mosaic
    from gridref.api.copying import copy as copy
    from gridref.api.layout.layouts import Groups as Groups
    from gridref.api.layout.layouts import Labels as Labels
    from gridref.api.layout.layouts import Mosaic as Mosaic
    from gridref.api.layout.layouts import Plate as Plate
    from gridref.api.layout.layouts import Ragged as Ragged
    from gridref.api.layout.layouts import Stack as Stack
    from gridref.api.layout.listings import files_from as files_from
    from gridref.api.scan import RunOptions as RunOptions
    from gridref.api.scan import scan as scan
    from gridref.api.verify import verify as verify
    from gridref.combine import CombineOptions as CombineOptions
    from gridref.faces.exports.kerchunk import to_kerchunk as to_kerchunk
    from gridref.faces.http.app import create_app as create_app
    from gridref.faces.xarray.opening import open_mfdataset as open_mfdataset
    from gridref.faces.xarray.opening import open_mfdatatree as open_mfdatatree
    from gridref.faces.xarray.opening import open_virtual_dataset as open_virtual_dataset
    from gridref.faces.xarray.opening import open_virtual_datatree as open_virtual_datatree
    from gridref.faces.xarray.opening import open_virtual_mfdataset as open_virtual_mfdataset
    from gridref.faces.zarr.store import open_store as open_store
    from gridref.formats import ScanOptions as ScanOptions
    from gridref.model.array import VirtualGroup as VirtualGroup
    from gridref.serve.views import ViewOptions as ViewOptions

    __version__: str

_HOMES = {
    "Catalog": "gridref.api.catalog",
    "CombineOptions": "gridref.combine",
    "Groups": "gridref.api.layout.layouts",
    "Labels": "gridref.api.layout.layouts",
    "Mosaic": "gridref.api.layout.layouts",
    "Plate": "gridref.api.layout.layouts",
    "Ragged": "gridref.api.layout.layouts",
    "RunOptions": "gridref.api.scan",
    "ScanOptions": "gridref.formats",
    "Stack": "gridref.api.layout.layouts",
    "ViewOptions": "gridref.serve.views",
    "VirtualGroup": "gridref.model.array",
    "build": "gridref.api.building",
    "concat": "gridref.api.combining",
    "files_from": "gridref.api.layout.listings",
    "mosaic": "gridref.api.combining",
    "open_catalog": "gridref.api.catalog",
    "open_mfdataset": "gridref.faces.xarray.opening",
    "open_mfdatatree": "gridref.faces.xarray.opening",
    "open_store": "gridref.faces.zarr.store",
    "open_virtual_dataset": "gridref.faces.xarray.opening",
    "open_virtual_datatree": "gridref.faces.xarray.opening",
    "open_virtual_mfdataset": "gridref.faces.xarray.opening",
    "plan": "gridref.api.building",
    "scan": "gridref.api.scan",
    "to_kerchunk": "gridref.faces.exports.kerchunk",
    "verify": "gridref.api.verify",
    "copy": "gridref.api.copying",
    "create_app": "gridref.faces.http.app",
}
_NOT_BY_STAR = {"copy", "create_app"}
"""`copy` would hide Python's module of this name, `create_app` loads a server."""

__all__ = [*sorted({*_HOMES, "__version__", "errors"} - _NOT_BY_STAR)]  # noqa: PLE0604


def _html_of(shown: Any) -> str:
    from gridref.faces.notebook import html_of

    return html_of(shown)


draw_with(_html_of)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version

        return version("gridref")
    if name in ("errors", "interchange", "virtualizarr"):
        return import_module(f"gridref.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    message = f"module 'gridref' has no attribute {name!r}"
    raise AttributeError(message, name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*__all__, *_NOT_BY_STAR})
