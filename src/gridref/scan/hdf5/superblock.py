"""Where the addresses of an HDF5 file begin, and how wide they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError
from gridref.scan.hdf5.bytes_view import ByteReader

__all__ = ["FieldCursor", "Hdf5Bytes", "read_superblock"]

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_DEFAULT_CHUNK_BTREE_K = 32


@dataclass(frozen=True, slots=True)
class Hdf5Bytes:
    """The bytes of an HDF5 file, by the addresses that the file itself uses.

    Attributes
    ----------
    reader
        The file.
    base_address
        Offset in the file of address 0: the size of the user block.
    offset_bytes, length_bytes
        Width of an address and of a length in the file's metadata.
    chunk_btree_k
        Half of the most entries that a node of a chunk B-tree (version 1) is expected to hold. It
        only says how much of a node is worth reading at once.
    """

    reader: ByteReader
    base_address: int
    offset_bytes: int
    length_bytes: int
    chunk_btree_k: int = _DEFAULT_CHUNK_BTREE_K

    @property
    def undefined_address(self) -> int:
        """The address that means "nowhere": all bits set."""
        return (1 << (8 * self.offset_bytes)) - 1

    @property
    def end_address(self) -> int:
        """First address behind the file."""
        return self.reader.size_bytes - self.base_address

    def place(self, address: int, length: int = 0) -> Place:
        """Byte range in the file, for error messages."""
        start = address + self.base_address
        return Place(start=start, stop=start + length)

    def check_range(self, address: int, length: int, what: str) -> None:
        """Raise unless the range lies inside the file."""
        if length < 0 or address < 0 or address + length > self.end_address:
            raise SourceFormatError(
                f"{what} lies outside of the file of {self.reader.size_bytes} bytes",
                self.place(address, length),
            )

    def read(self, address: int, length: int, what: str) -> bytes:
        """Exactly `length` bytes from `address` on; `what` names them in errors.

        Raises
        ------
        SourceFormatError
            If they are not all inside the file.
        """
        self.check_range(address, length, what)
        data = self.reader.read(address + self.base_address, length)
        if len(data) != length:
            raise SourceFormatError(f"{what} is cut off", self.place(address, length))
        return data

    def read_rows(self, addresses: NDArray[np.int64], length: int, what: str) -> NDArray[np.uint8]:
        """Exactly `length` bytes from each address on, as (n, length).

        Raises
        ------
        SourceFormatError
            If they are not all inside the file.
        """
        if not len(addresses):
            return np.empty((0, length), np.uint8)
        self.check_range(int(addresses.min()), length, what)
        self.check_range(int(addresses.max()), length, what)
        return self._rows(addresses, length, [length] * len(addresses), what)

    def read_row_starts(
        self, addresses: NDArray[np.int64], length: int, what: str
    ) -> NDArray[np.uint8]:
        """Up to `length` bytes from each address on, as (n, length), with zeros behind the file."""
        if not len(addresses):
            return np.empty((0, length), np.uint8)
        self.check_range(int(addresses.min()), 0, what)
        self.check_range(int(addresses.max()), 0, what)
        lengths = np.minimum(length, self.end_address - addresses).tolist()
        return self._rows(addresses, length, lengths, what)

    def _rows(
        self, addresses: NDArray[np.int64], length: int, lengths: list[int], what: str
    ) -> NDArray[np.uint8]:
        offsets = (addresses + self.base_address).tolist()
        pieces = self.reader.read_many(offsets, lengths)
        if [len(piece) for piece in pieces] != lengths:
            raise SourceFormatError(f"{what} is cut off", self.place(int(addresses.max()), length))
        if min(lengths) < length:
            pieces = [piece.ljust(length, b"\0") for piece in pieces]
        return np.frombuffer(b"".join(pieces), np.uint8).reshape(len(offsets), length)


class FieldCursor:
    """Takes little-endian fields off a piece of metadata, one after the other.

    Parameters
    ----------
    data
        The piece of metadata.
    what
        Its name in errors.
    place
        Its byte range in the file.
    """

    def __init__(self, data: bytes, what: str, place: Place) -> None:
        self.data = data
        self.what = what
        self.place = place
        self.position = 0

    def take(self, n_bytes: int) -> int:
        """The next field, an unsigned integer of `n_bytes` bytes."""
        return int.from_bytes(self.take_bytes(n_bytes), "little")

    def take_bytes(self, n_bytes: int) -> bytes:
        """The next `n_bytes` bytes."""
        stop = self.position + n_bytes
        if stop > len(self.data):
            raise self.error("is cut off")
        field = self.data[self.position : stop]
        self.position = stop
        return field

    def expect(self, value: bytes, name: str) -> None:
        """Take as many bytes as `value` has and raise unless they are `value`."""
        found = self.take_bytes(len(value))
        if found != value:
            raise self.error(f"has the {name} {found!r} instead of {value!r}")

    def error(self, reason: str) -> SourceFormatError:
        """An error about this piece of metadata."""
        return SourceFormatError(f"{self.what} {reason}", self.place)


def read_superblock(reader: ByteReader) -> Hdf5Bytes:
    """Find and read the superblock (HDF5 File Format Specification v3, II.A).

    Addresses count from the superblock, wherever it lies, whatever base address it declares: so
    does the HDF5 library, as a user block may have been added or cut off after writing.

    Raises
    ------
    SourceFormatError
        If there is none, or it contradicts itself.
    UnsupportedFeatureError
        If it is of an unknown version.
    """
    base_address = _locate_signature(reader)
    start = base_address + len(_SIGNATURE)
    data = reader.read(start, min(24, reader.size_bytes - start))
    cursor = FieldCursor(data, "the superblock", Place(start=base_address, stop=start + len(data)))
    version = cursor.take(1)
    chunk_btree_k = _DEFAULT_CHUNK_BTREE_K
    if version in (0, 1):
        # Versions of the free space, of the root group, a reserved byte, of shared messages.
        cursor.take_bytes(4)
        offset_bytes, length_bytes = cursor.take(1), cursor.take(1)
        if version == 1:
            # A reserved byte, group leaf and internal node K, consistency flags.
            cursor.take_bytes(1 + 2 + 2 + 4)
            chunk_btree_k = max(1, cursor.take(2))
    elif version in (2, 3):
        offset_bytes, length_bytes = cursor.take(1), cursor.take(1)
    else:
        raise UnsupportedFeatureError(
            f"the superblock has the unknown version {version}", cursor.place
        )
    for name, width in (("offsets", offset_bytes), ("lengths", length_bytes)):
        if width not in (2, 4, 8):
            raise cursor.error(f"declares {name} of {width} bytes; 2, 4 and 8 can be read")
    return Hdf5Bytes(reader, base_address, offset_bytes, length_bytes, chunk_btree_k)


def _locate_signature(reader: ByteReader) -> int:
    """Look at 0, 512, 1024, 2048, and so on."""
    candidate = 0
    while candidate + len(_SIGNATURE) <= reader.size_bytes:
        if reader.read(candidate, len(_SIGNATURE)) == _SIGNATURE:
            return candidate
        candidate = max(512, 2 * candidate)
    raise SourceFormatError("the file has no HDF5 signature", Place(start=0))
