"""A snapshot of an Icechunk repository -> a virtual group."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import icechunk
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from gridref.errors import Place, SourceChangedError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.icechunk.access import address_of
from gridref.formats.icechunk.repository import repository_errors
from gridref.formats.kerchunk.files import scan_references
from gridref.formats.kerchunk.references import Reference
from gridref.formats.options import ScanOptions
from gridref.io import absolute_url, current_traffic, policy_for, real_path
from gridref.model.array import VirtualGroup
from gridref.secrets import without_secrets

__all__ = ["scan_session"]

_DOCUMENT = "zarr.json"
_CHANGED = "virtual-chunk-modified"
_VIRTUAL, _INLINE = 2, 3
"""How Icechunk numbers the kinds of chunks; the third kind, 1, are native ones."""
_AT_A_TIME = 64
"""Files that are asked at a time whether they changed."""

type Held = bytes | Reference


def scan_session(
    session: icechunk.Session, address: str | None, options: ScanOptions
) -> VirtualGroup:
    """Describe the arrays of a session.

    Parameters
    ----------
    session
        It may be a writable one: what it holds and has not committed is seen.
    address
        Where its repository is: native chunks are referenced in there. None if that is not known:
        then they are read and kept, up to ``options.max_inline_bytes`` an array.

    Raises
    ------
    SourceChangedError
        If a file changed since it was referenced.
    SourceFormatError
        If the session holds nothing, or something that cannot be understood.
    UnsupportedFeatureError
        As for Zarr stores; and for native chunks too large to be kept.
    """
    shown = address or "icechunk"
    with repository_errors(shown):
        references, virtual = sync(_Collected(session.store, address, options).all())
        policy = policy_for(absolute_url(shown), options.allow)
        allowed = {
            location: key
            for location, key in virtual.items()
            if policy.allows(real_path(address_of(location)))
        }
        sync(_check_unchanged(session.store, allowed))
    return scan_references(shown, references, options)


class _Collected:
    """What each key of a store holds, and a key of each file that is referenced."""

    def __init__(self, store: icechunk.IcechunkStore, address: str | None, options: ScanOptions):
        self.store = store
        self.chunks = None if address is None else f"{absolute_url(address).rstrip('/')}/chunks"
        self.options = options
        self.traffic = current_traffic()
        self.references: dict[str, Held] = {}
        self.virtual: dict[str, str] = {}

    async def all(self) -> tuple[dict[str, Held], dict[str, str]]:
        await self.node("")
        if not self.references:
            raise SourceFormatError("the repository holds no groups and no arrays")
        return self.references, self.virtual

    async def node(self, path: str) -> None:
        """Take a group with all below, or an array."""
        head = f"{path}/" if path else ""
        data = await self.get(f"{head}{_DOCUMENT}")
        if data is None:
            return
        document: Mapping[str, Any] = json.loads(data)
        self.references[f"{head}{_DOCUMENT}"] = data
        if document["node_type"] == "array":
            await self.array(path, document)
            return
        names = [name async for name in self.store.list_dir(path) if name != _DOCUMENT]
        for name in sorted(names):
            await self.node(f"{head}{name}")

    async def array(self, path: str, document: Mapping[str, Any]) -> None:
        """Take the chunks of an array."""
        n_kept = 0
        async for batch in self.store.array_chunk_iterator(path):
            columns = [column.tolist() for column in (batch[0], batch[1], batch[3], batch[4])]
            rows = zip(batch[2], *columns, strict=True)
            for number, (where, coords, kind, offset, length) in enumerate(rows):
                key = "/".join([path, "c", *map(str, coords[: len(document["shape"])])])
                if kind == _INLINE:
                    self.references[key] = batch[5][number]
                elif kind == _VIRTUAL:
                    self.virtual.setdefault(where, key)
                    self.references[key] = Reference(address_of(where), offset, length)
                elif self.chunks is not None:
                    self.references[key] = Reference(f"{self.chunks}/{where}", offset, length)
                else:
                    n_kept += length
                    self.references[key] = await self.native(path, key, n_kept)

    async def native(self, path: str, key: str, n_kept: int) -> bytes:
        """The bytes of a native chunk."""
        if n_kept > self.options.max_inline_bytes:
            raise UnsupportedFeatureError(
                "its native chunks are too large to be kept, and where the repository lies is not"
                " known: name its address",
                Place(variable=f"/{path}"),
            )
        data = await self.get(key)
        assert data is not None
        return data

    async def get(self, key: str) -> bytes | None:
        buffer = await self.store.get(key, default_buffer_prototype())
        data = None if buffer is None else buffer.to_bytes()
        self.traffic.add(1, len(data or b""))
        return data


async def _check_unchanged(store: icechunk.IcechunkStore, virtual: Mapping[str, str]) -> None:
    """Ask Icechunk for one byte of each file: it compares the file with its checksum.

    A file that cannot be reached is left to whoever reads it.
    """
    limit = asyncio.Semaphore(_AT_A_TIME)

    async def check(location: str, key: str) -> None:
        async with limit:
            try:
                await store.get(key, default_buffer_prototype(), RangeByteRequest(0, 1))
            except icechunk.IcechunkError as error:
                if getattr(error, "kind", "") == _CHANGED:
                    raise SourceChangedError(
                        "the file changed since it was referenced",
                        Place(source=without_secrets(address_of(location))),
                    ) from error

    await asyncio.gather(*(check(location, key) for location, key in virtual.items()))
