"""Icechunk sessions to write into: opened, given access to the sources, and committed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import icechunk
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from gridref.errors import InvalidRequestError, ReadOnlyError
from gridref.formats.icechunk.access import chunk_access, location_of, repository_storage
from gridref.formats.icechunk.repository import repository_errors
from gridref.io import absolute_url, is_local
from gridref.model.source_policy import common_folders

__all__ = ["Destination", "get_document", "has_content", "put_all", "put_document", "session_for"]

type Destination = icechunk.Session | icechunk.Repository | str | os.PathLike[str]
"""A writable session; a repository; or the address of one, which is made if there is none."""


@contextmanager
def session_for(
    destination: Destination,
    urls: Iterable[str],
    *,
    branch: str,
    message: str,
    storage_options: Mapping[str, Any] | None,
) -> Iterator[_Writing]:
    """A session that can hold references to some files; its changes are committed at the end.

    Those of a session that was handed over are left to whoever handed it over. A repository that
    was made here is taken away again if something fails.

    Raises
    ------
    InvalidRequestError
        If a session's repository has no virtual chunk containers for the files.
    ReadOnlyError
        If a session cannot be written to.
    """
    prefixes = [location_of(f"{folder.rstrip('/')}/") for folder in common_folders(urls)]
    if isinstance(destination, icechunk.Session):
        yield _Writing(_checked(destination, prefixes))
        return
    made = None
    if isinstance(destination, icechunk.Repository):
        repository = _with_access(destination, prefixes, storage_options)
        shown = "icechunk"
    else:
        shown = absolute_url(destination)
        with repository_errors(shown):
            repository, is_new = _opened(shown, prefixes, storage_options)
        made = shown if is_new and is_local(shown) else None
    try:
        with repository_errors(shown):
            writing = _Writing(repository.writable_session(branch))
            yield writing
            writing.snapshot = writing.session.commit(message)
    except BaseException:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        raise


@dataclass
class _Writing:
    """A session that is written to, and the snapshot that it became."""

    session: icechunk.Session
    snapshot: str | None = None


def _checked(session: icechunk.Session, prefixes: Sequence[str]) -> icechunk.Session:
    if session.read_only:
        raise ReadOnlyError("the session is read-only: open repository.writable_session(branch)")
    missing = _uncovered(session.config, prefixes)
    if missing:
        raise InvalidRequestError(
            f"the repository has no virtual chunk containers for {', '.join(missing)}: hand over"
            " the repository or its address in place of a session, and they are set up"
        )
    return session


def _uncovered(config: icechunk.RepositoryConfig, prefixes: Sequence[str]) -> list[str]:
    known = tuple(_prefixes(config))
    return [prefix for prefix in prefixes if not prefix.startswith(known)]


def _prefixes(config: icechunk.RepositoryConfig) -> list[str]:
    return [c.url_prefix for c in (config.virtual_chunk_containers or {}).values()]


def _with_access(
    repository: icechunk.Repository,
    prefixes: Sequence[str],
    storage_options: Mapping[str, Any] | None,
) -> icechunk.Repository:
    """The repository, authorised to read in its containers, and with one for each prefix."""
    config = repository.config
    missing = _uncovered(config, prefixes)
    containers, _ = chunk_access(missing, storage_options)
    for container in containers:
        config.set_virtual_chunk_container(container)
    _, authorised = chunk_access(_prefixes(config), storage_options)
    opened = repository.reopen(config, authorize_virtual_chunk_access=authorised)
    if missing:
        opened.save_config()
    return opened


def _opened(
    url: str, prefixes: Sequence[str], storage_options: Mapping[str, Any] | None
) -> tuple[icechunk.Repository, bool]:
    """The repository at an address, and whether it was made."""
    storage = repository_storage(url, storage_options)
    is_new = not icechunk.Repository.exists(storage)
    if is_new:
        if is_local(url) and os.path.exists(url) and (not os.path.isdir(url) or os.listdir(url)):
            raise InvalidRequestError(f"{url} is there, and is no repository: it is left alone")
        repository = icechunk.Repository.create(storage)
    else:
        repository = icechunk.Repository.open(storage)
    return _with_access(repository, prefixes, storage_options), is_new


def has_content(store: icechunk.IcechunkStore) -> bool:
    """Whether there are groups or arrays below the root."""

    async def any_below() -> bool:
        return any([name != "zarr.json" async for name in store.list_dir("")])

    return bool(sync(any_below()))


def get_document(store: icechunk.IcechunkStore, path: str) -> dict[str, Any] | None:
    """The ``zarr.json`` at a path."""
    buffer = sync(store.get(_document_key(path), default_buffer_prototype()))
    return None if buffer is None else dict(json.loads(buffer.to_bytes()))


def put_document(store: icechunk.IcechunkStore, path: str, document: Mapping[str, Any]) -> None:
    """Write the ``zarr.json`` at a path."""
    put_all(store, {_document_key(path): json.dumps(document, allow_nan=False).encode()})


def put_all(store: icechunk.IcechunkStore, values: Mapping[str, bytes]) -> None:
    """Write values of keys, several at a time."""
    buffer = default_buffer_prototype().buffer

    async def put() -> None:
        await asyncio.gather(
            *(store.set(key, buffer.from_bytes(value)) for key, value in values.items())
        )

    sync(put())


def _document_key(path: str) -> str:
    return f"{path}/zarr.json" if path else "zarr.json"
