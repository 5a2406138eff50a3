"""The directory of a catalog: local, or on any fsspec filesystem.

`Folder` is all that writing and reading a catalog needs of it: read a file, create one, and replace
the root file in one step, with all that belongs to it, or nothing (`Folder.changing`).
`LocalFolder` and `RemoteFolder` implement it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
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
    near_paths,
    open_filesystem,
    open_for_scan,
    read_file,
    status_of,
    within_limit,
)

try:
    import fcntl
except ImportError:  # Windows has none: writers are told apart by comparing only
    fcntl = None  # type: ignore[assignment]

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
        """A new file to write."""
        ...


type ReplaceRoot = Callable[[bytes, Mapping[str, bytes], Collection[str]], str]
"""Puts a root file of this content in place, after some more files; gives its version.

Then the named files go, which only the one before needed.
"""


class Folder(TablePlace, Protocol):
    """The interface of a place for a catalog, to read and write it."""

    def address(self, name: str) -> str:
        """Address of a file in it."""
        ...

    def names(self) -> list[str]:
        """Names of what is in it; none if there is no such directory."""
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

    def changing(
        self, name: str, version: str | None, new: Collection[str]
    ) -> AbstractContextManager[ReplaceRoot]:
        """Make `new` files and replace a root file, or leave everything as it was.

        Where the root file is not replaced, those of the new files that were made are removed. On
        a local disk other writers wait, and the next one does this for a process that was killed.

        Parameters
        ----------
        version
            The version of it to replace; None for whichever is there.

        Raises
        ------
        OvertakenError
            If the root file is of another version by now.
        """
        ...

    def turn(self) -> AbstractContextManager[None]:
        """Wait for other writers that were overtaken and try again, where there are locks.

        If many writers tried again at the same moment, one would succeed, and the work of all
        others would be lost, again and again. After `TURN_SECONDS` nobody waits any longer: another
        one may be reading very much.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...

    def age(self, name: str) -> float | None:
        """Seconds since a file was written; None if that is not known."""
        ...

    def unmake(self) -> None:
        """Remove the folders that were made to write into this one, if nothing is in them."""
        ...


TURN_SECONDS = 30.0
"""Longest wait for other writers that were overtaken."""


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
        name = str(error.filename or url)
        is_known = not isinstance(error, NotADirectoryError) and not _DRAFT.search(name)
        place = Place(source=name if is_known else url)
        raise kind(f"{what} cannot be written: {_why(error)}", place) from error
    except ValueError as error:  # what Python says of paths with a NUL or half of a surrogate pair
        if "null" not in str(error) and not isinstance(error, UnicodeEncodeError):
            raise
        raise kind(f"{what} cannot be written: {error} in a name", Place(source=url)) from error


_DRAFT = re.compile(r"\.\d+\.tmp$")
"""Names that nobody asked for: files are written under them first."""


def _why(error: OSError) -> str:
    """What the system says of a path that is to be written, in more words where it is terse."""
    if isinstance(error, NotADirectoryError):
        return (
            "a file is at this address, or above it, in place of a folder: choose another address"
        )
    if isinstance(error, FileNotFoundError):
        return "a folder of this address does not exist: make it first"
    return error.strerror or str(error)


class LocalFolder:
    """A local directory."""

    def __init__(self, path: str) -> None:
        self.url = path
        self._made: list[str] = []

    def address(self, name: str) -> str:
        return os.path.join(self.url, name)

    def names(self) -> list[str]:
        try:
            return os.listdir(self.url)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SourceUnavailableError(_why(error), Place(source=self.url)) from error

    def read(self, name: str) -> bytes:
        try:
            return read_file(self.address(name))
        except SourceUnavailableError as error:
            if is_absent(error):
                raise _not_found(self.url, name) from error
            raise

    def create(self, name: str) -> WritableFile:
        """A new file to write, which is on the disk when it has been closed."""
        return _DurableFile(self.address(name))

    def publish(self, name: str, content: bytes) -> None:
        """Replace a file in one step: after a crash there is the old one or the new one."""
        draft = self.address(_draft(name))
        try:
            with _DurableFile(draft) as file:
                file.write(content)
            _sync_directory(self.url)
            _replace(draft, self.address(name))
        except BaseException:
            _remove(draft)
            raise
        _sync_directory(self.url)

    def read_version(self, name: str) -> tuple[bytes, str]:
        """Content of a file, and a hash of it."""
        content = self.read(name)
        return content, _version_of(content)

    @contextmanager
    def changing(
        self, name: str, version: str | None, new: Collection[str]
    ) -> Iterator[ReplaceRoot]:
        if version is None:
            self._made += _absent_folders(self.url)
            os.makedirs(self.url, exist_ok=True)
        with Journal.held(self.address(f".{name}.lock")) as journal:
            self._settle(name, journal)  # what a writer began that died
            before = self._version(name)
            if version not in (None, before):
                raise OvertakenError

            def replace_root(
                content: bytes, former: Mapping[str, bytes], gone: Collection[str]
            ) -> str:
                if self._version(name) != before:  # where there are no locks
                    for file in new:
                        self.remove(file)
                    raise OvertakenError
                after = _version_of(content)
                draft = _draft(name)
                journal.add(new=[*new, *former, draft], after=after, old=[*gone, draft])
                for file, held in former.items():
                    with _DurableFile(self.address(file)) as opened:
                        opened.write(held)
                self.publish(name, content)
                return after

            try:
                journal.add(before=before, new=[*new])
                yield replace_root
            finally:
                self._settle(name, journal)
                if version is None and not journal.entries:
                    journal.remove()

    @contextmanager
    def turn(self) -> Iterator[None]:
        if fcntl is None:
            yield
            return
        descriptor = os.open(self.url, os.O_RDONLY)
        try:
            latest = time.monotonic() + TURN_SECONDS
            with suppress(OSError):  # some filesystems lock files only
                while not _got(descriptor) and time.monotonic() < latest:
                    time.sleep(0.02)
            yield
        finally:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked child may have it open too
            os.close(descriptor)

    def _settle(self, name: str, journal: Journal) -> None:
        """Remove what a change has made, if it did not happen; else what it has replaced."""
        if "before" not in journal.entries:
            return
        try:
            version = self._version(name)
        except GridrefError:
            return  # not sure: everything stays, until the root file can be read again
        if version == journal.entries.get("after"):
            superfluous = journal.files("old")
        elif version == journal.entries["before"]:
            superfluous = journal.files("new")
        else:
            superfluous = []  # of a writer that does not know of locks
        for file in superfluous:
            self.remove(file)
        journal.clear()

    def _version(self, name: str) -> str:
        """The version of a file, or that there is none."""
        try:
            return self.read_version(name)[1]
        except CatalogNotFoundError:
            return _ABSENT

    def remove(self, name: str) -> None:
        _remove(self.address(name))

    def age(self, name: str) -> float | None:
        try:
            return time.time() - os.stat(self.address(name)).st_mtime
        except OSError:
            return None

    def unmake(self) -> None:
        for path in self._made:
            with suppress(OSError):
                os.rmdir(path)


_ABSENT = "absent"
"""The version of a file that is not there."""


def _draft(name: str) -> str:
    """The name of a file until it is put in the place of another one."""
    return f".{name}.{os.getpid()}.tmp"


class Journal:
    """The lock of all writers of a local catalog; its file says what the one that holds it does.

    Its lines are JSON objects. The first one has the version ``before`` of the root file and the
    ``new`` files, and is written before these are. The second one is written just before the root
    file is replaced: all ``new`` files, the version ``after``, and the ``old`` files that go then.
    No line is forced to the disk: where the machine fails, files may be left over, which `prune`
    removes.

    Attributes
    ----------
    entries
        The members of its lines; none while nothing is being written.
    """

    def __init__(self, path: str | None) -> None:
        self.entries: dict[str, Any] = {}
        self._path = path
        if path is not None:
            # The last line may be cut, and a stranger's be anything.
            with open(path, "rb") as file, suppress(ValueError, TypeError, RecursionError):
                for line in file:
                    self.entries |= json.loads(line)

    @classmethod
    @contextmanager
    def held(cls, path: str) -> Iterator[Journal]:
        """Hold the lock, whose file is made if necessary; wait while another one holds it."""
        if fcntl is None:  # what others write may belong to a writer that is alive
            yield cls(None)
            return
        descriptor = _locked(path)
        try:
            yield cls(path)
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was forked may have it open too
            os.close(descriptor)

    def files(self, member: str) -> list[str]:
        """The files that a member lists: only such as writers make, as it may be a stranger's."""
        listed = self.entries.get(member)
        names = listed if isinstance(listed, list) else []
        return [name for name in names if isinstance(name, str) and _MADE.fullmatch(name)]

    def add(self, **members: Any) -> None:
        """Write a line."""
        self.entries |= members
        if self._path is not None:
            with open(self._path, "ab") as file:
                file.write(json.dumps(members).encode() + b"\n")

    def clear(self) -> None:
        """Leave nothing to be done."""
        self.entries = {}
        if self._path is not None:
            os.truncate(self._path, 0)

    def remove(self) -> None:
        """Remove the file."""
        if self._path is not None:
            _remove(self._path)


_MADE = re.compile(r"[a-z]+-[0-9a-f]{16}(c|-\d+)?\.(parquet|json\.gz)|\.gridref\.json\.\d+\.tmp")
"""Names of files that writers make besides the root file."""


def _locked(path: str) -> int:
    """A descriptor that holds the lock of a file, which is made if necessary."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):  # it may have been removed meanwhile, and made again
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _got(descriptor: int) -> bool:
    """Whether a lock is held now that nobody else held."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _absent_folders(path: str) -> list[str]:
    """Those of a folder and the ones above it that do not exist, from the innermost outwards."""
    absent = []
    while not os.path.lexists(path):
        absent.append(path)
        path = os.path.dirname(path)
    return absent


class _DurableFile:
    """A file for writing that is flushed to the disk on closing."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 - closed by close

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

    Publishing is one put of one object, which object stores do in one step. What a process leaves
    behind that is killed is removed by `prune`, once it is old.
    """

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
        head, separator, chain = self.url.partition("::")
        return f"{head}/{name}{separator}{chain}"

    def names(self) -> list[str]:
        self._filesystem.invalidate_cache(self._path)
        try:
            paths = self._call(lambda: self._within_limit("ls")(self._path, detail=False))
        except SourceUnavailableError as error:
            if is_absent(error):
                return []
            raise
        return [str(path).rstrip("/").rpartition("/")[2] for path in paths]

    def read(self, name: str) -> bytes:
        try:
            content: bytes = self._call(lambda: self._within_limit("cat_file")(self._key(name)))
        except SourceUnavailableError as error:
            if is_absent(error):
                raise _not_found(self.url, name) from error
            raise
        return content

    def create(self, name: str) -> WritableFile:
        def create() -> WritableFile:
            if not self._conditional:  # S3 has no folders, and would be asked for the bucket
                self._filesystem.makedirs(self._path, exist_ok=True)
            file: WritableFile = self._filesystem.open(self._key(name), "wb")
            return file

        return self._call(create)

    def publish(self, name: str, content: bytes) -> None:
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

    @contextmanager
    def changing(
        self, name: str, version: str | None, new: Collection[str]
    ) -> Iterator[ReplaceRoot]:
        superfluous: list[str] = []
        is_tried = False

        def replace_root(content: bytes, former: Mapping[str, bytes], gone: Collection[str]) -> str:
            nonlocal is_tried
            for file, held in former.items():  # which another writer may have written, too
                self.publish(file, held)
            superfluous.extend(gone)
            is_tried = True
            if version is None:
                self.publish(name, content)
                return _version_of(content)
            return self.publish_over(name, content, version)

        try:
            yield replace_root
        except BaseException as error:
            is_lost = not is_tried or isinstance(error, OvertakenError)
            if is_lost or self._is_as_before(name, version):
                for file in new:
                    self.remove(file)
            raise
        for file in superfluous:
            self.remove(file)

    def _is_as_before(self, name: str, version: str | None) -> bool:
        """Whether a root file is known not to have been replaced: the answer may have been lost."""
        try:
            return self.read_version(name)[1] == version
        except CatalogNotFoundError:
            return version is None
        except GridrefError:
            return False

    def turn(self) -> AbstractContextManager[None]:
        return nullcontext()

    def publish_over(self, name: str, content: bytes, version: str) -> str:
        """Replace a version of a file in one request, on condition that it is that version.

        Filesystems without conditional puts compare just before the put: they do not notice two
        writers at the same moment.
        """
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

    def remove(self, name: str) -> None:
        try:
            self._call(lambda: self._filesystem.rm_file(self._key(name)))
        except SourceUnavailableError as error:
            if not is_absent(error):
                raise

    def age(self, name: str) -> float | None:
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


_ON_WINDOWS = os.name == "nt"
_PAUSES_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Between attempts to replace a file that somebody reads, on Windows: reading the root is short."""


def _replace(path: str, old: str) -> None:
    """Put a file in the place of another one; Windows refuses that while somebody reads it."""
    for seconds in _PAUSES_SECONDS if _ON_WINDOWS else ():
        try:
            return os.replace(path, old)
        except PermissionError:
            time.sleep(seconds)
    return os.replace(path, old)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except PermissionError:
        if not _ON_WINDOWS:
            raise
        # Somebody reads it. Nothing names it any more, and `prune` removes it later.


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
    advice = near_paths(url) or ". Check the address, or build a catalog first"
    if is_local(url) and os.path.isfile(url):
        advice = (
            ". A catalog is a folder, and this is a file: gridref build makes a catalog of files"
        )
    return CatalogNotFoundError(
        f"no catalog there: it has no {name}{advice}",
        Place(source=url),
    )
