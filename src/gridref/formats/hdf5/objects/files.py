"""HDF5 files opened for a scan, and those that their links lead to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property

from gridref.errors import (
    GridrefError,
    Place,
    ScanError,
    SourceFormatError,
    SourceUnavailableError,
)
from gridref.formats.hdf5.format.block_reader import BlockReader
from gridref.formats.hdf5.format.cache_image import with_cache_image
from gridref.formats.hdf5.format.global_heap import GlobalHeap
from gridref.formats.hdf5.format.links import GroupLinks, Link, LinkKind, read_links
from gridref.formats.hdf5.format.object_header import ObjectHeader, read_header
from gridref.formats.hdf5.format.shared_messages import SharedMessages
from gridref.formats.hdf5.format.superblock import Hdf5Bytes, check_driver, read_superblock
from gridref.formats.hdf5.objects.dtypes import ElementType, element_type
from gridref.formats.hdf5.objects.references import ObjectPaths
from gridref.formats.hdf5.objects.related import linked_file, policy_of
from gridref.formats.location import require_allowed
from gridref.formats.options import ScanOptions
from gridref.io import ScanFile, is_absent, is_local, open_for_scan
from gridref.model.manifest import Source
from gridref.model.source_policy import SourcePolicy

__all__ = ["OpenFile", "open_file"]

_DATATYPE, _LAYOUT, _DRIVER, _CACHE_IMAGE = 0x03, 0x08, 0x14, 0x18


class OpenFile:
    """An open HDF5 file.

    Parameters
    ----------
    files
        All files that are open in this scan, by their true names, and the first by the name that it
        was asked for; this one is added.

    Attributes
    ----------
    scan_file, options
        As given.
    number
        Which of the open files it is.
    bytes
        Its bytes by its own addresses.
    shared
        Its header messages, wherever they lie.

    Raises
    ------
    SourceFormatError
        If it is no HDF5 file, is truncated or corrupt.
    UnsupportedFeatureError
        If its superblock is of an unknown version.
    """

    def __init__(
        self, scan_file: ScanFile, options: ScanOptions, files: dict[str, OpenFile] | None = None
    ) -> None:
        self.scan_file = scan_file
        self.options = options
        self._files = {} if files is None else files
        self.number = len(self._files)
        self._headers: dict[int, ObjectHeader] = {}
        self._n_header_bytes = 0
        self._links: dict[int, GroupLinks] = {}
        self._members: dict[int, dict[bytes, Link]] = {}
        self._external: dict[bytes, OpenFile | None] = {}
        self.reader = BlockReader(scan_file)
        self.bytes: Hdf5Bytes = _with_extension(read_superblock(self.reader))
        self.shared = SharedMessages(self.bytes)
        self._files[self.true_name if self._files else scan_file.name] = self

    @property
    def source(self) -> Source:
        """The file as a source of chunks."""
        return self.scan_file.source

    @cached_property
    def true_name(self) -> str:
        """The same for all names of the file, as far as that can be known."""
        return _true_name(self.scan_file.name)

    @property
    def _first(self) -> OpenFile:
        return next(iter(self._files.values()))

    @cached_property
    def policy(self) -> SourcePolicy:
        """Which files may be read on behalf of the one that was named first, and of this one."""
        return policy_of(self._first.source.url, self._first.options)

    @cached_property
    def heap(self) -> GlobalHeap:
        """The file's global heap."""
        return GlobalHeap(self.bytes)

    @cached_property
    def paths(self) -> ObjectPaths:
        """Paths of the file's objects."""
        return ObjectPaths(self.bytes, self.heap)

    def header(self, address: int) -> ObjectHeader:
        """The object header at an address; read once.

        Raises
        ------
        SourceFormatError
            If it is corrupt, or overlaps with others.
        UnsupportedFeatureError
            If it has a message that must be understood and is not known.
        """
        header = self._headers.get(address)
        if header is None:
            header = read_header(self.bytes, address)
            self._n_header_bytes += header.n_bytes
            if self._n_header_bytes > self.scan_file.size:
                raise SourceFormatError("object headers overlap", self.bytes.place(address))
            self._headers[address] = header
        return header

    def links(self, address: int) -> GroupLinks:
        """The links of the group whose header is at an address; read once.

        Raises
        ------
        SourceFormatError
            If they are corrupt.
        """
        links = self._links.get(address)
        if links is None:
            links = self._links[address] = read_links(self.bytes, self.header(address))
        return links

    def members(self, address: int) -> dict[bytes, Link]:
        """The links of a group by name."""
        members = self._members.get(address)
        if members is None:
            members = {link.name: link for link in self.links(address).stored}
            self._members[address] = members
        return members

    @cached_property
    def type_names(self) -> dict[ElementType, str]:
        """Names of the named datatypes among the objects that were read; the first of equal ones.

        Which of them a dataset has is told by equality, as netCDF-C does: datasets need not point
        to them.
        """
        names: dict[ElementType, str] = {}
        for link in (link for group in self._links.values() for link in group.stored):
            header = self._headers.get(link.address) if link.kind == LinkKind.HARD else None
            if header is None or _DATATYPE not in header.kinds or _LAYOUT in header.kinds:
                continue
            with suppress(ScanError):
                element = self.shared.decoded(header.messages, _DATATYPE, element_type)
                if element is not None:
                    names.setdefault(element, link.name.decode("utf-8", "backslashreplace"))
        return names

    def prefetch(self, links: tuple[Link, ...]) -> None:
        """Read what hard links lead to all at once, where reading is slow."""
        base = self.bytes.base_address
        self.reader.prefetch(base + link.address for link in links if link.address)

    def linked(self, url: str) -> OpenFile:
        """Another file, opened once.

        Raises
        ------
        SourceFormatError
            If it is no HDF5 file, is truncated or corrupt.
        SourceUnavailableError
            If it is not there or cannot be read.
        UnsupportedFeatureError
            If it may not be read.
        """
        name = _true_name(url)
        linked_file = self._first if name == self._first.true_name else self._files.get(name)
        if linked_file is None:
            require_allowed(self.policy, url)
            scan_file = open_for_scan(url, self.options.storage_options)
            linked_file = _opened(scan_file, self.options, self._files)
        return linked_file

    def external(self, name: bytes) -> OpenFile | None:
        """The file that an external link names; None if there is none.

        Raises
        ------
        SourceFormatError
            If it is no HDF5 file, is truncated or corrupt.
        SourceUnavailableError
            If it cannot be read for another reason than that it is not there.
        """
        if name not in self._external:
            url = linked_file(self.source.url, name.decode("utf-8", "surrogateescape"))
            self._external[name] = None if url is None else self._linked_if_there(url)
        return self._external[name]

    def _linked_if_there(self, url: str) -> OpenFile | None:
        try:
            return self.linked(url)
        except SourceUnavailableError as error:
            if is_local(url) or is_absent(error):
                return None
            raise

    def close(self) -> None:
        """Close all files of the scan."""
        for file in self._files.values():
            file.scan_file.close()

    def place(self, variable: str | None = None) -> Place:
        """For errors about an object of the file."""
        return Place(source=self.source.url, variable=variable)


@contextmanager
def open_file(scan_file: ScanFile, options: ScanOptions) -> Iterator[OpenFile]:
    """Read the metadata of an HDF5 file; it is closed in the end, and all that it led to.

    Raises
    ------
    SourceFormatError
        If it is no HDF5 file, is truncated or corrupt.
    SourceUnavailableError
        If it cannot be read.
    """
    file = _opened(scan_file, options, {})
    try:
        yield file
    finally:
        file.close()


def _opened(scan_file: ScanFile, options: ScanOptions, files: dict[str, OpenFile]) -> OpenFile:
    try:
        return OpenFile(scan_file, options, files)
    except GridrefError as error:
        scan_file.close()
        raise error.located(Place(source=scan_file.name)) from None


def _true_name(url: str) -> str:
    """The same for all names of a file, as far as that can be known."""
    return os.path.realpath(url) if is_local(url) else url


def _with_extension(file: Hdf5Bytes) -> Hdf5Bytes:
    """The file as its superblock extension, if it has one, says it is to be read.

    Source: HDF5 File Format Specification v3, II.C "Superblock Extension", IV.A.2.u "Driver Info".

    Raises
    ------
    SourceFormatError
        If the extension is corrupt.
    UnsupportedFeatureError
        If the file is one of several parts.
    """
    if file.extension is None:
        return file
    header = read_header(file, file.extension)
    driver = header.first(_DRIVER)
    if driver is not None:
        check_driver(driver.data[1:9])
    image = header.first(_CACHE_IMAGE)
    return file if image is None else with_cache_image(file, image)
