"""The global heap: what variable-length elements, region references and mappings point to.

Source: HDF5 File Format Specification v3, III.E "Global Heap"; IV.A.2.d, "Variable-length", for the
elements that point into it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from gridref.cache import LRU
from gridref.errors import SourceFormatError
from gridref.formats.hdf5.format.alike_bytes import AlikeBytes
from gridref.formats.hdf5.format.superblock import Hdf5Bytes

__all__ = ["GlobalHeap"]

_FIRST_READ_BYTES = 4096
_KEPT_BYTES = 1 << 26
_MOST_USES_OF_A_BYTE, _MOST_USED_BYTES = 64, 1 << 26
_INTEGERS = {2: "H", 4: "I", 8: "Q"}
_WHAT = "a collection of the global heap"


@dataclass(frozen=True, slots=True)
class _Collection:
    """A collection, and first byte and length in it of each object, by number."""

    data: bytes
    objects: dict[int, tuple[int, int]]


class GlobalHeap:
    """Objects of a file's global heap; the collections that were read last are kept."""

    def __init__(self, file: Hdf5Bytes) -> None:
        self._file = file
        self._collections = LRU[_Collection](
            _KEPT_BYTES, lambda collection: len(collection.data), keeps_last=1
        )
        self._budget = _MOST_USED_BYTES + _MOST_USES_OF_A_BYTE * file.end_address
        self._last: tuple[int, _Collection | None] = -1, None
        # Number of elements, address of a collection, number of an object in it.
        self._pointer = struct.Struct(f"<I{_INTEGERS[file.offset_bytes]}I")

    @property
    def pointer_bytes(self) -> int:
        """Size of a variable-length element."""
        return self._pointer.size

    def items(self, data: bytes, count: int, itemsize: int) -> Iterator[bytes]:
        """The bytes that each of `count` variable-length elements points to.

        Parameters
        ----------
        itemsize
            Size of what each of them counts.

        Raises
        ------
        SourceFormatError
            If one points to nothing.
        """
        if len(data) < count * self.pointer_bytes:
            raise SourceFormatError(
                f"{count} variable-length elements take {count * self.pointer_bytes} bytes, and"
                f" {len(data)} are there"
            )
        pointers = data[: count * self.pointer_bytes]
        for length, address, index in self._pointer.iter_unpack(pointers):
            yield self._item(address, index, length * itemsize) if length and address else b""

    def texts(self, data: bytes, count: int) -> Iterator[bytes]:
        """The strings that each of `count` elements points to; they end at a zero byte."""
        return (item.partition(b"\0")[0] for item in self.items(data, count, 1))

    def object(self, address: int, index: int) -> bytes:
        """An object by the address of its collection and its number there.

        Raises
        ------
        SourceFormatError
            If there is none.
        """
        collection = self._collection(address)
        extent = collection.objects.get(index)
        if extent is None:
            raise SourceFormatError(
                f"object {index} of the global heap is not there", self._file.place(address)
            )
        start, length = extent
        self._spend(length, address)
        return collection.data[start : start + length]

    def _item(self, address: int, index: int, n_bytes: int) -> bytes:
        collection = self._collection(address)
        start, length = collection.objects.get(index, (0, -1))
        if length < n_bytes:
            raise SourceFormatError(
                f"object {index} of the global heap is not there, or has not {n_bytes} bytes",
                self._file.place(address),
            )
        self._spend(n_bytes, address)
        return collection.data[start : start + n_bytes]

    def _spend(self, n_bytes: int, address: int) -> None:
        """Bound what may be made of a file in which many elements point to the same bytes."""
        self._budget -= n_bytes
        if self._budget < 0:
            raise SourceFormatError(
                "the global heap is used for more than it can hold", self._file.place(address)
            )

    def _collection(self, address: int) -> _Collection:
        last_address, last = self._last
        if address == last_address and last is not None:
            return last
        collection = self._collections.get_or_load(address, lambda: self._read(address))
        self._last = address, collection
        return collection

    def _read(self, address: int) -> _Collection:
        file, width = self._file, self._file.length_bytes
        available = max(0, file.end_address - address)
        head = file.read(address, min(_FIRST_READ_BYTES, available), _WHAT)
        if head[:5] != b"GCOL\x01" or len(head) < 8 + width:
            raise SourceFormatError("the global heap has no collection here", file.place(address))
        size = int.from_bytes(head[8 : 8 + width], "little")
        file.check_range(address, size, _WHAT)
        self._spend(max(size, len(head)), address)
        data = head[:size] if size <= len(head) else file.read(address, size, _WHAT)
        objects = _known_objects.get(width, data)
        return _Collection(data, _objects(data, 8 + width, width) if objects is None else objects)


_known_objects = AlikeBytes[dict[int, tuple[int, int]]](lambda objects: 200 * len(objects))


def _objects(data: bytes, position: int, width: int) -> dict[int, tuple[int, int]]:
    """First byte and length of each object of a collection that lies inside of it."""
    objects: dict[int, tuple[int, int]] = {}
    differing: list[slice] = []
    header_bytes = 8 + width
    while position + header_bytes <= len(data):
        index = int.from_bytes(data[position : position + 2], "little")
        start = position + header_bytes
        length = int.from_bytes(data[position + 8 : start], "little")
        if index == 0:  # free space, whose length includes its header
            if length < header_bytes:
                break
            differing.append(slice(start, min(position + length, len(data))))
            position += length
            continue
        if start + length > len(data):
            break
        objects[index] = start, length
        position = start + -(-length // 8) * 8
        differing.append(slice(start, min(position, len(data))))
    return _known_objects.put(width, data, differing, objects)
