"""HDF5 datatypes -> dtypes, and whether stored bytes are elements as they stand.

Source: HDF5 File Format Specification v3, IV.A.2.d "The Datatype Message"; which dtype stands for
which datatype is as in h5py.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, Literal

import numpy as np

from gridref.cache import remembers_short
from gridref.codecs import why_not
from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.format.datatype_message import Datatype, DatatypeClass, read_datatype
from gridref.model.encoding import Codec

__all__ = ["ElementType", "Form", "MemberType", "element_type"]

_CACHED_TYPES = 4096


class Form(Enum):
    """In which form a dataset holds its elements."""

    STORED = "stored"
    """Stored bytes are elements, but for their byte order."""
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


_WITHOUT_HEAP = (Form.STORED, Form.CONVERTED)


@dataclass(frozen=True)
class ElementType:
    """What the elements of a dataset or attribute are.

    Attributes
    ----------
    dtype
        In native byte order; of the base elements where they are arrays.
    form
        How they are stored.
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
        """Whether stored bytes are elements, but for their byte order."""
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
        """How many elements it has: more than one if it is an array."""
        return math.prod(self.element.subshape)


@remembers_short(_CACHED_TYPES)
def element_type(message: bytes) -> ElementType:
    """Describe the elements of a datatype, by its datatype message.

    Raises
    ------
    SourceFormatError
        If the message is corrupt.
    UnsupportedFeatureError
        For a type that no dtype stands for.
    """
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
    _, precision, exponent, exponent_bits, mantissa, mantissa_bits, bias = fields
    size = datatype.size
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
    """What the elements are made of."""
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
    mixed = [element for element in bad if element.form not in _WITHOUT_HEAP]
    if mixed:
        reason = f"compounds with members that are {mixed[0].reason}"
        return ElementType(np.dtype(f"V{size}"), Form.MIXED, reason=reason, members=members)
    if _is_complex(members, size):
        return ElementType(np.dtype(f"c{size}"), order=elements[0].order)
    dtype = _struct(members, size)
    if bad or len(orders) > 1:
        trait = f"that are {bad[0].reason}" if bad else "of both byte orders"
        reason = f"compounds with members {trait}"
        return ElementType(dtype, Form.CONVERTED, stored_bytes=size, reason=reason, members=members)
    return ElementType(dtype, order=orders.pop() if orders else "|")


def _is_complex(members: Sequence[MemberType], size: int) -> bool:
    """Whether h5py takes it for a complex number: members r and i, alike, side by side."""
    if [member.name for member in members] != ["r", "i"]:
        return False
    real, imaginary = members
    part = real.element.dtype
    return (
        real.element == imaginary.element
        and not real.element.subshape
        and part in (np.float32, np.float64)
        and real.element.is_plain
        and (real.offset, imaginary.offset) == (0, part.itemsize)
        and size == 2 * part.itemsize
    )


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
