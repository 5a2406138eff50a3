"""Place inputs by their labels along several dimensions.

Every input holds a box of labels: one month of member 3, or a tile of rows and columns. Along each
dimension the labels of all inputs are put in order. A box may be anywhere and of any size, and
inputs need not fill the whole: what no input holds is a missing block. The idea is xarray's
``combine_by_coords``, without its need for a complete and even grid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gridref.combine.boxes import Boxes, Cells, Runs
from gridref.combine.columns import Column, Notes
from gridref.combine.labels import Places, comparable_labels, fall, find_places, united
from gridref.combine.options import CombineOptions
from gridref.combine.placement import Lengths, Placement, Task
from gridref.combine.rules.dimensions import (
    contradicting_files,
    counts_along,
    refuse_moved,
    repeated_along,
)
from gridref.combine.rules.packing import Packing, unpack_all, with_padding
from gridref.combine.values import Values, same_values
from gridref.errors import InvalidRequestError, Message, Option, some_of
from gridref.model.array import VirtualArray
from gridref.model.conventions import referred_names

_N_SHOWN = 4
"""Holes that a report lists one by one."""


HOLE = "hole"
"""The cause of drifts that say which combinations of labels no file holds."""


@dataclass(frozen=True, eq=False)
class Hypercube(Placement):
    """Every file in the box of its labels, which say where it lies whatever the order of files.

    Each says its labels along each dimension: as the coordinate of a dimension that it has, or as a
    scalar variable of that name. New dimensions are put first, in their order. No dimension merges
    files of different variables.

    Variables without some of the dimensions have to agree between files of the same labels, or are
    repeated, as `CombineOptions.variables` says; single values that differ (a ``valid_time`` of
    each run and step) always are. What no file holds is a missing block whatever ``join`` says, and
    a drift of the report. Labels that are missing or cannot be compared are problems.

    Attributes
    ----------
    labels
        The labels of all files along each dimension.
    referred
        Names of coordinates and bounds: several files may hold the same values of these.
    """

    labels: Mapping[str, Places] = field(default_factory=dict)
    referred: Collection[str] = ()

    each_may_be_new = True
    in_batches = False

    def check(self, rules: CombineOptions) -> None:
        if rules.overlap == "keep":
            raise InvalidRequestError(
                Message(
                    Option("overlap", "keep"),
                    " keeps repeated labels, but when files are placed by their labels only one "
                    "file can be shown at each place: join them in sequence along one dimension (",
                    Option("concat_dim"),
                    " alone), or choose another overlap",
                )
            )

    @property
    def repeats(self) -> bool:
        return True

    def dims_of_files(self, column: Column, task: Task) -> tuple[str, ...]:
        return self._labelled(column)

    def order_of_files(self, columns: Mapping[str, Column], task: Task) -> Sequence[int]:
        places = []
        for dim in self.growing:
            labels = comparable_labels(columns[dim], task.values) if dim in columns else None
            if labels is not None:
                held = [own.reshape(-1) for own in labels]
                by_file = dict(zip(columns[dim].files, held, strict=True))
                places.append(united(by_file, falling=fall(held))[1])
        given = range(len(task.notes.inputs))
        return sorted(given, key=lambda file: [[*own.get(file, ())[:1]] for own in places])

    def at_level(self, columns: Mapping[str, Column], lengths: Lengths, task: Task) -> Hypercube:
        """The placement by a group's own labels, else by those of the groups above it."""
        notes = task.notes
        found = dict(self.labels)
        for dim in self.growing:
            column = columns.get(dim)
            if column is not None and _is_index(column) and column.path not in notes.failed:
                own = find_places(repeated_along(column, dim, {}), task.values, notes)
                if own is not None and not _agree(own, self.labels.get(dim)):
                    found[dim] = own
        for dim in self.growing:
            self._check(dim, found.get(dim), columns, lengths, notes)
            counting = [own for own in columns.values() if counts_along(own, notes) == dim]
            held = [] if dim not in found else [*found[dim].by_file.values()]
            n_held = sum(map(len, held))
            if counting and held and np.any(np.concatenate(held) != np.arange(n_held)):
                refuse_moved(counting, dim, notes)
        arrays = (kind.array for column in columns.values() for kind in column.kinds)
        return replace(
            self,
            runs={dim: own.runs for dim, own in found.items()},
            labels=found,
            referred={*self.referred, *referred_names(arrays)},
        )

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
        message = Message(
            f"it has no labels that place it along {dim!r}: give labels (",
            Option("labels", ..., "layout=Labels(...)"),
            "), or join the files in sequence along one dimension (",
            Option("concat_dim"),
            " alone)",
        )
        notes.problem("labels-missing", path, message, unplaced, drop=False)
        notes.failed |= {column.path for column in columns.values()}

    def dims_of(self, column: Column, task: Task) -> tuple[str, ...] | None:
        """The dimensions that a variable has; all where it differs along the others, if asked."""
        dims = self._dims_of(column, task)
        if dims is not None and any(dim not in self.labels for dim in dims):
            return None  # a problem is noted of it
        return dims

    def _dims_of(self, column: Column, task: Task) -> tuple[str, ...] | None:
        held, notes = self.held_dims(column), task.notes
        if any(dim not in self.labels for dim in held):
            return None
        if column.is_index:
            return held
        asked = notes.options.repeated.get(column.name) == "all" or column.path in notes.told
        if asked and not held:
            return self._labelled(column)
        if not held and self._differing_scalars(column, task):
            case = {"single values that differ": list(column.files)}
            notes.drift("repeated", column.path, case, f"along {self._others(held)}")
            return self.growing
        if not held or len(held) == len(self.growing) or column.name in self.growing:
            return held
        rule = notes.options.repeat_rule(column.name)
        if rule == "all":
            return self._labelled(column, held)
        differing = (
            [] if notes.options.compat == "override" else self._differing(column, held, task.values)
        )
        if differing and rule == "different":
            case = {f"differs along {self._others(held)}": differing}
            notes.drift("repeated", column.path, case, f"along {self._others(held)}")
            return self.growing
        if differing:
            message = Message(
                f"its values differ between inputs of the same {' and '.join(held)}. "
                f"It has no dimension {self._others(held)}, so they must be equal; ",
                Option("variables", "different"),
                " repeats it along that; ",
                Option("compat", "override"),
                " shows the first file's and loses the others",
            )
            notes.problem("values-differ", column.path, message, differing)
            return None
        return held

    def _labelled(self, column: Column, held: Collection[str] = ()) -> tuple[str, ...]:
        """The dimensions that a variable has, or along which one of its files has labels.

        Where labels are not known, or are a problem, each dimension counts.
        """
        files = {*column.files}
        unlabelled = {
            dim for dim, own in self.labels.items() if files.isdisjoint(own.by_file.keys())
        }
        return tuple(dim for dim in self.growing if dim in held or dim not in unlabelled)

    def _differing_scalars(self, column: Column, task: Task) -> bool:
        """Whether a variable is one value in each file, and not the same: a label like others."""
        if task.notes.options.compat == "override" or column.name in self.growing:
            return False
        if any(kind.array.ndim or Packing.of(kind.array).scale for kind in column.kinds):
            return False
        if not all(map(task.values.available, column.arrays)):
            return False
        first, *others = map(task.values.of, column.arrays)
        return not all(same_values(first, other) for other in others)

    def _others(self, held: Collection[str]) -> str:
        return " and ".join(dim for dim in self.growing if dim not in held)

    def _differing(self, column: Column, dims: Sequence[str], values: Values) -> list[int]:
        """Files that hold other values of a variable than the first ones with their labels."""
        if len({Packing.of(kind.array) for kind in column.kinds}) > 1:
            column = unpack_all(column)
        wide = self._with(column, dims)
        if wide is None or not all(map(values.available, column.arrays)):
            return []
        runs = {dim: self.runs[dim] for dim in dims}
        return contradicting_files(column, wide, runs, values)

    def with_dims(
        self, column: Column, dims: Sequence[str], lengths: Lengths, task: Task
    ) -> Column | None:
        """Repeat the arrays that lack dimensions along them, where their files say labels."""
        complete = self._with(column, dims)
        if complete is None:
            message = f"it has no labels along {' and '.join(dims)}, so it cannot be repeated"
            task.notes.problem("labels-missing", column.path, message, column.files)
            return None
        if any(dim in kind.array.dims for dim in dims for kind in column.kinds):
            cases = column.cases(lambda kind: str(kind.array.dims))
            if len(cases) > 1:
                lacking = [
                    (file, dim)
                    for kind in column.kinds
                    for dim in {*dims}.difference(kind.array.dims)
                    for file in column.files_of(kind)
                ]
                task.notes.drift(
                    "dimensions",
                    column.path,
                    cases,
                    f"shown as {complete.first.dims}",
                    is_placing=not any(file in lengths.get(dim, ()) for file, dim in lacking),
                )
        return complete

    def _with(self, column: Column, dims: Sequence[str]) -> Column | None:
        """The column, with all of some dimensions; None where a file has no labels along one."""
        if any(file not in self.labels[dim].by_file for dim in dims for file in column.files):
            return None
        longest = max((kind.array.dims for kind in column.kinds), key=len)
        wanted = [*(dim for dim in dims if dim not in longest), *longest]
        for axis, dim in enumerate(wanted):
            if dim in dims:
                lengths = {file: len(own) for file, own in self.labels[dim].by_file.items()}
                column = repeated_along(column, dim, lengths, axis)
        return column

    def keeps_last(self, dims: Sequence[str], rule: str) -> bool:
        """Where ``overlap`` says so; a variable without some of the dimensions is the first's."""
        return rule == "last" and len(dims) == len(self.growing)

    def fill(
        self, column: Column, runs: Mapping[str, Runs], lacking: Sequence[int], task: Task
    ) -> tuple[Column, Any] | None:
        """What holes read as; None where several files hold the same labels."""
        if self._is_coordinate(column, runs):
            return column, None
        files, spans = Boxes.of(column.files, runs).held(column)
        cells = Cells.of(spans, files, [own.extent for own in runs.values()])
        is_shown = len(runs) == len(self.growing)
        if cells.clashes and is_shown and not self._is_shared(column, runs, task.values):
            pair = spans[[*cells.clashes[0]]]
            shared = np.stack([pair[:, :, 0].max(axis=0), pair[:, :, 1].min(axis=0)], axis=1)
            clash = self._text(runs, shared.tolist())
            concerned = sorted({int(files[box]) for pair in cells.clashes for box in pair})
            if not _settled(column, concerned, clash, task.notes):
                return None
        holes = list(cells.holes())
        if not holes:
            return column, None
        column, fill = with_padding(column)
        shown = some_of(holes, _N_SHOWN, lambda hole: f"({self._text(runs, hole)})")
        case = {f"nothing for {shown}": list(column.files)}
        task.notes.drift(HOLE, column.path, case, f"missing blocks read as {fill}")
        return column, fill

    def _is_shared(self, column: Column, runs: Mapping[str, Runs], values: Values) -> bool:
        """Whether it is a coordinate or bounds, and equal wherever several files hold it."""
        if column.name not in self.referred:
            return False
        known = all(map(values.available, column.arrays))
        return known and not self._differing(column, [*runs], values)

    def _is_coordinate(self, column: Column, runs: Mapping[str, Runs]) -> bool:
        return (*runs,) == (column.name,) == column.first.dims

    def _text(self, dims: Iterable[str], box: Iterable[Sequence[int]]) -> str:
        """The labels of a box in words."""
        return ", ".join(self.labels[dim].text(*span) for dim, span in zip(dims, box, strict=True))

    def known(self, column: Column, runs: Mapping[str, Runs]) -> VirtualArray | None:
        is_coordinate = self._is_coordinate(column, runs)
        return self.labels[column.name].coordinate if is_coordinate else None


def _is_index(column: Column) -> bool:
    return all(kind.array.dims in ((column.name,), ()) for kind in column.kinds)


def _settled(column: Column, concerned: list[int], text: str, notes: Notes) -> bool:
    """Note that files hold the same labels; whether the rule for that says which one shows."""
    rule = notes.options.overlap
    if rule == "raise":
        message = Message(
            f"several files hold ({text}); a dimension more (",
            Option("labels", ..., "layout=Labels(...)"),
            ") separates them; ",
            Option("overlap", "first"),
            " or ",
            Option("overlap", "last"),
            " shows one of them and hides the others",
        )
        notes.problem("overlap", column.path, message, concerned)
        return False
    notes.drift("overlap", column.path, {f"also hold ({text})": concerned}, f"the {rule} is shown")
    return True


def _agree(own: Places, above: Places | None) -> bool:
    """Whether files have the labels that a group above gives them, which may know more files."""
    if above is None or own.by_file.keys() == above.by_file.keys():
        return False
    return own.by_file.keys() <= above.by_file.keys() and all(
        np.array_equal(own.labels[places], above.labels[above.by_file[file]])
        for file, places in own.by_file.items()
    )
