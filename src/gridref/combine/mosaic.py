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
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gridref.combine.boxes import Cells, Runs, held_spans
from gridref.combine.columns import Column, Notes, source_name, value_keys
from gridref.combine.combining import fold
from gridref.combine.labels import REPEATING, repeating_files, united
from gridref.combine.level import Inherited, combine_level, with_attributes
from gridref.combine.options import CombineOptions, Read
from gridref.combine.placement import Lengths, Placement, Task
from gridref.combine.report import Combination, Drift, grouped, in_groups
from gridref.combine.rules.dimensions import contradicting_files, repeated_along, stacked_attributes
from gridref.combine.rules.packing import as_meant, no_data_of, note_damaged
from gridref.combine.values import Values
from gridref.errors import InvalidRequestError, Message, Option, Place, Problem, some_of
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import authority_code, dims_by_direction, grid_mapping_of, wkt_of
from gridref.model.joining import same_scalar
from gridref.model.pixels import EVEN, SAME_PIXEL, Affine, PixelAxis
from gridref.model.scan_report import LEFT_OUT, ScanReport
from gridref.typing import Int64Array

# Places of inputs on the pixels of the first one, from the ``GeoTransform`` of a grid mapping or
# from labels

GRID_MAPPING = "spatial_ref"
"""Usual name of the variable whose attributes say where pixels are."""


@dataclass(frozen=True)
class Raster:
    """What an input says about its pixels.

    Attributes
    ----------
    x, y
        Columns and rows, in the units of the coordinate reference system.
    n_rows, n_columns
        Extent in pixels.
    crs
        Coordinate reference system, as WKT.
    labels
        Labels along dimensions beside rows and columns; inputs of different labels do not overlap.
    by_labels
        Whether this is what its coordinates say, and not a ``GeoTransform``.
    number
        The same for all that one input holds.
    """

    name: str
    x: PixelAxis
    y: PixelAxis
    n_rows: int
    n_columns: int
    crs: str
    labels: tuple[Any, ...] = (None,)
    by_labels: bool = False
    number: int = 0

    def moved(self, rows: int, columns: int) -> Raster:
        """The raster that begins so many rows and columns further."""
        return replace(self, x=self.x.moved(columns), y=self.y.moved(rows))


def mapping_name(group: VirtualGroup, x: str, y: str) -> str:
    """Name of the grid mapping of the arrays with both dimensions."""
    for array in group.arrays.values():
        named = grid_mapping_of(array.attrs)
        if {x, y} <= {*array.dims} and named in group.arrays:
            return named
    return GRID_MAPPING


def plane_dims(group: VirtualGroup, x: str, y: str) -> tuple[str, str]:
    """What a group calls columns and rows, where not as asked for."""
    if any({x, y} <= {*array.dims} for array in group.arrays.values()):
        return x, y
    labels = {name: array for name, array in group.arrays.items() if array.is_index(name)}
    found = dims_by_direction(labels, labels)
    return found.get("x", x), found.get("y", y)


def read_raster(
    group: VirtualGroup, name: str, x: str, y: str, values: Values | None = None
) -> Raster | Problem:
    """Read the georeference of an input, along the dimensions `x` and `y`.

    Where its coordinates are at other places than its ``GeoTransform`` says, or there is none, the
    coordinates count: GDAL writes the rows of NetCDF files from south to north under a transform
    that goes the other way.
    """
    shape = next(
        (
            (array.sizes[y], array.sizes[x])
            for array in group.arrays.values()
            if x in array.dims and y in array.dims
        ),
        None,
    )
    mapping = group.arrays.get(mapping_name(group, x, y))
    attrs = {} if mapping is None else mapping.attrs
    stated = Affine.of(attrs)
    labels = [_ends(group.arrays.get(dim), values) for dim in (x, y)]
    crs = wkt_of(attrs)
    if shape is not None and stated is not None:
        raster = Raster(name, stated.x, stated.y, shape[0], shape[1], crs)
        if not stated.is_rectilinear or not stated.dx_col or not stated.dy_row:
            return Problem("rotated", "its pixels are rotated against the axes; warp it first")
        if None in labels or _agree(raster, labels):
            return raster
    if shape is None or None in labels:
        message = f"it has no variable along {y} and {x} with a georeference"
        inside = [
            own
            for own, part in group.groups.items()
            if any({x, y} <= {*array.dims} for array in part.arrays.values())
        ]
        if inside:
            message += f", its groups have ({some_of(inside)}): give the files of their images"
        return Problem("not-georeferenced", message)
    return _of_labels(group, name, (x, y), values, crs)


def _ends(array: VirtualArray | None, values: Values | None) -> tuple[float, float] | None:
    """The first and last label of an axis with several; None if they are unknown."""
    if array is None or values is None or array.ndim != 1 or array.dtype.kind not in "iuf":
        return None
    if array.shape[0] < 2 or not values.available(array):
        return None
    held = values.of(array)
    return float(held[0]), float(held[-1])


def _agree(raster: Raster, labels: Sequence[tuple[float, float] | None]) -> bool:
    """Whether labels are on the centres of a raster's pixels."""
    axes = ((raster.x, raster.n_columns), (raster.y, raster.n_rows))
    return all(
        (axis.off(np.array(ends), np.array([0, n - 1])) <= SAME_PIXEL).all()
        for (axis, n), ends in zip(axes, filter(None, labels), strict=True)
    )


def _of_labels(
    group: VirtualGroup, name: str, dims: tuple[str, str], values: Values | None, crs: str
) -> Raster | Problem:
    """The position of an input by its labels, which have to be evenly spaced."""
    axes, counts = [], []
    for dim in dims:
        assert values is not None
        labels = values.of(group.arrays[dim]).astype(np.float64)
        pixels = np.arange(len(labels))
        axis = PixelAxis.through(labels, pixels)
        off = axis.off(labels, pixels).max()
        if not axis.step or not off <= EVEN:
            message = Message(
                f"its labels along {dim!r} are not evenly spaced: they deviate by up to"
                f" {off if axis.step else np.inf:.3g} pixels; combine the files by their "
                "labels instead (",
                Option("concat_dim", [dims[1], dims[0]]),
                ")",
            )
            return Problem("off-grid", message)
        axes.append(axis)
        counts.append(len(labels))
    (x, y), (n_columns, n_rows) = axes, counts
    return Raster(name, x, y, n_rows, n_columns, crs, by_labels=True)


def misfit(first: Raster, raster: Raster, tolerance: float) -> Problem | None:
    """Why a raster does not fit the first one's pixels; None if it does.

    Parameters
    ----------
    tolerance
        How far pixels may be off each other, in pixels.
    """
    if raster.crs != first.crs:
        message = Message(
            f"its coordinate reference system is {_crs_name(raster.crs)}; "
            f"{first.name} has {_crs_name(first.crs)}; ",
            Option("grids", "groups"),
            " gives each a group",
        )
        return Problem("crs-differs", message)
    drift_x = abs(raster.x.step / first.x.step - 1) * raster.n_columns
    drift_y = abs(raster.y.step / first.y.step - 1) * raster.n_rows
    if max(drift_x, drift_y) > tolerance:
        message = Message(
            f"its pixels are {raster.x.step:.12g} by {raster.y.step:.12g}, those of "
            f"{first.name} {first.x.step:.12g} by {first.y.step:.12g}: over its extent that "
            f"is {max(drift_x, drift_y):.3g} pixels; ",
            Option("grids", "groups"),
            " gives each a group",
        )
        return Problem("resolution-differs", message)
    row, column = _offset(first, raster)
    off_row, off_column = abs(row - round(row)), abs(column - round(column))
    if max(off_row, off_column) > tolerance:
        message = Message(
            f"it is {off_column:.3g} columns and {off_row:.3g} rows off the pixels of "
            f"{first.name}; the tolerance is {tolerance:g}; ",
            Option("grids", "groups"),
            " gives each grid a group",
        )
        return Problem("off-grid", message)
    return None


def _crs_name(wkt: str) -> str:
    """The name in a WKT: what stands between its first quotes."""
    parts = wkt.split('"', 2)
    return repr(parts[1]) if len(parts) > 1 else "unknown"


def _offset(first: Raster, raster: Raster) -> tuple[float, float]:
    """Rows and columns from the first raster's corner to another one's."""
    return first.y.pixels_to(raster.y), first.x.pixels_to(raster.x)


def place_rasters(first: Raster, rasters: Sequence[Raster]) -> tuple[Int64Array, tuple[int, int]]:
    """Rows and columns of rasters, counted from the outermost pixel of all.

    Returns
    -------
    tuple
        int64 (n, 2, 2): the first row and the one after the last, and these of columns; and the row
        and column of that outermost pixel on the first one's grid.
    """
    offsets = [_offset(first, raster) for raster in rasters]
    starts = np.array([(round(row), round(column)) for row, column in offsets], np.int64)
    sizes = np.array([(raster.n_rows, raster.n_columns) for raster in rasters], np.int64)
    top, left = map(int, starts.min(axis=0))
    starts -= (top, left)
    return np.stack([starts, starts + sizes], axis=2), (top, left)


def side_by_side(spans: Int64Array) -> Int64Array:
    """Rasters of the same sizes that share nothing, in one row."""
    sizes = spans[..., 1] - spans[..., 0]
    stops = np.stack([sizes[:, 0], np.cumsum(sizes[:, 1])], axis=1)
    return np.stack([stops - sizes, stops], axis=2)


def overlaps(spans: Int64Array, inputs: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Rasters that share pixels with an earlier one, of another input.

    Rows 0..4 and 3..7 share row 3: their edges are the lines 0, 3, 4, 7, the first takes the cells
    0..3 and 3..4, the second finds the cell 3..4 taken.

    Parameters
    ----------
    spans
        As `place_rasters` gives them.

    Returns
    -------
    list of tuple
        Number of the raster, that of an earlier one, and how many rows and columns they share.

    Raises
    ------
    InvalidRequestError
        If edges make too many cells to look at.
    """
    cells = Cells.of(spans, np.array(inputs), spans[..., 1].max(axis=0).tolist())
    found = []
    for number, other in cells.clashes:
        both = spans[[number, other]]
        shared = both[..., 1].min(axis=0) - both[..., 0].max(axis=0)
        found.append((number, other, int(shared[0]), int(shared[1])))
    return found


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
    if all(array.held_blocks.all() for array in laid.values()):
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
        """What pixels that no file holds read as: "no data", if the dtype has a value for that.

        Nothing is lacking where files hold different variables.
        """
        known = (column, None) if self.merges else super().fill(column, runs, lacking, task)
        if known is None or known[1] is not None:
            return known
        first, fill = known[0].first, no_data_of(known[0].first)
        is_laid = self.plane <= {*first.dims} and first.dtype.kind in "biuf"
        is_other = fill is not None and not same_scalar(first.fill_value, fill, first.dtype)
        return known[0], fill if is_laid and is_other else None


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

    An overview is left out, and the report says why, where some input has none or those of the
    inputs do not fit on one grid. Other groups below the inputs are left out, too.

    Parameters
    ----------
    x, y, tolerance, grids
        As for `gridref.Mosaic`; groups for several grids keep all inputs in memory.
    stack
        Dimensions besides rows and columns, with a grid for each label. Each input has its labels
        as variables of these names. Labels are sorted, and new dimensions are first.
    merge
        Whether inputs hold different variables, which are merged.

    Raises
    ------
    InvalidRequestError
        For no inputs, or an option that has no meaning for a mosaic: ``overlap="keep"``, and
        `variables`, `repeated` and `index_variables`, which need one dimension.
    """
    rules = _checked(options or CombineOptions())
    groups = (group.with_each_array(_meant_label) for group in groups)

    def laid(tiles: Iterable[VirtualGroup]) -> Combination:
        work = _Mosaic(x, y, tolerance, read, rules, tuple(stack), merge)
        done = fold(tiles, work.combine, lambda *results: work.again().combine(*results))
        done = work.without_overlaps(done) if rules.overlap == "raise" else done
        return done.telling_what_is_left_out()

    if grids == "one":
        return laid(groups)
    values = Values(read)

    def place(group: VirtualGroup) -> Raster | Problem:
        return read_raster(group, "", *plane_dims(group, x, y), values)

    parts = by_grid(groups, place, tolerance)
    return in_groups({name: laid(tiles) for name, tiles in parts.items()})


def _meant_label(path: str, array: VirtualArray) -> VirtualArray:
    """Labels of an axis as what they mean: places are compared, and written, in these units."""
    return as_meant(array) if array.is_index(path) else array


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
            place = Affine.along(corner_raster.x, corner_raster.y)
            arrays[mapping_variable] = place.stated_in(mapping)
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
        dims.x: corner.x.middles(np.arange(n_columns)),
        dims.y: corner.y.middles(np.arange(n_rows)),
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
    labels = centres.astype(np.result_type(*{kind.array.dtype for kind in column.kinds}))
    for file, array in zip(column.files, column.arrays, strict=True):
        own = values.of(array)
        labels[starts[file] : starts[file] + len(own)] = own
    return labels


# Inputs of several pixel grids: each gets a mosaic in a group of its own. Nothing is resampled


def by_grid(
    groups: Iterable[VirtualGroup],
    place: Callable[[VirtualGroup], Raster | Problem],
    tolerance: float,
) -> dict[str, list[VirtualGroup]]:
    """Group inputs by pixel grid, under a distinct name for each grid.

    Parameters
    ----------
    place
        Gives the position of an input. Inputs without a position stay with the first grid.
    tolerance
        How far, in pixels, an input may be off the grid of the first one on it.

    Returns
    -------
    dict
        The only name is empty where all are on one grid.
    """
    firsts: list[Raster] = []
    parts: list[list[VirtualGroup]] = []
    unplaced: list[VirtualGroup] = []
    for group in groups:
        raster = place(group)
        if isinstance(raster, Problem):
            unplaced.append(group)
            continue
        number = next(
            (k for k, first in enumerate(firsts) if misfit(first, raster, tolerance) is None), None
        )
        if number is None:
            number = len(firsts)
            firsts.append(raster)
            parts.append([])
        parts[number].append(group)
    if not parts and not unplaced:
        raise InvalidRequestError("nothing to combine: no inputs")
    if not parts:
        return {"": unplaced}
    parts[0].extend(unplaced)
    return dict(zip(_names(firsts), parts, strict=True))


def _names(firsts: Sequence[Raster]) -> list[str]:
    """Names of grids: by reference system and by resolution, where there are several of them."""
    if len(firsts) == 1:
        return [""]
    systems = list(dict.fromkeys(raster.crs for raster in firsts))
    steps = {(raster.x.step, raster.y.step) for raster in firsts}
    names: list[str] = []
    seen: Counter[str] = Counter()
    for raster in firsts:
        words = [_system(raster.crs, systems)] if len(systems) > 1 else []
        words += [f"{abs(raster.x.step):g}"] if len(steps) > 1 else []
        name = "_".join(words or ["grid"])
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return names


def _system(wkt: str, systems: Sequence[str]) -> str:
    code = authority_code(wkt)
    return "_".join(code).lower() if code else f"crs_{systems.index(wkt) + 1}"
