"""How sources are named on pages: below the folder that they share, never by where that is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gridref.catalog import CatalogGroup
from gridref.io import is_local
from gridref.secrets import without_secrets

__all__ = ["SourceNames"]

_LEAST_FOLDERS = 2
"""Folders that a shared one has in its path: what lies below ``/home`` would tell where."""


class SourceNames:
    """Names sources by their prefix.

    Parameters
    ----------
    prefixes
        Folders that sources may lie in.
    """

    def __init__(self, prefixes: Iterable[str]) -> None:
        shared = {prefix for prefix in prefixes if _is_folder(prefix)}
        self._prefixes: Sequence[str] = sorted(shared, key=len, reverse=True)

    @classmethod
    def of(cls, catalog: CatalogGroup | None) -> SourceNames:
        """The names of a catalog's sources; those of a group in memory are names of files."""
        parts = () if catalog is None else catalog.parts
        return cls(prefix for part in parts for prefix in part.sources.folders)

    def name(self, url: str) -> str:
        """What pages call a source."""
        shown = without_secrets(url)
        for prefix in self._prefixes:
            if shown.startswith(prefix) and "::" not in shown:
                return shown[len(prefix) :]
        return "::".join(part.rstrip("/").rpartition("/")[2] for part in shown.split("::"))


def _is_folder(prefix: str) -> bool:
    if not prefix.endswith("/") or "::" in prefix:
        return False
    path = prefix.removeprefix("file://")
    return not is_local(path) or path.count("/") > _LEAST_FOLDERS
