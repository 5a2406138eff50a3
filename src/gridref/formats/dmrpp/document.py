"""Read the XML of a DMR++ document: groups, dimensions and attributes.

`read_document` parses the bytes. `walk` gives the groups with their paths, and a `Scope` finds
dimensions and enumerations by the names that variables use. `attributes_of` reads attributes.

Sources: DAP4 Specification, Volume 1, https://docs.opendap.org/index.php/DAP4:_Specification_Volume_1;
DMR++ documentation of the BES, https://github.com/OPENDAP/bes (``modules/dmrpp_module``).
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
from gridref.limits import beyond, limits
from gridref.model.array import MAX_GROUP_DEPTH

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
    """Parse a document. A document type declaration is refused: its entities could expand."""
    if len(data) > limits().dmrpp_bytes:
        raise UnsupportedFeatureError(beyond("dmrpp_bytes", f"the DMR++ has {len(data)} bytes"))
    if b"<!DOCTYPE" in data or b"\0" in data:  # the latter would be another encoding of the former
        raise SourceFormatError("the DMR++ declares a document type, which is not read")
    try:
        root = ET.fromstring(
            data.replace(b'"https://xml.opendap.org/', b'"http://xml.opendap.org/')
        )
    except (ET.ParseError, ValueError, LookupError) as error:
        raise SourceFormatError(f"the DMR++ is not XML: {error}") from error
    if root.tag != f"{DAP}Dataset":
        raise SourceFormatError("the DMR++ does not begin with a Dataset of DAP4")
    return root


def walk(group: ET.Element, path: str = "", depth: int = 0) -> Iterator[tuple[str, ET.Element]]:
    """The path of each group and the group; the root has the path ``""``.

    Raises
    ------
    SourceFormatError
        For groups that are nested too deep, or without a proper name.
    """
    if depth > MAX_GROUP_DEPTH:
        raise SourceFormatError(f"groups are nested more than {MAX_GROUP_DEPTH} deep")
    yield path, group
    for child in group.iterfind(f"{DAP}Group"):
        name = child.get("name", "")
        if not name or "/" in name:
            raise SourceFormatError(f"a group in {path or '/'} has the name {name!r}")
        yield from walk(child, f"{path}/{name}", depth + 1)


class Scope:
    """Dimensions and enumerations by group and name, and names for dimensions that have none.

    Raises
    ------
    SourceFormatError
        For a dimension without a size.
    """

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
        """Sizes of a variable's dimensions. `path` is that of its group.

        Raises
        ------
        SourceFormatError
            If one is not declared, or they are too many or all together impossibly large.
        """
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

        Dimensions without a name are named as in scans of HDF5, which follow netCDF: those of one
        size are one dimension, the declared one of this size where there is one.
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
                    next(free[size], other) if name is None else name.rpartition("/")[2]
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
    unlimited
        Names of dimensions that are said to be unlimited.
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
