"""The files of an OME-TIFF set. They name each other relative to the folder that they are in.

Source: OME-TIFF specification, "Multi-file OME-TIFF filesets" (``TiffData/UUID/FileName``).
"""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Self, override

from gridref.errors import SourceFormatError, SourceUnavailableError
from gridref.formats.location import only_allowed
from gridref.formats.options import ScanOptions
from gridref.io import ScanFile, beside, is_absent, open_for_scan, policy_for
from gridref.io.scan_file import SeekableFile
from gridref.model.manifest import Source

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


_ALWAYS_READS, _BYTES_A_READ = 10_000, 4
"""Most reads of a file: so many, and one more for so many of its bytes."""

_MAX_OPEN = 64


class FileSet:
    """A file and others beside it, opened when they are needed.

    Parameters
    ----------
    options
        Options of the scan: the folders besides its own that other files may be in.

    Attributes
    ----------
    missing
        Requested names without a file.
    """

    def __init__(self, first: ScanFile, options: ScanOptions | None = None) -> None:
        self.first = first
        self.missing: list[str] = []
        self._options = options or ScanOptions()
        self._members: dict[str, MemberFile] = {}
        self._open: OrderedDict[str, ScanFile] = OrderedDict()

    def member(self, name: str) -> MemberFile | None:
        """A file by its name relative to the first one's folder; None if there is none.

        Names that lead out of the folder are not followed.

        Raises
        ------
        SourceUnavailableError
            If it exists but cannot be reached or read.
        UnsupportedFeatureError
            If it may not be read, because it is a symbolic link to another folder.
        """
        if name not in self._members:
            parts = name.replace("\\", "/").split("/")
            try:
                if not name or ".." in parts or "://" in name or os.path.isabs(name):
                    raise FileNotFoundError(name)
                self._members[name] = MemberFile(self, name, self.opened(name).source)
            except (FileNotFoundError, SourceUnavailableError) as error:
                if not is_absent(error):
                    raise
                self.missing.append(name)
                return None
        return self._members[name]

    def opened(self, name: str) -> ScanFile:
        """A file, open; if too many are open, the least recently used one is closed."""
        if name not in self._open:
            address = beside(self.first.name, name)
            policy = policy_for(self.first.name, self._options.allow)
            with only_allowed(policy, address):
                self._open[name] = open_for_scan(
                    address, self._options.storage_options, policy=policy
                )
            if len(self._open) > _MAX_OPEN:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(name)
        return self._open[name]

    def close(self) -> None:
        """Close the files beside the first one."""
        while self._open:
            self._open.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class MemberFile(SeekableFile):
    """A seekable file of a set, which is opened again after it had to be closed."""

    def __init__(self, files: FileSet, member: str, source: Source) -> None:
        super().__init__()
        self.source = source
        self._files = files
        self._member = member
        self._position = 0

    @property
    def scan_file(self) -> ScanFile:
        """The open file, valid until another member is requested."""
        return self._files.opened(self._member)

    @property
    def name(self) -> str:
        """The address of the file."""
        return self.source.url

    @override
    def tell(self) -> int:
        return self._position

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_CUR:
            offset, whence = self._position + offset, io.SEEK_SET
        self._position = self.scan_file.seek(offset, whence)
        return self._position

    @override
    def readinto(self, buffer: WriteableBuffer, /) -> int:
        file = self.scan_file
        file.seek(self._position)
        n_read = file.readinto(buffer)
        self._position += n_read
        return n_read


class BoundedFile(SeekableFile):
    """A stream that ends after more reads than a file of its size can need.

    Directories of a valid file do not overlap. tifffile takes the last bytes of a truncated
    directory for the offset of the next, and may continue without end.
    """

    def __init__(self, stream: ScanFile | MemberFile) -> None:
        super().__init__()
        self._stream = stream
        self._n_left = _ALWAYS_READS + (stream.source.size_bytes or 0) // _BYTES_A_READ

    @override
    def tell(self) -> int:
        return self._stream.tell()

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._stream.seek(offset, whence)

    @override
    def read(self, size: int | None = -1, /) -> bytes | None:
        self._count()
        return self._stream.read(-1 if size is None else size)

    @override
    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        self._count()
        return self._stream.readinto(buffer)

    def _count(self) -> None:
        self._n_left -= 1
        if self._n_left < 0:
            raise SourceFormatError("directories of the file overlap, or go round in circles")
