"""What an array is, in few words, for people."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gridref.model.array import VirtualArray
from gridref.model.encoding import Codec

__all__ = [
    "codecs_in_words",
    "edges_in_words",
    "human_bytes",
    "several",
    "shortened",
    "sizes_in_words",
]

MAX_NAMES = 500
"""Most characters of what only names something."""


def several(values: Collection[str], limit: int = 3) -> str:
    """The first few of some values in their order, and how many there are more."""
    ordered = sorted(values)
    more = f" and {len(ordered) - limit} more" if len(ordered) > limit else ""
    return ", ".join(ordered[:limit]) + more


def codecs_in_words(codecs: Sequence[Codec]) -> str:
    """Names of codecs, but for the one that all have."""
    names = [codec.name.removeprefix("numcodecs.") for codec in codecs]
    return " + ".join(name for name in names if name != "bytes") or "none"


def edges_in_words(array: VirtualArray) -> str:
    """How many blocks there are along each dimension that has several, and of what lengths."""
    parts = []
    for axis in array.grid.axes:
        if axis.n_chunks > 1:
            edges = axis.edges()
            low, high = int(edges.min()), int(edges.max())
            parts.append(f"{axis.n_chunks} of {low}" + (f" to {high}" if high != low else ""))
    return ", ".join(parts) or str(array.n_blocks)


def human_bytes(n_bytes: float) -> str:
    """A size as people write it, like ``1.2 MB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(n_bytes) < 1000 or unit == "TB":
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    raise AssertionError


def sizes_in_words(array: VirtualArray) -> str:
    """Dimensions with their lengths, and the data type."""
    return f"{array.sizes_text} {array.dtype}"


def shortened(text: str, most: int = MAX_NAMES) -> str:
    """A text that is cut where it is very long."""
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
