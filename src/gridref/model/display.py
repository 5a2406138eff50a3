"""How notebooks show what we return: the model does not draw, a face above it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["draw_with", "html_of"]

_drawers: list[Callable[[Any], str]] = []


def draw_with(drawer: Callable[[Any], str]) -> None:
    """Let `drawer` make the HTML of arrays, groups and reports from now on."""
    _drawers[:] = [drawer]


def html_of(shown: Any) -> str | None:
    """HTML of such a thing; None where nothing draws, so that a notebook shows its repr."""
    return _drawers[0](shown) if _drawers else None
