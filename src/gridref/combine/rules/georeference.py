"""Keep the ``GeoTransform`` of a grid mapping true where its pixels were joined or selected from.

Labels say where pixels are. If they are on pixels of the grid that a transform states, but not on
its first ones, the transform is moved there. If they are not evenly spaced, there is none.

GDAL writes the rows of NetCDF files from south to north under a transform that goes the other way,
and reads them so. Labels in the reverse order therefore count as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.model.array import VirtualArray
from gridref.model.conventions import direction, geotransform, text_of

_SAME_PIXEL = 0.25
"""How far, in pixels, labels may be off the middles of pixels."""


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
        numbers = geotransform(mapping.attrs)
        if numbers is None:
            continue
        x0, dx, skew_x, y0, skew_y, dy = numbers
        if skew_x or skew_y or not dx or not dy:
            continue
        named = [a.dims for a in arrays.values() if text_of(a.attrs, "grid_mapping") == name]
        dims = [dim for dim in dict.fromkeys(chain(*named)) if dim in arrays]
        ways = {direction(arrays[dim].attrs): dim for dim in reversed(dims)}
        x, y = (labels_of(ways[way]) if way in ways else None for way in "xy")
        along_x, along_y = _moved((x0, dx), x), _moved((y0, dy), y)
        if (along_x, along_y) == ((x0, dx), (y0, dy)):
            continue
        attrs = {key: value for key, value in mapping.attrs.items() if key != "GeoTransform"}
        if along_x is not None and along_y is not None:
            numbers = (*along_x, 0, along_y[0], 0, along_y[1])
            text = " ".join(repr(float(number)) for number in numbers)
            attrs = {**mapping.attrs, "GeoTransform": text}
        result[name] = mapping.with_changes(attrs=attrs)
    return result


def _moved(stated: tuple[float, float], labels: NDArray[Any] | None) -> tuple[float, float] | None:
    """Where the first pixel of an axis begins, and the step to the next; None if it is uneven."""
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iuf" or not labels.size:
        return stated
    begin, step = stated
    places = (labels.astype(np.float64) - begin) / step - 0.5
    pixels = np.rint(places)
    apart = np.abs(np.diff(places))
    on_pixels = np.abs(places - pixels) <= _SAME_PIXEL
    if not on_pixels.all() or ((apart > 0) & (apart < 0.5)).any():
        return stated  # of another grid, or in other units
    pixels = pixels if pixels[-1] >= pixels[0] else pixels[::-1]
    factor = 1.0 if labels.size == 1 else (pixels[-1] - pixels[0]) / (labels.size - 1)
    if factor < 1 or (pixels != pixels[0] + factor * np.arange(labels.size)).any():
        return None
    if factor == 1 and pixels[0] == 0:
        return stated
    return float(begin + (pixels[0] - (factor - 1) / 2) * step), float(factor * step)
