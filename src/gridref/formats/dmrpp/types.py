"""Turn the types of a DMR++ document into numpy dtypes, the same as in scans of HDF5.

`element_type_of` takes a variable and returns what its elements are, and how they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.dmrpp.document import (
    DAP,
    DMRPP,
    NUMBERS,
    TEXTS,
    VARIABLES,
    Scope,
    integer,
    number,
)
from gridref.limits import beyond, limits
from gridref.model.array import CF_FLAGS, Enumeration
from gridref.model.encoding import Codec, bytes_codec

_BYTE_ORDERS = {None: False, "LE": False, "BE": True}
_PADDINGS = {"null_term": "terminated", "null_pad": "zeros", "space_pad": "spaces"}
_MADE_UP_NAME = "NoNameEnum"
"""How the writer names enumerations that have no name in the granule."""


@dataclass(frozen=True)
class ElementType:
    """The elements of a variable.

    Attributes
    ----------
    dtype
        In native byte order; ``StringDType`` where the document has the texts themselves.
    codecs
        The codec chain up to the bytes to which filters are applied.
    flags
        Attributes with the names of an enumeration.
    enumeration
        The enumeration, if it has a name.
    is_big_endian
        Whether the document says so.
    """

    dtype: np.dtype[Any]
    codecs: tuple[Codec, ...]
    flags: Mapping[str, Any] = field(default_factory=dict)
    enumeration: Enumeration | None = None
    is_big_endian: bool = False


def element_type_of(variable: ET.Element, path: str, scope: Scope) -> ElementType:
    """Describe the elements of a variable in the group `path`.

    Numbers whose byte order is not stated are little-endian, as Hyrax reads them on its servers.

    Raises
    ------
    SourceFormatError
        If the document contradicts itself.
    UnsupportedFeatureError
        For types that have no dtype here.
    """
    chunks = variable.find(f"{DMRPP}chunks")
    order = None if chunks is None else chunks.get("byteOrder")
    if order not in _BYTE_ORDERS:
        raise UnsupportedFeatureError(f"the byte order {order!r} is not known")
    big = _BYTE_ORDERS[order]
    kind = variable.tag.removeprefix(DAP)
    if kind in TEXTS:
        return _text_type(variable, math.prod(scope.shape(variable, path)) == 1)
    if kind == "Enum":
        return _enum_type(scope.enumeration(variable, path), big)
    if kind == "Structure":
        offsets = "" if chunks is None else chunks.get("structOffset", "")
        dtype = _struct(variable, path, scope, offsets)
    else:
        dtype = _plain(kind)
    return ElementType(dtype, (bytes_codec(dtype, big_endian=big),), is_big_endian=big)


def _plain(kind: str) -> np.dtype[Any]:
    if kind not in NUMBERS:
        raise UnsupportedFeatureError(f"elements of the DAP4 type {kind} are not read")
    return np.dtype(NUMBERS[kind])


def _text_type(variable: ET.Element, is_single: bool) -> ElementType:
    """Texts of a fixed number of bytes. Texts of a variable length are in the document itself."""
    fixed = variable.find(f"{DMRPP}FixedLengthStringArray")
    if fixed is not None:
        n_bytes = integer(fixed.get("string_length"), "the length of its strings")
        padding = _PADDINGS.get(fixed.get("pad", ""), "")
        if not padding or not n_bytes:
            raise UnsupportedFeatureError(
                f"strings of {n_bytes} bytes, padded by {fixed.get('pad')!r}, are not read"
            )
        return _fixed_text(n_bytes, padding)
    chunks = variable.find(f"{DMRPP}chunks")
    places = [each.get("nBytes") for each in variable.iter(f"{DMRPP}chunk")]
    is_plain = chunks is None or not chunks.get("compressionType")
    if len(places) == 1 and is_single and is_plain:
        return _fixed_text(_bytes_of_text(places[0]), "terminated")
    return ElementType(np.dtype(np.dtypes.StringDType()), (Codec("vlen-utf8"),))


_POINTER_BYTES = 16
"""A string of variable length is such a pointer in the granule: size, address and index."""


def _bytes_of_text(text: str | None) -> int:
    n_bytes = integer(text, "the number of bytes of its string")
    if n_bytes in (0, _POINTER_BYTES):
        raise UnsupportedFeatureError(
            f"its {n_bytes} bytes may be a string, or a pointer to one of variable length"
        )
    return n_bytes


def _fixed_text(n_bytes: int, padding: str) -> ElementType:
    if n_bytes > limits().element_bytes:
        raise UnsupportedFeatureError(beyond("element_bytes", f"elements of {n_bytes} bytes"))
    codecs: tuple[Codec, ...] = (Codec("bytes"),)
    if padding != "zeros" and (n_bytes, padding) != (1, "terminated"):
        codecs = (Codec.of("gridref.hdf5_string", padding=padding), *codecs)
    return ElementType(np.dtype(f"S{n_bytes}"), codecs)


def _enum_type(declared: ET.Element, big: bool) -> ElementType:
    """Integers with names; those of h5py's booleans are booleans."""
    dtype = _plain(declared.get("basetype", ""))
    if dtype.kind not in "iu":
        raise UnsupportedFeatureError(f"enumerations of {dtype} are not read")
    members = {}
    for each in declared.iterfind(f"{DAP}EnumConst"):
        try:
            members[each.get("name", "")] = int(number(each.get("value", ""), dtype))
        except ValueError as error:
            raise SourceFormatError(f"its enumeration has a member that {error}") from error
    if dtype == np.int8 and members == {"FALSE": 0, "TRUE": 1}:
        return ElementType(np.dtype(bool), (bytes_codec(np.dtype(bool)),))
    ordered = sorted(members.items(), key=lambda member: member[1])
    meanings = " ".join(name.replace(" ", "_") for name, _ in ordered)
    values = np.array([value for _, value in ordered], dtype)
    name = declared.get("name", "")
    named = name and not name.startswith(_MADE_UP_NAME)
    return ElementType(
        dtype,
        (bytes_codec(dtype, big_endian=big),),
        dict(zip(CF_FLAGS, (values, meanings), strict=True)) if members else {},
        Enumeration(name, tuple(members.items())) if named else None,
        big,
    )


def _struct(variable: ET.Element, path: str, scope: Scope, offsets: str) -> np.dtype[Any]:
    """A structured dtype; without offsets, members follow each other."""
    names, formats = [], []
    for member in variable:
        if member.tag not in VARIABLES:
            continue
        names.append(member.get("name", ""))
        dtype = _plain(member.tag.removeprefix(DAP))
        shape = scope.shape(member, path)
        formats.append(np.dtype((dtype, shape)) if shape else dtype)
    if not offsets:
        return np.dtype(list(zip(names, formats, strict=True)))
    numbers = [integer(text, "an offset of its members") for text in offsets.split()]
    if len(numbers) != len(names):
        raise SourceFormatError(f"its {len(names)} members are at the offsets {offsets!r}")
    starts, size = [0, *numbers[:-1]], numbers[-1]
    stops = [start + each.itemsize for start, each in zip(starts, formats, strict=True)]
    if any(stop > after for stop, after in zip(stops, numbers, strict=True)):
        raise SourceFormatError(f"its members overlap at the offsets {offsets!r}")
    if _is_complex(names, formats, numbers):
        return np.dtype(f"c{size}")
    return np.dtype({"names": names, "formats": formats, "offsets": starts, "itemsize": size})


def _is_complex(names: list[str], formats: list[np.dtype[Any]], offsets: list[int]) -> bool:
    """Whether h5py takes it for a complex number: members r and i, alike, side by side."""
    if (
        names != ["r", "i"]
        or formats[0] != formats[1]
        or formats[0] not in (np.float32, np.float64)
    ):
        return False
    return offsets == [formats[0].itemsize, 2 * formats[0].itemsize]
