"""The result of combining: the group, the differences between inputs, and the problems.

A `Drift` is one difference, with the files of each value and how it was resolved. A `DriftReport`
lists all of them. A `Combination` holds the group, the report and what could not be resolved. Those
of parts become one: of batches of files (`merged_reports`), and of groups (`in_groups`).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gridref.errors import CombineError, Message, Problem, number_of, some_of
from gridref.model.array import VirtualGroup
from gridref.model.conventions import LabelEnds
from gridref.model.grid import joined_ranges
from gridref.model.scan_report import LEFT_OUT, Fate, Finding, ScanReport, html_of
from gridref.secrets import shown_address

GAP = "gap"
"""The cause of drifts that say where labels are missing between files."""


def file_ranges(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ascending (first, last) of file numbers; those that touch or overlap are joined."""
    joined = joined_ranges((first, last + 1) for first, last in ranges)
    return tuple((start, stop - 1) for start, stop in joined)


@dataclass(frozen=True)
class DriftCase:
    """One of the values that a property has.

    Attributes
    ----------
    value
        The value, as text.
    ranges
        Runs of files, counted from 0, as (first, last).
    """

    value: str
    ranges: tuple[tuple[int, int], ...]

    def where(self, n_files: int) -> str:
        """The files in words, counted from 1, like ``files 1 to 212``."""
        parts = []
        for first, last in self.ranges[:3]:
            if first == last:
                parts.append(f"file {first + 1}")
            elif last == n_files - 1 and first > 0:
                parts.append(f"file {first + 1} onward")
            else:
                parts.append(f"files {first + 1} to {last + 1}")
        more = sum(last - first + 1 for first, last in self.ranges[3:])
        return ", ".join(parts) + (f" and {more} more" if more else "")


@dataclass(frozen=True)
class Drift:
    """One property of one variable that is not the same in all inputs.

    Attributes
    ----------
    cause
        Short stable name, like ``"packing"``.
    variable
        Path of the variable; of a group's attributes, the group's path.
    cases
        The values and where they occur, in the order of first occurrence; at most `MAX_CASES`.
    resolution
        What was done about it.
    n_cases
        Number of distinct values.
    is_placing
        Whether files lack only dimensions along which their labels place them. Then a file that is
        added does not differ from those of a catalog, which has the dimensions.
    """

    cause: str
    variable: str
    cases: tuple[DriftCase, ...]
    resolution: str
    n_cases: int
    is_placing: bool = False

    MAX_CASES = 20

    @classmethod
    def of(
        cls,
        cause: str,
        variable: str,
        cases: dict[str, list[int]],
        resolution: str,
        n_cases: int | None = None,
        *,
        is_placing: bool = False,
    ) -> Drift:
        """Build from the files of each value; `n_cases` where there are more than given."""
        shown = tuple(
            DriftCase(value, file_ranges((number, number) for number in sorted(files)))
            for value, files in list(cases.items())[: cls.MAX_CASES]
        )
        return cls(cause, variable, shown, resolution, n_cases or len(cases), is_placing)

    def text(self, n_files: int) -> str:
        """One paragraph: the variable, the cases and the resolution."""
        cases = [f"{case.where(n_files)}: {case.value}" for case in self.cases]
        if self.n_cases > len(self.cases):
            cases.append(f"{self.n_cases - len(self.cases)} more values")
        return f"{self.variable or '/'}: {'; '.join(cases)} -> {self.resolution}"

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "cause": self.cause,
            "variable": self.variable,
            "resolution": self.resolution,
            "n_cases": self.n_cases,
            "cases": [
                {"value": case.value, "files": [list(pair) for pair in case.ranges]}
                for case in self.cases
            ],
        }


@dataclass(frozen=True)
class DriftReport:
    """Every drift between the inputs of a combination.

    Attributes
    ----------
    drifts
        One entry per cause and variable.
    """

    drifts: tuple[Drift, ...] = ()
    files: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Drift]:
        return iter(self.drifts)

    def __len__(self) -> int:
        return len(self.drifts)

    def of_cause(self, cause: str) -> tuple[Drift, ...]:
        """The drifts of one cause."""
        return tuple(drift for drift in self.drifts if drift.cause == cause)

    def with_noted(
        self, noted: Mapping[tuple[str, str, str], Mapping[str, Sequence[str]]]
    ) -> DriftReport:
        """The report with drifts noted before: by cause, variable and resolution files by value."""
        numbers = {file: number for number, file in enumerate(self.files)}
        drifts = [
            Drift.of(
                cause,
                variable,
                {v: [numbers[f] for f in files if f in numbers] for v, files in said.items()},
                resolution,
            )
            for (cause, variable, resolution), said in noted.items()
        ]
        return replace(self, drifts=(*drifts, *self.drifts))

    @property
    def left_out(self) -> tuple[Drift, ...]:
        """What did not become a part of the result, as ``conflicts="skip"`` or a join says."""
        return tuple(drift for drift in self.drifts if drift.resolution == LEFT_OUT)

    def __str__(self) -> str:
        if not self.drifts:
            return f"{number_of(len(self.files), 'file')}, no drift"
        lines = []
        for cause in dict.fromkeys(drift.cause for drift in self.drifts):
            lines.append(cause)
            lines += [f"  {drift.text(len(self.files))}" for drift in self.of_cause(cause)]
        return "\n".join(lines)

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def rows(self, catalog: str = "") -> tuple[dict[str, Any], ...]:
        """One row for each value of each drift, as catalogs keep them.

        Parameters
        ----------
        catalog
            An input that stands for the files of a catalog. Values that only they have are no drift
            of new files; gaps between them are, as their order may be another.
        """
        rows = []
        for drift in self.drifts:
            named = [(case, self._names(case)) for case in drift.cases]
            new = [each for each in named if drift.cause == GAP or {*each[1]} != {catalog}]
            if not (drift.is_placing and len(new) == 1 < len(named)):
                rows += [
                    self._row(drift, case, [n for n in ns if n != catalog]) for case, ns in new
                ]
        return tuple(rows)

    def _names(self, case: DriftCase) -> list[str]:
        return [self.files[n] for first, last in case.ranges for n in range(first, last + 1)]

    def _row(self, drift: Drift, case: DriftCase, names: Sequence[str]) -> dict[str, Any]:
        return {
            "cause": drift.cause,
            "variable": drift.variable,
            "value": case.value,
            "n_files": len(names),
            "first_file": shown_address(names[0]) if names else None,
            "last_file": shown_address(names[-1]) if names else None,
            "resolution": drift.resolution,
        }

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {"files": list(self.files), "drifts": [drift.to_json() for drift in self.drifts]}


@dataclass(frozen=True, eq=False)
class Combination:
    """What combining gives.

    Attributes
    ----------
    group
        The combined group; None where problems prevent it.
    report
        What differed, and how it was resolved.
    problems
        What could not be resolved.
    failed
        Files that were left out because they could not be scanned, with the reasons.
    ends
        Labels at the ends of index coordinates of the dimension that grows, where they are known to
        rise, or fall, all along.
    """

    group: VirtualGroup | None
    report: DriftReport
    problems: tuple[Problem, ...] = ()
    failed: tuple[Finding, ...] = ()
    ends: LabelEnds = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """How many files, drifts and problems there are, in words; a layout is no drift."""
        counts = {
            "file": len(self.report.files),
            "drift": len(self.report) - len(self.report.of_cause("layout")),
            "problem": len(self.problems),
        }
        return ", ".join(number_of(n, name) for name, n in counts.items())

    @property
    def layouts(self) -> list[Message]:
        """Each layout that was found for files, with the reasons, and the groups that have it."""
        return layouts_in_words(
            (note.resolution, ", ".join(case.value for case in note.cases), note.variable)
            for note in self.report.of_cause("layout")
        )

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def telling_what_is_left_out(self) -> Combination:
        """The combination, with what was left out of it also listed in its group's own report."""
        if self.group is None or not self.report.left_out:
            return self
        findings = []
        for drift in self.report.left_out:
            case = drift.cases[-1]
            reason = case.value if len(drift.cases) == 1 else "some files lack it"
            source = self.report.files[case.ranges[0][0]] if case.ranges else ""
            findings.append(Finding(f"/{drift.variable}", Fate.SKIPPED, reason, source))
        report = ScanReport.joined([self.group.report, ScanReport(tuple(findings))])
        return replace(self, group=self.group.with_changes(report=report))

    def unwrap(self) -> VirtualGroup:
        """The combined group."""
        if self.problems or self.group is None:
            found, n_more = self.layouts, len(self.layouts) - _MOST_LAYOUTS
            if n_more > 0:
                more = f"{number_of(n_more, 'more layout')}, which gridref plan lists"
                found = [*found[:_MOST_LAYOUTS], Message(more)]
            raise CombineError(self.problems, Message.joined("\n  - ", found))
        return self.group


_MOST_LAYOUTS = 5


def layouts_in_words(found: Iterable[tuple[str, str, str]]) -> list[Message]:
    """Layouts out of resolution, reason and group of each; groups with the same share a line."""
    groups: dict[Message, list[str]] = {}
    for resolution, reason, group in found:
        groups.setdefault(Message(resolution, f" ({reason})"), []).append(group)
    if len(groups) == 1:
        return [*groups]
    return [Message(line, f" in {some_of(names, 4)}") for line, names in groups.items()]


def grouped(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Group problems by cause, in the order of first occurrence."""
    by_cause: dict[str, list[Problem]] = {}
    for problem in problems:
        by_cause.setdefault(problem.cause, []).append(problem)
    return tuple(problem for alike in by_cause.values() for problem in alike)


# Reports and combinations of parts as one


def merged_reports(reports: Sequence[DriftReport], between: DriftReport | None) -> DriftReport:
    """Merge the reports of batches, and of what differs between batches, into one of all files.

    Parameters
    ----------
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
        DriftCase(value, file_ranges(spans))
        for value, spans in list(ranges.items())[: Drift.MAX_CASES]
    )
    return replace(drifts[0], cases=cases, n_cases=len(ranges) + hidden)


def in_groups(parts: Mapping[str, Combination]) -> Combination:
    """Combinations as the groups of one, by name; itself where the only one has no name."""
    if list(parts) == [""]:
        return parts[""]
    reports = []
    problems = []
    for name, done in parts.items():
        drifts = (replace(own, variable=_below(name, own.variable)) for own in done.report.drifts)
        reports.append(DriftReport(tuple(drifts), done.report.files))
        problems += [replace(own, variable=_below(name, own.variable)) for own in done.problems]
    report = merged_reports(reports, None)
    laid = {name: done.group for name, done in parts.items() if done.group is not None}
    if problems or len(laid) < len(parts):
        return Combination(None, report, grouped(problems))
    scans = ScanReport.joined([group.report for group in laid.values()])
    return Combination(VirtualGroup(groups=laid, report=scans), report)


def _below(name: str, path: str | None) -> str:
    return f"{name}/{path or ''}".rstrip("/")
