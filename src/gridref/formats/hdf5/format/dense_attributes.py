"""Attributes that are kept in a fractal heap: those of objects that have more than a few.

Source: HDF5 File Format Specification v3, III.A.2 "Version 2 B-trees" (records of type 8), IV.A.2.v
"Attribute Info".
"""

from __future__ import annotations

from dataclasses import dataclass

from gridref.errors import SourceFormatError
from gridref.formats.hdf5.format.btree_v2 import records_of
from gridref.formats.hdf5.format.fractal_heap import FractalHeap
from gridref.formats.hdf5.format.shared_messages import SharedMessages
from gridref.formats.hdf5.format.superblock import Hdf5Bytes

__all__ = ["AttributeInfo", "attribute_info", "dense_attribute_messages"]

_ATTRIBUTE = 0x0C
_NAME_INDEX, _RECORD_BYTES = 8, 17
_SHARED_FLAG = 0x02


@dataclass(frozen=True, slots=True)
class AttributeInfo:
    """Where attributes lie that are not in the object header; None if there are none."""

    heap_address: int | None
    index_address: int | None


def attribute_info(file: Hdf5Bytes, data: bytes) -> AttributeInfo:
    """Decode an attribute info message."""
    width = file.offset_bytes
    start = 4 if data[1:2] and data[1] & 1 else 2
    if len(data) < start + 2 * width:
        raise SourceFormatError("the attribute info message is cut off")
    heap, index = data[start : start + width], data[start + width : start + 2 * width]
    return AttributeInfo(_address(heap), _address(index))


def _address(field: bytes) -> int | None:
    return None if field.count(0xFF) == len(field) else int.from_bytes(field, "little")


def dense_attribute_messages(shared: SharedMessages, info: AttributeInfo) -> list[bytes]:
    """The attribute messages in a fractal heap, in order of creation.

    Raises
    ------
    SourceFormatError
        If the heap or its index is corrupt.
    """
    if info.heap_address is None or info.index_address is None:
        return []
    heap = FractalHeap(shared.file, info.heap_address)
    records = records_of(
        shared.file,
        info.index_address,
        "the index of attributes",
        record_type=_NAME_INDEX,
        record_bytes=_RECORD_BYTES,
    )
    # Heap id, message flags, order of creation, hash of the name.
    records.sort(key=lambda record: record[12:8:-1])
    return [
        shared.in_heap(_ATTRIBUTE, record[:8]) if record[8] & _SHARED_FLAG else heap.get(record[:8])
        for record in records
    ]
