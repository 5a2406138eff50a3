"""The report of a scan: every object of a file, and what the scanner did with it.

A `ScanReport` holds a `Finding` for each object, and the requests and bytes of the scan. Notebooks
show it as HTML by a drawer that an upper layer sets with `draw_with`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, NamedTuple, overload

from gridref.secrets import shown_address, without_secrets

# HTML for notebooks, drawn by an upper layer

_drawers: list[Callable[[Any], str]] = []


def draw_with(drawer: Callable[[Any], str]) -> None:
    """Let `drawer` make the HTML of arrays, groups and reports from now on."""
    _drawers[:] = [drawer]


def html_of(shown: Any) -> str | None:
    """HTML of such an object; None without a drawer: a notebook then shows its repr."""
    return _drawers[0](shown) if _drawers else None


# The findings of a scan

LEFT_OUT = "left out"
"""Resolution of an object that does not become a part of the result."""


class Fate(StrEnum):
    """What a scanner did with an object."""

    TAKEN = "taken"
    """Its chunks are referenced in place."""
    INLINED = "inlined"
    """Its values were read and are kept in the references."""
    SKIPPED = "skipped"
    """It is left out; the reason says why."""
    DAMAGED = "damaged"
    """It is an array whose own description is wrong, and is left out; the reason says how."""
    FAILED = "failed"
    """It is a whole file that could not be described, and is left out; the reason says why."""
    NAMED = "named"
    """It holds no values of its own: a dimension, say, whose name and length others carry."""
    RENAMED = "renamed"
    """It is a dimension that has another name than in the file; the reason says which."""


class Finding(NamedTuple):
    """One object of a file.

    Attributes
    ----------
    path
        Path inside the file, like ``/model/tas``.
    fate
        What the scanner did with it.
    reason
        Why, unless it was simply taken.
    """

    path: str
    fate: Fate
    reason: str = ""
    source: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.fate}{f' ({self.reason})' if self.reason else ''}"


Found = tuple[tuple[str, ...], tuple[Fate, ...], tuple[str, ...]]
"""The findings of one file: path, fate and reason of each object, as columns."""


@dataclass(frozen=True)
class FindingRuns(Sequence[Finding]):
    """The findings of many files; equal findings of neighbouring files are kept once.

    Attributes
    ----------
    runs
        The findings, and the files with exactly these findings.
    """

    runs: tuple[tuple[Found, tuple[str, ...]], ...]

    @classmethod
    def joined(cls, parts: Iterable[Sequence[Finding]]) -> FindingRuns:
        """All findings of the parts, one after the other."""
        known: dict[Found, Found] = {}
        runs: list[tuple[Found, list[str]]] = []
        for part in parts:
            for findings, sources in _runs_of(part):
                if runs and runs[-1][0] == findings:
                    runs[-1][1].extend(sources)
                else:
                    runs.append((known.setdefault(findings, findings), list(sources)))
        return cls(tuple((findings, tuple(sources)) for findings, sources in runs))

    def __len__(self) -> int:
        return sum(len(findings[0]) * len(sources) for findings, sources in self.runs)

    def __iter__(self) -> Iterator[Finding]:
        for findings, sources in self.runs:
            for source in sources:
                yield from map(Finding, *findings, repeat(source))

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        numbers = range(len(self))[index]
        if isinstance(numbers, range):
            return tuple(map(self._at, numbers))
        return self._at(numbers)

    def _at(self, number: int) -> Finding:
        for (paths, fates, reasons), sources in self.runs:
            if number < len(paths) * len(sources):
                file, row = divmod(number, len(paths))
                return Finding(paths[row], fates[row], reasons[row], sources[file])
            number -= len(paths) * len(sources)
        raise IndexError(number)


def _runs_of(findings: Sequence[Finding]) -> Iterable[tuple[Found, tuple[str, ...]]]:
    if isinstance(findings, FindingRuns):
        return findings.runs
    if not findings:
        return ()
    paths, fates, reasons, sources = zip(*findings, strict=True)
    if sources.count(sources[0]) == len(sources):  # one file's, the usual case
        return (((paths, fates, reasons), sources[:1]),)
    split = (list(of_file) for _, of_file in groupby(findings, attrgetter("source")))
    return tuple(run for of_file in split for run in _runs_of(of_file))


@dataclass(frozen=True)
class ScanReport:
    """Every object found in a scan, and what the scan cost.

    Attributes
    ----------
    findings
        One entry an object.
    n_requests, n_bytes
        Reads sent to the sources, and bytes read.
    drifts
        The differences between files that were combined: rows of `DriftReport.rows`.
    lines
        What a build or a change of a catalog did, in short: how files were laid out and in which
        order, how many drifts were resolved, what was left out, given twice or replaced.
    """

    findings: Sequence[Finding] = ()
    n_requests: int = 0
    n_bytes: int = 0
    drifts: tuple[Mapping[str, Any], ...] = ()
    lines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.findings, FindingRuns):  # those are of other reports
            sources = {finding.source for finding in self.findings}
            shown = {source: shown_address(source) for source in sources}
            changed = any(source != text for source, text in shown.items())
            findings = (f._replace(source=shown[f.source]) if changed else f for f in self.findings)
            object.__setattr__(self, "findings", tuple(findings))

    @classmethod
    def joined(cls, reports: Sequence[ScanReport]) -> ScanReport:
        """One report of several scans."""
        return cls(
            FindingRuns.joined([report.findings for report in reports]),
            sum([report.n_requests for report in reports]),
            sum([report.n_bytes for report in reports]),
            tuple(row for report in reports for row in report.drifts),
        )

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def with_fate(self, fate: Fate) -> tuple[Finding, ...]:
        """The findings of one fate."""
        findings = self.findings
        if isinstance(findings, FindingRuns):  # most files of very many have none
            findings = FindingRuns(tuple(run for run in findings.runs if fate in run[0][1]))
        return tuple(finding for finding in findings if finding.fate is fate)

    @property
    def skipped(self) -> tuple[Finding, ...]:
        """The parts of the files that are missing from the result."""
        return self.with_fate(Fate.SKIPPED) + self.with_fate(Fate.DAMAGED)

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The files that are missing from the result, as ``on_error="skip"`` leaves them out."""
        return self.with_fate(Fate.FAILED)

    @property
    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """The drifts, and a row for each object or file that is missing: what catalogs keep.

        Equal findings share a row. Objects that a drift already lists as left out have none.
        """
        known = {row["variable"] for row in self.drifts if row["resolution"] == LEFT_OUT}
        files: dict[tuple[Fate, str, str], list[str]] = {}
        for finding in (*self.failed, *self.skipped):
            if (variable := finding.path.strip("/")) not in known:
                alike = (finding.fate, variable, without_secrets(finding.reason))
                files.setdefault(alike, []).append(finding.source)
        left_out = (
            {
                "cause": str(fate),
                "variable": variable,
                "value": reason,
                "n_files": len(sources),
                "first_file": sources[0] or None,
                "last_file": sources[-1] or None,
                "resolution": LEFT_OUT,
            }
            for (fate, variable, reason), sources in files.items()
        )
        return (*self.drifts, *left_out)

    def _repr_html_(self) -> str | None:
        return html_of(self)
