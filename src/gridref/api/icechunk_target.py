"""An Icechunk repository as the target of `gridref.copy`: real chunks, through its sessions.

The copy grows on a branch of its own, with a commit for each array, and of a large one now and
then. Once all are there, the branch ``main`` is moved to it. A copy that was killed goes on behind
the last commit of its branch.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import icechunk
from zarr.abc.store import SuffixByteRequest
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync

import gridref.formats.icechunk  # noqa: F401 - quiets icechunk
from gridref.api.copy_targets import Documents, Target, holds_another, holds_something
from gridref.api.rewriting.writer import Sink
from gridref.errors import InvalidRequestError, Place
from gridref.formats.icechunk import repository_errors, repository_storage
from gridref.io import Buffer, is_local

_MAIN = "main"
_PREFIX = "gridref-copy-"
"""Branches of copies that are not finished begin with it."""


COMMIT_SECONDS = 30 * 60
"""After so much work there is a commit, in the middle of an array, too."""


class SessionSink(Sink):
    """The objects of a session that is written to, which each commit replaces. Safe for threads.

    What is sent to a worker is a fork of the session, which is merged when it is back. Until then
    nothing may be written here.

    Parameters
    ----------
    url
        Address of the repository.
    session
        Opens a session that can be written to.
    """

    def __init__(self, url: str, session: Callable[[], icechunk.Session]) -> None:
        self._opened: Callable[[], icechunk.Session] | None = session
        self._begin(url, session())

    def _begin(self, url: str, session: icechunk.Session) -> None:
        self._url, self.session = url, session
        self._changed = threading.Condition()
        self._n_writing = 0
        self._is_committing = False
        self._committed_at = time.monotonic()

    def __getstate__(self) -> tuple[str, icechunk.Session]:
        return self._url, self.session if self._opened is None else self.session.fork()

    def __setstate__(self, state: tuple[str, icechunk.Session]) -> None:
        self._opened = None  # forks cannot commit
        self._begin(*state)

    def merge(self, others: Sequence[Any]) -> None:
        """Take over what forks of it wrote."""
        with repository_errors(self._url):
            self.session.merge(*(each.session for each in others if each is not self))

    def put(self, name: str, parts: Iterable[Buffer]) -> bool:
        content = default_buffer_prototype().buffer.from_bytes(b"".join(map(bytes, parts)))
        with self._writing():
            if self.tail(name, 0) is not None:
                return False
            sync(self.session.store.set(name, content))
        is_due = time.monotonic() - self._committed_at >= COMMIT_SECONDS
        if is_due and self._opened is not None:
            self.commit(f"up to {name}")
        return True

    def tail(self, name: str, n_bytes: int) -> tuple[int, bytes] | None:
        store = self.session.store
        with repository_errors(self._url):
            if not sync(store.exists(name)):
                return None
            size = int(sync(store.getsize(name)))
            if not n_bytes:
                return size, b""
            asked = SuffixByteRequest(min(n_bytes, size))
            held = sync(store.get(name, default_buffer_prototype(), asked))
            return None if held is None else (size, held.to_bytes())

    def remove(self, name: str) -> None:
        with self._writing():
            sync(self.session.store.delete(name))

    def commit(self, what: str) -> None:
        """Keep what was written; nothing if another thread is about it."""
        assert self._opened is not None
        with self._changed:
            if self._is_committing:
                return
            self._is_committing = True
            self._changed.wait_for(lambda: not self._n_writing)
        try:
            with repository_errors(self._url):
                if self.session.has_uncommitted_changes:
                    self.session.commit(f"gridref copy: {what}")
                    self.session = self._opened()
        finally:
            with self._changed:
                self._committed_at = time.monotonic()
                self._is_committing = False
                self._changed.notify_all()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write while nobody commits."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_committing)
            self._n_writing += 1
        try:
            with repository_errors(self._url):
                yield
        finally:
            with self._changed:
                self._n_writing -= 1
                self._changed.notify_all()


class IcechunkTarget(Target):
    """A repository, which is made if there is none."""

    sink: SessionSink
    _branch = ""

    def begin(self, digest: str, documents: Documents) -> bool:
        self._branch = f"{_PREFIX}{digest[:16]}"
        with repository_errors(self._url):
            taken = holds_something(self._url)
            self._repository, _ = opened_or_made(self._url, self._options, taken)
            branches = self._repository.list_branches()
            if self._branch not in branches:
                if any(branch.startswith(_PREFIX) for branch in branches):
                    raise holds_another(self._url)
                if not self._is_empty():
                    raise holds_something(self._url)
                self._repository.create_branch(self._branch, self._repository.lookup_branch(_MAIN))
            opened = partial(self._repository.writable_session, self._branch)
            self.sink = SessionSink(self._url, opened)
        for name, content in reversed(documents):  # Icechunk takes chunks of arrays that are there
            document = json.loads(content)
            document.pop("consolidated_metadata", None)  # snapshots are that
            self.sink.put(name, [json.dumps(document, allow_nan=False).encode()])
        self.sink.commit("begun")
        return False

    def keep(self, path: str) -> None:
        self.sink.commit(path)

    def finish(self, documents: Documents) -> None:
        with repository_errors(self._url):
            main = self._repository.lookup_branch(_MAIN)
            done = self._repository.lookup_branch(self._branch)
            if main == done:
                return
            if not self._is_empty():
                raise InvalidRequestError(
                    "the repository changed while it was copied to, so the copy was put on the "
                    f"branch {self._branch}",
                    Place(source=self._url),
                )
            self._repository.reset_branch(_MAIN, done, from_snapshot_id=main)

    def close(self) -> None:
        with repository_errors(self._url):
            self._repository.delete_branch(self._branch)

    def _is_empty(self) -> bool:
        """Whether there is nothing on the branch that readers open."""
        return not holds_nodes(self._repository.readonly_session(branch=_MAIN).store)


def opened_or_made(
    url: str, storage_options: Mapping[str, Any] | None, taken: InvalidRequestError
) -> tuple[icechunk.Repository, bool]:
    """A repository, and whether it was made; `taken` is raised where something else is."""
    storage = repository_storage(url, storage_options)
    if icechunk.Repository.exists(storage):
        return icechunk.Repository.open(storage), False
    if is_local(url) and os.path.exists(url) and not (os.path.isdir(url) and not os.listdir(url)):
        raise taken
    return icechunk.Repository.create(storage), True


def holds_nodes(store: icechunk.IcechunkStore) -> bool:
    """Whether there are groups or arrays below the root."""

    async def any_below() -> bool:
        return any([name != "zarr.json" async for name in store.list_dir("")])

    return bool(sync(any_below()))
