"""What a scan found: every object of a file, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Fate", "Finding", "ScanReport"]


class Fate(StrEnum):
    """What a scanner did with an object."""

    TAKEN = "taken"
    """Its chunks are referenced where they lie."""
    INLINED = "inlined"
    """Its values were read and are kept in the references."""
    SKIPPED = "skipped"
    """It is left out; the reason says why."""
    NAMED = "named"
    """It holds no values of its own: a dimension, say, whose name and length others carry."""


@dataclass(frozen=True)
class Finding:
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


@dataclass(frozen=True)
class ScanReport:
    """Every object found in a scan, and what the scan cost.

    Attributes
    ----------
    findings
        One entry an object.
    n_requests, n_bytes
        Reads sent to the sources, and bytes read.
    """

    findings: tuple[Finding, ...] = ()
    n_requests: int = 0
    n_bytes: int = 0

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def with_fate(self, fate: Fate) -> tuple[Finding, ...]:
        """The findings of one fate."""
        return tuple(finding for finding in self.findings if finding.fate is fate)

    @property
    def skipped(self) -> tuple[Finding, ...]:
        """What is missing from the result."""
        return self.with_fate(Fate.SKIPPED)

    def __add__(self, other: ScanReport) -> ScanReport:
        return ScanReport(
            self.findings + other.findings,
            self.n_requests + other.n_requests,
            self.n_bytes + other.n_bytes,
        )
