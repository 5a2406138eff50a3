"""Find the place of each label along one dimension.

`order_labels` is for inputs that follow each other: it sorts them, and drops what repeats a label.
All variables of an input are then shown for a label, or none. `find_places` gives each label of all
inputs one place, in the order of labels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine.boxes import Runs, counted, stretches
from gridref.combine.columns import Column, Notes, label_text
from gridref.combine.report import GAP, Drift
from gridref.combine.rules.packing import Packing, resolve_packing
from gridref.combine.values import Values
from gridref.errors import Message, Option, number_of
from gridref.model.array import VirtualArray
from gridref.typing import Int64Array

# Order of labels that overlap, repeat, leave gaps or are out of order

BY_LABEL, ORDER_KEPT = "placed by label", "order kept"
"""Resolutions of files that are given in another order than that of their labels."""


@dataclass(frozen=True, eq=False)
class LabelOrder:
    """Labels of all files, in order, each one kept once.

    With the labels 0, 1, 2 of file 0 and 1, 2, 3 of file 1, ``overlap="first"`` keeps
    elements 0..3 of file 0 and 2..3 of file 1. A variable that file 0 lacks keeps label 0 as a gap,
    and all of file 1.

    Attributes
    ----------
    labels
        Labels of each file that has any, in its order.
    files
        Numbers of these files.
    keep_last
        Whether the last file that has a label shows, and not the first.
    unlabelled
        Length of files without labels; they come last.
    """

    labels: Sequence[NDArray[Any]]
    files: Sequence[int]
    keep_last: bool
    unlabelled: Mapping[int, int] = field(default_factory=dict)

    def runs(self, lacking: Mapping[int, NDArray[np.bool_]]) -> Runs:
        """The parts of files that are shown, and where.

        Parameters
        ----------
        lacking
            For files that lack some of the variable: whether they lack it, for each label. Such
            elements show only where no file has that label.
        """
        if not any(lacks.any() for lacks in lacking.values()):
            return self._all_runs
        held = [
            lacking.get(file, np.zeros(len(part), bool))
            for file, part in zip(self.files, self.labels, strict=True)
        ]
        return self._one_of_each(np.concatenate(held))

    @cached_property
    def _all_runs(self) -> Runs:
        return self._one_of_each(np.zeros(sum(map(len, self.labels)), bool))

    def _one_of_each(self, lacks: NDArray[np.bool_]) -> Runs:
        """One element of each label, as runs of neighbours in one file.

        Labels 0 1 2 of file 0 and 1 2 3 of file 1 are sorted as 0 1 1 2 2 3, of files 0 0 1 0 1 1.
        The first of each label are of files 0 0 0 1: elements 0..3 of file 0 and 2..3 of file 1.
        """
        everything = np.concatenate(self.labels)
        sizes = np.array([len(part) for part in self.labels], np.int64)
        owner, index = counted(sizes)
        order = np.lexsort((index, -owner if self.keep_last else owner, lacks, everything))
        ordered = everything[order]
        order = order[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
        if fall(self.labels):
            order = order[::-1]
        owners, indices = owner[order], index[order]
        cut = (owners[1:] != owners[:-1]) | (indices[1:] != indices[:-1] + 1)
        heads, stops = stretches(cut, len(order))
        file = np.append(np.array(self.files, np.int64)[owners[heads]], [*self.unlabelled])
        start = np.append(indices[heads], np.zeros(len(self.unlabelled)))
        count = np.append(stops - heads, [*self.unlabelled.values()])
        place = np.cumsum(count) - count
        by_file = np.argsort(file, kind="stable")
        columns = (column[by_file].astype(np.int64) for column in (file, start, count, place))
        file, start, count, place = columns
        return Runs(int(count.sum()), file, start, np.ones_like(start), count, place)


def order_labels(
    column: Column,
    values: Values,
    notes: Notes,
    lengths: Mapping[int, int],
    *,
    by_label: bool = False,
) -> LabelOrder | None:
    """Decide from an index coordinate which part of each file is shown, and in what order.

    Parameters
    ----------
    by_label
        Whether files are put in the order of their labels where these say it: the labels of every
        file rise, or those of every file fall. Otherwise, and where files have no labels or labels
        that do not say it, they stay in the given order, which the report says.

    Returns
    -------
    LabelOrder or None
        None where all of every file follows in the given order.
    """
    comparable = comparable_labels(column, values)
    if comparable is None and by_label and len(column.files) > 1:
        case = {"labels cannot be compared": list(column.files)}
        notes.drift("labels", column.path, case, ORDER_KEPT)
    labels = [part for part in comparable or () if len(part)]
    if not labels:
        return None
    files = [file for file, array in zip(column.files, column.arrays, strict=True) if array.size]
    firsts = np.array([part[0] for part in labels])
    lasts = np.array([part[-1] for part in labels])
    falling = fall(labels)
    if _in_order(labels, firsts, lasts) and (falling or not by_label or firsts[0] <= firsts[-1]):
        notes.in_order[column.path] = np.concatenate(labels)
        _note_gaps(column, labels, files, notes)
        return None
    everything = np.concatenate(labels)
    owner = np.repeat(np.arange(len(labels)), [len(part) for part in labels])
    _, inverse, counts = np.unique(everything, return_inverse=True, return_counts=True)
    repeated = counts[inverse.reshape(-1)] > 1
    rule = notes.options.overlap
    concerned = [files[number] for number in np.unique(owner[repeated]).tolist()]
    if not repeated.any():
        labelled = {file for file, n in lengths.items() if n} <= set(files)
        if not (by_label and labelled and _in_one_direction(labels)):
            _note_disorder(column, firsts, lasts, files, notes)
            return None
        order = LabelOrder(labels, files, keep_last=False)
        shown = np.argsort(firsts)[:: -1 if falling else 1].tolist()
        _note_gaps(column, [labels[n] for n in shown], [files[n] for n in shown], notes)
        notes.in_order[column.path] = np.sort(everything)[:: -1 if falling else 1]
        case = {"files are given in another order": _behind(firsts, lasts, files)}
        notes.drift("order", column.path, case, BY_LABEL)
        return order
    if rule == "keep":
        notes.drift("overlap", column.path, {"labels that repeat": concerned}, "all are kept")
        return None
    if rule == "raise":
        held = {files[number]: labels[number] for number in np.unique(owner[repeated]).tolist()}
        _report_overlap(column, everything[repeated], held, len(labels), notes)
        return None
    others = {file: n for file, n in lengths.items() if n and file not in set(files)}
    order = LabelOrder(labels, files, rule == "last", others)
    n_pieces = len(order.runs({}).file)
    if n_pieces > 4 * len(files) + 1000:
        message = f"labels interleave: keeping one of each takes {n_pieces} pieces; sort them first"
        notes.problem("overlap", column.path, message, concerned, drop=False)
        return None
    case = {number_of(len(np.unique(everything[repeated])), "repeated label"): concerned}
    notes.drift("overlap", column.path, case, f"the {rule} of each is kept")
    return order


def in_one_form(column: Column, growing: Collection[str], values: Values, notes: Notes) -> Column:
    """A column whose labels are compared as what they mean, if files store them in unlike forms.

    Those are numbers of several packings, and texts of fixed and of variable length. Labels that
    are not brought together keep their form.
    """
    shapes = ((column.name,), ()) if column.name in growing else ((column.name,),)
    if any(kind.array.dims not in shapes for kind in column.kinds):
        return column
    packings = [Packing.of(kind.array) for kind in column.kinds]
    if len({(own.scale, own.offset, own.unsigned) for own in packings}) > 1:
        is_compared = column.name in growing or notes.options.join != "exact"
        return (is_compared and resolve_packing(column, notes)) or column
    if {kind.array.dtype.kind for kind in column.kinds} != {"T", "U"}:
        return column
    if not all(map(values.available, column.arrays)):
        return column
    texts = ((values.labels_of(array), array) for array in column.arrays)
    return column.with_arrays([VirtualArray.from_numpy(t, a.dims, a.attrs) for t, a in texts])


def comparable_labels(column: Column, values: Values) -> list[NDArray[Any]] | None:
    """Labels of every file; None where they cannot be compared."""
    if len({Packing.of(kind.array) for kind in column.kinds}) > 1:
        return None
    if not _of_one_kind(column):
        return None
    if not all(values.available(array) for array in column.arrays):
        return None
    labels = [values.labels_of(array) for array in column.arrays]
    fills = Packing.of(column.first).fills if column.first.dtype.kind in "iuf" else ()
    for part in labels:
        if part.dtype.kind == "f" and np.isnan(part).any():
            return None
        if fills and np.isin(part, list(fills)).any():
            return None
    return labels


def _of_one_kind(column: Column) -> bool:
    """Whether labels are numbers in all files, or text in all files."""
    dtypes = {kind.array.dtype.kind for kind in column.kinds}
    return dtypes <= set("iuf") or dtypes <= set("SUT")


def _in_order(labels: Sequence[NDArray[Any]], firsts: NDArray[Any], lasts: NDArray[Any]) -> bool:
    """Whether all labels rise, or all fall, strictly and from file to file."""
    rising = bool((lasts[:-1] < firsts[1:]).all())
    falling = bool((lasts[:-1] > firsts[1:]).all())
    return (rising and _rise(labels)) or (falling and _rise([part[::-1] for part in labels]))


def _in_one_direction(labels: Sequence[NDArray[Any]]) -> bool:
    """Whether the labels of every file rise, or those of every file fall."""
    return _rise(labels) or _rise([part[::-1] for part in labels])


def _rise(labels: Sequence[NDArray[Any]]) -> bool:
    return all((part[:-1] < part[1:]).all() for part in labels if len(part) > 1)


def _note_gaps(
    column: Column, labels: Sequence[NDArray[Any]], files: Sequence[int], notes: Notes
) -> None:
    """Note where labels jump further between two files than anywhere inside files."""
    if labels[0].dtype.kind in "SU":
        return
    inside = [_distances(part[:-1], part[1:]).max() for part in labels if len(part) > 1]
    firsts, lasts = (np.array([part[end] for part in labels]) for end in (0, -1))
    between = _distances(lasts[:-1], firsts[1:])
    if not inside or not len(between):
        return
    wide = np.flatnonzero(between > 1.5 * max(inside))
    cases: dict[str, list[int]] = {}
    for at in wide[: Drift.MAX_CASES].tolist():
        text = gap_text(lasts[at], firsts[at + 1], column.first.attrs)
        cases[text] = [files[at], files[at + 1]]
    if cases:
        notes.drift(GAP, column.path, cases, "left as it is", len(wide))


def gap_text(before: Any, after: Any, attrs: Mapping[str, Any]) -> str:
    """A gap between two labels, as the report names it."""
    return f"nothing between {label_text(before, attrs)} and {label_text(after, attrs)}"


def _distances(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """How far apart numbers are; exact for integers of any size and sign."""
    low, high = np.minimum(one, other), np.maximum(one, other)
    if low.dtype.kind == "i":  # as the difference may be too large for the dtype with a sign
        low, high = (part.view(f"u{part.dtype.itemsize}") for part in (low, high))
    return np.asarray(high - low)


def _note_disorder(
    column: Column,
    firsts: NDArray[Any],
    lasts: NDArray[Any],
    files: Sequence[int],
    notes: Notes,
) -> None:
    case = {"labels are out of order": _behind(firsts, lasts, files)}
    notes.drift("order", column.path, case, ORDER_KEPT)


def _behind(firsts: NDArray[Any], lasts: NDArray[Any], files: Sequence[int]) -> list[int]:
    """Files whose labels do not follow those of the file before."""
    back = np.flatnonzero(firsts[1:] <= lasts[:-1]) + 1
    return [files[number] for number in back.tolist()] or list(files)


def _report_overlap(
    column: Column,
    repeated: NDArray[Any],
    held: Mapping[int, NDArray[Any]],
    n_files: int,
    notes: Notes,
) -> None:
    labels = np.unique(repeated)
    first, *others = held.values()
    are_same = all(np.array_equal(first, other) for other in others)
    shown = ", ".join(label_text(label, column.first.attrs) for label in labels[:3])
    more = f", ... ({len(labels)} in all)" if len(labels) > 3 else ""
    message = Message(
        f"labels occur more than once: {shown}{more}; ",
        Option("overlap", "keep"),
        " keeps all; ",
        Option("overlap", "first"),
        " or ",
        Option("overlap", "last"),
        " keeps one of each and hides the others",
    )
    if are_same and len(held) == n_files:
        message += Message(
            ". All these files have the same labels. If they differ in something else (such as "
            "time), ",
            Option("overlap", "keep"),
            " joins them in the given order, with repeated labels",
        )
    elif are_same and others:
        message += ". These files have the same labels: if one is a copy of another, leave it out"
    notes.problem("overlap", column.path, message, [*held], drop=False)


def fall(labels: Sequence[NDArray[Any]]) -> bool:
    """Whether the labels of every file that has two of them fall."""
    long = [part for part in labels if len(part) > 1]
    return bool(long) and all(part[0] > part[-1] for part in long)


# Places of each input's labels among the labels of all, along one dimension


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

    @cached_property
    def runs(self) -> Runs:
        """Parts of inputs whose labels are neighbours, and where they are."""
        return Runs.of_places(self.by_file, len(self.labels))

    def text(self, start: int, stop: int) -> str:
        """Some of the labels in words: ``time 2001-01 to 2001-03``."""
        attrs = self.coordinate.attrs
        first, last = (label_text(self.labels[at], attrs) for at in (start, stop - 1))
        (dim,) = self.coordinate.dims
        return f"{dim} {first}" + (f" to {last}" if stop - start > 1 else "")


def united(
    labels: Mapping[int, NDArray[Any]], *, falling: bool = False
) -> tuple[NDArray[Any], dict[int, Int64Array]]:
    """The labels of all inputs in order, each once, and the places of each input's among them."""
    every = np.unique(np.concatenate([*labels.values()]))
    last = len(every) - 1
    by_file = {file: np.searchsorted(every, own) for file, own in labels.items()}
    if not falling:
        return every, by_file
    return every[::-1], {file: last - places for file, places in by_file.items()}


def repeating_files(labels: Mapping[int, NDArray[Any]]) -> list[int]:
    """Inputs that have a label several times."""
    return [file for file, own in labels.items() if len(np.unique(own)) < len(own)]


REPEATING = "labels repeat within a file: select one of each first"


def find_places(column: Column, values: Values, notes: Notes) -> Places | None:
    """Put the labels of all inputs in order, each once; None if a problem is noted."""
    labels = comparable_labels(column, values)
    if labels is None and not _of_one_kind(column):
        cases = column.cases(lambda kind: str(kind.array.dtype))
        notes.conflict("dtype-differs", column.path, "dtypes", cases, "they have no common one")
        return None
    if labels is None:
        message = "its labels cannot be compared: they are missing, NaN, or of several kinds"
        notes.problem("labels-differ", column.path, message, column.files, drop=False)
        return None
    held = dict(zip(column.files, labels, strict=True))
    repeating = repeating_files(held)
    if repeating:
        notes.problem("overlap", column.path, REPEATING, repeating, drop=False)
        return None
    every, by_file = united(held, falling=fall(labels))
    first = column.first
    coordinate = VirtualArray.from_numpy(every, first.dims, first.attrs, first.fill_value)
    return Places(coordinate, by_file, every)
