"""Arrays that can be read: what `gridref.scan`, `open_catalog` and the combining calls return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.indexing import isel
from gridref.serve.reader import Reader
from gridref.workflows.opening import reader_for

__all__ = ["SourceAccess", "Sources", "readable"]


@dataclass(frozen=True)
class Sources:
    """The sources that arrays were opened with: equal if their options are.

    Attributes
    ----------
    storage_options
        Options of fsspec's filesystems.
    """

    storage_options: Mapping[str, Any] | None = field(default=None, hash=False, repr=False)

    @cached_property
    def reader(self) -> Reader:
        """The reader of these sources; made when the first values are asked for."""
        return reader_for(self.storage_options)


@dataclass(frozen=True)
class SourceAccess:
    """How one array is read.

    Attributes
    ----------
    sources
        Shared by all arrays that were opened together.
    name
        Path of the array, for messages.
    """

    sources: Sources
    name: str | None = None

    def read(self, array: VirtualArray, selection: Any = None) -> NDArray[Any]:
        """The values of a selection."""
        return self.sources.reader.read(array, selection, name=self.name)

    def isel(self, array: VirtualArray, selection: Mapping[str, Any]) -> VirtualArray:
        """The array of a selection by dimension name."""
        return isel(array, selection)


def readable[G: VirtualGroup](group: G, sources: Sources, path: str = "") -> G:
    """The group with arrays that can be read, at any depth; lazy arrays stay lazy."""
    prefix = f"{path}/" if path else ""
    groups = {
        name: readable(below, sources, f"{prefix}{name}") for name, below in group.groups.items()
    }
    arrays = _ReadableArrays(group.arrays, sources, prefix)
    return replace(group, arrays=arrays, groups=groups)


class _ReadableArrays(Mapping[str, VirtualArray]):
    """Arrays that are given access to their sources when they are looked up."""

    def __init__(self, arrays: Mapping[str, VirtualArray], sources: Sources, prefix: str) -> None:
        self._arrays = arrays.arrays if isinstance(arrays, _ReadableArrays) else arrays
        self._sources = sources
        self._prefix = prefix
        self._made: dict[str, VirtualArray] = {}

    @property
    def arrays(self) -> Mapping[str, VirtualArray]:
        """The arrays as they were given."""
        return self._arrays

    def __getitem__(self, name: str) -> VirtualArray:
        made = self._made.get(name)
        if made is None:
            access = SourceAccess(self._sources, f"{self._prefix}{name}")
            made = self._made.setdefault(name, self._arrays[name].replace(access=access))
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
