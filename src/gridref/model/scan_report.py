"""What a scan found: every object of a file, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, NamedTuple, overload

from gridref.model.display import html_of
from gridref.secrets import without_secrets

__all__ = ["Fate", "Finding", "FindingRuns", "ScanReport"]


class Fate(StrEnum):
    """What a scanner did with an object."""

    TAKEN = "taken"
    """Its chunks are referenced where they lie."""
    INLINED = "inlined"
    """Its values were read and are kept in the references."""
    SKIPPED = "skipped"
    """It is left out; the reason says why."""
    FAILED = "failed"
    """It is a whole file that could not be described, and is left out; the reason says why."""
    NAMED = "named"
    """It holds no values of its own: a dimension, say, whose name and length others carry."""


class Finding(NamedTuple):
    """One object of a file.

    Attributes
    ----------
    path
        Path inside the file, like ``/model/tas``.
    fate
        What became of it.
    reason
        Why, where it was not simply taken.
    source
        The file.
    """

    path: str
    fate: Fate
    reason: str = ""
    source: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.fate}{f' ({self.reason})' if self.reason else ''}"


Found = tuple[tuple[str, ...], tuple[Fate, ...], tuple[str, ...]]
"""What was found in one file: path, fate and reason of each object, as columns."""


@dataclass(frozen=True)
class FindingRuns(Sequence[Finding]):
    """The findings of many files, of which neighbours are mostly alike: what is alike is kept once.

    Attributes
    ----------
    runs
        What was found, and the files in which just that was found.
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
        What differed between files that were combined: rows of `DriftReport.rows`.
    """

    findings: Sequence[Finding] = ()
    n_requests: int = 0
    n_bytes: int = 0
    drifts: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.findings, FindingRuns):  # those are of other reports
            sources = {finding.source for finding in self.findings}
            shown = {source: without_secrets(source) for source in sources}
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
        return tuple(finding for finding in self.findings if finding.fate is fate)

    @property
    def skipped(self) -> tuple[Finding, ...]:
        """What of the files is missing from the result."""
        return self.with_fate(Fate.SKIPPED)

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The files that are missing from the result, as ``on_error="skip"`` leaves them out."""
        return self.with_fate(Fate.FAILED)

    def _repr_html_(self) -> str | None:
        return html_of(self)
