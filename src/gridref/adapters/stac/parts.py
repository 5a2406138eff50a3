"""The groups of a catalog that a STAC document describes, with names that are paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from gridref.adapters.stac.axes import Axis, axes_of
from gridref.adapters.stac.space import Space, space_of
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.workflows.decoding import refusing_attributes

__all__ = ["Part", "parts_of", "space_of_all"]


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
        Where it lies.
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
    """Where the first of them that lies anywhere does, in a box that holds all."""
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
