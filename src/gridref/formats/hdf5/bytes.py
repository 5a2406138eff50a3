"""Read the bytes of an HDF5 file: superblock, addresses and checksums.

`ByteReader` is all that the HDF5 modules need of a file. `read_superblock` takes one, finds the
superblock, and returns `Hdf5Bytes`, which knows the base address and the widths of addresses and
lengths, and checks each read against them. `FieldCursor` reads the fields of a structure in order.

Newer structures (version 2 object headers, fixed and extensible arrays, version 2 B-trees, fractal
heaps) end with a checksum: Bob Jenkins'
`lookup3 <https://www.burtleburtle.net/bob/hash/doobs.html>`_, ``hashlittle`` with an initial value
of 0, on bytes taken as little-endian words. numcodecs has a compiled version.

Source: HDF5 File Format Specification v3, "I.A. This Document".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
from numcodecs.jenkins import jenkins_lookup3
from numpy.typing import NDArray

from gridref.errors import Place, SourceFormatError, UnsupportedFeatureError

# Random access to the bytes of a file


class ByteReader(Protocol):
    """Bytes of one file, by offset from its first byte.

    Callers never ask for bytes beyond `size_bytes`. A reader that cannot deliver all requested
    bytes raises a `gridref.errors.GridrefError`.
    """

    @property
    def size_bytes(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on."""
        ...

    def read_many(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Several reads at once, in the given order."""
        ...


# The checksum of metadata, for one block or for many at once


def lookup3(data: bytes) -> int:
    """Checksum of one block of metadata.

    Parameters
    ----------
    data
        The block without the checksum that follows it.
    """
    return int(jenkins_lookup3(data, 0))


def lookup3_rows(rows: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Checksums of many blocks of metadata.

    Parameters
    ----------
    rows
        (n, width) one block a row.
    lengths
        (n,) number of bytes of each row that count.

    Returns
    -------
    NDArray[np.uint32]
        (n,) checksums.
    """
    width, data = rows.shape[1], rows.tobytes()
    starts = range(0, len(data), width)
    pieces = (data[start : start + n] for start, n in zip(starts, lengths.tolist(), strict=True))
    return np.fromiter(map(lookup3, pieces), np.uint32, len(rows))


# The superblock, and addresses and fields of the widths that it states

SIGNATURE = b"\x89HDF\r\n\x1a\n"
"""The first bytes of an HDF5 file, or of its part after a user block."""

_DEFAULT_CHUNK_BTREE_K = 32
CHECKSUM_BYTES = 4
"""Size of the checksum at the end of newer structures."""
_PARTIAL_DRIVERS = {b"NCSAfami": ("family", "h5repart"), b"NCSAmult": ("multi", "h5repack")}
"""Drivers that spread a file over several, and the tool that makes one of them."""
_DRIVER_BYTES = 64  # hold the name of the driver, also within an object header
_ENDLESS = 1 << 64
_MOST_BYTES = 88  # of a superblock after its signature
_OPEN_FOR_WRITING, _OPEN_FOR_SWMR = 0x01, 0x04


@dataclass(frozen=True, slots=True, eq=False)
class Hdf5Bytes:
    """The bytes of an HDF5 file, by the addresses that the file itself uses.

    Attributes
    ----------
    base_address
        Offset in the file of address 0: the size of the user block.
    offset_bytes, length_bytes
        Width of an address and of a length in the file's metadata.
    chunk_btree_k
        Half of the most entries that a node of a chunk B-tree (version 1) is expected to hold. It
        only says how much of a node is worth reading at once.
    root
        Address of the header of the root group.
    declared_end
        First address after the end of the file that the superblock states.
    extension
        Address of the header of the superblock extension; None if there is none.
    end_address
        First address after the file; HDF5 reads nothing from there on.
    """

    reader: ByteReader
    base_address: int
    offset_bytes: int
    length_bytes: int
    chunk_btree_k: int = _DEFAULT_CHUNK_BTREE_K
    root: int = 0
    declared_end: int = _ENDLESS
    extension: int | None = None
    end_address: int = field(init=False)

    def __post_init__(self) -> None:
        end = min(self.declared_end, self.reader.size_bytes - self.base_address)
        object.__setattr__(self, "end_address", end)

    @property
    def undefined_address(self) -> int:
        """The address that means "nowhere": all bits set."""
        return (1 << (8 * self.offset_bytes)) - 1

    def place(self, address: int, length: int = 0) -> Place:
        """Byte range in the file, for error messages."""
        start = address + self.base_address
        return Place(start=start, stop=start + length)

    def check_range(self, address: int, length: int, structure: str) -> None:
        """Raise unless the range is inside the file."""
        if length < 0 or address < 0 or address + length > self.end_address:
            raise SourceFormatError(
                f"{structure} lies outside of the file of size {self.reader.size_bytes}",
                self.place(address, length),
            )

    def read(self, address: int, length: int, structure: str) -> bytes:
        """Exactly `length` bytes from `address` on; `structure` names them in errors."""
        if not 0 <= length <= self.end_address - address or address < 0:  # asked very often
            self.check_range(address, length, structure)
        data = self.reader.read(address + self.base_address, length)
        if len(data) != length:
            raise SourceFormatError(f"{structure} is cut off", self.place(address, length))
        return data

    def read_start(self, address: int, length: int, structure: str) -> bytes:
        """Up to `length` bytes from `address` on: fewer where the file ends before."""
        return self.read(address, min(length, max(0, self.end_address - address)), structure)

    def read_fields(self, address: int, length: int, structure: str) -> FieldCursor:
        """The fields of the `length` bytes from `address` on, as `read` gives them."""
        data = self.read(address, length, structure)
        return FieldCursor(data, structure, partial(self.place, address, length))

    def read_checked(self, address: int, length: int, structure: str) -> FieldCursor:
        """`length` bytes without the checksum at their end, which is verified."""
        data = self.read(address, length, structure)
        place = partial(self.place, address, length)
        return FieldCursor(self.verified(data, address, structure), structure, place)

    def verified(self, data: bytes, address: int, structure: str) -> bytes:
        """A piece of metadata read from `address` without its checksum, which is verified."""
        body, stored = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
        if len(stored) < CHECKSUM_BYTES or lookup3(body) != int.from_bytes(stored, "little"):
            raise SourceFormatError(
                f"the checksum of {structure} is wrong", self.place(address, len(data))
            )
        return body

    def read_rows(
        self, addresses: NDArray[np.int64], length: int, structure: str, *, padded: bool = False
    ) -> NDArray[np.uint8]:
        """`length` bytes from each address on, as (n, length); zeros after the file if `padded`."""
        if not len(addresses):
            return np.empty((0, length), np.uint8)
        last = int(addresses.max())
        for address in (int(addresses.min()), last):
            self.check_range(address, 0 if padded else length, structure)
        lengths = np.minimum(length, self.end_address - addresses).tolist()
        pieces = self.reader.read_many((addresses + self.base_address).tolist(), lengths)
        if [len(piece) for piece in pieces] != lengths:
            raise SourceFormatError(f"{structure} is cut off", self.place(last, length))
        if min(lengths) < length:
            pieces = [piece.ljust(length, b"\0") for piece in pieces]
        return np.frombuffer(b"".join(pieces), np.uint8).reshape(len(pieces), length)


class FieldCursor:
    """Takes little-endian fields off a piece of metadata, one after the other.

    Parameters
    ----------
    place
        Its byte range in the file, or a function that returns it when it is needed.
    """

    def __init__(self, data: bytes, structure: str, place: Place | Callable[[], Place]) -> None:
        self.data = data
        self.structure = structure
        self._place = place
        self.position = 0

    @property
    def place(self) -> Place:
        """The byte range in the file."""
        return self._place if isinstance(self._place, Place) else self._place()

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
        stored = self.take_bytes(len(value))
        if stored != value:
            raise self.error(f"has the {name} {stored!r} instead of {value!r}")

    def error(self, reason: str) -> SourceFormatError:
        return SourceFormatError(f"{self.structure} {reason}", self.place)


def read_superblock(reader: ByteReader) -> Hdf5Bytes:
    """Find and read the superblock (HDF5 File Format Specification v3, II.A).

    Addresses count from the superblock, wherever it is, whatever base address it declares: so
    does the HDF5 library, as a user block may have been added or cut off after writing.
    """
    base_address = _locate_signature(reader)
    start = base_address + len(SIGNATURE)
    data = reader.read(start, min(_MOST_BYTES, reader.size_bytes - start))
    cursor = FieldCursor(
        data, "the HDF5 superblock", Place(start=base_address, stop=start + len(data))
    )
    version = cursor.take(1)
    if version in (0, 1):
        return _read_old(reader, base_address, cursor, version)
    if version in (2, 3):
        return _read_new(reader, base_address, cursor, version)
    raise UnsupportedFeatureError(f"the superblock has the unknown version {version}", cursor.place)


def _read_old(
    reader: ByteReader, base_address: int, cursor: FieldCursor, version: int
) -> Hdf5Bytes:
    """Versions 0 and 1, which end with the symbol table entry of the root group."""
    # Versions of the free space, of the root group, a reserved byte, of shared messages.
    cursor.expect(bytes(2), "versions of free space and root group")
    cursor.take(1)
    cursor.expect(bytes(1), "version of shared messages")
    offset_bytes, length_bytes = _widths(cursor)
    # A reserved byte, group leaf and internal node K, consistency flags.
    cursor.take_bytes(1 + 2 + 2 + 4)
    chunk_btree_k = _DEFAULT_CHUNK_BTREE_K
    if version == 1:
        chunk_btree_k = max(1, cursor.take(2))
        cursor.take(2)
    declared, _, end, driver = (cursor.take(offset_bytes) for _ in range(4))
    cursor.take(length_bytes)  # the name of the root group
    root = cursor.take(offset_bytes)
    file = Hdf5Bytes(
        reader, base_address, offset_bytes, length_bytes, chunk_btree_k, root, end - declared
    )
    _check_complete(file, driver)
    if driver != file.undefined_address:
        check_driver(file.read(driver, 16, "the driver information")[8:])
    return file


def _read_new(
    reader: ByteReader, base_address: int, cursor: FieldCursor, version: int
) -> Hdf5Bytes:
    """Versions 2 and 3, which have a checksum."""
    offset_bytes, length_bytes = _widths(cursor)
    flags = cursor.take(1)
    declared, extension, end, root = (cursor.take(offset_bytes) for _ in range(4))
    file = Hdf5Bytes(
        reader,
        base_address,
        offset_bytes,
        length_bytes,
        root=root,
        declared_end=end - declared,
        extension=None if extension == (1 << 8 * offset_bytes) - 1 else extension,
    )
    n_bytes = len(SIGNATURE) + 4 + 4 * offset_bytes + CHECKSUM_BYTES
    file.read_checked(0, n_bytes, "the HDF5 superblock")
    _check_complete(file, extension)
    if version >= 3 and flags & (_OPEN_FOR_WRITING | _OPEN_FOR_SWMR):
        # HDF5 refuses it if it locks files.
        raise SourceFormatError(
            "a writer has the file open or did not close it; if none is running, repair it with"
            " h5clear --status",
            file.place(len(SIGNATURE) + 3, 1),
        )
    return file


def _widths(cursor: FieldCursor) -> tuple[int, int]:
    offset_bytes, length_bytes = cursor.take(1), cursor.take(1)
    for name, width in (("offsets", offset_bytes), ("lengths", length_bytes)):
        if width not in (2, 4, 8):
            raise cursor.error(f"declares {name} of {width} bytes; 2, 4 and 8 can be read")
    return offset_bytes, length_bytes


def _check_complete(file: Hdf5Bytes, driver: int) -> None:
    """Raise if the file is shorter than its superblock states.

    Parameters
    ----------
    driver
        Address of the driver information, or of the object header that holds it. The first file
        of a family is as short as the others, and declares the size of all together.
    """
    reader, end = file.reader, file.base_address + file.declared_end
    if reader.size_bytes >= end:
        return
    if driver < file.end_address:
        near = file.read_start(driver, _DRIVER_BYTES, "the driver information")
        for name in _PARTIAL_DRIVERS:
            if name in near:
                check_driver(name)
    raise SourceFormatError(
        f"the file is truncated: it has {reader.size_bytes} of {end} bytes",
        Place(start=reader.size_bytes, stop=end),
    )


def check_driver(name: bytes) -> None:
    """Raise if the driver that wrote the file spreads it over several files."""
    if name in _PARTIAL_DRIVERS:
        driver, tool = _PARTIAL_DRIVERS[name]
        raise UnsupportedFeatureError(
            f"HDF5's {driver} driver wrote several files, and this is one of them: make one file of"
            f" all with {tool}"
        )


def _locate_signature(reader: ByteReader) -> int:
    """Look at 0, 512, 1024, 2048, and so on."""
    candidate = 0
    while candidate + len(SIGNATURE) <= reader.size_bytes:
        if reader.read(candidate, len(SIGNATURE)) == SIGNATURE:
            return candidate
        candidate = max(512, 2 * candidate)
    raise SourceFormatError("the file has no HDF5 signature", Place(start=0))
