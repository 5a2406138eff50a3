"""Describe the position of georeferenced groups in Zarr conventions.

Input is a group whose arrays have a CF grid mapping with a ``GeoTransform``. Output is the same
group with the attributes of the conventions added.

Sources: the Zarr conventions "proj", "spatial" and "multiscales" v0.1
(https://github.com/zarr-conventions), made by the package ``zarr-cm``; GDAL's ``GeoTransform``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gridref.model.array import VirtualGroup
from gridref.model.conventions import authority_code, geotransform, text_of, wkt_of

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


def with_conventions(group: VirtualGroup) -> VirtualGroup:
    """Add the attributes of Zarr conventions to the georeferenced parts of a group.

    A part is georeferenced if its arrays have a grid mapping with a ``GeoTransform``, called as
    GDAL, rioxarray or CF do. Levels of a pyramid say it in the ``multiscales`` attribute, too.
    """
    if not any(_place_of(part) for _, part in group.walk()):
        return group
    return _described(group)


def _described(group: VirtualGroup) -> VirtualGroup:
    groups = {name: _described(below) for name, below in group.groups.items()}
    attrs, arrays = dict(group.attrs), dict(group.arrays)
    place = _place_of(group)
    if place is not None:
        attrs = place.attributes(attrs)
        for name, array in group.arrays.items():
            if array.dims[-2:] == (place.y, place.x):
                arrays[name] = array.with_changes(attrs=place.attributes(array.attrs))
    if isinstance(attrs.get("multiscales"), Mapping):
        attrs["multiscales"] = _placed_levels(attrs["multiscales"], group)
    return group.with_changes(attrs=attrs, arrays=arrays, groups=groups)


def _placed_levels(pyramid: Mapping[str, Any], group: VirtualGroup) -> dict[str, Any]:
    """The entry of each level, with the position of its pixels."""
    levels = []
    for level in pyramid.get("layout", []):
        path = str(level.get("asset", "")).rpartition("/")[0]
        part = group.groups.get(path) if path else group
        place = None if part is None else _place_of(part)
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


def _place_of(group: VirtualGroup) -> _Place | None:
    """The position of a group's arrays; None if nothing gives it.

    Arrays of a catalog are made when they are asked for: only a group with a grid mapping, which
    its name tells, is looked at.
    """
    for name in _MAPPINGS:
        numbers = geotransform(group.arrays[name].attrs) if name in group.arrays else None
        if numbers is None:
            continue
        mapping = group.arrays[name].attrs
        for array in group.arrays.values():
            if text_of(array.attrs, "grid_mapping") == name and array.ndim >= 2:
                x0, a, b, y0, d, e = numbers  # GDAL's order
                (y, x), (rows, columns) = array.dims[-2:], array.shape[-2:]
                return _Place(y, x, (rows, columns), (a, b, x0, d, e, y0), wkt_of(mapping))
    return None
