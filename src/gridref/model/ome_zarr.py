"""Attributes that describe images: OME-Zarr 0.5 of microscopy, and georeferenced pyramids.

Sources: OME-NGFF 0.5, "multiscales", "omero", "plate" and "well"
(https://ngff.openmicroscopy.org/0.5/); the Zarr convention "multiscales" v0.1, which GeoZarr uses
(https://github.com/zarr-conventions/multiscales).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

VERSION = "0.5"

_AXIS_TYPES = {
    "t": "time",
    "time": "time",
    "c": "channel",
    "channel": "channel",
    "sample": "channel",
    "z": "space",
    "y": "space",
    "x": "space",
}
_PLACES = {"time": 0, "channel": 1, "space": 2}
_UNITS = {"m": "meter", "s": "second"}
_PREFIXES = {"": "", "k": "kilo", "c": "centi", "m": "milli", "n": "nano", "p": "pico"}
_PREFIXES |= dict.fromkeys(("u", "µ", "μ"), "micro")  # the sign, and the Greek letter
_COLORS = ("FF0000", "00FF00", "0000FF", "FF00FF", "00FFFF", "FFFF00")


@dataclass(frozen=True)
class Channel:
    """A channel of an image: its name, and its color as six hexadecimal digits if it has one."""

    label: str
    color: str | None = None


def axis_type(dim: str) -> str | None:
    """OME-Zarr's type for an axis of that name; None if the name implies none."""
    return _AXIS_TYPES.get(dim)


def axes_order(dims: Sequence[str]) -> tuple[int, ...]:
    """The order that brings axes into OME-Zarr's order: time, channels, z, y and x.

    The given order, if OME-Zarr cannot describe the axes in any order.
    """
    kinds = [_AXIS_TYPES.get(dim) for dim in dims]
    as_it_is = tuple(range(len(dims)))
    if None in kinds or max(kinds.count("time"), kinds.count("channel")) > 1:
        return as_it_is
    space = ("z", "y", "x")
    return tuple(
        sorted(
            as_it_is,
            key=lambda axis: (
                _PLACES[str(kinds[axis])],
                space.index(dims[axis]) if dims[axis] in space else 0,
            ),
        )
    )


def image_attributes(
    name: str,
    paths: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    dims: Sequence[str],
    pixel_sizes: Mapping[str, tuple[float, str]],
) -> dict[str, Any] | None:
    """The attributes of the group of an image about its arrays.

    Parameters
    ----------
    paths
        Path of each level's array below the group, the finest first.
    dims
        Dimension names of the finest level.
    pixel_sizes
        Physical size of a pixel and its unit by dimension name.

    Returns
    -------
    dict or None
        None if OME-Zarr cannot describe the axes. It can describe at most one of time, then at most
        one other, then two or three of space.
    """
    base = [pixel_sizes.get(dim, (1.0, ""))[0] for dim in dims]
    placed = {
        path: Placement(
            [
                size * fine / coarse
                for size, fine, coarse in zip(base, shapes[0], shape, strict=True)
            ]
        )
        for path, shape in zip(paths, shapes, strict=True)
    }
    units = {dim: unit for dim, (_, unit) in pixel_sizes.items()}
    return placed_image_attributes(name, placed, dims, units)


@dataclass(frozen=True)
class Placement:
    """Where the pixels of a level are: their size, and the centre of the first one if it is stated.

    Attributes
    ----------
    scale, translation
        Along each axis.
    """

    scale: Sequence[float]
    translation: Sequence[float] | None = None

    def to_json(self) -> list[dict[str, Any]]:
        """The ``coordinateTransformations``."""
        moved = self.translation
        further = [] if moved is None else [{"type": "translation", "translation": list(moved)}]
        return [{"type": "scale", "scale": list(self.scale)}, *further]


def placed_image_attributes(
    name: str, levels: Mapping[str, Placement], dims: Sequence[str], units: Mapping[str, str]
) -> dict[str, Any] | None:
    """As `image_attributes`, of levels whose places are known.

    Parameters
    ----------
    levels
        By the path of each level's array below the group, the finest first.
    dims
        Dimension names of the finest level.
    units
        Units of the places by dimension name.
    """
    kinds = [_AXIS_TYPES.get(dim, "") for dim in dims]
    space = kinds.count("space")
    others = [kind for kind in kinds if kind != "space"]
    if space not in (2, 3) or kinds[-space:] != ["space"] * space:
        return None
    if len(others) > 2 or "time" in others[1:] or (len(others) == 2 and others[0] != "time"):
        return None
    axes = []
    for dim, kind in zip(dims, kinds, strict=True):
        axis = {"name": dim} | ({"type": kind} if kind else {})
        if units.get(dim):
            axis["unit"] = _unit(units[dim])
        axes.append(axis)
    datasets = [
        {"path": path, "coordinateTransformations": level.to_json()}
        for path, level in levels.items()
    ]
    multiscale = {"name": name or "image", "axes": axes, "datasets": datasets}
    return {"ome": {"version": VERSION, "multiscales": [multiscale]}}


def with_coarser_levels(
    attrs: Mapping[str, Any], path: str, windows: Mapping[str, Sequence[int]]
) -> Mapping[str, Any]:
    """Attributes of a group whose image has further levels, made of windows of its coarsest one.

    Parameters
    ----------
    attrs
        Those of the group, of OME-Zarr 0.5 or, without ``ome``, of 0.4.
    path
        Path of the array below the group. Images whose last level it is not stay as they are.
    windows
        Lengths of the windows along each dimension, by the path of the level.
    """
    stated = attrs.get("ome", attrs)
    images = stated.get("multiscales") if isinstance(stated, Mapping) else None
    if not isinstance(images, list):
        return attrs
    changed = [_coarser(image, path, windows) for image in images]
    if changed == images:
        return attrs
    own = {**stated, "multiscales": changed}
    return {**attrs, "ome": own} if "ome" in attrs else own


def _coarser(image: Any, path: str, windows: Mapping[str, Sequence[int]]) -> Any:
    """An image with further levels; the same if its last level is another, or has no scale."""
    try:
        last = image["datasets"][-1]
        scale, *moves = last["coordinateTransformations"]
        if last["path"] != path or scale["type"] != "scale":
            return image
        sizes = [float(size) for size in scale["scale"]]
        first = [float(at) for at in moves[0]["translation"]] if moves else [0.0] * len(sizes)
        added = [
            {
                "path": level,
                "coordinateTransformations": Placement(
                    [size * n for size, n in zip(sizes, lengths, strict=True)],
                    # The centre of the first window
                    [
                        at + size * (n - 1) / 2
                        for at, size, n in zip(first, sizes, lengths, strict=True)
                    ],
                ).to_json(),
            }
            for level, lengths in windows.items()
        ]
    except (KeyError, IndexError, TypeError, ValueError):  # attributes may be anything
        return image
    return {**image, "datasets": [*image["datasets"], *added]}


def _unit(unit: str) -> str:
    """The name of a unit that OME-Zarr takes from UDUNITS, for a symbol."""
    prefix, name = _PREFIXES.get(unit[:-1]), _UNITS.get(unit[-1:])
    return unit if prefix is None or name is None else prefix + name


def omero(channels: Sequence[Channel], dtype: np.dtype[Any], bits: int | None = None) -> Any:
    """The attributes that say how to show channels.

    Parameters
    ----------
    dtype
        Of their values.
    bits
        Number of used bits of the values, if the metadata states it.

    Returns
    -------
    dict
        Windows are the range of the values' dtype; floats have none, because their range is
        unknown until they are read.
    """
    entries = []
    for number, channel in enumerate(channels):
        color = "FFFFFF" if len(channels) == 1 else _COLORS[number % len(_COLORS)]
        entry: dict[str, Any] = {
            "label": channel.label,
            "color": channel.color or color,
            "active": True,
        }
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            top = int(info.max) if bits is None else min(int(info.max), 2**bits - 1)
            entry["window"] = {"min": int(info.min), "max": top, "start": int(info.min), "end": top}
        entries.append(entry)
    return {"channels": entries, "rdefs": {"model": "greyscale" if len(entries) == 1 else "color"}}


def plate_attributes(name: str, wells: Sequence[tuple[str, str]], n_fields: int) -> dict[str, Any]:
    """The attributes of the group of a plate about its wells.

    Parameters
    ----------
    wells
        Row and column of each; the group of a well is at ``row/column``.
    n_fields
        Most fields of a well.
    """
    rows = sorted({row for row, _ in wells}, key=lambda row: (len(row), row))
    columns = sorted({column for _, column in wells}, key=lambda column: (len(column), column))
    plate = {
        "version": VERSION,
        "name": name,
        "rows": [{"name": row} for row in rows],
        "columns": [{"name": column} for column in columns],
        "wells": [
            {
                "path": f"{row}/{column}",
                "rowIndex": rows.index(row),
                "columnIndex": columns.index(column),
            }
            for row, column in wells
        ],
        "field_count": n_fields,
    }
    return {"ome": {"version": VERSION, "plate": plate}}


def well_attributes(fields: Sequence[str]) -> dict[str, Any]:
    """The attributes of the group of a well about its fields, by the names of their groups."""
    images = [{"path": field} for field in fields]
    return {"ome": {"version": VERSION, "well": {"version": VERSION, "images": images}}}


# Georeferenced pyramids

CONVENTION = {
    "schema_url": (
        "https://raw.githubusercontent.com/zarr-conventions/multiscales/refs/tags/v0.1/schema.json"
    ),
    "spec_url": "https://github.com/zarr-conventions/multiscales/blob/v0.1/README.md",
    "uuid": "d35379db-88df-4056-af3a-620245f8e347",
    "name": "multiscales",
    "description": "Multiscale layout of zarr datasets",
}


def geo_multiscales(
    paths: Sequence[str], shapes: Sequence[tuple[int, ...]], dims: Sequence[str]
) -> dict[str, Any]:
    """Group attributes of a georeferenced pyramid.

    Parameters
    ----------
    paths
        Path of each level's array below the group, the finest first.
    dims
        Dimension names of the finest level.
    """
    layout: list[dict[str, Any]] = []
    for path, shape in zip(paths, shapes, strict=True):
        ratio = [float(fine / coarse) for fine, coarse in zip(shapes[0], shape, strict=True)]
        level: dict[str, Any] = {"asset": path}
        if layout:
            level["derived_from"] = paths[0]
        level["transform"] = {"scale": ratio, "translation": [0.0] * len(ratio)}
        layout.append(level)
    return {"zarr_conventions": [CONVENTION], "multiscales": {"layout": layout}}
