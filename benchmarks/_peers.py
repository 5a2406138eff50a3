"""What the peers need to be called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def local_registry() -> Any:
    """Where VirtualiZarr finds local files."""
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore

    return ObjectStoreRegistry({"file://": LocalStore()})


def parsed_by(parser: Any) -> Callable[[Path], Any]:
    """A scan of a local file by a parser of VirtualiZarr."""
    registry = local_registry()
    return lambda path: parser(f"file://{path}", registry)
