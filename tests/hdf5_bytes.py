"""HDF5 files below the scanner: their bytes, and the layout of one dataset."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from gridref.errors import Place, SourceUnavailableError
from gridref.formats.hdf5.bytes import Hdf5Bytes
from gridref.formats.hdf5.headers import DataLayout, data_layout_of, read_header

__all__ = ["BufferReader", "LocalReader", "read_data_layout"]


class LocalReader:
    """A local file, read by position.

    The file is not mapped into memory: a file that shrinks while it is mapped kills the process.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    SourceUnavailableError
        If it cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            self._size_bytes = os.fstat(self._descriptor).st_size
        except OSError as error:
            raise SourceUnavailableError(
                f"cannot open the file: {error.strerror}", Place(source=str(path))
            ) from error

    @property
    def size_bytes(self) -> int:
        """Size of the file when it was opened."""
        return self._size_bytes

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on; fewer only if the file shrank."""
        try:
            return os.pread(self._descriptor, length, offset)
        except OSError as error:
            raise self._unavailable(error, offset, length) from error

    def read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Several reads, in the given order."""
        pread, descriptor = os.pread, self._descriptor
        try:
            return [
                pread(descriptor, length, offset)
                for offset, length in zip(offsets, lengths, strict=True)
            ]
        except OSError as error:
            raise self._unavailable(error, min(offsets), max(lengths)) from error

    def close(self) -> None:
        """Close the file. Closing twice does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _unavailable(self, error: OSError, offset: int, length: int) -> SourceUnavailableError:
        place = Place(source=str(self._path), start=offset, stop=offset + length)
        return SourceUnavailableError(f"cannot read the file: {error.strerror}", place)


class BufferReader:
    """A file that is in memory already."""

    def __init__(self, buffer: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(buffer).cast("B")

    @property
    def size_bytes(self) -> int:
        """Size of the buffer."""
        return len(self._view)

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on."""
        return bytes(self._view[offset : offset + length])

    def read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Several reads, in the given order."""
        view = self._view
        return [
            bytes(view[offset : offset + length])
            for offset, length in zip(offsets, lengths, strict=True)
        ]


def read_data_layout(file: Hdf5Bytes, header_address: int) -> DataLayout:
    """The layout of the dataset whose object header lies at `header_address`.

    Raises
    ------
    SourceFormatError, UnsupportedFeatureError
        As `data_layout_of`.
    """
    return data_layout_of(file, read_header(file, header_address).messages, header_address)
