"""HDF5 files opened for a scan: by h5py, and as bytes for our own reading."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cached_property
from typing import Any

from h5py import h5d, h5f, h5fd, h5i, h5p

from gridref.errors import GridrefError, Place, SourceFormatError
from gridref.io import ScanFile, absolute_url, collector_paused, is_local, open_for_scan
from gridref.model.manifest import Source
from gridref.scan.hdf5.global_heap import GlobalHeap
from gridref.scan.hdf5.references import ObjectPaths
from gridref.scan.hdf5.superblock import Hdf5Bytes, read_superblock
from gridref.scan.options import ScanOptions

__all__ = ["HDF5_ERRORS", "SIGNATURE", "OpenFile", "hdf5_errors", "open_file"]

SIGNATURE = b"\x89HDF\r\n\x1a\n"
"""What an HDF5 file, or its part behind a user block, begins with."""

_BLOCK_BYTES = 1 << 13
_MAX_BLOCKS = 1 << 11

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
    """An open HDF5 file, and those that its links lead to.

    Attributes
    ----------
    fid
        The file's low-level identifier.
    scan_file
        Its bytes.
    options
        Settings.
    link_access
        Access properties by which links are followed.
    """

    def __init__(self, fid: Any, scan_file: ScanFile, options: ScanOptions) -> None:
        self.fid = fid
        self.scan_file = scan_file
        self.options = options
        self.link_access = _link_access() if is_local(scan_file.name) else None
        self._native: Any = None
        self._linked: dict[str, OpenFile] = {}
        self._resources = ExitStack()
        self._resources.callback(scan_file.close)
        self._resources.callback(fid.close)

    @property
    def source(self) -> Source:
        """The file as a source of chunks."""
        return self.scan_file.source

    @property
    def n_requests(self) -> int:
        """Reads sent, for the files behind links too."""
        return self.scan_file.n_requests + sum(f.n_requests for f in self._linked.values())

    @property
    def n_bytes(self) -> int:
        """Bytes read, from the files behind links too."""
        return self.scan_file.n_bytes + sum(f.n_bytes for f in self._linked.values())

    @cached_property
    def bytes(self) -> Hdf5Bytes:
        """The file's bytes by its own addresses."""
        return read_superblock(_Reader(self.scan_file))

    @cached_property
    def heap(self) -> GlobalHeap:
        """The file's global heap."""
        return GlobalHeap(self.bytes)

    @cached_property
    def paths(self) -> ObjectPaths:
        """Paths of the file's objects."""
        return ObjectPaths(self.bytes, self.heap)

    def linked(self, url: str, fid: Any = None) -> OpenFile:
        """The file behind an external link; `fid` if HDF5 has opened it already."""
        if url not in self._linked:
            if fid is None:
                opened = _open(url, self.options)
            else:
                opened = OpenFile(
                    fid, open_for_scan(url, self.options.storage_options), self.options
                )
            self._resources.callback(opened.close)
            self._linked[url] = opened
        return self._linked[url]

    def with_sources(self, did: Any) -> Any:
        """A virtual dataset, opened so that HDF5 finds the files that its extents depend on.

        HDF5 opens these as it opened the file, so it must not have been by our file object.
        """
        if not is_local(self.scan_file.name):
            return did
        if self._native is None:
            self._native = h5f.open(os.fsencode(self.scan_file.name), h5f.ACC_RDONLY)
            self._resources.callback(self._native.close)
        return h5d.open(self._native, h5i.get_name(did))

    def close(self) -> None:
        """Close it, and the files behind links."""
        # HDF5 sometimes fails to close what was corrupt; what is wrong has been said by then.
        with suppress(*HDF5_ERRORS):
            self._resources.close()

    def place(self, variable: str | None = None) -> Place:
        """For errors about an object of the file."""
        return Place(source=self.source.url, variable=variable)


class _Reader:
    """A `ScanFile` as a reader of byte ranges, that keeps the blocks around small pieces.

    Headers, heaps and indexes of small files lie close together.
    """

    def __init__(self, file: ScanFile) -> None:
        self._file = file
        self._blocks: dict[int, bytes] = {}

    @property
    def size_bytes(self) -> int:
        return self._file.size

    def read(self, offset: int, length: int) -> bytes:
        number, start = divmod(offset, _BLOCK_BYTES)
        if start + length > _BLOCK_BYTES or offset + length > self._file.size or offset < 0:
            return self._file.read_many([offset], [length])[0]
        block = self._blocks.get(number)
        if block is None:
            first = number * _BLOCK_BYTES
            size = min(_BLOCK_BYTES, self._file.size - first)
            block = self._file.read_many([first], [size])[0]
            if len(self._blocks) < _MAX_BLOCKS:
                self._blocks[number] = block
        return block[start : start + length]

    def read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        if len(offsets) == 1:
            return [self.read(int(offsets[0]), int(lengths[0]))]
        return self._file.read_many(offsets, lengths)


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
    with nullcontext() if is_local(absolute_url(url)) else collector_paused():
        file = _open(url, options)
        try:
            yield file
        except SourceFormatError:
            # A read that failed looks to HDF5 like a corrupt file.
            file.scan_file.raise_last_error()
            raise
        finally:
            file.close()


def _open(url: str, options: ScanOptions) -> OpenFile:
    scan_file = open_for_scan(url, options.storage_options)
    properties = h5p.create(h5p.FILE_ACCESS)
    properties.set_fclose_degree(h5f.CLOSE_STRONG)
    properties.set_fileobj_driver(h5fd.fileobj_driver, scan_file)
    try:
        with hdf5_errors(Place(scan_file.name), "open it as HDF5"):
            fid = h5f.open(os.fsencode(scan_file.name), h5f.ACC_RDONLY, fapl=properties)
    except SourceFormatError:
        scan_file.raise_last_error()
        scan_file.close()
        raise
    file = OpenFile(fid, scan_file, options)
    try:
        _ = file.bytes
    except GridrefError as error:
        file.close()
        raise error.located(file.place()) from None
    return file


def _link_access() -> Any:
    """Let HDF5 open the files behind external links on its own, not through our file object."""
    properties = h5p.create(h5p.LINK_ACCESS)
    properties.set_elink_fapl(h5p.create(h5p.FILE_ACCESS))
    return properties
