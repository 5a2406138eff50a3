"""Summarise a build or a change of a catalog in short lines, for commands and reports.

The lines name options, which each face spells in its own way.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gridref import errors
from gridref.api.layout.sources import KEPT, REPLACED
from gridref.combine.columns import label_text
from gridref.combine.labels import ORDER_KEPT
from gridref.combine.report import layouts_in_words
from gridref.errors import (
    LeftOutWarning,
    Message,
    SkippedFilesWarning,
    by_reason,
    number_of,
    some_of,
)
from gridref.model.array import VirtualGroup
from gridref.model.conventions import LabelEnds, is_scaled
from gridref.model.scan_report import LEFT_OUT, Fate, ScanReport
from gridref.secrets import shown_address

_PACKAGE = os.path.dirname(errors.__file__)
"""Where a warning must not point at."""

Rows = Sequence[Mapping[str, Any]]


def layout_line(
    asked: Mapping[str, Any], dim: str | None, group: VirtualGroup, ends: LabelEnds
) -> str:
    """How files were laid out, and in which order along one dimension.

    Parameters
    ----------
    asked
        The layout that was asked for or found: ``concat_dim``, ``order`` and ``layout``.
    dim
        The dimension that files follow each other along, if there is one.
    group
        The result, with the drifts of its files.
    ends
        What is known of its labels.
    """
    drifts = group.report.drifts
    found = layouts_in_words(
        (row["resolution"], row["value"], row["variable"])
        for row in drifts
        if row["cause"] == "layout"
    )
    line = Message.joined("; ", found) if found else Message("laid out by ", Message.naming(asked))
    if dim is None:
        return line
    given = asked.get("order") == "given" or asked.get("layout") == "nested"
    order = "in the given order" if given else _order(dim, drifts, group, ends)
    return Message(line, ", ", order)


def group_line(group: VirtualGroup) -> list[str]:
    """How to open the variables, where all of them are in groups below."""
    held = [name for name, array in group.arrays.items() if array.ndim and not array.is_index(name)]
    if held or not group.groups:
        return []
    names = [*group.groups]
    way = f"xarray opens one with group={names[0]!r}, all with open_groups"
    return [f"the variables are in groups ({some_of(names)}): {way}"]


def _order(dim: str, drifts: Rows, group: VirtualGroup, ends: LabelEnds) -> str:
    """The order of files along one dimension."""
    kept = [row["value"] for row in drifts if row["resolution"] == ORDER_KEPT]
    kept += [row["value"] for row in drifts if row["resolution"] == "all are kept"]
    if kept:
        return f"in the given order ({kept[0]})"
    labels = group.labels_of(dim)
    if not labels:
        return "in the given order (nothing labels it)"
    index = labels.get(dim)
    if index is None or dim not in ends or is_scaled(index.attrs):
        return "in the order of its labels"
    first, *_, last = (label_text(index.dtype.type(end), index.attrs) for end in ends[dim])
    return f"in the order of its labels, {first} to {last}"


def change_lines(
    head: Sequence[str], twice: Sequence[str], report: ScanReport, drifts: Rows, catalog: str
) -> tuple[str, ...]:
    """What was done to make a catalog, or to change it.

    Parameters
    ----------
    head
        What was done, and how files were laid out.
    twice
        Files that were given more than once.
    report
        What was found in the files.
    drifts
        How they differ.
    """
    lines = [*head]
    if twice:
        named = some_of(twice, text=shown_address)
        lines.append(f"given more than once, and taken once: {named}")
    lines += [*drift_line(drifts, catalog), *label_lines(drifts), *finding_lines(report)]
    if len(report.failed) > 1:
        listed = f"gridref list {shown_address(catalog)} report lists them"
        lines.append(f"{number_of(len(report.failed), 'file')} left out ({listed})")
    return tuple(lines)


def drift_line(drifts: Rows, catalog: str) -> list[str]:
    """How many drifts of each kind were resolved, and what lists them; nothing if there are none.

    What was laid out, put in order or left out has lines of its own.
    """
    kinds = Counter(
        cause
        for cause, _, resolution in {(r["cause"], r["variable"], r["resolution"]) for r in drifts}
        if cause not in ("layout", "order") and resolution != LEFT_OUT
    )
    if not kinds:
        return []
    n = kinds.total()
    named = ", ".join(f"{kind} ({n_kind})" for kind, n_kind in sorted(kinds.items()))
    address = shown_address(catalog)
    return [f"{number_of(n, 'drift')} resolved: {named}; gridref list {address} report lists them"]


def label_lines(drifts: Rows) -> list[str]:
    """Which coordinates of files other labels contradict, with both values, and which is shown."""
    told: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in drifts:
        if row["cause"] in (REPLACED, KEPT):
            told.setdefault((row["variable"], row["resolution"]), []).append(row)
    lines: list[str] = []
    for (variable, resolution), rows in told.items():
        n_files = sum(row["n_files"] for row in rows)
        named = f"{rows[0]['first_file']}" + (f" and {n_files - 1} more" if n_files > 1 else "")
        lines.append(Message(f"{variable}: {rows[0]['value']} [{named}]; ", resolution))
    return lines


def finding_lines(report: ScanReport) -> list[str]:
    """What is missing from the result, or renamed: alike findings of several files in one line."""
    files: dict[tuple[Fate, str, str], list[str]] = {}
    for fate in (Fate.SKIPPED, Fate.DAMAGED, Fate.RENAMED):
        for finding in report.with_fate(fate):
            files.setdefault((fate, finding.path, finding.reason), []).append(finding.source)
    lines: list[str] = []
    for (fate, path, reason), sources in files.items():
        named = some_of(sources, 1)
        where = (f"{named}: ", "") if path == "/" else (f"{path}: ", f" [{named}]")
        lines.append(Message(f"{fate} {where[0]}", reason, where[1]))
    for alike in by_reason(report.failed, lambda each: str(each.reason)):
        named = some_of(alike, 1, lambda each: each.source)
        lines.append(Message(f"left out {named}: ", alike[0].reason))
    return lines


def warn_of_left_out(report: ScanReport) -> None:
    """Warn the caller of a public call, once, of all that is missing from the result."""
    missing = (*report.skipped, *report.failed)
    if missing:
        lines = finding_lines(ScanReport(missing))
        warnings.warn(
            "\n".join(["not everything is in the result:", *(f"  - {line}" for line in lines)]),
            SkippedFilesWarning if report.failed else LeftOutWarning,
            skip_file_prefixes=(_PACKAGE,),
        )
