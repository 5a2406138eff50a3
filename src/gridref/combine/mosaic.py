"""Georeferenced groups laid beside each other by where they lie: a mosaic.

The edges of all inputs along x and y make the lines of one rectilinear grid. Where a line crosses
an input, its blocks are cut; a cell that no input covers is a missing block, which reads as the
fill value. No stored chunk is touched, and none is walked.

Overviews make mosaics of their own, in groups named as the inputs', wherever they fit on one grid.
Which groups they are is read from the root's ``multiscales`` attribute (the Zarr convention
"multiscales" v1, https://github.com/zarr-conventions/multiscales).

Where an input lies is read from the ``GeoTransform`` of its grid mapping variable (GDAL's order: x
origin, x step along columns, x step along rows, y origin, y step along columns, y step along rows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gridref.combine.columns import source_name
from gridref.combine.concatenation import Combination
from gridref.combine.options import CombineOptions, Read
from gridref.combine.report import DriftReport
from gridref.errors import CombineError, InvalidRequestError, Problem
from gridref.model.array import MISSING_BLOCK, BlockTable, VirtualArray, VirtualGroup
from gridref.model.encoding import Encoding
from gridref.model.grid import ChunkGrid
from gridref.model.indexing import split_blocks
from gridref.model.joining import common_dtype, recast
from gridref.model.manifest import Manifest
from gridref.model.scan_report import Fate, Finding, ScanReport

__all__ = ["Placement", "mosaic", "place_inputs"]

Int64Array = NDArray[np.int64]
Overlap = Literal["error", "first", "last"]

_GRID_MAPPING = "spatial_ref"
_MAX_CELLS = 50_000_000
_PYRAMID_ATTRIBUTES = ("multiscales", "zarr_conventions")


@dataclass(frozen=True)
class Placement:
    """Where an input lies on the mosaic's pixels.

    Attributes
    ----------
    row, column
        First row and column.
    n_rows, n_columns
        Extent.
    """

    row: int
    column: int
    n_rows: int
    n_columns: int


@dataclass(frozen=True)
class _Raster:
    """What an input says about its pixels."""

    name: str
    x0: float
    dx: float
    y0: float
    dy: float
    n_rows: int
    n_columns: int
    crs: str


def mosaic(
    groups: Sequence[VirtualGroup],
    *,
    x: str = "x",
    y: str = "y",
    overlap: Overlap = "error",
    tolerance: float = 0.01,
) -> VirtualGroup:
    """Lay georeferenced groups on one grid, and their overviews on coarser ones.

    An overview is left out, and the report says why, where some input has none or those of the
    inputs do not fit on one grid. Other groups below the inputs are left out, too.

    Parameters
    ----------
    groups
        The inputs, each with coordinates along `x` and `y` and a ``spatial_ref``.
    x, y
        Names of the dimensions.
    overlap
        Pixels that several inputs cover: ``"error"`` makes them a problem, ``"first"`` and
        ``"last"`` show the first or last input.
    tolerance
        How far, in pixels, an input may lie off the grid of the first one.

    Returns
    -------
    VirtualGroup
        Every variable with both dimensions, as a mosaic; new coordinates; the first input's other
        variables and attributes.

    Raises
    ------
    CombineError
        With every problem: inputs without georeferencing or rotated, that differ in coordinate
        reference system, resolution, dtype or nodata, lie off the grid, or overlap.
    InvalidRequestError
        For no inputs, or an unknown `overlap`.
    """
    if not groups:
        raise InvalidRequestError("nothing to lay out: no inputs")
    if overlap not in ("error", "first", "last"):
        raise InvalidRequestError(f'overlap is "error", "first" or "last", got {overlap!r}')
    names = [source_name(group) or f"input {number}" for number, group in enumerate(groups, 1)]
    task = _Task(names, overlap, tolerance)
    laid = _level(groups, x, y, task)
    if isinstance(laid, list):
        raise CombineError(laid)
    overviews, findings = _overviews(groups, x, y, task)
    report = ScanReport.joined([*(group.report for group in groups), ScanReport(findings)])
    attrs = _pyramid_attributes(groups[0].attrs, overviews)
    return VirtualGroup(laid.arrays, overviews, attrs, report)


def combine_mosaic(
    groups: Iterable[VirtualGroup],
    *,
    x: str = "x",
    y: str = "y",
    tolerance: float = 0.01,
    read: Read | None = None,
    options: CombineOptions | None = None,
) -> Combination:
    """Lay georeferenced groups on one grid and report what differed, without raising.

    Parameters
    ----------
    groups, x, y, tolerance
        As for `mosaic`. An iterator is taken in batches.
    read
        Reads values of an array, as for `gridref.combine.concat`.
    options
        How drift is resolved.

    Raises
    ------
    InvalidRequestError
        For no inputs, or an option that means nothing for a mosaic.
    """
    held, rules = list(groups), options or CombineOptions()
    names = [source_name(group) or f"input {number}" for number, group in enumerate(held, 1)]
    report = DriftReport((), tuple(names))
    try:
        laid = mosaic(held, x=x, y=y, overlap=rules.overlap, tolerance=tolerance)  # type: ignore[arg-type]
    except CombineError as error:
        return Combination(None, report, error.problems)
    return Combination(laid, report)


@dataclass(frozen=True)
class _Task:
    """What holds for a mosaic at all resolutions: the inputs' names, and the caller's options."""

    names: Sequence[str]
    overlap: Overlap
    tolerance: float


def _level(
    groups: Sequence[VirtualGroup], x: str, y: str, task: _Task
) -> VirtualGroup | list[Problem]:
    """The mosaic at one resolution, or what prevents it."""
    problems: list[Problem] = []
    rasters = _rasters(groups, task.names, x, y, problems)
    if len(rasters) < len(groups):
        return problems
    placements, found = _placed(rasters, task.tolerance)
    problems += found
    variables = _variables(groups, rasters, x, y, problems)
    if problems:
        return problems
    lines = _Lines.of(placements)
    owner, problems = _owners(placements, lines, rasters, task.overlap)
    if problems:
        return problems
    arrays = {
        name: _laid_out(versions, placements, lines, owner, x, y)
        for name, versions in variables.items()
    }
    return _with_coordinates(groups[0], rasters[0], placements[0], lines, arrays, x, y)


def _overviews(
    groups: Sequence[VirtualGroup], x: str, y: str, task: _Task
) -> tuple[dict[str, VirtualGroup], tuple[Finding, ...]]:
    """The mosaic at each coarser resolution, and which resolutions are left out."""
    found: dict[str, VirtualGroup] = {}
    left_out = []
    for name, (level_x, level_y) in _level_dims(groups[0], x, y).items():
        lacking = [place for place, group in enumerate(groups) if name not in group.groups]
        if lacking:
            problems = [
                Problem("variable-missing", "some inputs lack it", name, (task.names[lacking[0]],))
            ]
        else:
            laid = _level([group.groups[name] for group in groups], level_x, level_y, task)
            if not isinstance(laid, list):
                found[name] = laid
                continue
            problems = laid
        first = problems[0]
        source = first.sources[0] if first.sources else ""
        left_out.append(Finding(f"/{name}", Fate.SKIPPED, first.message, source))
    return found, tuple(left_out)


def _layout(attrs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Entries of the layout in a ``multiscales`` attribute; none if there is no such thing."""
    pyramid = attrs.get("multiscales")
    layout = pyramid.get("layout") if isinstance(pyramid, Mapping) else None
    entries = layout if isinstance(layout, list) else []
    return [entry for entry in entries if isinstance(entry, Mapping) and "asset" in entry]


def _level_dims(group: VirtualGroup, x: str, y: str) -> dict[str, tuple[str, str]]:
    """Names of the groups with overviews, and what the dimensions `x` and `y` are called there."""
    found = {}
    for entry in _layout(group.attrs):
        name, _, variable = str(entry["asset"]).rpartition("/")
        fine = group.arrays.get(variable)
        coarse = group.groups[name].arrays.get(variable) if name in group.groups else None
        if fine is not None and coarse is not None and {x, y} <= {*fine.dims}:
            columns, rows = fine.dims.index(x), fine.dims.index(y)
            found[name] = (coarse.dims[columns], coarse.dims[rows])
    return found


def _pyramid_attributes(
    attrs: Mapping[str, Any], overviews: Mapping[str, VirtualGroup]
) -> dict[str, Any]:
    """Attributes of the first input, with the overviews that the mosaic has.

    How much coarser these are is the same for a tile and for the mosaic, or they do not fit.
    """
    if not overviews:
        return {name: value for name, value in attrs.items() if name not in _PYRAMID_ATTRIBUTES}
    layout = [
        entry
        for entry in _layout(attrs)
        if "/" not in str(entry["asset"]) or str(entry["asset"]).rpartition("/")[0] in overviews
    ]
    return {**attrs, "multiscales": {**attrs["multiscales"], "layout": layout}}


def place_inputs(
    groups: Sequence[VirtualGroup], *, x: str = "x", y: str = "y", tolerance: float = 0.01
) -> tuple[list[Placement], list[Problem]]:
    """Where each group lies on the common pixels, and what prevents it.

    Parameters
    ----------
    groups, x, y, tolerance
        As for `mosaic`.
    """
    problems: list[Problem] = []
    names = [source_name(group) or f"input {number}" for number, group in enumerate(groups, 1)]
    rasters = _rasters(groups, names, x, y, problems)
    return ([], problems) if problems else _placed(rasters, tolerance)


def _rasters(
    groups: Sequence[VirtualGroup], names: Sequence[str], x: str, y: str, problems: list[Problem]
) -> list[_Raster]:
    """The georeferencing of the inputs that have one that fits."""
    pairs = zip(groups, names, strict=True)
    found = [_raster(group, name, x, y, problems) for group, name in pairs]
    return [raster for raster in found if raster is not None]


def _raster(
    group: VirtualGroup, name: str, x: str, y: str, problems: list[Problem]
) -> _Raster | None:
    """Read an input's georeferencing; None, with a problem noted, if it has none that fits."""
    mapping = group.arrays.get(_GRID_MAPPING)
    shape = next(
        (
            (array.shape[array.dims.index(y)], array.shape[array.dims.index(x)])
            for array in group.arrays.values()
            if x in array.dims and y in array.dims
        ),
        None,
    )
    text = "" if mapping is None else str(mapping.attrs.get("GeoTransform", ""))
    numbers = _floats(text)
    if shape is None or mapping is None or len(numbers) != 6:
        message = f"it has no variable along {y} and {x} with a georeference"
        problems.append(Problem("not-georeferenced", message, None, (name,)))
        return None
    x0, dx, skew_x, y0, skew_y, dy = numbers
    if skew_x or skew_y or not dx or not dy:
        message = "its pixels are rotated against the axes; warp it first"
        problems.append(Problem("rotated", message, None, (name,)))
        return None
    crs = str(mapping.attrs.get("crs_wkt", ""))
    return _Raster(name, x0, dx, y0, dy, shape[0], shape[1], crs)


def _floats(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split()]
    except ValueError:
        return []


def _placed(rasters: Sequence[_Raster], tolerance: float) -> tuple[list[Placement], list[Problem]]:
    """Rows and columns of rasters on the first one's grid, counted from the outermost pixel."""
    first, problems = rasters[0], []
    columns, rows = [], []
    for raster in rasters:
        problem = _mismatch(first, raster, tolerance)
        column = (raster.x0 - first.x0) / first.dx
        row = (raster.y0 - first.y0) / first.dy
        off = max(abs(column - round(column)), abs(row - round(row)))
        if problem is None and off > tolerance:
            problem = Problem(
                "off-grid",
                f"it lies {abs(column - round(column)):.3g} columns and"
                f" {abs(row - round(row)):.3g} rows off the pixels of {first.name};"
                f" tolerance is {tolerance:g}",
                None,
                (raster.name,),
            )
        if problem is not None:
            problems.append(problem)
        columns.append(round(column))
        rows.append(round(row))
    left, top = min(columns), min(rows)
    return [
        Placement(row - top, column - left, raster.n_rows, raster.n_columns)
        for row, column, raster in zip(rows, columns, rasters, strict=True)
    ], problems


def _mismatch(first: _Raster, raster: _Raster, tolerance: float) -> Problem | None:
    """What keeps a raster from sharing the first one's grid at all."""
    if raster.crs != first.crs:
        message = (
            f"its coordinate reference system is {_crs_name(raster.crs)}, that of {first.name} is"
            f" {_crs_name(first.crs)}; warp it first"
        )
        return Problem("crs-differs", message, None, (raster.name,))
    drift_x = abs(raster.dx / first.dx - 1) * raster.n_columns
    drift_y = abs(raster.dy / first.dy - 1) * raster.n_rows
    if max(drift_x, drift_y) > tolerance:
        message = (
            f"its pixels are {raster.dx:.12g} by {raster.dy:.12g}, those of {first.name}"
            f" {first.dx:.12g} by {first.dy:.12g}: over its extent that is"
            f" {max(drift_x, drift_y):.3g} pixels"
        )
        return Problem("resolution-differs", message, None, (raster.name,))
    return None


def _crs_name(wkt: str) -> str:
    """The name in a WKT: what stands between its first quotes."""
    parts = wkt.split('"', 2)
    return repr(parts[1]) if len(parts) > 1 else "unknown"


def _variables(
    groups: Sequence[VirtualGroup],
    rasters: Sequence[_Raster],
    x: str,
    y: str,
    problems: list[Problem],
) -> dict[str, list[VirtualArray]]:
    """The versions of each variable that has both dimensions; what does not fit is noted."""
    names = [
        name for name, array in groups[0].arrays.items() if x in array.dims and y in array.dims
    ]
    found = {}
    for name in names:
        versions = [group.arrays.get(name) for group in groups]
        present = [version for version in versions if version is not None]
        if len(present) < len(versions):
            lacking = [
                raster.name
                for raster, version in zip(rasters, versions, strict=True)
                if version is None
            ]
            message = "some inputs lack it"
            problems.append(Problem("variable-missing", message, name, tuple(lacking)))
            continue
        problems += _differences(name, present, rasters, x, y)
        found[name] = present
    return found


def _differences(
    name: str, versions: Sequence[VirtualArray], rasters: Sequence[_Raster], x: str, y: str
) -> list[Problem]:
    """Inputs whose version of a variable cannot stand beside the first one's."""
    checks: dict[str, Callable[[VirtualArray], Any]] = {
        "dimensions-differ": lambda array: [
            (dim, None if dim in (x, y) else extent)
            for dim, extent in zip(array.dims, array.shape, strict=True)
        ],
        "dtype-differs": lambda array: str(array.dtype),
        "packing-differs": lambda array: [
            str(array.attrs.get(key)) for key in ("scale_factor", "add_offset", "scales", "offsets")
        ],
        "nodata-differs": lambda array: str(array.attrs.get("_FillValue")),
    }
    problems = []
    for cause, value_of in checks.items():
        expected = value_of(versions[0])
        for version, raster in zip(versions, rasters, strict=True):
            value = value_of(version)
            if value != expected:
                message = f"it has {value}, {rasters[0].name} has {expected}"
                problems.append(Problem(cause, message, name, (raster.name,)))
    return problems


@dataclass(frozen=True, eq=False)
class _Lines:
    """The lines of the common grid: where cells begin, and the whole extent."""

    rows: Int64Array
    columns: Int64Array
    n_rows: int
    n_columns: int

    @classmethod
    def of(cls, placements: Sequence[Placement]) -> _Lines:
        tops = np.array([entry.row for entry in placements], np.int64)
        lefts = np.array([entry.column for entry in placements], np.int64)
        bottoms = tops + np.array([entry.n_rows for entry in placements], np.int64)
        rights = lefts + np.array([entry.n_columns for entry in placements], np.int64)
        rows, columns = np.union1d(tops, bottoms), np.union1d(lefts, rights)
        if len(rows) * len(columns) > _MAX_CELLS:
            raise InvalidRequestError(
                f"the edges of the inputs make a grid of {len(rows)} by {len(columns)} cells:"
                " they hardly share any; warp them to common tiles first"
            )
        return cls(rows[:-1], columns[:-1], int(rows[-1]), int(columns[-1]))

    def cells(self, placement: Placement) -> tuple[slice, slice]:
        """Cells that an input covers."""
        row_stop, column_stop = (
            placement.row + placement.n_rows,
            placement.column + placement.n_columns,
        )
        return (
            slice(*np.searchsorted(self.rows, [placement.row, row_stop]).tolist()),
            slice(*np.searchsorted(self.columns, [placement.column, column_stop]).tolist()),
        )


def _owners(
    placements: Sequence[Placement], lines: _Lines, rasters: Sequence[_Raster], overlap: Overlap
) -> tuple[NDArray[np.int32], list[Problem]]:
    """Which input each cell shows, -1 for none; and the overlaps, if those are problems."""
    owner = np.full((len(lines.rows), len(lines.columns)), -1, np.int32)
    problems = []
    for number, placement in enumerate(placements):
        cells = owner[lines.cells(placement)]
        taken = cells >= 0
        if overlap == "error" and taken.any():
            other = int(cells[taken][0])
            rows, columns = _shared(placements[other], placement)
            message = (
                f"{rows} by {columns} pixels (rows, columns) of it lie in {rasters[other].name}"
            )
            problems.append(
                Problem("overlap", message, None, (rasters[number].name, rasters[other].name))
            )
        if overlap == "last":
            cells[:] = number
        else:
            cells[~taken] = number
    return owner, problems


def _shared(one: Placement, other: Placement) -> tuple[int, int]:
    """Rows and columns that two inputs have in common."""
    rows = min(one.row + one.n_rows, other.row + other.n_rows) - max(one.row, other.row)
    columns = min(one.column + one.n_columns, other.column + other.n_columns) - max(
        one.column, other.column
    )
    return rows, columns


def _laid_out(
    versions: Sequence[VirtualArray],
    placements: Sequence[Placement],
    lines: _Lines,
    owner: NDArray[np.int32],
    x: str,
    y: str,
) -> VirtualArray:
    """Put the blocks of all versions of a variable into the cells that they own."""
    first = versions[0]
    dtype = common_dtype(versions)
    alike = [recast(array, dtype, dtype.type(first.fill_value)) for array in versions]
    offsets = [_offsets(array, place, y, x) for array, place in zip(alike, placements, strict=True)]
    starts = [_common_starts(alike, offsets, axis, lines, y, x) for axis in range(first.ndim)]
    cut = [_cut(array, offset, starts) for array, offset in zip(alike, offsets, strict=True)]
    chosen = np.full([len(entry) for entry in starts], -1, np.int64)
    cells = _refined_owner(owner, lines, starts, first.dims.index(y), first.dims.index(x))
    n_before = 0
    for number, (array, offset) in enumerate(zip(cut, offsets, strict=True)):
        place = tuple(
            slice(low, low + count)
            for low, count in (
                (int(np.searchsorted(entry, shift)), axis.n_chunks)
                for entry, shift, axis in zip(starts, offset, array.grid.axes, strict=True)
            )
        )
        rows = np.arange(len(array.blocks), dtype=np.int64).reshape(array.grid.grid_shape)
        mine = np.broadcast_to(cells, chosen.shape)[place] == number
        chosen[place][mine] = (rows + n_before)[mine]
        n_before += len(array.blocks)
    extents = list(first.shape)
    extents[first.dims.index(y)], extents[first.dims.index(x)] = lines.n_rows, lines.n_columns
    grid = ChunkGrid.from_edges(
        [np.diff(entry, append=extent) for entry, extent in zip(starts, extents, strict=True)]
    )
    encodings, manifests, table = _pooled(cut)
    blocks = _taken(table, chosen.reshape(-1))
    return VirtualArray(
        grid,
        dtype,
        alike[0].fill_value,
        first.dims,
        dict(first.attrs),
        encodings,
        manifests,
        blocks,
    )


def _offsets(array: VirtualArray, placement: Placement, y: str, x: str) -> list[int]:
    """Where an array begins on the mosaic, along each of its axes."""
    places = {y: placement.row, x: placement.column}
    return [places.get(dim, 0) for dim in array.dims]


def _common_starts(
    arrays: Sequence[VirtualArray],
    offsets: Sequence[Sequence[int]],
    axis: int,
    lines: _Lines,
    y: str,
    x: str,
) -> Int64Array:
    """Where blocks of the mosaic begin along an axis: on the lines, and where any block does."""
    dim = arrays[0].dims[axis]
    own = [
        offset[axis] + array.grid.axes[axis].starts(np.arange(array.grid.axes[axis].n_chunks))
        for array, offset in zip(arrays, offsets, strict=True)
    ]
    drawn = {y: lines.rows, x: lines.columns}.get(dim, np.zeros(0, np.int64))
    return np.unique(np.concatenate([drawn, *own]))


def _cut(array: VirtualArray, offset: Sequence[int], starts: Sequence[Int64Array]) -> VirtualArray:
    """Cut the blocks of an array along the lines of the mosaic."""
    for axis, (shift, entry) in enumerate(zip(offset, starts, strict=True)):
        array = split_blocks(array, axis, entry - shift)
    return array


def _refined_owner(
    owner: NDArray[np.int32],
    lines: _Lines,
    starts: Sequence[Int64Array],
    y_axis: int,
    x_axis: int,
) -> NDArray[np.int32]:
    """Owners on the finer lines of one variable, in an array that broadcasts to its grid."""
    rows = np.searchsorted(lines.rows, starts[y_axis], side="right") - 1
    columns = np.searchsorted(lines.columns, starts[x_axis], side="right") - 1
    fine = owner[np.ix_(rows, columns)]
    shape = [1] * len(starts)
    shape[y_axis], shape[x_axis] = fine.shape
    return (fine if y_axis < x_axis else fine.T).reshape(shape)


def _pooled(
    arrays: Sequence[VirtualArray],
) -> tuple[tuple[Encoding, ...], tuple[Manifest, ...], BlockTable]:
    """The blocks of all arrays in one table, with interned encodings and manifests."""
    encodings: dict[Encoding, int] = {}
    manifests: dict[int, tuple[int, Manifest]] = {}
    tables = []
    for array in arrays:
        own_encodings = [encodings.setdefault(entry, len(encodings)) for entry in array.encodings]
        own_manifests = [
            manifests.setdefault(id(entry), (len(manifests), entry))[0] for entry in array.manifests
        ]
        table = array.blocks
        missing = table.encoding == MISSING_BLOCK
        tables.append(
            replace(
                table,
                encoding=np.where(
                    missing, MISSING_BLOCK, _looked_up(own_encodings, table.encoding)
                ),
                manifest=np.where(missing, 0, _looked_up(own_manifests, table.manifest)),
            )
        )
    pooled = BlockTable(
        *(np.concatenate([vars(table)[name] for table in tables]) for name in vars(tables[0]))
    )
    return tuple(encodings), tuple(entry for _, entry in manifests.values()), pooled


def _looked_up(numbers: Sequence[int], column: NDArray[np.int32]) -> NDArray[np.int32]:
    lookup = np.array([*numbers, MISSING_BLOCK], np.int32)
    return lookup[np.clip(column, -1, len(numbers) - 1)]


def _taken(table: BlockTable, rows: Int64Array) -> BlockTable:
    """Rows of a table; -1 becomes a missing block."""
    if not (rows < 0).any():
        return table.take(rows)
    absent = BlockTable.missing(1, table.origin.shape[1])
    extended = BlockTable(
        *(np.concatenate([vars(table)[name], vars(absent)[name]]) for name in vars(table))
    )
    return extended.take(np.where(rows < 0, len(table), rows))


def _with_coordinates(
    template: VirtualGroup,
    raster: _Raster,
    first: Placement,
    lines: _Lines,
    arrays: Mapping[str, VirtualArray],
    x: str,
    y: str,
) -> VirtualGroup:
    """The arrays of a mosaic: its variables, new coordinates, and what the first input has."""
    x0, y0 = raster.x0 - first.column * raster.dx, raster.y0 - first.row * raster.dy
    transform = " ".join(repr(float(n)) for n in (x0, raster.dx, 0, y0, 0, raster.dy))
    mapping = template.arrays[_GRID_MAPPING]
    columns = x0 + (np.arange(lines.n_columns) + 0.5) * raster.dx
    rows = y0 + (np.arange(lines.n_rows) + 0.5) * raster.dy
    replaced = {
        **arrays,
        _GRID_MAPPING: mapping.replace(attrs={**mapping.attrs, "GeoTransform": transform}),
        x: VirtualArray.from_numpy(columns, (x,), _attrs_of(template, x)),
        y: VirtualArray.from_numpy(rows, (y,), _attrs_of(template, y)),
    }
    kept = {
        name: replaced.get(name, array)
        for name, array in template.arrays.items()
        if name in replaced or not {x, y} & {*array.dims}
    }
    return VirtualGroup({**kept, **replaced}, attrs=template.attrs)


def _attrs_of(group: VirtualGroup, name: str) -> dict[str, Any]:
    array = group.arrays.get(name)
    return {} if array is None else dict(array.attrs)
