"""Where `gridref.copy` writes: a folder of Zarr objects, or an Icechunk repository.

A target notes what is being copied until all is done, so that the same call goes on where an
earlier one was killed, and another copy is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gridref.api.rewriting.writer import DRAFTS, Sink, own_folder, sink_at
from gridref.catalog.folder import open_folder
from gridref.errors import InvalidRequestError, Place
from gridref.io import is_local, refuse_names_alike

type Documents = Sequence[tuple[str, bytes]]
"""Names of the metadata objects and their content, that of the root last."""


class Target(Protocol):
    """A place that a copy is written to."""

    @property
    def is_streamed(self) -> bool:
        """Whether objects are written piece by piece; else each is in memory as a whole."""
        ...

    @property
    def is_near(self) -> bool:
        """Whether intermediate files are in it: where it can be reached, they can."""
        ...

    @property
    def sink(self) -> Sink:
        """Where objects go, once the copy was begun."""
        ...

    def begin(self, digest: str, documents: Documents) -> bool:
        """Note what is copied, or find the same note; returns whether all objects are there.

        Raises
        ------
        InvalidRequestError
            If the target holds something else.
        """
        ...

    def spill_folder(self, digest: str) -> str:
        """Local folder for intermediate files: the same one in every call for a copy."""
        ...

    def keep(self, path: str) -> None:
        """All objects of an array are there: keep them, whatever happens."""
        ...

    def finish(self, documents: Documents) -> None:
        """All objects are there: let readers open the copy."""
        ...

    def close(self) -> None:
        """Remove what only an unfinished copy needs, the note last."""
        ...


def holds_something(url: str) -> InvalidRequestError:
    """The error for a target with content."""
    return InvalidRequestError(
        "the target is not empty: remove it, or copy to another address",
        Place(source=url),
    )


def holds_another(url: str) -> InvalidRequestError:
    """The error for a target with another copy that is not finished."""
    return InvalidRequestError(
        "the target holds an unfinished copy of another source, or one made with other options: "
        "remove it, or copy to another address",
        Place(source=url),
    )


class FolderTarget:
    """A folder, local or remote.

    The metadata of the root come last, so nobody opens half a copy.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        self._url, self._options = url, storage_options
        self.sink = sink_at(url, storage_options)

    @property
    def is_streamed(self) -> bool:
        return self.sink.is_streamed

    @property
    def is_near(self) -> bool:
        return is_local(self._url)

    def begin(self, digest: str, documents: Documents) -> bool:
        note = json.dumps({"gridref_copy": 1, "digest": digest}).encode()
        held = self.sink.tail(_NOTE, len(note) + 1)
        if held is None:
            if {*open_folder(self._url, self._options).names()} - {DRAFTS}:
                raise holds_something(self._url)
            if is_local(self._url):
                refuse_names_alike((name for name, _ in documents), self._url)
            if not self.sink.put(_NOTE, [note]):  # another process was first
                held = self.sink.tail(_NOTE, len(note) + 1)
        if held not in (None, (len(note), note)):
            raise holds_another(self._url)
        root, _ = documents[-1]
        return self.sink.tail(root, 0) is not None

    def spill_folder(self, digest: str) -> str:
        if not self.is_near:
            return own_folder(digest[:16])
        return os.path.join(self._url, DRAFTS, spill_name(digest))

    def keep(self, path: str) -> None:
        """Nothing: an object that is there stays."""

    def finish(self, documents: Documents) -> None:
        for name, content in documents:
            self.sink.put(name, [content])

    def close(self) -> None:
        self.sink.clean()
        self.sink.remove(_NOTE)


def spill_name(digest: str) -> str:
    """The name of the folder for intermediate files, in a folder that others use, too."""
    return f"gridref-spill-{digest[:16]}"


_NOTE = ".gridref-copy.json"
"""It goes last: while it is there, the same call goes on."""
