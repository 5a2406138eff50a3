"""An Icechunk repository as the target of `gridref.copy`: real chunks, through its sessions.

The copy grows on a branch of its own, with a commit for each array. Once all are there, the branch
``main`` is moved to it. A copy that was killed goes on behind the last commit of its branch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import icechunk
from zarr.abc.store import SuffixByteRequest
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync

import gridref.formats.icechunk  # noqa: F401 - quiets icechunk
from gridref.api.copy_targets import Documents, holds_another, holds_something
from gridref.api.rewriting.writer import own_folder
from gridref.errors import InvalidRequestError, Place
from gridref.formats.icechunk.access import repository_storage
from gridref.formats.icechunk.session import repository_errors
from gridref.io import is_local

_MAIN = "main"
_PREFIX = "gridref-copy-"
"""Branches of copies that are not finished begin with it."""


class SessionSink:
    """The objects of a session that is written to. Safe for threads."""

    def __init__(self, url: str, session: icechunk.Session) -> None:
        self._url = url
        self.session = session

    def put(self, name: str, parts: Iterable[bytes]) -> bool:
        with self._told():
            if self.tail(name, 0) is not None:
                return False
            content = default_buffer_prototype().buffer.from_bytes(b"".join(parts))
            sync(self.session.store.set(name, content))
            return True

    def tail(self, name: str, n_bytes: int) -> tuple[int, bytes] | None:
        store = self.session.store
        with self._told():
            if not sync(store.exists(name)):
                return None
            size = int(sync(store.getsize(name)))
            if not n_bytes:
                return size, b""
            asked = SuffixByteRequest(min(n_bytes, size))
            held = sync(store.get(name, default_buffer_prototype(), asked))
            return None if held is None else (size, held.to_bytes())

    def remove(self, name: str) -> None:
        with self._told():
            sync(self.session.store.delete(name))

    @contextmanager
    def _told(self) -> Iterator[None]:
        with repository_errors(self._url):
            yield


class IcechunkTarget:
    """A repository, which is made if there is none."""

    is_streamed = False
    is_shared = False
    sink: SessionSink

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        self._url, self._options = url, storage_options
        self._branch = ""

    def begin(self, digest: str, documents: Documents) -> bool:
        self._branch = f"{_PREFIX}{digest[:16]}"
        with repository_errors(self._url):
            self._repository = self._opened()
            branches = self._repository.list_branches()
            if self._branch not in branches:
                if any(branch.startswith(_PREFIX) for branch in branches):
                    raise holds_another(self._url)
                if not self._is_empty():
                    raise holds_something(self._url)
                self._repository.create_branch(self._branch, self._repository.lookup_branch(_MAIN))
            self.sink = SessionSink(self._url, self._repository.writable_session(self._branch))
        for name, content in reversed(documents):  # Icechunk takes chunks of arrays that are there
            document = json.loads(content)
            document.pop("consolidated_metadata", None)  # snapshots are that
            self.sink.put(name, [json.dumps(document, allow_nan=False).encode()])
        self._commit("begun")
        return False

    def spill_folder(self, digest: str) -> str:
        return own_folder(digest[:16])

    def keep(self, path: str) -> None:
        self._commit(path)

    def finish(self, documents: Documents) -> None:
        with repository_errors(self._url):
            main = self._repository.lookup_branch(_MAIN)
            done = self._repository.lookup_branch(self._branch)
            if main == done:
                return
            if not self._is_empty():
                raise InvalidRequestError(
                    f"somebody wrote into the repository while it was copied: the copy is on the"
                    f" branch {self._branch}",
                    Place(source=self._url),
                )
            self._repository.reset_branch(_MAIN, done, from_snapshot_id=main)

    def close(self) -> None:
        with repository_errors(self._url):
            self._repository.delete_branch(self._branch)

    def _opened(self) -> icechunk.Repository:
        storage = repository_storage(self._url, self._options)
        if icechunk.Repository.exists(storage):
            return icechunk.Repository.open(storage)
        is_taken = is_local(self._url) and os.path.exists(self._url)
        if is_taken and not (os.path.isdir(self._url) and not os.listdir(self._url)):
            raise holds_something(self._url)
        return icechunk.Repository.create(storage)

    def _is_empty(self) -> bool:
        """Whether there is nothing on the branch that readers open."""
        store = self._repository.readonly_session(branch=_MAIN).store

        async def any_below() -> bool:
            return any([name != "zarr.json" async for name in store.list_dir("")])

        return not sync(any_below())

    def _commit(self, what: str) -> None:
        """Keep what was written; the sink goes on with a new session."""
        with repository_errors(self._url):
            if self.sink.session.has_uncommitted_changes:
                self.sink.session.commit(f"gridref copy: {what}")
                self.sink.session = self._repository.writable_session(self._branch)
