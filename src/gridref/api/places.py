"""Find the place of new files along a dimension: before, after or inside a catalog."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gridref.api.decoding import MEANING_ATTRIBUTES, decoded_values
from gridref.catalog.growth import Span
from gridref.combine.options import Read
from gridref.errors import InvalidRequestError
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.conventions import ENDS, LabelEnds, label_ends
from gridref.model.indexing import isel
from gridref.options import check_choice

At = Literal["label", "start", "end"]
"""Where files go: by their labels, or before or after everything."""

type Input = Span | VirtualGroup


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
        Elements of the catalog that are left out, half-open. Where there are any, groups without
        labels take their places, in order.
    """
    check_choice("at", at, ("label", "start", "end"))
    if dim in ends and not without:
        found = _arranged_at_ends(base, groups, dim, at, read, ends[dim])
        if found is not None:
            return found
    arrays = base.all_arrays()
    gone = [np.arange(start, stop) for start, stop in without]
    left = np.delete(np.arange(_extent(base, dim)), np.concatenate([*gone, np.zeros(0, np.int64)]))
    known = {
        path: _labels(array, left, read)
        for path, array in arrays.items()
        if _is_index(path, array, dim)
    }
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
    others = [path for path, array in base.all_arrays().items() if _is_index(path, array, dim)]
    if index is None or others != [dim] or index.shape != (n,) or n < len(ENDS):
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


def _is_index(path: str, array: VirtualArray, dim: str) -> bool:
    return array.dims == (dim,) and path.rpartition("/")[2] == dim


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
        place = _place_by_label(theirs, decoded_values(dim, read(new), new))
    except TypeError:  # labels that cannot be compared: a problem that combining tells
        return _Place(there, in_order=False)
    if at == "label":
        return place
    return _Place(there, 0, place.in_order and place.cut == there)


def _place_by_label(theirs: NDArray[Any], mine: NDArray[Any]) -> _Place:
    falls = len(theirs) > 1 and bool(theirs[-1] < theirs[0])
    follows = operator.lt if falls else operator.gt
    sorted_ = bool(np.all(follows(theirs[1:], theirs[:-1])))
    after = np.flatnonzero(follows(theirs, mine[0]))
    cut = int(after[0]) if after.size else len(theirs)
    fits = cut == len(theirs) or bool(follows(theirs[cut], mine[-1]))
    fits = fits and (cut == 0 or bool(follows(mine[0], theirs[cut - 1])))
    rank = _Falling(mine[0]) if falls else mine[0]
    return _Place(cut if fits else len(theirs), rank, fits and sorted_)


class _Falling:
    """Orders labels the other way round."""

    def __init__(self, label: Any) -> None:
        self.label = label

    def __lt__(self, other: Any) -> bool:
        return bool(other.label < self.label)
