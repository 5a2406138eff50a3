"""Files of a volume on the local disk, for original readers that open nothing else.

`verify` comes from a chunk's file, and looks for the volume around it. Of a volume on a server, it
copies the metadata and that file: to the original reader, all other chunks are absent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gridref.errors import SourceUnavailableError
from gridref.io import is_absent, is_local, open_for_scan
from gridref.model.source_policy import SourcePolicy

_MOST_LEVELS = 32


class VolumeFiles:
    """The folders around a file.

    Parameters
    ----------
    url
        Absolute address of the file of a chunk, or of several.
    storage_options
        fsspec options.
    policy
        Decides what may be opened.
    """

    def __init__(
        self,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        policy: SourcePolicy | None = None,
    ) -> None:
        self.url = url
        self._storage_options = storage_options
        self._policy = policy
        self._copy: TemporaryDirectory[str] | None = None

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.url.rpartition("/")[2]

    def folders(self) -> Iterator[tuple[str, str]]:
        """Each folder around the file, from the next one on, and the file's key in it."""
        folder = self.url
        for _ in range(_MOST_LEVELS):
            folder, slash, _ = folder.rpartition("/")
            if not slash or folder.endswith("/"):
                return
            yield folder, self.url[len(folder) + 1 :]

    def get(self, url: str) -> bytes | None:
        """All of a file; None where there is none."""
        try:
            with open_for_scan(url, self._storage_options, policy=self._policy) as file:
                return bytes(file.read_many([0], [file.size])[0]) if file.size else b""
        except SourceUnavailableError as error:
            if is_absent(error) or isinstance(error.__cause__, IsADirectoryError):
                return None
            raise

    def local(self, folder: str, metadata: Mapping[str, bytes]) -> str:
        """A path at which a folder can be opened.

        Parameters
        ----------
        folder
            One of those around the file.
        metadata
            Files of it that belong in a copy, beside the file itself.
        """
        if is_local(folder):
            return folder
        self._copy = TemporaryDirectory()
        key = self.url[len(folder) + 1 :]
        for name, data in {**metadata, key: self.get(self.url) or b""}.items():
            path = Path(self._copy.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return os.path.realpath(self._copy.name)

    def close(self) -> None:
        """Delete copies."""
        if self._copy is not None:
            self._copy.cleanup()
