"""HDF5 files opened for a scan, and the sources they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import h5py
from h5py import h5f, h5p

from gridref.errors import (
    GridrefError,
    Place,
    SourceFormatError,
    SourceUnavailableError,
)
from gridref.model.manifest import Source
from gridref.scan.options import ScanOptions
from gridref.scan.sniff import local_path

__all__ = ["HDF5_ERRORS", "SIGNATURE", "OpenFile", "hdf5_errors", "open_file"]

SIGNATURE = b"\x89HDF\r\n\x1a\n"
"""What an HDF5 file, or its part behind a user block, begins with."""

HDF5_ERRORS = (
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    OverflowError,
    NotImplementedError,
    MemoryError,
)
"""What h5py raises when HDF5 reports an error: it maps HDF5's error numbers to these."""


class OpenFile:
    """An open HDF5 file.

    Attributes
    ----------
    fid
        The file's low-level identifier.
    source
        The file as a source of chunks.
    n_requests, n_bytes
        Reads sent for it so far, where they are counted.
    """

    def __init__(self, fid: Any, source: Source) -> None:
        self.fid = fid
        self.source = source
        self.n_requests = 0
        self.n_bytes = 0

    @property
    def url(self) -> str:
        """Of the source."""
        return self.source.url

    def linked(self, fid: Any) -> OpenFile:
        """A file that HDF5 opened on its own, behind an external link."""
        name = os.path.abspath(os.fsdecode(h5f.get_name(fid)))
        status = os.stat(name)
        return OpenFile(fid, Source(name, status.st_size, status.st_mtime_ns))

    def place(self, variable: str | None = None) -> Place:
        """For errors about an object of the file."""
        return Place(source=self.source.url, variable=variable)


@contextmanager
def hdf5_errors(place: Place, doing: str) -> Iterator[None]:
    """Turn what h5py raises into a `SourceFormatError` about `place`."""
    try:
        yield
    except GridrefError:
        raise
    except HDF5_ERRORS as error:
        detail = str(error.args[0] if error.args else error) or type(error).__name__
        raise SourceFormatError(f"cannot {doing}: {detail}", place) from error


@contextmanager
def open_file(url: str, options: ScanOptions) -> Iterator[OpenFile]:
    """Open an HDF5 file for reading metadata.

    Raises
    ------
    SourceFormatError
        If it is no HDF5 file, is truncated or corrupt.
    SourceUnavailableError
        If it is not there or cannot be read.
    """
    path = local_path(url)
    opener = _open_remote if path is None else _open_local
    file, close = opener(url if path is None else str(path), options)
    try:
        yield file
    finally:
        close()


_Opened = tuple[OpenFile, Callable[[], Any]]


def _open_local(path: str, options: ScanOptions) -> _Opened:
    try:
        status = os.stat(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SourceUnavailableError(f"cannot read the file: {reason}", Place(path)) from error
    source = Source(path, status.st_size, status.st_mtime_ns)
    with hdf5_errors(Place(path), "open it as HDF5"):
        fid = h5f.open(os.fsencode(path), h5f.ACC_RDONLY, fapl=_access_properties())
    return OpenFile(fid, source), fid.close


def _open_remote(url: str, options: ScanOptions) -> _Opened:
    import fsspec

    try:
        filesystem, inner = fsspec.core.url_to_fs(url, **(options.storage_options or {}))
        info = filesystem.info(inner)
        stream = filesystem.open(inner, "rb")
    except OSError as error:
        reason = error.strerror or str(error)
        raise SourceUnavailableError(f"cannot read the file: {reason}", Place(url)) from error
    etag = info.get("ETag") or info.get("etag")
    source = Source(url, info.get("size"), None, etag)
    with hdf5_errors(Place(url), "open it as HDF5"):
        handle = h5py.File(stream, "r")

    def close() -> None:
        handle.close()
        stream.close()

    return OpenFile(handle.id, source), close


def _access_properties() -> Any:
    properties = h5p.create(h5p.FILE_ACCESS)
    properties.set_fclose_degree(h5f.CLOSE_STRONG)
    properties.set_libver_bounds(h5f.LIBVER_EARLIEST, h5f.LIBVER_LATEST)
    return properties
