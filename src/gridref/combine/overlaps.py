"""Labels along a dimension that overlap, repeat, leave gaps or are out of order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine.columns import Column, Notes
from gridref.combine.packing import Packing
from gridref.combine.values import Values

__all__ = ["LabelOrder", "Piece", "comparable_labels", "fall", "order_labels"]


@dataclass(frozen=True)
class Piece:
    """Elements ``start <= i < stop`` of one file along the dimension."""

    file: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class LabelOrder:
    """Labels of all files, in order, each one kept once.

    With the labels 0, 1, 2 of file 0 and 1, 2, 3 of file 1, ``overlap="first"`` keeps the pieces
    0..3 of file 0 and 2..3 of file 1. A variable that file 0 lacks keeps label 0 as a gap, and all
    of file 1.

    Attributes
    ----------
    labels
        Labels of each file that has any, in its order.
    files
        Numbers of these files.
    keep_last
        Whether the last file that has a label shows, and not the first.
    unlabelled
        Files without labels; they come last.
    """

    labels: Sequence[NDArray[Any]]
    files: Sequence[int]
    keep_last: bool
    unlabelled: Sequence[Piece] = ()

    def pieces(self, lacking: Mapping[int, NDArray[np.bool_]]) -> list[Piece]:
        """The parts of files that are shown, in the order of the result.

        Parameters
        ----------
        lacking
            For files that lack some of the variable: whether they lack it, for each label. Such
            elements show only where no file has that label.
        """
        if not any(lacks.any() for lacks in lacking.values()):
            return self._all_pieces
        held = [
            lacking.get(file, np.zeros(len(part), bool))
            for file, part in zip(self.files, self.labels, strict=True)
        ]
        return self._trimmed(np.concatenate(held))

    @cached_property
    def _all_pieces(self) -> list[Piece]:
        return self._trimmed(np.zeros(sum(map(len, self.labels)), bool))

    def _trimmed(self, lacks: NDArray[np.bool_]) -> list[Piece]:
        """One element of each label, as runs of neighbours in one file.

        Labels 0 1 2 of file 0 and 1 2 3 of file 1 are sorted as 0 1 1 2 2 3, of files 0 0 1 0 1 1.
        The first of each label are of files 0 0 0 1: the pieces 0..3 of file 0 and 2..3 of file 1.
        """
        everything = np.concatenate(self.labels)
        sizes = np.array([len(part) for part in self.labels], np.int64)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        index = np.arange(len(everything)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        order = np.lexsort((index, -owner if self.keep_last else owner, lacks, everything))
        ordered = everything[order]
        order = order[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
        if fall(self.labels):
            order = order[::-1]
        owners, indices = owner[order], index[order]
        cut = (owners[1:] != owners[:-1]) | (indices[1:] != indices[:-1] + 1)
        heads = np.concatenate([[0], np.flatnonzero(cut) + 1])
        tails = np.concatenate([heads[1:], [len(order)]]) - 1
        pieces = [
            Piece(self.files[int(owners[head])], int(indices[head]), int(indices[tail]) + 1)
            for head, tail in zip(heads.tolist(), tails.tolist(), strict=True)
        ]
        return pieces + list(self.unlabelled)


def order_labels(
    column: Column, values: Values, notes: Notes, lengths: Mapping[int, int]
) -> LabelOrder | None:
    """Decide which part of which file is shown, and in which order, from an index coordinate.

    Returns
    -------
    LabelOrder or None
        None where all of every file follows in the given order.
    """
    labels = [part for part in comparable_labels(column, values) or () if len(part)]
    if not labels:
        return None
    files = [file for file, array in zip(column.files, column.arrays, strict=True) if array.size]
    firsts = np.array([part[0] for part in labels])
    lasts = np.array([part[-1] for part in labels])
    if _in_order(labels, firsts, lasts):
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
        _note_disorder(column, firsts, lasts, files, notes)
        return None
    if rule == "keep":
        notes.drift("overlap", column.path, {"labels that repeat": concerned}, "all are kept")
        return None
    if rule == "error":
        same = all(np.array_equal(part, labels[0]) for part in labels)
        _report_overlap(column, everything[repeated], concerned, same, notes)
        return None
    others = [Piece(file, 0, n) for file, n in lengths.items() if n and file not in set(files)]
    order = LabelOrder(labels, files, rule == "last", others)
    n_pieces = len(order.pieces({}))
    if n_pieces > 4 * len(files) + 1000:
        message = f"labels interleave: keeping one of each takes {n_pieces} pieces; sort them first"
        notes.problem("overlap", column.path, message, concerned, drop=False)
        return None
    case = {f"{int(repeated.sum())} labels that repeat": concerned}
    notes.drift("overlap", column.path, case, f"the {rule} of each is kept")
    return order


def comparable_labels(column: Column, values: Values) -> list[NDArray[Any]] | None:
    """Labels of every file; None where they cannot be compared."""
    if len({Packing.of(kind.array) for kind in column.kinds}) > 1:
        return None
    if any(kind.array.dtype.kind not in "iufSU" for kind in column.kinds):
        return None
    if not all(values.available(array) for array in column.arrays):
        return None
    labels = [values.of(array) for array in column.arrays]
    fills = Packing.of(column.first).fills if column.first.dtype.kind in "iuf" else ()
    for part in labels:
        if part.dtype.kind == "f" and np.isnan(part).any():
            return None
        if fills and np.isin(part, list(fills)).any():
            return None
    return labels


def _in_order(labels: Sequence[NDArray[Any]], firsts: NDArray[Any], lasts: NDArray[Any]) -> bool:
    """Whether all labels rise, or all fall, strictly and from file to file."""
    rising = bool((lasts[:-1] < firsts[1:]).all())
    falling = bool((lasts[:-1] > firsts[1:]).all())
    if not (rising or falling):
        return False
    ups = all((part[:-1] < part[1:]).all() for part in labels if len(part) > 1)
    downs = all((part[:-1] > part[1:]).all() for part in labels if len(part) > 1)
    return (rising and ups) or (falling and downs)


def _note_gaps(
    column: Column, labels: Sequence[NDArray[Any]], files: Sequence[int], notes: Notes
) -> None:
    """Note places between files where labels jump further than anywhere inside them."""
    if labels[0].dtype.kind in "SU":
        return
    inside = [_distances(part[:-1], part[1:]).max() for part in labels if len(part) > 1]
    firsts, lasts = (np.array([part[end] for part in labels]) for end in (0, -1))
    between = _distances(lasts[:-1], firsts[1:])
    if not inside or not len(between):
        return
    wide = np.flatnonzero(between > 1.5 * max(inside))
    if len(wide):
        case = {"labels jump before": [files[number + 1] for number in wide.tolist()]}
        notes.drift("gap", column.path, case, "left as they are")


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
    back = np.flatnonzero(firsts[1:] <= lasts[:-1]) + 1
    concerned = [files[number] for number in back.tolist()] or list(files)
    notes.drift("order", column.path, {"labels are out of order": concerned}, "order kept")


def _report_overlap(
    column: Column,
    repeated: NDArray[Any],
    concerned: Sequence[int],
    all_same: bool,
    notes: Notes,
) -> None:
    labels = np.unique(repeated)
    shown = ", ".join(str(label) for label in labels[:3].tolist())
    more = f", ... ({len(labels)} in all)" if len(labels) > 3 else ""
    message = (
        f"labels occur more than once: {shown}{more}; overlap='first' or 'last' keeps one of each,"
        " 'keep' all"
    )
    if all_same:
        message += (
            ". They are the same in all of these files: where they do not tell what lies along the"
            " dimension (other times do), take 'keep', which lays the files in their order"
        )
    notes.problem("overlap", column.path, message, concerned, drop=False)


def fall(labels: Sequence[NDArray[Any]]) -> bool:
    """Whether the labels of every file that has two of them fall."""
    long = [part for part in labels if len(part) > 1]
    return bool(long) and all(part[0] > part[-1] for part in long)
