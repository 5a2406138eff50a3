"""Arrays that can be read, as `gridref.scan` and `gridref.open_catalog` return them.

What reads them is imported with the first values: many files are scanned and never read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from gridref.io import SourcePool
from gridref.model.array import VirtualArray, VirtualGroup
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


def readable[G: VirtualGroup](group: G, sources: Sources) -> G:
    """The group with arrays that can be read, at any depth; lazy arrays stay lazy."""
    return group.with_each_array_lazily(partial(_with_access, sources))


def from_files[G: VirtualGroup](group: G) -> G:
    """The group with arrays that are read from the files alone, without levels beside them."""
    from gridref.catalog import CatalogGroup

    if isinstance(group, CatalogGroup):
        group = group.from_files()
    return group.with_each_array_lazily(_without_overlays)


def _with_access(sources: Sources, path: str, array: VirtualArray) -> VirtualArray:
    return array.with_changes(access=SourceAccess(sources, path))


def _without_overlays(_: str, array: VirtualArray) -> VirtualArray:
    return array.with_changes(overlays=())
