"""What the rest of gridref asks of a place that holds files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Buffer", "RangeFetcher"]

type Buffer = bytes | memoryview


class RangeFetcher(Protocol):
    """Can read byte ranges of a file."""

    def fetch(self, url: str, starts: Sequence[int], stops: Sequence[int]) -> list[bytes]:
        """The bytes of half-open ranges; fewer only where the file ends.

        Raises
        ------
        SourceUnavailableError
            If they cannot be read.
        """
        ...
