"""Describe the position of georeferenced groups in Zarr conventions.

Input is a group whose arrays have a CF grid mapping with a ``GeoTransform``. Output is the same
group with the attributes of the conventions added.

Sources: the Zarr conventions "proj", "spatial" and "multiscales" v0.1
(https://github.com/zarr-conventions), made by the package ``zarr-cm``; GDAL's ``GeoTransform``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import GridrefError
from gridref.model.array import LazyArrays, VirtualArray, VirtualGroup, path_in
from gridref.model.conventions import (
    METRES,
    authority_code,
    direction,
    grid_mapping_of,
    is_scaled,
    text_of,
    wkt_of,
)
from gridref.model.pixels import EVEN, SAME_PIXEL, Affine, PixelAxis

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
    affine
        From columns and rows to coordinates.
    wkt
        The coordinate reference system; empty if it is not known.
    """

    y: str
    x: str
    shape: tuple[int, int]
    affine: Affine
    wkt: str

    @property
    def transform(self) -> list[float]:
        """``x = a column + b row + c, y = d column + e row + f`` in this order."""
        at = self.affine
        return [at.dx_col, at.dx_row, at.x0, at.dy_col, at.dy_row, at.y0]

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
            transform=self.transform,
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
    groups = {
        name: _described(each, parts, path_in(path, name)) for name, each in group.groups.items()
    }
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
                "spatial:transform": place.transform,
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
        if name in group.arrays and Affine.of(group.arrays[name].attrs) is not None:
            for array in group.arrays.values():
                if grid_mapping_of(array.attrs) == name and array.ndim >= 2:
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
        affine = Affine.of(self._mapping)
        assert affine is not None
        (y, x), (rows, columns) = self._dims, self._shape
        ways = [direction(self._arrays[dim].attrs) for dim in self._dims if dim in self._arrays]
        if ways == ["x", "y"]:
            return None  # transposed: rows are columns of the transform
        if affine.is_rectilinear:
            along_x = _along(self._arrays.get(x), affine.x, self._read)
            along_y = _along(self._arrays.get(y), affine.y, self._read)
            if along_x is None or along_y is None:
                return None
            affine = Affine.along(along_x, along_y)
        return _Place(y, x, (rows, columns), affine, wkt_of(self._mapping))

    def attributes(self, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Attributes of the group or an array, and what the conventions say."""
        return attrs if self.place is None else self.place.attributes(attrs)

    def described(self, name: str) -> VirtualArray:
        """An array with its attributes, if it has rows and columns."""
        array = self._arrays[name]
        if array.dims[-2:] != self._dims:
            return array
        return array.with_changes(attrs=self.attributes(array.attrs))


_CUT_PIXEL = 0.5
"""How far, in pixels, the last label may be off: of an overview, it may be of a cut pixel."""


def _along(labels: VirtualArray | None, stated: PixelAxis, read: Read) -> PixelAxis | None:
    """The pixels of an axis as stated, or as its labels say; None if these are not evenly spaced.

    Packed labels are not looked at, nor those in other units than a transform.
    """
    units = "" if labels is None else text_of(labels.attrs, "units")
    is_plain = units in ("", "1") or METRES.get(units) == 1 or units.startswith("degree")
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
    off = stated.off(ends, places)
    if (off[:-1] <= SAME_PIXEL).all() and off[-1] <= _CUT_PIXEL:
        return stated
    if n_labels > 1:
        found = PixelAxis.through(ends, places, whole=-2 if n_labels > 2 else -1)
    else:
        found = replace(stated, begin=float(ends[0] - 0.5 * stated.step))
    off = found.off(ends, places)
    is_even = (off[:-1] <= EVEN).all() and off[-1] <= _CUT_PIXEL
    return found if is_even and found.step else None
