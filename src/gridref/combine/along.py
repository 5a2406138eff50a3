"""Lay inputs one after the other along a dimension.

`order_labels` takes the labels of every input and decides which elements of which input are shown,
and in which order. `Along` is the layout: it concatenates the inputs' versions of a variable in
that order. An input that lacks the variable gives missing blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine.columns import Column, Notes
from gridref.combine.layout import Lengths
from gridref.combine.rules.gaps import fill_for_gaps
from gridref.combine.rules.indices import counts_along, refuse_moved
from gridref.combine.rules.packing import Packing
from gridref.combine.rules.single import repeated_along
from gridref.combine.values import Values
from gridref.model.array import VirtualArray
from gridref.model.blocks import MISSING_BLOCK
from gridref.model.indexing import isel
from gridref.model.joining import concatenate, missing_like

# Order of labels that overlap, repeat, leave gaps or are out of order

BY_LABEL, ORDER_KEPT = "placed by label", "order kept"
"""Resolutions of files that are given in another order than that of their labels."""


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
    return (rising and _rise(labels)) or (falling and _rise([part[::-1] for part in labels]))


def _in_one_direction(labels: Sequence[NDArray[Any]]) -> bool:
    """Whether the labels of every file rise, or those of every file fall."""
    return _rise(labels) or _rise([part[::-1] for part in labels])


def _rise(labels: Sequence[NDArray[Any]]) -> bool:
    return all((part[:-1] < part[1:]).all() for part in labels if len(part) > 1)


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
    case = {"labels are out of order": _behind(firsts, lasts, files)}
    notes.drift("order", column.path, case, ORDER_KEPT)


def _behind(firsts: NDArray[Any], lasts: NDArray[Any], files: Sequence[int]) -> list[int]:
    """Files whose labels do not follow those of the file before."""
    back = np.flatnonzero(firsts[1:] <= lasts[:-1]) + 1
    return [files[number] for number in back.tolist()] or list(files)


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
        f"labels occur more than once: {shown}{more}; overlap='keep' keeps all; overlap='first' or"
        " overlap='last' keeps one of each and hides the others"
    )
    if all_same:
        message += (
            ". All these files have the same labels. If something else tells them apart (another"
            " time), overlap='keep' lays them in their order, under labels that repeat"
        )
    notes.problem("overlap", column.path, message, concerned, drop=False)


def fall(labels: Sequence[NDArray[Any]]) -> bool:
    """Whether the labels of every file that has two of them fall."""
    long = [part for part in labels if len(part) > 1]
    return bool(long) and all(part[0] > part[-1] for part in long)


# The layout of inputs one after the other, for concatenation and stacks


@dataclass(frozen=True, eq=False)
class Along:
    """One file after the other, along a dimension; each of several dimensions for itself.

    Attributes
    ----------
    growing
        The dimensions; a variable has one of them.
    by_label
        Whether files are put in the order of their labels, not the given one.
    order
        Where labels overlap and one of each is kept; None where all of every file follows.
    inputs
        The variables of a group before labels of other dimensions were aligned: what an input does
        not hold hides nothing of another one, what is missing for want of a label does, as in
        xarray.
    """

    growing: tuple[str, ...]
    by_label: bool = False
    order: LabelOrder | None = None
    inputs: Mapping[str, Column] = field(default_factory=dict)
    settled: Mapping[str, Collection[str]] = field(default_factory=dict)
    each_may_be_new = False

    @property
    def repeats(self) -> bool:
        """Whether a variable without the dimension can be repeated along it."""
        return len(self.growing) == 1

    def dims_of_files(self, column: Column, values: Values) -> tuple[str, ...]:
        """The dimension; of several the last one, which in ragged archives counts the files."""
        return self.growing[-1:]

    def at_level(
        self, columns: Mapping[str, Column], lengths: Lengths, values: Values, notes: Notes
    ) -> Along:
        """The layout in the order of a group's own labels, else of those of the groups above it."""
        order = self._order(columns, lengths, values, notes) or self.order
        return replace(self, order=order, inputs=columns)

    def _order(
        self, columns: Mapping[str, Column], lengths: Lengths, values: Values, notes: Notes
    ) -> LabelOrder | None:
        dim = self.growing[0]
        column = columns.get(dim)
        if len(self.growing) != 1 or column is None or column.path in notes.failed:
            return None
        if any(kind.array.dims != (dim,) for kind in column.kinds):
            return None
        counting = [own for own in columns.values() if counts_along(own, notes) == dim]
        by_label = self.by_label and not counting
        order = order_labels(column, values, notes, lengths[dim], by_label=by_label)
        if order is not None:
            refuse_moved(counting, dim, notes)
        return order

    def dims_of(self, column: Column, notes: Notes) -> tuple[str, ...] | None:
        """The growing dimension that a variable has, as a tuple of at most one."""
        dims = [dim for dim in self.growing if any(dim in kind.array.dims for kind in column.kinds)]
        if len(dims) > 1:
            message = f"it has several of the dimensions that grow: {', '.join(dims)}"
            notes.problem("dimensions-differ", column.path, message, column.files[:1])
            return None
        return tuple(dims)

    def with_dims(
        self, column: Column, dims: Sequence[str], lengths: Lengths, notes: Notes
    ) -> Column:
        """Repeat the arrays that lack the dimension along it."""
        (dim,) = dims
        cases = column.cases(lambda kind: str(kind.array.dims))
        notes.drift("dimensions", column.path, cases, f"repeated along {dim} where it is missing")
        wanted = max((kind.array.dims for kind in column.kinds), key=len)
        return repeated_along(column, dim, lengths[dim], wanted.index(dim))

    def arrangement(
        self, column: Column, dims: Sequence[str], lengths: Lengths, lacking: Sequence[int]
    ) -> _Row:
        """The pieces of all files, one after the other."""
        (dim,) = dims
        axis = column.first.dims.index(dim)
        if self.order is not None:
            absent = {file: np.ones(lengths[dim][file], bool) for file in lacking}
            absent |= _absent_labels(self.inputs.get(column.name, column), dim)
            return _Row(axis, dim, self.order.pieces(absent), frozenset(lacking))
        if not lacking:
            return _Row(axis, dim, None, frozenset())
        files = sorted([*column.files, *lacking])
        pieces = [Piece(file, 0, lengths[dim].get(file, 0)) for file in files]
        return _Row(axis, dim, pieces, frozenset(lacking))


def _absent_labels(column: Column, dim: str) -> dict[int, NDArray[np.bool_]]:
    """For files whose array has missing blocks: where along a dimension it holds nothing."""
    known = {}
    for file, array in zip(column.files, column.arrays, strict=True):
        missing = array.blocks.encoding == MISSING_BLOCK
        if dim in array.dims and missing.any():
            axis = array.dims.index(dim)
            others = tuple(other for other in range(array.ndim) if other != axis)
            by_block = missing.reshape(array.grid.grid_shape).all(axis=others)
            known[file] = np.repeat(by_block, array.grid.axes[axis].edges())
    return known


@dataclass(frozen=True, eq=False)
class _Row:
    """Pieces of files along an axis, where some lack the variable; None takes files whole."""

    axis: int
    dim: str
    pieces: Sequence[Piece] | None
    lacking: frozenset[int]

    def fill(
        self, column: Column, lacking: Sequence[int], notes: Notes
    ) -> tuple[Column, Any] | None:
        """What gaps read as; none where no piece is of a file that lacks the variable."""
        covered = self.lacking.isdisjoint(piece.file for piece in self.pieces or ())
        return fill_for_gaps(column, lacking, self.dim, notes, covered=covered)

    def lay(self, column: Column, dtype: np.dtype[Any], fill: Any, *, alike: bool) -> VirtualArray:
        """Concatenate the pieces, with missing blocks where a file lacks the variable."""
        arrays = list(column.arrays) if self.pieces is None else self._cut(column, fill)
        arrays = arrays or list(column.arrays[:1])
        return concatenate(arrays, self.axis, dtype=dtype, fill_value=fill, alike=alike)

    def _cut(self, column: Column, fill: Any) -> list[VirtualArray]:
        known = dict(zip(column.files, column.arrays, strict=True))
        return [
            _part(known[piece.file], self.axis, piece)
            if piece.file in known
            else missing_like(column.first, self.axis, piece.stop - piece.start, fill)
            for piece in self.pieces or ()
            if piece.file in known or piece.file in self.lacking
        ]


def _part(array: VirtualArray, axis: int, piece: Piece) -> VirtualArray:
    if (piece.start, piece.stop) == (0, array.shape[axis]):
        return array
    return isel(array, {axis: slice(piece.start, piece.stop)})
