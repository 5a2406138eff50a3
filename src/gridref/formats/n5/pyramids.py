"""Find the levels of N5 pyramids and the sizes of their voxels, as different writers state them.

There is no standard. Two conventions are read:

- the attribute ``multiscales`` of the group, with a ``transform`` for each dataset (COSEM,
  OpenOrganelle). Its axes are in the order of numpy, the slowest one first, unless ``ordering``
  is ``"F"``;
- datasets ``s0``, ``s1`` and so on with ``downsamplingFactors``, which may be on the group, and
  ``pixelResolution`` or ``resolution`` of the group or of ``s0`` (n5-viewer, Paintera,
  BigDataViewer). A coarse voxel covers those that it stands for: its centre is moved by
  ``(factor - 1) / 2`` voxels of ``s0``.

Both become the attribute ``ome`` of OME-Zarr 0.5.
Sources: https://github.com/janelia-cosem/schemas, https://github.com/saalfeldlab/n5-viewer,
https://github.com/saalfeldlab/paintera, https://ngff.openmicroscopy.org/0.5/.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gridref.model.array import VirtualArray
from gridref.model.ome_zarr import Placement, placed_image_attributes

type Numbers = tuple[float, ...]

_SPACE = ("x", "y", "z")
_SIZES = ("pixelResolution", "resolution")
_FACTORS = ("downsamplingFactors", "scales")


@dataclass(frozen=True)
class _Placed:
    """Where a level is: its axes, voxel size, centre of the first voxel, and unit of each axis."""

    axes: tuple[str, ...]
    scale: Numbers
    translation: Numbers
    units: tuple[str, ...]


# What attributes say


def _numbers(value: Any, n: int | None = None) -> Numbers | None:
    """Finite numbers of a list, so many; None if there are none."""
    if not isinstance(value, list) or not value or n not in (None, len(value)):
        return None
    if not all(type(each) in (int, float) and math.isfinite(each) for each in value):
        return None
    return tuple(map(float, value))


def _texts(value: Any, n: int) -> tuple[str, ...] | None:
    if isinstance(value, list) and len(value) == n and all(isinstance(v, str) for v in value):
        return tuple(value)
    return None


def _size(attrs: Mapping[str, Any], n: int) -> tuple[Numbers, tuple[str, ...]] | None:
    """Size of a voxel, and its units."""
    for name in _SIZES:
        value: Any = attrs.get(name)
        unit: Any = attrs.get("units")
        if isinstance(value, Mapping):
            value, unit = value.get("dimensions"), value.get("unit")
        size = _numbers(value, n)
        if size is not None and min(size) > 0:
            units = _texts(unit, n) or ((unit if isinstance(unit, str) else "",) * n)
            return size, units
    return None


def _transform(value: Any) -> _Placed | None:
    """A transform of COSEM, in the order of the dataset's dimensions."""
    if not isinstance(value, Mapping):
        return None
    scale = _numbers(value.get("scale"))
    if scale is None or min(scale) <= 0:
        return None
    n = len(scale)
    axes, units = _texts(value.get("axes"), n), _texts(value.get("units"), n)
    translation = _numbers(value.get("translate"), n)
    if axes is None or units is None or translation is None or len(set(axes)) < n:
        return None
    order = 1 if value.get("ordering") == "F" else -1
    return _Placed(axes[::order], scale[::order], translation[::order], units[::order])


def _multiscales(attrs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = attrs.get("multiscales")
    entries = listed if isinstance(listed, list) else []
    return [entry for entry in entries if isinstance(entry, Mapping) and _paths(entry)]


def _paths(entry: Mapping[str, Any]) -> list[str]:
    """Paths of the datasets that an entry of ``multiscales`` lists."""
    datasets = entry.get("datasets")
    if not isinstance(datasets, list) or not all(isinstance(each, Mapping) for each in datasets):
        return []
    paths = [each.get("path") for each in datasets]
    return [path for path in paths if isinstance(path, str)] if all(paths) else []


def named_datasets(attrs: Mapping[str, Any]) -> list[str]:
    """Names of datasets in a group that its attributes state."""
    listed = [path for entry in _multiscales(attrs) for path in _paths(entry)]
    names = [path for path in listed if path and "/" not in path and path not in (".", "..")]
    if names:
        return list(dict.fromkeys(names))
    factors = _listed_factors(attrs)
    nested = bool(factors) and all(isinstance(each, list) for each in factors)
    return [f"s{level}" for level in range(len(factors))] if nested else []


def _listed_factors(attrs: Mapping[str, Any]) -> list[Any]:
    """Downsampling factors of all levels, as attributes of a group list them."""
    lists = (attrs[name] for name in _FACTORS if isinstance(attrs.get(name), list))
    return next(lists, [])


def axis_names(
    attrs: Mapping[str, Any], above: Mapping[str, Any], ndim: int
) -> tuple[str, ...] | None:
    """Names of a dataset's dimensions, from its attributes and those of its group.

    Writers of voxel sizes mean x, y and z, in this order. None if nothing says what they are.
    """
    axes = _texts(attrs.get("axes"), ndim)
    if axes is not None and len(set(axes)) == ndim and all(axes):
        return axes
    placed = _transform(attrs.get("transform"))
    if placed is not None and len(placed.axes) == ndim:
        return placed.axes
    sized = any(name in each for name in (*_SIZES, *_FACTORS) for each in (attrs, above))
    return _SPACE if sized and ndim == len(_SPACE) else None


# Levels


def pyramid_attributes(
    name: str,
    attrs: Mapping[str, Any],
    levels: Mapping[str, Mapping[str, Any]],
    arrays: Mapping[str, VirtualArray],
) -> dict[str, Any]:
    """The attributes of OME-Zarr for a group.

    Parameters
    ----------
    levels
        Attributes of its datasets.
    arrays
        The datasets.

    Returns
    -------
    dict
        Empty if they are no pyramid, or if nothing says how large their voxels are.
    """
    if "ome" in attrs:
        return {}
    images = []
    for entry in _multiscales(attrs):
        named = {str(each["path"]): _transform(each.get("transform")) for each in entry["datasets"]}
        images += _image(str(entry.get("name") or name), named, arrays)
    if not images:
        images = _image(name, _by_factors(attrs, levels, arrays), arrays)
    return {"ome": {"version": "0.5", "multiscales": images}} if images else {}


def _by_factors(
    attrs: Mapping[str, Any],
    levels: Mapping[str, Mapping[str, Any]],
    arrays: Mapping[str, VirtualArray],
) -> dict[str, _Placed | None]:
    """The places of ``s0``, ``s1`` and so on; none if their sizes contradict each other."""
    names = list(itertools.takewhile(levels.__contains__, map("s{}".format, itertools.count())))
    if not names:
        return {}
    n = arrays["s0"].ndim
    stated = _size(attrs, n) or _size(levels["s0"], n)
    offset = _numbers(attrs.get("offset"), n) or (0.0,) * n
    if stated is None:
        return {}
    size, units = stated
    listed = _listed_factors(attrs)
    placed: dict[str, _Placed | None] = {}
    for number, name in enumerate(names):
        above = listed[number] if len(listed) == len(names) else None
        factors = _numbers(levels[name].get("downsamplingFactors"), n) or _numbers(above, n)
        if factors is None and number == 0:
            factors = (1.0,) * n
        if factors is None or min(factors) <= 0:
            return {}
        scale = tuple(map(float.__mul__, size, factors))
        own = _size(levels[name], n)
        if own is not None and own[0] not in (size, scale):
            return {}
        moved = [o + s * (f - 1) / 2 for o, s, f in zip(offset, size, factors, strict=True)]
        placed[name] = _Placed(arrays[name].dims, scale, tuple(moved), units)
    return placed


def _image(
    name: str, placed: Mapping[str, _Placed | None], arrays: Mapping[str, VirtualArray]
) -> list[dict[str, Any]]:
    """An entry of OME-Zarr's ``multiscales``; none if it cannot describe the levels."""
    if not placed or not all(path in arrays for path in placed):
        return []
    shapes = [arrays[path].shape for path in placed]
    first = next(iter(placed.values()))
    if first is None or any(len(shape) != len(first.axes) or 0 in shape for shape in shapes):
        return []
    levels = {}
    for path, level in placed.items():
        if level is None or level.units != first.units or len(level.axes) != len(first.axes):
            return []
        levels[path] = Placement(level.scale, level.translation)
    units = dict(zip(first.axes, first.units, strict=True))
    made = placed_image_attributes(name, levels, first.axes, units)
    return [] if made is None else [*made["ome"]["multiscales"]]
