"""Icechunk repositories: opened for reading, and their snapshots as virtual groups.

`open_repository` and `open_session` open a repository. `scan_session` returns the arrays of a
snapshot with the places of their chunks: those are references, which are scanned as kerchunk's are.
Addresses and fsspec options are converted to what Icechunk needs: the storage of a repository, the
containers of its virtual chunks, and the credentials to read them.

Source: Icechunk's documentation, "Storage" and "Virtual datasets" (2.3).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote

# Read once, when icechunk is imported: its warnings are about how it is used, which is our part.
os.environ.setdefault("ICECHUNK_LOG", "error")

import icechunk
from icechunk import credentials
from zarr.abc.store import RangeByteRequest
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync

from gridref.errors import (
    InvalidRequestError,
    NotRepresentableError,
    Place,
    SourceChangedError,
    SourceFormatError,
    SourceUnavailableError,
    UnsupportedFeatureError,
)
from gridref.formats.kerchunk import Reference, scan_references
from gridref.formats.location import Location
from gridref.formats.scanner import ScanOptions
from gridref.io import absolute_url, current_traffic, is_local, policy_for, real_path
from gridref.io.address import settled_options
from gridref.model.array import VirtualGroup, path_in

# Repositories opened for reading, and their errors as gridref's

_DAMAGED = (icechunk.FormatError, icechunk.InvalidInputError)


@contextmanager
def repository_errors(address: str) -> Iterator[None]:
    """Turn errors of Icechunk into gridref's own, which name the repository."""
    try:
        yield
    except icechunk.IcechunkError as error:
        # The place in Icechunk's code is left out.
        message, place = str(error).strip().partition("\n")[0], Place(source=address)
        if isinstance(error, _DAMAGED):
            raise SourceFormatError(message, place) from error
        raise SourceUnavailableError(message, place) from error


def open_repository(
    address: str, storage_options: Mapping[str, Any] | None = None
) -> icechunk.Repository:
    """Open a repository, with access to virtual chunks by `storage_options`."""
    with repository_errors(address):
        storage = repository_storage(address, storage_options)
        config = icechunk.Repository.fetch_config(storage)
        config = config or icechunk.RepositoryConfig.default()
        known = config.virtual_chunk_containers or {}
        prefixes = [container.url_prefix for container in known.values()]
        containers, authorised = chunk_access(prefixes, storage_options)
        for container in containers:
            config.set_virtual_chunk_container(container)
        return icechunk.Repository.open(storage, config, authorize_virtual_chunk_access=authorised)


def open_session(
    address: str,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> icechunk.Session:
    """Open a snapshot of a repository for reading; by default that of the branch ``main``."""
    repository = open_repository(address, storage_options)
    if branch is None and tag is None and snapshot is None:
        branch = "main"
    with repository_errors(address):
        return repository.readonly_session(branch=branch, tag=tag, snapshot_id=snapshot)


# A snapshot as a virtual group

_DOCUMENT = "zarr.json"
_CHANGED = "virtual-chunk-modified"
_VIRTUAL, _INLINE = 2, 3
"""How Icechunk numbers the kinds of chunks; the third kind, 1, are native ones."""
_AT_A_TIME = 64
"""Files that are checked for changes at a time."""

type Held = bytes | Reference


def scan(location: Location, options: ScanOptions) -> VirtualGroup:
    """Describe the newest snapshot of the branch ``main``.

    Raises
    ------
    SourceFormatError
        If the repository is damaged, or holds nothing.
    SourceChangedError
        If a file changed since it was referenced.
    SourceNotAllowedError
        If references name files that they may not read.
    UnsupportedFeatureError
        As for Zarr stores.
    """
    session = open_session(location.url, storage_options=options.storage_options)
    return scan_session(session, location.url, options)


def scan_session(
    session: icechunk.Session, address: str | None, options: ScanOptions
) -> VirtualGroup:
    """Describe the arrays of a session.

    Parameters
    ----------
    session
        It may be writable: uncommitted changes are included.
    address
        Address of its repository: native chunks are referenced in there. None if it is unknown:
        then they are read and kept, up to ``options.max_inline_bytes`` for each array.

    Raises
    ------
    SourceChangedError
        If a file changed since it was referenced.
    SourceFormatError
        If the session is empty or invalid.
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
        # First by gridref's client, which refuses redirects that are not allowed.
        group = scan_references(shown, references, options)
        sync(_check_unchanged(session.store, allowed))
    return group


class _Collected:
    """The content of each key of a store, and a key of each file that is referenced."""

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
        """Take a group with all its members, or an array."""
        key = path_in(path, _DOCUMENT)
        data = await self.get(key)
        if data is None:
            return
        document: Mapping[str, Any] = json.loads(data)
        self.references[key] = data
        if document["node_type"] == "array":
            await self.array(path, document)
            return
        names = [name async for name in self.store.list_dir(path) if name != _DOCUMENT]
        for name in sorted(names):
            await self.node(path_in(path, name))

    async def array(self, path: str, document: Mapping[str, Any]) -> None:
        """Take the chunks of an array."""
        n_kept = 0
        async for batch in self.store.array_chunk_iterator(path):
            columns = [column.tolist() for column in (batch[0], batch[1], batch[3], batch[4])]
            rows = zip(batch[2], *columns, strict=True)
            for number, (where, coords, kind, offset, length) in enumerate(rows):
                key = path_in(path, "/".join(["c", *map(str, coords[: len(document["shape"])])]))
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
                "its native chunks are too large to be kept, and the address of the repository is "
                "unknown: pass the address of the repository instead of the opened session",
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

    A file that cannot be reached is no error here: reading it raises one.
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
                        Place(source=address_of(location)),
                    ) from error

    await asyncio.gather(*(check(location, key) for location, key in virtual.items()))


# Addresses and credentials


_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "http": "http", "https": "https"}

StorageOptions = Mapping[str, Any] | None


def location_of(url: str) -> str:
    """The address of a file, as virtual references have it: percent-encoded."""
    reason = why_no_location(url)
    if reason is not None:
        raise NotRepresentableError(reason, Place(source=url))
    if is_local(url):
        return f"file://{quote(url)}"
    scheme, _, rest = url.partition("://")
    return url if scheme.startswith("http") else f"{_SCHEMES[scheme]}://{quote(rest)}"


def why_no_location(url: str) -> str | None:
    """Why Icechunk cannot reach an address; None if it can."""
    if is_local(url):
        return None
    scheme = url.partition("://")[0]
    if scheme not in _SCHEMES:
        return f"Icechunk does not read files of {scheme.partition('::')[0]}"
    if scheme.startswith("http") and "?" in url:
        return "its address has a query, which Icechunk leaves out"
    return None


def address_of(location: str) -> str:
    """The address in gridref of the location of a virtual reference."""
    scheme, _, rest = location.partition("://")
    if scheme == "file":
        return unquote(rest)
    return location if scheme.startswith("http") else f"{scheme}://{unquote(rest)}"


def repository_storage(address: str, storage_options: StorageOptions = None) -> icechunk.Storage:
    """The storage of a repository at an address."""
    url = absolute_url(address)
    if is_local(url):
        return icechunk.local_filesystem_storage(url)
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.strip("/").partition("/")
    options = settled_options(url, storage_options)
    match _SCHEMES.get(scheme):
        case "s3":
            return icechunk.s3_storage(
                bucket=bucket, prefix=prefix, **_s3_server(options), **_s3_keys(options)
            )
        case "gs":
            anonymous = options.get("token") == "anon"
            return icechunk.gcs_storage(
                bucket=bucket, prefix=prefix, anonymous=anonymous, from_env=not anonymous
            )
        case "http" | "https":
            return icechunk.http_storage(url)
    raise InvalidRequestError(f"there are no Icechunk repositories on {scheme}", Place(source=url))


def chunk_access(
    prefixes: Iterable[str], storage_options: StorageOptions = None
) -> tuple[list[icechunk.VirtualChunkContainer], dict[str, Any]]:
    """Containers of virtual chunks below some locations, and the credentials for them.

    The options decide from where they are read, never the repository: credentials are not sent to
    servers that others chose.
    """
    containers, authorised = [], {}
    for prefix in prefixes:
        store, credential = _store_of(prefix, settled_options(address_of(prefix), storage_options))
        containers.append(icechunk.VirtualChunkContainer(prefix, store))
        authorised[prefix] = credential
    return containers, credentials.containers_credentials(authorised)


def _store_of(prefix: str, options: Mapping[str, Any]) -> tuple[Any, Any]:
    scheme = prefix.partition("://")[0]
    if scheme == "file":
        store = icechunk.local_filesystem_store(address_of(prefix))
        return store, credentials.Credentials.LocalFileSystemAccess()
    if scheme == "s3":
        server = _s3_server(options)
        return icechunk.s3_store(
            **server,
            anonymous=bool(options.get("anon")),
            s3_compatible=bool(server["endpoint_url"]),
        ), icechunk.s3_credentials(**_s3_keys(options))
    if scheme == "gs":
        anonymous = options.get("token") == "anon"
        return icechunk.gcs_store(), icechunk.gcs_credentials(
            anonymous=anonymous, from_env=not anonymous
        )
    return icechunk.http_store(), credentials.Credentials.HttpAccess()


def _s3_server(options: Mapping[str, Any]) -> dict[str, Any]:
    client = options.get("client_kwargs") or {}
    endpoint = options.get("endpoint_url") or client.get("endpoint_url")
    return {
        "region": client.get("region_name"),
        "endpoint_url": endpoint,
        "allow_http": str(endpoint).startswith("http://"),
        "force_path_style": endpoint is not None,
        "requester_pays": bool(options.get("requester_pays")),
    }


def _s3_keys(options: Mapping[str, Any]) -> dict[str, Any]:
    if options.get("anon"):
        return {"anonymous": True}
    if options.get("key") is None:
        return {"from_env": True}
    return {
        "access_key_id": options["key"],
        "secret_access_key": options.get("secret"),
        "session_token": options.get("token"),
    }
