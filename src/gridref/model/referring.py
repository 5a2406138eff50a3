"""Which variables others name in their attributes (CF conventions, chapters 5 and 7)."""

from __future__ import annotations

from collections.abc import Iterable

from gridref.model.array import VirtualArray

__all__ = ["referred_names"]

_REFERRING = ("coordinates", "bounds", "climatology", "grid_mapping")


def referred_names(arrays: Iterable[VirtualArray]) -> set[str]:
    """Names of the variables that others call coordinates, bounds or grid mappings."""
    names: set[str] = set()
    for array in arrays:
        for attribute in _REFERRING:
            text = array.attrs.get(attribute)
            if isinstance(text, str):
                names.update(word.rstrip(":") for word in text.split())
    return names
