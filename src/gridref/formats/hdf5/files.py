"""Open HDF5 files, the files that they name, and paths through links.

`open_file` takes a scanned file and returns an `OpenFile`, which reads object headers and links.
`find_object` and `follow_link` follow soft and external links to an object.

An HDF5 file chooses the names of the files that it refers to, but they are read with the rights of
the user who scans it. They must therefore be in the folder of the file that was named first, in a
folder that the user allowed, or in one that HDF5's environment variables name.

Sources: HDF5 Reference Manual, H5Pset_external, H5Pset_efile_prefix, H5Pset_virtual_prefix,
H5Lcreate_external, H5Lcreate_soft, H5Pset_nlinks.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property

from gridref.cache import LRU, cache_bytes
from gridref.errors import (
    GridrefError,
    Place,
    ScanError,
    SourceFormatError,
    SourceUnavailableError,
)
from gridref.formats.hdf5.bytes import Hdf5Bytes, check_driver, read_superblock
from gridref.formats.hdf5.datatypes import ElementType, element_type
from gridref.formats.hdf5.headers import (
    CACHE_IMAGE,
    DATATYPE,
    DRIVER,
    LAYOUT,
    ObjectHeader,
    SharedMessages,
    read_header,
    with_cache_image,
)
from gridref.formats.hdf5.heaps import GlobalHeap
from gridref.formats.hdf5.links import GroupLinks, Link, LinkKind, is_group, read_links
from gridref.formats.location import only_allowed
from gridref.formats.scanner import ScanOptions
from gridref.io import (
    ScanFile,
    beside,
    describe_source,
    is_absent,
    is_local,
    note_opened,
    open_for_scan,
    policy_for,
    slashed,
)
from gridref.limits import beyond, limits
from gridref.model.manifest import Source
from gridref.model.source_policy import SourcePolicy

# The bytes of a scanned file, read in blocks that are kept

_BLOCK_BYTES = 1 << 13
_BLOCK_BYTES_OF_SMALL_FILES = 1 << 14
_NEAR_BLOCKS = 8
_READ_WHOLE_BYTES = 1 << 19


class BlockReader:
    """A `ScanFile` as a `gridref.formats.hdf5.bytes.ByteReader`.

    Headers, heaps and indexes of small files are close together; a small remote file is read whole,
    because requests for one piece after the other would take longer. Structures of a valid file do
    not overlap, so the size of the file bounds all reads. A corrupt file that causes far larger
    reads is refused.
    """

    def __init__(self, file: ScanFile) -> None:
        self._file = file
        is_small = file.size <= _READ_WHOLE_BYTES
        self._unit = _BLOCK_BYTES_OF_SMALL_FILES if is_small else _BLOCK_BYTES
        self._blocks: LRU[bytes] = LRU(cache_bytes() // 4, len)
        self._last = -1, b""
        self._n_left = limits().reads_of(file.size)
        if is_small and file.size and file.is_remote:
            self._load(list(range(-(-file.size // self._unit))))

    @property
    def size_bytes(self) -> int:
        return self._file.size

    def read(self, offset: int, length: int) -> bytes:
        self._n_left -= length
        if self._n_left < 0:
            self._spend(0)
        number, start = divmod(offset, self._unit)
        if start + length > self._unit or offset + length > self._file.size or offset < 0:
            return self._file.read_many([offset], [length])[0]
        last, block = self._last
        if number != last:
            known = self._blocks.get(number)
            block = self._load([number])[0] if known is None else known
            self._last = number, block
        return block[start : start + length]

    def read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        if len(offsets) == 1:
            return [self.read(int(offsets[0]), int(lengths[0]))]
        if self._file.is_remote and self._file.size <= _READ_WHOLE_BYTES:
            return [self.read(*piece) for piece in zip(offsets, lengths, strict=True)]
        self._spend(sum(lengths))
        return self._file.read_many(offsets, lengths)

    def prefetch(self, offsets: Iterable[int]) -> None:
        """Read the blocks in which small pieces begin, and near ones between them, all at once.

        The few blocks of a small local file are read when they are needed.
        """
        if self._file.size <= _READ_WHOLE_BYTES and not self._file.is_remote:
            return
        numbers = sorted({offset // self._unit for offset in offsets if self._is_inside(offset)})
        wanted = [number for number in numbers if number not in self._blocks]
        if len(wanted) < 2:
            return
        between = (
            range(last + 1, number)
            for last, number in itertools.pairwise(wanted)
            if number - last <= _NEAR_BLOCKS
        )
        near = [number for numbers in between for number in numbers if number not in self._blocks]
        self._load(sorted([*wanted, *near])[: self._blocks.max_bytes // self._unit // 2])

    def _is_inside(self, offset: int) -> bool:
        return 0 <= offset < self._file.size

    def _load(self, numbers: list[int]) -> list[bytes]:
        """Read whole blocks, and keep them for now."""
        starts = [number * self._unit for number in numbers]
        sizes = [min(self._unit, self._file.size - start) for start in starts]
        blocks = self._file.read_many(starts, sizes)
        return [self._blocks.put(*block) for block in zip(numbers, blocks, strict=True)]

    def _spend(self, n_bytes: int) -> None:
        self._n_left -= n_bytes
        if self._n_left < 0:
            what = "structures of the file overlap: far more had to be read than it holds"
            raise SourceFormatError(beyond("read_times", what), Place(source=self._file.name))


# Files that an HDF5 file names: external links, external storage, virtual datasets

_VARIABLES = ("HDF5_EXT_PREFIX", "HDF5_EXTFILE_PREFIX", "HDF5_VDS_PREFIX")


def policy_of(url: str, options: ScanOptions) -> SourcePolicy:
    """The policy on other files that a file may refer to."""
    values = (os.environ.get(variable, "") for variable in _VARIABLES)
    folders = [each for value in values for each in value.split(os.pathsep) if os.path.isabs(each)]
    allow = options.allow
    given = [allow] if isinstance(allow, str | os.PathLike) else list(allow or ())
    return policy_for(url, [*given, *folders])


def linked_file(url: str, name: str) -> str | None:
    """The file that an external link in the file `url` names; None if there is none.

    HDF5 looks in the folders of ``HDF5_EXT_PREFIX``, beside the file, in the working directory,
    then beside the target of a symbolic link to the file. If an absolute name leads nowhere, it
    looks for the last part of the name. For a remote file, it is unknown whether it exists.
    """
    note_opened(beside(url, name))
    if not is_local(url):
        return beside(url, name)
    absolute = [name] if os.path.isabs(name) else []
    name = os.path.basename(name) if absolute else name
    prefixes = os.environ.get("HDF5_EXT_PREFIX", "").split(os.pathsep)
    folders = [
        *(prefix for prefix in prefixes if prefix),
        os.path.dirname(url),
        "",
        os.path.dirname(os.path.realpath(url)),
    ]
    candidates = [*absolute, *(os.path.abspath(os.path.join(folder, name)) for folder in folders)]
    return next(filter(os.path.isfile, map(slashed, candidates)), None)


def external_file(url: str, name: str, options: ScanOptions, policy: SourcePolicy) -> Source:
    """The external raw file that a dataset in the file `url` names.

    HDF5 looks in the folder of ``HDF5_EXTFILE_PREFIX``, else in the working directory. If the
    file is not there, it is looked for beside the file `url`.
    """
    candidates = _candidates(url, name, "HDF5_EXTFILE_PREFIX", cwd_first=True)
    return _first(candidates, options, policy)


def virtual_file(url: str, name: str, options: ScanOptions, policy: SourcePolicy) -> Source | None:
    """The file with a source dataset of a virtual dataset; None if there is none.

    HDF5 looks in the folder of ``HDF5_VDS_PREFIX``, beside the file, then in the working directory.
    """
    try:
        return _first(_candidates(url, name, "HDF5_VDS_PREFIX", cwd_first=False), options, policy)
    except SourceUnavailableError as error:
        if is_local(url) or is_absent(error):
            return None
        raise


def _candidates(url: str, name: str, variable: str, *, cwd_first: bool) -> list[str]:
    near = beside(url, name)
    note_opened(near)
    if not is_local(url):
        return [near]
    if os.path.isabs(name):
        return [slashed(name), beside(url, os.path.basename(name))]
    prefix = os.environ.get(variable, "").replace("${ORIGIN}", os.path.dirname(url))
    named = [slashed(os.path.abspath(os.path.join(prefix, name)))] if prefix else []
    here = slashed(os.path.abspath(name))
    return [*named, here, near] if cwd_first else [*named, near, here]


def _first(candidates: list[str], options: ScanOptions, policy: SourcePolicy) -> Source:
    found = next(filter(os.path.isfile, candidates[:-1]), candidates[-1])
    if is_local(found) and not os.path.lexists(found):
        return describe_source(found)  # the error says that it does not exist
    with only_allowed(policy, found):
        return describe_source(found, options.storage_options, policy)


# Open HDF5 files, and the files that their links lead to


class OpenFile:
    """An open HDF5 file.

    Parameters
    ----------
    files
        All files that are open in this scan, by their true names, and the first by its requested
        name; this one is added.
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
        """The policy on files that this file, and the one that was named first, may refer to."""
        return policy_of(self._first.source.url, self._first.options)

    @cached_property
    def heap(self) -> GlobalHeap:
        return GlobalHeap(self.bytes)

    def header(self, address: int) -> ObjectHeader:
        """The object header at an address; read once."""
        header = self._headers.get(address)
        if header is None:
            header = read_header(self.bytes, address)
            self._n_header_bytes += header.n_bytes
            if self._n_header_bytes > self.scan_file.size:
                raise SourceFormatError("object headers overlap", self.bytes.place(address))
            self._headers[address] = header
        return header

    def links(self, address: int) -> GroupLinks:
        """The links of the group whose header is at an address; read once."""
        links = self._links.get(address)
        if links is None:
            links = self._links[address] = read_links(self.bytes, self.header(address))
        return links

    @cached_property
    def type_names(self) -> dict[ElementType, str]:
        """Names of the named datatypes among the objects that were read; the first of equal ones.

        As in netCDF-C, equality decides which of them a dataset has: datasets need not point
        to them.
        """
        names: dict[ElementType, str] = {}
        for link in (link for group in self._links.values() for link in group.stored):
            header = self._headers.get(link.address) if link.kind == LinkKind.HARD else None
            if header is None or DATATYPE not in header.kinds or LAYOUT in header.kinds:
                continue
            with suppress(ScanError):
                element = self.shared.decoded(header, DATATYPE, element_type)
                if element is not None:
                    names.setdefault(element, link.name.decode("utf-8", "backslashreplace"))
        return names

    def referenced_path(self, reference: bytes, *, region: bool) -> str:
        """Path of the target of a stored reference to an object or a region.

        It is empty for a null reference, or one to a deleted object.

        Source: HDF5 File Format Specification v3, IV.A.2.d "Datatype" (class 7), III.E "Global
        Heap" for the target of a reference to a region.
        """
        width = self.bytes.offset_bytes
        address = int.from_bytes(reference[:width], "little")
        if region and address:
            try:
                stored = self.heap.object(address, int.from_bytes(reference[width:], "little"))
            except ScanError:
                return ""
            address = int.from_bytes(stored[:width], "little")
        return self._paths.get(address, "") if address else ""

    @cached_property
    def _paths(self) -> dict[int, str]:
        """The path by which HDF5 finds each object first: links as they are stored, parents first.

        HDF5 finds no path through an object that it cannot read.

        Source: HDF5 Reference Manual, H5Rget_name and H5Ovisit.
        """
        root = self.bytes.root
        paths = {root: "/"}
        seen = {root}
        pending = [("", self._hard_links(root))]
        with suppress(ScanError):
            while pending:
                parent, links = pending[-1]
                link = next(links, None)
                if link is None:
                    pending.pop()
                    continue
                path = f"{parent}/{link.name.decode('utf-8', 'surrogateescape')}"
                paths.setdefault(link.address, path)
                if link.address not in seen:
                    seen.add(link.address)
                    pending.append((path, self._hard_links(link.address)))
        return paths

    def _hard_links(self, address: int) -> Iterator[Link]:
        """Hard links of a group; none for other objects."""
        links = self.links(address).stored if is_group(self.header(address)) else ()
        return (link for link in links if link.kind == LinkKind.HARD)

    def prefetch(self, links: tuple[Link, ...]) -> None:
        """Read the targets of hard links all at once, if reading is slow."""
        base = self.bytes.base_address
        self.reader.prefetch(base + link.address for link in links if link.address)

    def linked(self, url: str) -> OpenFile:
        """Another file, opened once."""
        name = _true_name(url)
        linked_file = self._first if name == self._first.true_name else self._files.get(name)
        if linked_file is None:
            with only_allowed(self.policy, url):
                scan_file = open_for_scan(url, self.options.storage_options, policy=self.policy)
            linked_file = _opened(scan_file, self.options, self._files)
        return linked_file

    def external(self, name: bytes) -> OpenFile | None:
        """The file that an external link names; None if there is none.

        Raises
        ------
        SourceFormatError
            If it is no HDF5 file, is truncated or corrupt.
        SourceUnavailableError
            If it exists but cannot be read.
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
        """Close all files of the scan, and let them go: they refer to each other."""
        for file in self._files.values():
            file.scan_file.close()
        self._files.clear()

    def place(self, variable: str | None = None) -> Place:
        """For errors about an object of the file."""
        return Place(source=self.source.url, variable=variable)


@contextmanager
def open_file(scan_file: ScanFile, options: ScanOptions) -> Iterator[OpenFile]:
    """Read the metadata of an HDF5 file; at the end it is closed, with all files that it led to."""
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
    """The file, read as its superblock extension requires, if it has one.

    Source: HDF5 File Format Specification v3, II.C "Superblock Extension", IV.A.2.u "Driver Info".
    """
    if file.extension is None:
        return file
    header = read_header(file, file.extension)
    driver = header.first(DRIVER)
    if driver is not None:
        check_driver(driver.data[1:9])
    image = header.first(CACHE_IMAGE)
    return file if image is None else with_cache_image(file, image)


# Paths to objects, through links of all kinds

_MAX_HOPS = 16  # as in HDF5


@dataclass(frozen=True, slots=True)
class Location:
    """The place of an object: the file, and the address of its header there."""

    file: OpenFile
    address: int


@dataclass(frozen=True, slots=True)
class Nowhere:
    """Why a link or a path leads to no object."""

    reason: str


def find_object(file: OpenFile, path: bytes) -> Location | Nowhere:
    """The object at the end of a path from the root of a file.

    Raises
    ------
    SourceFormatError
        If a group or a file on the way is corrupt.
    SourceUnavailableError
        If the target file of an external link cannot be read, though it may exist.
    """
    return _Search().path(Location(file, file.bytes.root), path)


def follow_link(group: Location, link: Link) -> Location | Nowhere:
    """The object that a link in a group leads to; raises as `find_object` does."""
    return _Search().link(group, link)


class _Search:
    """One search; soft and external links are followed up to a limit."""

    def __init__(self) -> None:
        self.n_left = _MAX_HOPS

    def link(self, group: Location, link: Link) -> Location | Nowhere:
        if link.kind == LinkKind.HARD:
            return Location(group.file, link.address)
        self.n_left -= 1
        if self.n_left < 0:
            return Nowhere(f"more than {_MAX_HOPS} links follow one another")
        if link.kind == LinkKind.SOFT:
            return self.path(group, link.target)
        if link.kind == LinkKind.EXTERNAL:
            file = group.file.external(link.file_name)
            if file is None:
                return Nowhere(f"there is no file {_text(link.file_name)}")
            return self.path(Location(file, file.bytes.root), link.target)
        return Nowhere(f"a link of the user-defined kind {link.kind}")

    def path(self, start: Location, path: bytes) -> Location | Nowhere:
        here = Location(start.file, start.file.bytes.root) if path.startswith(b"/") else start
        for name in path.split(b"/"):
            if name in (b"", b"."):
                continue
            if not is_group(here.file.header(here.address)):
                return Nowhere(f"{_text(path)} leads through an object that is no group")
            link = here.file.links(here.address).by_name.get(name)
            if link is None:
                return Nowhere(f"there is no object {_text(path)}")
            target = self.link(here, link)
            if isinstance(target, Nowhere):
                return target
            here = target
        return here


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
