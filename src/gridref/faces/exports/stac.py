"""Describe catalogs as STAC Items and Collections.

`to_stac` reads the coordinates of every group, derives dimensions, extent in time and space and
projection, and writes the JSON documents.

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
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from gridref.api.catalog import open_catalog
from gridref.api.decoding import refusing_attributes
from gridref.catalog import CatalogGroup
from gridref.catalog.folder import publish_file
from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.io import absolute_url
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.reference_systems import wkt_of
from gridref.options import check_choice
from gridref.secrets import shown_address
from gridref.serve.views import View, ViewOptions, show

# Dimensions, as the datacube extension has them

MOST_VALUES = 1000
"""Most values that are written out of a coordinate without a step."""

type Kind = Literal["x", "y", "z", "t", ""]

_STANDARD_NAMES: dict[str, Kind] = {
    "longitude": "x",
    "grid_longitude": "x",
    "projection_x_coordinate": "x",
    "latitude": "y",
    "grid_latitude": "y",
    "projection_y_coordinate": "y",
    "time": "t",
    **dict.fromkeys(("height", "altitude", "depth", "air_pressure"), "z"),
}
_UNITS: dict[str, Kind] = {
    **dict.fromkeys(("degrees_east", "degree_east", "degrees_E", "degree_E"), "x"),
    **dict.fromkeys(("degrees_north", "degree_north", "degrees_N", "degree_N"), "y"),
}
_AXES: dict[str, Kind] = {"X": "x", "Y": "y", "Z": "z", "T": "t"}


@dataclass(frozen=True, eq=False)
class Axis:
    """One dimension.

    Attributes
    ----------
    name, kind
        Its name, and what it is: rows (``"y"``), columns (``"x"``), height, time, or something else
        (empty).
    length
        Of the dimension.
    labels
        Its coordinate, decoded; None where there is none.
    """

    name: str
    kind: Kind
    length: int
    labels: xr.Variable | None

    @property
    def values(self) -> NDArray[Any]:
        """The labels; numbers from 0 where there are none."""
        return np.arange(self.length) if self.labels is None else np.asarray(self.labels.values)

    @property
    def step(self) -> float | None:
        """Distance of neighbours where all are alike: of numbers only."""
        values = self.values
        if values.dtype.kind not in "iuf" or len(values) < 2:
            return None
        steps = np.diff(values.astype(np.float64))
        step = (float(values[-1]) - float(values[0])) / (len(values) - 1)
        same = bool(step) and np.allclose(steps, step, rtol=1e-3, atol=0)
        return step if same else None

    @property
    def edges(self) -> tuple[float, float]:
        """Least and greatest number, with half a step around them where there is one."""
        values = self.values.astype(np.float64)
        half = abs(self.step or 0.0) / 2
        return float(np.nanmin(values)) - half, float(np.nanmax(values)) + half

    def to_json(self, reference_system: Any) -> dict[str, Any]:
        """The entry of ``cube:dimensions``; the reference system is for rows and columns."""
        if self.kind == "t":
            return {"type": "temporal", **self._times()}
        document = {"type": "index" if self.labels is None else "label", **self._numbers()}
        if self.kind:
            document |= {"type": "spatial", "axis": self.kind}
        if self.kind in ("x", "y") and reference_system is not None:
            document["reference_system"] = reference_system
        attrs = {} if self.labels is None else self.labels.attrs
        for key, name in (("unit", "units"), ("description", "long_name")):
            if name in attrs:
                document[key] = str(attrs[name])
        return document

    def _times(self) -> dict[str, Any]:
        texts = [iso_time(value) for value in self.values.reshape(-1)]
        document: dict[str, Any] = {"extent": [min(texts), max(texts)]}
        return document | ({"values": texts} if len(texts) <= MOST_VALUES else {"step": None})

    def _numbers(self) -> dict[str, Any]:
        values = self.values
        if values.dtype.kind not in "iuf" or not len(values):
            return {"values": [str(value) for value in values.tolist()]}
        document: dict[str, Any] = {"extent": [plain(np.nanmin(values)), plain(np.nanmax(values))]}
        if self.step is not None:
            return document | {"step": plain(np.float64(abs(self.step)).astype(values.dtype))}
        listed = len(values) <= MOST_VALUES and np.isfinite(values).all()
        return document | ({"values": list(map(plain, values))} if listed else {"step": None})


def axes_of(dataset: xr.Dataset) -> dict[str, Axis]:
    """The dimensions of a dataset's variables, by name."""
    axes = {}
    for name, length in dataset.sizes.items():
        labels = dataset.variables.get(name)
        if labels is not None and labels.dims != (name,):
            labels = None
        axes[str(name)] = Axis(str(name), kind_of(str(name), labels), length, labels)
    return axes


def kind_of(name: str, labels: xr.Variable | None) -> Kind:
    """What a coordinate is of, by its attributes, then by its values and its name."""
    if labels is None:
        return ""
    attrs = labels.attrs
    told: tuple[Kind | None, ...] = (
        _AXES.get(str(attrs.get("axis"))),
        _STANDARD_NAMES.get(str(attrs.get("standard_name"))),
        _UNITS.get(str(attrs.get("units"))),
        "t" if _is_time(labels) else None,
        "z" if "positive" in attrs else None,
    )
    by_name: dict[str, Kind] = {"x": "x", "y": "y"}
    found: Kind = next((kind for kind in told if kind is not None), by_name.get(name, ""))
    return found if found != "t" or _is_time(labels) else ""


def _is_time(labels: xr.Variable) -> bool:
    first = labels.values.reshape(-1)[:1]
    return labels.dtype.kind == "M" or (labels.dtype.kind == "O" and hasattr(first[0], "calendar"))


def iso_time(value: Any) -> str:
    """A moment as RFC 3339 has it, in UTC, to the second.

    A day that the usual calendar does not have becomes the last one of its month.

    Raises
    ------
    InvalidRequestError
        If its year is beyond 1 to 9999.
    """
    if isinstance(value, np.datetime64):
        value = value.astype("M8[us]").item()
    if not isinstance(value, datetime) and not hasattr(value, "calendar"):
        raise InvalidRequestError(f"a moment is wanted, got {value!r}")
    if not 1 <= value.year <= 9999:
        raise InvalidRequestError(f"STAC has years from 1 to 9999, got {value.year}")
    day = min(value.day, calendar.monthrange(value.year, value.month)[1])
    parts = (value.year, value.month, day, value.hour, value.minute, value.second)
    return datetime(*parts, tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def plain(value: Any) -> int | float:
    """A number for JSON; float32 with no more digits than it needs."""
    number = np.asarray(value)
    if number.dtype.kind in "iu":
        return int(number)
    return float(str(number[()]))


# Position on the ground: a box of longitudes and latitudes, and a CRS

_GEOGRAPHIC = ("degrees", "degree")

type Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Space:
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

    bbox: Box
    properties: Mapping[str, Any]
    reference_system: Any = None


def space_of(dataset: xr.Dataset, axes: Mapping[str, Axis]) -> Space | None:
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


def geometry_of(bbox: Box) -> dict[str, Any]:
    """The box as GeoJSON; two of them across the antimeridian."""
    west, south, east, north = bbox
    parts = [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]
    rings = [[[[a, south], [b, south], [b, north], [a, north], [a, south]]] for a, b in parts]
    if len(rings) == 1:
        return {"type": "Polygon", "coordinates": rings[0]}
    return {"type": "MultiPolygon", "coordinates": rings}


def _crs_of(dataset: xr.Dataset, x: Axis) -> Any:
    """The coordinate reference system of rows and columns; None if nothing says what it is."""
    from pyproj import CRS
    from pyproj.exceptions import CRSError

    named = [
        str(v.encoding.get("grid_mapping", v.attrs.get("grid_mapping", ""))).partition(":")[0]
        for v in dataset.data_vars.values()
    ]
    for name in filter(dataset.variables.__contains__, [*named, "spatial_ref"]):
        attrs = dataset.variables[name].attrs
        try:
            wkt = wkt_of(attrs)
            return CRS.from_wkt(wkt) if wkt else CRS.from_cf(dict(attrs))
        except (CRSError, KeyError, TypeError, ValueError, AttributeError):
            continue
    attrs = {} if x.labels is None else x.labels.attrs
    rotated = attrs.get("standard_name") == "grid_longitude"
    in_degrees = str(attrs.get("units", "")).startswith(_GEOGRAPHIC) and not rotated
    return CRS.from_epsg(4326) if in_degrees else None


def _projected(x: Axis, y: Axis, crs: Any) -> Space:
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
    return Space(box, properties, crs.to_wkt() if code is None else code)


def _of_elements(dataset: xr.Dataset) -> Space | None:
    """The box of longitudes and latitudes that are variables of their own."""
    found = {
        kind: variable
        for name, variable in dataset.variables.items()
        if variable.size
        and str(variable.attrs.get("units", "")).startswith(_GEOGRAPHIC)
        and (kind := kind_of(str(name), variable)) in ("x", "y")
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
    return Space(_on_the_globe(west, south, east, north), {})


def _on_the_globe(west: float, south: float, east: float, north: float) -> Box:
    """A box with longitudes from -180 to 180, and latitudes from -90 to 90."""
    south, north = max(south, -90.0), min(north, 90.0)
    if east - west >= 360 or (west < -180 and east > 180):
        return (-180.0, south, 180.0, north)
    if west >= -180 and east <= 180:
        return (west, south, east, north)
    return (_wrapped(west), south, _wrapped(east) or 180.0, north)


def _wrapped(longitude: float) -> float:
    return (longitude + 180) % 360 - 180


# Groups of a catalog, with names that are paths


@dataclass(frozen=True, eq=False)
class Part:
    """The root, or a group that has arrays.

    Attributes
    ----------
    path
        Its path; empty for the root.
    dataset, arrays
        What it holds.
    axes
        Its dimensions by their own names.
    dims
        The name that each of them has in the document: that of a group above where it is the same.
    space
        Where it is.
    """

    path: str
    dataset: xr.Dataset
    arrays: Mapping[str, VirtualArray]
    axes: Mapping[str, Axis]
    dims: Mapping[str, str]
    space: Space | None

    def named(self, name: object) -> str:
        """The name that a variable has in the document."""
        return _below(self.path, str(name))


def parts_of(catalog: VirtualGroup, storage_options: Mapping[str, Any] | None) -> list[Part]:
    """The root, and every group with arrays.

    Raises
    ------
    NotRepresentableError
        If xarray cannot decode a group, as its attributes are not what they should be.
    """
    parts: list[Part] = []
    known: dict[str, Axis] = {}
    for path, group in catalog.walk():
        if path and not group.arrays:
            continue
        opened: Any = catalog
        with refusing_attributes(path or None):
            dataset = xr.open_dataset(
                opened, engine="gridref", group=path or None, storage_options=storage_options
            )
        axes = axes_of(dataset)
        dims = {name: _dimension(path, axis, known) for name, axis in axes.items()}
        for name, key in dims.items():
            known.setdefault(key, axes[name])
        parts.append(Part(path, dataset, group.arrays, axes, dims, space_of(dataset, axes)))
    return parts


def space_of_all(parts: list[Part]) -> Space | None:
    """The position of the first part that has one, with the box of all."""
    spaces = [part.space for part in parts if part.space is not None]
    if not spaces:
        return None
    west, south, east, north = zip(*(space.bbox for space in spaces), strict=True)
    crosses = any(w > e for w, e in zip(west, east, strict=True))
    if crosses and len(set(zip(west, east, strict=True))) > 1:
        west, east = (-180.0,), (180.0,)
    return replace(spaces[0], bbox=(min(west), min(south), max(east), max(north)))


def _dimension(path: str, axis: Axis, known: Mapping[str, Axis]) -> str:
    """The name of a dimension: that of the nearest group above which has the same one."""
    above = path.split("/") if path else []
    for depth in range(len(above) - 1, -1, -1):
        key = _below("/".join(above[:depth]), axis.name)
        if key in known and _is_same(axis, known[key]):
            return key
    return _below(path, axis.name)


def _is_same(axis: Axis, other: Axis) -> bool:
    if axis.labels is None or other.labels is None:
        return axis.labels is None and axis.length == other.length
    return np.array_equal(axis.values, other.values)


def _below(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


# Items and Collections

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
        If nothing says of what time it is.
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


def _number(attribute: object) -> int | float | None:
    """An attribute as a real number; None if it is anything else, as in some files."""
    value = np.asarray(attribute)
    return plain(value.reshape(())) if value.size == 1 and value.dtype.kind in "iuf" else None


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
            "href": shown_address(absolute_url(references)),
            "type": "application/json"
            if references.endswith(".json")
            else "application/vnd.apache.parquet",
            "title": "kerchunk references",
            "roles": ["data", "virtual", "references"],
            "xarray:open_kwargs": {"engine": "kerchunk", "chunks": {}},
        }
    assets["catalog"] = {
        "href": shown_address(catalog.info.url),
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
    text = json.dumps(document, indent=2, allow_nan=False)
    publish_file("the STAC document", absolute_url(path), text.encode(), storage_options)
