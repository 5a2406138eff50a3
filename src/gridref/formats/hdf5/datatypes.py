"""Turn HDF5 datatypes into numpy dtypes.

`read_datatype` takes the bytes of a datatype message and returns a `Datatype`. `element_type` finds
the dtype for it, the same one as h5py, and says whether stored bytes can be used as they are.
`converted` turns stored elements that need it into values.

Source: HDF5 File Format Specification v3, IV.A.2.d "The Datatype Message". Version 5 and class 11
(complex numbers) were added by HDF5 2.0.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gridref.codecs import decode_chunk, why_not
from gridref.errors import DecodeError, Place, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.bytes import FieldCursor
from gridref.learned import FORMS
from gridref.model.encoding import Codec, Encoding

# The datatype message, taken apart

_MAX_DEPTH = 32
_MAX_RANK = 32
_MAX_VERSION = 5
_PLACE = Place()


class DatatypeClass(IntEnum):
    """The classes of datatypes."""

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
    flags
        The class bit field.
    size
        Size of an element in bytes.
    properties
        For numbers: the fields that state the meaning of the bits. For opaque elements: the tag.
    base
        What enumerations, sequences, arrays and complex numbers are made of.
    members
        Of a compound.
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
    """Take a datatype message apart; anything after it is ignored."""
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
            return _read_enum(cursor, version, flags, size, depth)
        case DatatypeClass.ARRAY:
            return _read_array(cursor, version, flags, size, depth)
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


def _read_enum(cursor: FieldCursor, version: int, flags: int, size: int, depth: int) -> Datatype:
    base = _read(cursor, depth + 1)
    if base.kind is not DatatypeClass.INTEGER or base.size != size:
        raise cursor.error("declares an enumeration whose base type is no integer of its size")
    names = [_name(cursor, padded=version < 3) for _ in range(flags & 0xFFFF)]
    values = [cursor.take_bytes(size) for _ in names]
    kind, pairs = DatatypeClass.ENUM, tuple(zip(names, values, strict=True))
    return Datatype(kind, version, flags, size, base=base, enum=pairs)


def _read_array(cursor: FieldCursor, version: int, flags: int, size: int, depth: int) -> Datatype:
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


# The dtype of a datatype, and whether stored bytes can be used as they are


class Form(Enum):
    """In which form a dataset holds its elements."""

    STORED = "stored"
    """Stored bytes are elements, except for their byte order."""
    CONVERTED = "converted"
    """No codec makes elements of the stored bytes: compounds of both byte orders, for example."""
    TEXT = "text"
    """Variable-length strings: stored bytes point into the global heap."""
    REFERENCE = "reference"
    """References to objects or regions: stored bytes are addresses in the file."""
    RAGGED = "ragged"
    """Variable-length sequences: stored bytes point into the global heap."""
    MIXED = "mixed"
    """Compounds with members that are none of the first two."""


WITHOUT_HEAP = (Form.STORED, Form.CONVERTED)
"""Forms of elements that hold nothing of a heap."""


@dataclass(frozen=True)
class ElementType:
    """The type of the elements of a dataset or attribute.

    Attributes
    ----------
    dtype
        In native byte order; of the base elements where they are arrays.
    order
        Byte order of the stored elements: ``"<"``, ``">"``, or ``"|"`` where it has no meaning.
    array_codecs
        What makes elements of the dtype out of stored ones.
    stored_bytes
        Size of a stored element; None if it is that of the dtype.
    subshape
        Shape of each element of an array datatype: it adds dimensions.
    reason
        In what their stored bytes differ from elements of the dtype.
    enum
        Values by name, for enumerations that are no booleans.
    text
        Whether they are strings, of fixed or variable length.
    padding
        Of strings of fixed length: ``"zeros"``, ``"terminated"`` by a zero byte, or ``"spaces"``.
    members
        Of a compound.
    base
        Of a variable-length sequence: its elements.
    region
        Whether references are to regions.
    """

    dtype: np.dtype[Any]
    form: Form = Form.STORED
    order: Literal["<", ">", "|"] = "|"
    array_codecs: tuple[Codec, ...] = ()
    stored_bytes: int | None = None
    subshape: tuple[int, ...] = ()
    reason: str = ""
    enum: tuple[tuple[str, int], ...] = ()
    text: bool = False
    padding: str = "zeros"
    members: tuple[MemberType, ...] = ()
    base: ElementType | None = None
    region: bool = False

    @property
    def itemsize(self) -> int:
        """Size of a stored element in bytes."""
        return self.dtype.itemsize if self.stored_bytes is None else self.stored_bytes

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """Dtype of the stored elements, if they are plain."""
        return self.dtype if self.order == "|" else self.dtype.newbyteorder(self.order)

    @property
    def is_plain(self) -> bool:
        """Whether stored bytes are elements, except for their byte order."""
        return self.form is Form.STORED and not self.array_codecs

    @cached_property
    def codecs(self) -> tuple[Codec, ...]:
        """The codec chain up to the bytes to which filters are applied."""
        if self.order == "|":
            return (*self.array_codecs, Codec("bytes"))
        endian = "big" if self.order == ">" else "little"
        return (*self.array_codecs, Codec.of("bytes", endian=endian))


@dataclass(frozen=True)
class MemberType:
    """A member of a compound: its name, its first byte in an element, and its elements."""

    name: str
    offset: int
    element: ElementType

    @property
    def n_elements(self) -> int:
        """The number of elements: more than one if it is an array."""
        return math.prod(self.element.subshape)


@FORMS.remembers
def element_type(message: bytes) -> ElementType:
    """Describe the elements of a datatype, by its datatype message."""
    datatype = read_datatype(message)
    try:
        return _describe(datatype)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnsupportedFeatureError(f"the datatype has no dtype: {error}") from error


def _describe(datatype: Datatype) -> ElementType:
    describe = _DESCRIBERS.get(datatype.kind)
    if describe is None:
        name = datatype.kind.name.lower()
        raise UnsupportedFeatureError(f"the HDF5 datatype class {name} has no dtype")
    return describe(datatype)


_VAX_ORDER = 0x41


def _order(datatype: Datatype) -> Literal["<", ">", "|"]:
    if datatype.version >= 3 and datatype.flags & _VAX_ORDER == _VAX_ORDER:
        raise UnsupportedFeatureError("the datatype's byte order is neither little- nor big-endian")
    if datatype.size == 1:
        return "|"
    return ">" if datatype.flags & 1 else "<"


_SIGNED = 0x08


def _integer(datatype: Datatype) -> ElementType:
    size = datatype.size
    signed = datatype.kind is not DatatypeClass.BITFIELD and datatype.flags & _SIGNED
    if size not in (1, 2, 4, 8):
        raise UnsupportedFeatureError(f"integers of {size} bytes have no dtype")
    element = ElementType(np.dtype(f"{'i' if signed else 'u'}{size}"), order=_order(datatype))
    offset, precision = struct.unpack("<HH", datatype.properties)
    if precision == 8 * size and offset == 0:
        return element
    if not 0 < precision <= 8 * size - offset:
        raise SourceFormatError(
            f"the datatype has integers of {size} bytes whose bits {offset} to {offset + precision}"
            " mean something"
        )
    codec = Codec.of("gridref.hdf5_integer", precision=precision, offset=offset)
    return replace(element, array_codecs=(codec,), reason=f"integers of {precision} bits")


_FLOAT_FIELDS = struct.Struct("<HHBBBBI")
_IEEE_FIELDS = {
    2: (15, (0, 16, 10, 5, 0, 10, 15)),
    4: (31, (0, 32, 23, 8, 0, 23, 127)),
    8: (63, (0, 64, 52, 11, 0, 52, 1023)),
}
"""Position of the sign, then offset, precision, positions and sizes of exponent and mantissa, and
the exponent's bias, by size in bytes."""

_NORMALIZATIONS = ("none", "set", "implied")
_FLOAT_LIMITS = ((2, 10, 16, -14), (4, 23, 128, -126), (8, 52, 1024, -1022))
"""Size of a dtype, of its mantissa in bits, and its largest and smallest exponent."""


def _float(datatype: Datatype) -> ElementType:
    size, flags = datatype.size, datatype.flags
    fields = _FLOAT_FIELDS.unpack(datatype.properties)
    normalization = flags >> 4 & 3
    if normalization >= len(_NORMALIZATIONS) or not (fields[3] and fields[5]):
        raise SourceFormatError("the datatype has floats without mantissa or exponent")
    if _IEEE_FIELDS.get(size) == (flags >> 8 & 0xFF, fields) and normalization == 2:
        return ElementType(np.dtype(f"f{size}"), order=_order(datatype))
    return _unusual_float(datatype, fields)


def _unusual_float(datatype: Datatype, fields: tuple[int, ...]) -> ElementType:
    offset, precision, exponent, exponent_bits, mantissa, mantissa_bits, bias = fields
    size = datatype.size
    if offset + precision > 8 * size:
        raise SourceFormatError(f"the datatype has floats of {precision} bits in {size} bytes")
    reason = f"floats of {size} bytes with {precision} bits, not as in IEEE 754"
    itemsize = _size_of_float(size, exponent_bits, bias, mantissa_bits)
    if itemsize is None:
        raise UnsupportedFeatureError(f"{reason}: Zarr has no dtype for them")
    codec = Codec.of(
        "gridref.hdf5_float",
        size=size,
        sign_position=datatype.flags >> 8 & 0xFF,
        exponent_position=exponent,
        exponent_bits=exponent_bits,
        exponent_bias=bias,
        mantissa_position=mantissa,
        mantissa_bits=mantissa_bits,
        normalization=_NORMALIZATIONS[datatype.flags >> 4 & 3],
    )
    problem = why_not(codec)
    if problem is not None:
        raise UnsupportedFeatureError(f"{reason}: {problem}")
    dtype = np.dtype(f"f{itemsize}")
    return ElementType(
        dtype, order=_order(datatype), array_codecs=(codec,), stored_bytes=size, reason=reason
    )


def _size_of_float(size: int, exponent_bits: int, bias: int, mantissa_bits: int) -> int | None:
    """Size of the smallest dtype that holds all such floats, as h5py chooses it."""
    largest, smallest = (1 << exponent_bits) - bias - 1, 1 - bias
    for itemsize, bits, maximum, minimum in _FLOAT_LIMITS:
        if (
            size <= itemsize
            and mantissa_bits <= bits
            and largest <= maximum
            and smallest >= minimum
        ):
            return itemsize
    return None


_PADDINGS = ("terminated", "zeros", "spaces")


def _string(datatype: Datatype) -> ElementType:
    size, number = datatype.size, datatype.flags & 0x0F
    if number >= len(_PADDINGS):
        raise SourceFormatError(f"the datatype has strings of the unknown padding {number}")
    padding = _PADDINGS[number]
    element = ElementType(np.dtype(f"S{size}"), text=True, padding=padding)
    if padding == "zeros" or (size == 1 and padding == "terminated"):
        return element
    codec = Codec.of("gridref.hdf5_string", padding=padding)
    return replace(element, array_codecs=(codec,), reason="strings that are not padded with zeros")


def _opaque(datatype: Datatype) -> ElementType:
    tag = datatype.properties
    if tag.startswith(b"NUMPY:"):
        try:
            dtype = np.dtype(tag.removeprefix(b"NUMPY:").decode("ascii"))
        except (TypeError, ValueError, SyntaxError) as error:
            raise UnsupportedFeatureError(f"opaque elements have the tag {tag!r}") from error
        if dtype.kind in "mM" and dtype.itemsize == datatype.size:
            native = dtype.newbyteorder("=")
            return ElementType(np.dtype(native.str), order="<" if dtype.isnative else ">")
    return ElementType(np.dtype(f"V{datatype.size}"))


def _enum(datatype: Datatype) -> ElementType:
    integer = _base(datatype)
    base = _describe(integer)
    members = tuple(
        (name.decode("utf-8", "replace"), _stored_integer(value, integer, base))
        for name, value in datatype.enum
    )
    if base.dtype == np.int8 and dict(members) == {"FALSE": 0, "TRUE": 1}:
        return replace(base, dtype=np.dtype(bool))
    return replace(base, enum=members)


def _stored_integer(raw: bytes, datatype: Datatype, element: ElementType) -> int:
    offset: int
    precision: int
    offset, precision = struct.unpack("<HH", datatype.properties)
    number = int.from_bytes(raw, "big" if element.order == ">" else "little") >> offset
    number &= (1 << precision) - 1
    if element.dtype.kind == "i" and number >> (precision - 1):
        number -= 1 << precision
    return number


def _base(datatype: Datatype) -> Datatype:
    """The type that the elements are based on."""
    if datatype.base is None:
        raise SourceFormatError("the datatype lacks the one that it is made of")
    return datatype.base


def _array(datatype: Datatype) -> ElementType:
    base = _describe(_base(datatype))
    return replace(base, subshape=datatype.shape + base.subshape, enum=())


def _reference(datatype: Datatype) -> ElementType:
    kind = datatype.flags & 0x0F
    if kind > 1:
        raise UnsupportedFeatureError("references of the kind H5T_STD_REF cannot be read by h5py")
    return ElementType(
        np.dtypes.StringDType(),
        Form.REFERENCE,
        stored_bytes=datatype.size,
        reason=f"references to {'regions' if kind else 'objects'}",
        region=bool(kind),
    )


def _variable(datatype: Datatype) -> ElementType:
    kind = datatype.flags & 0x0F
    if kind == 1:
        return ElementType(
            np.dtypes.StringDType(),
            Form.TEXT,
            stored_bytes=datatype.size,
            reason="variable-length strings",
            text=True,
        )
    if kind:
        raise SourceFormatError(f"the datatype has variable-length elements of the kind {kind}")
    base = _describe(_base(datatype))
    return ElementType(
        base.dtype,
        Form.RAGGED,
        stored_bytes=datatype.size,
        reason="variable-length sequences",
        base=base,
    )


def _complex(datatype: Datatype) -> ElementType:
    part = _describe(_base(datatype))
    if not part.is_plain or part.dtype not in (np.float32, np.float64):
        raise UnsupportedFeatureError(f"complex numbers of {datatype.size} bytes have no dtype")
    if datatype.size != 2 * part.dtype.itemsize:
        raise SourceFormatError(f"the datatype has complex numbers of {datatype.size} bytes")
    return ElementType(np.dtype(f"c{datatype.size}"), order=part.order)


def _compound(datatype: Datatype) -> ElementType:
    size = datatype.size
    members = tuple(
        MemberType(
            member.name.decode("utf-8", "surrogateescape"),
            member.offset,
            _describe(member.datatype),
        )
        for member in datatype.members
    )
    elements = [member.element for member in members]
    orders = {element.order for element in elements} - {"|"}
    bad = [element for element in elements if not element.is_plain]
    mixed = [element for element in bad if element.form not in WITHOUT_HEAP]
    if mixed:
        reason = f"compounds with members that are {mixed[0].reason}"
        return ElementType(np.dtype(f"V{size}"), Form.MIXED, reason=reason, members=members)
    is_plain = not (bad or any(element.subshape for element in elements)) and len(orders) < 2
    names, offsets = [member.name for member in members], [member.offset for member in members]
    if is_plain and is_complex(names, [element.dtype for element in elements], offsets, size):
        return ElementType(np.dtype(f"c{size}"), order=elements[0].order)
    dtype = _struct(members, size)
    if bad or len(orders) > 1:
        trait = f"that are {bad[0].reason}" if bad else "of both byte orders"
        reason = f"compounds with members {trait}"
        return ElementType(dtype, Form.CONVERTED, stored_bytes=size, reason=reason, members=members)
    return ElementType(dtype, order=orders.pop() if orders else "|")


def is_complex(
    names: Sequence[str], dtypes: Sequence[np.dtype[Any]], offsets: Sequence[int], size: int
) -> bool:
    """Whether h5py takes a compound for a complex number: members r and i, alike, side by side."""
    if (
        [*names] != ["r", "i"]
        or dtypes[0] != dtypes[1]
        or dtypes[0] not in (np.float32, np.float64)
    ):
        return False
    width = dtypes[0].itemsize
    return (*offsets, size) == (0, width, 2 * width)


def _struct(members: Sequence[MemberType], size: int) -> np.dtype[Any]:
    for member in members:
        element = member.element
        if element.dtype.itemsize > element.itemsize:
            raise UnsupportedFeatureError(
                f"compounds with the member {member.name}, which is stored in"
                f" {element.itemsize} bytes and becomes {element.dtype}, have no dtype"
            )
    formats = [
        np.dtype((member.element.dtype, member.element.subshape))
        if member.element.subshape
        else member.element.dtype
        for member in members
    ]
    return np.dtype(
        {
            "names": [member.name for member in members],
            "formats": formats,
            "offsets": [member.offset for member in members],
            "itemsize": size,
        }
    )


_DESCRIBERS = {
    DatatypeClass.INTEGER: _integer,
    DatatypeClass.BITFIELD: _integer,
    DatatypeClass.FLOAT: _float,
    DatatypeClass.STRING: _string,
    DatatypeClass.OPAQUE: _opaque,
    DatatypeClass.ENUM: _enum,
    DatatypeClass.ARRAY: _array,
    DatatypeClass.REFERENCE: _reference,
    DatatypeClass.VLEN: _variable,
    DatatypeClass.COMPOUND: _compound,
    DatatypeClass.COMPLEX: _complex,
}


# Stored elements as values


def converted(raw: bytes, element: ElementType, n_elements: int) -> NDArray[Any]:
    """Values of elements that hold nothing of a heap, in native byte order.

    Parameters
    ----------
    raw
        The stored bytes of the elements; anything after them is ignored.
    element
        What they are; each element of an array datatype counts.
    """
    size = n_elements * element.itemsize
    if len(raw) < size:
        raise SourceFormatError(f"{len(raw)} of {size} bytes of elements are there")
    if not n_elements:
        return np.zeros(0, element.dtype)
    if element.members:
        return _struct_values(raw[:size], element, n_elements)
    if element.is_plain:
        return np.frombuffer(raw, element.stored_dtype, n_elements).astype(element.dtype)
    shape = (n_elements,)
    try:
        return decode_chunk(raw[:size], Encoding(shape, element.dtype, element.codecs), shape)
    except DecodeError as error:
        raise SourceFormatError(f"elements cannot be decoded: {error.reason}") from error


def _struct_values(raw: bytes, element: ElementType, n_elements: int) -> NDArray[Any]:
    values = np.zeros(n_elements, element.dtype)
    for member, part in member_bytes(raw, element, n_elements):
        flat = converted(part, member.element, n_elements * member.n_elements)
        values[member.name] = flat.reshape(n_elements, *member.element.subshape)
    return values


def member_bytes(
    raw: bytes, element: ElementType, n_elements: int
) -> Iterator[tuple[MemberType, bytes]]:
    """The members of a compound, and the bytes that all elements have of each."""
    stored = np.frombuffer(raw, np.uint8, n_elements * element.itemsize)
    rows = stored.reshape(n_elements, element.itemsize)
    for member in element.members:
        stop = member.offset + member.n_elements * member.element.itemsize
        yield member, rows[:, member.offset : stop].tobytes()
