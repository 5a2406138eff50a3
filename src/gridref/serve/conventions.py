"""Describe the position of georeferenced groups in Zarr conventions.

Input is a group whose arrays have a CF grid mapping with a ``GeoTransform``. Output is the same
group with the attributes of the conventions added. Where labels say that pixels are elsewhere,
they count: arrays may have been selected from or joined, and GDAL writes the rows of NetCDF files
from south to north under a transform that goes the other way.

Sources: the Zarr conventions "proj", "spatial" and "multiscales" v0.1
(https://github.com/zarr-conventions), made by the package ``zarr-cm``; GDAL's ``GeoTransform``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import GridrefError
from gridref.model.array import LazyArrays, VirtualArray, VirtualGroup
from gridref.model.conventions import (
    authority_code,
    direction,
    geotransform,
    is_scaled,
    text_of,
    wkt_of,
)

type Read = Callable[[VirtualArray, Any], NDArray[Any]]
"""Reads a selection of an array."""

_MAPPINGS = (
    "spatial_ref",
    "crs",
    "albers_conical_equal_area",
    "azimuthal_equidistant",
    "geostationary",
    "lambert_azimuthal_equal_area",
    "lambert_conformal_conic",
    "lambert_cylindrical_equal_area",
    "latitude_longitude",
    "mercator",
    "oblique_mercator",
    "orthographic",
    "polar_stereographic",
    "rotated_latitude_longitude",
    "sinusoidal",
    "stereographic",
    "transverse_mercator",
    "vertical_perspective",
)
"""What grid mappings are called: by GDAL and rioxarray, else as CF does (appendix F)."""


@dataclass(frozen=True)
class _Place:
    """The position of a group's pixels.

    Attributes
    ----------
    y, x
        Dimensions of rows and columns.
    shape
        Number of rows and columns.
    transform
        From columns and rows to coordinates: ``x = a column + b row + c, y = d column + e row + f``
        in this order.
    wkt
        The coordinate reference system; empty if it is not known.
    """

    y: str
    x: str
    shape: tuple[int, int]
    transform: tuple[float, ...]
    wkt: str

    @property
    def bbox(self) -> list[float]:
        """The least and greatest coordinates of the outer corners: x, y, x, y."""
        a, b, c, d, e, f = self.transform
        corners = [(column, row) for column in (0, self.shape[1]) for row in (0, self.shape[0])]
        xs = [a * column + b * row + c for column, row in corners]
        ys = [d * column + e * row + f for column, row in corners]
        return [min(xs), min(ys), max(xs), max(ys)]

    def attributes(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes of a group or array, and what the conventions say."""
        from zarr_cm import proj, spatial

        made = spatial.create(
            dimensions=[self.y, self.x],
            bbox=self.bbox,
            transform_type="affine",
            transform=list(self.transform),
            shape=list(self.shape),
            registration="pixel",
        )
        shown = spatial.insert(dict(attrs), made, overwrite=True)
        if self.wkt:
            code = authority_code(self.wkt)
            named = None if code is None else ":".join(code)
            made = proj.create(code=named, wkt2=None if named else self.wkt)
            shown = proj.insert(shown, made, overwrite=True)
        return shown


def with_conventions(group: VirtualGroup, read: Read) -> VirtualGroup:
    """Add the attributes of Zarr conventions to the georeferenced parts of a group.

    A part is georeferenced if its arrays have a grid mapping with a ``GeoTransform``, called as
    GDAL, rioxarray or CF do. Levels of a pyramid say it in the ``multiscales`` attribute, too.

    Parameters
    ----------
    read
        Reads labels of rows and columns, when an attribute is first looked at.
    """
    parts = {
        path: _Part(part, *plane, read) for path, part in group.walk() if (plane := _plane_of(part))
    }
    return _described(group, parts, "") if parts else group


class _Attributes(Mapping[str, Any]):
    """Attributes that are made when they are first looked at."""

    def __init__(self, make: Callable[[], Mapping[str, Any]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> Mapping[str, Any]:
        return self._make()

    def __getitem__(self, name: str) -> Any:
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


type _Parts = Mapping[str, _Part]
"""The georeferenced groups by path."""


def _described(group: VirtualGroup, parts: _Parts, path: str) -> VirtualGroup:
    head = f"{path}/" if path else ""
    groups = {name: _described(each, parts, head + name) for name, each in group.groups.items()}
    part = parts.get(path)
    if part is None and "multiscales" not in group.attrs:
        return group.with_changes(groups=groups)
    arrays = group.arrays if part is None else LazyArrays(group.arrays, part.described)
    attrs = _Attributes(partial(_attributes, group.attrs, parts, path))
    return group.with_changes(attrs=attrs, arrays=arrays, groups=groups)


def _attributes(attrs: Mapping[str, Any], parts: _Parts, path: str) -> Mapping[str, Any]:
    """Those of a group, and what the conventions say."""
    if path in parts:
        attrs = parts[path].attributes(attrs)
    if isinstance(attrs.get("multiscales"), Mapping):
        attrs = {**attrs, "multiscales": _placed_levels(attrs["multiscales"], parts, path)}
    return attrs


def _placed_levels(pyramid: Mapping[str, Any], parts: _Parts, path: str) -> dict[str, Any]:
    """The entry of each level, with the position of its pixels."""
    levels = []
    for level in pyramid.get("layout", []):
        below = str(level.get("asset", "")).rpartition("/")[0]
        part = parts.get("/".join(filter(None, (path, below))))
        place = None if part is None else part.place
        placed = (
            {}
            if place is None
            else {
                "spatial:shape": list(place.shape),
                "spatial:transform": list(place.transform),
            }
        )
        levels.append({**level, **placed})
    return {**pyramid, "layout": levels}


def _plane_of(group: VirtualGroup) -> tuple[VirtualArray, VirtualArray] | None:
    """The first grid mapping with a ``GeoTransform``, and an array that names it; None without.

    Arrays of a catalog are made when they are asked for: only a group with a grid mapping, which
    its name tells, is looked at.
    """
    for name in _MAPPINGS:
        if name in group.arrays and geotransform(group.arrays[name].attrs) is not None:
            for array in group.arrays.values():
                if text_of(array.attrs, "grid_mapping") == name and array.ndim >= 2:
                    return group.arrays[name], array
    return None


class _Part:
    """A georeferenced group, by a grid mapping and an array whose rows and columns it is for."""

    def __init__(
        self, group: VirtualGroup, mapping: VirtualArray, array: VirtualArray, read: Read
    ) -> None:
        self._arrays, self._mapping, self._read = group.arrays, mapping.attrs, read
        self._dims, self._shape = array.dims[-2:], array.shape[-2:]

    @cached_property
    def place(self) -> _Place | None:
        """The position of its pixels; None where rows or columns are not evenly spaced."""
        numbers = geotransform(self._mapping)
        assert numbers is not None
        x0, a, b, y0, d, e = numbers  # GDAL's order
        (y, x), (rows, columns) = self._dims, self._shape
        ways = [direction(self._arrays[dim].attrs) for dim in self._dims if dim in self._arrays]
        if ways == ["x", "y"]:
            return None  # transposed: rows are columns of the transform
        if not b and not d:
            along_x = _along(self._arrays.get(x), (x0, a), self._read)
            along_y = _along(self._arrays.get(y), (y0, e), self._read)
            if along_x is None or along_y is None:
                return None
            (x0, a), (y0, e) = along_x, along_y
        return _Place(y, x, (rows, columns), (a, b, x0, d, e, y0), wkt_of(self._mapping))

    def attributes(self, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Attributes of the group or an array, and what the conventions say."""
        return attrs if self.place is None else self.place.attributes(attrs)

    def described(self, name: str) -> VirtualArray:
        """An array with its attributes, if it has rows and columns."""
        array = self._arrays[name]
        if array.dims[-2:] != self._dims:
            return array
        return array.with_changes(attrs=self.attributes(array.attrs))


_SAME_PIXEL = 0.25
"""How far, in pixels, labels may be off a transform that means the same pixels."""
_CUT_PIXEL = 0.5
"""The same of the last label: of an overview, it is the middle of a cut pixel."""
_EVEN = 0.05
"""How far, in pixels, evenly spaced labels may be off their places, by rounding."""
_UNITS = ("", "m", "metre", "metres", "meter", "meters", "1")


def _along(
    labels: VirtualArray | None, stated: tuple[float, float], read: Read
) -> tuple[float, float] | None:
    """Where the first pixel of an axis begins, and the step to the next; None if it is uneven.

    It is what is stated, if no label says another. Packed labels are not looked at, nor those in
    other units than a transform.
    """
    units = "" if labels is None else text_of(labels.attrs, "units")
    is_plain = units in _UNITS or units.startswith("degree")
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iuf" or not is_plain:
        return stated
    n_labels = labels.shape[0]
    if not n_labels or is_scaled(labels.attrs):
        return stated
    places = np.unique(np.clip([0, 1, n_labels - 2, n_labels - 1], 0, n_labels - 1))
    try:
        ends = read(labels, (places,)).astype(np.float64)
    except GridrefError:
        return stated  # a read of the array raises the error
    begin, step = stated
    off = np.abs(ends - (begin + (places + 0.5) * step)) / abs(step or 1.0)
    if (off[:-1] <= _SAME_PIXEL).all() and off[-1] <= _CUT_PIXEL:
        return stated
    if n_labels > 1:
        whole = -2 if n_labels > 2 else -1  # the last of an overview may be of a cut pixel
        step = (ends[whole] - ends[0]) / places[whole]
    off = np.abs(ends - (ends[0] + places * step))
    is_even = (off[:-1] <= _EVEN * abs(step)).all() and off[-1] <= _CUT_PIXEL * abs(step)
    return (float(ends[0] - 0.5 * step), float(step)) if is_even and step else None
