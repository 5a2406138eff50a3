"""Lazy arrays that the engine gives to xarray, and how to find them behind xarray's wrappers."""

from __future__ import annotations

import asyncio
from typing import Any

import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.coding.common import _ElementwiseFunctionArray
from xarray.coding.strings import create_vlen_dtype
from xarray.coding.variables import NativeEndiannessArray
from xarray.core import indexing

from gridref.model.array import VirtualArray
from gridref.model.indexing import isel
from gridref.serve.reader import Reader

_SAME_ELEMENTS = (
    indexing.MemoryCachedArray,
    indexing.CopyOnWriteArray,
    _ElementwiseFunctionArray,
    NativeEndiannessArray,
)
"""Wrappers that keep every element of the wrapped array in its place."""


class LazyVirtualArray(BackendArray):
    """A virtual array that xarray indexes lazily."""

    def __init__(self, array: VirtualArray, reader: Reader, name: str) -> None:
        # Not `array`: xarray takes that for a wrapped array to be looked into.
        self.virtual = array
        self.reader = reader
        self.name = name
        self.shape = array.shape
        is_text = array.dtype.kind == "T"
        self.dtype = create_vlen_dtype(str) if is_text else array.dtype  # type: ignore[no-untyped-call]

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """The same, while other coroutines go on."""
        return await asyncio.to_thread(self.__getitem__, key)

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        values = self.reader.read(self.virtual, key, name=self.name)
        return values.astype(self.dtype, copy=False)


def is_lazy(variable: xr.Variable) -> bool:
    """Whether the values of a variable are yet to be read by xarray, or computed by dask."""
    data = variable._data  # noqa: SLF001 - `data` would read the values
    unread = isinstance(data, indexing.ExplicitlyIndexed) and not variable._in_memory  # noqa: SLF001
    return unread or variable.chunks is not None


def lazy_virtual_array(variable: xr.Variable) -> VirtualArray | None:
    """The virtual array, sliced, that a variable of the engine would read; None for any other.

    Decoding is left out: its elements are the stored ones.
    """
    data: Any = variable._data  # noqa: SLF001 - `data` would read the values
    indexers: list[indexing.ExplicitIndexer] = []
    while not isinstance(data, LazyVirtualArray):
        if isinstance(data, indexing.LazilyIndexedArray):
            indexers.append(data.key)
        elif not isinstance(data, _SAME_ELEMENTS):
            return None
        data = data.array
    array = data.virtual
    for indexer in reversed(indexers):
        array = isel(array, dict(enumerate(indexer.tuple)))
    return array
