"""Local heaps: the names of old groups, and of external files.

Source: HDF5 File Format Specification v3, III.D "Local Heaps".
"""

from __future__ import annotations

from gridref.formats.hdf5.format.superblock import Hdf5Bytes

__all__ = ["LocalHeap"]

_NO_FREE_PIECE = 1


class LocalHeap:
    """The strings of a local heap, each of which is taken once.

    Raises
    ------
    SourceFormatError
        If it is corrupt.
    """

    def __init__(self, file: Hdf5Bytes, address: int) -> None:
        structure = "the local heap"
        n_bytes = 8 + 2 * file.length_bytes + file.offset_bytes
        cursor = file.read_fields(address, n_bytes, structure)
        cursor.expect(b"HEAP\0", "signature and version")
        cursor.take_bytes(3)
        size, free = cursor.take(file.length_bytes), cursor.take(file.length_bytes)
        self._data = file.read(cursor.take(file.offset_bytes), size, structure)
        self._cursor = cursor
        self._n_left = 2 * size
        self._check_free_list(free, file.length_bytes)

    def _check_free_list(self, first: int, width: int) -> None:
        """HDF5 reads no string of a heap whose free pieces are not as they should be."""
        piece, n_pieces = first, 0
        while piece != _NO_FREE_PIECE:
            ends = [piece + 2 * width]
            if ends[0] <= len(self._data):
                size = int.from_bytes(self._data[piece + width : ends[0]], "little")
                ends.append(piece + size)
            n_pieces += 1
            if max(ends) > len(self._data) or n_pieces * 2 * width > len(self._data):
                raise self._cursor.error(f"has a bad list of free pieces, at {piece}")
            piece = int.from_bytes(self._data[piece : piece + width], "little")

    def text(self, offset: int) -> bytes:
        """The string that begins at an offset.

        Raises
        ------
        SourceFormatError
            If there is none, or strings of more bytes than the heap has were taken.
        """
        stop = self._data.find(b"\0", offset)
        if stop < 0:
            raise self._cursor.error(f"has no string at {offset}")
        self._n_left -= stop - offset + 1
        if self._n_left < 0:
            raise self._cursor.error("has strings that overlap")
        return self._data[offset:stop]
