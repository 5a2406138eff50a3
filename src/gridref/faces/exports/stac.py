"""Describe catalogs as STAC Items and Collections.

`to_stac` reads the coordinates of every group, derives dimensions, extent in time and space and
projection. pystac makes the document.

Sources: STAC 1.1.0; its extensions "datacube" 2.2.0 (``cube:dimensions``), "projection" 2.0.0,
"raster" 2.0.0 and "xarray-assets" 1.0.0; "STAC Zarr Best Practices" (one store for an Item, a link
``rel: store``, role ``virtual``); CF conventions 1.12, chapter 4; RFC 7946, 3.1.9 and 5.2 (boxes
across the antimeridian).
"""

from __future__ import annotations

import calendar
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import pystac
import xarray as xr
from numpy.typing import NDArray
from pystac.utils import datetime_to_str

from gridref.api.catalog import open_catalog
from gridref.api.decoding import crs_of, refusing_attributes, system_of
from gridref.catalog import CatalogGroup
from gridref.catalog.folder import publish_file
from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.io import absolute_url
from gridref.model.array import VirtualArray, VirtualGroup, path_in
from gridref.model.conventions import direction
from gridref.options import check_choice
from gridref.secrets import shown_address
from gridref.serve.views import View, ViewOptions, show

_EXTENSIONS = "https://stac-extensions.github.io/{}/schema.json"
_ZARR = "application/vnd.zarr"
_ZARR_3 = "application/vnd.zarr; version=3"
_JSON, _PARQUET = "application/json", "application/vnd.apache.parquet"

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
        Where to write the JSON. None writes nothing.
    kind
        ``"item"`` or ``"collection"``.
    id
        Its id; by default the name of the catalog.
    references
        Address of kerchunk references of the catalog, as `gridref.to_kerchunk` writes them.
    served
        Address at which `gridref serve` shows the catalog.
    datetime
        Its time, or ``start/end``, if no coordinate has it.
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
        If its time is not known.
    """
    check_choice("kind", kind, ("item", "collection"))
    if not isinstance(catalog, CatalogGroup):
        catalog = open_catalog(catalog, storage_options=storage_options)
    parts = _parts_of(catalog, storage_options)
    attrs = {k: str(v) for k, v in parts[0].dataset.attrs.items() if str(v).strip()}
    space = _space_of_all(parts)
    extensions = ["datacube/v2.2.0", "raster/v2.0.0", "xarray-assets/v1.0.0"]
    if space is not None and space.properties:
        extensions.insert(1, "projection/v2.0.0")
    entries = _entries(catalog, references, served)
    common: Document = {
        "id": id or catalog.info.url.rstrip("/").rpartition("/")[2].removesuffix(".gridref"),
        "stac_extensions": [_EXTENSIONS.format(name) for name in extensions],
        "assets": dict(_asset(part, *entry) for part in parts for entry in entries.items()),
    }
    words = {"title": attrs.get("title"), "description": attrs.get("summary", attrs.get("comment"))}
    providers = [pystac.Provider(attrs["institution"])] if "institution" in attrs else None
    start, end = _times(parts, datetime)
    cube = {**_cube(parts), **({} if space is None else space.properties)}
    made: pystac.Item | pystac.Collection
    if kind == "item":
        one = start == end
        made = pystac.Item(
            **common,
            geometry=None if space is None else _geometry_of(space.bbox),
            bbox=None if space is None else list(space.bbox),
            datetime=start if one else None,
            start_datetime=None if one else start,
            end_datetime=None if one else end,
            properties={k: v for k, v in words.items() if v is not None} | cube,
        )
        made.common_metadata.providers = providers
    else:
        box = (-180.0, -90.0, 180.0, 90.0) if space is None else space.bbox
        made = pystac.Collection(
            **common,
            title=words["title"],
            description=words["description"] or words["title"] or common["id"],
            extent=pystac.Extent(
                pystac.SpatialExtent([list(box)]), pystac.TemporalExtent([[start, end]])
            ),
            license=license or str(parts[0].dataset.attrs.get("license", "other")),
            providers=providers,
            extra_fields=cube,
        )
    store = next(iter(entries.values()))
    made.add_link(pystac.Link("store", store["href"], store["media_type"], store["title"]))
    document = made.to_dict(include_self_link=False, transform_hrefs=False)
    document["links"][-1]["href"] = store["href"]  # pystac turns backslashes into slashes
    if path is not None:
        text = json.dumps(document, indent=2, allow_nan=False)
        publish_file("the STAC document", absolute_url(path), text.encode(), storage_options)
    return document


def _entries(
    catalog: CatalogGroup, references: str | None, served: str | None
) -> dict[str, Document]:
    """The ways into the catalog, that for readers without gridref first."""
    entries: dict[str, Document] = {}
    if served is not None:
        entries["zarr"] = {
            "href": served.rstrip("/"),
            "media_type": _ZARR_3,
            "title": "Zarr, served by gridref",
            "roles": ["data", "virtual"],
            "open": {"engine": "zarr", "consolidated": True, "chunks": {}},
        }
    if references is not None:
        entries["references"] = {
            "href": shown_address(absolute_url(references)),
            "media_type": _JSON if references.endswith(".json") else _PARQUET,
            "title": "kerchunk references",
            "roles": ["data", "virtual", "references"],
            "open": {"engine": "kerchunk", "chunks": {}},
        }
    entries["catalog"] = {
        "href": shown_address(catalog.info.url),
        "media_type": _ZARR,
        "title": "gridref catalog",
        "roles": ["data", "virtual"],
        "open": {"engine": "gridref", "chunks": {}},
    }
    return entries


def _asset(part: _Part, name: str, entry: Document) -> tuple[str, pystac.Asset]:
    """The asset that opens a group of the catalog, with its bands, and its key."""
    opening, title = entry["open"], entry["title"]
    if part.path:
        opening, title = {**opening, "group": part.path}, f"{title}, group {part.path}"
    asset = pystac.Asset(
        entry["href"],
        title,
        media_type=entry["media_type"],
        roles=entry["roles"],
        extra_fields={"xarray:open_kwargs": opening, "bands": _bands(part)},
    )
    asset.href = entry["href"]  # pystac turns backslashes into slashes
    return f"{name}:{part.path}" if part.path else name, asset


# Groups of a catalog, with names that are paths


@dataclass(frozen=True, eq=False)
class _Part:
    """The root, or a group that has arrays.

    Attributes
    ----------
    path
        Its path; empty for the root.
    dims
        The name that each of them has in the document: that of a group above where it is the same.
    """

    path: str
    dataset: xr.Dataset
    arrays: Mapping[str, VirtualArray]
    axes: Mapping[str, _Axis]
    dims: Mapping[str, str]
    space: _Space | None

    @cached_property
    def data_names(self) -> set[str]:
        """Names of the data variables, without bounds and grid mappings."""
        named = {
            str(said.get(name))
            for variable in self.dataset.variables.values()
            for said in (variable.attrs, variable.encoding)
            for name in ("bounds", "grid_mapping")
        }
        return {str(name) for name in self.dataset.data_vars} - named


def _parts_of(catalog: VirtualGroup, storage_options: Mapping[str, Any] | None) -> list[_Part]:
    """The root, and every group with arrays.

    Raises
    ------
    NotRepresentableError
        If xarray cannot decode a group, as its attributes are not what they should be.
    """
    parts: list[_Part] = []
    known: dict[str, _Axis] = {}
    for path, group in catalog.walk():
        if path and not group.arrays:
            continue
        opened: Any = catalog
        with refusing_attributes(path or None):
            dataset = xr.open_dataset(
                opened, engine="gridref", group=path or None, storage_options=storage_options
            )
        axes = {}
        for name, length in dataset.sizes.items():
            labels = dataset.variables.get(name)
            if labels is not None and labels.dims != (name,):
                labels = None
            axes[str(name)] = _Axis(str(name), length, labels)
        dims = {name: _dimension(path, axis, known) for name, axis in axes.items()}
        for name, key in dims.items():
            known.setdefault(key, axes[name])
        parts.append(_Part(path, dataset, group.arrays, axes, dims, _space_of(dataset, axes)))
    return parts


def _dimension(path: str, axis: _Axis, known: Mapping[str, _Axis]) -> str:
    """The name of a dimension: that of the nearest group above which has the same one."""
    above = path.split("/") if path else []
    for depth in range(len(above) - 1, -1, -1):
        key = path_in("/".join(above[:depth]), axis.name)
        if key in known and axis.is_same(known[key]):
            return key
    return path_in(path, axis.name)


def _cube(parts: Sequence[_Part]) -> Document:
    dimensions: Document = {}
    variables: Document = {}
    for part in parts:
        system = None if part.space is None else part.space.reference_system
        for name, key in part.dims.items():
            if key not in dimensions:
                dimensions[key] = part.axes[name].to_json(system)
        for name in map(str, part.dataset.variables):
            if name not in part.axes:
                variables[path_in(part.path, name)] = _variable(part, name)
    return {"cube:dimensions": dimensions, "cube:variables": variables}


def _variable(part: _Part, name: str) -> Document:
    variable, array = part.dataset.variables[name], part.arrays[name]
    document: Document = {
        "dimensions": [part.dims[str(dim)] for dim in variable.dims],
        "type": "data" if name in part.data_names else "auxiliary",
        "shape": list(variable.shape),
        "data_type": _data_type(array),
        **_words(array.attrs),
    }
    try:
        native = show(array, ViewOptions(View.NATIVE, grid="rectilinear"))
        document["chunk_grid"] = native.chunk_grid.to_json()
    except NotRepresentableError:
        pass
    return document


def _bands(part: _Part) -> list[Document]:
    """One band for each data variable of numbers, as stored."""
    bands = []
    names = part.data_names
    for name, array in part.arrays.items():
        if name not in names or array.dtype.kind not in "biufc":
            continue
        band: Document = {"name": path_in(part.path, name), "data_type": _data_type(array)}
        if (nodata := _number(array.attrs.get("_FillValue"))) is not None:
            band["nodata"] = nodata if np.isfinite(nodata) else str(nodata)
        if "units" in array.attrs:
            band["unit"] = str(array.attrs["units"])
        for key, attribute in (("scale", "scale_factor"), ("offset", "add_offset")):
            number = _number(array.attrs.get(attribute))
            if number is not None and np.isfinite(number):
                band[f"raster:{key}"] = number
        bands.append(band)
    return bands


def _words(attrs: Mapping[Any, Any]) -> Document:
    """What attributes of a variable say in words."""
    keys = (("unit", "units"), ("description", "long_name"))
    return {key: str(attrs[name]) for key, name in keys if name in attrs}


def _data_type(array: VirtualArray) -> str:
    if array.dtype.kind == "c":
        return {8: "cfloat32", 16: "cfloat64"}.get(array.dtype.itemsize, "other")
    return array.dtype.name if array.dtype.kind in "iuf" else "other"


def _number(attribute: object) -> int | float | None:
    """An attribute as a real number; None if it is anything else, as in some files."""
    value = np.asarray(attribute)
    return _plain(value.reshape(())) if value.size == 1 and value.dtype.kind in "iuf" else None


def _plain(value: Any) -> int | float:
    """A number for JSON; float32 with no more digits than it needs."""
    number = np.asarray(value)
    return int(number) if number.dtype.kind in "iu" else float(str(number[()]))


# Dimensions, as the datacube extension has them

MOST_VALUES = 1000
"""Most values that are written out of a coordinate without a step."""

type Kind = Literal["x", "y", "z", "t", ""]


def _kind_of(name: str, labels: xr.Variable | None) -> Kind:
    """What a coordinate is of, by its attributes, then by its values and its name."""
    if labels is None:
        return ""
    first = labels.values.reshape(-1)[:1]
    is_time = labels.dtype.kind == "M" or (
        labels.dtype.kind == "O" and hasattr(first[0], "calendar")
    )
    by_name: dict[str, Kind] = {"x": "x", "y": "y"}
    told: list[Kind] = [
        cast("Kind", direction(labels.attrs)),
        "t" if is_time else "",
        "z" if "positive" in labels.attrs else "",
        by_name.get(name, ""),
    ]
    found = next((kind for kind in told if kind), told[-1])
    return found if found != "t" or is_time else ""


@dataclass(frozen=True, eq=False)
class _Axis:
    """One dimension; `labels` is its coordinate, decoded, or None where there is none."""

    name: str
    length: int
    labels: xr.Variable | None

    @cached_property
    def kind(self) -> Kind:
        """Rows (``"y"``), columns (``"x"``), height, time, or something else (empty)."""
        return _kind_of(self.name, self.labels)

    @cached_property
    def values(self) -> NDArray[Any]:
        """The labels; numbers from 0 where there are none."""
        return np.arange(self.length) if self.labels is None else np.asarray(self.labels.values)

    @cached_property
    def step(self) -> float | None:
        """Distance of neighbours where all are alike: of numbers only."""
        values = self.values
        if values.dtype.kind not in "iuf" or len(values) < 2:
            return None
        numbers = values.astype(np.float64)
        step = float(numbers[-1] - numbers[0]) / (len(numbers) - 1)
        even = numbers[0] + step * np.arange(len(numbers))
        most = abs(step) / 100 if values.dtype.kind == "f" else 0
        return step if step and np.allclose(numbers, even, rtol=0, atol=most) else None

    @property
    def edges(self) -> tuple[float, float]:
        """Least and greatest number, with half a step around them where there is one."""
        values = self.values.astype(np.float64)
        half = abs(self.step or 0.0) / 2
        return float(np.nanmin(values)) - half, float(np.nanmax(values)) + half

    def is_same(self, other: _Axis) -> bool:
        """Whether this one has the labels of the other, or none and its length."""
        if self.labels is None:
            return self.length == other.length
        return other.labels is not None and np.array_equal(self.values, other.values)

    def to_json(self, reference_system: Any) -> Document:
        """The entry of ``cube:dimensions``; the reference system is for rows and columns."""
        if self.kind == "t":
            texts = [datetime_to_str(_moment(value)) for value in self.values.reshape(-1)]
            listed: Document = {"values": texts} if len(texts) <= MOST_VALUES else {"step": None}
            return {"type": "temporal", "extent": [min(texts), max(texts)], **listed}
        document = {"type": "index" if self.labels is None else "label", **self._numbers()}
        if self.kind:
            document |= {"type": "spatial", "axis": self.kind}
        if self.kind in ("x", "y") and reference_system is not None:
            document["reference_system"] = reference_system
        return document | ({} if self.labels is None else _words(self.labels.attrs))

    def _numbers(self) -> Document:
        values = self.values
        if values.dtype.kind not in "iuf" or not len(values):
            return {"values": [str(value) for value in values.tolist()]}
        extent = [_plain(np.nanmin(values)), _plain(np.nanmax(values))]
        if self.step is not None:
            step = _plain(np.float64(abs(self.step)).astype(values.dtype))
            return {"extent": extent, "step": step}
        if len(values) <= MOST_VALUES and np.isfinite(values).all():
            return {"extent": extent, "values": list(map(_plain, values))}
        return {"extent": extent, "step": None}


# Time


def _times(parts: Sequence[_Part], given: str | None) -> tuple[datetime, datetime]:
    """First and last moment."""
    if given is None:
        axes = [axis for part in parts for axis in part.axes.values()]
        found = [axis.values for axis in axes if axis.kind == "t" and axis.length]
        coords = [variable for part in parts for variable in part.dataset.coords.values()]
        scalars = [v.values for v in coords if v.ndim == 0 and v.dtype.kind == "M"]
        moments = [_moment(value) for values in found or scalars for value in values.reshape(-1)]
        if moments:
            return min(moments), max(moments)
        attrs = parts[0].dataset.attrs
        covered = [attrs.get(f"time_coverage_{end}") for end in ("start", "end")]
        if None in covered:
            raise InvalidRequestError(
                "the catalog has no time coordinate: give datetime='2024-01-31', or 'start/end'"
            )
        given = "/".join(map(str, covered))
    start, _, end = given.partition("/")
    try:
        first, last = (
            _moment(np.datetime64(text.removesuffix("Z"))) for text in (start, end or start)
        )
    except ValueError as error:
        raise InvalidRequestError(
            f"datetime must be a time, or start/end, got {given!r}"
        ) from error
    return first, last


def _moment(value: Any) -> datetime:
    """A moment of any calendar, in UTC, to the second.

    A day that the usual calendar does not have becomes the last one of its month.
    """
    if isinstance(value, np.datetime64):
        value = value.astype("M8[us]").item()
    if not isinstance(value, datetime) and not hasattr(value, "calendar"):
        raise InvalidRequestError(f"expected a time, got {value!r}")
    if not 1 <= value.year <= 9999:
        raise InvalidRequestError(f"STAC has years from 1 to 9999, got {value.year}")
    day = min(value.day, calendar.monthrange(value.year, value.month)[1])
    return datetime(
        value.year, value.month, day, value.hour, value.minute, value.second, tzinfo=UTC
    )


# Position on the ground: a box of longitudes and latitudes, and a CRS

_GEOGRAPHIC = ("degrees", "degree")

type _Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class _Space:
    """The position of a dataset.

    Attributes
    ----------
    bbox
        West, south, east and north in degrees; west is greater than east across the antimeridian.
    properties
        Of the projection extension.
    reference_system
        Of the datacube extension; None where there is no CRS of rows and columns.
    """

    bbox: _Box
    properties: Mapping[str, Any]
    reference_system: Any = None


def _space_of(dataset: xr.Dataset, axes: Mapping[str, _Axis]) -> _Space | None:
    """Find the position of a dataset; None if nothing gives it.

    By the coordinates of rows and columns, in the CRS of the grid mapping; else by longitudes and
    latitudes of each element.
    """
    x, y = (next((a for a in axes.values() if a.kind == kind), None) for kind in ("x", "y"))
    if x is not None and y is not None and x.length and y.length:
        crs = _crs_of(dataset, x)
        if crs is not None:
            return _projected(x, y, crs)
    return _of_elements(dataset)


def _geometry_of(bbox: _Box) -> dict[str, Any]:
    """The box as GeoJSON; two of them across the antimeridian."""
    west, south, east, north = bbox
    parts = [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]
    rings = [[[[a, south], [b, south], [b, north], [a, north], [a, south]]] for a, b in parts]
    if len(rings) == 1:
        return {"type": "Polygon", "coordinates": rings[0]}
    return {"type": "MultiPolygon", "coordinates": rings}


def _crs_of(dataset: xr.Dataset, x: _Axis) -> Any:
    """The coordinate reference system of rows and columns; None if nothing says what it is."""
    from pyproj import CRS

    named = [
        str(v.encoding.get("grid_mapping", v.attrs.get("grid_mapping", ""))).partition(":")[0]
        for v in dataset.data_vars.values()
    ]
    for name in filter(dataset.variables.__contains__, [*named, "spatial_ref"]):
        if (crs := crs_of(system_of(dataset.variables[name].attrs))) is not None:
            return crs
    attrs = {} if x.labels is None else x.labels.attrs
    rotated = attrs.get("standard_name") == "grid_longitude"
    in_degrees = str(attrs.get("units", "")).startswith(_GEOGRAPHIC) and not rotated
    return CRS.from_epsg(4326) if in_degrees else None


def _projected(x: _Axis, y: _Axis, crs: Any) -> _Space:
    from pyproj import Transformer

    (left, right), (bottom, top) = x.edges, y.edges
    corners = (left, bottom, right, top)
    code = crs.to_epsg()
    properties: dict[str, Any] = {"proj:code": None if code is None else f"EPSG:{code}"}
    if code is None:
        properties["proj:wkt2"] = crs.to_wkt()
    properties |= {"proj:shape": [y.length, x.length], "proj:bbox": list(corners)}
    if x.step is not None and y.step is not None:
        x0, y0 = float(x.values[0]) - x.step / 2, float(y.values[0]) - y.step / 2
        properties["proj:transform"] = [x.step, 0.0, x0, 0.0, y.step, y0]
    if crs.is_geographic and not crs.is_derived:
        box = _on_the_globe(*corners)
    else:
        transformer = Transformer.from_crs(crs, 4326, always_xy=True)
        box = transformer.transform_bounds(*corners)
    return _Space(box, properties, crs.to_wkt() if code is None else code)


def _of_elements(dataset: xr.Dataset) -> _Space | None:
    """The box of longitudes and latitudes that are variables of their own."""
    found = {
        kind: variable
        for name, variable in dataset.variables.items()
        if variable.size
        and str(variable.attrs.get("units", "")).startswith(_GEOGRAPHIC)
        and (kind := _kind_of(str(name), variable)) in ("x", "y")
        and not str(variable.attrs.get("standard_name", "")).startswith("grid_")
    }
    if len(found) < 2:
        return None
    (west, east), (south, north) = (
        (float(np.nanmin(found[kind].values)), float(np.nanmax(found[kind].values)))
        for kind in ("x", "y")
    )
    if not np.isfinite([west, south, east, north]).all():
        return None
    return _Space(_on_the_globe(west, south, east, north), {})


def _on_the_globe(west: float, south: float, east: float, north: float) -> _Box:
    """A box with longitudes from -180 to 180, and latitudes from -90 to 90."""
    south, north = max(south, -90.0), min(north, 90.0)
    if east - west >= 360 or (west < -180 and east > 180):
        return (-180.0, south, 180.0, north)
    if west >= -180 and east <= 180:
        return (west, south, east, north)
    west, east = _wrapped(west), _wrapped(east)
    return (west, south, 180.0 if east == -180 else east, north)


def _wrapped(longitude: float) -> float:
    return (longitude + 180) % 360 - 180


def _space_of_all(parts: Sequence[_Part]) -> _Space | None:
    """The position of the first part that has one, with the box of all."""
    spaces = [part.space for part in parts if part.space is not None]
    if not spaces:
        return None
    west, south, east, north = zip(*(space.bbox for space in spaces), strict=True)
    crosses = any(w > e for w, e in zip(west, east, strict=True))
    if crosses and len(set(zip(west, east, strict=True))) > 1:
        west, east = (-180.0,), (180.0,)
    return replace(spaces[0], bbox=(min(west), min(south), max(east), max(north)))
