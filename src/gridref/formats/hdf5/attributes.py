"""Read the attributes of HDF5 objects.

This module reads the attribute messages of an object header, or of its fractal heap, and returns
the attributes as xarray with h5netcdf shows them. Arrays of one element become scalars, strings
become ``str``, and arrays of strings become lists. Attributes in which netCDF4 keeps its own
records are returned separately.

Source: HDF5 File Format Specification v3, III.A.2 "Version 2 B-trees" (records of type 8),
IV.A.2.m "The Attribute Message", IV.A.2.v "The Attribute Info Message".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gridref.errors import Place, ScanError, SourceFormatError, UnsupportedFeatureError
from gridref.formats.hdf5.bytes import FieldCursor, Hdf5Bytes
from gridref.formats.hdf5.datatypes import (
    WITHOUT_HEAP,
    ElementType,
    Form,
    converted,
    element_type,
    member_bytes,
)
from gridref.formats.hdf5.files import OpenFile
from gridref.formats.hdf5.headers import (
    ATTRIBUTE,
    ATTRIBUTE_INFO,
    DATASPACE,
    DATATYPE,
    HeaderMessage,
    ObjectHeader,
    SharedMessages,
    attribute_head_bytes,
    read_dataspace,
)
from gridref.formats.hdf5.heaps import FractalHeap, records_of
from gridref.formats.metadata import decoded
from gridref.learned import FORMS

# Attributes in a fractal heap: for objects with many attributes

_NAME_INDEX, _RECORD_BYTES = 8, 17
_SHARED_FLAG = 0x02


def dense_attribute_messages(shared: SharedMessages, info: bytes) -> tuple[int, list[bytes]]:
    """Where an attribute info message says that attributes are, and their messages.

    They are in a fractal heap, which has none where there is no index. They are listed in order of
    creation.
    """
    file = shared.file
    cursor = FieldCursor(info, "the attribute info message", Place())
    cursor.take(1)
    cursor.take_bytes(2 if cursor.take(1) & 1 else 0)  # the largest number in order of creation
    heap_address, index = cursor.take(file.offset_bytes), cursor.take(file.offset_bytes)
    if file.undefined_address in (heap_address, index):
        return heap_address, []
    heap = FractalHeap(file, heap_address)
    records = records_of(
        file,
        index,
        "the index of attributes",
        record_type=_NAME_INDEX,
        record_bytes=_RECORD_BYTES,
    )
    # Heap id, message flags, order of creation, hash of the name.
    records.sort(key=lambda record: record[12:8:-1])
    return heap_address, [
        shared.in_heap(ATTRIBUTE, record[:8]) if record[8] & _SHARED_FLAG else heap.get(record[:8])
        for record in records
    ]


# Attribute messages, taken apart

_SHARED_DATATYPE, _SHARED_DATASPACE = 0x01, 0x02
_SIZES = struct.Struct("<HHH")


class _StoredAttribute(NamedTuple):
    """An attribute as its message holds it.

    Attributes
    ----------
    datatype, dataspace
        Messages about its elements and their number.
    is_shared
        Whether the first or the second of these only says where the message really is.
    """

    name: bytes
    datatype: bytes
    dataspace: bytes
    is_shared: tuple[bool, bool]
    data: bytes


def _attribute_messages(
    shared: SharedMessages, messages: Sequence[HeaderMessage]
) -> Iterator[tuple[bytes, int]]:
    """Bodies of the attribute messages of an object, and their places."""
    for message in messages:
        if message.kind == ATTRIBUTE:
            yield shared.resolved(message).data, message.address
        elif message.kind == ATTRIBUTE_INFO:
            address, bodies = dense_attribute_messages(shared, message.data)
            yield from ((body, address) for body in bodies)


def _cut_attribute(data: bytes) -> _StoredAttribute:
    """Cut an attribute message into its parts."""
    if len(data) < 9:
        raise SourceFormatError("an attribute message is cut off")
    version = data[0]
    if version not in (1, 2, 3):
        raise UnsupportedFeatureError(f"an attribute message has the unknown version {version}")
    stop = attribute_head_bytes(data)
    if stop > len(data):
        raise SourceFormatError("an attribute message is cut off")
    position = 9 if version == 3 else 8
    parts = []
    for size in _SIZES.unpack_from(data, 2):
        parts.append(data[position : position + size])
        position += -(-size // 8) * 8 if version == 1 else size
    name, datatype, dataspace = parts
    flags = 0 if version == 1 else data[1]
    is_shared = bool(flags & _SHARED_DATATYPE), bool(flags & _SHARED_DATASPACE)
    return _StoredAttribute(name.partition(b"\0")[0], datatype, dataspace, is_shared, data[stop:])


def _resolved_part(
    shared: SharedMessages, attribute: _StoredAttribute, kind: int, address: int
) -> bytes:
    """The message about the elements of an attribute, or about their number."""
    data = attribute.datatype if kind == DATATYPE else attribute.dataspace
    is_shared = attribute.is_shared[kind == DATASPACE]
    return shared.resolved(HeaderMessage(kind, data, address, is_shared)).data


# Attribute values, as xarray with h5netcdf presents them

_RECORDS = frozenset(
    {
        b"CLASS",
        b"NAME",
        b"DIMENSION_LIST",
        b"REFERENCE_LIST",
        b"_Netcdf4Dimid",
        b"_Netcdf4Coordinates",
        b"_nc3_strict",
        b"_NCProperties",
    }
)
"""Attributes that netCDF4 and the HDF5 dimension scales write for their own use."""

_UNREAD = frozenset({b"REFERENCE_LIST", b"_nc3_strict", b"_NCProperties"})
_KEPT_AS_BYTES = frozenset({b"_FillValue", b"missing_value"})
_NO_ELEMENTS = ElementType(np.dtype("V"))
_SHORT_BYTES, _MOST_VALUES = 256, 16


@dataclass(frozen=True)
class ObjectAttributes:
    """Attributes of a group or dataset.

    Attributes
    ----------
    records
        netCDF4's own attributes, by name; ``DIMENSION_LIST`` is a list of lists of addresses,
        because references to objects are addresses.
    unreadable
        Names of attributes without a value here, and the reasons.
    """

    public: dict[str, Any] = field(default_factory=dict)
    records: dict[str, Any] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)


def read_attributes(file: OpenFile, header: ObjectHeader) -> ObjectAttributes:
    """Read all attributes of an object."""
    try:
        return _read(file, header)
    except ScanError as error:
        raise error.located(file.place()) from error.__cause__


class _Attribute(NamedTuple):
    """An attribute without its value.

    Attributes
    ----------
    name, text
        Its name, as stored and as text.
    is_record
        Whether netCDF4 or the dimension scales write it for their own use.
    """

    name: bytes
    text: str
    is_record: bool
    element: ElementType
    shape: tuple[int, ...] | None

    def is_constant(self, value: Any) -> bool:
        """Whether equal elements have this value in every file, and nobody can change it."""
        if self.element.form not in WITHOUT_HEAP:
            return False
        is_number = isinstance(value, np.generic) and not isinstance(value, np.void)
        return is_number or isinstance(value, str) or self.is_record


class _Planned(NamedTuple):
    """An attribute of similar headers, and the place of its elements.

    Attributes
    ----------
    block, data
        The block of the header, and the bytes in it.
    values
        Short values that were there, by their bytes.
    """

    attribute: _Attribute
    block: int
    data: slice
    values: dict[bytes, Any]

    @property
    def n_bytes(self) -> int:
        """Most bytes that it takes, roughly."""
        length = self.data.stop - self.data.start
        return 1000 + (_MOST_VALUES * (200 + 2 * length) if length <= _SHORT_BYTES else 0)


def _read(file: OpenFile, header: ObjectHeader) -> ObjectAttributes:
    key = _Planned, header.form
    known: tuple[tuple[_Planned, ...] | None] | None = FORMS.get(key)
    if known is None:
        known = (_plan(header, file.bytes),)
        FORMS.put(key, known, 1000 + sum(each.n_bytes for each in known[0] or ()))
    (plan,) = known
    if plan is None:
        return _each_read(file, header)
    result = ObjectAttributes()
    public, records = result.public, result.records
    for attribute, block, place, values in plan:
        data = header.blocks[block].data[place]
        value = values.get(data)
        if value is None:
            try:
                value = _value(file, attribute, data)
            except ScanError as error:
                result.unreadable[attribute.text] = str(error.located(file.place()))
                continue
            is_short = len(data) <= _SHORT_BYTES and len(values) < _MOST_VALUES
            if is_short and attribute.is_constant(value):
                values[data] = value
        (records if attribute.is_record else public)[attribute.text] = value
    return result


def _plan(header: ObjectHeader, file: Hdf5Bytes) -> tuple[_Planned, ...] | None:
    """The attributes of headers with this form; None if there is more to them than the header."""
    form = header.form
    info = form.first.get(ATTRIBUTE_INFO)
    if not form.is_plain or (info and header.differing(*info)):
        return None
    plan = []
    for number, place in form.places:
        if place.kind == ATTRIBUTE:
            try:
                stored = _cut_attribute(header.blocks[number].data[place.start : place.stop])
                if any(stored.is_shared):
                    return None
                shape = read_dataspace(stored.dataspace, file.length_bytes).shape
                attribute = _named(stored.name, element_type(stored.datatype), shape)
            except ScanError:
                return None
            data = slice(place.stop - len(stored.data), place.stop)
            plan.append(_Planned(attribute, number, data, {}))
    if len({planned.attribute.text for planned in plan}) < len(plan):
        return None
    if not header.tracks_attribute_order:
        plan.sort(key=lambda planned: planned.attribute.name)
    return tuple(planned for planned in plan if planned.attribute.name not in _UNREAD)


def _named(name: bytes, element: ElementType, shape: tuple[int, ...] | None) -> _Attribute:
    text = name.decode("utf-8", "backslashreplace")
    return _Attribute(name, text, name in _RECORDS, element, shape)


class _Found(NamedTuple):
    """An attribute and its value, or why it has none."""

    attribute: _Attribute
    value: Any
    error: str = ""


def _each_read(file: OpenFile, header: ObjectHeader) -> ObjectAttributes:
    """Attributes, some outside the header or unreadable."""
    messages = _attribute_messages(file.shared, header.messages)
    found = [_found(file, body, address) for body, address in messages]
    if not header.tracks_attribute_order:
        found.sort(key=lambda each: each.attribute.name)
    result = ObjectAttributes()
    for attribute, value, error in found:
        if error:
            result.unreadable[attribute.text] = error
            result.public.pop(attribute.text, None)
            result.records.pop(attribute.text, None)
        elif attribute.name not in _UNREAD:
            shown = result.records if attribute.is_record else result.public
            shown[attribute.text] = value
    return result


def _found(file: OpenFile, body: bytes, address: int) -> _Found:
    width = file.bytes.length_bytes
    key = _Found, body, width
    known: _Found | None = FORMS.get(key)
    if known is not None:
        return known
    try:
        stored = _cut_attribute(body)
        shape = read_dataspace(_resolved_part(file.shared, stored, DATASPACE, address), width).shape
    except ScanError as error:
        raise error.located(file.bytes.place(address, len(body))) from None
    attribute = _named(stored.name, _NO_ELEMENTS, shape)
    if stored.name in _UNREAD:
        return _Found(attribute, None)
    try:
        element = element_type(_resolved_part(file.shared, stored, DATATYPE, address))
        attribute = attribute._replace(element=element)
        value = _value(file, attribute, stored.data)
    except ScanError as error:
        return _Found(attribute, None, str(error.located(file.place())))
    found = _Found(attribute, value)
    is_short = len(body) <= 2 * _SHORT_BYTES
    if is_short and not any(stored.is_shared) and attribute.is_constant(value):
        FORMS.put(key, found, 2000 + 4 * len(body))
    return found


def _n_elements(data: bytes, element: ElementType, shape: tuple[int, ...]) -> int:
    count = math.prod(shape) * math.prod(element.subshape)
    n_bytes = count * element.itemsize
    if n_bytes > len(data):
        raise SourceFormatError(f"the attribute has {len(data)} of {n_bytes} bytes")
    return count


def _value(file: OpenFile, attribute: _Attribute, data: bytes) -> Any:
    name, element, shape = attribute.name, attribute.element, attribute.shape
    if shape is None:
        return _empty(element)
    count = _n_elements(data, element, shape)
    full = shape + element.subshape
    if element.form in WITHOUT_HEAP:
        if not element.text:
            return _unwrapped(converted(data, element, count).reshape(full)[()])
        raw = np.frombuffer(data, element.dtype, count).reshape(full)
        return _unwrapped(_fixed(raw, element, name))
    if name == b"DIMENSION_LIST" and element.base is not None:
        width = file.bytes.offset_bytes
        return [_addresses(item, width) for item in file.heap.items(data, count, width)]
    return _unwrapped(_shaped(heap_values(data, element, count, file), full))


def _addresses(item: bytes, width: int) -> list[int]:
    """Object references, which are addresses of object headers."""
    return [
        int.from_bytes(item[start : start + width], "little")
        for start in range(0, len(item), width)
    ]


def _unwrapped(value: Any) -> Any:
    """The one element of a value of length one."""
    if isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim):
        return value[0] if len(value) == 1 else value
    return value


def _empty(element: ElementType) -> Any:
    """The value of a null dataspace: netCDF4 writes an empty string so."""
    if element.text:
        return "" if element.dtype.itemsize == 1 else []
    return np.array([], element.dtype)


def _shaped(values: list[Any], shape: tuple[int, ...]) -> Any:
    return values if shape else values[0]


def _fixed(raw: NDArray[Any], element: ElementType, name: bytes) -> Any:
    """Strings of fixed length; arrays of single characters are left bytes, as in netCDF4."""
    if element.dtype.itemsize == 1 and raw.size > 1:
        return raw.tolist()
    items = raw.reshape(-1).tolist()
    if element.padding == "terminated":
        items = [item.partition(b"\0")[0] for item in items]
    elif element.padding == "spaces":
        items = [item.rstrip(b" ") for item in items]
    keep_bytes = element.dtype.itemsize == 1 and name in _KEPT_AS_BYTES
    return _shaped(items if keep_bytes else [*map(decoded, items)], raw.shape)


def heap_values(data: bytes, element: ElementType, count: int, file: OpenFile) -> list[Any]:
    """Values of elements with parts in a heap, or references.

    Variable-length sequences become arrays or lists, references paths, and compounds dictionaries.
    """
    match element.form:
        case Form.TEXT:
            return [*map(decoded, file.heap.texts(data, count))]
        case Form.REFERENCE:
            size = element.itemsize
            return [
                file.referenced_path(data[start : start + size], region=element.region)
                for start in range(0, count * size, size)
            ]
        case Form.RAGGED if element.base is not None:
            size = element.base.itemsize * math.prod(element.base.subshape)
            items = file.heap.items(data, count, size)
            return [_several(item, element.base, len(item) // size, file) for item in items]
        case Form.MIXED:
            return _dictionaries(data, element, count, file)
    return [*converted(data, element, count)]


def _several(data: bytes, element: ElementType, count: int, file: OpenFile) -> Any:
    """Elements as an array if they can be one, else as a list."""
    count *= math.prod(element.subshape)
    if element.form in WITHOUT_HEAP:
        return converted(data, element, count).reshape(-1, *element.subshape)
    return heap_values(data, element, count, file)


def _dictionaries(data: bytes, element: ElementType, count: int, file: OpenFile) -> list[Any]:
    columns = []
    for member, part in member_bytes(data, element, count):
        n_each = member.n_elements
        values = _several(part, replace(member.element, subshape=()), count * n_each, file)
        if member.element.subshape:
            values = [values[row * n_each : (row + 1) * n_each] for row in range(count)]
        columns.append([decoded(v) if isinstance(v, bytes) else v for v in values])
    names = [member.name for member in element.members]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
