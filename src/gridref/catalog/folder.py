"""The directory of a catalog: local, or on any fsspec filesystem.

`Folder` is all that writing and reading a catalog needs of it: read a file, create one, replace one
in one step, and hold a lock. `LocalFolder` and `RemoteFolder` implement it.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime
from typing import Any, Protocol, Self

from gridref.errors import (
    CatalogNotFoundError,
    GridrefError,
    InvalidRequestError,
    Place,
    SourceUnavailableError,
)
from gridref.io import (
    RetryPolicy,
    absolute_url,
    is_absent,
    is_local,
    open_filesystem,
    open_for_scan,
    read_file,
    status_of,
    within_limit,
)

# Locks on files, which the system releases when their process ends

try:
    import fcntl
except ImportError:  # Windows has none: writers are told apart by comparing only
    fcntl = None  # type: ignore[assignment]


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock of a file, which is created if necessary; wait while another holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # which ends the lock


def is_locked(path: str) -> bool:
    """Whether another process, or thread, holds the lock of a file."""
    if fcntl is None:
        return True
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


# Folders, local and remote


class WritableFile(Protocol):
    """A binary file that is being written."""

    def write(self, content: bytes, /) -> int:
        """Append bytes."""
        ...

    def close(self) -> None: ...


class TablePlace(Protocol):
    """The interface of a place for tables."""

    @property
    def url(self) -> str:
        """Address of the directory, without a slash at the end."""
        ...

    def create(self, name: str) -> WritableFile:
        """A new file to write; the directory is made first."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...


class Folder(TablePlace, Protocol):
    """The interface of a place for a catalog, to read and write it."""

    def address(self, name: str) -> str:
        """Address of a file in it."""
        ...

    def names(self) -> list[str] | None:
        """Names of what is in it; None if there is no such directory."""
        ...

    def read(self, name: str) -> bytes:
        """Content of a file. Raises CatalogNotFoundError if there is none."""
        ...

    def publish(self, name: str, content: bytes) -> None:
        """Put a file there whole, or replace it, in one step."""
        ...

    def read_version(self, name: str) -> tuple[bytes, str]:
        """Content of a file, and which version of it that is."""
        ...

    def publish_over(
        self, name: str, content: bytes, version: str, before: Mapping[str, bytes]
    ) -> str:
        """Replace a version of a file in one step, after some others; gives the new version.

        Raises OvertakenError if the file is of another version by now.
        """
        ...

    @property
    def has_locks(self) -> bool:
        """Whether files can be held."""
        ...

    def hold(self, name: str) -> AbstractContextManager[None]:
        """Hold a file, for as long as the process lives and the context lasts, then remove it."""
        ...

    def abandoned(self, name: str) -> bool:
        """Whether the process that held a file has ended; False if that is unknown."""
        ...

    def age(self, name: str) -> float | None:
        """Seconds since a file was written; None if that is not known."""
        ...

    def unmake(self) -> None:
        """Remove the folders that were made to write into this one, if nothing is in them."""
        ...


class OvertakenError(Exception):
    """A file to replace has another version: somebody else replaced it."""


def open_folder(
    url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Folder:
    """The folder at an address."""
    address = absolute_url(url)
    if is_local(address):
        return LocalFolder(address)
    return RemoteFolder(address.rstrip("/"), storage_options)


def publish_file(
    what: str, url: str, content: bytes, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Put a file at an address whole, or replace it, in one step.

    Raises
    ------
    InvalidRequestError
        Naming `what` it is, if it cannot be written.
    """
    folder, _, name = url.rpartition("/")
    with write_errors_told(what, url):
        open_folder(folder, storage_options).publish(name, content)


@contextmanager
def write_errors_told(
    what: str, url: str, kind: type[GridrefError] = InvalidRequestError
) -> Iterator[None]:
    """Turn errors of the system into one of ours: what cannot be written, where, and why."""
    try:
        yield
    except GridrefError:
        raise
    except OSError as error:
        place = Place(source=str(error.filename or url))
        raise kind(f"{what} cannot be written: {error.strerror or error}", place) from error
    except ValueError as error:  # what Python says of paths with a NUL or half of a surrogate pair
        if "null" not in str(error) and not isinstance(error, UnicodeEncodeError):
            raise
        raise kind(f"{what} cannot be written: {error} in a name", Place(source=url)) from error


class LocalFolder:
    """A local directory."""

    has_locks = True

    def __init__(self, path: str) -> None:
        self.url = path
        self._made: list[str] = []

    def address(self, name: str) -> str:
        """Address of a file in it."""
        return os.path.join(self.url, name)

    def names(self) -> list[str] | None:
        """Names of what is in it; None if there is no such directory."""
        try:
            return os.listdir(self.url)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self.url, error) from error

    def read(self, name: str) -> bytes:
        """Content of a file."""
        try:
            return read_file(self.address(name))
        except SourceUnavailableError as error:
            if is_absent(error):
                raise _not_found(self.url, name) from error
            raise

    def create(self, name: str) -> WritableFile:
        """A new file to write, which is on the disk when it has been closed."""
        self._made += _absent_folders(self.url)
        os.makedirs(self.url, exist_ok=True)
        return _DurableFile(self.address(name), "xb")

    def publish(self, name: str, content: bytes) -> None:
        """Replace a file in one step: after a crash there is the old one or the new one."""
        draft = self.address(f".{name}.{os.getpid()}.tmp")
        try:
            with _DurableFile(draft, "wb") as file:
                file.write(content)
            _sync_directory(self.url)
            os.replace(draft, self.address(name))
        except BaseException:
            _remove(draft)
            raise
        _sync_directory(self.url)

    def read_version(self, name: str) -> tuple[bytes, str]:
        """Content of a file, and a hash of it."""
        content = self.read(name)
        return content, _version_of(content)

    def publish_over(
        self, name: str, content: bytes, version: str, before: Mapping[str, bytes]
    ) -> str:
        """Replace a version of a file in one step, after some others, while nobody else does."""
        with locked(self.address(f".{name}.lock")):
            if self.read_version(name)[1] != version:
                raise OvertakenError
            for draft in self.names() or ():
                if draft.startswith(".") and draft.endswith(".tmp"):
                    self.remove(draft)  # of a process that died: others wait for the lock
            for file, held in {**before, name: content}.items():
                self.publish(file, held)
        return _version_of(content)

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Hold a file while the process lives and the context lasts, then remove it."""
        with locked(self.address(name)):
            try:
                yield
            finally:
                self.remove(name)

    def abandoned(self, name: str) -> bool:
        """Whether a file that some process held is held no more."""
        return not is_locked(self.address(name))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        _remove(self.address(name))

    def age(self, name: str) -> float | None:
        """Seconds since a file was written; None if there is none."""
        try:
            return time.time() - os.stat(self.address(name)).st_mtime
        except OSError:
            return None

    def unmake(self) -> None:
        """Remove the folders that were made to write into this one, if nothing is in them."""
        for path in self._made:
            with suppress(OSError):
                os.rmdir(path)


def _absent_folders(path: str) -> list[str]:
    """Those of a folder and the ones above it that do not exist, from the innermost outwards."""
    absent = []
    while not os.path.lexists(path):
        absent.append(path)
        path = os.path.dirname(path)
    return absent


class _DurableFile:
    """A file for writing that is flushed to the disk on closing."""

    def __init__(self, path: str, mode: str) -> None:
        self._file = open(path, mode)  # noqa: SIM115 - closed by close

    def write(self, content: bytes, /) -> int:
        return self._file.write(content)

    def close(self) -> None:
        if not self._file.closed:
            try:
                self._file.flush()
                os.fsync(self._file.fileno())
            finally:
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class RemoteFolder:
    """A folder, or a common start of keys, on an fsspec filesystem.

    Publishing is one put of one object, which object stores do in one step.
    """

    has_locks = False

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.url = url
        self._options = storage_options
        self._filesystem, self._path = open_filesystem(url, storage_options)
        self._path = self._path.rstrip("/")
        self._retry = RetryPolicy()
        self._clock_ahead: float | None = None

    def unmake(self) -> None:
        """Nothing: object stores have no folders."""

    def address(self, name: str) -> str:
        """Address of a file in it."""
        head, separator, chain = self.url.partition("::")
        return f"{head}/{name}{separator}{chain}"

    def names(self) -> list[str] | None:
        """Names of what is in it; None if there is nothing."""
        self._filesystem.invalidate_cache(self._path)
        try:
            paths = self._call(lambda: self._within_limit("ls")(self._path, detail=False))
        except SourceUnavailableError as error:
            if is_absent(error):
                return None
            raise
        return [str(path).rstrip("/").rpartition("/")[2] for path in paths]

    def read(self, name: str) -> bytes:
        """Content of a file."""
        try:
            content: bytes = self._call(lambda: self._within_limit("cat_file")(self._key(name)))
        except SourceUnavailableError as error:
            if is_absent(error):
                raise _not_found(self.url, name) from error
            raise
        return content

    def create(self, name: str) -> WritableFile:
        """A new file to write."""

        def create() -> WritableFile:
            if not self._conditional:  # S3 has no folders, and would be asked for the bucket
                self._filesystem.makedirs(self._path, exist_ok=True)
            file: WritableFile = self._filesystem.open(self._key(name), "wb")
            return file

        return self._call(create)

    def publish(self, name: str, content: bytes) -> None:
        """Put a file there in one request."""
        self._call(lambda: self._filesystem.pipe_file(self._key(name), content))

    def read_version(self, name: str) -> tuple[bytes, str]:
        """Content of a file, and its ETag; a hash of it where puts cannot be conditional."""
        if not self._conditional:
            content = self.read(name)
            return content, _version_of(content)
        try:
            with open_for_scan(self.address(name), self._options, block_bytes=_ROOT_BYTES) as file:
                return file.readall(), str(file.source.etag)
        except SourceUnavailableError as error:
            if is_absent(error):
                raise _not_found(self.url, name) from error
            raise

    def publish_over(
        self, name: str, content: bytes, version: str, before: Mapping[str, bytes]
    ) -> str:
        """Replace a version of a file in one request, on condition that it is that version.

        Filesystems without conditional puts compare just before the put: they do not notice two
        writers at the same moment.
        """
        for file, held in before.items():
            self.publish(file, held)
        if not self._conditional:
            if self.read_version(name)[1] != version:
                raise OvertakenError
            self.publish(name, content)
            return _version_of(content)

        def put() -> Any:
            try:
                return self._filesystem.pipe_file(self._key(name), content, IfMatch=version)
            except Exception as error:
                if _is_refused(error):
                    return None
                raise

        done = self._call(put)
        if done is None:
            raise OvertakenError
        return str(done["ETag"])

    @property
    def _conditional(self) -> bool:
        """Whether puts can be conditional: those of s3fs can."""
        return hasattr(self._filesystem, "call_s3")

    def hold(self, name: str) -> AbstractContextManager[None]:
        """Do nothing: object stores have no locks. Age is used instead."""
        return nullcontext()

    def abandoned(self, name: str) -> bool:
        """False: nobody can know."""
        return False

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        try:
            self._call(lambda: self._filesystem.rm_file(self._key(name)))
        except SourceUnavailableError as error:
            if not is_absent(error):
                raise

    def age(self, name: str) -> float | None:
        """Seconds since a file was written; None if the filesystem does not say."""
        try:
            written = self._filesystem.modified(self._key(name))
        except (OSError, NotImplementedError, KeyError):
            return None
        return self._now() - written.timestamp() if isinstance(written, datetime) else None

    def _now(self) -> float:
        """The time by the clock of the filesystem: ours may be wrong."""
        if self._clock_ahead is None:
            probe = f".clock-{uuid.uuid4().hex[:16]}"
            self._clock_ahead = 0.0
            try:
                self.publish(probe, b"")
                written = self._filesystem.modified(self._key(probe))
                self._clock_ahead = written.timestamp() - time.time()
            except (GridrefError, OSError, NotImplementedError, KeyError, AttributeError):
                pass  # a place that cannot be written to, or does not tell
            finally:
                with suppress(GridrefError):
                    self.remove(probe)
        return time.time() + self._clock_ahead

    def _key(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _within_limit(self, method: str) -> Callable[..., Any]:
        return within_limit(self._filesystem, method)

    def _call[Result](self, action: Callable[[], Result]) -> Result:
        return self._retry.call(action, self.url)


_ROOT_BYTES = 4 * 2**20
"""Of a root file so much is asked for at once."""
_OVERTAKEN = (409, 412)
"""Answers to a conditional put whose condition does not hold, or no longer."""


def _is_refused(error: BaseException | None) -> bool:
    """Whether a conditional put was refused: s3fs hides the answer behind an error of its own."""
    while error is not None:
        if status_of(error) in _OVERTAKEN:
            return True
        error = error.__cause__ or error.__context__
    return False


def _version_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _sync_directory(path: str) -> None:
    """Make names in a directory survive a crash of the machine (fsync(2), POSIX only)."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_found(url: str, name: str) -> CatalogNotFoundError:
    return CatalogNotFoundError(
        f"no catalog there: it has no {name}. Check the address, or build a catalog first",
        Place(source=url),
    )


def _unusable(path: str, error: OSError) -> GridrefError:
    return SourceUnavailableError(f"{error.strerror or error}", Place(source=path))
