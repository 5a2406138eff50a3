"""Which sources a server may touch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from gridref.errors import GridrefError, Place, SourceUnavailableError
from gridref.io import Buffer, SourcePool, absolute_url, is_local
from gridref.model.manifest import Source

__all__ = ["AllowedSources", "folders_of", "public_text", "without_secrets"]

_SECRETS = re.compile(r"(?<=://)[^/@\s]*@|(?<=\w)\?[^\s,\]]+")

_FOLDERS = re.compile(r"(?:file://|(?<![\w/:.]))/(?:[^/\s'\"]+/)+")
"""The folders of an absolute path, and not those of a URL."""


def folders_of(sources: Iterable[Source]) -> frozenset[str]:
    """The folders that sources lie in: what a catalog was built from.

    A source in the root folder stands for itself: below the root lies everything.
    """
    addresses = [_resolved(source.url) for source in sources]
    return frozenset(address.rpartition("/")[0] or address for address in addresses)


def _resolved(url: str) -> str:
    """The address that is really read: symbolic links and ``..`` lead nowhere else."""
    address = absolute_url(url)
    return os.path.realpath(address) if is_local(address) else address


def _climbs(url: str) -> bool:
    return ".." in url.replace("%2e", ".").replace("%2E", ".").split("/")


def without_secrets(text: str) -> str:
    """A message without the credentials and query strings of the URLs in it."""
    return _SECRETS.sub("", text)


def public_text(error: Exception) -> str:
    """What a stranger may read of an error: no credentials, and no folders of this machine."""
    text = str(error)
    source = error.place.source if isinstance(error, GridrefError) else None
    for path in (source, getattr(error, "filename", None)):
        if isinstance(path, str) and is_local(absolute_url(path)):
            local = path.removeprefix("file://")
            text = text.replace(path, local).replace(local, local.rpartition("/")[2])
    return _FOLDERS.sub("", without_secrets(text))


class AllowedSources:
    """Reads ranges of sources below allowed prefixes only.

    Parameters
    ----------
    pool
        What reads.
    prefixes
        Folders, or single files; a source must be one, or lie in or below one. A prefix is a whole
        number of path components: ``/data`` does not allow ``/database``.
    """

    def __init__(self, pool: SourcePool, prefixes: Iterable[str]) -> None:
        self.pool = pool
        resolved = [_resolved(prefix).rstrip("/") for prefix in prefixes]
        self._prefixes = tuple(f"{prefix}/" for prefix in resolved)
        self._files = frozenset(resolved)
        self._allowed: set[str] = set()

    def read_ranges(
        self, source: Source, offsets: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> Sequence[Buffer]:
        """As the pool does.

        Raises
        ------
        SourceUnavailableError
            Also for a source that is not allowed; it is not touched.
        """
        self._require(source.url)
        return self.pool.read_ranges(source, offsets, lengths)

    def at_hand(self, source: Source, offset: int, length: int) -> Buffer | None:
        """As the pool does, for allowed sources only."""
        self._require(source.url)
        return self.pool.at_hand(source, offset, length)

    def read_into(self, source: Source, offset: int, buffer: memoryview) -> bool:
        """As the pool does, for allowed sources only."""
        self._require(source.url)
        return self.pool.read_into(source, offset, buffer)

    def _require(self, url: str) -> None:
        """Refuse a source that is not allowed."""
        if url in self._allowed:
            return
        self._check(url)
        if not is_local(url):  # symbolic links may change: a local file is looked at each time
            self._allowed.add(url)

    def _check(self, url: str) -> None:
        resolved = _resolved(url)
        remote = not is_local(absolute_url(url))
        if (remote and _climbs(resolved)) or not (
            resolved in self._files or resolved.startswith(self._prefixes)
        ):
            raise SourceUnavailableError(
                "this server does not read from there: see --allow-source", Place(source=url)
            )
