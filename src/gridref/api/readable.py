"""Arrays that can be read, as `gridref.scan` and `gridref.open_catalog` return them.

What reads them is imported with the first values: many files are scanned and never read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from gridref.io import SourcePool
from gridref.model.array import LazyArrays, VirtualArray, VirtualGroup
from gridref.model.indexing import isel, isel_overlays
from gridref.pickling import Picklable

if TYPE_CHECKING:
    from gridref.serve.reader import Reader

CACHE_BYTES = 256 * 2**20
"""Size of the cache of decoded chunks that the requests to one store share."""


def reader_for(
    storage_options: Mapping[str, Any] | None = None,
    *,
    cache_bytes: int = CACHE_BYTES,
    **threads: int,
) -> Reader:
    """A reader of source files; `threads` are the numbers of threads that `Reader` takes."""
    from gridref.serve.reader import Reader

    return Reader(SourcePool(storage_options), cache_bytes=cache_bytes, **threads)


@dataclass(frozen=True)
class Sources(Picklable):
    """The sources that arrays were opened with: equal if their options are."""

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
    """

    sources: Sources
    name: str | None = None

    def read(self, array: VirtualArray, selection: Any = None) -> NDArray[Any]:
        """The values of a selection."""
        return self.sources.reader.read(array, selection, name=self.name)

    def isel(self, array: VirtualArray, selection: Mapping[str, Any]) -> VirtualArray:
        """The array of a selection by dimension name."""
        selected = isel(array, selection)
        if not array.overlays:
            return selected
        return selected.with_changes(overlays=isel_overlays(array, selection))


def readable[G: VirtualGroup](group: G, sources: Sources, path: str = "") -> G:
    """The group with arrays that can be read, at any depth; lazy arrays stay lazy."""
    prefix = f"{path}/" if path else ""
    groups = {
        name: readable(below, sources, f"{prefix}{name}") for name, below in group.groups.items()
    }
    arrays = LazyArrays(group.arrays, partial(_with_access, group.arrays, sources, prefix))
    return replace(group, arrays=arrays, groups=groups)


def from_files[G: VirtualGroup](group: G) -> G:
    """The group with arrays that are read from the files alone, without levels beside them."""
    from gridref.catalog import CatalogGroup

    if isinstance(group, CatalogGroup):
        group = group.from_files()
    groups = {name: from_files(below) for name, below in group.groups.items()}
    arrays = LazyArrays(group.arrays, partial(_without_overlays, group.arrays))
    return replace(group, arrays=arrays, groups=groups)


def _without_overlays(arrays: Mapping[str, VirtualArray], name: str) -> VirtualArray:
    return arrays[name].with_changes(overlays=())


def _with_access(
    arrays: Mapping[str, VirtualArray], sources: Sources, prefix: str, name: str
) -> VirtualArray:
    return arrays[name].with_changes(access=SourceAccess(sources, f"{prefix}{name}"))
