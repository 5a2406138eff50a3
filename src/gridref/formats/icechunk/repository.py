"""Icechunk repositories opened to read, and what goes wrong with them as errors of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import icechunk

from gridref.errors import Place, SourceFormatError, SourceUnavailableError
from gridref.formats.icechunk.access import chunk_access, repository_storage

__all__ = ["open_repository", "open_session", "repository_errors"]

_DAMAGED = (icechunk.FormatError, icechunk.InvalidInputError)


@contextmanager
def repository_errors(address: str) -> Iterator[None]:
    """Errors of Icechunk become errors of ours, which name the repository."""
    try:
        yield
    except icechunk.IcechunkError as error:
        # Where in Icechunk's code it came about is left out.
        message, place = str(error).strip().partition("\n")[0], Place(source=address)
        if isinstance(error, _DAMAGED):
            raise SourceFormatError(message, place) from error
        raise SourceUnavailableError(message, place) from error


def open_repository(
    address: str, storage_options: Mapping[str, Any] | None = None
) -> icechunk.Repository:
    """A repository whose virtual chunks can be read where `storage_options` do.

    Raises
    ------
    SourceFormatError, SourceUnavailableError
        If there is none, or it cannot be read.
    """
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
    """A snapshot of a repository, to read; that of the branch ``main`` by default.

    Raises
    ------
    SourceFormatError, SourceUnavailableError
        If there is no such repository or snapshot, or it cannot be read.
    """
    repository = open_repository(address, storage_options)
    if branch is None and tag is None and snapshot is None:
        branch = "main"
    with repository_errors(address):
        return repository.readonly_session(branch=branch, tag=tag, snapshot_id=snapshot)
