"""Keep the results of scans in a folder: the next run scans only files that are new.

There is one file for each scanned file, written whole or not at all. It begins with a line that has
the version of gridref and a checksum. A file that cannot be read, or has another version, is
ignored. The rest of it is a pickle that may contain only the classes of gridref's model.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
import tempfile
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, override

from gridref.errors import GridrefError, InvalidRequestError, Message, Option
from gridref.formats import ScanOptions
from gridref.io import absolute_url, describe_source
from gridref.limits import limits
from gridref.model.array import VirtualGroup
from gridref.model.manifest import Source
from gridref.options import option_values
from gridref.secrets import shown_address

_HEADER = f"gridref scan 1 {version('gridref')}\n".encode()
_DIGEST_BYTES = 16
_FROM_NUMPY = {
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.dtypes": {"StringDType"},
}


_WORTH_SECONDS = 0.02
"""Scans that take less are not kept in the user's folder: they cost no more than looking there."""
_MOST_BYTES = 2**30
_FOLDERS = 256
"""Folders that results are spread over: each holds its share of what the user's may hold."""


def user_folder() -> str | None:
    """The folder in the user's cache folder for results of scans; None if it cannot be written."""
    if sys.platform == "win32":
        above = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        above = os.path.expanduser("~/Library/Caches")
    else:
        above = os.environ.get("XDG_CACHE_HOME", "") or os.path.expanduser("~/.cache")
    folder = os.path.join(above, "gridref", "scans")
    if not os.path.isabs(folder):
        return None
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


@dataclass(frozen=True)
class KeptScans:
    """Results of scans in a folder. Several processes may use it at a time.

    Parameters
    ----------
    folder
        A local folder; it is made where there is none.
    options
        How the files are scanned: results of other options are others.

    Raises
    ------
    InvalidRequestError
        If the folder cannot be made.
    """

    folder: str
    options: ScanOptions

    def __post_init__(self) -> None:
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as error:
            raise InvalidRequestError(
                Message(Option("work", self.folder), f" is not a folder: {error}")
            ) from error

    @cached_property
    def is_users(self) -> bool:
        """Whether it is the folder that is used unasked, whose size is bounded."""
        return self.folder == user_folder()

    def get(self, address: str) -> VirtualGroup | None:
        """The result of a scan of the file's present version; None if unknown."""
        if self.options.parser is not None:  # what it reads, and its settings, are its own affair
            return None
        try:
            kept = _unpacked(self._path(address).read_bytes())
            if kept is None:
                return None
            source, group = kept
            if source != describe_source(address, self.options.storage_options):
                return None
        except (OSError, GridrefError):
            return None
        with suppress(OSError):
            os.utime(self._path(address))
        return group.with_changes(report=replace(group.report, n_requests=0, n_bytes=0))

    def may_have(self, address: str) -> bool:
        """Whether a scan of the file has been kept, when it was perhaps another one."""
        return self._path(address).exists()

    def put(
        self,
        address: str,
        opened: dict[str, Source | None],
        group: VirtualGroup,
        seconds: float = 0.0,
    ) -> None:
        """Keep the result of a scan, if it depends on the file alone and its address has no secret.

        Parameters
        ----------
        opened
            The files that the scan opened, or looked for.
        group
            What it found.
        seconds
            How long it took.

        Raises
        ------
        InvalidRequestError
            If it cannot be written, as when the disk is full: that is no fault of the file's, and
            ends the job.
        """
        if self.is_users and seconds < _WORTH_SECONDS:
            return
        url = absolute_url(address)
        source = opened.get(url)
        if source is None or len(opened) > 1 or (source.etag is None and source.mtime_ns is None):
            return
        if shown_address(url) != url or self.options.parser is not None:
            return
        path = self._path(address)
        try:
            path.parent.mkdir(exist_ok=True)
            _write(path, _packed(source, group))
            if self.is_users:
                _make_room(path.parent, _MOST_BYTES // _FOLDERS)
        except OSError as error:
            if self.is_users:
                return  # nobody asked for it
            raise InvalidRequestError(
                Message(
                    Option("work", self.folder),
                    f": cannot write scan results to this folder: {error.strerror}. Make room, or "
                    "name another folder; files whose results were kept are not scanned again",
                )
            ) from error

    def _path(self, address: str) -> Path:
        settings = {k: v for k, v in option_values(self.options).items() if k != "storage_options"}
        name = repr((absolute_url(address), sorted(settings.items(), key=repr), limits()))
        digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=20)
        text = digest.hexdigest()
        return Path(self.folder, text[:2], text[2:])


def _make_room(folder: Path, most_bytes: int) -> None:
    """Remove the results of a folder that are longest unused, until it holds at most so much."""
    with os.scandir(folder) as entries:
        held = [(entry.stat(), entry.path) for entry in entries]
    n_bytes = sum(stat.st_size for stat, _ in held)
    for stat, path in sorted(held, key=lambda own: own[0].st_mtime_ns):
        if n_bytes <= most_bytes:
            return
        with suppress(FileNotFoundError):  # another process did
            os.unlink(path)
        n_bytes -= stat.st_size


def _write(path: Path, content: bytes) -> None:
    """Put a file in its place all at once; of one that fails nothing stays."""
    temporary = tempfile.NamedTemporaryFile(dir=path.parent, delete=False)  # noqa: SIM115
    try:
        with temporary as file:
            file.write(content)
        os.replace(temporary.name, path)
    except BaseException:
        os.unlink(temporary.name)
        raise


def _packed(source: Source, group: VirtualGroup) -> bytes:
    body = zlib.compress(pickle.dumps((source, group), protocol=5), 1)
    return _HEADER + hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() + body


def _unpacked(data: bytes) -> tuple[Source, VirtualGroup] | None:
    start = len(_HEADER) + _DIGEST_BYTES
    body = data[start:]
    digest = hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()
    if data[:start] != _HEADER + digest:
        return None
    try:
        source, group = _Unpickler(io.BytesIO(zlib.decompress(body))).load()
    except Exception:  # noqa: BLE001 - whatever is wrong with it, the file is scanned again
        return None
    return (source, group) if type(source) is Source and type(group) is VirtualGroup else None


_MESSAGES = {"gridref.errors": ("Message", "Option")}
"""Reports of scans hold messages, which are not of the model."""


class _Unpickler(pickle.Unpickler):
    """Makes values of gridref's model, messages and numpy, and calls nothing else."""

    @override
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if global_name in {**_FROM_NUMPY, **_MESSAGES}.get(module_name, ()):
            return super().find_class(module_name, global_name)
        if module_name.startswith("gridref.model.") and "." not in global_name:
            found = super().find_class(module_name, global_name)
            if getattr(found, "__module__", "") == module_name:
                return found
        raise pickle.UnpicklingError(f"{module_name}.{global_name}")
