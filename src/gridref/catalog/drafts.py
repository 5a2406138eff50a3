"""Tables of a commit before it is known which of them are wanted.

Its own rows may be written as one with those of other parts right away; and what was just written
need not be read again.
"""

from __future__ import annotations

from collections.abc import Collection

from gridref.catalog.storage import Folder, WritableFile

__all__ = ["Drafts"]

_HELD_BYTES = 2**20
"""Larger tables are written where they belong at once."""


class Drafts:
    """A `TablePlace` that holds small tables in memory until they are published.

    Attributes
    ----------
    url
        Address of the catalog.
    held
        Tables in memory, by name.
    written
        Names of those that were too large, and are in the folder.
    """

    def __init__(self, folder: Folder) -> None:
        self.url = folder.url
        self.held: dict[str, bytes] = {}
        self.written: set[str] = set()
        self._folder = folder

    def create(self, name: str) -> WritableFile:
        """A new table to write."""
        return _Draft(name, self)

    def create_written(self, name: str) -> WritableFile:
        """A new table in the folder."""
        self.written.add(name)
        return self._folder.create(name)

    def remove(self, name: str) -> None:
        """Remove a table, if there is one."""
        self.held.pop(name, None)
        if name in self.written:
            self._folder.remove(name)

    def publish(self, names: Collection[str]) -> None:
        """Write some of those in memory into the folder; the others are forgotten."""
        for name in [*self.held]:
            if name not in names:
                del self.held[name]
                continue
            file = self.create_written(name)
            try:
                file.write(self.held[name])
            finally:
                file.close()


class _Draft:
    """A file that is held in memory while it is small."""

    def __init__(self, name: str, drafts: Drafts) -> None:
        self._name = name
        self._drafts = drafts
        self._content = bytearray()
        self._file: WritableFile | None = None

    def write(self, content: bytes, /) -> int:
        if self._file is not None:
            return self._file.write(content)
        self._content += content
        if len(self._content) > _HELD_BYTES:
            self._file = self._drafts.create_written(self._name)
            self._file.write(bytes(self._content))
        return len(content)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        else:
            self._drafts.held[self._name] = bytes(self._content)
