"""Attributes that are texts, and the variables that they name (CF conventions, 5 and 7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gridref.model.array import VirtualArray

__all__ = ["referred_names", "text_of"]

_REFERRING = ("coordinates", "bounds", "climatology", "grid_mapping")


def text_of(attrs: Mapping[str, Any], name: str) -> str:
    """An attribute that is a text by its meaning; empty where it is another thing, or not there.

    Files hold numbers, lists and compounds under any name. Such a value is kept, and means nothing.
    """
    value = attrs.get(name)
    return value if isinstance(value, str) else ""


def referred_names(arrays: Iterable[VirtualArray]) -> set[str]:
    """Names of the variables that others call coordinates, bounds or grid mappings."""
    names: set[str] = set()
    for array in arrays:
        for attribute in _REFERRING:
            text = text_of(array.attrs, attribute)
            names.update(word.rstrip(":") for word in text.split())
    return names
