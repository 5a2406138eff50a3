"""What an opened catalog asks to be changed by."""

from __future__ import annotations

from typing import Any, Protocol

from gridref.catalog.snapshot import Commit, Pruned

__all__ = ["CatalogKeeper"]


class CatalogKeeper[G](Protocol):
    """Changes a catalog that was opened."""

    def append(self, files: Any, **options: Any) -> G:
        """Add files."""
        ...

    def declare(self, dim: str, labels: Any) -> G:
        """Declare labels."""
        ...

    def replace(self, file: Any, by: Any = ..., *, progress: Any = ...) -> G:
        """Put a file in the place of another."""
        ...

    def remove(self, files: Any) -> G:
        """Leave files out."""
        ...

    def refresh(self, *, vanished: Any = ..., progress: Any = ...) -> G:
        """Scan again what has changed."""
        ...

    def scan_values(self, arrays: Any, n_threads: Any, progress: Any) -> G:
        """Look at values."""
        ...

    def amending(self, snapshot: str) -> CatalogKeeper[G]:
        """What takes the place of a snapshot."""
        ...

    def history(self) -> tuple[Commit, ...]:
        """The commits."""
        ...

    def tag(self, name: str, snapshot: str | None) -> G:
        """Name a snapshot."""
        ...

    def untag(self, name: str) -> G:
        """Take a name away."""
        ...

    def rollback(self, to: str | None) -> G:
        """Go back."""
        ...

    def prune(self, *, keep: int, grace_seconds: float, dry_run: bool) -> Pruned:
        """Remove snapshots."""
        ...
