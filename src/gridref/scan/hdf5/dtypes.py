"""HDF5 datatypes -> dtypes, and whether stored bytes are elements as they stand.

Source: HDF5 File Format Specification, "The Datatype Message" (IV.A.2.d), and HDF5 Reference
Manual, H5T.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from h5py import h5t

from gridref.codecs import why_not
from gridref.errors import UnsupportedFeatureError
from gridref.model.encoding import Codec

__all__ = ["ElementType", "Form", "element_type"]

_CACHED_TYPES = 4096


class Form(Enum):
    """In which form a dataset holds its elements."""

    STORED = "stored"
    """Stored bytes are elements, but for their byte order."""
    CONVERTED = "converted"
    """HDF5 changes the stored bytes on reading (odd precisions, unusual floats, padded strings)."""
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
        Why they are not `Form.STORED`.
    enum
        Values by name, for enumerations that are no booleans.
    text
        Whether they are strings, of fixed or variable length.
    padding
        Of strings of fixed length: ``"zeros"``, ``"terminated"`` by a zero byte, or ``"spaces"``.
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

    @property
    def itemsize(self) -> int:
        """Size of a stored element in bytes, where it is stored."""
        return self.dtype.itemsize if self.stored_bytes is None else self.stored_bytes

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """Dtype of the stored elements, if they are plain."""
        return self.dtype if self.order == "|" else self.dtype.newbyteorder(self.order)

    @property
    def is_plain(self) -> bool:
        """Whether stored bytes are elements, but for their byte order."""
        return self.form is Form.STORED and not self.array_codecs

    @property
    def codecs(self) -> tuple[Codec, ...]:
        """The codec chain up to the bytes to which filters are applied."""
        if self.order == "|":
            return (*self.array_codecs, Codec("bytes"))
        endian = "big" if self.order == ">" else "little"
        return (*self.array_codecs, Codec.of("bytes", endian=endian))


def element_type(tid: Any) -> ElementType:
    """Describe an HDF5 datatype.

    Raises
    ------
    UnsupportedFeatureError
        For a type that no dtype stands for.
    """
    return _decoded(tid.encode())


@lru_cache(_CACHED_TYPES)
def _decoded(encoded: bytes) -> ElementType:
    return _describe(h5t.decode(encoded))


def _describe(tid: Any) -> ElementType:
    kind = tid.get_class()
    describe = _DESCRIBERS.get(kind)
    if describe is None:
        name = "time" if kind == h5t.TIME else f"number {kind}"
        raise UnsupportedFeatureError(f"the HDF5 datatype class {name} has no dtype")
    return describe(tid)


def _order(tid: Any, size: int) -> Literal["<", ">", "|"]:
    if size == 1:
        return "|"
    order = tid.get_order()
    if order not in (h5t.ORDER_LE, h5t.ORDER_BE):
        raise UnsupportedFeatureError("the datatype's byte order is neither little- nor big-endian")
    return "<" if order == h5t.ORDER_LE else ">"


def _integer(tid: Any) -> ElementType:
    size = tid.get_size()
    signed = tid.get_class() != h5t.BITFIELD and tid.get_sign() == h5t.SGN_2
    if size not in (1, 2, 4, 8):
        raise UnsupportedFeatureError(f"integers of {size} bytes have no dtype")
    element = ElementType(np.dtype(f"{'i' if signed else 'u'}{size}"), order=_order(tid, size))
    offset, precision = _bits(tid)
    if precision == 8 * size and offset == 0:
        return element
    codec = Codec.of("gridref.hdf5_integer", precision=precision, offset=offset)
    return replace(element, array_codecs=(codec,))


def _bits(tid: Any) -> tuple[int, int]:
    """Number of the first bit that means something, and of such bits.

    h5py does not tell them of bitfields; they lie behind the 8 bytes that each datatype message
    begins with, and the 2 that ``H5Tencode`` puts before it.
    """
    first, precision = struct.unpack_from("<HH", tid.encode(), 10)
    return first, precision


_IEEE_FIELDS = {
    2: ((15, 10, 5, 0, 10), 15),
    4: ((31, 23, 8, 0, 23), 127),
    8: ((63, 52, 11, 0, 52), 1023),
}
"""Positions and sizes of sign, exponent and mantissa, and the exponent's bias, by size in bytes."""


def _float(tid: Any) -> ElementType:
    size = tid.get_size()
    fields = (tuple(tid.get_fields()), tid.get_ebias())
    standard = (
        _IEEE_FIELDS.get(size) == fields
        and tid.get_norm() == h5t.NORM_IMPLIED
        and tid.get_precision() == 8 * size
    )
    if standard:
        return ElementType(np.dtype(f"f{size}"), order=_order(tid, size))
    return _unusual_float(tid, size)


def _unusual_float(tid: Any, size: int) -> ElementType:
    reason = f"floats of {size} bytes with {tid.get_precision()} bits, not as in IEEE 754"
    try:
        dtype = tid.dtype
    except (TypeError, ValueError, KeyError) as error:
        raise UnsupportedFeatureError(f"{reason}: h5py has no dtype for them") from error
    if dtype.kind != "f" or dtype.itemsize not in _IEEE_FIELDS:
        raise UnsupportedFeatureError(f"{reason}: Zarr has no dtype for them")
    element = ElementType(np.dtype(f"f{dtype.itemsize}"), order=_order(tid, size))
    codec = _float_codec(tid, size)
    if why_not(codec) is not None or tid.get_offset():
        return replace(element, form=Form.CONVERTED, reason=reason)
    return replace(element, array_codecs=(codec,), stored_bytes=size)


_NORMALIZATIONS = {h5t.NORM_IMPLIED: "implied", h5t.NORM_MSBSET: "set", h5t.NORM_NONE: "none"}


def _float_codec(tid: Any, size: int) -> Codec:
    sign, exponent, exponent_bits, mantissa, mantissa_bits = tid.get_fields()
    return Codec.of(
        "gridref.hdf5_float",
        size=size,
        sign_position=sign,
        exponent_position=exponent,
        exponent_bits=exponent_bits,
        exponent_bias=tid.get_ebias(),
        mantissa_position=mantissa,
        mantissa_bits=mantissa_bits,
        normalization=_NORMALIZATIONS[tid.get_norm()],
    )


def _string(tid: Any) -> ElementType:
    if tid.is_variable_str():
        return ElementType(
            np.dtypes.StringDType(), Form.TEXT, reason="variable-length strings", text=True
        )
    size = tid.get_size()
    padding = _PADDINGS[tid.get_strpad()]
    element = ElementType(np.dtype(f"S{size}"), text=True, padding=padding)
    if padding == "zeros" or (size == 1 and padding == "terminated"):
        return element
    return replace(element, form=Form.CONVERTED, reason="strings that are not padded with zeros")


_PADDINGS = {
    h5t.STR_NULLTERM: "terminated",
    h5t.STR_NULLPAD: "zeros",
    h5t.STR_SPACEPAD: "spaces",
}


def _opaque(tid: Any) -> ElementType:
    dtype = tid.dtype
    if dtype.kind in "mM":
        native = dtype.newbyteorder("=")
        return ElementType(np.dtype(native.str), order="<" if dtype.isnative else ">")
    return ElementType(np.dtype(f"V{tid.get_size()}"))


def _enum(tid: Any) -> ElementType:
    base = _describe(tid.get_super())
    members = tuple(
        (tid.get_member_name(index).decode("utf-8", "replace"), int(tid.get_member_value(index)))
        for index in range(tid.get_nmembers())
    )
    if base.dtype == np.int8 and dict(members) == {"FALSE": 0, "TRUE": 1}:
        return replace(base, dtype=np.dtype(bool))
    return replace(base, enum=members)


def _array(tid: Any) -> ElementType:
    base = _describe(tid.get_super())
    return replace(base, subshape=tuple(tid.get_array_dims()) + base.subshape, enum=())


def _reference(tid: Any) -> ElementType:
    region = tid.equal(h5t.STD_REF_DSETREG)
    if not region and not tid.equal(h5t.STD_REF_OBJ):
        raise UnsupportedFeatureError("references of the kind H5T_STD_REF cannot be read by h5py")
    return ElementType(
        np.dtypes.StringDType(),
        Form.REFERENCE,
        reason=f"references to {'regions' if region else 'objects'}",
    )


def _ragged(tid: Any) -> ElementType:
    base = _describe(tid.get_super())
    return ElementType(base.dtype, Form.RAGGED, reason="variable-length sequences")


def _compound(tid: Any) -> ElementType:
    names = [
        tid.get_member_name(index).decode("utf-8", "surrogateescape")
        for index in range(tid.get_nmembers())
    ]
    members = [_describe(tid.get_member_type(index)) for index in range(len(names))]
    offsets = [tid.get_member_offset(index) for index in range(len(names))]
    orders = {member.order for member in members} - {"|"}
    bad = [member for member in members if not member.is_plain]
    mixed = [member for member in bad if member.form not in _WITHOUT_HEAP]
    if mixed:
        reason = f"compounds with members that are {mixed[0].reason}"
        return ElementType(np.dtype(f"V{tid.get_size()}"), Form.MIXED, reason=reason)
    if _is_complex(names, members, offsets, tid.get_size()):
        size = 2 * members[0].dtype.itemsize
        return ElementType(np.dtype(f"c{size}"), order=members[0].order)
    dtype = _struct(names, members, offsets, tid.get_size())
    if bad:
        reason = f"compounds with members that are {bad[0].reason or bad[0].codecs[0].name}"
        return ElementType(dtype, Form.CONVERTED, reason=reason)
    if len(orders) > 1:
        reason = "compounds with members of both byte orders"
        return ElementType(dtype, Form.CONVERTED, reason=reason)
    return ElementType(dtype, order=orders.pop() if orders else "|")


def _is_complex(
    names: Sequence[str], members: Sequence[ElementType], offsets: Sequence[int], size: int
) -> bool:
    """Whether h5py takes it for a complex number: members r and i, alike, side by side."""
    if tuple(names) != ("r", "i") or members[0] != members[1] or members[0].subshape:
        return False
    part = members[0].dtype
    return (
        part in (np.float32, np.float64)
        and members[0].is_plain
        and tuple(offsets) == (0, part.itemsize)
        and size == 2 * part.itemsize
    )


def _struct(
    names: list[str], members: Sequence[ElementType], offsets: list[int], size: int
) -> np.dtype[Any]:
    formats = [
        np.dtype((member.dtype, member.subshape)) if member.subshape else member.dtype
        for member in members
    ]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


_DESCRIBERS = {
    h5t.INTEGER: _integer,
    h5t.BITFIELD: _integer,
    h5t.FLOAT: _float,
    h5t.STRING: _string,
    h5t.OPAQUE: _opaque,
    h5t.ENUM: _enum,
    h5t.ARRAY: _array,
    h5t.REFERENCE: _reference,
    h5t.VLEN: _ragged,
    h5t.COMPOUND: _compound,
}
