"""Combine any number of groups along a dimension, existing or new.

Input is an iterable of virtual groups. Output is a `Combination`: the combined group, the drift
report and the problems. Groups are combined batch by batch, then the results of the batches, and
so never have to be in memory together. `combine_stack` gives each group a label along a new
dimension first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gridref.combine.along import Along
from gridref.combine.columns import Notes, columns_of, source_name
from gridref.combine.layout import Layout, Task
from gridref.combine.level import Inherited, combine_columns
from gridref.combine.options import CombineOptions, Read
from gridref.combine.report import Combination, grouped, merged_reports
from gridref.combine.rules.attributes import combine_attributes
from gridref.combine.rules.dimensions import shared_lengths
from gridref.combine.rules.gaps import note_damaged
from gridref.combine.rules.single import stack_columns, stacked_attributes
from gridref.combine.telling_attributes import as_coordinates, with_told_names, without_names
from gridref.combine.values import Values
from gridref.errors import InvalidRequestError, Place, Problem
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.label_ends import LabelEnds, label_ends
from gridref.model.scan_report import ScanReport

# One batch: groups in memory, along a dimension


def combine_batch(
    groups: Sequence[VirtualGroup],
    unnamed: Sequence[str],
    layout: Layout,
    read: Read | None,
    options: CombineOptions,
) -> Combination:
    """Combine groups that are all in memory.

    Parameters
    ----------
    groups, read, options
        As for `gridref.combine.combine`.
    layout
        The layout of the groups.
    unnamed
        Names for groups that do not know their file.
    """
    notes = Notes(options, groups, unnamed)
    note_damaged(notes)
    task = Task(layout, notes, Values(read))
    stacking = layout.each_may_be_new or is_new(groups, layout.growing)
    new = new_dims(groups, layout.growing) if stacking else ()
    lengths = shared_lengths(groups, layout.growing)
    lengths |= {dim: dict.fromkeys(range(len(groups)), 1) for dim in new}
    group = _combine_level(list(groups), "", task, Inherited(lengths), new)
    report = notes.report()
    if notes.problems:
        return Combination(None, report, grouped(notes.problems))
    scans = ScanReport.joined([item.report for item in groups])
    return Combination(group.with_changes(report=scans), report, ends=_ends(group, notes))


def _ends(group: VirtualGroup, notes: Notes) -> LabelEnds:
    """Labels at the ends of those index coordinates that came out as they were looked at."""
    found = {}
    for path, labels in notes.in_order.items():
        array = group.arrays.get(path)
        if array is not None and (array.shape, array.dtype) == (labels.shape, labels.dtype):
            found[path] = label_ends(labels)
    return {path: ends for path, ends in found.items() if ends is not None}


def is_new(groups: Sequence[VirtualGroup], growing: Sequence[str]) -> bool:
    """Whether no input has the dimension."""
    is_new = len(new_dims(groups, growing)) == len(growing)
    if is_new and len(growing) > 1:
        raise InvalidRequestError(f"no input has any of the dimensions {', '.join(growing)}")
    return is_new


def new_dims(groups: Sequence[VirtualGroup], dims: Sequence[str]) -> tuple[str, ...]:
    """The dimensions that no input has."""
    wanted = set(dims)
    for group in groups:
        for _, part in group.walk():
            for array in part.arrays.values():
                wanted.difference_update(array.dims)
                if not wanted:
                    return ()
    return tuple(dim for dim in dims if dim in wanted)


def no_such_dimension(dim: str, first: VirtualGroup, files: Sequence[str]) -> Problem:
    """The first problem to report if inputs cannot be stacked: the dimension may be misspelt."""
    dims = dict.fromkeys(name for array in first.all_arrays().values() for name in array.dims)
    message = (
        f"no input has a dimension {dim!r}, so that they were to be stacked along a new one; the"
        f" first has {', '.join(list(dims)[:8]) or 'none'}"
    )
    return Problem("dimension-missing", message, sources=tuple(files))


def _combine_level(
    groups: Sequence[VirtualGroup | None],
    path: str,
    task: Task,
    inherited: Inherited,
    new: Sequence[str],
) -> VirtualGroup:
    """Combine the groups at one path, and those below; new dimensions are put first."""
    columns, told = as_coordinates(groups, columns_of(groups, path), path, task)
    for dim in reversed(new):
        columns = stack_columns(columns, dim, task.notes)
    arrays, below, passed = combine_columns(columns, path, task, inherited)
    names = dict.fromkeys(name for group in groups if group is not None for name in group.groups)
    subgroups = {
        name: _combine_level(
            [None if group is None else group.groups.get(name) for group in groups],
            f"{path}/{name}" if path else name,
            below,
            passed,
            new,
        )
        for name in names
    }
    attrs = group_attributes(groups, path, task, told)
    attrs = with_told_names(attrs, arrays, columns, task.notes)
    for dim in reversed(new):
        attrs = stacked_attributes(attrs, dim)
    return VirtualGroup(
        arrays,
        subgroups,
        attrs,
        unlimited_dims=frozenset().union(*(group.unlimited_dims for group in groups if group)),
    )


def group_attributes(
    groups: Sequence[VirtualGroup | None], path: str, task: Task, told: Collection[str] = ()
) -> dict[str, Any]:
    """Attributes of the groups at one path, combined as the rule for them says.

    Attributes in `told` are coordinates instead.
    """
    cases = [
        (without_names(group.attrs, set(told)) if told else group.attrs, (number,))
        for number, group in enumerate(groups)
        if group is not None
    ]
    return combine_attributes(cases, path, task.notes, task.layout.settled.get("", ()))


# Any number of groups, batch by batch

Dims = str | Sequence[str]

BATCH_GROUPS = 1024
"""Groups that are combined at a time; more of them are combined batch by batch."""


def combine(
    groups: Iterable[VirtualGroup],
    dim: Dims,
    *,
    read: Read | None = None,
    options: CombineOptions | None = None,
    by_label: bool = False,
) -> Combination:
    """Combine groups along a dimension; return differences and problems instead of raising.

    Parameters
    ----------
    groups
        The inputs, in order. An iterator is taken in batches, and no input is kept.
    dim
        Name of the dimension; a new one is put first. Several names let each of them grow (ragged
        arrays).
    read
        Reads all values of an array, for the rules that compare or change values. Without it they
        use inline values and metadata only.
    by_label
        Whether to sort the inputs by their labels, if these have an order.

    Raises
    ------
    InvalidRequestError
        For no inputs, or no dimension.
    """
    rules = options or CombineOptions()
    batches = enumerate(itertools.batched(groups, BATCH_GROUPS))
    parts = (
        combine_part(
            batch, dim, number=number * BATCH_GROUPS, read=read, options=rules, by_label=by_label
        )
        for number, batch in batches
    )
    return combine_parts(parts, dim, read=read, options=rules, by_label=by_label)


@dataclass(frozen=True, eq=False)
class CombinedPart:
    """Neighbouring inputs of a combination, combined: columns, and no object for each input.

    Attributes
    ----------
    done
        What combining them gives.
    without
        The first of them if none has the dimension; else None.
    """

    done: Combination
    without: VirtualGroup | None


def combine_part(
    groups: Sequence[VirtualGroup],
    dim: Dims,
    *,
    number: int = 0,
    read: Read | None = None,
    options: CombineOptions | None = None,
    by_label: bool = False,
) -> CombinedPart:
    """Combine neighbouring inputs of a `combine`, in any process.

    Parameters
    ----------
    groups
        At least one.
    dim, read, options, by_label
        As for `combine`.
    number
        How many inputs there are before, for names of those that do not know their file.

    Raises
    ------
    InvalidRequestError
        For no dimension.
    """
    growing = _growing(dim)
    names = [f"input {number + within + 1}" for within in range(len(groups))]
    layout = Along(growing, by_label=by_label)
    done = combine_batch(groups, names, layout, read, options or CombineOptions())
    return CombinedPart(done, groups[0] if is_new(groups, growing) else None)


def combine_parts(
    parts: Iterable[CombinedPart],
    dim: Dims,
    *,
    read: Read | None = None,
    options: CombineOptions | None = None,
    by_label: bool = False,
) -> Combination:
    """Combine what `combine_part` made of all inputs, in their order: the result is `combine`'s.

    Raises
    ------
    InvalidRequestError
        For no inputs, or no dimension.
    """
    growing = _growing(dim)
    rules = options or CombineOptions()
    some = partial(
        combine_batch, layout=Along(growing, by_label=by_label), read=read, options=rules
    )
    known = list(parts)
    done = _joined_parts([part.done for part in known], some)
    without = [part.without for part in known]
    if done.problems and without[0] is not None and None not in without:
        first = no_such_dimension(growing[0], without[0], done.report.files)
        done = replace(done, problems=(first, *done.problems))
    return done.telling_what_is_left_out()


def _growing(dim: Dims) -> tuple[str, ...]:
    growing = (dim,) if isinstance(dim, str) else tuple(dim)
    if not growing:
        raise InvalidRequestError("nothing to combine along: no dimension")
    return growing


CombineSome = Callable[[Sequence[VirtualGroup], Sequence[str]], Combination]
"""Combines groups that are in memory, with names for those that do not know their file."""


def fold(
    groups: Iterable[VirtualGroup], some: CombineSome, again: CombineSome | None = None
) -> Combination:
    """Combine groups batch by batch, and then the results of the batches.

    Parameters
    ----------
    groups
        The inputs, in order; none is kept.
    again
        Combines the results of the batches; by default `some`.

    Raises
    ------
    InvalidRequestError
        For no inputs.
    """
    results: list[Combination] = []
    for number, batch in enumerate(itertools.batched(groups, BATCH_GROUPS)):
        names = [f"input {number * BATCH_GROUPS + within + 1}" for within in range(len(batch))]
        results.append(some(batch, names))
    return _joined_parts(results, again or some)


def _joined_parts(results: Sequence[Combination], again: CombineSome) -> Combination:
    """Combine what neighbouring inputs gave; with no inputs, there is nothing to combine."""
    if not results:
        raise InvalidRequestError("nothing to combine: no inputs")
    if len(results) == 1:
        return results[0]
    problems = _united(problem for result in results for problem in result.problems)
    parts = [result.group for result in results if result.group is not None]
    reports = [result.report for result in results]
    if len(parts) < len(results):
        return Combination(None, merged_reports(reports, None), problems)
    names = [f"{report.files[0]} and following" for report in reports]
    last = again(parts, names)
    problems = _united(itertools.chain(problems, last.problems))
    report = merged_reports(reports, last.report)
    return Combination(last.group, report, problems, ends=last.ends)


def _united(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Merge problems of different batches that say the same."""
    sources_of: dict[tuple[str, str, str | None], list[str]] = {}
    for problem in problems:
        key = (problem.cause, problem.message, problem.variable)
        sources_of.setdefault(key, []).extend(problem.sources)
    return grouped(
        Problem(cause, message, variable, tuple(dict.fromkeys(sources)))
        for (cause, message, variable), sources in sources_of.items()
    )


# Stacks: inputs along a new dimension, each with a label

_TIME_UNITS = {
    "D": "days",
    "h": "hours",
    "m": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}


def combine_stack(
    groups: Iterable[VirtualGroup],
    dim: str,
    *,
    labels: ArrayLike | None = None,
    read: Read | None = None,
    options: CombineOptions | None = None,
    by_label: bool = False,
) -> Combination:
    """Stack groups; return differences and problems instead of raising.

    Parameters
    ----------
    groups, read, options, by_label
        As for `combine`.
    dim
        Name of the new dimension; it is put first. Inputs may have it with length 1.
    labels
        One label for each input: numbers, strings or ``datetime64``. They become the coordinate of
        the dimension; times are kept as integers with CF ``units`` (CF conventions, 4.4).

    Raises
    ------
    InvalidRequestError
        For no inputs, an input that has the dimension with another length than 1, or labels that
        are not one for each input.
    """
    if not isinstance(dim, str):
        raise InvalidRequestError(f"stacking takes the name of one dimension, got {dim!r}")
    if labels is None:
        named: Iterable[VirtualGroup] = (_checked(group, dim) for group in groups)
    else:
        named = with_labels(groups, dim, labels)
    return combine(named, dim, read=read, options=options, by_label=by_label)


def with_label(
    group: VirtualGroup, dim: str, label: Any, attrs: Mapping[str, Any] | None = None
) -> VirtualGroup:
    """A group with its label as a coordinate, which stacking lays along the new dimension.

    Parameters
    ----------
    dim
        Name of the dimension; its length is 1 if the group has it.
    label
        A number or a string.

    Raises
    ------
    InvalidRequestError
        If the group has the dimension already, of another length than 1.
    """
    has_dim = any(dim in array.dims for array in _checked(group, dim).arrays.values())
    values = np.asarray(label).reshape((1,) if has_dim else ())
    coordinate = VirtualArray.from_numpy(values, (dim,) if has_dim else (), attrs)
    return group.with_changes(arrays={**group.arrays, dim: coordinate})


def with_labels(
    groups: Iterable[VirtualGroup], dim: str, labels: ArrayLike
) -> Iterator[VirtualGroup]:
    """Groups with a label each, as `with_label` gives them one.

    Parameters
    ----------
    groups, dim, labels
        As for `combine_stack`.

    Raises
    ------
    InvalidRequestError
        For labels that are not one for each input.
    """
    return _labelled(groups, dim, *label_values(labels))


def _checked(group: VirtualGroup, dim: str) -> VirtualGroup:
    """The group, which has no dimension of that name but of length 1."""
    for name, array in group.arrays.items():
        if dim in array.dims and array.shape[array.dims.index(dim)] != 1:
            extent = array.shape[array.dims.index(dim)]
            raise InvalidRequestError(
                f"it has a dimension {dim!r} of length {extent}: stacking makes a new one;"
                " concatenating lays inputs along one that they have",
                Place(source_name(group), name),
            )
    return group


def label_values(labels: ArrayLike) -> tuple[NDArray[Any], dict[str, str]]:
    """Labels as stored, and the attributes of their coordinate."""
    values = np.asarray(labels)
    if values.dtype == object:
        values = _times(labels)
    if values.ndim != 1 or values.dtype.kind not in "biufUSM":
        raise InvalidRequestError(
            f"labels are a sequence of numbers, strings or times, got {values.dtype} of shape"
            f" {values.shape}"
        )
    if values.dtype.kind != "M":
        return values, {}
    if np.isnat(values).any():
        raise InvalidRequestError("labels are times, and one of them is NaT")
    unit, count = np.datetime_data(values.dtype)
    if unit not in _TIME_UNITS or count != 1:
        unit = "D" if unit in ("Y", "M", "W") else "ns"
        values = values.astype(f"M8[{unit}]")
    units = f"{_TIME_UNITS[unit]} since 1970-01-01"
    return values.astype(np.int64), {"units": units, "calendar": "proleptic_gregorian"}


def _times(labels: ArrayLike) -> NDArray[Any]:
    """Python's dates and times as ``datetime64``."""
    try:
        return np.asarray(labels, "M8[us]")
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"labels are numbers, strings or times: {error}") from error


def _labelled(
    groups: Iterable[VirtualGroup], dim: str, labels: NDArray[Any], attrs: Mapping[str, str]
) -> Iterator[VirtualGroup]:
    """Each group with its label."""
    for number, (group, label) in enumerate(itertools.zip_longest(groups, labels)):
        if label is None or group is None:
            n_inputs = "more inputs" if label is None else number
            raise InvalidRequestError(f"one label for each input: {len(labels)} for {n_inputs}")
        yield with_label(group, dim, label, attrs)
