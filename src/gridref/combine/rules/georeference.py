"""Keep the ``GeoTransform`` of a grid mapping true where its pixels were joined or selected from.

Labels say where pixels are. If they are on pixels of the grid that a transform states, but not on
its first ones, the transform is moved there. If they are not evenly spaced, there is none.

GDAL reads rows from south to north under a transform that goes the other way. Labels in the reverse
order therefore do not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import VirtualArray
from gridref.model.conventions import dims_by_direction, grid_mapping_of
from gridref.model.pixels import SAME_PIXEL, Affine, PixelAxis


def with_moved_transforms(
    arrays: Mapping[str, VirtualArray], labels_of: Callable[[str], NDArray[Any] | None]
) -> dict[str, VirtualArray]:
    """The arrays of a group, grid mappings with the transform that labels say.

    Parameters
    ----------
    labels_of
        Gives the labels of a dimension; None if it has none, or they cannot be had.
    """
    result = dict(arrays)
    for name, mapping in arrays.items():
        stated = Affine.of(mapping.attrs)
        if stated is None or not stated.is_rectilinear or not stated.dx_col or not stated.dy_row:
            continue
        named = [a.dims for a in arrays.values() if grid_mapping_of(a.attrs) == name]
        ways = dims_by_direction(chain(*named), arrays)
        labels = [labels_of(ways[way]) if way in ways else None for way in "xy"]
        x, y = _moved(stated.x, labels[0]), _moved(stated.y, labels[1])
        if x is None or y is None:
            attrs = {key: value for key, value in mapping.attrs.items() if key != "GeoTransform"}
            result[name] = mapping.with_changes(attrs=attrs)
        elif (x, y) != (stated.x, stated.y):
            result[name] = Affine.along(x, y).stated_in(mapping)
    return result


def _moved(stated: PixelAxis, labels: NDArray[Any] | None) -> PixelAxis | None:
    """The pixels of an axis that have these labels; None if they are not evenly spaced."""
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iuf" or not labels.size:
        return stated
    places = stated.pixels(labels.astype(np.float64))
    pixels = np.rint(places)
    apart = np.abs(np.diff(places))
    on_pixels = np.abs(places - pixels) <= SAME_PIXEL
    if not on_pixels.all() or ((apart > 0) & (apart < 0.5)).any():
        return stated  # of another grid, or in other units
    pixels = pixels if pixels[-1] >= pixels[0] else pixels[::-1]
    factor = 1.0 if labels.size == 1 else (pixels[-1] - pixels[0]) / (labels.size - 1)
    if factor < 1 or (pixels != pixels[0] + factor * np.arange(labels.size)).any():
        return None
    if factor == 1 and pixels[0] == 0:
        return stated
    return stated.every(pixels[0], factor)
