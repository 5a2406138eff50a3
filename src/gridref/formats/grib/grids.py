"""Make dimensions and coordinates of the grids of GRIB files.

Latitudes and longitudes along axes are kept as values. Those of each point of a projection follow
from the grid section, which is kept as the one chunk of both arrays: ``gridref.grib_places``
computes them when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gridref.codecs.grib import PLACES
from gridref.codecs.grib_grids import DEGREES, Grid, GridError, UnknownGridError, read_grid
from gridref.errors import UnsupportedFeatureError
from gridref.learned import FORMS
from gridref.limits import beyond, limits
from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec, shared_encoding
from gridref.model.manifest import ChunkManifest

GRID_MAPPING = "spatial_ref"
_CELLS = ("values",)
_LATITUDE = {
    "units": "degrees_north",
    "standard_name": "latitude",
    "long_name": "latitude",
}
_LONGITUDE = {
    "units": "degrees_east",
    "standard_name": "longitude",
    "long_name": "longitude",
}
_ZERO = VirtualArray.from_numpy(np.array(0), ())


@dataclass(frozen=True)
class GridArrays:
    """What a grid gives to the groups that have it.

    Attributes
    ----------
    key
        Equal for grids whose points are at the same places.
    dims, shape
        Dimensions of a field, named as cfgrib does.
    arrays
        Coordinate variables and the grid mapping.
    attrs
        Attributes of variables on it.
    """

    key: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    arrays: Mapping[str, VirtualArray]
    attrs: Mapping[str, Any]


def grid_arrays(section: bytes, edition: int) -> GridArrays:
    """Describe the grid of a section."""
    key = grid_arrays, section, edition
    known: GridArrays | None = FORMS.get(key)
    if known is not None:
        return known
    try:
        found = _made(read_grid(section, edition), section, edition)
    except UnknownGridError as error:
        raise UnsupportedFeatureError(str(error)) from error
    except GridError as error:
        raise UnsupportedFeatureError(f"its grid is damaged: {error}") from error
    n_bytes = sum(array.nbytes for array in found.arrays.values() if array.ndim == 1)
    FORMS.put(key, found, 20_000 + len(section) + n_bytes)
    return found


def _made(grid: Grid, section: bytes, edition: int) -> GridArrays:
    if 4 * grid.n_points > limits().decoded_bytes:
        raise UnsupportedFeatureError(
            beyond("decoded_bytes", f"its grid of {grid.n_points} points has more bytes")
        )
    attrs: dict[str, Any] = {"GRIB_gridType": grid.kind, "GRIB_numberOfPoints": grid.n_points}
    if not grid.has_places:
        return GridArrays(repr((section, edition)), _CELLS, grid.shape, {}, attrs)
    arrays: dict[str, VirtualArray] = {}
    if grid.kind in DEGREES:
        dims: tuple[str, ...] = ("latitude", "longitude")
        for dim, values, about in zip(dims, grid.axes(), (_LATITUDE, _LONGITUDE), strict=True):
            arrays[dim] = VirtualArray.from_numpy(values, (dim,), about)
    else:
        if len(grid.shape) == 1:
            dims = _CELLS
        else:
            dims = ("y", "x")
            names = ("Y", "X")
            of_axes = _axis(grid)
            for dim, values, letter in zip(dims, grid.axes(), names, strict=True):
                arrays[dim] = VirtualArray.from_numpy(values, (dim,), of_axes[letter])
        for name, about_place in (("latitude", _LATITUDE), ("longitude", _LONGITUDE)):
            arrays[name] = _computed(name, grid, section, edition, dims, about_place)
    arrays[GRID_MAPPING] = _ZERO.with_changes(attrs=_mapping(grid))
    attrs["grid_mapping"] = GRID_MAPPING
    return GridArrays(_key(grid), dims, grid.shape, arrays, attrs)


def _key(grid: Grid) -> str:
    """The editions state other radii of the Earth, which move no point along parallels."""
    of_degrees = not grid.projection
    return repr(replace(grid, axes_of_earth=(0.0, 0.0)) if of_degrees else grid)


def _computed(
    name: str,
    grid: Grid,
    section: bytes,
    edition: int,
    dims: tuple[str, ...],
    attrs: Mapping[str, Any],
) -> VirtualArray:
    dtype = np.dtype("f8")
    codec = Codec.of(PLACES, coordinate=name, edition=edition)
    return VirtualArray.of_one_block(
        grid.shape,
        dtype,
        encoding=shared_encoding(grid.shape, dtype, (codec,)),
        manifest=ChunkManifest.from_inline([section]),
        dims=dims,
        attrs=attrs,
    )


def _axis(grid: Grid) -> dict[str, dict[str, str]]:
    if grid.kind.startswith("rotated"):
        return {
            letter: {"axis": letter, "units": "degrees", "standard_name": f"grid_{name}"}
            for letter, name in (("Y", "latitude"), ("X", "longitude"))
        }
    return {
        letter: {
            "axis": letter,
            "units": "m",
            "standard_name": f"projection_{letter.lower()}_coordinate",
        }
        for letter in "YX"
    }


def _mapping(grid: Grid) -> dict[str, Any]:
    """CF attributes of the reference system."""
    import pyproj
    from pyproj.exceptions import CRSError

    try:
        attributes = pyproj.CRS.from_dict(grid.crs_parameters()).to_cf()
    except CRSError as error:
        raise UnsupportedFeatureError(f"its grid has no reference system: {error}") from error
    attributes["spatial_ref"] = attributes["crs_wkt"]
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in attributes.items()
    }
