"""An object space that tests can fill with bytes of their own."""

from __future__ import annotations

from typing import Any

from gridref.serve.pages import LiteralSegment, VirtualObject

__all__ = ["FilledSpace"]


def _known(number: int) -> FilledSpace:
    return FilledSpace.known[number]


class FilledSpace:
    """An object space of bytes in memory. Its pickled form stands for itself."""

    known: dict[int, FilledSpace] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.known[id(self)] = self

    def __reduce__(self) -> Any:
        return _known, (id(self),)

    def peek(self, key: str) -> VirtualObject | None:
        return self.resolve(key)

    def resolve(self, key: str) -> VirtualObject | None:
        if key not in self.held:
            return None
        return VirtualObject((LiteralSegment(self.held[key]),), "etag")

    def keys(self, prefix: str = "") -> list[str]:
        return [key for key in self.held if key.startswith(prefix)]

    def is_dir(self, prefix: str) -> bool:
        return not prefix or any(key.startswith(f"{prefix}/") for key in self.held)

    def list_dir(self, prefix: str) -> list[str]:
        head = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        return sorted({key[len(head) :].split("/")[0] for key in self.keys(head)})
