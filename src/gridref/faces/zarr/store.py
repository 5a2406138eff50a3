"""A read-only Zarr store over a catalog or a virtual group: the keys of a view, and their bytes."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, NoReturn

from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.buffer import default_buffer_prototype

from gridref.api.opening import open_group, open_space, view_options
from gridref.catalog import CatalogGroup, Trust
from gridref.catalog.overlays import OverlayPolicy
from gridref.errors import ReadOnlyError
from gridref.io import Allow
from gridref.model.array import VirtualGroup
from gridref.options import verb
from gridref.secrets import shown_address
from gridref.serve.object_reader import ObjectReader
from gridref.serve.objects import KeySpace
from gridref.serve.pages import VirtualObject
from gridref.serve.views import View, ViewOptions


@verb(
    ViewOptions,
)
def open_store(
    catalog: str | os.PathLike[str] | VirtualGroup,
    view: str | View = View.AUTO,
    *,
    storage_options: Mapping[str, Any] | None = None,
    allow: Allow = None,
    snapshot: str | None = None,
    overlay: OverlayPolicy | None = None,
    **options: Any,
) -> GridrefStore:
    """Open a catalog, or a virtual group in memory, as a read-only Zarr v3 store.

    Parameters
    ----------
    catalog
        Address of a catalog (local path or fsspec URL), or a group.
    view
        ``"direct"`` passes selections to gridref's reader, ``"native"`` shows chunks as stored,
        ``"portable"`` decodes them on the way. ``"auto"`` is direct. If the options ask for uneven,
        compressed or sharded chunks, it is native where possible, else portable.
    storage_options
        Options of fsspec's filesystem of the catalog and of its sources, or of several by protocol:
        ``{"s3": {"anon": True}, "https": {...}}``.
    allow, snapshot
        As for `gridref.open_catalog`.
    overlay
        As for `gridref.open_catalog`; None leaves an opened catalog as it is. With a number, chunks
        are those of this overlay; the native view then needs one that holds all of an array.
    **options
        The other fields of `ViewOptions`: ``grid``, ``chunks``, ``compressor``, ``shards`` and
        ``index_location``.

    Raises
    ------
    CatalogError
        If there is no usable catalog at the address.
    InvalidRequestError
        For bad options.

    Examples
    --------
    >>> store = gridref.open_store("cube.gridref")  # doctest: +SKIP
    >>> xr.open_zarr(store)  # doctest: +SKIP
    """
    options = {**options, "view": view}
    views = view_options(options, in_process=True)
    return _opened(catalog, views, storage_options, snapshot, overlay, allow)


class GridrefStore(Store):
    """A read-only Zarr store that answers from a key space.

    Parameters
    ----------
    name
        Shown in ``repr``.
    recipe
        Catalog, view options, storage options, snapshot and overlay: how to open the same store
        again.
    read_only
        Has to be True.
    """

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(
        self,
        space: KeySpace,
        reader: ObjectReader,
        *,
        name: str = "",
        recipe: tuple[Any, ...] | None = None,
        read_only: bool = True,
    ) -> None:
        if not read_only:
            _refuse()
        super().__init__(read_only=True)
        self.space = space
        self.reader = reader
        self._name = name
        self._unique = uuid.uuid4().hex
        self._recipe = recipe

    def __repr__(self) -> str:
        return f"GridrefStore({self._name!r})"

    def __str__(self) -> str:
        return f"gridref::{self._name}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GridrefStore):
            return NotImplemented
        if self._recipe is None or other._recipe is None:
            return self.space is other.space
        return self._recipe[1:] == other._recipe[1:] and (
            self._recipe[0] is other._recipe[0] or self._recipe[0] == other._recipe[0]
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        if self._recipe is None:
            return (GridrefStore, (self.space, self.reader))
        # The digest is part of the names that dask gives to tasks, which it makes of pickles.
        catalog, trust = self._catalog, None
        if catalog is not None and not isinstance(self._recipe[0], VirtualGroup):
            trust = catalog.decided_trust()
        digest = None if catalog is None else catalog.info.digest
        return (_opened, (*self._recipe, trust, digest))

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        """What names dask's tasks: the catalog's content and how it is shown."""
        content = self._unique if self._catalog is None else self._catalog.__dask_tokenize__()
        return "gridref.GridrefStore", content, repr(getattr(self.space, "options", None))

    @property
    def _catalog(self) -> CatalogGroup | None:
        group = getattr(self.space, "group", None)
        return group if isinstance(group, CatalogGroup) else None

    def with_read_only(self, read_only: bool = False) -> GridrefStore:
        """Itself again; asking for a writable one is refused."""
        if not read_only:
            _refuse()
        return GridrefStore(self.space, self.reader, name=self._name, recipe=self._recipe)

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """The value of a key, or a byte range of it; None where there is none."""
        virtual_object = self.space.resolve(key)
        if virtual_object is None:
            return None
        return _buffer(self._read(virtual_object, byte_range), prototype)

    def set_sync(self, key: str, value: Buffer) -> NoReturn:
        """Refused."""
        _refuse()

    def delete_sync(self, key: str) -> NoReturn:
        """Refused."""
        _refuse()

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """The value of a key, or a byte range of it; None where there is none."""
        await self._ensure_open()
        virtual_object = self.space.peek(key)
        if virtual_object is not None and virtual_object.n_bytes is not None:
            start, stop = _bounds(byte_range, virtual_object.n_bytes)
            end = virtual_object.n_bytes if stop is None else min(stop, virtual_object.n_bytes)
            data = self.reader.at_hand(virtual_object, start, end)
            if data is not None:
                return _buffer(data, prototype)
            return _buffer(
                await asyncio.to_thread(self._read, virtual_object, byte_range), prototype
            )
        return await asyncio.to_thread(
            self.get_sync, key, prototype=prototype, byte_range=byte_range
        )

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Byte ranges of several keys."""
        return list(
            await asyncio.gather(
                *(self.get(key, prototype, byte_range) for key, byte_range in key_ranges)
            )
        )

    async def exists(self, key: str) -> bool:
        """Whether a key has a value."""
        return await asyncio.to_thread(self.space.resolve, key) is not None

    async def getsize(self, key: str) -> int:
        """Size of a value in bytes."""
        virtual_object = await asyncio.to_thread(self.space.resolve, key)
        if virtual_object is None:
            raise FileNotFoundError(key)
        return await asyncio.to_thread(self.reader.size, virtual_object)

    async def set(self, key: str, value: Buffer) -> None:
        """Refused."""
        _refuse()

    async def delete(self, key: str) -> None:
        """Refused."""
        _refuse()

    async def delete_dir(self, prefix: str) -> None:
        """Refused."""
        _refuse()

    async def clear(self) -> None:
        """Refused."""
        _refuse()

    async def list(self) -> AsyncIterator[str]:
        """All keys."""
        for key in self.space.keys(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All keys that begin with `prefix`."""
        for key in self.space.keys(prefix):
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Names right below a path."""
        for name in await asyncio.to_thread(self.space.list_dir, prefix):
            yield name

    def _read(
        self, virtual_object: VirtualObject, byte_range: ByteRequest | None
    ) -> bytes | memoryview:
        if virtual_object.n_bytes is None and isinstance(byte_range, SuffixByteRequest):
            return self.reader.read(virtual_object)[-byte_range.suffix :]
        return self.reader.read_buffer(virtual_object, *_bounds(byte_range, virtual_object.n_bytes))


def _buffer(data: bytes | memoryview, prototype: BufferPrototype | None) -> Buffer:
    return (prototype or default_buffer_prototype()).buffer.from_bytes(data)


def _bounds(byte_range: ByteRequest | None, n_bytes: int | None) -> tuple[int, int | None]:
    """First byte and end of what is asked for of an object."""
    if byte_range is None:
        return 0, n_bytes
    if isinstance(byte_range, RangeByteRequest):
        return byte_range.start, byte_range.end
    if isinstance(byte_range, OffsetByteRequest):
        return byte_range.offset, n_bytes
    if isinstance(byte_range, SuffixByteRequest) and n_bytes is not None:
        return max(0, n_bytes - byte_range.suffix), n_bytes
    raise ValueError(f"Unexpected byte_range, got {byte_range!r}")


def _opened(
    catalog: str | os.PathLike[str] | VirtualGroup,
    options: ViewOptions,
    storage_options: Mapping[str, Any] | None,
    snapshot: str | None,
    overlay: OverlayPolicy | None,
    allow: Allow | Trust,
    digest: str | None = None,
) -> GridrefStore:
    group = open_group(catalog, storage_options, allow, snapshot, overlay, digest=digest)
    space, reader = open_space(group, options, storage_options)
    name = repr(group) if isinstance(catalog, VirtualGroup) else shown_address(os.fspath(catalog))
    if isinstance(group, CatalogGroup) and not isinstance(catalog, VirtualGroup):
        snapshot = group.info.snapshot  # where a tag points to, or what is current, may change
    recipe = (catalog, options, storage_options, snapshot, overlay)
    return GridrefStore(space, reader, name=name, recipe=recipe)


def _refuse() -> NoReturn:
    raise ReadOnlyError("store was opened in read-only mode and does not support writing")
