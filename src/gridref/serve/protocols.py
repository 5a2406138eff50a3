"""What a door asks of the keys that it shows: the store, the filesystem, references and HTTP.

`gridref.serve.objects.KeySpace` is the one that gridref has; the type checker holds it against
these wherever a door is handed one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from gridref.serve.segments import VirtualObject
from gridref.serve.views import ArrayView

__all__ = ["ArraySpace", "ObjectSpace"]


class ObjectSpace(Protocol):
    """Keys, and the virtual objects that answer for them."""

    def resolve(self, key: str) -> VirtualObject | None:
        """What answers for a key; None where nothing does."""
        ...

    def peek(self, key: str) -> VirtualObject | None:
        """The same, if it is at hand without any work; else None."""
        ...

    def list_dir(self, prefix: str) -> list[str]:
        """Names right below a path."""
        ...

    def is_dir(self, prefix: str) -> bool:
        """Whether there are keys below a path."""
        ...

    def keys(self, prefix: str = "") -> Iterable[str]:
        """All keys that begin with `prefix`."""
        ...


class ArraySpace(ObjectSpace, Protocol):
    """An object space that knows of which arrays its keys are."""

    def views(self) -> Mapping[str, ArrayView]:
        """How each array is shown, by path."""
        ...
