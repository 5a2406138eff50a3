"""How a file keeps what describes its arrays: what a scanner tells besides the arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Advice", "MetadataPieces", "Organisation"]


@dataclass(frozen=True)
class MetadataPieces:
    """Where in a file that lies which a scan looks at.

    Attributes
    ----------
    pieces
        Half-open byte ranges, ascending, that do not touch.
    file_bytes
        Size of the file.
    n_requests
        Requests that a scan of a file like it sends, when others were scanned before.
    """

    pieces: tuple[tuple[int, int], ...]
    file_bytes: int
    n_requests: int

    @property
    def n_bytes(self) -> int:
        """Size of all pieces."""
        return sum(stop - start for start, stop in self.pieces)


@dataclass(frozen=True)
class Advice:
    """What makes a file slow, and what can be done about it.

    Attributes
    ----------
    reason
        What is slow, with numbers.
    command
        What writes the file anew without that, ``IN`` and ``OUT`` being files; empty if nothing
        does.
    gain
        What that gives.
    """

    reason: str
    command: str = ""
    gain: str = ""


@dataclass(frozen=True)
class Organisation:
    """How a file is organised.

    Attributes
    ----------
    facts
        What its format has to say, by name.
    indexes
        How the chunks of each array are indexed, by its path.
    advice
        What of that makes scans slow.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    indexes: Mapping[str, str] = field(default_factory=dict)
    advice: tuple[Advice, ...] = ()
