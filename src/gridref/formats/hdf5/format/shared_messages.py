"""Header messages that several objects share: committed datatypes, and those in the file's heaps.

Source: HDF5 File Format Specification v3, II.C "Superblock Extension", III.H "Shared Object Header
Message Table", IV.A.2.p "Shared Message Table Message", and "Shared Message" in IV.A.2 for the body
that stands for a shared message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gridref.errors import ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.fractal_heap import FractalHeap
from gridref.formats.hdf5.format.object_header import HeaderMessage, read_header
from gridref.formats.hdf5.format.superblock import FieldCursor, Hdf5Bytes

__all__ = ["SharedMessages"]

_TABLE_MESSAGE = 0x0F
_IN_HEAP = 1
_HEAP_ID_BYTES = 8
_INDEX_BYTES = 14  # of an index in the table, without its two addresses
_MOST_INDEXES = 8


class SharedMessages:
    """Header messages, wherever they really lie; what is shared is looked up once."""

    def __init__(self, file: Hdf5Bytes) -> None:
        self.file = file
        self._resolved: dict[tuple[int, bytes], HeaderMessage] = {}
        self._heaps: dict[int, FractalHeap] = {}

    def resolved(self, message: HeaderMessage) -> HeaderMessage:
        """The message that a shared one stands for; the message itself if it is not shared.

        Looked up once for each body: many datasets may share one datatype.

        Raises
        ------
        SourceFormatError
            If it is not where it should be.
        UnsupportedFeatureError
            If it is shared in an unknown way.
        """
        if not message.is_shared:
            return message
        key = message.kind, message.data
        original = self._resolved.get(key)
        if original is None:
            original = self._resolved[key] = self._resolve(message)
        return original

    def decoded[T](
        self, messages: Iterable[HeaderMessage], kind: int, decode: Callable[[bytes], T]
    ) -> T | None:
        """What the first message of a kind says; None if there is none.

        Raises
        ------
        SourceFormatError, UnsupportedFeatureError
            What `decode` raises, with the message's place in the file.
        """
        for message in messages:
            if message.kind == kind:
                try:
                    return decode(self.resolved(message).data)
                except ScanError as error:
                    place = self.file.place(message.address, len(message.data))
                    raise error.located(place) from error.__cause__
        return None

    def in_heap(self, kind: int, heap_id: bytes) -> bytes:
        """The body of a message of some type in the heap for shared messages of this type.

        Raises
        ------
        SourceFormatError
            If it is not there.
        """
        heap = self._heaps.get(kind)
        if heap is None:
            heap = self._heaps[kind] = FractalHeap(self.file, _heap_address(self.file, kind))
        return heap.get(heap_id)

    def _resolve(self, message: HeaderMessage) -> HeaderMessage:
        file = self.file
        place = file.place(message.address, len(message.data))
        cursor = FieldCursor(message.data, "a shared message", place)
        version, kind = cursor.take(1), cursor.take(1)
        if version not in (1, 2, 3):
            raise UnsupportedFeatureError(
                f"a shared message has the unknown version {version}", place
            )
        if version == 3 and kind == _IN_HEAP:
            data = self.in_heap(message.kind, cursor.take_bytes(_HEAP_ID_BYTES))
            return message._replace(data=data, is_shared=False)
        if version == 1:
            cursor.take_bytes(6 + file.length_bytes)
        address = cursor.take(file.offset_bytes)
        original = read_header(file, address).first(message.kind)
        if original is None or original.is_shared:
            raise SourceFormatError(
                f"the object header has no message of type {message.kind} to share",
                file.place(address),
            )
        return original


def _heap_address(file: Hdf5Bytes, kind: int) -> int:
    """Where the heap of shared messages of a type lies."""
    if file.extension is None:
        raise SourceFormatError("the file has no table of shared messages", file.place(0))
    message = read_header(file, file.extension).first(_TABLE_MESSAGE)
    if message is None:
        raise SourceFormatError(
            "the file has no table of shared messages", file.place(file.extension)
        )
    place = file.place(message.address, len(message.data))
    cursor = FieldCursor(message.data, "the message about shared messages", place)
    cursor.expect(b"\0", "version")
    address, n_indexes = cursor.take(file.offset_bytes), cursor.take(1)
    if n_indexes > _MOST_INDEXES:
        raise cursor.error(f"declares {n_indexes} indexes")
    entry_bytes = _INDEX_BYTES + 2 * file.offset_bytes
    table = file.read_checked(address, 8 + n_indexes * entry_bytes, "the table of shared messages")
    table.expect(b"SMTB", "signature")
    for _ in range(n_indexes):
        table.take_bytes(2)  # version and kind of the index
        kinds = table.take(2)
        table.take_bytes(_INDEX_BYTES - 4 + file.offset_bytes)
        heap = table.take(file.offset_bytes)
        if kinds >> kind & 1:
            return heap
    raise table.error(f"has no messages of type {kind}")
