"""What the rest of gridref asks of a place that holds files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gridref.model.manifest import Source

__all__ = ["Buffer", "Describer", "RangeReader"]

type Buffer = bytes | memoryview


class Describer(Protocol):
    """Can say what a file looks like now."""

    def describe(self, url: str) -> Source:
        """Size and version of a file.

        Raises
        ------
        SourceUnavailableError
            If there is none, or it cannot be reached or read.
        """
        ...


class RangeReader(Protocol):
    """Can read byte ranges of a file."""

    def fetch(self, url: str, starts: Sequence[int], stops: Sequence[int]) -> list[bytes]:
        """The bytes of half-open ranges; fewer only where the file ends.

        Raises
        ------
        SourceUnavailableError
            If they cannot be read.
        """
        ...
