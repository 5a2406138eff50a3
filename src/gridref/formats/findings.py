"""Collect which objects of a file are described, left out or refused while it is scanned.

A format that can describe a file without one of its objects goes on with the others. One error then
names all that are refused, unless the caller leaves them out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gridref.errors import GridrefError, Message, Option, Place, ScanError, UnsupportedFeatureError
from gridref.formats.options import ScanOptions
from gridref.model.scan_report import Fate, Finding, ScanReport

_MOST_NAMES = 10


class Findings:
    """The objects of a file by path, like ``/model/tas``, and what became of each."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._found: list[Finding] = []
        self._refused: list[GridrefError] = []

    def note(self, path: str, fate: Fate, reason: str = "") -> None:
        """Remember what became of an object."""
        self._found.append(Finding(path, fate, reason, self.url))

    def refuse(self, path: str, error: GridrefError) -> None:
        """Remember an object that cannot be described faithfully."""
        error.located(Place(source=self.url, variable=path))
        self._refused.append(error)
        self.note(path, Fate.SKIPPED, error.reason)

    @contextmanager
    def refusing(self, path: str) -> Iterator[None]:
        """Refuse an object if describing it ends in a `ScanError`."""
        try:
            yield
        except ScanError as error:
            self.refuse(path, error)

    def report(self, options: ScanOptions) -> ScanReport:
        """All findings.

        Raises
        ------
        ScanError
            If objects were refused and are not to be left out. It is the error of one of them, and
            names the others.
        """
        if self._refused and options.on_unsupported == "raise":
            raise self._one_error()
        return ScanReport(tuple(self._found))

    def _one_error(self) -> GridrefError:
        # A damaged file is worse than one with an unusual object.
        first = min(self._refused, key=lambda error: isinstance(error, UnsupportedFeatureError))
        others = [error for error in self._refused if error is not first]
        if others:
            named = ", ".join(str(error.place.variable) for error in others[:_MOST_NAMES])
            more = " and more" if len(others) > _MOST_NAMES else ""
            objects = "object is" if len(others) == 1 else "objects are"
            first.reason += f"; {len(others)} other {objects} refused too: {named}{more}"
        first.reason += Message(
            "; ", Option("on_unsupported", "skip"), " leaves out what is refused"
        )
        return first
