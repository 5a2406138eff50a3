"""What a DMR++ document says: groups, dimensions, attributes, types and fill values.

`read_document` parses the bytes. `walk` gives the groups with their paths, and a `Scope` finds
dimensions and enumerations by the names that variables use. `attributes_of` reads attributes.
`element_type_of` says what the elements of a variable are, with the same dtypes as in scans of
HDF5, and how they are stored. `exact_fill` says how missing elements read, if that is stated.

Sources: DAP4 Specification, Volume 1, https://docs.opendap.org/index.php/DAP4:_Specification_Volume_1;
DMR++ documentation of the BES, https://github.com/OPENDAP/bes (``modules/dmrpp_module``), and
``get_value_as_string`` of ``build_dmrpp_util.cc`` there.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.datatypes import is_complex
from gridref.formats.metadata import DEFAULT_FILLS, parsed_xml
from gridref.limits import MAX_GROUP_DEPTH, beyond, limits
from gridref.model.array import Enumeration, cf_flags
from gridref.model.encoding import Codec, bytes_codec

DAP = "{http://xml.opendap.org/ns/DAP/4.0#}"
DMRPP = "{http://xml.opendap.org/dap/dmrpp/1.0.0#}"

_MAX_BYTES = 1 << 62
_MAX_RANK = 32
NUMBERS = {
    "Byte": "u1",
    "UInt8": "u1",
    "Int8": "i1",
    "Int16": "i2",
    "UInt16": "u2",
    "Int32": "i4",
    "UInt32": "u4",
    "Int64": "i8",
    "UInt64": "u8",
    "Float32": "f4",
    "Float64": "f8",
}
TEXTS = ("String", "URL", "Url")
_OTHERS = ("Enum", "Structure", "Sequence", "Opaque", "Char")
Names = tuple[str, ...]

VARIABLES = frozenset(DAP + name for name in (*NUMBERS, *TEXTS, *_OTHERS))
"""Tags of variables."""
_ABOUT_THE_WRITER = "build_dmrpp_metadata"
_OF_THE_ROOT = ("HDF5_GLOBAL", "NC_GLOBAL")
_OF_UNLIMITED = ("DODS_EXTRA", "Unlimited_Dimension")


# The XML, and its groups


def read_document(data: bytes) -> ET.Element:
    """Parse a document."""
    if len(data) > limits().dmrpp_bytes:
        raise UnsupportedFeatureError(beyond("dmrpp_bytes", f"the DMR++ has {len(data)} bytes"))
    plain = data.replace(b'"https://xml.opendap.org/', b'"http://xml.opendap.org/')
    root = parsed_xml(plain, "the DMR++")
    if root.tag != f"{DAP}Dataset":
        raise SourceFormatError("the DMR++ does not begin with a Dataset of DAP4")
    return root


def walk(group: ET.Element, path: str = "", depth: int = 0) -> Iterator[tuple[str, ET.Element]]:
    """The path of each group and the group; the root has the path ``""``."""
    if depth > MAX_GROUP_DEPTH:
        raise SourceFormatError(f"groups are nested more than {MAX_GROUP_DEPTH} deep")
    yield path, group
    for child in group.iterfind(f"{DAP}Group"):
        name = child.get("name", "")
        if not name or "/" in name:
            raise SourceFormatError(f"a group in {path or '/'} has the name {name!r}")
        yield from walk(child, f"{path}/{name}", depth + 1)


class Scope:
    """Dimensions and enumerations by group and name, and names for dimensions that have none."""

    def __init__(self, root: ET.Element) -> None:
        self.sizes: dict[str, dict[str, int]] = {}
        self.enumerations: dict[str, dict[str, ET.Element]] = {}
        for path, group in walk(root):
            self.sizes[path] = {
                child.get("name", ""): _size(child) for child in group.iterfind(f"{DAP}Dimension")
            }
            self.enumerations[path] = {
                child.get("name", ""): child for child in group.iterfind(f"{DAP}Enumeration")
            }
        self._n_named = sum(map(len, self.sizes.values()))

    def shape(self, variable: ET.Element, path: str) -> tuple[int, ...]:
        """Sizes of a variable's dimensions. `path` is that of its group."""
        dims = variable.findall(f"{DAP}Dim")
        if len(dims) > _MAX_RANK:
            raise SourceFormatError(f"it has {len(dims)} dimensions")
        names = [dim.get("name") for dim in dims]
        shape = tuple(
            _size(dim) if name is None else _found(self.sizes, name, path, "dimension")
            for dim, name in zip(dims, names, strict=True)
        )
        if math.prod(max(1, size) for size in shape) > _MAX_BYTES:
            raise SourceFormatError(f"its shape is declared to be {shape}")
        return shape

    def names(self, group: Sequence[tuple[ET.Element, tuple[int, ...]]], path: str) -> list[Names]:
        """Names of the dimensions of the variables of a group, which come with their shapes.

        Dimensions without a name are named as in scans of HDF5. If a variable has no names at all,
        those of one size are one dimension, the declared one of this size where there is one.
        """
        given = [[dim.get("name") for dim in node.iterfind(f"{DAP}Dim")] for node, _ in group]
        shapes = [shape for _, shape in group]
        alike: dict[int, list[str]] = {}
        for name, size in self.sizes[path].items():
            alike.setdefault(size, []).append(name)
        needed: Counter[int] = Counter()
        for names, shape in zip(given, shapes, strict=True):
            needed |= Counter(() if any(names) else shape)
        for size, n_needed in needed.items():
            own = alike.setdefault(size, [])
            while len(own) < n_needed:
                own.append(f"phony_dim_{self._n_named}")
                self._n_named += 1
        found = []
        for (node, shape), names in zip(group, given, strict=True):
            free = {size: iter(alike.get(size, ())) for size in shape}
            made_up = (f"{node.get('name')}_axis_{axis}" for axis in range(len(shape)))
            found.append(
                tuple(
                    name.rpartition("/")[2]
                    if name is not None
                    else other
                    if any(names)
                    else next(free[size], other)
                    for name, size, other in zip(names, shape, made_up, strict=True)
                )
            )
        return found

    def enumeration(self, variable: ET.Element, path: str) -> ET.Element:
        """The declaration of the enumeration of a variable in the group `path`."""
        return _found(self.enumerations, variable.get("enum", ""), path, "enumeration")


def _found[T](known: Mapping[str, Mapping[str, T]], name: str, path: str, what: str) -> T:
    """What an absolute name means, or a relative one in a group or in one above it."""
    group, slash, own = name.rpartition("/")
    groups = [group]
    if not slash:
        parts = path.split("/")
        groups = ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]
    for group in groups:
        if own in known.get(group, {}):
            return known[group][own]
    raise SourceFormatError(f"the {what} {name!r} is not declared")


def _size(dim: ET.Element) -> int:
    return integer(dim.get("size"), "the size of a dimension")


def integer(text: str | None, what: str) -> int:
    """A number that is not negative and below 2**62."""
    if text is None or not re.fullmatch(r"[0-9]{1,19}", text) or int(text) >= _MAX_BYTES:
        raise SourceFormatError(f"{what} is {text!r}")
    return int(text)


# Attributes


@dataclass
class Attributes:
    """Attributes of a variable or a group.

    Attributes
    ----------
    public
        Values by name: texts and numbers, or lists of texts and arrays of numbers.
    left_out
        Why an attribute is left out, by its name.
    """

    public: dict[str, Any] = field(default_factory=dict)
    unlimited: frozenset[str] = frozenset()
    left_out: dict[str, str] = field(default_factory=dict)


def attributes_of(owner: ET.Element) -> Attributes:
    """Attributes of a variable or a group; those of a container are left out."""
    found = Attributes()
    _take(owner, found)
    return found


def _take(owner: ET.Element, found: Attributes) -> None:
    for each in owner.iterfind(f"{DAP}Attribute"):
        name, kind = each.get("name", ""), each.get("type", "")
        if kind != "Container":
            try:
                found.public[name] = _value(each, kind)
            except (SourceFormatError, ValueError, OverflowError) as error:
                found.left_out[name] = f"it cannot be read: {error}"
        elif name in _OF_THE_ROOT:
            _take(each, found)
        elif name == _OF_UNLIMITED[0]:
            inner = attributes_of(each).public.get(_OF_UNLIMITED[1], "")
            texts = inner if isinstance(inner, list) else str(inner).split()
            found.unlimited |= frozenset(texts)
        elif name != _ABOUT_THE_WRITER:
            found.left_out[name] = "it is a container of other attributes"


def _value(attribute: ET.Element, kind: str) -> Any:
    values = attribute.findall(f"{DAP}Value")
    texts = [each.get("value", each.text or "") for each in values]
    if kind in TEXTS:
        return texts if len(texts) > 1 else "".join(texts)
    if kind not in NUMBERS:
        raise SourceFormatError(f"its type is {kind!r}")
    dtype = np.dtype(NUMBERS[kind])
    numbers = np.array([number(text, dtype) for text in texts], dtype)
    return numbers[0] if len(numbers) == 1 else numbers


def number(text: str, dtype: np.dtype[Any]) -> Any:
    """A number of a dtype, from its decimal digits."""
    text = text.strip()
    if "_" in text or not text.isascii():  # Python would take these
        raise ValueError(f"{text[:40]!r} is not a number")
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return dtype.type(float(text))
    value = int(text)
    if not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise ValueError(f"{text[:40]!r} is no {dtype}")
    return dtype.type(value)


# Types of elements


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
    """

    dtype: np.dtype[Any]
    codecs: tuple[Codec, ...]
    flags: Mapping[str, Any] = field(default_factory=dict)
    enumeration: Enumeration | None = None
    is_big_endian: bool = False


def element_type_of(variable: ET.Element, path: str, scope: Scope) -> ElementType:
    """Describe the elements of a variable in the group `path`.

    Numbers whose byte order is not stated are little-endian, as Hyrax reads them on its servers.
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
    name = declared.get("name", "")
    named = name and not name.startswith(_MADE_UP_NAME)
    return ElementType(
        dtype,
        (bytes_codec(dtype, big_endian=big),),
        cf_flags(members.items(), dtype) if members else {},
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
    if is_complex(names, formats, starts, size):
        return np.dtype(f"c{size}")
    return np.dtype({"names": names, "formats": formats, "offsets": starts, "itemsize": size})


# Fill values

# The writer prints floats with six digits, and the bytes of big-endian numbers as if they were
# little-endian. An attribute ``_FillValue`` of the same value has all its digits.


_UNKNOWN = "unsupported-"
_DIGITS = 6
_DEFAULT_PRINTED = "9.96921e+36"
"""netCDF's default fill value of floats, with six digits."""


def exact_fill(text: str | None, element: ElementType, attribute: Any) -> Any:
    """The fill value of elements, or None if it is not known exactly.

    Parameters
    ----------
    text
        The ``fillValue`` of the document; None if it has none.
    attribute
        The attribute ``_FillValue``; None if there is none.
    """
    dtype = element.dtype
    own = attribute if getattr(attribute, "dtype", None) == dtype else None
    if text is None:
        return own
    if text.startswith(_UNKNOWN):
        return None
    if dtype.kind == "T":
        return text
    try:
        if dtype.kind == "S":
            raw = text.encode("latin-1")
            return np.bytes_(raw) if len(raw) <= dtype.itemsize else None
        if dtype.names is None:
            return _fill_number(text, dtype, own, element.is_big_endian)
        return _record(text.split(), dtype, element.is_big_endian)
    except (ValueError, UnicodeEncodeError):  # it is none of its type
        return None


def _record(words: list[str], dtype: np.dtype[Any], is_big_endian: bool) -> Any:
    """A value for each number of a structure; a zero alone is for all."""
    value = np.zeros((), dtype)
    if words == ["0"]:
        return value[()]
    for name in dtype.names or ():
        base, shape = dtype[name].base, dtype[name].shape
        taken, words = words[: math.prod(shape)], words[math.prod(shape) :]
        numbers = [_fill_number(word, base, None, is_big_endian) for word in taken]
        if None in numbers:
            return None
        value[name] = np.array(numbers, base).reshape(shape)
    return value[()]


def _fill_number(text: str, dtype: np.dtype[Any], own: Any, is_big_endian: bool) -> Any:
    if dtype.kind == "b":
        return np.bool_(int(text))
    value = number(text, dtype)
    if own is not None and own in (value, value.byteswap()):
        return own
    if is_big_endian and value.byteswap().tobytes() != value.tobytes():
        return None
    if dtype.kind != "f":
        return value
    if own is not None and f"{own:.{_DIGITS}g}" == f"{value:.{_DIGITS}g}":
        return own
    if text == _DEFAULT_PRINTED:
        return dtype.type(DEFAULT_FILLS[np.dtype("f8")])
    digits = text.lower().partition("e")[0].strip("+-").replace(".", "").strip("0")
    return value if len(digits) < _DIGITS else None
