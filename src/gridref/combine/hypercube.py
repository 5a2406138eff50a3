"""Lay inputs by their labels along several dimensions at once.

Every input holds a box of labels: one month of member 3, or a tile of rows and columns. Along each
dimension the labels of all inputs are put in order. A box may be anywhere and of any size, and
inputs need not fill the whole: what no input holds is a missing block. The idea is xarray's
``combine_by_coords``, without its need for a complete and even grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine.along import comparable_labels, fall
from gridref.combine.columns import Column, Notes
from gridref.combine.concatenation import combine_batch
from gridref.combine.layout import Lengths
from gridref.combine.options import CombineOptions, Read
from gridref.combine.report import Combination
from gridref.combine.rules.gaps import with_padding
from gridref.combine.rules.indices import counts_along, refuse_moved
from gridref.combine.rules.packing import Packing, unpack_all
from gridref.combine.rules.single import repeated_along
from gridref.combine.values import Values, same_values
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.indexing import isel, pruned
from gridref.model.placing import MAX_CELLS, lay_out
from gridref.model.reference_systems import referred_names
from gridref.model.times import DAY_NS, TimeBase, is_time_like
from gridref.typing import Int64Array

# Boxes on the cells between their edges: holes and overlaps

Box = tuple[tuple[int, int], ...]
"""Half-open spans of elements, one for each dimension."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Boxes laid on the cells that their edges make.

    Attributes
    ----------
    lines
        Where cells start along each dimension, and the extent.
    owner
        For each cell the number of the first box that holds it; -1 where none does.
    clashes
        Boxes of another owner that hold a cell which is taken: their number, and the first one's.
    """

    lines: Sequence[Int64Array]
    owner: Int64Array
    clashes: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, boxes: Sequence[Box], shape: Sequence[int]) -> Cells:
        """Lay boxes, the first one below.

        Raises
        ------
        InvalidRequestError
            If their edges make too many cells to look at.
        """
        edges = np.array(boxes, np.int64).reshape(len(boxes), len(shape), 2)
        lines = [
            np.unique(np.append(edges[:, axis].reshape(-1), [0, extent]))
            for axis, extent in enumerate(shape)
        ]
        sizes = [len(cuts) - 1 for cuts in lines]
        if np.prod(sizes, dtype=float) > MAX_CELLS:
            raise InvalidRequestError(
                f"the edges of the inputs make a grid of {' by '.join(map(str, sizes))} cells: they"
                " hardly share any label; combine those that do by themselves"
            )
        owner = np.full(sizes, -1, np.int64)
        spans = [np.searchsorted(cuts, edges[:, axis]) for axis, cuts in enumerate(lines)]
        single = all((span[:, 1] - span[:, 0] == 1).all() for span in spans)
        if single and spans:
            cells = np.ravel_multi_index([span[:, 0] for span in spans], sizes)
            if len(np.unique(cells)) == len(cells):  # the usual case, without a loop
                owner.reshape(-1)[cells] = np.arange(len(cells))
                return cls(lines, owner, [])
        clashes = []
        for number, box in enumerate(boxes):
            mine = owner[_slices(lines, box)]
            taken = mine[mine >= 0]
            if taken.size:
                clashes.append((number, int(taken[0])))
            mine[mine < 0] = number
        return cls(lines, owner, clashes)

    def holes(self) -> Iterator[Box]:
        """Cells that no box holds; neighbours along the last dimension are one."""
        runs: list[tuple[list[int], int]] = []
        for cell in np.argwhere(self.owner < 0).tolist():
            first, n_joined = runs[-1] if runs else ([], 0)
            if first[:-1] == cell[:-1] and first and first[-1] + n_joined == cell[-1]:
                runs[-1] = first, n_joined + 1
            else:
                runs.append((cell, 1))
        return (self._box(first, n_joined) for first, n_joined in runs)

    def covers(self, box: Box) -> bool:
        """Whether boxes hold all of another one, whose edges are among theirs."""
        return bool((self.owner[_slices(self.lines, box)] >= 0).all())

    def _box(self, cell: Sequence[int], n_last: int) -> Box:
        counts = [1] * (len(cell) - 1) + [n_last]
        return tuple(
            (int(cuts[at]), int(cuts[at + n]))
            for cuts, at, n in zip(self.lines, cell, counts, strict=True)
        )


def _slices(lines: Sequence[Int64Array], box: Box) -> tuple[slice, ...]:
    return tuple(
        slice(*np.searchsorted(cuts, span).tolist()) for cuts, span in zip(lines, box, strict=True)
    )


# Places of each input's labels among the labels of all, along one dimension

_UNIX_EPOCH_NS = 2_440_588 * DAY_NS
"""1970-01-01, as `TimeBase` counts: the Julian day number of its noon."""


@dataclass(frozen=True, eq=False)
class Places:
    """The labels of a dimension, and where those of each input are among them.

    Attributes
    ----------
    coordinate
        All labels: rising, or falling where those of every input do.
    by_file
        For each input that has the dimension, the place of each of its labels.
    labels
        The values of the coordinate.
    """

    coordinate: VirtualArray
    by_file: Mapping[int, Int64Array]
    labels: NDArray[Any]
    _runs: dict[int, Sequence[tuple[slice, int]]] = field(default_factory=dict, repr=False)

    @property
    def extent(self) -> int:
        """Number of labels."""
        return len(self.labels)

    def runs(self, file: int) -> Sequence[tuple[slice, int]]:
        """Parts of an input whose labels are neighbours: which elements, and their first place."""
        if file not in self._runs:  # asked for each variable of each file
            self._runs[file] = tuple(self._runs_of(self.by_file[file]))
        return self._runs[file]

    def _runs_of(self, places: Int64Array) -> Iterator[tuple[slice, int]]:
        n = len(places)
        falls = n > 1 and places[0] > places[-1]
        ordered = places[::-1] if falls else places
        heads = [0, *(np.flatnonzero(np.diff(ordered) != 1) + 1).tolist()] if n else []
        for start, stop in itertools.pairwise([*heads, n]):
            last = n - 1 - stop
            own = slice(n - 1 - start, last if last >= 0 else None, -1)
            yield (own if falls else slice(start, stop)), int(ordered[start])

    def text(self, start: int, stop: int) -> str:
        """Some of the labels in words: ``time 2001-01 to 2001-03``."""
        attrs = self.coordinate.attrs
        first, last = (label_text(self.labels[at], attrs) for at in (start, stop - 1))
        (dim,) = self.coordinate.dims
        return f"{dim} {first}" + (f" to {last}" if stop - start > 1 else "")


def label_text(label: Any, attrs: Mapping[str, Any]) -> str:
    """A label in words; a number that counts time as a date, where the calendar is everyday's."""
    base = TimeBase.of(attrs) if isinstance(label, np.number) else None
    real = base is not None and base.calendar in ("standard", "proleptic_gregorian")
    if base is None or not real or not math.isfinite(label):
        return f"{label} {attrs['units']}" if is_time_like(attrs) else str(label)
    moment = base.epoch_ns - _UNIX_EPOCH_NS + round(label.item() * base.unit_ns)
    if abs(moment) >= 2**63:
        return str(label)
    text = str(np.datetime64(moment, "ns").astype("M8[s]"))
    return text.removesuffix("T00:00:00")


def find_places(column: Column, values: Values, notes: Notes) -> Places | None:
    """Put the labels of all inputs in order, each once; None if a problem is noted."""
    labels = comparable_labels(column, values)
    if labels is None:
        message = "its labels cannot be compared: they are missing, NaN, or of several kinds"
        notes.problem("labels-differ", column.path, message, column.files, drop=False)
        return None
    repeating = [
        file
        for file, own in zip(column.files, labels, strict=True)
        if len(np.unique(own)) < len(own)
    ]
    if repeating:
        message = "labels repeat within a file: select one of each first"
        notes.problem("overlap", column.path, message, repeating, drop=False)
        return None
    every = np.unique(np.concatenate(labels))
    if fall(labels):
        every = every[::-1]
    order = np.argsort(every, kind="stable")
    by_file = {
        file: order[np.searchsorted(every, own, sorter=order)]
        for file, own in zip(column.files, labels, strict=True)
    }
    first = column.first
    coordinate = VirtualArray.from_numpy(every, first.dims, first.attrs, first.fill_value)
    return Places(coordinate, by_file, every)


# The layout of inputs by their labels along several dimensions

_N_SHOWN = 4
"""Holes that a report lists one by one."""


def combine_hypercube(
    groups: Iterable[VirtualGroup],
    dims: Sequence[str],
    *,
    read: Read | None = None,
    options: CombineOptions | None = None,
) -> Combination:
    """Lay groups out by their labels along several dimensions, and report what differed.

    Parameters
    ----------
    groups
        The inputs, in any order; all are kept in memory. Each says its labels along each dimension:
        as the coordinate of a dimension that it has, or as a scalar variable of that name.
    dims
        The dimensions; new ones are put first, in this order. None merges inputs of different
        variables.
    read, options
        As for `gridref.combine.combine`. Variables without some of the dimensions have to agree
        between inputs of the same labels, or are repeated, as `variables` says; single values that
        differ (a ``valid_time`` of each run and step) always are. What no input holds
        is a missing block whatever `join` says, and a drift of the report.

    Returns
    -------
    Combination
        Problems are labels that are missing or cannot be compared, inputs that hold the same labels
        of a variable (`overlap`), and drift that no rule resolves.

    Raises
    ------
    InvalidRequestError
        For no inputs, ``overlap="keep"``, or labels that hardly any inputs share.
    """
    rules = options or CombineOptions()
    if rules.overlap == "keep":
        raise InvalidRequestError(
            "overlap='keep' keeps labels that repeat, and where files lie by their labels only one"
            " input can be shown at each place: lay them one after the other along one dimension"
            " (concat_dim alone, or layout='nested'), or take another overlap"
        )
    inputs = list(groups)
    if not inputs:
        raise InvalidRequestError("nothing to combine: no inputs")
    names = [f"input {number + 1}" for number in range(len(inputs))]
    done = combine_batch(inputs, names, Hypercube(tuple(dims)), read, rules)
    return done.telling_what_is_left_out()


@dataclass(frozen=True, eq=False)
class Hypercube:
    """Every file in the box of its labels.

    Attributes
    ----------
    growing
        The dimensions.
    places
        Where the labels of each file are, by dimension.
    values
        Gives values of variables that lack some of the dimensions, to compare them.
    rule
        What shows where several files hold the same labels: ``overlap``.
    referred
        Names of coordinates and bounds: several files may hold the same values of these.
    """

    growing: tuple[str, ...]
    places: Mapping[str, Places] = field(default_factory=dict)
    values: Values = field(default_factory=lambda: Values(None))
    rule: str = "error"
    referred: Collection[str] = ()
    settled: Mapping[str, Collection[str]] = field(default_factory=dict)
    repeats = True
    each_may_be_new = True

    def dims_of_files(self, column: Column, values: Values) -> tuple[str, ...]:
        """All of them."""
        return self.growing

    def at_level(
        self, columns: Mapping[str, Column], lengths: Lengths, values: Values, notes: Notes
    ) -> Hypercube:
        """The layout by a group's own labels, else by those of the groups above it."""
        found = dict(self.places)
        for dim in self.growing:
            column = columns.get(dim)
            if column is not None and _is_index(column) and column.path not in notes.failed:
                own = find_places(repeated_along(column, dim, {}), values, notes)
                found |= {} if own is None else {dim: own}
        for dim in self.growing:
            self._check(dim, found.get(dim), columns, lengths, notes)
            counting = [own for own in columns.values() if counts_along(own, notes) == dim]
            held = [] if dim not in found else [*found[dim].by_file.values()]
            n_held = sum(map(len, held))
            if counting and held and np.any(np.concatenate(held) != np.arange(n_held)):
                refuse_moved(counting, dim, notes)
        arrays = (kind.array for column in columns.values() for kind in column.kinds)
        referred = {*self.referred, *referred_names(arrays)}
        rule = notes.options.overlap
        return replace(self, places=found, values=values, rule=rule, referred=referred)

    def _check(
        self,
        dim: str,
        places: Places | None,
        columns: Mapping[str, Column],
        lengths: Lengths,
        notes: Notes,
    ) -> None:
        """Note files that have a dimension, but no labels along it."""
        known = {} if places is None else places.by_file
        extents = lengths.get(dim, {})
        unplaced = [file for file, n in extents.items() if len(known.get(file, ())) != n]
        if not unplaced or any(problem.variable == dim for problem in notes.problems):
            return
        paths = [column.path for column in columns.values() if dim in column.first.dims]
        path = paths[0] if paths else dim
        message = (
            f"no labels say where it lies along {dim!r}: give them (layout=Labels(...)), or the"
            " order of the files (layout='nested')"
        )
        notes.problem("labels-missing", path, message, unplaced, drop=False)
        notes.failed |= {column.path for column in columns.values()}

    def dims_of(self, column: Column, notes: Notes) -> tuple[str, ...] | None:
        """The dimensions that a variable has; all where it differs along the others, if asked."""
        dims = self._dims_of(column, notes)
        if dims is not None and any(dim not in self.places for dim in dims):
            return None  # a problem is noted of it
        return dims

    def _dims_of(self, column: Column, notes: Notes) -> tuple[str, ...] | None:
        held = self._held(column)
        if any(dim not in self.places for dim in held):
            return None
        asked = notes.options.repeated.get(column.name) == "all" or column.path in notes.told
        if asked and not held:
            return self.growing
        if not held and self._differing_scalars(column, notes):
            case = {"single values that differ": list(column.files)}
            notes.drift("repeated", column.path, case, f"along {self._others(held)}")
            return self.growing
        if not held or len(held) == len(self.growing) or column.name in self.growing:
            return held
        rule = notes.options.repeat_rule(column.name)
        if rule == "all":
            return self.growing
        differing = [] if notes.options.compat == "override" else self._differing(column, held)
        if differing and rule == "different":
            case = {f"differs along {self._others(held)}": differing}
            notes.drift("repeated", column.path, case, f"along {self._others(held)}")
            return self.growing
        if differing:
            message = (
                f"its values differ between inputs of the same {' and '.join(held)}, and it has no"
                f" dimension {self._others(held)}; variables='different' repeats it along that;"
                " compat='override' shows the first file's and loses the others"
            )
            notes.problem("values-differ", column.path, message, differing)
            return None
        return held

    def _differing_scalars(self, column: Column, notes: Notes) -> bool:
        """Whether a variable is one value in each file, and not the same: a label like others."""
        if notes.options.compat == "override" or column.name in self.growing:
            return False
        if any(kind.array.ndim or Packing.of(kind.array).scale for kind in column.kinds):
            return False
        if not all(map(self.values.available, column.arrays)):
            return False
        first, *others = map(self.values.of, column.arrays)
        return not all(same_values(first, other) for other in others)

    def is_shared(self, column: Column, dims: Sequence[str]) -> bool:
        """Whether it is a coordinate or bounds, and equal wherever several files hold it."""
        if column.name not in self.referred:
            return False
        known = all(map(self.values.available, column.arrays))
        return known and not self._differing(column, dims)

    def _held(self, column: Column) -> tuple[str, ...]:
        return tuple(
            dim for dim in self.growing if any(dim in kind.array.dims for kind in column.kinds)
        )

    def _others(self, held: Collection[str]) -> str:
        return " and ".join(dim for dim in self.growing if dim not in held)

    def _differing(self, column: Column, dims: Sequence[str]) -> list[int]:
        """Files that hold other values of a variable than the first ones with their labels."""
        compared = self._with(column, dims)
        if compared is None or not all(map(self.values.available, column.arrays)):
            return []
        if len({Packing.of(kind.array) for kind in column.kinds}) > 1:
            compared = unpack_all(compared)
        boxes = [(file, box) for piece in self.pieces(compared, dims) for file, box in piece.boxes]
        if not Cells.of([box for _, box in boxes], self._shape(dims)).clashes:
            return []
        whole = _Laid(self, tuple(dims), keep_last=False).lay(
            compared, compared.first.dtype, None, alike=False
        )
        shown = self.values.of(whole)
        return [
            piece.file
            for piece in self.pieces(compared, dims)
            if not same_values(
                self.values.of(piece.array),
                shown[
                    tuple(
                        slice(at, at + n)
                        for at, n in zip(piece.corner, piece.array.shape, strict=True)
                    )
                ],
            )
        ]

    def _shape(self, dims: Iterable[str]) -> list[int]:
        return [self.places[dim].extent for dim in dims]

    def with_dims(
        self, column: Column, dims: Sequence[str], lengths: Lengths, notes: Notes
    ) -> Column | None:
        """Repeat the arrays that lack dimensions along them, where their files say labels."""
        complete = self._with(column, dims)
        if complete is None:
            message = f"it has no labels along {' and '.join(dims)} to be repeated along"
            notes.problem("labels-missing", column.path, message, column.files)
            return None
        if any(dim in kind.array.dims for dim in dims for kind in column.kinds):
            cases = column.cases(lambda kind: str(kind.array.dims))
            if len(cases) > 1:
                notes.drift("dimensions", column.path, cases, f"shown as {complete.first.dims}")
        return complete

    def _with(self, column: Column, dims: Sequence[str]) -> Column | None:
        """The column, with all of some dimensions; None where a file has no labels along one."""
        if any(file not in self.places[dim].by_file for dim in dims for file in column.files):
            return None
        longest = max((kind.array.dims for kind in column.kinds), key=len)
        wanted = [*(dim for dim in dims if dim not in longest), *longest]
        for axis, dim in enumerate(wanted):
            if dim in dims:
                lengths = {file: len(own) for file, own in self.places[dim].by_file.items()}
                column = repeated_along(column, dim, lengths, axis)
        return column

    def arrangement(
        self, column: Column, dims: Sequence[str], lengths: Lengths, lacking: Sequence[int]
    ) -> _Laid:
        """The box of each file."""
        last = self.rule == "last" and len(dims) == len(self.growing)
        return _Laid(self, tuple(dims), keep_last=last)

    def pieces(self, column: Column, dims: Sequence[str]) -> Iterator[_Piece]:
        """The arrays of a column, cut where their labels are not neighbours."""
        axes = [column.first.dims.index(dim) for dim in dims]
        for file, array in zip(column.files, column.arrays, strict=True):
            runs = [list(self.places[dim].runs(file)) for dim in dims]
            for chosen in itertools.product(*runs):
                parts = {axis: part for axis, (part, _) in zip(axes, chosen, strict=True)}
                corner = [0] * array.ndim
                for axis, (_, first) in zip(axes, chosen, strict=True):
                    corner[axis] = first
                whole = all(part == slice(0, array.shape[axis]) for axis, part in parts.items())
                yield _Piece(file, array if whole else isel(array, parts), corner, axes)


def _is_index(column: Column) -> bool:
    return all(kind.array.dims in ((column.name,), ()) for kind in column.kinds)


@dataclass(frozen=True, eq=False)
class _Piece:
    """A part of a file's array, and where it goes."""

    file: int
    array: VirtualArray
    corner: Sequence[int]
    axes: Sequence[int]

    @property
    def boxes(self) -> list[tuple[int, Box]]:
        """What it holds along the growing axes: all of it, or each block that is not missing."""
        array, axes = self.array, self.axes
        held = (array.blocks.encoding != MISSING_BLOCK).reshape(array.grid.grid_shape)
        if held.all():
            spans = tuple((self.corner[k], self.corner[k] + array.shape[k]) for k in axes)
            return [(self.file, spans)]
        others = tuple(axis for axis in range(array.ndim) if axis not in axes)
        shown = np.argwhere(held.any(axis=others).transpose(np.argsort(np.argsort(axes))))
        edges = [np.concatenate([[0], np.cumsum(array.grid.axes[k].edges())]) for k in axes]
        return [
            (
                self.file,
                tuple(
                    (self.corner[k] + int(cuts[at]), self.corner[k] + int(cuts[at + 1]))
                    for k, cuts, at in zip(axes, edges, cell, strict=True)
                ),
            )
            for cell in shown.tolist()
        ]


@dataclass(frozen=True, eq=False)
class _Laid:
    """Arrays in the boxes of their files."""

    cube: Hypercube
    dims: tuple[str, ...]
    keep_last: bool

    def fill(
        self, column: Column, lacking: Sequence[int], notes: Notes
    ) -> tuple[Column, Any] | None:
        """What holes read as; None where several files hold the same labels."""
        if self._is_coordinate(column):
            return column, None
        boxes = [own for piece in self.cube.pieces(column, self.dims) for own in piece.boxes]
        cells = Cells.of([box for _, box in boxes], self._shape)
        clashes = [(boxes[one][0], boxes[other][0]) for one, other in cells.clashes]
        is_shown = len(self.dims) == len(self.cube.growing)
        if clashes and is_shown and not self.cube.is_shared(column, self.dims):
            clash = self._text(boxes[cells.clashes[0][0]][1])
            if not _settled(column, clashes, clash, notes):
                return None
        holes = list(cells.holes())
        if not holes:
            return column, None
        column, fill = with_padding(column)
        shown = ", ".join(f"({self._text(hole)})" for hole in holes[:_N_SHOWN])
        more = f" and {len(holes) - _N_SHOWN} more" if len(holes) > _N_SHOWN else ""
        case = {f"nothing for {shown}{more}": list(column.files)}
        notes.drift("hole", column.path, case, f"missing blocks read as {fill}")
        return column, fill

    def lay(self, column: Column, dtype: np.dtype[Any], fill: Any, *, alike: bool) -> VirtualArray:
        """Put arrays at their places; what none holds is missing."""
        if self._is_coordinate(column):
            return self.cube.places[column.name].coordinate
        pieces = list(self.cube.pieces(column, self.dims))
        if not pieces:
            return column.first
        first = column.first
        sizes = dict(zip(first.dims, first.shape, strict=True))
        sizes |= dict(zip(self.dims, self._shape, strict=True))
        laid = lay_out(
            [piece.array for piece in pieces],
            [piece.corner for piece in pieces],
            [sizes[dim] for dim in first.dims],
            keep_last=self.keep_last,
            dtype=dtype,
            fill_value=fill,
        )
        return pruned(laid).replace(dims=first.dims, attrs=first.attrs)

    @property
    def _shape(self) -> list[int]:
        return [self.cube.places[dim].extent for dim in self.dims]

    def _is_coordinate(self, column: Column) -> bool:
        return self.dims == (column.name,) == column.first.dims

    def _text(self, box: Box) -> str:
        """The labels of a box in words."""
        return ", ".join(
            self.cube.places[dim].text(*span) for dim, span in zip(self.dims, box, strict=True)
        )


def _settled(column: Column, clashes: Sequence[tuple[int, int]], text: str, notes: Notes) -> bool:
    """Note that files hold the same labels; whether the rule for that says which one shows."""
    concerned = sorted({file for pair in clashes for file in pair})
    rule = notes.options.overlap
    if rule == "error":
        message = (
            f"several files hold ({text}); a dimension more (layout=Labels(...)) keeps them apart;"
            " overlap='first' or overlap='last' shows one of them and hides the others"
        )
        notes.problem("overlap", column.path, message, concerned)
        return False
    notes.drift("overlap", column.path, {f"also hold ({text})": concerned}, f"the {rule} is shown")
    return True
