"""Catalogs as STAC Items and Collections.

Sources: STAC 1.1.0; its extensions "datacube" 2.2.0, "projection" 2.0.0, "raster" 2.0.0 and
"xarray-assets" 1.0.0; "STAC Zarr Best Practices" (one store for an Item, a link ``rel: store``,
role ``virtual``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr

from gridref.adapters.stac.axes import iso_time, plain
from gridref.adapters.stac.parts import Part, parts_of, space_of_all
from gridref.adapters.stac.space import Space, geometry_of
from gridref.catalog import CatalogGroup
from gridref.catalog.storage import open_folder
from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.io import absolute_url
from gridref.model.array import VirtualArray
from gridref.options import check_choice
from gridref.secrets import without_secrets
from gridref.serve.views import View, ViewOptions, show
from gridref.workflows.catalogs import open_catalog

__all__ = ["to_stac"]

VERSION = "1.1.0"
_EXTENSIONS = "https://stac-extensions.github.io"
_ZARR = "application/vnd.zarr"
_ZARR_3 = "application/vnd.zarr; version=3"
_JSON, _PARQUET = "application/json", "application/vnd.apache.parquet"
_DATA_TYPES = {"c8": "cfloat32", "c16": "cfloat64"}

type Document = dict[str, Any]


def to_stac(
    catalog: str | os.PathLike[str] | CatalogGroup,
    path: str | os.PathLike[str] | None = None,
    *,
    kind: Literal["item", "collection"] = "item",
    id: str | None = None,  # noqa: A002 - STAC's own word
    references: str | None = None,
    served: str | None = None,
    datetime: str | None = None,
    license: str | None = None,  # noqa: A002
    storage_options: Mapping[str, Any] | None = None,
) -> Document:
    """Describe a catalog as a STAC Item or Collection, with all its groups.

    Variables of groups are named by their paths, and each group has assets of its own, whose
    ``xarray:open_kwargs`` open it.

    Parameters
    ----------
    catalog
        Address of the catalog, or the opened catalog.
    path
        Where the JSON goes; None writes nothing.
    kind
        ``"item"`` or ``"collection"``.
    id
        Its id; by default the name of the catalog.
    references
        Address of kerchunk references of the catalog, as `gridref.adapters.kerchunk` writes them.
    served
        Address at which `gridref serve` shows the catalog.
    datetime
        Its moment, or ``start/end``, where no coordinate says it.
    license
        Of a Collection; by default the attribute of that name, or ``other``.
    storage_options
        Options of fsspec's filesystems.

    Returns
    -------
    dict
        The document. Values are read of coordinates only.

    Raises
    ------
    InvalidRequestError
        If nothing says of what time it is.
    MissingPackageError
        Without pyproj.
    """
    check_choice("kind", kind, ("item", "collection"))
    if not isinstance(catalog, CatalogGroup):
        catalog = open_catalog(catalog, storage_options=storage_options)
    parts = parts_of(catalog, storage_options)
    dataset = parts[0].dataset
    space = space_of_all(parts)
    assets = _assets(catalog, references, served)
    document = _cube(parts)
    document |= {} if space is None else dict(space.properties)
    common = {
        "stac_version": VERSION,
        "stac_extensions": _extensions(space),
        "id": id or catalog.info.url.rstrip("/").rpartition("/")[2].removesuffix(".gridref"),
        "links": [_store_link(assets)],
        "assets": dict(_of_part(asset, part) for part in parts for asset in assets.items()),
    }
    times = _times(parts, datetime)
    make = _item if kind == "item" else _collection
    done = make(common, document, dataset, space, times)
    if kind == "collection":
        done["license"] = license or str(dataset.attrs.get("license", "other"))
    if path is not None:
        _write(done, path, storage_options)
    return done


def _item(
    common: Document, cube: Document, dataset: xr.Dataset, space: Space | None, times: list[str]
) -> Document:
    moment: Document = {"datetime": times[0]}
    if times[0] != times[1]:
        moment = {"datetime": None, "start_datetime": times[0], "end_datetime": times[1]}
    place: Document = {"geometry": None}
    if space is not None:
        place = {"geometry": geometry_of(space.bbox), "bbox": list(space.bbox)}
    return {
        "type": "Feature",
        **common,
        **place,
        "properties": {**_words(dataset), **moment, **cube},
    }


def _collection(
    common: Document, cube: Document, dataset: xr.Dataset, space: Space | None, times: list[str]
) -> Document:
    bbox = [-180.0, -90.0, 180.0, 90.0] if space is None else list(space.bbox)
    words = _words(dataset)
    return {
        "type": "Collection",
        **common,
        **words,
        "description": words.get("description") or words.get("title") or common["id"],
        "extent": {"spatial": {"bbox": [bbox]}, "temporal": {"interval": [times]}},
        **cube,
    }


def _words(dataset: xr.Dataset) -> Document:
    """What the attributes say in words."""
    attrs = {name: str(value) for name, value in dataset.attrs.items() if str(value).strip()}
    words: Document = {"title": attrs["title"]} if "title" in attrs else {}
    for name in ("summary", "comment"):
        if name in attrs:
            words.setdefault("description", attrs[name])
    if "institution" in attrs:
        words["providers"] = [{"name": attrs["institution"]}]
    return words


def _extensions(space: Space | None) -> list[str]:
    names = ["datacube/v2.2.0", "raster/v2.0.0", "xarray-assets/v1.0.0"]
    if space is not None and space.properties:
        names.append("projection/v2.0.0")
    return [f"{_EXTENSIONS}/{name}/schema.json" for name in sorted(names)]


def _times(parts: Sequence[Part], given: str | None) -> list[str]:
    """First and last moment."""
    dataset = parts[0].dataset
    if given is None:
        axes = [axis for part in parts for axis in part.axes.values()]
        found = [axis.values for axis in axes if axis.kind == "t" and axis.length]
        coords = [variable for part in parts for variable in part.dataset.coords.values()]
        scalars = [v.values for v in coords if v.ndim == 0 and v.dtype.kind == "M"]
        texts = [iso_time(value) for values in found or scalars for value in values.reshape(-1)]
        if texts:
            return [min(texts), max(texts)]
        covered = [dataset.attrs.get(f"time_coverage_{end}") for end in ("start", "end")]
        if None in covered:
            raise InvalidRequestError(
                "no coordinate says of what time the catalog is: give datetime='2024-01-31', or"
                " 'start/end'"
            )
        given = "/".join(map(str, covered))
    start, _, end = given.partition("/")
    try:
        return [iso_time(np.datetime64(text.removesuffix("Z"))) for text in (start, end or start)]
    except ValueError as error:
        raise InvalidRequestError(f"datetime is no moment, nor start/end: {given!r}") from error


def _cube(parts: Sequence[Part]) -> Document:
    dimensions: Document = {}
    for part in parts:
        system = None if part.space is None else part.space.reference_system
        for name, key in part.dims.items():
            if key not in dimensions:
                dimensions[key] = part.axes[name].to_json(system)
    variables = {
        part.named(name): _variable(part, str(name))
        for part in parts
        for name in part.dataset.variables
        if str(name) not in part.axes
    }
    return {"cube:dimensions": dimensions, "cube:variables": variables}


def _variable(part: Part, name: str) -> Document:
    variable, array = part.dataset.variables[name], part.arrays[name]
    document: Document = {
        "dimensions": [part.dims[str(dim)] for dim in variable.dims],
        "type": "data" if name in _data_names(part.dataset) else "auxiliary",
        "shape": list(variable.shape),
        "data_type": _data_type(array),
    }
    for key, attribute in (("unit", "units"), ("description", "long_name")):
        if attribute in array.attrs:
            document[key] = str(array.attrs[attribute])
    try:
        native = show(array, ViewOptions(View.NATIVE, grid="rectilinear"))
        document["chunk_grid"] = native.chunk_grid.to_json()
    except NotRepresentableError:
        pass
    return document


def _data_names(dataset: xr.Dataset) -> set[str]:
    """Names of the data variables, without bounds and grid mappings."""
    variables = dataset.variables.values()
    named = {
        str(said.get(name))
        for variable in variables
        for said in (variable.attrs, variable.encoding)
        for name in ("bounds", "grid_mapping")
    }
    return {str(name) for name in dataset.data_vars} - named


def _of_part(asset: tuple[str, Document], part: Part) -> tuple[str, Document]:
    """An asset that opens a group, with its bands."""
    name, document = asset
    document = {**document, "bands": _bands(part)}
    if not part.path:
        return name, document
    document["title"] += f", group {part.path}"
    document["xarray:open_kwargs"] = {**document["xarray:open_kwargs"], "group": part.path}
    return f"{name}:{part.path}", document


def _bands(part: Part) -> list[Document]:
    """One band for each data variable of numbers, as stored."""
    bands = []
    names = _data_names(part.dataset)
    for name, array in part.arrays.items():
        if name not in names or array.dtype.kind not in "biufc":
            continue
        band: Document = {"name": part.named(name), "data_type": _data_type(array)}
        if "_FillValue" in array.attrs:
            number = plain(array.attrs["_FillValue"])
            band["nodata"] = number if np.isfinite(number) else str(number)
        if "units" in array.attrs:
            band["unit"] = str(array.attrs["units"])
        for key, attribute in (("scale", "scale_factor"), ("offset", "add_offset")):
            if attribute in array.attrs:
                band[f"raster:{key}"] = plain(array.attrs[attribute])
        bands.append(band)
    return bands


def _data_type(array: VirtualArray) -> str:
    kind = array.dtype.kind
    if kind == "c":
        return _DATA_TYPES.get(array.dtype.str[1:], "other")
    return array.dtype.name if kind in "iuf" else "other"


def _assets(
    catalog: CatalogGroup, references: str | None, served: str | None
) -> dict[str, Document]:
    """The ways into the catalog, that for readers without gridref first."""
    assets: dict[str, Document] = {}
    if served is not None:
        assets["zarr"] = {
            "href": served.rstrip("/"),
            "type": _ZARR_3,
            "title": "Zarr, served by gridref",
            "roles": ["data", "virtual"],
            "xarray:open_kwargs": {"engine": "zarr", "consolidated": True, "chunks": {}},
        }
    if references is not None:
        assets["references"] = {
            "href": without_secrets(absolute_url(references)),
            "type": "application/json"
            if references.endswith(".json")
            else "application/vnd.apache.parquet",
            "title": "kerchunk references",
            "roles": ["data", "virtual", "references"],
            "xarray:open_kwargs": {"engine": "kerchunk", "chunks": {}},
        }
    assets["catalog"] = {
        "href": without_secrets(catalog.info.url),
        "type": _ZARR,
        "title": "gridref catalog",
        "roles": ["data", "virtual"],
        "xarray:open_kwargs": {"engine": "gridref", "chunks": {}},
    }
    return assets


def _store_link(assets: Mapping[str, Document]) -> Document:
    first = next(iter(assets.values()))
    return {"rel": "store", **{key: first[key] for key in ("href", "type", "title")}}


def _write(
    document: Document, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None
) -> None:
    folder, _, name = absolute_url(path).rpartition("/")
    text = json.dumps(document, indent=2, allow_nan=False)
    open_folder(folder, storage_options).publish(name, text.encode())
