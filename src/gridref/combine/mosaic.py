"""Georeferenced groups laid beside each other by where they lie: a mosaic.

The edges of all inputs along x and y make the lines of one rectilinear grid. Where a line crosses
an input, its blocks are cut; a cell that no input covers is a missing block, which reads as the
fill value. No stored chunk is touched, and none is walked. Variables go through the same rules of
drift as in a concatenation, and inputs come and go in batches.

Overviews make mosaics of their own, in groups named as the inputs', wherever they fit on one grid.
Which groups they are is read from the root's ``multiscales`` attribute (the Zarr convention
"multiscales" v1, https://github.com/zarr-conventions/multiscales).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine.columns import Column, Notes, columns_of
from gridref.combine.concatenation import group_attributes
from gridref.combine.folding import fold
from gridref.combine.georeference import (
    Misfit,
    Placement,
    Raster,
    extents_of,
    mapping_name,
    misfit,
    overlaps,
    place_rasters,
    plane_dims,
    read_raster,
    side_by_side,
)
from gridref.combine.grids import by_grid, in_groups
from gridref.combine.held import held_rasters
from gridref.combine.layout import Task
from gridref.combine.levels import Inherited, combine_columns
from gridref.combine.options import CombineOptions, Read
from gridref.combine.plane import PYRAMID_ATTRIBUTES, Plane
from gridref.combine.report import LEFT_OUT, Combination, Drift, grouped
from gridref.combine.series import Series, labels_of
from gridref.combine.stacking import stacked_attributes
from gridref.combine.values import Values
from gridref.combine.variables import with_attributes
from gridref.errors import InvalidRequestError, Problem
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.scan_report import ScanReport

__all__ = ["combine_mosaic"]


def combine_mosaic(
    groups: Iterable[VirtualGroup],
    *,
    x: str = "x",
    y: str = "y",
    tolerance: float = 0.01,
    grids: str = "one",
    stack: Sequence[str] = (),
    merge: bool = False,
    read: Read | None = None,
    options: CombineOptions | None = None,
) -> Combination:
    """Lay georeferenced groups, and their overviews, on one grid; report what differed.

    With `stack` there is a grid for each label, like a date, and inputs of one label lie beside
    each other. What no input holds at a label is missing there.

    An overview is left out, and the report says why, where some input has none or those of the
    inputs do not fit on one grid. Other groups below the inputs are left out, too.

    Parameters
    ----------
    groups
        The inputs, each with a ``spatial_ref``. An iterator is taken in batches, and no input is
        kept.
    x, y
        Names of the dimensions.
    tolerance
        How far, in pixels, an input may lie off the grid of the first one.
    grids
        As for `MosaicOptions`; with ``"groups"`` all inputs are kept in memory.
    stack
        Dimensions beside rows and columns, whose labels each input has as variables of these names
        (see `gridref.combine.labelled.with_label`); labels come in their order, new dimensions
        first.
    merge
        Whether inputs hold different variables, which come to lie beside each other.
    read
        Reads values of an array, as for `gridref.combine.combine`.
    options
        How drift is resolved. Pixels that several inputs hold are an overlap: ``"error"`` makes
        them a problem, ``"first"`` and ``"last"`` show the first or last input.

    Returns
    -------
    Combination
        Every variable with both dimensions, as a mosaic; new coordinates; variables without the
        dimensions. Problems are inputs without georeferencing or rotated, that differ in
        coordinate reference system or resolution, lie off the grid, or overlap; and drift that no
        rule resolves.

    Raises
    ------
    InvalidRequestError
        For no inputs, or an option that means nothing for a mosaic: ``overlap="keep"``, and
        `variables`, `repeated` and `index_variables`, which need one dimension to lie along.
    """
    rules = _checked(options or CombineOptions())

    def laid(tiles: Iterable[VirtualGroup]) -> Combination:
        work = _Mosaic(x, y, tolerance, read, rules, tuple(stack), merge)
        done = fold(tiles, work.first_batch, work.combine)
        done = work.without_overlaps(done) if rules.overlap == "error" else done
        return done.telling_what_is_left_out()

    if grids == "one":
        return laid(groups)
    values = Values(read)

    def place(group: VirtualGroup) -> Raster | Misfit:
        return read_raster(group, "", *plane_dims(group, x, y), values)

    parts = by_grid(groups, place, tolerance)
    return in_groups({name: laid(tiles) for name, tiles in parts.items()})


def _checked(rules: CombineOptions) -> CombineOptions:
    """The options, all of which mean something for a mosaic."""
    if rules.overlap == "keep":
        raise InvalidRequestError(
            "overlap='keep' keeps what repeats side by side, and a mosaic shows one input at each"
            " pixel: take 'error', 'first' or 'last'"
        )
    for name in ("variables", "repeated", "index_variables"):
        value = getattr(rules, name)
        if value != getattr(CombineOptions(), name):
            raise InvalidRequestError(
                f"{name}={value!r} needs one dimension to lie along; a mosaic has two"
            )
    return rules


@dataclass(eq=False)
class _Mosaic:
    """What holds for a mosaic at all resolutions.

    Attributes
    ----------
    rasters
        What inputs hold by resolution (``""`` for the full one), filled while combining: all lie on
        the pixels of the first one.
    series
        The labels of the inputs that are being combined, along `stack`.
    n_noted
        How many inputs, at any resolution, are noted.
    """

    x: str
    y: str
    tolerance: float
    read: Read | None
    rules: CombineOptions
    stack: tuple[str, ...]
    merge: bool
    series: Series | None = None
    rasters: dict[str, list[Raster]] = field(default_factory=dict)
    n_noted: int = 0

    def first_batch(self, groups: Sequence[VirtualGroup], unnamed: Sequence[str]) -> Combination:
        """Combine inputs, and note where they lie."""
        return self.combine(groups, unnamed, note=True)

    def combine(
        self, groups: Sequence[VirtualGroup], unnamed: Sequence[str], *, note: bool = False
    ) -> Combination:
        """Combine inputs that are all in memory."""
        report = ScanReport.joined([group.report for group in groups])
        self.x, self.y = plane_dims(groups[0], self.x, self.y)
        self.series = None
        if self.stack:
            labelled = labels_of(groups, unnamed, self.stack, Values(self.read))
            groups, unnamed, self.series = labelled
        notes = Notes(self.rules, groups, unnamed)
        dims = _Dims("", self.x, self.y)
        level = self._level(groups, dims, notes, note=note)
        if level is None or notes.problems:
            return Combination(None, notes.report(), grouped(notes.problems))
        overviews = self._overviews(groups, notes, note=note)
        attrs = _pyramid_attributes(level.attrs, overviews)
        for dim in reversed(self.stack if note else ()):
            if not any(dim in array.dims and array.ndim > 1 for array in groups[0].arrays.values()):
                attrs = stacked_attributes(attrs, dim)
        group = VirtualGroup(level.arrays, overviews, attrs, report)
        return Combination(group, notes.report())

    def _level(
        self, groups: Sequence[VirtualGroup], dims: _Dims, notes: Notes, *, note: bool
    ) -> VirtualGroup | None:
        """The mosaic at one resolution; None where an input does not say where it lies."""
        rasters = self._rasters(groups, dims, notes, note=note)
        if not rasters:
            return None
        first = self.rasters[dims.path][0]
        placements, corner = place_rasters(first, rasters)
        if notes.problems:
            placements = side_by_side(placements)  # so that drift is found, too
        columns: Mapping[str, Column] = columns_of(groups, dims.path)
        if self.series is not None:
            columns = self.series.stacked(columns, dims.y, dims.x)
        mapping_variable = mapping_name(groups[0], dims.x, dims.y)
        plane = self._plane(dims, placements, mapping_variable)
        task = Task(plane, notes, Values(self.read))
        arrays, _, _ = combine_columns(columns, dims.path, task, Inherited())
        corner_raster = first.moved(*corner)
        if mapping_variable in arrays:
            mapping = arrays[mapping_variable]
            attrs = {**mapping.attrs, "GeoTransform": corner_raster.transform}
            arrays[mapping_variable] = mapping.replace(attrs=attrs)
        arrays |= _coordinates(corner_raster, placements, columns, dims, task)
        ordered = {name: arrays.pop(name) for name in columns if name in arrays}
        return VirtualGroup({**ordered, **arrays}, {}, group_attributes(groups, dims.path, task))

    def _plane(self, dims: _Dims, placements: Sequence[Placement], mapping: str) -> Plane:
        """Where the inputs lie at a resolution."""
        keep_last = self.rules.overlap == "last"
        settled = {mapping: ("GeoTransform", "crs_wkt"), "": PYRAMID_ATTRIBUTES}
        return Plane(
            dims.y, dims.x, placements, keep_last, self.series, self.merge, settled=settled
        )

    def _rasters(
        self, groups: Sequence[VirtualGroup], dims: _Dims, notes: Notes, *, note: bool
    ) -> list[Raster]:
        """Where the inputs lie, and what keeps them from it; none if some do not say."""
        values = Values(self.read)
        read = [
            read_raster(group, notes.name(number), dims.x, dims.y, values)
            for number, group in enumerate(groups)
        ]
        rasters = [raster for raster in read if isinstance(raster, Raster)]
        first = [*self.rasters.get(dims.path, [])[:1], *rasters]
        for number, raster in enumerate(read):
            if isinstance(raster, Raster):
                reason = misfit(first[0], raster, self.tolerance)
                if reason is None and note:
                    self.rasters.setdefault(dims.path, []).extend(
                        self._held(raster, groups[number], number, dims)
                    )
            else:
                reason = raster
            if reason is not None:
                notes.problem(reason.cause, dims.path, reason.message, [number], drop=False)
        return rasters if len(rasters) == len(groups) else []

    def _held(self, raster: Raster, group: VirtualGroup, number: int, dims: _Dims) -> list[Raster]:
        """What an input holds, with what tells it from others that may lie on the same pixels."""
        labels = {} if self.series is None else self.series.of(number)
        self.n_noted += 1
        numbered = replace(raster, number=self.n_noted)
        plane = (dims.y, dims.x)
        return held_rasters(numbered, group.arrays, labels, plane, merges=self.merge)

    def _overviews(
        self, groups: Sequence[VirtualGroup], notes: Notes, *, note: bool
    ) -> dict[str, VirtualGroup]:
        """The mosaic at each coarser resolution; those that are left out are noted."""
        laid: dict[str, VirtualGroup] = {}
        for dims in _level_dims(groups[0], self.x, self.y):
            own = Notes(self.rules, notes.inputs, notes.unnamed, names=notes.names)
            lacking = [k for k, group in enumerate(groups) if dims.path not in group.groups]
            level = None
            if lacking:
                message = "some inputs lack it"
                own.problem("variable-missing", dims.path, message, lacking, drop=False)
            else:
                level = self._level(
                    [group.groups[dims.path] for group in groups], dims, own, note=note
                )
            if level is not None and not own.problems:
                laid[dims.path] = level
                notes.drifts += own.drifts
            else:
                notes.drifts.append(_left_out(own.problems[0], notes.report().files))
        return laid

    def without_overlaps(self, done: Combination) -> Combination:
        """The combination, where no pixel is in several inputs; else their problems.

        An overview in which they are is left out.
        """
        problems = self._overlaps("")
        if problems or done.group is None:
            return Combination(None, done.report, grouped([*done.problems, *problems]))
        group = done.group
        overviews = {
            path: level for path, level in group.groups.items() if not self._overlaps(path)
        }
        if len(overviews) == len(group.groups):
            return done
        drifts = [
            _left_out(self._overlaps(path)[0], done.report.files)
            for path in group.groups
            if path not in overviews
        ]
        attrs = _pyramid_attributes(group.attrs, overviews)
        report = replace(done.report, drifts=(*done.report.drifts, *drifts))
        return Combination(group.replace(groups=overviews, attrs=attrs), report)

    def _overlaps(self, path: str) -> list[Problem]:
        by_label: dict[Any, list[Raster]] = {}
        for raster in self.rasters.get(path, []):
            for label in raster.labels:
                by_label.setdefault(label, []).append(raster)
        return [
            Problem(
                "overlap",
                f"{rows} by {columns} pixels (rows, columns) of it lie in {rasters[other].name};"
                " overlap='first' or 'last' shows one of them",
                path,
                (rasters[number].name, rasters[other].name),
            )
            for rasters in by_label.values()
            for number, other, rows, columns in overlaps(
                place_rasters(self.rasters[path][0], rasters)[0],
                [raster.number for raster in rasters],
            )
        ]


def _left_out(problem: Problem, files: Sequence[str]) -> Drift:
    """An overview that is left out, and why."""
    concerned = [number for number, name in enumerate(files) if name in problem.sources]
    return Drift.of("overview", str(problem.variable), {problem.message: concerned}, LEFT_OUT)


def _layout(attrs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Entries of the layout in a ``multiscales`` attribute; none if there is no such thing."""
    pyramid = attrs.get("multiscales")
    layout = pyramid.get("layout") if isinstance(pyramid, Mapping) else None
    levels = layout if isinstance(layout, list) else []
    return [level for level in levels if isinstance(level, Mapping) and "asset" in level]


@dataclass(frozen=True)
class _Dims:
    """A resolution: the path of its group, and what columns and rows are called there."""

    path: str
    x: str
    y: str


def _level_dims(group: VirtualGroup, x: str, y: str) -> list[_Dims]:
    """The overviews of an input."""
    levels = []
    for level in _layout(group.attrs):
        path, _, variable = str(level["asset"]).rpartition("/")
        fine = group.arrays.get(variable)
        coarse = group.groups[path].arrays.get(variable) if path in group.groups else None
        if fine is not None and coarse is not None and {x, y} <= {*fine.dims}:
            columns, rows = fine.dims.index(x), fine.dims.index(y)
            levels.append(_Dims(path, coarse.dims[columns], coarse.dims[rows]))
    return levels


def _pyramid_attributes(
    attrs: Mapping[str, Any], overviews: Mapping[str, VirtualGroup]
) -> dict[str, Any]:
    """Attributes of the first input, with the overviews that the mosaic has.

    How much coarser these are is the same for a tile and for the mosaic, or they do not fit.
    """
    if not overviews:
        return {name: value for name, value in attrs.items() if name not in PYRAMID_ATTRIBUTES}
    layout = [
        level
        for level in _layout(attrs)
        if "/" not in str(level["asset"]) or str(level["asset"]).rpartition("/")[0] in overviews
    ]
    return {**attrs, "multiscales": {**attrs["multiscales"], "layout": layout}}


def _coordinates(
    corner: Raster,
    placements: Sequence[Placement],
    columns: Mapping[str, Column],
    dims: _Dims,
    task: Task,
) -> dict[str, VirtualArray]:
    """Centres of the mosaic's pixels along both axes, with the inputs' attributes."""
    n_rows, n_columns = extents_of(placements)
    made = {
        dims.x: corner.x0 + (np.arange(n_columns) + 0.5) * corner.dx,
        dims.y: corner.y0 + (np.arange(n_rows) + 0.5) * corner.dy,
    }
    if corner.by_labels:
        starts = {
            dims.x: [placement.column for placement in placements],
            dims.y: [placement.row for placement in placements],
        }
        made = {
            name: _with_labels(centres, columns[name], starts[name], task.values)
            for name, centres in made.items()
        }
    arrays = {name: VirtualArray.from_numpy(values, (name,)) for name, values in made.items()}
    return {
        name: with_attributes(array, columns[name], task) if name in columns else array
        for name, array in arrays.items()
    }


def _with_labels(
    centres: NDArray[Any], column: Column, starts: Sequence[int], values: Values
) -> NDArray[Any]:
    """Centres of pixels, as the files write them where they hold any."""
    labels = centres.astype(column.first.dtype)
    for file, array in zip(column.files, column.arrays, strict=True):
        own = values.of(array)
        labels[starts[file] : starts[file] + len(own)] = own
    return labels
