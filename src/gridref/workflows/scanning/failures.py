"""Files that could not be scanned: collected, and reported together at the end."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace

from gridref import errors
from gridref.errors import (
    FilesFailedError,
    GridrefError,
    Place,
    SkippedFilesWarning,
    SourceUnavailableError,
)
from gridref.model.scan_report import Fate, Finding
from gridref.workflows.scanning.outcomes import RunOptions

__all__ = ["Failures"]

_OURS = os.path.dirname(errors.__file__)
"""Where a warning must not point at."""


class Failures:
    """Files that could not be scanned, each with its reason.

    Parameters
    ----------
    options
        Whether they end the job, and how many are too many.
    can_skip
        Whether the call has these options, so that an error may name them.
    """

    def __init__(self, options: RunOptions, *, can_skip: bool = True) -> None:
        self._options = options
        self._can_skip = can_skip
        self._found: list[tuple[str, GridrefError]] = []

    @property
    def fatal(self) -> bool:
        """Whether the job will end with an error: what is scanned from now on is not needed."""
        return bool(self._found) and self._options.on_error == "raise"

    def add(self, address: str, error: GridrefError) -> None:
        """Note a failure.

        Raises
        ------
        GridrefError
            If there are ``max_errors`` by now: something is wrong with the job and not with a file.
        """
        if self._options.is_elsewhere(1) and _is_about_workers(error, address):
            error.reason += "; it is here: workers must see the same files under the same names"
        self._found.append((address, error))
        if len(self._found) >= self._options.max_errors:
            self._raise(f"the job ends after so many (max_errors={self._options.max_errors})")

    def close(self, n_files: int) -> None:
        """End the job with an error if it must: all of `n_files` were tried.

        Raises
        ------
        GridrefError
            The failure, or a `FilesFailedError` with all, if they end the job or nothing is left.
        """
        if self._found and (self.fatal or len(self._found) == n_files):
            others_are_fine = len(self._found) < n_files
            self._raise(f"of {n_files} files", hint=others_are_fine and self._can_skip)

    def warn(self) -> None:
        """Warn the caller of a public call which files were left out, if any were."""
        if self._found:
            lines = [f"  - {finding.source}: {finding.reason}" for finding in self.findings]
            warnings.warn(
                "\n".join(["files that cannot be scanned were left out:", *lines]),
                SkippedFilesWarning,
                skip_file_prefixes=(_OURS,),
            )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The failures as entries of a scan report."""
        return tuple(
            Finding("/", Fate.FAILED, _reason(error, address), address)
            for address, error in self._found
        )

    def _raise(self, why: str, *, hint: bool = False) -> None:
        errors = [error.located(Place(source=address)) for address, error in self._found]
        if len(errors) > 1:
            remedy = "; on_error='skip' leaves them out and says so" if hint else ""
            raise FilesFailedError(errors, why + remedy)
        if hint:
            errors[0].reason += f"; on_error='skip' leaves it out {why} and says so"
        raise errors[0]


def _is_about_workers(error: GridrefError, address: str) -> bool:
    """Whether a worker does not read a local file that this process does."""
    return isinstance(error, SourceUnavailableError) and os.access(address, os.R_OK)


def _reason(error: GridrefError, address: str) -> str:
    """The message without the address of the file, which is told beside it."""
    if error.place.source != address:
        return str(error)
    where = str(replace(error.place, source=None))
    return f"{error.reason} [{where}]" if where else error.reason
