"""Where `gridref.copy` writes: a folder of Zarr objects, or an Icechunk repository.

Icechunk is in `icechunk_target`, which is imported when it is needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from gridref.api.rewriting.writer import DRAFTS, Sink, own_folder, sink_at
from gridref.catalog.folder import open_folder, write_errors_told
from gridref.errors import InvalidRequestError, Place
from gridref.io import is_local, refuse_names_alike

type Documents = Sequence[tuple[str, bytes]]
"""Names of the metadata objects and their content, that of the root last."""


class Target:
    """A place that a copy is written to.

    It notes what is being copied until all is done, so that the same call goes on where an earlier
    one was killed, and another copy is refused.

    Attributes
    ----------
    is_near
        Whether intermediate files are in it: where it can be reached, they can.
    sink
        Where objects go, once the copy was begun.
    """

    is_near = False
    is_streamed = False
    sink: Sink

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        self._url, self._options = url, storage_options

    def begin(self, digest: str, documents: Documents) -> bool:
        """Note what is copied, or find the same note; returns whether all objects are there.

        Raises
        ------
        InvalidRequestError
            If the target holds something else.
        """
        raise NotImplementedError

    def spill_folder(self, digest: str) -> str:
        """Local folder for intermediate files: the same one in every call for a copy."""
        return own_folder(digest[:16])

    def keep(self, path: str) -> None:
        """All objects of an array are there: keep them, whatever happens."""

    def finish(self, documents: Documents) -> None:
        """All objects are there: let readers open the copy."""
        raise NotImplementedError

    def close(self) -> None:
        """Remove what only an unfinished copy needs, the note last."""
        raise NotImplementedError


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


class FolderTarget(Target):
    """A folder, local or remote.

    The metadata of the root come last, so nobody opens half a copy.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        super().__init__(url, storage_options)
        self.sink = sink_at(url, storage_options)
        self.is_streamed = self.sink.is_streamed
        self.is_near = is_local(url)

    def begin(self, digest: str, documents: Documents) -> bool:
        note = json.dumps({"gridref_copy": 1, "digest": digest}).encode()
        with write_errors_told("the copy", self._url):
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
            return super().spill_folder(digest)
        return os.path.join(self._url, DRAFTS, spill_name(digest))

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
