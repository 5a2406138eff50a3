"""The levels of arrays of a catalog, as arrays to be read, in groups ``overview_1``, ...

Levels are shown only while they are whole: if any element that one is made of changed, none of the
overview's levels is there, until `overviews` has written what is missing. They are no arrays of the
snapshot: commits, exports and comparisons never see them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gridref.catalog.document import Snapshot
from gridref.catalog.overlays import SheetManifest
from gridref.catalog.overview_entries import OverviewEntry, grid_of
from gridref.catalog.parts import Part
from gridref.catalog.values import attributes_from_json
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.indexing import isel
from gridref.model.levels import group_of_level, level_shape
from gridref.model.missing import MissingValues
from gridref.model.multiscales import CONVENTION
from gridref.model.ome_zarr import with_coarser_levels
from gridref.model.placing import lay_out
from gridref.model.reference_systems import geotransform, text_of

CELL_METHODS = {
    "mean": "mean",
    "min": "minimum",
    "max": "maximum",
    "mode": "mode",
    "nearest": "point",
}
"""What the CF conventions call a method (appendix E)."""
_RESAMPLING = {"mean": "average"}
"""What the convention "multiscales" calls a method, where that is another name."""


@dataclass(frozen=True, eq=False)
class OverviewOpener:
    """Adds the levels of arrays to the groups of a catalog.

    Attributes
    ----------
    snapshot
        The snapshot.
    parts
        The opened tables of each sheet, by its overview and name.
    """

    snapshot: Snapshot
    parts: Mapping[tuple[str, str], Part]

    def added[G: VirtualGroup](self, group: G, path: str = "") -> G:
        """A group of the catalog, and those below it, with the levels that are whole."""
        if not self.snapshot.overviews:
            return group
        groups = {
            name: self.added(below, f"{path}/{name}" if path else name)
            for name, below in group.groups.items()
        }
        mine = [each for each in self.snapshot.overviews if each.array.rpartition("/")[0] == path]
        current = {
            name: each
            for each in mine
            if (name := each.array.rpartition("/")[2]) in group.arrays
            and is_current(each, group.arrays[name])
        }
        images = {name: each for name, each in current.items() if not _labels(group, name)}
        for level in range(1, max((each.n_levels for each in images.values()), default=0) + 1):
            if group_of_level(level) not in groups:
                groups[group_of_level(level)] = self._group(group, images, current, level)
        attrs: Mapping[str, Any] = {**group.attrs, **_multiscales(group, images)}
        for entry in self.snapshot.overviews:
            attrs = _listed_in_ome(attrs, entry, groups, path)
        own: Any = replace(group, groups=groups, attrs=attrs)
        shown: G = own
        return shown

    def _group(
        self,
        group: VirtualGroup,
        images: Mapping[str, OverviewEntry],
        current: Mapping[str, OverviewEntry],
        level: int,
    ) -> VirtualGroup:
        """A level of all arrays of a group that have it, with labels and grid mapping."""
        arrays: dict[str, VirtualArray] = {}
        lengths: dict[str, int] = {}
        for name, entry in images.items():
            if level > entry.n_levels:
                continue
            base = group.arrays[name]
            array = self.level(entry, level, base)
            if any(lengths.setdefault(d, n) != n for d, n in zip(array.dims, array.shape)):  # noqa: B905
                continue
            arrays[name] = array
            for dim, shown, factor in zip(base.dims, array.dims, entry.factors, strict=True):
                labels = group.arrays.get(dim)
                if factor == 1 and labels is not None and labels.dims == (dim,):
                    arrays[dim] = labels
                label = current.get(dim)
                if label is not None and label.factors == (factor,) and level <= label.n_levels:
                    assert labels is not None
                    arrays[shown] = self.level(label, level, labels)
            mapping = text_of(base.attrs, "grid_mapping")
            if mapping in group.arrays:
                windows = entry.windows(level)
                arrays[mapping] = _scaled(group.arrays[mapping], windows)
        return VirtualGroup(arrays)

    def level(self, entry: OverviewEntry, level: int, base: VirtualArray) -> VirtualArray:
        """A level of an array that has all of it."""
        windows = entry.windows(level)
        shape = level_shape(base.shape, windows)
        pieces, corners = [], []
        for cover in entry.level_covers(level, base.shape):
            sheet = entry.sheets[cover.sheet]
            stored = sheet.levels[level - 1]
            whole = VirtualArray.of_one_block(
                level_shape(sheet.shape, windows),
                stored.encoding.dtype,
                encoding=stored.encoding,
                manifest=SheetManifest(
                    self.parts[entry.id, sheet.name],
                    grid_of(stored, sheet, windows).n_chunks,
                    level=entry.paths[level - 1],
                ),
                dims=base.dims,
                fill_value=level_fill(base, stored.encoding.dtype),
            )
            inside = {axis: slice(*along) for axis, along in enumerate(cover.sheet_box)}
            pieces.append(isel(whole, inside))
            corners.append(cover.start)
        dims = tuple(
            f"{dim}_{level}" if factor > 1 else dim
            for dim, factor in zip(base.dims, entry.factors, strict=True)
        )
        attrs = _attributes(base, entry, level, dims)
        array = pieces[0] if len(pieces) == 1 else lay_out(pieces, corners, shape)
        return array.with_changes(dims=dims, attrs=attrs)


def is_current(entry: OverviewEntry, array: VirtualArray) -> bool:
    """Whether an overview has all levels of an array as it is, by the same missing values."""
    return entry.is_whole(array.shape) and entry.missing == MissingValues.of(array).key


def level_fill(array: VirtualArray, dtype: np.dtype[Any]) -> Any:
    """What chunks of a level hold that are not stored."""
    return array.fill_value if array.dtype == dtype else dtype.type(0)


def without_overviews[G: VirtualGroup](group: G, snapshot: Snapshot) -> G:
    """A group of a catalog with the arrays of its snapshot only."""
    if not snapshot.overviews:
        return group
    return _only(group, snapshot.root)


def _only[G: VirtualGroup](group: G, entry: Any) -> G:
    groups = {name: _only(group.groups[name], below) for name, below in entry.groups.items()}
    attrs = attributes_from_json(entry.attrs)
    own: Any = replace(group, groups=groups, attrs=attrs)
    only: G = own
    return only


def _labels(group: VirtualGroup, name: str) -> bool:
    return group.arrays[name].dims == (name,)


def _attributes(
    base: VirtualArray, entry: OverviewEntry, level: int, dims: tuple[str, ...]
) -> dict[str, Any]:
    """Those of the array, with what was done."""
    attrs = dict(base.attrs)
    for name in ("actual_range", "bounds", "coordinates", "DIMENSION_LABELS"):
        attrs.pop(name, None)
    if base.dims == (entry.array.rpartition("/")[2],):
        return attrs
    coarse = [dim for dim, factor in zip(dims, entry.factors, strict=True) if factor > 1]
    method = "".join(f"{dim}: " for dim in coarse) + CELL_METHODS[entry.method]
    attrs["cell_methods"] = f"{text_of(attrs, 'cell_methods')} {method}".strip()
    sizes = "x".join(str(n) for n in entry.windows(level))
    attrs["gridref_overview"] = (
        f"{entry.method} of {sizes} elements of {entry.array}; equal weights, missing values"
        " left out, integers rounded half to even"
    )
    return attrs


def _scaled(mapping: VirtualArray, windows: tuple[int, ...]) -> VirtualArray:
    """A grid mapping whose pixels are so many times larger."""
    numbers = geotransform(mapping.attrs)
    if numbers is None or len(windows) < 2:
        return mapping
    rows, columns = windows[-2:]
    x0, a, b, y0, d, e = numbers
    scaled = (x0, a * columns, b * rows, y0, d * columns, e * rows)
    text = " ".join(repr(float(number)) for number in scaled)
    return mapping.with_changes(attrs={**mapping.attrs, "GeoTransform": text})


def _listed_in_ome(
    attrs: Mapping[str, Any], entry: OverviewEntry, groups: Mapping[str, VirtualGroup], path: str
) -> Mapping[str, Any]:
    """Attributes of a group at a path, whose images of OME-Zarr have the levels that are shown."""
    head = f"{path}/" if path else ""
    if not entry.array.startswith(head):
        return attrs
    name, *levels = (each.removeprefix(head) for each in (entry.array, *entry.paths))
    below, _, inner = levels[0].partition("/")
    if below not in groups or inner not in groups[below]:
        return attrs
    windows = {level: entry.windows(number) for number, level in enumerate(levels, 1)}
    return with_coarser_levels(attrs, name, windows)


def _multiscales(group: VirtualGroup, images: Mapping[str, OverviewEntry]) -> dict[str, Any]:
    """What the convention "multiscales" says of levels; nothing if the group says it already."""
    if not images or "multiscales" in group.attrs:
        return {}
    layout: list[dict[str, Any]] = []
    for name, entry in images.items():
        layout.append({"asset": name})
        for level in range(1, entry.n_levels + 1):
            scale = [float(n) for n in entry.windows(level)]
            layout.append(
                {
                    "asset": f"{group_of_level(level)}/{name}",
                    "derived_from": name,
                    "transform": {"scale": scale, "translation": [0.0] * len(scale)},
                    "resampling_method": _RESAMPLING.get(entry.method, entry.method),
                }
            )
    known = group.attrs.get("zarr_conventions")
    conventions = [*(known if isinstance(known, list) else ()), CONVENTION]
    return {"multiscales": {"layout": layout}, "zarr_conventions": conventions}
