"""Combine any number of groups, at the places that a placement finds for them.

Input is an iterable of virtual groups. Output is a `Combination`: the combined group, the drift
report and the problems. Groups are combined batch by batch, then the results of the batches, and
so never have to be in memory together. A placement that has to see all of them gets one batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gridref.combine.columns import Notes
from gridref.combine.level import Inherited, combine_level
from gridref.combine.options import CombineOptions, Read
from gridref.combine.placement import Along, Placement, Task
from gridref.combine.report import Combination, grouped, merged_reports
from gridref.combine.rules.dimensions import shared_lengths
from gridref.combine.rules.packing import note_damaged
from gridref.combine.values import Values
from gridref.errors import InvalidRequestError, Problem
from gridref.model.array import VirtualGroup, path_in
from gridref.model.conventions import LabelEnds, label_ends
from gridref.model.scan_report import ScanReport
from gridref.options import near_names

# One batch: groups in memory


def combine_batch(
    groups: Sequence[VirtualGroup],
    unnamed: Sequence[str],
    placement: Placement,
    read: Read | None,
    options: CombineOptions,
) -> Combination:
    """Combine groups that are all in memory; `unnamed` names those that do not know their file."""
    notes = Notes(options, groups, unnamed)
    note_damaged(notes)
    stacking = placement.each_may_be_new or is_new(groups, placement.growing)
    new = new_dims(groups, placement.growing) if stacking else ()
    lengths = shared_lengths(groups, placement.growing)
    lengths |= {dim: dict.fromkeys(range(len(groups)), 1) for dim in new}
    task = Task(replace(placement, new=new), notes, Values(read))
    group = _combine_tree(list(groups), "", task, Inherited(lengths))
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


def no_such_dimension(
    dim: str, first: VirtualGroup, files: Sequence[str], others: Sequence[Problem]
) -> tuple[Problem, ...]:
    """The problems to report if inputs cannot be stacked; only this one if `dim` is misspelt."""
    dims = dict.fromkeys(name for array in first.all_arrays().values() for name in array.dims)
    near = near_names(dim, dims)
    message = (
        f"no file has a dimension {dim!r}{near}{'' if near.endswith('?') else '.'} Files can be"
        " stacked along a new dimension only if all their sizes are equal"
    )
    missing = Problem("dimension-missing", message, sources=tuple(files))
    return (missing,) if near.endswith("?") else (missing, *others)


def _combine_tree(
    groups: Sequence[VirtualGroup | None], path: str, task: Task, inherited: Inherited
) -> VirtualGroup:
    """Combine the groups at one path, and those below."""
    level, _, below, passed = combine_level(groups, path, task, inherited)
    names = dict.fromkeys(name for group in groups if group is not None for name in group.groups)
    subgroups = {
        name: _combine_tree(
            [None if group is None else group.groups.get(name) for group in groups],
            path_in(path, name),
            below,
            passed,
        )
        for name in names
    }
    unlimited = frozenset().union(*(group.unlimited_dims for group in groups if group))
    return level.with_changes(groups=subgroups, unlimited_dims=unlimited)


# Any number of groups, batch by batch

BATCH_GROUPS = 1024
"""Groups that are combined at a time; more of them are combined batch by batch."""


def combine(
    groups: Iterable[VirtualGroup],
    placement: Placement | str | Sequence[str],
    *,
    read: Read | None = None,
    options: CombineOptions | None = None,
) -> Combination:
    """Combine groups; return differences and problems instead of raising.

    Parameters
    ----------
    groups
        The inputs, in order. An iterator is taken in batches, and no input is kept, but for
        placements that have to see all of them.
    placement
        How inputs are placed. The name of a dimension places them one after the other along it; a
        new one is put first. Several names let each of them grow (ragged arrays).
    read
        Reads all values of an array, for the rules that compare or change values. Without it they
        use inline values and metadata only.

    Raises
    ------
    InvalidRequestError
        For no inputs, no dimension, or an option that has no meaning for the placement.
    """
    placement, rules = _placement_of(placement), options or CombineOptions()
    placement.check(rules)
    parts: Iterable[CombinedPart]
    if placement.in_batches:
        batches = enumerate(itertools.batched(groups, BATCH_GROUPS))
        parts = (
            combine_part(batch, placement, number=number * BATCH_GROUPS, read=read, options=rules)
            for number, batch in batches
        )
    else:
        inputs = list(groups)
        parts = [combine_part(inputs, placement, read=read, options=rules)] if inputs else []
    return combine_parts(parts, placement, read=read, options=rules)


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
    placement: Placement | str | Sequence[str],
    *,
    number: int = 0,
    read: Read | None = None,
    options: CombineOptions | None = None,
) -> CombinedPart:
    """Combine neighbouring inputs of a `combine`, in any process.

    Parameters
    ----------
    groups
        At least one.
    number
        How many inputs there are before, for names of those that do not know their file.
    """
    placement = _placement_of(placement)
    names = _names(number, len(groups))
    done = combine_batch(groups, names, placement, read, options or CombineOptions())
    stacked = not placement.each_may_be_new and is_new(groups, placement.growing)
    return CombinedPart(done, groups[0] if stacked else None)


def combine_parts(
    parts: Iterable[CombinedPart],
    placement: Placement | str | Sequence[str],
    *,
    read: Read | None = None,
    options: CombineOptions | None = None,
) -> Combination:
    """Combine what `combine_part` made of all inputs, in their order: the result is `combine`'s."""
    placement = _placement_of(placement)
    rules = options or CombineOptions()
    some = partial(combine_batch, placement=placement, read=read, options=rules)
    known = list(parts)
    done = _joined_parts([part.done for part in known], some)
    without = [part.without for part in known]
    if done.problems and without[0] is not None and None not in without:
        dim, files = placement.growing[0], done.report.files
        problems = no_such_dimension(dim, without[0], files, done.problems)
        done = replace(done, problems=problems)
    return done.telling_what_is_left_out()


def _placement_of(placement: Placement | str | Sequence[str]) -> Placement:
    if isinstance(placement, Placement):
        return placement
    return Along((placement,) if isinstance(placement, str) else tuple(placement))


def _names(number: int, n_groups: int) -> list[str]:
    """Names of groups that do not know their file, after so many others."""
    return [f"input {number + within + 1}" for within in range(n_groups)]


CombineSome = Callable[[Sequence[VirtualGroup], Sequence[str]], Combination]
"""Combines groups that are in memory, with names for those that do not know their file."""


def fold(groups: Iterable[VirtualGroup], some: CombineSome, again: CombineSome) -> Combination:
    """Combine groups batch by batch, and then the results of the batches, if there are several.

    Raises
    ------
    InvalidRequestError
        For no inputs.
    """
    batches = enumerate(itertools.batched(groups, BATCH_GROUPS))
    results = [some(own, _names(number * BATCH_GROUPS, len(own))) for number, own in batches]
    return _joined_parts(results, again)


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
