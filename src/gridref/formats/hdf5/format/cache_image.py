"""Metadata cache images: metadata that is kept in one piece, and may be newer than in its place.

Source: HDF5 1.10 on, ``H5Cimage.c`` ("Metadata Cache Image block") and ``H5Omdci.c``; the HDF5 File
Format Specification v3, IV.A.2, has neither.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gridref.formats.hdf5.format.bytes_view import ByteReader
from gridref.formats.hdf5.format.object_header import HeaderMessage
from gridref.formats.hdf5.format.superblock import FieldCursor, Hdf5Bytes

__all__ = ["with_cache_image"]

_IMAGE = "the image of the metadata cache"


def with_cache_image(file: Hdf5Bytes, message: HeaderMessage) -> Hdf5Bytes:
    """A file whose metadata is what its image has, where the image has it.

    Parameters
    ----------
    file
        The file.
    message
        What its superblock extension says about the image.

    Raises
    ------
    SourceFormatError
        If the image is corrupt.
    """
    place = file.place(message.address, len(message.data))
    cursor = FieldCursor(message.data, "the message about the metadata cache", place)
    cursor.expect(b"\0", "version")
    address, length = cursor.take(file.offset_bytes), cursor.take(file.length_bytes)
    if address == file.undefined_address or not length:
        return file
    entries = dict(_entries(file, file.read_checked(address, length, _IMAGE)))
    return replace(file, reader=_Overlaid(file.reader, entries))


def _entries(file: Hdf5Bytes, cursor: FieldCursor) -> Iterator[tuple[int, bytes]]:
    """Offset in the file and bytes of each piece of metadata."""
    cursor.expect(b"MDCI\0", "signature and version")
    cursor.take(1)  # whether the cache's settings are kept, too
    cursor.take(file.length_bytes)
    for _ in range(cursor.take(4)):
        # Type, flags, ring and age; how many entries depend on it, and how many of them are dirty.
        cursor.take_bytes(4 + 2 + 2)
        n_parents = cursor.take(2)
        cursor.take_bytes(4)  # its rank among those that were used last
        address, length = cursor.take(file.offset_bytes), cursor.take(file.length_bytes)
        file.check_range(address, length, "metadata in " + _IMAGE)
        cursor.take_bytes(n_parents * file.offset_bytes)
        yield file.base_address + address, cursor.take_bytes(length)


class _Overlaid:
    """Bytes of a file in which pieces are replaced.

    Parameters
    ----------
    reader
        The file.
    pieces
        What is there instead, by offset; none overlaps with another.
    """

    def __init__(self, reader: ByteReader, pieces: Mapping[int, bytes]) -> None:
        self._reader = reader
        self._pieces = [pieces[start] for start in sorted(pieces)]
        self._starts = sorted(pieces)

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self._reader.size_bytes

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on."""
        return self._overlay(offset, self._reader.read(offset, length))

    def read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Several reads at once."""
        return list(map(self._overlay, offsets, self._reader.read_many(offsets, lengths)))

    def _overlay(self, offset: int, data: bytes) -> bytes:
        stop = offset + len(data)
        first = max(0, bisect_right(self._starts, offset) - 1)
        for start, piece in zip(self._starts[first:], self._pieces[first:], strict=True):
            if start >= stop:
                break
            if start + len(piece) > offset:
                inside = piece[max(0, offset - start) : stop - start]
                at = max(0, start - offset)
                data = data[:at] + inside + data[at + len(inside) :]
        return data
