"""Lay out files of several kinds in one catalog: a group for each kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gridref.api.layout.frequencies import frequency
from gridref.api.layout.labels import LabelPattern
from gridref.api.layout.layouts import Layout
from gridref.combine import Combination, CombineOptions, MosaicOptions, merged_reports
from gridref.combine.options import Read
from gridref.combine.report import DriftReport
from gridref.errors import InvalidRequestError, Place
from gridref.model.array import VirtualGroup
from gridref.model.scan_report import ScanReport

Scanned = Sequence[tuple[str, VirtualGroup]]


def laid_out_in_groups(
    scanned: Scanned,
    layout: Layout,
    read: Read,
    rules: CombineOptions,
    mosaic_options: MosaicOptions,
    by_itself: Callable[[Scanned], Combination],
) -> Combination:
    """Combine files of each kind, as `layout` says by ``group_by`` and ``split``, into a group.

    `by_itself` combines several files of a kind, where `layout` says nothing else.

    Raises
    ------
    InvalidRequestError
        If a file has no kind, or nothing distinguishes the files of a kind.
    """
    kinds: dict[str, list[tuple[str, VirtualGroup]]] = {}
    for name, item in zip(_names(scanned, layout, read), scanned, strict=True):
        kinds.setdefault(name, []).append(item)
    inner = replace(layout, group_by=None, split=None, pattern=_without_field(layout))
    done = {}
    for name, files in sorted(kinds.items()):
        if len(files) > 1 and not inner.is_asked_for:
            done[name] = by_itself(files)
        else:
            done[name] = inner.laid_out(files, read, rules, mosaic_options)
    return _tree(done)


def _names(scanned: Scanned, layout: Layout, read: Read) -> list[str]:
    """The name of the group that each file goes to."""
    parts: list[list[str]] = []
    if layout.group_by is not None:
        parts.append(_values(scanned, layout.group_by, layout.pattern))
    if layout.split is not None:
        parts.append([frequency(group, read, file) for file, group in scanned])
    return [re.sub(r"[^\w.+-]+", "_", "_".join(names)) for names in zip(*parts, strict=True)]


def _values(scanned: Scanned, name: str, pattern: str | None) -> list[str]:
    parsed = None if pattern is None else LabelPattern.parse(pattern)
    if parsed is not None and name in parsed.fields:
        return [str(own[name]) for own in parsed.of_names([file for file, _ in scanned])]
    for file, group in scanned:
        if name not in group.attrs:
            held = [*group.attrs, *([] if parsed is None else parsed.fields)]
            raise InvalidRequestError(
                f"{name!r} is no field of the pattern and no attribute of it: there are"
                f" {', '.join(held) or 'none'}",
                Place(source=file),
            )
    return [str(group.attrs[name]) for _, group in scanned]


def _without_field(layout: Layout) -> str | None:
    """The pattern without the field that names the group; None if there is no other field."""
    if layout.pattern is None or layout.group_by is None:
        return layout.pattern
    rest = re.sub(rf"\{{{re.escape(layout.group_by)}(?=[:}}])", "{_", layout.pattern)
    return rest if re.search(r"\{(?!_[:}])", rest) else None


def _tree(done: Mapping[str, Combination]) -> Combination:
    """One combination of groups, whose paths stand before those of their variables."""
    reports = [_below(name, each.report) for name, each in done.items()]
    report = merged_reports(reports, None)
    problems = tuple(
        replace(problem, variable=f"{name}/{problem.variable or ''}")
        for name, each in done.items()
        for problem in each.problems
    )
    groups = {name: each.group for name, each in done.items() if each.group is not None}
    if problems or len(groups) < len(done):
        return Combination(None, report, problems)
    found = ScanReport.joined([group.report for group in groups.values()])
    return Combination(VirtualGroup({}, groups, report=found), report)


def _below(name: str, report: DriftReport) -> DriftReport:
    drifts = (replace(drift, variable=f"{name}/{drift.variable}") for drift in report.drifts)
    return DriftReport(tuple(drifts), report.files)
