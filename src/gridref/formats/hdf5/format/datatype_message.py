"""The datatype message, taken apart.

Source: HDF5 File Format Specification v3, IV.A.2.d "The Datatype Message"; version 5 and class 11,
complex numbers, are those of HDF5 2.0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from gridref.errors import Place, UnsupportedFeatureError
from gridref.formats.hdf5.format.superblock import FieldCursor

__all__ = ["Datatype", "DatatypeClass", "Member", "read_datatype"]

_MAX_DEPTH = 32
_MAX_RANK = 32
_MAX_VERSION = 5
_PLACE = Place()


class DatatypeClass(IntEnum):
    """What kind of elements there are."""

    INTEGER = 0
    FLOAT = 1
    TIME = 2
    STRING = 3
    BITFIELD = 4
    OPAQUE = 5
    COMPOUND = 6
    REFERENCE = 7
    ENUM = 8
    VLEN = 9
    ARRAY = 10
    COMPLEX = 11


@dataclass(frozen=True, slots=True)
class Datatype:
    """A datatype message.

    Attributes
    ----------
    kind, version
        Class and version.
    flags
        The class bit field.
    size
        Size of an element in bytes.
    properties
        Of numbers: the fields that say which bits mean what. Of opaque elements: the tag.
    base
        What enumerations, sequences, arrays and complex numbers are made of.
    members
        Of a compound.
    shape
        Of an array.
    enum
        Names and stored values of an enumeration.
    """

    kind: DatatypeClass
    version: int
    flags: int
    size: int
    properties: bytes = b""
    base: Datatype | None = None
    members: tuple[Member, ...] = ()
    shape: tuple[int, ...] = ()
    enum: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a compound: its name, its first byte in an element, and its datatype."""

    name: bytes
    offset: int
    datatype: Datatype


def read_datatype(message: bytes) -> Datatype:
    """Take a datatype message apart; what lies behind it is passed over.

    Raises
    ------
    SourceFormatError
        If it is cut off or contradicts itself.
    UnsupportedFeatureError
        If it is of an unknown version or class.
    """
    return _read(FieldCursor(message, "the datatype message", _PLACE), 0)


_PROPERTY_BYTES = {
    DatatypeClass.INTEGER: 4,
    DatatypeClass.BITFIELD: 4,
    DatatypeClass.FLOAT: 12,
    DatatypeClass.TIME: 2,
    DatatypeClass.STRING: 0,
    DatatypeClass.REFERENCE: 0,
}


def _read(cursor: FieldCursor, depth: int) -> Datatype:
    if depth > _MAX_DEPTH:
        raise cursor.error(f"is nested more than {_MAX_DEPTH} deep")
    first, flags, size = cursor.take(1), cursor.take(3), cursor.take(4)
    version, number = first >> 4, first & 0x0F
    if not 1 <= version <= _MAX_VERSION:
        raise UnsupportedFeatureError(f"the datatype message has the unknown version {version}")
    if number > max(DatatypeClass):
        raise UnsupportedFeatureError(f"the HDF5 datatype class number {number} has no dtype")
    if not size:
        raise cursor.error("declares elements of no size")
    kind = DatatypeClass(number)
    n_bytes = _PROPERTY_BYTES.get(kind)
    if n_bytes is not None:
        return Datatype(kind, version, flags, size, cursor.take_bytes(n_bytes))
    match kind:
        case DatatypeClass.OPAQUE:
            tag = cursor.take_bytes(flags & 0xFF).partition(b"\0")[0]
            return Datatype(kind, version, flags, size, tag)
        case DatatypeClass.COMPOUND:
            members = _members(cursor, version, flags & 0xFFFF, size, depth)
            return Datatype(kind, version, flags, size, members=members)
        case DatatypeClass.ENUM:
            return _enum(cursor, version, flags, size, depth)
        case DatatypeClass.ARRAY:
            return _array(cursor, version, flags, size, depth)
        case _:
            return Datatype(kind, version, flags, size, base=_read(cursor, depth + 1))


def _members(
    cursor: FieldCursor, version: int, n_members: int, size: int, depth: int
) -> tuple[Member, ...]:
    if not n_members:
        raise cursor.error("declares a compound without members")
    offset_bytes = 4 if version < 3 else (size.bit_length() + 7) // 8
    members = []
    for _ in range(n_members):
        name = _name(cursor, padded=version < 3)
        offset = cursor.take(offset_bytes)
        shape = _old_shape(cursor) if version == 1 else ()
        datatype = _read(cursor, depth + 1)
        if shape:
            n_bytes = datatype.size * math.prod(shape)
            datatype = Datatype(
                DatatypeClass.ARRAY, version, 0, n_bytes, base=datatype, shape=shape
            )
        members.append(Member(name, offset, datatype))
    stop = 0
    for member in sorted(members, key=lambda member: member.offset):
        if member.offset < stop:
            raise cursor.error("declares a compound whose members overlap")
        stop = member.offset + member.datatype.size
    if stop > size:
        raise cursor.error(f"declares a compound of {size} bytes with members up to {stop}")
    return tuple(members)


def _old_shape(cursor: FieldCursor) -> tuple[int, ...]:
    """Extents of a member that is an array, as version 1 had them."""
    rank = cursor.take(1)
    if rank > 4:
        raise cursor.error(f"declares a member of {rank} dimensions")
    cursor.take_bytes(3 + 4 + 4)  # reserved, permutation of the dimensions, reserved
    extents = [cursor.take(4) for _ in range(4)]
    return _checked_shape(cursor, extents[:rank])


def _enum(cursor: FieldCursor, version: int, flags: int, size: int, depth: int) -> Datatype:
    base = _read(cursor, depth + 1)
    if base.kind is not DatatypeClass.INTEGER or base.size != size:
        raise cursor.error("declares an enumeration of what is no integer of its size")
    names = [_name(cursor, padded=version < 3) for _ in range(flags & 0xFFFF)]
    values = [cursor.take_bytes(size) for _ in names]
    kind, pairs = DatatypeClass.ENUM, tuple(zip(names, values, strict=True))
    return Datatype(kind, version, flags, size, base=base, enum=pairs)


def _array(cursor: FieldCursor, version: int, flags: int, size: int, depth: int) -> Datatype:
    rank = cursor.take(1)
    if not 0 < rank <= _MAX_RANK:
        raise cursor.error(f"declares an array of {rank} dimensions")
    if version < 3:
        cursor.take_bytes(3)
    shape = _checked_shape(cursor, [cursor.take(4) for _ in range(rank)])
    if version < 3:
        cursor.take_bytes(4 * rank)  # permutation of the dimensions
    base = _read(cursor, depth + 1)
    if base.size * math.prod(shape) != size:
        raise cursor.error(f"declares an array of shape {shape} and of {size} bytes")
    return Datatype(DatatypeClass.ARRAY, version, flags, size, base=base, shape=shape)


def _checked_shape(cursor: FieldCursor, extents: list[int]) -> tuple[int, ...]:
    if not all(extents):
        raise cursor.error(f"declares an array of shape {tuple(extents)}")
    return tuple(extents)


def _name(cursor: FieldCursor, *, padded: bool) -> bytes:
    """A name that ends with a zero byte, in old versions padded to a multiple of 8 bytes."""
    end = cursor.data.find(b"\0", cursor.position)
    if end < 0:
        raise cursor.error("has a name without an end")
    length = end - cursor.position
    taken = (length + 8) // 8 * 8 if padded else length + 1
    return cursor.take_bytes(taken)[:length]
