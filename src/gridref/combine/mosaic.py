"""Place georeferenced inputs on one pixel grid: a mosaic, or a series of mosaics.

The edges of all inputs along x and y are the lines of one rectilinear grid. Where a line crosses
an input, its blocks are cut. A cell that no input covers is a missing block, which reads as the
fill value. Stored chunks are neither changed nor looked at one by one. Variables go through the
same rules of drift as in a concatenation, and inputs are combined in batches.

An input may itself be a mosaic with holes, and inputs may have labels beside rows and columns, such
as dates: inputs with different labels do not overlap.

Overviews make mosaics of their own, in groups named as in the inputs, wherever they fit on one
grid. The root's ``multiscales`` attribute lists these groups (the Zarr convention "multiscales" v1,
https://github.com/zarr-conventions/multiscales).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gridref.combine.boxes import Runs, held_spans
from gridref.combine.columns import Column, Notes, source_name, value_keys
from gridref.combine.combining import fold
from gridref.combine.georeference import (
    Misfit,
    Raster,
    mapping_name,
    misfit,
    overlaps,
    place_rasters,
    plane_dims,
    read_raster,
    side_by_side,
)
from gridref.combine.grids import by_grid
from gridref.combine.labels import REPEATING, repeating_files, united
from gridref.combine.level import Inherited, combine_level, with_attributes
from gridref.combine.options import CombineOptions, Read
from gridref.combine.placement import Lengths, Placement, Task
from gridref.combine.report import Combination, Drift, grouped, in_groups
from gridref.combine.rules.gaps import note_damaged
from gridref.combine.rules.single import contradicting_files, repeated_along, stacked_attributes
from gridref.combine.values import Values
from gridref.errors import InvalidRequestError, Message, Option, Place, Problem
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.scan_report import LEFT_OUT, ScanReport
from gridref.typing import Int64Array

# Pixels that an input holds, where it is a mosaic with holes

Labels = Mapping[str, Sequence[Any]]
LabelsOfInputs = Mapping[str, Sequence[NDArray[Any]]]


def held_rasters(
    raster: Raster,
    arrays: Mapping[str, VirtualArray],
    labels: Labels,
    plane: tuple[str, str],
    *,
    merges: bool,
) -> list[Raster]:
    """The rasters that an input holds: one, or several around pixels that are still missing.

    Parameters
    ----------
    arrays
        Its variables.
    labels
        Its labels along the dimensions beside rows and columns.
    plane
        Names of the dimensions of rows and columns.
    merges
        Whether inputs hold different variables, each on its own pixels.
    """
    laid = {name: array for name, array in arrays.items() if {*plane} <= {*array.dims}}
    if all((array.blocks.encoding != MISSING_BLOCK).all() for array in laid.values()):
        names = [*laid] if merges else [""]
        return [replace(raster, labels=tuple(itertools.product(*labels.values(), names)))]
    found = []
    for name, array in laid.items():
        beside = [dim for dim in labels if dim in array.dims]
        axes = [array.dims.index(dim) for dim in (*beside, *plane)]
        for *along, rows, columns in held_spans(array, axes).tolist():
            spans = zip(beside, along, strict=True)
            own = {**labels, **{dim: labels[dim][slice(*span)] for dim, span in spans}}
            found.append(
                replace(
                    raster.moved(rows[0], columns[0]),
                    n_rows=rows[1] - rows[0],
                    n_columns=columns[1] - columns[0],
                    labels=tuple(itertools.product(*own.values(), [name if merges else ""])),
                )
            )
    return found


# Labels of tiles along other dimensions, such as the dates of a time series


def labels_of(
    groups: Sequence[VirtualGroup], dims: Sequence[str], values: Values
) -> dict[str, list[NDArray[Any]]]:
    """The labels of each input, by dimension: inputs have them as variables of these names.

    Raises
    ------
    InvalidRequestError
        If an input has no label, or one in other units than the first.
    """
    return {
        dim: [_labels(own, dim, groups[0].arrays.get(dim), values) for own in groups]
        for dim in dims
    }


def _labels(
    group: VirtualGroup, dim: str, first: VirtualArray | None, values: Values
) -> NDArray[Any]:
    array = group.arrays.get(dim)
    place = Place(source_name(group), dim)
    if array is None or first is None or array.ndim > 1:
        raise InvalidRequestError(
            f"it has no label along {dim!r}: give a pattern that reads it from the file name", place
        )
    for name in ("units", "calendar"):
        own, known = array.attrs.get(name), first.attrs.get(name)
        if value_keys([own, known]) is not None:
            raise InvalidRequestError(
                f"its {name} are {own!r}, but the first input has {known!r}: give a pattern "
                "that reads the labels from the file names",
                place,
            )
    return values.of(array).reshape(-1)


# The layout of inputs on the pixels of a plane

PYRAMID_ATTRIBUTES = ("multiscales", "zarr_conventions")


@dataclass(frozen=True, eq=False)
class Plane(Placement):
    """Every file at its place on common rows and columns, which are the last two dimensions.

    Attributes
    ----------
    labels
        Those of each file along the dimensions beside rows and columns; none for a plane alone.
    merges
        Whether files hold different variables, so that none of them lacks one.
    """

    labels: LabelsOfInputs = field(default_factory=dict)
    merges: bool = False
    pads: bool = True

    @classmethod
    def of(cls, dims: tuple[str, str], spans: Int64Array, labels: LabelsOfInputs) -> Self:
        """Files at their labels, in order, and at their places along rows and columns."""
        runs = {}
        for dim, held in labels.items():
            every, places = united(dict(enumerate(held)))
            runs[dim] = Runs.of_places(places, len(every))
        for axis, dim in enumerate(dims):
            starts, stop = spans[:, axis, 0].tolist(), int(spans[:, axis, 1].max())
            runs[dim] = Runs.whole(range(len(spans)), starts, stop)
        return cls((*runs,), runs, labels=labels)

    @property
    def plane(self) -> set[str]:
        """The dimensions of rows and columns."""
        return {*self.growing[-2:]}

    @property
    def beside(self) -> tuple[str, ...]:
        """The dimensions beside rows and columns."""
        return self.growing[:-2]

    def with_new_dims(self, columns: Mapping[str, Column], notes: Notes) -> Mapping[str, Column]:
        """Give what is on pixels the dimensions beside them, and labels their own."""
        wide = dict(columns)
        for name, column in columns.items():
            if self.plane <= {*column.first.dims}:
                wide[name] = self._repeated(column, self.beside)
            elif name in self.beside:
                wide[name] = self._repeated(column, (name,))
        return wide

    def _repeated(self, column: Column, dims: Sequence[str]) -> Column:
        """A variable with the dimensions that it lacks in front."""
        for dim in reversed(dims):
            lengths = {file: len(own) for file, own in enumerate(self.labels[dim])}
            column = repeated_along(column, dim, lengths)
        return column

    def dims_of_files(self, column: Column, task: Task) -> tuple[str, ...]:
        """The dimensions beside rows and columns, where all files of one label say the same."""
        if not self.beside or not all(map(task.values.available, column.arrays)):
            return ()
        wide, runs = self._repeated(column, self.beside), {d: self.runs[d] for d in self.beside}
        return () if contradicting_files(column, wide, runs, task.values) else self.beside

    def dims_of(self, column: Column, task: Task) -> tuple[str, ...] | None:
        """All dimensions, those beside rows and columns, or none.

        Coordinates of rows and columns are made anew.
        """
        dims = {*self.held_dims(column)}
        if self.plane <= dims or not dims:
            return self.growing if dims else ()
        if column.name in self.beside:
            return (column.name,)
        along = () if self.plane & dims else self.dims_of_files(column, task)
        if along and column.name not in self.growing:
            return along
        if column.name not in self.growing:
            cases = {f"along {' and '.join(sorted(dims))} only": list(column.files)}
            task.notes.drift("dimensions", column.path, cases, LEFT_OUT)
        return None

    def with_dims(
        self, column: Column, dims: Sequence[str], lengths: Lengths, task: Task
    ) -> Column | None:
        """Repeat a variable that has only labels; all files, or none, must have the plane."""
        if not self.plane & {*dims}:
            return self._repeated(column, dims)
        cases = column.cases(lambda kind: str(kind.array.dims))
        y, x = self.growing[-2:]
        advice = f"a mosaic needs variables along {y} and {x}"
        task.notes.conflict("dimensions-differ", column.path, "dimensions", cases, advice)
        return None

    def has_gaps(self, column: Column, runs: Mapping[str, Runs]) -> bool:
        """Where some labels are together in no file; pixels that none holds are fill values."""
        return (*runs,) == self.beside and super().has_gaps(column, runs)

    def fill(
        self, column: Column, runs: Mapping[str, Runs], lacking: Sequence[int], task: Task
    ) -> tuple[Column, Any] | None:
        """The fill value of gaps; nothing is lacking where files hold different variables."""
        return (column, None) if self.merges else super().fill(column, runs, lacking, task)


# Groups combined as a mosaic


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

    With `stack` there is a grid for each label, like a date, and inputs of one label are beside
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
        How far, in pixels, an input may be off the grid of the first one.
    grids
        Inputs of several coordinate reference systems, resolutions or pixel grids: ``"one"`` makes
        them a problem, ``"groups"`` lays out those of each grid in a group of its own. It keeps all
        inputs in memory.
    stack
        Dimensions besides rows and columns. Each input has its labels as variables of these names
        (see `gridref.combine.labelled.with_label`). Labels are sorted, and new dimensions are
        first.
    merge
        Whether inputs hold different variables, which are merged.
    read
        Reads values of an array, as for `gridref.combine.combine`.
    options
        How drift is resolved. Pixels that several inputs hold are an overlap: ``"raise"`` makes
        them a problem, ``"first"`` and ``"last"`` show the first or last input.

    Returns
    -------
    Combination
        Every variable with both dimensions, as a mosaic; new coordinates; variables without the
        dimensions. Problems are inputs without georeferencing or rotated, that differ in
        coordinate reference system or resolution, are off the grid, or overlap; and drift that no
        rule resolves.

    Raises
    ------
    InvalidRequestError
        For no inputs, or an option that has no meaning for a mosaic: ``overlap="keep"``, and
        `variables`, `repeated` and `index_variables`, which need one dimension.
    """
    rules = _checked(options or CombineOptions())

    def laid(tiles: Iterable[VirtualGroup]) -> Combination:
        work = _Mosaic(x, y, tolerance, read, rules, tuple(stack), merge)
        done = fold(tiles, work.combine, lambda *results: work.again().combine(*results))
        done = work.without_overlaps(done) if rules.overlap == "raise" else done
        return done.telling_what_is_left_out()

    if grids == "one":
        return laid(groups)
    values = Values(read)

    def place(group: VirtualGroup) -> Raster | Misfit:
        return read_raster(group, "", *plane_dims(group, x, y), values)

    parts = by_grid(groups, place, tolerance)
    return in_groups({name: laid(tiles) for name, tiles in parts.items()})


def check_tolerance(tolerance: float) -> None:
    """Check that places are clear: inputs may be off the grid by up to half a pixel."""
    if not 0 <= tolerance <= 0.5:
        raise InvalidRequestError(f"tolerance must be from 0 to 0.5, got {tolerance!r}")


def _checked(rules: CombineOptions) -> CombineOptions:
    """The options. All of them apply to a mosaic."""
    if rules.overlap == "keep":
        raise InvalidRequestError(
            Message(
                Option("overlap", "keep"),
                " keeps repeated values side by side, but a mosaic shows one input at each pixel: "
                "choose ",
                Option("overlap", "first"),
                " or ",
                Option("overlap", "last"),
                ", which hide the others",
            )
        )
    for name in ("variables", "repeated", "index_variables"):
        value = getattr(rules, name)
        if value != getattr(CombineOptions(), name):
            raise InvalidRequestError(
                Message(Option(name, value), " needs one dimension; a mosaic has two")
            )
    return rules


@dataclass(eq=False)
class _Mosaic:
    """What holds for a mosaic at all resolutions.

    Attributes
    ----------
    rasters
        What inputs hold by resolution (``""`` for the full one), filled while combining: all are on
        the pixels of the first one.
    labels
        Those of the inputs that are being combined, along `stack`.
    n_noted
        How many inputs, at any resolution, are noted.
    notes_places
        Whether where inputs are is noted: not where they are results of batches, which hold
        several.
    """

    x: str
    y: str
    tolerance: float
    read: Read | None
    rules: CombineOptions
    stack: tuple[str, ...]
    merge: bool
    labels: LabelsOfInputs = field(default_factory=dict)
    rasters: dict[str, list[Raster]] = field(default_factory=dict)
    n_noted: int = 0
    notes_places: bool = True

    def again(self) -> _Mosaic:
        """What combines the results of batches: where their inputs are is noted."""
        return replace(self, notes_places=False)

    def combine(self, groups: Sequence[VirtualGroup], unnamed: Sequence[str]) -> Combination:
        """Combine inputs that are all in memory."""
        report = ScanReport.joined([group.report for group in groups])
        self.x, self.y = plane_dims(groups[0], self.x, self.y)
        notes = Notes(self.rules, groups, unnamed)
        note_damaged(notes)
        self.labels = labels_of(groups, self.stack, Values(self.read))
        self._note_repeats(notes)
        dims = _Dims("", self.x, self.y)
        level = self._level(groups, dims, notes)
        if level is None or notes.problems:
            return Combination(None, notes.report(), grouped(notes.problems))
        overviews = self._overviews(groups, notes)
        attrs = _pyramid_attributes(level.attrs, overviews)
        for dim in reversed(self.stack):
            if not any(dim in array.dims and array.ndim > 1 for array in groups[0].arrays.values()):
                attrs = stacked_attributes(attrs, dim)
        group = VirtualGroup(level.arrays, overviews, attrs, report)
        return Combination(group, notes.report())

    def _note_repeats(self, notes: Notes) -> None:
        """Note inputs that have a label several times, where nothing says which is shown."""
        for dim, held in self.labels.items() if self.rules.overlap == "raise" else ():
            repeating = repeating_files(dict(enumerate(held)))
            if repeating:
                notes.problem("overlap", dim, REPEATING, repeating, drop=False)

    def _level(
        self, groups: Sequence[VirtualGroup], dims: _Dims, notes: Notes
    ) -> VirtualGroup | None:
        """The mosaic at one resolution; None if an input has no position."""
        rasters = self._rasters(groups, dims, notes)
        if not rasters:
            return None
        first = self.rasters[dims.path][0]
        spans, corner = place_rasters(first, rasters)
        if notes.problems:
            spans = side_by_side(spans)  # so that drift is found, too
        mapping_variable = mapping_name(groups[0], dims.x, dims.y)
        task = Task(self._plane(dims, spans, mapping_variable), notes, Values(self.read))
        level, columns, _, _ = combine_level(groups, dims.path, task, Inherited())
        arrays, corner_raster = dict(level.arrays), first.moved(*corner)
        if mapping_variable in arrays:
            mapping = arrays[mapping_variable]
            attrs = {**mapping.attrs, "GeoTransform": corner_raster.transform}
            arrays[mapping_variable] = mapping.with_changes(attrs=attrs)
        arrays |= _coordinates(corner_raster, spans, columns, dims, task)
        ordered = {name: arrays.pop(name) for name in columns if name in arrays}
        return VirtualGroup({**ordered, **arrays}, {}, level.attrs)

    def _plane(self, dims: _Dims, spans: Int64Array, mapping: str) -> Plane:
        """The positions of the inputs at a resolution."""
        settled = {mapping: ("GeoTransform", "crs_wkt"), "": PYRAMID_ATTRIBUTES}
        plane = Plane.of((dims.y, dims.x), spans, self.labels)
        return replace(plane, settled=settled, merges=self.merge)

    def _rasters(self, groups: Sequence[VirtualGroup], dims: _Dims, notes: Notes) -> list[Raster]:
        """The positions of the inputs; misfits are noted. Empty if an input has none."""
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
                if reason is None and self.notes_places:
                    self.rasters.setdefault(dims.path, []).extend(
                        self._held(raster, groups[number], number, dims)
                    )
            else:
                reason = raster
            if reason is not None:
                notes.problem(reason.cause, dims.path, reason.message, [number], drop=False)
        return rasters if len(rasters) == len(groups) else []

    def _held(self, raster: Raster, group: VirtualGroup, number: int, dims: _Dims) -> list[Raster]:
        """The pixels that an input holds, with the labels that distinguish it from others there."""
        labels = {dim: held[number].tolist() for dim, held in self.labels.items()}
        self.n_noted += 1
        numbered = replace(raster, number=self.n_noted)
        plane = (dims.y, dims.x)
        return held_rasters(numbered, group.arrays, labels, plane, merges=self.merge)

    def _overviews(self, groups: Sequence[VirtualGroup], notes: Notes) -> dict[str, VirtualGroup]:
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
                level = self._level([group.groups[dims.path] for group in groups], dims, own)
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
        problems, group = self._overlaps(""), done.group
        if problems or group is None:
            return Combination(None, done.report, grouped([*done.problems, *problems]))
        left_out = {path: own[0] for path in group.groups if (own := self._overlaps(path))}
        if not left_out:
            return done
        overviews = {path: own for path, own in group.groups.items() if path not in left_out}
        drifts = [_left_out(problem, done.report.files) for problem in left_out.values()]
        attrs = _pyramid_attributes(group.attrs, overviews)
        report = replace(done.report, drifts=(*done.report.drifts, *drifts))
        return Combination(group.with_changes(groups=overviews, attrs=attrs), report)

    def _overlaps(self, path: str) -> list[Problem]:
        by_label: dict[Any, list[Raster]] = {}
        for raster in self.rasters.get(path, []):
            for label in raster.labels:
                by_label.setdefault(label, []).append(raster)
        return [
            Problem(
                "overlap",
                Message(
                    f"{rows} by {columns} pixels (rows, columns) of it overlap "
                    f"{rasters[other].name}; ",
                    Option("overlap", "first"),
                    " or ",
                    Option("overlap", "last"),
                    " shows one of them and hides the others",
                ),
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
    spans: Int64Array,
    columns: Mapping[str, Column],
    dims: _Dims,
    task: Task,
) -> dict[str, VirtualArray]:
    """Centres of the mosaic's pixels along both axes, with the inputs' attributes."""
    n_rows, n_columns = spans[..., 1].max(axis=0).tolist()
    made = {
        dims.x: corner.x0 + (np.arange(n_columns) + 0.5) * corner.dx,
        dims.y: corner.y0 + (np.arange(n_rows) + 0.5) * corner.dy,
    }
    if corner.by_labels:
        starts = {dims.y: spans[:, 0, 0].tolist(), dims.x: spans[:, 1, 0].tolist()}
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
