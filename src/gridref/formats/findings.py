"""What is described, left out or refused while a file is scanned, and damaged metadata.

A format that can describe a file without one of its objects goes on with the others. One error then
names all that are refused, unless the caller leaves them out (`Findings`).

`refusing_damage` turns the errors that damaged or hostile metadata cause in Python and in other
packages into a `SourceFormatError`. `check_element_size` refuses elements of absurd size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gridref.errors import (
    GridrefError,
    Message,
    Option,
    Place,
    ScanError,
    SourceFormatError,
    UnsupportedFeatureError,
)
from gridref.formats.options import ScanOptions
from gridref.limits import beyond, limits
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.secrets import without_secrets

_MOST_NAMES = 10


class Findings:
    """The objects of a file by path, like ``/model/tas``, and what became of each."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.found: list[Finding] = []
        self._refused: list[GridrefError] = []

    def note(self, path: str, fate: Fate, reason: str = "") -> None:
        """Remember what became of an object."""
        self.found.append(Finding(path, fate, reason, self.url))

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
        return ScanReport(tuple(self.found))

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


@contextmanager
def located(place: Place) -> Iterator[None]:
    """Add a place to errors of gridref's, as far as they do not state one."""
    try:
        yield
    except GridrefError as error:
        raise error.located(place) from error.__cause__


# Damage


@contextmanager
def refusing_damage(url: str, what: str = "the metadata is damaged") -> Iterator[None]:
    """Turn any error that is not gridref's own into a `SourceFormatError`.

    Damaged metadata may be of any type, depth and size, and the errors that Python raises for it
    (`RecursionError`, `OverflowError`, `UnicodeEncodeError`, ...) do not describe the file.
    """
    try:
        yield
    except GridrefError:
        raise
    except Exception as error:
        shown = without_secrets(f"{type(error).__name__}: {error}")[:500]
        raise SourceFormatError(f"{what} ({shown})", Place(source=url)) from error


def check_element_size(dtype: np.dtype[Any]) -> None:
    """Refuse elements so large that a few of them exceed the memory."""
    if dtype.itemsize > limits().element_bytes:
        raise UnsupportedFeatureError(
            beyond("element_bytes", f"elements of {dtype.itemsize} bytes")
        )
