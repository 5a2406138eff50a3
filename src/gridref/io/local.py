"""Local files.

`LocalFiles` reads byte ranges of files on descriptors that stay open. `AsOnAServer` reads a local
file, and counts the requests that the same reads would send to a server.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, override

from gridref.errors import InvalidRequestError, Place, SourceUnavailableError
from gridref.forks import new_lock, new_rlock
from gridref.io.address import real_path
from gridref.io.context import current_traffic, note_opened
from gridref.io.faults import opens_no_more, unavailable
from gridref.model.manifest import Source
from gridref.model.source_policy import SourcePolicy

# Positioned reads on descriptors that stay open

_NO_WAIT = getattr(os, "RWF_NOWAIT", None)
_HAS_PREAD = hasattr(os, "pread")
_moving = new_lock()
"""Held while a descriptor is moved and read, where there are no positioned reads (Windows)."""


def opening_flags(system: Any = os) -> int:
    """How files are opened, as far as the system has it: as bytes (Windows), without waiting."""
    names = ("O_BINARY", "O_CLOEXEC", "O_NOINHERIT", "O_NONBLOCK")
    return sum(getattr(system, name, 0) for name in names)


_OPENING = opening_flags()


class OpenFile:
    """An open file; it closes when nothing refers to it any more.

    A reader that holds one keeps it open even if `LocalFiles` drops it meanwhile. A descriptor is
    therefore never closed, and its number reused for another file, during a read.

    Raises
    ------
    SourceUnavailableError
        If the path cannot be opened, or is not a file: a directory, pipe, socket or device.
    SourceNotAllowedError
        If a policy does not allow it; symbolic links are followed first.
    """

    __slots__ = ("descriptor", "path")

    def __init__(self, path: str, policy: SourcePolicy | None = None) -> None:
        self.descriptor = -1
        self.path = path
        note_opened(path)
        if policy is not None:
            path = real_path(path)
            policy.require(path)
        try:
            # Examined first: opening waits for a pipe's writer, and can move a device.
            _refuse_other_than_files(path, os.stat(path).st_mode)
            follow = 0 if policy is None else getattr(os, "O_NOFOLLOW", 0)
            self.descriptor = os.open(path, os.O_RDONLY | _OPENING | follow)
            _refuse_other_than_files(path, os.fstat(self.descriptor).st_mode)
        except (OSError, ValueError) as error:  # ValueError: a NUL
            raise unavailable(path, error) from error

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def changed_ns(self) -> int:
        """Time of the last change of the file in nanoseconds, which no program can set back."""
        return os.fstat(self.descriptor).st_ctime_ns

    def describe(self) -> Source:
        """Size and modification time now."""
        status = os.fstat(self.descriptor)
        return Source(self.path, status.st_size, status.st_mtime_ns)

    def fetch(self, url: str, starts: Sequence[int], stops: Sequence[int]) -> list[bytes]:
        """The bytes of half-open ranges; fewer only where the file ends."""
        return [read_fully(self, start, stop) for start, stop in zip(starts, stops, strict=True)]


def described(path: str) -> Source:
    """Size and modification time of a file now, which is not opened.

    Raises
    ------
    SourceUnavailableError
        If it is not there, or is not a file.
    """
    try:
        status = os.stat(path)
        _refuse_other_than_files(path, status.st_mode)
    except (OSError, ValueError) as error:  # ValueError: a NUL
        raise unavailable(path, error) from error
    return Source(path, status.st_size, status.st_mtime_ns)


def _refuse_other_than_files(path: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "a pipe, socket or device, not a file", path)


def read_file(path: str) -> bytes:
    """All of a small file.

    Raises
    ------
    SourceUnavailableError
        If it cannot be opened or read, or is not a file.
    """
    file = OpenFile(path)
    return read_fully(file, 0, os.fstat(file.descriptor).st_size)


def read_fully(file: OpenFile, start: int, stop: int) -> bytes:
    """The bytes of a half-open range; fewer only where the file ends.

    Raises
    ------
    SourceUnavailableError
        If reading fails.
    """
    try:
        first = _read_at(file.descriptor, stop - start, start)
        if len(first) == stop - start or not first:
            return first
        # One call reads at most 2 GiB on Linux.
        parts = [first]
        position = start + len(first)
        while position < stop:
            part = _read_at(file.descriptor, stop - position, position)
            if not part:
                break
            parts.append(part)
            position += len(part)
        return b"".join(parts)
    except OSError as error:
        raise unavailable(file.path, error, start, stop) from error


def _read_at(descriptor: int, n_bytes: int, start: int) -> bytes:
    """Some of the bytes from `start` on; none where the file ends."""
    if _HAS_PREAD:
        return os.pread(descriptor, n_bytes, start)
    with _moving:
        os.lseek(descriptor, start, os.SEEK_SET)
        return os.read(descriptor, n_bytes)


def read_into(file: OpenFile, start: int, buffer: memoryview) -> bool:
    """Fill a buffer with the bytes from `start` on; False where the file ends before.

    Raises
    ------
    SourceUnavailableError
        If reading fails.
    """
    done = 0
    try:
        while done < len(buffer):
            n_read = os.preadv(file.descriptor, [buffer[done:]], start + done)
            if not n_read:
                return False
            done += n_read
    except OSError as error:
        raise unavailable(file.path, error, start, start + len(buffer)) from error
    return True


def read_cached(file: OpenFile, start: int, stop: int) -> memoryview | None:
    """The bytes of a half-open range if all of them are in memory; None if not, or unknown.

    It never waits for the disk: preadv2(2), ``RWF_NOWAIT`` (Linux).
    """
    if _NO_WAIT is None:
        return None
    buffer = bytearray(stop - start)
    try:
        n_read = os.preadv(file.descriptor, [buffer], start, _NO_WAIT)
    except OSError:
        return None
    return memoryview(buffer) if n_read == stop - start else None


# Filesystems that take names for one


def refuse_names_alike(names: Iterable[str], folder: str) -> None:
    """Raise where files are to be called so, and the filesystem would take two of them for one.

    Parameters
    ----------
    names
        Paths in the folder, with slashes.
    folder
        A local folder, which need not be there yet.

    Raises
    ------
    InvalidRequestError
        For two names that differ in upper and lower case alone, where that makes no difference.
    """
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.casefold(), name)
        if other != name and _ignores_case(folder):
            raise InvalidRequestError(
                f"{other!r} and {name!r} would be the same file, because the filesystem ignores "
                "upper and lower case. Write to another filesystem",
                Place(source=folder),
            )


def _ignores_case(folder: str) -> bool:
    """Whether a filesystem finds a file under its name in other cases (macOS, Windows)."""
    import tempfile

    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    with tempfile.NamedTemporaryFile(prefix="gridref-Case-", dir=folder) as file:
        return os.path.exists(os.path.join(folder, os.path.basename(file.name).swapcase()))


class LocalFiles:
    """Reads ranges of local files, keeping the last used ones open. Thread-safe.

    Parameters
    ----------
    max_open_files
        Most files that stay open.
    """

    def __init__(self, max_open_files: int = 128) -> None:
        self._max_open_files = max(1, max_open_files)
        self._files: OrderedDict[_Key, OpenFile] = OrderedDict()
        self._lock = new_rlock()  # the garbage collector may call `forget` anywhere

    def open(self, path: str, policy: SourcePolicy | None = None) -> OpenFile:
        """The open file of a path, if a policy allows it."""
        file = self.opened(path, policy)
        if file is not None:
            return file
        try:
            file = OpenFile(path, policy)
        except SourceUnavailableError as error:
            if not opens_no_more(error):
                raise
            self.close()
            file = OpenFile(path, policy)
        with self._lock:
            file = self._files.setdefault(_key(path, policy), file)
            for old in list(self._files)[: -self._max_open_files]:
                self._files.pop(old, None)
        return file

    def opened(self, path: str, policy: SourcePolicy | None = None) -> OpenFile | None:
        """The open file of a path, if it is open already and was opened under the same policy."""
        key = _key(path, policy)
        with self._lock:
            file = self._files.pop(key, None)
            if file is not None:
                self._files[key] = file
            return file

    def forget(self, path: str, policy: SourcePolicy | None = None) -> None:
        """Open the path anew the next time."""
        with self._lock:
            self._files.pop(_key(path, policy), None)

    def close(self) -> None:
        """Close all files that no read is using."""
        with self._lock:
            self._files.clear()


type _Key = str | tuple[str, SourcePolicy]


def _key(path: str, policy: SourcePolicy | None) -> _Key:
    return path if policy is None else (path, policy)


# A local file that is counted like a remote one


class AsOnAServer(OpenFile):
    """A local file that is read, and whose requests are counted, like one on a server."""

    def begin(
        self, url: str, starts: Sequence[int], stops: Sequence[int]
    ) -> tuple[Source, list[bytes]]:
        """Describe the file and read bytes of it, as `RemoteFiles.begin` does."""
        return self.describe(), self.fetch(url, starts, stops)

    @override
    def fetch(self, url: str, starts: Sequence[int], stops: Sequence[int]) -> list[bytes]:
        parts = super().fetch(url, starts, stops)
        current_traffic().add(len(parts), sum(map(len, parts)))
        return parts
