"""Combine any number of groups, batch by batch: inputs need not be in memory together."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from gridref.combine.along import Along
from gridref.combine.concatenation import combine_batch, is_new, no_such_dimension
from gridref.combine.options import CombineOptions, Read
from gridref.combine.report import Combination, Drift, DriftCase, DriftReport, file_ranges, grouped
from gridref.errors import InvalidRequestError, Problem
from gridref.model.array import VirtualGroup

__all__ = [
    "BATCH_GROUPS",
    "CombinedPart",
    "combine",
    "combine_part",
    "combine_parts",
    "fold",
    "merged_reports",
]

Dims = str | Sequence[str]

BATCH_GROUPS = 1024
"""Groups that are combined at a time; more of them are combined batch by batch."""


def combine(
    groups: Iterable[VirtualGroup],
    dim: Dims,
    *,
    read: Read | None = None,
    options: CombineOptions | None = None,
) -> Combination:
    """Combine groups along a dimension and report what differed, without raising.

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

    Raises
    ------
    InvalidRequestError
        For no inputs, or no dimension.
    """
    rules = options or CombineOptions()
    batches = enumerate(itertools.batched(groups, BATCH_GROUPS))
    parts = (
        combine_part(batch, dim, number=number * BATCH_GROUPS, read=read, options=rules)
        for number, batch in batches
    )
    return combine_parts(parts, dim, read=read, options=rules)


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
) -> CombinedPart:
    """Combine neighbours among the inputs of a `combine`, wherever they were described.

    Parameters
    ----------
    groups
        At least one.
    dim, read, options
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
    done = combine_batch(groups, names, Along(growing), read, options or CombineOptions())
    return CombinedPart(done, groups[0] if is_new(groups, growing) else None)


def combine_parts(
    parts: Iterable[CombinedPart],
    dim: Dims,
    *,
    read: Read | None = None,
    options: CombineOptions | None = None,
) -> Combination:
    """Combine what `combine_part` made of all inputs, in their order: the result is `combine`'s.

    Raises
    ------
    InvalidRequestError
        For no inputs, or no dimension.
    """
    growing = _growing(dim)
    rules = options or CombineOptions()
    some = partial(combine_batch, layout=Along(growing), read=read, options=rules)
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


class CombineSome(Protocol):
    """Combines groups that are in memory, with names for those that do not know their file."""

    def __call__(
        self, groups: Sequence[VirtualGroup], unnamed: Sequence[str], /
    ) -> Combination: ...


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


def merged_reports(reports: Sequence[DriftReport], between: DriftReport | None) -> DriftReport:
    """Merge the reports of batches, and of what differs between batches, into one of all files.

    Parameters
    ----------
    reports
        How the files of each batch differed.
    between
        How the batches differed: one input a batch.
    """
    starts = [0, *itertools.accumulate(len(report.files) for report in reports)]
    moved: dict[tuple[str, str, str], list[Drift]] = {}
    mixed: dict[tuple[str, str], set[int]] = {}
    for batch, (start, report) in enumerate(zip(starts, reports, strict=False)):
        for drift in report.drifts:
            key = (drift.cause, drift.variable, drift.resolution)
            moved.setdefault(key, []).append(_moved(drift, start))
            mixed.setdefault((drift.cause, drift.variable), set()).add(batch)
    for drift in between.drifts if between is not None else ():
        key = (drift.cause, drift.variable, drift.resolution)
        unlike = mixed.get((drift.cause, drift.variable), set())
        told = _between(drift, starts, unlike)
        if told is not None:
            moved.setdefault(key, []).append(told)
    files = tuple(file for report in reports for file in report.files)
    return DriftReport(tuple(_joined(drifts) for drifts in moved.values()), files)


def _moved(drift: Drift, by: int) -> Drift:
    cases = tuple(
        DriftCase(case.value, tuple((first + by, last + by) for first, last in case.ranges))
        for case in drift.cases
    )
    return replace(drift, cases=cases)


def _between(drift: Drift, starts: Sequence[int], unlike: Collection[int]) -> Drift | None:
    """Numbers of batches as numbers of files; None if nothing is left.

    Where the files of a batch differ themselves, its own drift names their values: what they were
    made into is no file's.
    """
    cases = []
    for case in drift.cases:
        batches = [batch for first, last in case.ranges for batch in range(first, last + 1)]
        spans = [(starts[batch], starts[batch + 1] - 1) for batch in batches if batch not in unlike]
        if spans:
            cases.append(DriftCase(case.value, file_ranges(spans)))
    n_cases = drift.n_cases - len(drift.cases) + len(cases)
    return replace(drift, cases=tuple(cases), n_cases=n_cases) if cases else None


def _joined(drifts: Sequence[Drift]) -> Drift:
    """One drift out of those of several batches."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for drift in drifts:
        for case in drift.cases:
            ranges.setdefault(case.value, []).extend(case.ranges)
    hidden = sum(drift.n_cases - len(drift.cases) for drift in drifts)
    cases = tuple(
        DriftCase(value, file_ranges(sorted(spans)))
        for value, spans in list(ranges.items())[: Drift.MAX_CASES]
    )
    return replace(drifts[0], cases=cases, n_cases=len(ranges) + hidden)
