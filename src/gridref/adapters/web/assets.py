"""Scripts and styles of pages, as they lie in the package."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["VIEWER", "Asset", "asset", "asset_version"]

VIEWER = "viewer.js"
"""Made by ``make assets``, and part of every wheel."""

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Asset:
    """A file of the package.

    Attributes
    ----------
    content
        Its bytes.
    content_type
        Its media type.
    """

    content: bytes
    content_type: str


@cache
def _assets() -> dict[str, Asset]:
    """All assets by name: what a request may ask for is looked up, never opened."""
    return {
        each.name: Asset(each.read_bytes(), kind)
        for folder in ("assets", "built")
        if (here := files(__package__) / folder).is_dir()
        for each in here.iterdir()
        if (kind := _TYPES.get(f".{each.name.rpartition('.')[2]}")) is not None
    }


def asset(name: str) -> Asset | None:
    """An asset; None where there is none of that name."""
    return _assets().get(name)


@cache
def asset_version(name: str) -> str:
    """A text that changes with the content of an asset."""
    return hashlib.sha256(_assets()[name].content).hexdigest()[:12]
