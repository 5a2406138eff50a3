"""Checks of dense storage before the HDF5 library reads it.

Where a group has many links, or an object many attributes, they lie in a fractal heap that is
indexed by version 2 B-trees. The library divides by what their headers say and follows it into
memory, so that corrupt ones end the process. Headers that cannot be true are refused here first.

Source: HDF5 File Format Specification v3, III.A.2 "Version 2 B-trees", III.G "Fractal Heap",
IV.A.2.c "Link Info", IV.A.2.v "Attribute Info".
"""

from __future__ import annotations

from collections.abc import Iterable

from gridref.scan.hdf5.object_header import HeaderMessage
from gridref.scan.hdf5.superblock import FieldCursor, Hdf5Bytes

__all__ = ["check_dense_storage"]

_LINK_INFO, _ATTRIBUTE_INFO = 0x02, 0x15
_ORDER_BYTES = {_LINK_INFO: 8, _ATTRIBUTE_INFO: 2}
_RECORD_BYTES = {5: 11, 6: 15, 8: 17, 9: 13}
"""Of indexes of links by name and order, and of attributes by name and order."""

_MAX_DEPTH = 32
_NODE_OVERHEAD = 10
_MAX_ID_BYTES = 64
_MAX_DIRECT_BYTES = 1 << 31


def check_dense_storage(file: Hdf5Bytes, messages: Iterable[HeaderMessage]) -> None:
    """Raise if a header of a heap or an index that messages of an object name cannot be true.

    Raises
    ------
    SourceFormatError
        If so.
    """
    for message in messages:
        order_bytes = _ORDER_BYTES.get(message.kind)
        if order_bytes is None or message.is_shared:
            continue
        place = file.place(message.address, len(message.data))
        cursor = FieldCursor(message.data, "the message about dense storage", place)
        cursor.take(1)
        flags = cursor.take(1)
        if flags & 1:
            cursor.take(order_bytes)
        heap, *indexes = (cursor.take(file.offset_bytes) for _ in range(3 if flags & 2 else 2))
        if heap == file.undefined_address:
            continue
        _check_heap(file, heap)
        for index in indexes:
            if index != file.undefined_address:
                _check_index(file, index)


def _check_heap(file: Hdf5Bytes, address: int) -> None:
    what, width = "the fractal heap", file.length_bytes
    n_bytes = 22 + 12 * width + 3 * file.offset_bytes
    cursor = FieldCursor(file.read(address, n_bytes, what), what, file.place(address, n_bytes))
    cursor.expect(b"FRHP\0", "signature and version")
    id_bytes = cursor.take(2)
    cursor.take_bytes(7 + 10 * width + 2 * file.offset_bytes)
    columns, first_block, max_direct = cursor.take(2), cursor.take(width), cursor.take(width)
    max_bits, first_rows = cursor.take(2), cursor.take(2)
    root, n_rows = cursor.take(file.offset_bytes), cursor.take(2)
    sizes_fit = (
        all(map(_is_power_of_two, (columns, first_block, max_direct)))
        and first_block <= max_direct <= _MAX_DIRECT_BYTES
        and max_direct.bit_length() <= max_bits <= 8 * width
    )
    if not sizes_fit:
        raise cursor.error("declares blocks of sizes that cannot be")
    most_rows = max(1, max_bits - (first_block * columns).bit_length() + 3)
    if max(first_rows, n_rows) > most_rows or not 0 < id_bytes <= _MAX_ID_BYTES:
        raise cursor.error(f"declares {max(first_rows, n_rows)} rows and ids of {id_bytes} bytes")
    if root != file.undefined_address:
        file.check_range(root, first_block if not n_rows else 0, "the root block of " + what)


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _check_index(file: Hdf5Bytes, address: int) -> None:
    what = "the index of dense storage"
    n_bytes = 18 + file.offset_bytes + file.length_bytes
    cursor = FieldCursor(file.read(address, n_bytes, what), what, file.place(address, n_bytes))
    cursor.expect(b"BTHD\0", "signature and version")
    kind, node_bytes, record_bytes, depth = (cursor.take(n) for n in (1, 4, 2, 2))
    cursor.take(2)
    root, n_records = cursor.take(file.offset_bytes), cursor.take(2)
    n_all = cursor.take(file.length_bytes)
    if record_bytes != _RECORD_BYTES.get(kind) or depth > _MAX_DEPTH:
        raise cursor.error(f"has records of {record_bytes} bytes and is {depth} levels deep")
    if n_records * record_bytes + _NODE_OVERHEAD > node_bytes or n_records > n_all:
        raise cursor.error(f"declares {n_records} records of {n_all} in its root")
    if root == file.undefined_address:
        if n_all:
            raise cursor.error(f"declares {n_all} records, but has none")
        return
    if not n_records:
        raise cursor.error("has a root without records")
    file.check_range(root, node_bytes, "the root of " + what)
