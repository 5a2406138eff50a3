"""Find the place of new files along a dimension: before, after or inside a catalog.

A place may have been declared ahead, by the label of a file that is still to come: arrays without
data stand in for it, and their elements are *pending*.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gridref.api.decoding import decoded_values
from gridref.catalog.growth import Span
from gridref.combine.options import Read
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.blocks import BlockTable
from gridref.model.conventions import ENDS, MEANING_ATTRIBUTES, LabelEnds, label_ends
from gridref.model.grid import ChunkGrid, GridAxis, joined_ranges
from gridref.model.indexing import isel
from gridref.model.scan_report import ScanReport
from gridref.options import check_choice

At = Literal["label", "start", "end"]
"""Where files go: by their labels, or before or after everything."""

type Input = Span | VirtualGroup
type Ranges = tuple[tuple[int, int], ...]

# Where files go


@dataclass(frozen=True)
class _Place:
    """Before which element of the catalog a group goes.

    Attributes
    ----------
    rank
        Its place among those that go there.
    in_order
        Whether its labels are in order there.
    """

    cut: int
    rank: Any = 0
    in_order: bool = True


@dataclass(frozen=True, eq=False)
class Arrangement:
    """Inputs of combining in order.

    Attributes
    ----------
    inputs
        Spans of the catalog, and new groups between them.
    in_order
        Whether all labels are in order: else rules have to see all of them.
    ends
        Labels at the ends of what is combined of them, as a snapshot keeps them.
    """

    inputs: list[Input]
    in_order: bool
    ends: LabelEnds


def arranged(
    base: VirtualGroup,
    groups: Sequence[VirtualGroup],
    dim: str,
    at: At,
    read: Read,
    ends: LabelEnds,
    without: Sequence[tuple[int, int]] = (),
) -> Arrangement:
    """The inputs of combining in order: spans of the catalog, and new groups between them.

    Parameters
    ----------
    dim
        The dimension along which they go.
    at
        ``"label"`` puts each by the labels of its index coordinate, and after everything where
        there are none; labels that are among those of the catalog go after everything too, for
        the rule for overlaps. ``"start"`` and ``"end"`` put all, as they come, before or after.
    read
        Reads all values of an array.
    ends
        What is known of the labels of the catalog: those of files that go before or after all of
        them are compared with these, and no others are read.
    without
        Elements of the catalog that are left out, half-open. Where there are any, groups take
        their places, in order, if they have no labels, or labels that are among the others.
    """
    check_choice("at", at, ("label", "start", "end"))
    if dim in ends and not without:
        found = _arranged_at_ends(base, groups, dim, at, read, ends[dim])
        if found is not None:
            return found
    gone = [np.arange(start, stop) for start, stop in without]
    left = np.delete(np.arange(_extent(base, dim)), np.concatenate([*gone, np.zeros(0, np.int64)]))
    known = {path: _labels(array, left, read) for path, array in base.labels_of(dim).items()}
    theirs = None
    if dim in known and left.size:
        theirs = decoded_values(dim, known[dim][left], base.arrays[dim])
    cuts = [0 if at == "start" else left.size] * len(groups)
    for i, (start, _) in enumerate(without[: len(groups)]):
        cuts[i] = int(np.searchsorted(left, start))
    places = [
        _place(theirs, group, dim, at, read, end) for group, end in zip(groups, cuts, strict=True)
    ]
    inputs = _interleaved(left, _by_cut(groups, places), known)
    after: LabelEnds = {}
    if known.keys() == {dim}:
        labels = [known[dim][each.start : each.stop] for each in inputs if isinstance(each, Span)]
        after = _ends_after(inputs, labels, dim, base.arrays[dim], read)
    return Arrangement(inputs, all(place.in_order for place in places), after)


def _arranged_at_ends(
    base: VirtualGroup,
    groups: Sequence[VirtualGroup],
    dim: str,
    at: At,
    read: Read,
    ends: Sequence[float],
) -> Arrangement | None:
    """The same if all go before or after the catalog, by the labels at its ends; else None."""
    n, index = _extent(base, dim), base.arrays.get(dim)
    if index is None or [*base.labels_of(dim)] != [dim] or index.shape != (n,) or n < len(ENDS):
        return None
    try:
        shown = np.array(ends, index.dtype)
    except OverflowError:  # a stranger's catalog; the labels themselves decide
        return None
    theirs = decoded_values(dim, shown, index)
    there = 0 if at == "start" else len(ENDS)
    places = [_place(theirs, group, dim, at, read, there) for group in groups]
    if any(place.cut not in (0, len(ENDS)) or not place.in_order for place in places):
        return None
    known = np.zeros(n, index.dtype)
    known[ENDS] = shown
    cuts = [replace(place, cut=n if place.cut else 0) for place in places]
    inputs = _interleaved(np.arange(n), _by_cut(groups, cuts), {dim: known})
    return Arrangement(inputs, True, _ends_after(inputs, [shown], dim, index, read))


def _by_cut(
    groups: Sequence[VirtualGroup], places: Sequence[_Place]
) -> dict[int, list[VirtualGroup]]:
    """New groups by the element of the catalog that they go before, in their order."""
    order = list(range(len(groups)))
    with suppress(TypeError):  # labels of which only some can be compared
        order.sort(key=lambda i: (places[i].cut, places[i].rank))
    new_at: dict[int, list[VirtualGroup]] = {}
    for i in order:
        new_at.setdefault(places[i].cut, []).append(groups[i])
    return new_at


def _ends_after(
    inputs: Sequence[Input],
    labels: Sequence[NDArray[Any]],
    dim: str,
    index: VirtualArray,
    read: Read,
) -> LabelEnds:
    """The labels at the ends of all inputs, if they are numbers that rise, or fall, all along.

    Parameters
    ----------
    labels
        Those of the spans among the inputs, in their order; of the inner ones some may be left out.
    index
        The catalog's index coordinate.
    """
    spans, pieces = iter(labels), []
    for each in inputs:
        if isinstance(each, Span):
            pieces.append(next(spans))
            continue
        new = each.arrays.get(dim)
        if new is None or new.dtype != index.dtype or _stored_as(new) != _stored_as(index):
            return {}
        pieces.append(read(new))
    every = np.concatenate([*pieces, np.zeros(0, index.dtype)])
    found = label_ends(every)
    return {} if found is None else {dim: found}


def _stored_as(array: VirtualArray) -> list[str]:
    """What makes labels of its stored values."""
    return [str(array.attrs.get(name)) for name in MEANING_ATTRIBUTES]


def _labels(array: VirtualArray, left: NDArray[np.int64], read: Read) -> NDArray[Any]:
    """The labels of some elements, in their places; those of others are not read."""
    if left.size == array.shape[0]:
        return read(array)
    labels = np.zeros(array.shape, array.dtype)
    for run in np.split(left, np.flatnonzero(np.diff(left) != 1) + 1):
        if run.size:
            elements = slice(int(run[0]), int(run[-1]) + 1)
            labels[elements] = read(isel(array, {0: elements}))
    return labels


def _interleaved(
    left: NDArray[np.int64],
    new_at: Mapping[int, list[VirtualGroup]],
    known: Mapping[str, NDArray[Any]],
) -> list[Input]:
    """Spans of the elements that are left, and new groups before, after and between them."""
    jumps = np.flatnonzero(np.diff(left) != 1) + 1
    cuts = sorted({0, left.size, *new_at, *jumps.tolist()})
    inputs: list[Input] = []
    for number, cut in enumerate(cuts):
        inputs += new_at.get(cut, [])
        if number + 1 < len(cuts):
            stop = cuts[number + 1]
            followed = stop < left.size or stop in new_at
            start, end = int(left[cut]), int(left[stop - 1]) + 1
            inputs.append(_span(start, end, known, bool(inputs), before_new=followed))
    return inputs


def _extent(base: VirtualGroup, dim: str) -> int:
    lengths = {
        array.shape[array.dims.index(dim)]
        for array in base.all_arrays().values()
        if dim in array.dims
    }
    if not lengths:
        raise InvalidRequestError(f"no array of the catalog has a dimension {dim!r}")
    return max(lengths)


def _span(
    start: int, stop: int, known: Mapping[str, NDArray[Any]], after_new: bool, *, before_new: bool
) -> Span:
    """Some elements of the catalog, with only the ends next to new ones shown."""
    n = min(2, stop - start)
    shown = list(range(start, start + n))
    if before_new:
        shown = [start, stop - 1][-n:] if after_new else list(range(stop - n, stop))
    return Span(start, stop, n, {path: labels[shown] for path, labels in known.items()})


def _place(
    theirs: NDArray[Any] | None,
    group: VirtualGroup,
    dim: str,
    at: At,
    read: Read,
    there: int,
) -> _Place:
    new = group.arrays.get(dim)
    if theirs is None or new is None or not new.size or not theirs.size:
        return _Place(there)
    try:
        place = _place_by_label(theirs, decoded_values(dim, read(new), new), there)
    except TypeError:  # labels that cannot be compared: a problem that combining tells
        return _Place(there, in_order=False)
    if at == "label":
        return place
    return _Place(there, 0, place.in_order and place.cut == there)


def _place_by_label(theirs: NDArray[Any], mine: NDArray[Any], otherwise: int) -> _Place:
    falls = len(theirs) > 1 and bool(theirs[-1] < theirs[0])
    follows = operator.lt if falls else operator.gt
    mine = np.sort(mine)[:: -1 if falls else 1]
    sorted_ = bool(np.all(follows(theirs[1:], theirs[:-1])))
    after = np.flatnonzero(follows(theirs, mine[0]))
    cut = int(after[0]) if after.size else len(theirs)
    fits = cut == len(theirs) or bool(follows(theirs[cut], mine[-1]))
    fits = fits and (cut == 0 or bool(follows(mine[0], theirs[cut - 1])))
    rank = _Falling(mine[0]) if falls else mine[0]
    return _Place(cut if fits else otherwise, rank, fits and sorted_)


class _Falling:
    """Orders labels the other way round."""

    def __init__(self, label: Any) -> None:
        self.label = label

    def __lt__(self, other: Any) -> bool:
        return bool(other.label < self.label)


# Labels that are declared before their files


def declared_groups(
    group: VirtualGroup, dim: str, labels: ArrayLike, read: Read
) -> list[VirtualGroup]:
    """Groups without data for labels that a catalog does not have, each of labels side by side.

    Parameters
    ----------
    labels
        Labels of the index coordinate as xarray shows it: numbers, datetime64 or cftime. Those that
        are there already are left out.
    read
        Reads all values of an array.

    Raises
    ------
    InvalidRequestError
        If the dimension has no index coordinate, or its dtype cannot hold the labels.
    """
    import pandas as pd

    index = group.arrays.get(dim)
    if index is None or index.dims != (dim,) or not index.size:
        raise InvalidRequestError(
            f"{dim!r} cannot be declared ahead: no coordinate {dim!r} holds labels along it"
        )
    stored = read(index)
    known = pd.Index(decoded_values(dim, stored, index))
    raw = _stored(dim, labels, index)
    shown = pd.Index(decoded_values(dim, raw, index))
    new = ~shown.isin(known) & ~shown.duplicated()
    falls = len(known) > 1 and bool(known[-1] < known[0])
    order = np.flatnonzero(new)[np.argsort(np.asarray(shown[new]))]
    order = order[::-1] if falls else order
    if not order.size:
        return []
    ahead = np.asarray(known[::-1] if falls else known)
    cuts = np.searchsorted(ahead, np.asarray(shown[order]))
    runs = np.split(order, np.flatnonzero(np.diff(cuts)) + 1)
    return [_without_data(group, dim, raw[run]) for run in runs]


def labels_between(
    group: VirtualGroup, dim: str, first: str, last: str, step: str, read: Read
) -> NDArray[Any]:
    """Labels of a coordinate from one to another, both included, in steps, out of texts.

    Parameters
    ----------
    group, dim, read
        As for `declared_groups`.
    first, last
        Dates where the coordinate holds times, else numbers.
    step
        A frequency as pandas writes it, like ``6h``, or a number.

    Raises
    ------
    InvalidRequestError
        If they are none, or there are no labels between them.
    """
    import xarray as xr

    index = group.arrays.get(dim)
    try:
        shown = np.zeros(0) if index is None else decoded_values(dim, read(index), index)
        if index is None or shown.dtype.kind in "iuf":
            low, high, by = float(first), float(last), float(step)
            labels = low + by * np.arange(int((high - low) / by + 1.5))
        else:
            calendar = str(index.attrs.get("calendar", "standard"))
            is_cftime = shown.dtype.kind != "M"
            dates = xr.date_range(first, last, freq=step, calendar=calendar, use_cftime=is_cftime)
            labels = np.asarray(dates)
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise InvalidRequestError(f"labels from {first} to {last} by {step}: {error}") from error
    if not labels.size:
        raise InvalidRequestError(f"there are no labels from {first} to {last} by {step}")
    return labels


def _stored(dim: str, labels: ArrayLike, index: VirtualArray) -> NDArray[Any]:
    """Labels as the coordinate stores them."""
    wanted = np.atleast_1d(np.asarray(labels))
    names = ("units", "calendar", "scale_factor", "add_offset", "_FillValue")
    encoding = {name: index.attrs[name] for name in names if name in index.attrs}
    import xarray as xr

    variable = xr.Variable((dim,), wanted, encoding={**encoding, "dtype": index.dtype})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other units than asked for: compared below
            raw = np.asarray(xr.conventions.encode_cf_variable(variable, name=dim).values)
        raw = raw.astype(index.dtype)
        kept = decoded_values(dim, raw, index)
        alike = np.array_equal(kept, np.asarray(xr.Variable(dim, wanted)))
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidRequestError(
            f"the labels of {dim!r} do not fit the type that the catalog keeps: {error}"
        ) from error
    if not alike:
        raise InvalidRequestError(
            f"labels of {dim!r} are not the same as {index.dtype} in {index.attrs.get('units')!r}"
        )
    return raw


def _without_data(group: VirtualGroup, dim: str, labels: NDArray[Any]) -> VirtualGroup:
    """A group like the catalog with some labels, one block for each, and no data."""
    index = group.arrays[dim]

    def empty(path: str, array: VirtualArray) -> VirtualArray:
        if path == dim:
            return _labelled(index, labels)
        return _absent(array, dim, len(labels)) if dim in array.dims else array

    return group.with_each_array(empty).with_changes(report=ScanReport())


def _absent(array: VirtualArray, dim: str, n: int) -> VirtualArray:
    axes = list(array.grid.axes)
    axes[array.dims.index(dim)] = GridAxis.from_edges(np.ones(n, np.int64))
    grid = ChunkGrid(tuple(axes))
    blocks = BlockTable.missing(grid.n_chunks, grid.ndim)
    return array.with_changes(grid=grid, encodings=(), manifests=(), blocks=blocks)


def _labelled(index: VirtualArray, labels: NDArray[Any]) -> VirtualArray:
    """Labels kept inline in one piece, with a block for each: files may replace some of them."""
    whole = VirtualArray.from_numpy(labels, index.dims, index.attrs, index.fill_value)
    n = len(labels)
    one = whole.blocks.take(np.zeros(n, np.int64))
    columns = {**vars(one), "origin": np.arange(n).reshape(n, 1)}
    grid = ChunkGrid((GridAxis.from_edges(np.ones(n, np.int64)),))
    return whole.with_changes(grid=grid, blocks=BlockTable(**columns))


def claimed(
    base: VirtualGroup, groups: Sequence[VirtualGroup], dim: str, pending: Ranges, read: Read
) -> list[tuple[int, int]]:
    """Elements that are no longer pending once some files are added, by label."""
    index = base.arrays.get(dim)
    if not pending or index is None:
        return []
    import pandas as pd

    theirs = pd.Index(decoded_values(dim, read(index), index))
    waits = np.zeros(len(theirs), bool)
    for start, stop in pending:
        waits[start:stop] = True
    found: list[int] = []
    for group in groups:
        array = group.arrays.get(dim)
        if array is not None and array.size:
            own = pd.Index(decoded_values(dim, read(array), array))
            at = theirs.get_indexer_non_unique(own)[0]  # labels of a stranger may repeat
            found += [i for i in at.tolist() if i >= 0 and waits[i]]
    return list(joined_ranges((i, i + 1) for i in {*found}))


def pending_after(
    pending: Ranges, inputs: Sequence[Input], dim: str, declared: Sequence[Any] = ()
) -> Ranges:
    """The places of pending elements after inputs have been concatenated."""
    reached, found = 0, []
    for each in inputs:
        if isinstance(each, Span):
            for start, stop in pending:
                low, high = max(start, each.start), min(stop, each.stop)
                if low < high:
                    found.append((reached + low - each.start, reached + high - each.start))
            reached += each.stop - each.start
            continue
        lengths = (a.shape[a.dims.index(dim)] for a in each.all_arrays().values() if dim in a.dims)
        n = next(lengths, 0)
        if any(each is group for group in declared):
            found.append((reached, reached + n))
        reached += n
    return joined_ranges(found)
